"""Keeps a replica of a stream or an archive up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.command import options
from streamvault.airflow.operators.target import MirrorOperator
from streamvault.common.sizes import seconds_text
from streamvault.common.times import parse_duration

REPLICATE_FIELDS = ("follow", "every", "idle", "lasting", "retry_for", "keep_head", "most_lag")


class ReplicateStreamOperator(MirrorOperator):
    """``streamvault replicate``: brings a replica up to date; by default once, with all that was written by then.

    `source` may also be an archive, ``ROOT/SCOPE/STREAM``. An asset event is emitted if there was something new; it has
    ``moved_bytes``, ``behind_bytes`` and ``lag_seconds`` of the report.

    Args:
        follow: whether to go on replicating for the time given by `lasting`. This and all arguments below are
            templated.
        every: how often to check for new events, a duration as on the command line, such as ``10s``; None for the
            command's default, as for all arguments below.
        idle: stop after this long without new events.
        lasting: stop after this long (``--for``); required with `follow`, as a task must end.
        retry_for: how long to retry while a server does not answer.
        keep_head: whether to keep what is truncated at the source.
        most_lag: fail if the last events took longer than this to arrive, a duration such as ``5m``: from taking the
            source's tail (or the archive's newest generation) to having it; 0 if there was nothing new. The replica is
            up to date by then, so the task is not retried.
        mirror: arguments of `MirrorOperator`.
    """

    template_fields: Sequence[str] = (*REPLICATE_FIELDS, *MirrorOperator.template_fields)
    told = ("moved_bytes", "behind_bytes", "lag_seconds")

    def __init__(
        self,
        *,
        follow: bool | str = False,
        every: str | None = None,
        idle: str | None = None,
        lasting: str | None = None,
        retry_for: str | None = None,
        keep_head: bool | str = False,
        most_lag: str | None = None,
        **mirror: Any,
    ) -> None:
        super().__init__(**mirror)
        self.follow = follow
        self.every = every
        self.idle = idle
        self.lasting = lasting
        self.retry_for = retry_for
        self.keep_head = keep_head
        self.most_lag = most_lag

    def command(self) -> list[str]:
        """See the base class.

        Raises:
            AirflowFailException: `follow` is given without `lasting`.
        """
        if flag("follow", self.follow) and not self.lasting:
            raise AirflowFailException(
                "follow requires lasting: a task must end. Give the time after which the next run goes on, e.g. 1h."
            )
        rounds = options(
            {
                "--follow": flag("follow", self.follow),
                "--every": self.every,
                "--idle": self.idle,
                "--for": self.lasting,
                "--retry-for": self.retry_for,
                "--keep-head": flag("keep_head", self.keep_head),
            }
        )
        return [*self.mirroring("replicate"), *rounds]

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
        if most is not None and report["lag_seconds"] > most:
            context["ti"].xcom_push(key="report", value=report)
            raise AirflowFailException(
                f"the lag of {report['stream']} is {seconds_text(report['lag_seconds'])}, above most_lag "
                f"({self.most_lag}). It has what {report['source']} had at {report['tail_time']}."
            )
        return report

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """See the base class."""
        return bool(report["rounds"])
