"""Triggers: they wait for objects in cold storage, for generations of archives, or for bytes in streams."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from asyncio import sleep
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from streamvault.common.errors import Problem, Usage

if TYPE_CHECKING:
    from streamvault.streamstore.arithmetic.cut_option import Cut

Look = Callable[[], dict[str, Any] | None]
"""Looks at an archive or a stream, and returns what is new there; None if nothing is."""

WATCHED = "streamvault_generation"
"""Key, in an asset's state, of the newest generation that a watcher has announced."""


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
        self, *, archive: str, parts: Sequence[Sequence[Any]] | None, aws_conn_id: str | None, poll_seconds: float
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
                await sleep(self.poll_seconds)
                cold = await asyncio.to_thread(next_cold, client, self.archive, needed, cold.before)
        except (BotoCoreError, ClientError, ObjectStoreError) as error:
            yield _event(str(error))
            return
        yield _event("")


class LookingTrigger(BaseTrigger):
    """Fires when a look finds something new. It looks first after `poll_seconds`: a task has looked before it waits.

    The event is ``{"error": …, "retriable": …, "found": …}``: what was found, or an error text. While a server does
    not answer, the trigger goes on looking.

    Args:
        poll_seconds: seconds between looks.
        asked: the arguments of the look.
    """

    def __init__(self, *, poll_seconds: float, **asked: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.poll_seconds = poll_seconds
        self.asked = asked

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow recreates the trigger."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {**self.asked, "poll_seconds": self.poll_seconds}

    @abstractmethod
    def connect(self) -> Look:
        """Read the connections, and return the look, which may take its time.

        Raises:
            Problem, AirflowFailException: an argument or a connection is not valid.
        """

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something new."""
        while True:
            # first: of a task that goes on before the scheduler has seen it pause, Airflow says that it has failed
            await sleep(self.poll_seconds)
            try:
                found = await self._found()
            except Problem as problem:
                yield TriggerEvent({"error": str(problem), "retriable": problem.retriable, "found": None})  # type: ignore[no-untyped-call]
                return
            if found is not None:
                yield TriggerEvent({"error": "", "retriable": False, "found": found})  # type: ignore[no-untyped-call]
                return

    async def _found(self) -> dict[str, Any] | None:
        try:
            # in a sync context it can ask the triggerer for the connections
            look = await sync_to_async(self.connect)()
            return await asyncio.to_thread(look)
        except AirflowFailException as error:
            raise Usage(str(error)) from None
        except Problem as problem:
            if not problem.transient:
                raise
            self.log.warning("%s. Looking again in %s s.", problem, self.poll_seconds)
            return None


class GenerationTrigger(LookingTrigger, BaseEventTrigger):
    """Fires when an archive has a generation after a given one; as the trigger of an `AssetWatcher`, for each new one.

    A watcher announces the newest generation that it finds. Which one it announced last is in the asset's state, so it
    misses none that is archived while no triggerer runs. Of an archive that it watches for the first time, it announces
    those after `after`.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        after: the generation; 0: any.
        since: a time, RFC 3339, at or after which the generation was created; empty: any.
        aws_conn_id: id of the connection of type ``aws``; None: the process's own credentials apply.
        poll_seconds: seconds between looks.
    """

    def __init__(
        self,
        *,
        archive: str,
        after: int = 0,
        since: str = "",
        aws_conn_id: str | None = "aws_default",
        poll_seconds: float = 60.0,
    ) -> None:
        super().__init__(archive=archive, after=after, since=since, aws_conn_id=aws_conn_id, poll_seconds=poll_seconds)

    def connect(self) -> Look:
        """See the base class."""
        from streamvault.airflow.looking import generation_look  # noqa: PLC0415  (not where DAGs are parsed)

        return generation_look(**self.asked)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """See the base class; for a watcher, look for ever."""
        if self.asset_state_store is None:
            async for event in super().run():
                yield event
            return
        known = await self.asset_state_store.aget(WATCHED)
        while True:
            try:
                found = await self._found()
            except Problem as problem:
                self.log.warning("%s. Looking again in %s s.", problem, self.poll_seconds)
                found = None
            place = None if found is None else {"archive": found["archive"], "generation": found["generation"]}
            if place is not None and place != known:
                yield TriggerEvent(found)  # type: ignore[no-untyped-call]
            await sleep(self.poll_seconds)
            if place is not None and place != known:
                # only now: if the triggerer had ended before the event was stored, the next one announces it
                await self.asset_state_store.aset(WATCHED, place)
                known = place


class StreamBytesTrigger(LookingTrigger):
    """Fires when a stream has more bytes than its archive, or than before a cut.

    Args:
        stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI.
        archive: the stream's archive, ``ROOT/SCOPE/STREAM``: bytes after its newest generation count; empty: see `cut`.
        cut: bytes after this stream cut count; None: all that can be read.
        min_bytes: how many there must be.
        pravega_conn_id: id of the connection of type ``pravega``.
        aws_conn_id: as for `GenerationTrigger`.
        poll_seconds: seconds between looks.
    """

    def __init__(
        self,
        *,
        stream: str,
        archive: str = "",
        cut: Cut | None = None,
        min_bytes: int = 1,
        pravega_conn_id: str = "pravega_default",
        aws_conn_id: str | None = "aws_default",
        poll_seconds: float = 60.0,
    ) -> None:
        super().__init__(
            stream=stream,
            archive=archive,
            cut=cut,
            min_bytes=min_bytes,
            pravega_conn_id=pravega_conn_id,
            aws_conn_id=aws_conn_id,
            poll_seconds=poll_seconds,
        )

    def connect(self) -> Look:
        """See the base class."""
        from streamvault.airflow.looking import bytes_look  # noqa: PLC0415  (not where DAGs are parsed)

        return bytes_look(**self.asked)


def _event(error: str) -> TriggerEvent:
    return TriggerEvent({"error": error})  # type: ignore[no-untyped-call]
