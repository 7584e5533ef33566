"""Planning for 10,000 segments and 10^9 events without data: plan, tasks, proof, index, manifest, restore plan."""

from __future__ import annotations

import argparse
import hashlib
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import cast
from uuid import uuid4

from benchmarks.measuring import say
from benchmarks.results import Results, table
from streamvault.exporter.plan import make_plan
from streamvault.exporter.plan_options import PlanOptions
from streamvault.importer.from_archive import archived_content
from streamvault.importer.options import RestoreOptions
from streamvault.importer.plan import plan_restore
from streamvault.layouts.keys import GenerationSpan
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.plan import Plan, create_plan, find_plan
from streamvault.manifests.archive.rows import FinishedSpan, RangeEntry
from streamvault.manifests.archive.selection import select_parts
from streamvault.manifests.format.archived_range import ArchivedRange, segment_digest
from streamvault.manifests.format.entries import SegmentEntry
from streamvault.manifests.format.fields import segment_key
from streamvault.manifests.format.model import Manifest
from streamvault.manifests.format.ranges import encode_ranges
from streamvault.objectstore.uri import RootAddress
from streamvault.reading.proof import SegmentChain
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import StreamStore

__all__ = ["HELP", "add_arguments", "run"]

HELP = "plan, index and manifest of a stream of 10,000 segments and 10^9 events, simulated"
NAME = StreamName("benchmark", "huge")
MIB = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks planning``."""
    parser.add_argument("--segments", type=int, default=10_000, help="segments in all (default 10000)")
    parser.add_argument("--events", type=int, nargs="+", default=(10**8, 10**9), help="events in all (10^8 10^9)")
    parser.add_argument("--size", type=int, default=100, help="bytes of a payload (default 100)")
    parser.add_argument("--quick", action="store_true", help="100 segments")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Simulate each stream with one epoch and with a hundred; add a table."""
    segments = 100 if arguments.quick else arguments.segments
    results.describe({"servers": "none; the archive is in memory"})
    rows, figures = [], []
    for epochs in (1, 100):
        for events in arguments.events:
            simulated = _Simulated(segments, epochs, events, arguments.size)
            simulated.run()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            ranges, manifest, index = simulated.ranges, simulated.manifest_bytes, simulated.index_bytes
            rows.append(
                (
                    f"{segments:,} segments in {epochs} epochs, {events:,} events",
                    f"{ranges:,}",
                    *(f"{seconds:.1f}" for seconds in simulated.seconds.values()),
                    *([] if "restore" in simulated.seconds else [""]),
                    f"{manifest / MIB:.1f} MiB",
                    f"{index / MIB:.1f} MiB",
                    f"{peak:,.0f} MiB",
                )
            )
            say(f"  {rows[-1]}")
            figures.append({"epochs": epochs, "events": events, "ranges": ranges, **simulated.seconds, "peak": peak})
    times = ("plan (s)", "proof (s)", "commit (s)", "restore plan (s)")
    heads = ("", "ranges", *times, "manifest", "index", "peak memory")
    results.add("planning", table(heads, rows), figures)


@dataclass(slots=True)
class _Simulated:
    """A simulated stream, and its archive's manifest and index in memory."""

    segments: int
    epochs: int
    events: int
    size: int
    seconds: dict[str, float] = field(default_factory=dict)
    ranges: int = 0
    manifest_bytes: int = 0
    index_bytes: int = 0

    def run(self) -> None:
        archive = Archive.at(RootAddress.parse(f"memory://{uuid4().hex}"), NAME)
        with self._timed("plan"):
            plan = self._plan(archive)
        with self._timed("proof"):
            rows = list(self._proved(plan))
        with self._timed("commit"):
            manifest = _manifest(plan, rows)
            archive.commit(manifest, rows)
        self.ranges = len(rows)
        self.manifest_bytes, self.index_bytes = len(manifest.encode()), len(encode_ranges(NAME, rows))
        if self.epochs == 1:  # segment numbers of the simulated scalings differ from those that a store assigns
            with self._timed("restore"):
                history = archive.history()
                options = RestoreOptions()
                plan_restore(archived_content(archive, history, select_parts(history), options), options)

    @property
    def share(self) -> int:
        """Bytes of a segment."""
        return self.events // self.segments * (self.size + 8)

    def _plan(self, archive: Archive) -> Plan:
        """Plan as `exporter.plan.settle_plan` does: describe the stream, make the plan, write it, read it back."""
        store = cast("StreamStore", _Lengths(self.share))
        plan = make_plan(self._described(), store, None, PlanOptions(layout="chunks"))
        if plan is None:
            raise RuntimeError("there is nothing to plan")
        create_plan(archive.place, plan)
        found = find_plan(archive.place, GenerationSpan.of(1))
        if found != plan:
            raise RuntimeError("the plan came back different")
        return found

    def _described(self) -> StreamDescription:
        width = self.segments // self.epochs
        numbers = count()
        epochs = [
            Epoch(epoch, {SegmentId(epoch, next(numbers)): KeyRange(i / width, (i + 1) / width) for i in range(width)})
            for epoch in range(self.epochs)
        ]
        head = StreamCut(NAME, dict.fromkeys(epochs[0].segments, 0))
        tail = StreamCut(NAME, dict.fromkeys(epochs[-1].segments, self.share))
        return StreamDescription(NAME, StreamConfiguration(), tuple(epochs), head, tail, sealed=False)

    def _proved(self, plan: Plan) -> Iterator[ArchivedRange]:
        """Yield the rows that tasks would report, in the order of the plan's chain."""
        length = self.size + 8
        for planned in plan.segments:
            chain = SegmentChain(planned.start, planned.end, plan.range_size)
            for span in chain.open_spans():
                start, end = (-(-edge // length) * length for edge in (span.low, span.high))
                digest = hashlib.sha256(f"{planned.name}{start}".encode()).hexdigest()
                piece = RangeEntry(start=start, end=end, events=(end - start) // length, digest=digest)
                chain.add(FinishedSpan(start=start, end=end, ranges=(piece,)))
            if chain.prove() is not None:
                raise RuntimeError("the simulated ranges do not join")
            segment = segment_key(planned.name)
            yield from (ArchivedRange(segment, p.start, p.end, p.events, p.digest) for p in chain.pieces())

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[step] = time.monotonic() - began


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Store with what planning calls: the lengths of segments, and bytes for the stream's witness."""

    length: int

    def segment_info(self, _: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        return [SegmentInfo(segment, 0, self.length, sealed=True) for segment in segments]

    def read(self, _stream: StreamName, _segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        yield memoryview(bytes(end - start))


def _manifest(plan: Plan, rows: Sequence[ArchivedRange]) -> Manifest:
    held: dict[SegmentId, list[ArchivedRange]] = {}
    for row in rows:
        held.setdefault(row.segment, []).append(row)
    entries = [
        SegmentEntry(
            name=planned.name,
            start=planned.start,
            end=planned.end,
            sealed=planned.sealed,
            events=sum(row.events for row in held[segment_key(planned.name)]),
            bytes=planned.end - planned.start,
            digest=segment_digest(row.digest for row in held[segment_key(planned.name)]),
        )
        for planned in plan.segments
    ]
    return plan.manifest(entries, (), "benchmark")
