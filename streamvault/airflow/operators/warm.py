"""Waits until the objects that a restore needs can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from streamvault.airflow.aws import is_on_s3
from streamvault.airflow.flags import flag
from streamvault.airflow.triggers import ArchiveReadableTrigger
from streamvault.manifests.options import POLL_SECONDS, WarmOptions

if TYPE_CHECKING:
    from streamvault.manifests.verbs.cold import NeededPart

TIMEOUT_HOURS = 72.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRequest:
    """The wait of a task for a restore's objects; attributes as for `WarmArchiveOperator`."""

    archive: str
    generation: int | str | None
    at: str | None
    days: int | str
    tier: str
    wait: bool = True
    poll_seconds: float = POLL_SECONDS
    timeout_hours: float = TIMEOUT_HOURS
    aws_conn_id: str | None

    def until_readable(self, log: Any) -> None:
        """Return if all objects can be read; otherwise request them, and defer the task.

        Raises:
            TaskDeferred: the task goes on in its method ``execute_complete``, which must ask again.
            AirflowException, AirflowFailException: the objects cannot be requested, or must not be waited for.
        """
        if not is_on_s3(self.archive):
            return
        from streamvault.airflow.aws import s3_client  # noqa: PLC0415  (not where DAGs are parsed)
        from streamvault.airflow.cold_storage import parts_to_warm  # noqa: PLC0415
        from streamvault.airflow.outcome import raising_for_airflow  # noqa: PLC0415

        client = s3_client(self.aws_conn_id)
        with raising_for_airflow():
            generation = int(self.generation) if self.generation else None
            # the class validates the tier's name
            options = WarmOptions(generation=generation, days=int(self.days), tier=self.tier)  # type: ignore[arg-type]
            # the manifests list the other objects
            self._request_cold(client, None, options, log)
            needed = parts_to_warm(self.archive, self.aws_conn_id, generation=generation, at=self.at or "")
            self._request_cold(client, needed, options, log)
        log.info("all required objects of %s are readable", self.archive)

    def _request_cold(self, client: Any, parts: list[NeededPart] | None, options: WarmOptions, log: Any) -> None:
        from streamvault.airflow.cold_storage import next_cold, request_cold  # noqa: PLC0415  (not where DAGs are parsed)

        cold = next_cold(client, self.archive, parts)
        if cold is None:
            return
        if not self.wait:
            raise AirflowFailException(f"{self.archive} is in cold storage ({cold.key}), and wait is false")
        requested = request_cold(client, self.archive, parts, options)
        log.info("requested %s objects of %s from S3", requested, self.archive)
        raise TaskDeferred(
            trigger=ArchiveReadableTrigger(
                archive=self.archive, parts=parts, aws_conn_id=self.aws_conn_id, poll_seconds=self.poll_seconds
            ),
            method_name="execute_complete",
            timeout=timedelta(hours=self.timeout_hours),
        )


def check_event(archive: str, event: Mapping[str, str]) -> None:
    """Check what the trigger says.

    Raises:
        AirflowException: it could not check the objects.
    """
    if event["error"]:
        raise AirflowException(f"cannot check {archive}: {event['error']}")


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
        wait = flag("wait", self.wait)  # also if there is nothing to wait for
        ColdRequest(
            archive=self.archive,
            generation=self.generation,
            at=self.at,
            days=self.days,
            tier=self.tier,
            wait=wait,
            poll_seconds=self.poll_seconds,
            timeout_hours=self.timeout_hours,
            aws_conn_id=self.aws_conn_id,
        ).until_readable(self.log)

    def execute_complete(self, context: Any, event: Mapping[str, str]) -> None:
        """Check again after the trigger has fired: other objects may still be cold."""
        check_event(self.archive, event)
        self.execute(context)
