"""Scenes of tests: streams of an embedded store with archives, copies or keyed events, and runs that stop midway."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from threading import Lock
from typing import Any

import pytest

from streamvault import (
    append_streams,
    check_archive,
    copy_stream,
    export_stream,
    import_stream,
    move_stream,
    promote_replica,
    replicate_stream,
)
from streamvault.cli import main
from streamvault.common.errors import Failed
from streamvault.common.progress import Progress
from streamvault.concat.reports import CopyReport, StitchReport
from streamvault.importer import run
from streamvault.importer.target import Target, first_segment_id
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests.spans import spans_of
from streamvault.objectstore.uri import RootAddress
from streamvault.replication.replica import Replica
from streamvault.replication.reports import MoveReport, PromoteReport, ReplicateReport
from streamvault.streamstore import lease
from streamvault.streamstore.byte_source import LiveSegment
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.ledger import Ledger
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.own import SOURCE_SEAL, stream_beside
from streamvault.streamstore.routing import SegmentRouter
from streamvault.streamstore.walking import find_start
from testkit.killed import Killed
from testkit.small_archives import NAME, LocalStreams, Vault
from testkit.streams import append_events, digest_of, events_of, make_stream, opened, shape_of

SEGMENT = SegmentId(0, 0)


def lure(rest: int) -> bytes:
    """A payload that contains the header of an event which covers the next `rest` bytes of the segment as well.

    A guess that starts there comes out at a boundary as true as any, behind events that it has hidden.
    """
    return b"\xff" * 5 + struct.pack(">ii", 0, rest + 3) + b"end"


@dataclass(frozen=True)
class Place(LocalStreams):
    """An embedded store and a root for archives, in memory unless `on_disk` (which flushes every object)."""

    folder: Path
    on_disk: bool = False

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "streams")

    def uri(self, stream: str = "stream") -> str:
        return f"local://{self.folder}/streams/scope/{stream}"

    @property
    def root(self) -> str:
        return (
            f"file://{self.folder}/vault" if self.on_disk else f"memory://{self.folder.parent.name}-{self.folder.name}"
        )

    @property
    def archive(self) -> str:
        return f"{self.root}/{NAME}"

    def keys(self, layout: LayoutName = "events") -> list[str]:
        """The archived data, as listed."""
        folder = f"{NAME}/{layout}/"
        return [found.key.removeprefix(folder) for found in RootAddress.parse(self.root).open().list(folder)]

    def fill(self, *segments: list[bytes]) -> None:
        """Create the stream."""
        with self.store as store:
            store.create_scope("scope")
            store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=len(segments))))
            for segment, payloads in zip(sorted(store.describe(NAME).tail.offsets), segments, strict=True):
                append_events(store, NAME, segment, payloads)

    def true_keys(self) -> list[str]:
        with self.store as store:
            return sorted(
                f"{p.segment.epoch:010d}.{p.segment.number:010d}/{p.offset:019d}-{p.length:010d}"
                for p, _ in events_of(store, NAME)
            )

    def true_chunks(self, range_size: int) -> list[str]:
        """Ranges are cut at the first event at or after each multiple of the range size."""
        ranges: dict[tuple[SegmentId, int], tuple[int, int]] = {}
        with self.store as store:
            for p, _ in events_of(store, NAME):
                place = p.segment, p.offset // range_size
                ranges[place] = ranges.get(place, (p.offset, 0))[0], p.offset + p.length
        return sorted(
            f"{segment.epoch:010d}.{segment.number:010d}/{start:019d}-{end - start:019d}"
            for (segment, _), (start, end) in ranges.items()
        )

    def prove(self, range_size: int, layout: LayoutName = "events", compress: Compression = "") -> None:
        """Export, compare with the stream, check, import, compare again."""
        report = export_stream(
            self.uri(), self.root, layout=layout, compress=compress, range_size=range_size, master="inline[2]"
        )
        assert self.keys(layout) == (self.true_keys() if layout == "events" else self.true_chunks(range_size))
        assert report.events == len(self.true_keys())
        check = check_archive(self.archive, read_data=True, master="inline[2]")
        assert check.ok, check.findings
        import_stream(self.archive, self.uri("restored"), master="inline[2]")
        with self.store as store:
            assert digest_of(store, StreamName("scope", "restored")) == digest_of(store, NAME)

    def guesses(self, range_size: int) -> Iterator[tuple[int, int | None]]:
        """For each range but the first, where its task guesses the beginning, and the true beginning."""
        with self.store as store:
            end = store.describe(NAME).tail.offsets[SEGMENT]
            starts = [p.offset for p, _ in events_of(store, NAME) if p.segment == SEGMENT] + [end]
            for span in list(spans_of(0, end, range_size))[1:]:
                true = next(start for start in starts if start >= span.low)
                yield true, find_start(store, NAME, SEGMENT, span.low, end)


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
class Streams(LocalStreams):
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

    def is_sealed(self, name: StreamName = TARGET) -> bool:
        return self.describe(name).sealed

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


def ledger_of(streams: Streams) -> Replica:
    """The ledger of a copy or a replica, read."""
    replica = Replica(opened(streams.store, TARGET))
    replica.read()
    return replica


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


BACK = replace(NAME, stream="back")


def restore(vault: Vault, *options: str, to: StreamName = BACK) -> int:
    """Run the command; return its exit code. It prints its report as JSON."""
    return main(["import", vault.archive, vault.uri(to), "--master", "inline[2]", "--json", *options])


@contextmanager
def stopped_after(segments: int) -> Iterator[None]:
    """Let an import fail when it has filled so many segments."""
    real, calls = run.fill_segment, []

    def fill(task: Any) -> Any:
        calls.append(task)
        if len(calls) > segments:
            raise Failed("stopped for a test")
        return real(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "fill_segment", fill)
        yield


@contextmanager
def killed_at_its_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill an import when its tag is gone, and only the lease shows which import the target belongs to."""
    monkeypatch.setattr(lease, "PATIENCE_SECONDS", 0.02)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.01)
    real = Target.finish

    def finish(self: Target) -> None:
        real(self)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Target, "finish", finish)
        patch.setattr(lease, "BEAT_SECONDS", 3600.0)
        patch.setattr(Lease, "release", lambda self, **_: self._appender.close())
        with pytest.raises(Killed):
            yield


NAMES = ("a", "b", "c", "d", "e", "f")


@dataclass(frozen=True)
class Scopes:
    """Streams in the scope ``shop``."""

    folder: Path
    capfd: pytest.CaptureFixture[str]

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "streams")

    @property
    def root(self) -> str:
        return f"file://{self.folder}/vault"

    def uri(self, path: str) -> str:
        return f"local://{self.folder}/streams/{path}"

    def make(self, names: Sequence[str] = NAMES, scope: str = "shop") -> None:
        with self.store as store:
            store.create_scope(scope)
            for number, name in enumerate(names):
                store.create_stream(StreamName(scope, name), StreamConfiguration())
                self.add(name, number + 3, scope=scope)

    def add(self, name: str, events: int, *, scope: str = "shop") -> None:
        with self.store as store:
            append_events(store, StreamName(scope, name), SegmentId(0, 0), [name.encode() * 9] * events)

    def delete(self, name: str) -> None:
        with self.store as store:
            store.delete(StreamName("shop", name))

    def digest(self, scope: str, name: str) -> object:
        with self.store as store:
            return digest_of(store, StreamName(scope, name))

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run a command; its exit code and what it prints."""
        self.capfd.readouterr()
        code = main([*arguments, "--master", "inline", "--json"])
        return code, json.loads(self.capfd.readouterr().out)

    def outcomes(self, *arguments: str) -> dict[str, str]:
        """Run a command; how it ended for each stream."""
        return {each["stream"].rpartition("/")[2]: each["status"] for each in self.run(*arguments)[1]["outcomes"]}


class Heard(Progress):
    """What was said, and what a test does when it hears it."""

    def __init__(self, **answers: Any) -> None:
        self.heard: list[str] = []
        self.answers = answers

    def note(self, text: str) -> None:
        self.heard.append(text)
        for words, answer in list(self.answers.items()):
            if text.startswith(words.replace("_", ": ")):
                del self.answers[words]
                answer()


ALL_DONE = dict.fromkeys(NAMES, "done")
