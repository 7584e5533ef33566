"""Waits until an archive can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, get_args

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from streamvault.airflow.operators.command import flag
from streamvault.airflow.triggers import ArchiveReadableTrigger

__all__ = ["WarmArchiveOperator"]


class WarmArchiveOperator(BaseOperator):
    """Asks S3 to bring an archive back from cold storage, and waits in the triggerer until all of it can be read.

    An archive in a folder, or of which nothing is cold, is there at once. Asking twice is fine.

    Args:
        archive: ``ROOT/SCOPE/STREAM``. (templated, as `days`, `tier`, `wait` and `aws_conn_id`)
        days: how long what is brought back stays readable.
        tier: ``Bulk`` (the cheapest), ``Standard`` or ``Expedited``.
        wait: False fails at once if something is cold, and asks for nothing.
        poll_seconds: how long to wait between two looks.
        most_hours: how long to wait in all.
        aws_conn_id: the connection of type ``aws``.
    """

    template_fields: Sequence[str] = ("archive", "days", "tier", "wait", "aws_conn_id")

    def __init__(
        self,
        *,
        archive: str,
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
        from streamvault.airflow.warmth import ask_back, next_cold  # noqa: PLC0415

        tier = _tier(self.tier)
        client = s3_client(self.aws_conn_id)
        cold = next_cold(client, self.archive)
        if cold is None:
            self.log.info("every object of %s can be read", self.archive)
            return
        if not flag(self.wait):
            raise AirflowFailException(f"{self.archive} is in cold storage ({cold.key}), and is not waited for")
        asked = ask_back(client, self.archive, days=int(self.days), tier=tier)
        self.log.info("asked S3 to bring back %s objects of %s", asked, self.archive)
        self.defer(
            trigger=ArchiveReadableTrigger(
                archive=self.archive, aws_conn_id=self.aws_conn_id, poll_seconds=self.poll_seconds
            ),
            method_name="go_on",
            timeout=timedelta(hours=self.most_hours),
        )

    def go_on(self, context: Any, event: Mapping[str, str]) -> None:  # noqa: ARG002
        """Called when the trigger has fired."""
        if event["error"]:
            raise AirflowException(f"cannot look at {self.archive}: {event['error']}")
        self.log.info("every object of %s can be read", self.archive)


def _tier(text: str) -> Any:
    from objectstore.cold import Tier  # noqa: PLC0415  (it imports boto3's core)

    if text not in get_args(Tier):
        raise AirflowFailException(f"no such tier: {text!r}. There are {', '.join(get_args(Tier))}.")
    return text
