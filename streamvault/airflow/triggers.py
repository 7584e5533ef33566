"""Trigger that waits for objects in cold storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async


class ArchiveReadableTrigger(BaseTrigger):
    """Fires when the needed objects of an archive on S3 can be read.

    Objects found readable are not listed again, so a wait costs one listing in total, and one request for each check.
    The event is ``{"error": …}`` with an empty text, or the reason why a check failed.

    Args:
        archive: ``s3://…/SCOPE/STREAM``.
        parts: the parts to be read, each as a `manifests.verbs.cold.NeededPart`; None for the archive's manifests.
        aws_conn_id: id of the connection of type ``aws``.
        poll_seconds: seconds between checks.
    """

    def __init__(
        self, *, archive: str, parts: Sequence[Sequence[Any]] | None, aws_conn_id: str, poll_seconds: float
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.archive = archive
        self.parts = parts
        self.aws_conn_id = aws_conn_id
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow recreates the trigger."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {
            "archive": self.archive,
            "parts": None if self.parts is None else [list(one) for one in self.parts],
            "aws_conn_id": self.aws_conn_id,
            "poll_seconds": self.poll_seconds,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check until everything is readable."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  (not where DAGs are parsed)

        from streamvault.airflow.aws import s3_client  # noqa: PLC0415
        from streamvault.airflow.cold_storage import next_cold  # noqa: PLC0415
        from streamvault.manifests.verbs.cold import NeededPart  # noqa: PLC0415
        from streamvault.objectstore.errors import ObjectStoreError  # noqa: PLC0415

        needed = None if self.parts is None else [NeededPart(*one) for one in self.parts]
        try:
            # in a sync context it can ask the triggerer for the connection
            client = await sync_to_async(s3_client)(self.aws_conn_id)
            cold = await asyncio.to_thread(next_cold, client, self.archive, needed)
            while cold is not None:
                self.log.info("%s is not readable yet; checking again in %s s", cold.key, self.poll_seconds)
                await asyncio.sleep(self.poll_seconds)
                cold = await asyncio.to_thread(next_cold, client, self.archive, needed, cold.before)
        except (BotoCoreError, ClientError, ObjectStoreError) as error:
            yield _event(str(error))
            return
        yield _event("")


def _event(error: str) -> TriggerEvent:
    return TriggerEvent({"error": error})  # type: ignore[no-untyped-call]
