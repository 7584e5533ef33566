"""Operators for the commands that write, restore or check an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.flags import flag
from streamvault.airflow.operators.command import CommandOperator
from streamvault.airflow.operators.warm import until_readable
from streamvault.airflow.outcome import found_in
from streamvault.exporter.options import ExportOptions
from streamvault.importer.options import ImportOptions
from streamvault.manifests.options import CheckOptions
from streamvault.rotation.options import RotateOptions

STREAM_AND_ROOT = {
    "stream": "``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI.",
    "root": "``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.",
}


class ExportStreamOperator(CommandOperator):
    """``streamvault export``: archives the whole stream, or the events since the newest generation."""

    verb = "export"
    arguments = STREAM_AND_ROOT
    options_class = ExportOptions
    written = "archive"


class RotateArchiveOperator(CommandOperator):
    """``streamvault rotate``: exports, reads back, and lets old generations expire.

    At most one of `keep`, `keep_for` and `until` may be given; without any, nothing expires. A rotation applies to the
    time at which it runs and not to its data interval. In a backfill, which would rotate once for each past interval,
    the task fails.
    """

    verb = "rotate"
    arguments = STREAM_AND_ROOT
    options_class = RotateOptions
    written = "archive"

    def resolve(self, argument: str) -> Any:
        """See the base class."""
        value = super().resolve(argument)
        return self.stream_uri(value) if argument == "deletions" and value else value

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


class ImportStreamOperator(CommandOperator):
    """``streamvault import``: restores an archive into a new stream and verifies every range.

    If `skip_damaged` left something out, the task fails after the stream was restored; its XCom ``report`` names the
    damaged ranges.

    Args:
        wait_for_warm: if objects that the restore reads are in cold storage, ask S3 to restore them, and wait in the
            triggerer until they can be read; as `WarmArchiveOperator`, within the one task. Templated, as are:
        warm_days: how long the restored copies stay readable.
        warm_tier: ``Bulk`` (the cheapest), ``Standard`` or ``Expedited``.
    """

    template_fields: Sequence[str] = ("wait_for_warm", "warm_days", "warm_tier", *CommandOperator.template_fields)
    verb = "import"
    arguments: ClassVar = {
        "archive": "``ROOT/SCOPE/STREAM``.",
        "stream": "the new stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI.",
    }
    options_class = ImportOptions
    omitted = ("again",)
    read = ("archive",)
    written = "stream"
    archive: str
    generation: int | str | None
    at: str | None

    def __init__(
        self,
        *,
        wait_for_warm: bool | str = False,
        warm_days: int | str = 7,
        warm_tier: str = "Bulk",
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.wait_for_warm = wait_for_warm
        self.warm_days = warm_days
        self.warm_tier = warm_tier

    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        """See the base class."""
        if flag("wait_for_warm", self.wait_for_warm):
            until_readable(self, days=self.warm_days, tier=self.warm_tier)
        return super().execute(context)

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on after the wait: other objects may still be cold."""
        found_in(event)
        return self.execute(context)

    def command(self) -> list[str]:
        """See the base class."""
        # a task may be killed after the import but before it returns the report
        return [*super().command(), "--again"]


class CheckArchiveOperator(CommandOperator):
    """``streamvault check``: fails and lists the damaged ranges if the archive is not complete and intact."""

    verb = "check"
    arguments: ClassVar = {"archive": "``ROOT/SCOPE/STREAM``."}
    options_class = CheckOptions
