"""Small archives made by hand, without a stream store: manifests, ranges, objects, plans, rows of finished ranges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from streamvault.common.units import now_utc
from streamvault.layouts.archived_range import ArchivedRange, segment_digest
from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.decisions import Decision
from streamvault.manifests.manifest import FORMAT, Configuration, GapEntry, Manifest, PlannedSegment, SegmentEntry
from streamvault.manifests.plan import FinishedSpan, Gap, Plan, RangeEntry
from streamvault.streamstore.events import EventBlock
from streamvault.streamstore.model import Epoch, Epochs, KeyRange, SegmentId, StreamConfiguration, StreamCut, StreamName
from testkit.streams import frame

NAME = StreamName("scope", "stream")
LEFT, RIGHT = SegmentId(0, 0), SegmentId(0, 1)
EPOCHS = Epochs([Epoch(0, {LEFT: KeyRange(0.0, 0.5), RIGHT: KeyRange(0.5, 1.0)})])
CREATED = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)

Payloads = Sequence[bytes]


@dataclass(frozen=True)
class Hole:
    """Bytes that were truncated away."""

    size: int


@dataclass(frozen=True)
class Made:
    """A generation and its events: offset of the header and payload, by segment."""

    manifest: Manifest
    rows: list[ArchivedRange]
    events: dict[SegmentId, list[tuple[int, bytes]]]


def generation(
    held: Mapping[SegmentId, Sequence[Payloads | Hole]],
    *,
    before: Manifest | None = None,
    epochs: Epochs = EPOCHS,
    configuration: StreamConfiguration | None = None,
    head: Mapping[SegmentId, int] | None = None,
) -> Made:
    """The generation after `before` that holds these ranges; segments of the last epoch that are left out got nothing.

    Args:
        held: segment → its ranges, each some events' payloads, or a hole.
        before: the newest generation.
        epochs: of the stream, all open in the last one.
        configuration: of the stream.
        head: where the first generation starts.
    """
    begin = before.to if before else StreamCut(NAME, head or dict.fromkeys(epochs[0].segments, 0))
    rows: list[ArchivedRange] = []
    entries, gaps, ends = [], [], {}
    events: dict[SegmentId, list[tuple[int, bytes]]] = {}
    for segment in sorted({*begin.offsets, *held, *epochs[-1].segments}):
        start = at = begin.offsets.get(segment, 0)
        mine: list[ArchivedRange] = []
        for stretch in held.get(segment, ()):
            if isinstance(stretch, Hole):
                name = segment.in_stream(NAME)
                gaps.append(GapEntry(segment=name, start=at, end=at + stretch.size, reason="truncated"))
                at += stretch.size
                continue
            data = b"".join(frame(payload) for payload in stretch)
            mine.append(ArchivedRange(segment, at, at + len(data), len(stretch), hashlib.sha256(data).hexdigest()))
            for payload in stretch:
                events.setdefault(segment, []).append((at, payload))
                at += len(payload) + 8
        ends[segment] = at
        rows += mine
        entries.append(
            SegmentEntry(
                name=segment.in_stream(NAME),
                start=start,
                end=at,
                sealed=segment not in epochs[-1].segments,
                events=sum(row.events for row in mine),
                bytes=sum(row.end - row.start for row in mine),
                digest=segment_digest(row.digest for row in mine),
            )
        )
    manifest = Manifest(
        format=FORMAT,
        generation=before.generation + 1 if before else 1,
        created=CREATED,
        scope=NAME.scope,
        stream=NAME.stream,
        layout="events",
        compression="",
        source="",
        configuration=Configuration.of(configuration or StreamConfiguration(tags=("ünï", "a"))),
        epochs=epochs,
        from_=begin,
        to=StreamCut(NAME, {segment: ends[segment] for segment in epochs[-1].segments}),
        segments=tuple(entries),
        gaps=tuple(gaps),
        events=sum(entry.events for entry in entries),
        bytes=sum(entry.bytes for entry in entries),
        range_size=64,
        sealed=False,
        tool="streamvault test",
    )
    return Made(manifest, rows, events)


def new_decision(number: int, name: StreamName = NAME, **changes: Any) -> Decision:
    """A decision that decides nothing but the changes."""
    values: dict[str, Any] = {"format": 1, "dropped": 0, "swept": 0, "merged": (), "holds": (), **changes}
    return Decision(scope=name.scope, stream=name.stream, number=number, created=now_utc(), **values)


def runs(events: Iterable[tuple[int, bytes]]) -> Iterator[EventBlock]:
    """Events, given as (offset of the header, payload), as runs of one each."""
    for offset, payload in events:
        yield EventBlock(offset, memoryview(frame(payload)), 1)


def write_data(archive: Archive, made: Made) -> None:
    """Write a generation's objects."""
    for segment, events in made.events.items():
        open_layout("events").write_run(archive.place, segment, runs(events))


def publish(archive: Archive, *generations: Made) -> None:
    """Write data and commit."""
    for made in generations:
        write_data(archive, made)
        assert archive.commit(made.manifest, made.rows)


def two_generations() -> tuple[Made, Made]:
    """Two segments; the first generation has a hole and an empty event, the second adds to one segment."""
    first = generation({LEFT: [[b"one", b""], [b"two" * 40]], RIGHT: [Hole(100), [b"three", b"four"]]})
    return first, generation({RIGHT: [[b"five"] * 3]}, before=first.manifest)


PREFIX = "scope/stream/"
DIGEST = "ab" * 32


def plan_of(generation: int = 1, *, end: int = 500, **changes: Any) -> Plan:
    manifest = two_generations()[0].manifest
    values: dict[str, Any] = {
        "generation": generation,
        "created": CREATED,
        "scope": "scope",
        "stream": "stream",
        "layout": "events",
        "compression": "",
        "source": "",
        "range_size": 64,
        "configuration": manifest.configuration,
        "epochs": manifest.epochs,
        "from_": StreamCut(NAME, {LEFT: 0, RIGHT: 0}),
        "to": StreamCut(NAME, {LEFT: end, RIGHT: 9}),
        "segments": (
            PlannedSegment(name=LEFT.in_stream(NAME), start=0, end=end, sealed=False),
            PlannedSegment(name=RIGHT.in_stream(NAME), start=0, end=9, sealed=False),
        ),
        "gaps": (GapEntry(segment=RIGHT.in_stream(NAME), start=0, end=9, reason="truncated"),),
        "sealed": False,
    }
    return Plan(**(values | changes))


Bounds = Sequence[tuple[int, int]]


def finished(start: int, end: int, pieces: Bounds, gaps: Bounds) -> FinishedSpan:
    return FinishedSpan(
        start=start,
        end=end,
        ranges=tuple(RangeEntry(start=low, end=high, events=1, digest=DIGEST) for low, high in pieces),
        gaps=tuple(Gap(start=low, end=high, reason="truncated") for low, high in gaps),
    )


def row(start: int, *pieces: tuple[int, int], gaps: Bounds = (), end: int | None = None) -> FinishedSpan:
    held = pieces or ((start, start + 10),)
    return finished(start, max(high for _, high in (*held, *gaps)) if end is None else end, held, gaps)
