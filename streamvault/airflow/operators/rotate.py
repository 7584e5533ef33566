"""Archives a stream and lets old generations expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.archiving import ArchivingOperator
from streamvault.airflow.operators.command import options


class RotateArchiveOperator(ArchivingOperator):
    """``streamvault rotate``: exports, reads back, and lets old generations expire.

    At most one of `keep`, `keep_for` and `until` may be given; without any, nothing expires. A rotation applies to the
    time at which it runs and not to its data interval. In a backfill, which would rotate once for each past interval,
    the task fails.

    Args:
        keep: number of generations to keep. This and all arguments below are templated.
        keep_for: how long to keep generations, such as ``90d``.
        until: generations taken by this time expire, RFC 3339.
        truncate_source: whether to truncate the stream to the end of what is archived and was read back.
        hold: name of a hold to put on the newest generation.
        deletions: queue for deletions (``--queue``; Airflow has its own `queue`), in the form of `stream`.
        archiving: arguments of `ArchivingOperator`.
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
                "--truncate-source": flag("truncate_source", self.truncate_source),
                "--hold": self.hold,
                "--queue": self.deletions and self.stream_uri(self.deletions),
            }
        )
        return [*self.archiving("rotate"), *rotation]

    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        """See the base class."""
        if context["dag_run"].run_type == "backfill":
            raise AirflowFailException(
                "a backfill would run one rotation now for each past interval, and could expire too much. "
                "Trigger the DAG instead."
            )
        return super().execute(context)

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """See the base class."""
        return bool(report["expired"]) or super().has_written(report["export"])
