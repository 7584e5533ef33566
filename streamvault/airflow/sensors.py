"""Sensors: they wait for a generation of an archive, or for bytes in a stream; in the triggerer if deferrable."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.outcome import exception_for_airflow, raising_for_airflow
from streamvault.airflow.pravega import PravegaHook
from streamvault.airflow.triggers import GenerationTrigger, LookingTrigger, StreamBytesTrigger
from streamvault.common.errors import Problem
from streamvault.common.sizes import parse_size

if TYPE_CHECKING:
    from streamvault.streamstore.arithmetic.cut_option import Cut

DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)


class LookingSensor(BaseSensorOperator):
    """A sensor that waits until a look finds something new, and returns what it found.

    Args:
        deferrable: whether to wait in the triggerer, without a worker.
        others: `poke_interval`, `timeout`, `mode` and the other arguments of `BaseSensorOperator`.
    """

    ui_color = "#dcebf7"

    def __init__(self, *, deferrable: bool = DEFERRABLE, **others: Any) -> None:
        super().__init__(**others)
        self.deferrable = deferrable

    @abstractmethod
    def trigger(self) -> LookingTrigger:
        """Return what waits in the triggerer.

        Raises:
            ValueError: an argument is not valid.
        """

    def poke(self, context: Any) -> PokeReturnValue:  # noqa: ARG002
        """Look once. A server that does not answer is asked again after the interval."""
        with raising_for_airflow():
            try:
                found = self._trigger().connect()()
            except Problem as problem:
                if not problem.transient:
                    raise
                self.log.warning("%s", problem)
                found = None
        return PokeReturnValue(found is not None, found)

    def execute(self, context: Any) -> Any:
        """Wait, and return what was found."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if found:
            return found.xcom_value
        self.defer(trigger=self._trigger(), method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        return None

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """Return what the trigger found."""
        if event["error"]:
            raise exception_for_airflow(event["error"], retriable=event["retriable"])
        return event["found"]

    def _trigger(self) -> LookingTrigger:
        try:
            return self.trigger()
        except ValueError as error:
            raise AirflowFailException(str(error)) from None


class GenerationSensor(LookingSensor):
    """Waits for a generation of an archive, also one that is written outside Airflow.

    Returns ``archive``, ``generation``, ``created``, ``events`` and ``bytes`` of the newest generation. What it waits
    for does not depend on when it starts, so a retry waits for the same.

    Args:
        archive: ``ROOT/SCOPE/STREAM``, which need not exist yet. Templated, as are the following.
        after: wait for a generation after this one; 0: for any.
        since: wait for one that was created at or after this time, RFC 3339, such as ``{{ data_interval_end }}``.
        aws_conn_id: id of the connection of type ``aws`` for an archive on S3; None: the worker's own credentials.
        others: see `LookingSensor`.
    """

    template_fields: Sequence[str] = ("archive", "after", "since", "aws_conn_id")

    def __init__(
        self,
        *,
        archive: str,
        after: int | str = 0,
        since: str | None = None,
        aws_conn_id: str | None = "aws_default",
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.archive = archive
        self.after = after
        self.since = since
        self.aws_conn_id = aws_conn_id

    def trigger(self) -> GenerationTrigger:
        """See the base class."""
        try:
            after = int(self.after or 0)
        except ValueError:
            raise ValueError(f"after: {self.after!r} is not the number of a generation") from None
        return GenerationTrigger(
            archive=self.archive,
            after=after,
            since=str(self.since or ""),
            aws_conn_id=self.aws_conn_id,
            poll_seconds=self.poke_interval,
        )


class StreamBytesSensor(LookingSensor):
    """Waits until a stream has bytes that are not archived yet, or that come after a stream cut.

    Returns ``stream`` and ``bytes``, those of its segments with the headers of events.

    Args:
        stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI. Templated, as are the following.
        archive: the stream's archive, ``ROOT/SCOPE/STREAM``: bytes after its newest generation count. If there is no
            archive yet, all do.
        cut: bytes after this stream cut count, which is JSON or the Java client's text; without `archive` and `cut`,
            all that can be read.
        min_bytes: how many there must be: a number, or a size such as ``64MiB``.
        pravega_conn_id: id of the connection of type ``pravega``.
        aws_conn_id: as for `GenerationSensor`.
        others: see `LookingSensor`.
    """

    template_fields: Sequence[str] = ("stream", "archive", "cut", "min_bytes", "pravega_conn_id", "aws_conn_id")

    def __init__(
        self,
        *,
        stream: str,
        archive: str | None = None,
        cut: Cut | None = None,
        min_bytes: int | str = 1,
        pravega_conn_id: str = PravegaHook.default_conn_name,
        aws_conn_id: str | None = "aws_default",
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.stream = stream
        self.archive = archive
        self.cut = cut
        self.min_bytes = min_bytes
        self.pravega_conn_id = pravega_conn_id
        self.aws_conn_id = aws_conn_id

    def trigger(self) -> StreamBytesTrigger:
        """See the base class."""
        if self.archive and self.cut:
            raise ValueError("archive and cut are mutually exclusive: bytes after one of them count")
        return StreamBytesTrigger(
            stream=self.stream,
            archive=self.archive or "",
            cut=self.cut or None,
            min_bytes=parse_size(str(self.min_bytes)),
            pravega_conn_id=self.pravega_conn_id,
            aws_conn_id=self.aws_conn_id,
            poll_seconds=self.poke_interval,
        )
