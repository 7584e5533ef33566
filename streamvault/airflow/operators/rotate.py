"""Archives a stream and lets old generations expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.operators.archiving import ArchivingOperator
from streamvault.airflow.operators.command import flag, options

__all__ = ["RotateArchiveOperator"]


class RotateArchiveOperator(ArchivingOperator):
    """``streamvault rotate``: an export that is read back, after which old generations expire.

    Give one of `keep`, `keep_for` and `until`, or none: then nothing expires. A rotation is of the moment at which it
    runs and not of its data interval, so in a backfill, which would rotate once for each past slot, the task fails.

    Args:
        keep: how many generations stay. (templated, as all of these)
        keep_for: how long they stay, ``90d``.
        until: generations that were taken by this time expire, RFC 3339.
        truncate_source: whether the stream is truncated up to what is archived and was read back.
        hold: the name of a hold to put on the newest generation.
        deletions: the queue to leave the deleting to (``--queue``; Airflow has a `queue` of its own); as `stream`.
        archiving: the arguments of `ArchivingOperator`.
    """

    template_fields: Sequence[str] = (
        *("keep", "keep_for", "until", "truncate_source", "hold", "deletions"),
        *ArchivingOperator.template_fields,
    )

    def __init__(
        self,
        *,
        keep: int | str | None = None,
        keep_for: str | None = None,
        until: str | None = None,
        truncate_source: bool | str = False,
        hold: str | None = None,
        deletions: str | None = None,
        **archiving: Any,
    ) -> None:
        super().__init__(**archiving)
        self.keep = keep
        self.keep_for = keep_for
        self.until = until
        self.truncate_source = truncate_source
        self.hold = hold
        self.deletions = deletions

    def command(self) -> list[str]:
        """See the base class."""
        rotation = options(
            {
                "--keep": self.keep,
                "--keep-for": self.keep_for,
                "--until": self.until,
                "--truncate-source": flag(self.truncate_source),
                "--hold": self.hold,
                "--queue": self.deletions and self.stream_uri(self.deletions),
            }
        )
        return [*self.archiving("rotate"), *rotation]

    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        """See the base class."""
        if context["dag_run"].run_type == "backfill":
            raise AirflowFailException(
                "a backfill would rotate once for each past slot, all of them now, and expire what is to be kept. "
                "Trigger the DAG instead."
            )
        return super().execute(context)

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """See the base class."""
        return bool(report["expired"]) or super().has_written(report["export"])
