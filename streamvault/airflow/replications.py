"""The list of streams to replicate, and the operator's arguments that follow from it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from streamvault.airflow.lists import Duration, ListEntry, StreamList, TaskOptions, stands_for_streams
from streamvault.airflow.pravega import PravegaHook
from streamvault.mirrors.options import ReplicateOptions
from streamvault.scopes.entries import with_options


@with_options(ReplicateOptions, omitted=("follow", "every", "idle", "lasting"))
class ReplicationOptions(TaskOptions):
    """Options of a replication, as for `ReplicateStreamOperator`; an entry's own override those of the list."""

    most_lag: Duration | None = None
    target_conn_id: str | None = None


class ReplicationEntry(ListEntry, ReplicationOptions):
    """A pair of streams, or all streams of a scope.

    Attributes:
        source: the stream to replicate: ``SCOPE/STREAM``, ``STREAM`` in the connection's scope, a URI, or an archive;
            with ``SCOPE/`` all streams of a scope, with a ``*`` those that match.
        stream: the replica: ``SCOPE/STREAM``, ``STREAM`` or a URI; of several, ``SCOPE/``; None: the source's name.
        target_scope: scope of the replicas, which have the names of their sources; None: `scope`.
    """

    named: ClassVar = "source"
    source: str | None = None
    stream: str | None = None
    target_scope: str | None = None

    @model_validator(mode="after")
    def _replica_of_a_stream_or_scope(self) -> Self:
        if self.source is None and self.stream is not None:
            raise ValueError("stream requires source; for a scope, give target_scope")
        if self.scope is None and self.target_scope is not None:
            raise ValueError("target_scope requires scope; for a source, give stream")
        if self.source is not None and "://" in self.source and self.stream is None:
            raise ValueError("stream is missing: the source is a URI")
        if self.source is not None and self.stream is not None:
            several = stands_for_streams(self.source)
            if several != stands_for_streams(self.stream) or "*" in self.stream:
                raise ValueError(
                    f"stream must be {'a scope, with / at its end' if several else 'a stream'}, as the source"
                )
        return self


class Replications(ReplicationOptions, StreamList):
    """The list: ``{"target_conn_id": "standby", "streams": ["shop/orders", {"scope": "billing"}]}``."""

    parameter: ClassVar = "standby"
    what: ClassVar = "replications"
    product: ClassVar = "replica"
    example: ClassVar = {"target_conn_id": "pravega_standby", "streams": ["shop/orders", {"scope": "billing"}]}

    streams: Annotated[tuple[ReplicationEntry, ...], Field(min_length=1)]

    def task(
        self, entry: ReplicationEntry, stream: str, options: dict[str, Any]
    ) -> tuple[tuple[str, str], dict[str, Any]]:
        """See the base class."""
        connection = options.get("pravega_conn_id") or PravegaHook.default_conn_name
        target = options.get("target_conn_id") or connection
        replica = entry.stream or (f"{entry.target_scope}/" if entry.target_scope else stream)
        if replica.endswith("/"):
            replica += stream.rpartition("/")[2]
        if stream == replica and (connection == target or "://" in stream):
            raise ValueError("source and replica are the same stream. Give target_conn_id, or another name.")
        return ("" if "://" in replica else target, replica), {"source": stream, "stream": replica, **options}
