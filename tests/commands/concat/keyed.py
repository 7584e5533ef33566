"""Streams whose events have keys, and a check that each key's events are in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streamvault import append_streams
from streamvault.concat.reports import StitchReport
from streamvault.streamstore.ledger import Ledger
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.routing import SegmentRouter
from testkit.killed import Killed
from testkit.streams import append_events, events_of
from tests.commands.replication.streams import leave_leases

KEYS = 25


@dataclass
class Keyed:
    """Streams of one embedded store; each event is its key, its stream and a number."""

    folder: Path
    scope: str = "scope"
    written: dict[str, int] = field(default_factory=dict)

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder)

    def uri(self, name: str) -> str:
        return f"local://{self.folder}/{self.scope}/{name}"

    def make(self, name: str, segments: int = 1, *, events: int = 0, scaling: Scaling | None = None) -> None:
        with self.store as store:
            store.create_scope(self.scope)
            store.create_stream(StreamName(self.scope, name), StreamConfiguration(Scaling(min_segments=segments)))
            store.update_stream(StreamName(self.scope, name), StreamConfiguration(scaling or Scaling.never()))
        self.write(name, events)

    def write(self, name: str, events: int = 50) -> None:
        """Write events with some keys, as a writer does: to the segments that are open."""
        begin = self.written.get(name, 0)
        self.written[name] = begin + events
        stream = StreamName(self.scope, name)
        with self.store as store:
            router = SegmentRouter(store.describe(stream).epochs[-1].segments)
            by_segment: dict[SegmentId, list[bytes]] = {}
            for number in range(begin, begin + events):
                key = f"k{number % KEYS}"
                segment = router.segments[router.index_of(key)]
                by_segment.setdefault(segment, []).append(f"{key} {name} {number}".encode())
            for segment, payloads in by_segment.items():
                append_events(store, stream, segment, payloads)

    def scale(self, name: str, bounds: Iterable[float]) -> None:
        """Replace all open segments by some with these boundaries between them."""
        stream = StreamName(self.scope, name)
        with self.store as store:
            current = store.describe(stream).epochs[-1].segments
            ranges = [KeyRange(low, high) for low, high in pairwise([0.0, *bounds, 1.0])]
            store.scale(stream, list(current), ranges)

    def payloads(self, name: str) -> list[str]:
        with self.store as store:
            return [payload.decode() for _, payload in events_of(store, StreamName(self.scope, name))]

    def by_key(self, name: str) -> dict[str, list[str]]:
        """Key → its events, each as its stream and number, in the order in which they are read."""
        found: dict[str, list[str]] = {}
        for payload in self.payloads(name):
            key, rest = payload.split(" ", 1)
            found.setdefault(key, []).append(rest)
        return found

    def expected(self, *parts: tuple[str, range]) -> dict[str, list[str]]:
        """What `by_key` returns of a stream with these parts: the name of the stream that has them, the numbers."""
        found: dict[str, list[str]] = {}
        for name, numbers in parts:
            for number in numbers:
                found.setdefault(f"k{number % KEYS}", []).append(f"{name} {number}")
        return found

    def append(self, *sources: str, into: str = "target", **options: Any) -> StitchReport:
        uris = [source if "://" in source else self.uri(source) for source in sources]
        return append_streams(uris, self.uri(into), master="inline[2]", **options)

    def tail(self, name: str) -> Mapping[SegmentId, int]:
        with self.store as store:
            return store.describe(StreamName(self.scope, name)).tail.offsets

    def own(self) -> list[str]:
        with self.store as store:
            every, users = store.list_streams(self.scope, own=True), set(store.list_streams(self.scope))
            return [name.stream for name in every if name not in users]


@contextmanager
def killed_at_stage(stage: str, *, after: bool) -> Iterator[None]:
    """Kill the run when it is about to record a stage, or right after it."""
    real = Ledger.record

    def record(self: Ledger, what: Any) -> None:
        if what.get("stage") != stage or after:
            real(self, what)
        if what.get("stage") == stage:
            raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ledger, "record", record)
        leave_leases(patched)
        with pytest.raises(Killed):
            yield
