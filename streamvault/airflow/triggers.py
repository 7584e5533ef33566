"""Triggers: they wait for objects in cold storage, for generations of archives, or for bytes in streams."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from asyncio import sleep
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, fields
from typing import Any

from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from streamvault.airflow.aws import root_address
from streamvault.airflow.pravega import PravegaHook
from streamvault.common.errors import Problem, Usage
from streamvault.common.units import moment_text, parse_moment, parse_size
from streamvault.inspect.status import unarchived_bytes
from streamvault.manifests.archive import Archive
from streamvault.streamstore.cuts import Cut, later_of, live_between, live_ends, parse_cut
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import OpenStream

Look = Callable[[], dict[str, Any] | None]
"""Looks at an archive or a stream, and returns what is new there; None if nothing is."""

WATCHED = "streamvault_generation"
"""Key, in an asset's state, of the newest generation that a watcher has announced."""


@dataclass(eq=False, repr=False, kw_only=True)
class LookingTrigger(BaseTrigger):
    """Fires when a look finds something new. It looks first after `poll_seconds`: a task has looked before it waits.

    The event is ``{"error": …, "retriable": …, "found": …}``: what was found, or an error text. While a server does
    not answer, the trigger goes on looking.

    Args:
        poll_seconds: seconds between looks.
    """

    poll_seconds: float = 60.0

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which Airflow recreates the trigger."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {one.name: getattr(self, one.name) for one in fields(self)}

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


@dataclass(eq=False, repr=False, kw_only=True)
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

    archive: str
    after: int | str = 0
    since: str | None = None
    aws_conn_id: str | None = "aws_default"

    def connect(self) -> Look:
        """See the base class."""
        place = open_archive(self.archive, self.aws_conn_id)
        earliest = parse_moment(self.since, "since") if self.since else None
        try:
            after = int(self.after or 0)
        except ValueError:
            raise Usage(f"after: {self.after!r} is not a generation number") from None

        def look() -> dict[str, Any] | None:
            newest = place.newest()
            if newest is None or newest.generation <= after or (earliest is not None and newest.created < earliest):
                return None
            return {
                "archive": place.uri,
                "generation": newest.generation,
                "created": moment_text(newest.created),
                "events": newest.events,
                "bytes": newest.bytes,
            }

        return look

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


@dataclass(eq=False, repr=False, kw_only=True)
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

    stream: str
    archive: str | None = None
    cut: Cut | None = None
    min_bytes: int | str = 1
    pravega_conn_id: str = "pravega_default"
    aws_conn_id: str | None = "aws_default"

    def connect(self) -> Look:
        """See the base class."""
        if self.archive and self.cut:
            raise Usage("archive and cut are mutually exclusive: bytes are counted from only one of them")
        try:
            least = parse_size(str(self.min_bytes))
        except ValueError as error:
            raise Usage(f"min_bytes: {error}") from None
        address, name = PravegaHook(self.pravega_conn_id).address(self.stream)
        place = open_archive(self.archive, self.aws_conn_id) if self.archive else None

        def look() -> dict[str, Any] | None:
            newest = None if place is None else place.newest()
            with address.open() as store:
                opened = OpenStream(store, address, name)
                count = _bytes_since(opened, self.cut or None) if newest is None else unarchived_bytes(opened, newest)
            return {"stream": opened.uri, "bytes": count} if count >= least else None

        return look


@dataclass(eq=False, repr=False, kw_only=True)
class ArchiveReadableTrigger(LookingTrigger):
    """Fires when the needed objects of an archive on S3 can be read.

    Objects found readable are not listed again, so a wait costs one listing in total, and one request for each look.

    Args:
        archive: ``s3://…/SCOPE/STREAM``.
        spans: the parts of the root's listing that have the objects, each as a `manifests.verbs.warm.Span`.
        aws_conn_id: id of the connection of type ``aws``.
        poll_seconds: seconds between looks.
    """

    archive: str
    spans: list[list[str]]
    aws_conn_id: str | None

    def connect(self) -> Look:
        """See the base class."""
        from streamvault.airflow.cold_storage import open_storage  # noqa: PLC0415  (not where DAGs are parsed)
        from streamvault.manifests.verbs.warm import first_cold  # noqa: PLC0415

        storage = open_storage(open_archive(self.archive, self.aws_conn_id), self.aws_conn_id)

        def look() -> dict[str, Any] | None:
            cold, left = first_cold(storage, [(folder, after, stop) for folder, after, stop in self.spans])
            self.spans = [list(span) for span in left]
            if cold is None:
                return {"archive": self.archive}
            self.log.info("%s is not readable yet; checking again in %s s", cold.key, self.poll_seconds)
            return None

        return look


def open_archive(uri: str, aws_conn_id: str | None) -> Archive:
    """Open an archive; one on S3 is reached by a connection, see `streamvault.airflow.aws.root_address`."""
    root, scope, stream = root_address(uri, aws_conn_id).split()
    return Archive(root, StreamName(scope, stream))


def _bytes_since(stream: OpenStream, cut: Cut | None) -> int:
    """Return how many bytes of a stream can be read after a cut; None: all."""
    described = stream.describe()
    start = parse_cut(cut, stream.name, live_ends(stream.store, stream.name))
    start = described.head if start is None else later_of(described, start, described.head)
    parts = live_between(stream.store, described, start, described.tail)
    return sum(end - begin for begin, end in parts.values())
