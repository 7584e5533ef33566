"""Operators for the commands that write a stream whose cluster may have a connection of its own."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.command import CommandOperator
from streamvault.airflow.outcome import reports_in
from streamvault.airflow.pravega import PravegaHook, own_target_login
from streamvault.common.sizes import seconds_text
from streamvault.common.times import parse_duration
from streamvault.mirrors.options import CopyOptions, MoveOptions, PromoteOptions, ReplicateOptions


class TargetOperator(CommandOperator):
    """Writes a stream whose cluster may have a connection of its own.

    Args:
        target_conn_id: id of the target's connection of type ``pravega``; None: `pravega_conn_id`, which is the
            source's. Templated.
        others: see `CommandOperator`.
    """

    template_fields: Sequence[str] = ("target_conn_id", *CommandOperator.template_fields)
    read: ClassVar[Collection[str]] = ("source",)
    written = "stream"
    stream: str

    def __init__(self, *, target_conn_id: str | None = None, **others: Any) -> None:
        super().__init__(**others)
        self.target_conn_id = target_conn_id

    def resolve(self, argument: str) -> Any:
        """See the base class."""
        if argument == "stream" and "://" not in self.stream:
            return self._target().stream_uri(self.stream)
        return super().resolve(argument)

    def variables(self) -> dict[str, str | None]:
        """See the base class."""
        variables = super().variables()
        if "://" in self.stream:
            given = {name: str(value) for name, value in (self.env_vars or {}).items()}
            return variables | own_target_login({**os.environ, **given})
        return variables | self._target().environment(target=True)

    def _target(self) -> PravegaHook:
        return PravegaHook(self.target_conn_id or self.pravega_conn_id)


class MirrorOperator(TargetOperator):
    """Reads a stream, and writes another one."""

    arguments: ClassVar = {
        "source": "``SCOPE/STREAM`` or ``STREAM`` of `pravega_conn_id`, or a URI.",
        "stream": "the target: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI.",
    }
    source: str

    def connected_stream(self) -> str:
        """See the base class."""
        return self.source


class CopyStreamOperator(MirrorOperator):
    """``streamvault copy``: copies a stream, or a part of it, into a new stream."""

    verb = "copy"
    options_class = CopyOptions


class MoveStreamOperator(MirrorOperator):
    """``streamvault move``: gives a stream another name or cluster, and deletes the old one once all was compared."""

    verb = "move"
    options_class = MoveOptions


class ReplicateStreamOperator(MirrorOperator):
    """``streamvault replicate``: brings a replica up to date; by default once, with all that was written by then.

    `source` may also be an archive, ``ROOT/SCOPE/STREAM``. `follow` requires `lasting`, as a task must end. An asset
    event is emitted if there was something new; it has ``moved_bytes``, ``behind_bytes`` and ``lag_seconds`` of the
    report.

    Args:
        most_lag: fail if the last events took longer than this to arrive, a duration such as ``5m``: from taking the
            source's tail (or the archive's newest generation) to having it; 0 if there was nothing new. The replica is
            up to date by then, so the task is not retried.
    """

    verb = "replicate"
    options_class = ReplicateOptions
    template_fields: Sequence[str] = ("most_lag", *MirrorOperator.template_fields)
    asset_event_fields = ("moved_bytes", "behind_bytes", "lag_seconds")
    follow: bool | str
    lasting: str | None

    def __init__(self, *, most_lag: str | None = None, **mirror: Any) -> None:
        super().__init__(**mirror)
        self.most_lag = most_lag

    def command(self) -> list[str]:
        """See the base class.

        Raises:
            AirflowFailException: `follow` is given without `lasting`.
        """
        if flag("follow", self.follow):
            self.require_end("follow", "lasting")
        return super().command()

    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        """See the base class.

        Raises:
            AirflowFailException: also if the lag is above `most_lag`.
        """
        try:
            most = parse_duration(str(self.most_lag)) if self.most_lag else None
        except ValueError as error:
            raise AirflowFailException(f"most_lag: {error}") from None
        report = super().execute(context)
        late = [each for each in reports_in(report) if most is not None and each["lag_seconds"] > most]
        if late:
            context["ti"].xcom_push(key="report", value=report)
            raise AirflowFailException(
                "\n".join(
                    f"the lag of {each['stream']} is {seconds_text(each['lag_seconds'])}, above most_lag "
                    f"({self.most_lag}). It has what {each['source']} had at {each['tail_time']}."
                    for each in late
                )
            )
        return report

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """See the base class."""
        return bool(report["rounds"])


class PromoteReplicaOperator(TargetOperator):
    """``streamvault promote``: makes a replica a stream like any other.

    The source's connection, `pravega_conn_id`, is used only with `seal_source`, for the source that the replica names.
    """

    verb = "promote"
    arguments: ClassVar = {"stream": "the replica: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI."}
    options_class = PromoteOptions
    seal_source: bool | str

    def connected_stream(self) -> str | None:
        """See the base class."""
        return self.stream if flag("seal_source", self.seal_source) else None
