"""Waits until what a restore needs can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from streamvault.airflow.operators.command import flag
from streamvault.airflow.triggers import ArchiveReadableTrigger

if TYPE_CHECKING:
    from streamvault.airflow.warmth import Stretch

__all__ = ["WarmArchiveOperator"]


class WarmArchiveOperator(BaseOperator):
    """Asks S3 to bring back from cold storage what a restore reads, and waits in the triggerer until it can be read.

    An archive in a folder, or of which nothing is cold, is there at once. Asking twice is fine.

    Args:
        archive: ``ROOT/SCOPE/STREAM``. (templated, as all but `poll_seconds` and `most_hours`)
        generation: what a restore up to this generation reads; None for the newest.
        at: what a restore to this time reads, RFC 3339.
        days: how long what is brought back stays readable.
        tier: ``Bulk`` (the cheapest), ``Standard`` or ``Expedited``.
        wait: False fails at once if something is cold, and asks for nothing.
        poll_seconds: how long to wait between two looks.
        most_hours: how long to wait in all.
        aws_conn_id: the connection of type ``aws``.
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
        poll_seconds: float = 300.0,
        most_hours: float = 72.0,
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
        self.most_hours = most_hours
        self.aws_conn_id = aws_conn_id

    def execute(self, context: Any) -> None:  # noqa: ARG002
        """Look, ask, and wait."""
        if not self.archive.startswith("s3://"):
            return
        from streamvault.airflow.aws import s3_client  # noqa: PLC0415  (not where DAGs are parsed)
        from streamvault.airflow.outcome import raising_for_airflow  # noqa: PLC0415
        from streamvault.airflow.warmth import needed_stretches  # noqa: PLC0415

        client = s3_client(self.aws_conn_id)
        with raising_for_airflow():
            # the manifests say what else is needed
            self._bring_back(client, None)
            generation = int(self.generation) if self.generation else None
            needed = needed_stretches(self.archive, self.aws_conn_id, generation=generation, at=self.at or "")
            self._bring_back(client, needed)
        self.log.info("everything needed of %s can be read", self.archive)

    def go_on(self, context: Any, event: Mapping[str, str]) -> None:
        """Called when the trigger has fired: look again, for there may be more to wait for."""
        if event["error"]:
            raise AirflowException(f"cannot look at {self.archive}: {event['error']}")
        self.execute(context)

    def _bring_back(self, client: Any, stretches: list[Stretch] | None) -> None:
        """Return if all of it can be read; else ask for it and leave the task to the triggerer."""
        from streamvault.airflow.warmth import ask_back, next_cold  # noqa: PLC0415  (not where DAGs are parsed)

        tier = _tier(self.tier)
        cold = next_cold(client, self.archive, stretches)
        if cold is None:
            return
        if not flag(self.wait):
            raise AirflowFailException(f"{self.archive} is in cold storage ({cold.key}), and is not waited for")
        asked = ask_back(client, self.archive, stretches, days=int(self.days), tier=tier)
        self.log.info("asked S3 to bring back %s objects of %s", asked, self.archive)
        self.defer(
            trigger=ArchiveReadableTrigger(
                archive=self.archive,
                stretches=stretches,
                aws_conn_id=self.aws_conn_id,
                poll_seconds=self.poll_seconds,
            ),
            method_name="go_on",
            timeout=timedelta(hours=self.most_hours),
        )


def _tier(text: str) -> Any:
    from objectstore.s3.tiers import Tier  # noqa: PLC0415  (not where DAGs are parsed)

    if text not in get_args(Tier):
        raise AirflowFailException(f"no such tier: {text!r}. There are {', '.join(get_args(Tier))}.")
    return text
