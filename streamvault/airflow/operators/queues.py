"""Operators for queues of requests."""

from __future__ import annotations

from typing import Any, ClassVar

from streamvault.airflow.operators.command import CommandOperator
from streamvault.requests.options import RequestOptions, WorkOptions

QUEUE = "the queue, a stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI."


class QueueOperator(CommandOperator):
    """Writes or reads a queue of requests; see `CommandOperator`."""

    requests: str

    def resolve(self, argument: str) -> Any:
        """See the base class."""
        value = super().resolve(argument)
        return self.stream_uri(value) if argument == "requests" and value else value

    def connected_stream(self) -> str:
        """See the base class."""
        return self.requests


class RequestRestoreOperator(QueueOperator):
    """``streamvault request-restore``: queues a restore for a worker.

    A retry after a task that was killed may queue it twice; the second one finds the stream restored.
    """

    verb = "request-restore"
    arguments: ClassVar = {
        "archive": "``ROOT/SCOPE/STREAM``.",
        "stream": "the new stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI.",
    }
    options_class = RequestOptions
    read = ("archive",)
    renamed: ClassVar = {"queue": "requests"}


class WorkQueueOperator(QueueOperator):
    """``streamvault work``: processes the requests of a queue.

    `idle` or `lasting` is required, as a task must end; with ``idle="0s"`` it processes those that wait. The archives
    are accessed with `aws_conn_id`, the queue's cluster with `pravega_conn_id`.
    """

    verb = "work"
    arguments: ClassVar = {"requests": QUEUE}
    options_class = WorkOptions
    idle: str | float | None
    lasting: str | None

    def command(self) -> list[str]:
        """See the base class."""
        self.require_end("work", "idle", "lasting")
        return super().command()

    def uses_s3(self) -> bool:
        """Return True: only the requests say which archives are read."""
        return True
