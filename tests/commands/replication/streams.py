"""A source and its target in a folder: what the tests of copies, replicas, promotions and moves share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from threading import Lock
from typing import Any

import pytest

from streamvault import copy_stream, move_stream, promote_replica, replicate_stream
from streamvault.common.errors import Failed
from streamvault.importer.target import first_segment_id
from streamvault.replication.reports import CopyReport, MoveReport, PromoteReport, ReplicateReport
from streamvault.streamstore.byte_source import LiveSegment
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.own import SOURCE_SEAL, stream_beside
from testkit.killed import Killed
from testkit.small_archives import NAME
from testkit.streams import append_events, digest_of, events_of, make_stream, shape_of

TARGET = replace(NAME, stream="target")


def at_block(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> None:
    """Do something when a block of the source is about to be read."""
    really, seen, lock = LiveSegment.blocks, [], Lock()

    def blocks(self: LiveSegment, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:
        with lock:
            seen.append(self)
            if len(seen) == number:
                act()
        return really(self, start, end, window)

    monkeypatch.setattr(LiveSegment, "blocks", blocks)


@dataclass(frozen=True)
class Streams:
    """A folder of streams."""

    folder: Path
    source_name: StreamName = NAME
    target_name: StreamName = TARGET

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder)

    @property
    def source(self) -> str:
        return f"local://{self.folder}/{self.source_name}"

    @property
    def target(self) -> str:
        return f"local://{self.folder}/{self.target_name}"

    def copy(self, **options: Any) -> CopyReport:
        return copy_stream(self.source, self.target, master="inline[2]", **options)

    def replicate(self, **options: Any) -> ReplicateReport:
        return replicate_stream(self.source, self.target, master="inline[2]", **options)

    def promote(self, **options: Any) -> PromoteReport:
        return promote_replica(self.target, master="inline[2]", **options)

    def move(self, **options: Any) -> MoveReport:
        return move_stream(self.source, self.target, master="inline[2]", **options)

    def add(self, *events: bytes) -> None:
        """Append events to each open segment of the source."""
        with self.store as store:
            for segment in store.describe(NAME).tail.offsets:
                append_events(store, NAME, segment, events)

    def add_last(self, *events: bytes, name: StreamName = NAME) -> tuple[SegmentId, int]:
        """Append events to a stream's newest segment; return it, and where it ended."""
        with self.store as store:
            segment, end = max(store.describe(name).tail.offsets.items())
            append_events(store, name, segment, events)
        return segment, end

    def remake(self, name: StreamName = NAME, events: int = 20) -> None:
        """Delete a stream, if it is there, and make another one of its name."""
        with self.store as store:
            if store.exists(name):
                store.delete(name)
            make_stream(store, name, events=events, largest=20_000)

    def rebuild(self, *events: bytes, after: Sequence[bytes] = ()) -> None:
        """Make the source anew, as in a cluster that was rebuilt: segments are numbered from 0 again.

        Args:
            events: in its first segment, which is scaled to two.
            after: in each of these.
        """
        rmtree(self.folder / str(NAME))
        with self.store as store:
            store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=1)))
        self.add(*events)
        self.scale()
        self.add(*after)

    def make_plain(self, *events: bytes, segments: int = 1) -> list[SegmentId]:
        """Make the source a stream that was never scaled, with these events in each segment; return the segments."""
        with self.store as store:
            store.delete(NAME)
            store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=segments)))
        self.add(*events)
        return sorted(self.tail())

    def tail(self, name: StreamName = NAME) -> dict[SegmentId, int]:
        with self.store as store:
            return dict(store.describe(name).tail.offsets)

    def scale(self, parts: int = 2, name: StreamName = NAME) -> None:
        """Seal the newest segment and open some in its place."""
        with self.store as store:
            described = store.describe(name)
            segment = max(described.tail.offsets)
            held = described.ranges()[segment]
            width = (held.high - held.low) / parts
            bounds = [held.low + width * i for i in range(parts)] + [held.high]
            store.scale(name, [segment], [KeyRange(a, b) for a, b in pairwise(bounds)])

    def truncate(self, offsets: Mapping[SegmentId, int] | None = None) -> None:
        """Truncate the source, to its tail if no offsets are given."""
        with self.store as store:
            store.truncate(StreamCut(NAME, offsets or self.tail()))

    def seal(self) -> None:
        with self.store as store:
            store.seal(NAME)

    def payloads(self, name: StreamName = NAME) -> list[bytes]:
        with self.store as store:
            return [payload for _, payload in events_of(store, name)]

    def digest(self, name: StreamName = NAME) -> tuple[int, str]:
        with self.store as store:
            return digest_of(store, name)

    def is_sealed(self, name: StreamName = TARGET) -> bool:
        with self.store as store:
            return store.describe(name).sealed

    def configuration(self, name: StreamName = NAME) -> StreamConfiguration:
        with self.store as store:
            return store.describe(name).configuration

    def own(self) -> list[StreamName]:
        """Every stream of the scope but source and target, and what says who sealed a source that is still there."""
        with self.store as store:
            left = {NAME, TARGET}
            if store.exists(NAME):
                left.add(stream_beside(NAME, SOURCE_SEAL, first_segment_id(store.describe(NAME))))
            return [name for name in store.list_streams(NAME.scope, own=True) if name not in left]

    def same_events(self) -> bool:
        return self.digest() == self.digest(TARGET)

    def is_like_its_source(self, tag: str, *, but: Mapping[str, tuple[object, object]] | None = None) -> bool:
        """Whether the target has the source's events, shape and policies, and a tag; ``but`` is what differs."""
        with self.store as store:
            source, target = shape_of(store, NAME), shape_of(store, TARGET)
            scaling = replace(self.configuration().scaling, min_segments=len(store.describe(NAME).tail.offsets))
        source["configuration"] = replace(
            self.configuration(), tags=(*self.configuration().tags, tag[:256]), scaling=scaling
        )
        for key, values in (but or {}).items():
            assert (source.pop(key), target.pop(key)) == values
        return source == target and self.same_events()


@contextmanager
def killed_at(method: str, name: StreamName = TARGET, *, after: bool = False) -> Iterator[None]:
    """Kill the run when it is about to make a change to a stream, or right after it; the lease stays."""
    real = getattr(LocalStore, method)

    def call(self: LocalStore, what: Any, *args: Any, **options: Any) -> Any:
        if name not in (what, getattr(what, "stream", None)):
            return real(self, what, *args, **options)
        if after:
            real(self, what, *args, **options)
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalStore, method, call)
        leave_leases(patched)
        with pytest.raises((Killed, Failed)):  # a task reports its end
            yield


def leave_leases(patched: pytest.MonkeyPatch) -> None:
    """Let leases stay as a killed process leaves them."""
    patched.setattr(Lease, "release", lambda lease, **_: lease._stop.set() or lease._appender.close())
