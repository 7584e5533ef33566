"""Waits until the objects that a restore needs can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator

from streamvault.airflow.aws import is_on_s3
from streamvault.airflow.options import flag
from streamvault.airflow.outcome import found_in
from streamvault.manifests.options import POLL_SECONDS

TIMEOUT_HOURS = 72.0


def until_readable(task: Any, **how: Any) -> None:
    """See `streamvault.airflow.cold_storage.require_readable`; an archive in a folder can be read."""
    if is_on_s3(task.archive):
        from streamvault.airflow.cold_storage import require_readable  # noqa: PLC0415  (not where DAGs are parsed)

        require_readable(task, **how)


class WarmArchiveOperator(BaseOperator):
    """Asks S3 to restore a restore's objects from cold storage, and waits in the triggerer until they can be read.

    Returns at once if the archive is in a folder or nothing is in cold storage. May be repeated.

    Args:
        archive: ``ROOT/SCOPE/STREAM``. All arguments are templated except `poll_seconds` and `timeout_hours`.
        generation: the last generation to restore; None for the newest.
        at: the time to restore to, RFC 3339.
        days: how long the restored copies stay readable.
        tier: ``Bulk`` (the cheapest), ``Standard`` or ``Expedited``.
        wait: if False, the task requests nothing and fails at once if an object is in cold storage.
        poll_seconds: seconds between checks.
        timeout_hours: how long to wait in total (hours).
        aws_conn_id: id of the connection of type ``aws``.
    """

    template_fields: Sequence[str] = ("archive", "generation", "at", "days", "tier", "wait", "aws_conn_id")

    def __init__(
        self,
        *,
        archive: str,
        generation: int | str | None = None,
        at: str | None = None,
        days: int | str = 7,
        tier: str = "Bulk",
        wait: bool | str = True,
        poll_seconds: float = POLL_SECONDS,
        timeout_hours: float = TIMEOUT_HOURS,
        aws_conn_id: str = "aws_default",
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.archive = archive
        self.generation = generation
        self.at = at
        self.days = days
        self.tier = tier
        self.wait = wait
        self.poll_seconds = poll_seconds
        self.timeout_hours = timeout_hours
        self.aws_conn_id = aws_conn_id

    def execute(self, context: Any) -> None:  # noqa: ARG002
        """Check whether the objects can be read; if not, request them and wait."""
        until_readable(
            self,
            days=self.days,
            tier=self.tier,
            wait=flag("wait", self.wait),
            poll_seconds=self.poll_seconds,
            timeout_hours=self.timeout_hours,
        )

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> None:
        """Check again after the trigger has fired: other objects may still be cold."""
        found_in(event)
        self.execute(context)
