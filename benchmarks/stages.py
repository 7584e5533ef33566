"""Profile of a task: each stage alone, then the whole task, in one process.

Wall time depends on other load on the machine; CPU time does not. It is measured for the task's process and for each
server, which compete for the same cores here.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from functools import partial

import psutil

from benchmarks.limits import RANGE_BYTES, LimitJob, prepare_get, prepare_put
from benchmarks.measuring import say, spread
from benchmarks.results import Results, size_text, table
from benchmarks.setting import S3_SERVERS, Setting, open_setting
from benchmarks.workload import Workload
from streamvault.exporter.task import ExportTask, export_range
from streamvault.importer.fill import FillTask, Section, fill_segment
from streamvault.layouts.keys import archive_prefix
from streamvault.layouts.layout import LayoutName, open_layout
from streamvault.layouts.place import Place, PlaceAddress
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.archive.range_bytes import RangeBytes
from streamvault.manifests.archive.rows import FinishedSpan
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.objectstore.bulk import put_all
from streamvault.objectstore.uri import RootAddress
from streamvault.reading.reader import SegmentReader
from streamvault.reading.spans import Span, spans_of
from streamvault.streamstore.arithmetic.framing import MAX_BLOCK_BYTES
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.uri import parse_stream

__all__ = ["HELP", "add_arguments", "run"]

HELP = "where a task's time goes"
SEGMENT = SegmentId(0, 0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks stages``."""
    parser.add_argument("--layout", choices=("events", "chunks"), default="events", help="layout (default events)")
    parser.add_argument("--events", type=int, help="events of the segment (default: 10000; of chunks 200000)")
    parser.add_argument("--size", type=int, nargs="+", default=(100, 1024), metavar="BYTES", help="payloads (100 1024)")
    parser.add_argument("--repeats", type=int, default=3, help="of everything, interleaved (default 3)")
    parser.add_argument("--s3", choices=sorted(S3_SERVERS), default="minio", help="S3 server (default minio)")
    parser.add_argument("--quick", action="store_true", help="2000 events, one repeat")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Measure each payload size; add a table for each."""
    task, events, unit = (
        (_EventsTask, 10_000, "µs an event") if arguments.layout == "events" else (_ChunksTask, 200_000, "ms a MB")
    )
    arguments.events = arguments.events or events
    if arguments.quick:
        arguments.events, arguments.repeats = 2000, 1
    for size in arguments.size:
        with open_setting(arguments.s3, quick=arguments.quick) as setting:
            results.describe(setting.describe())
            workload = Workload(arguments.events, size, 1)
            found = task(setting, workload).measure(arguments.repeats)
            title = f"{arguments.layout}, {size_text(size)} events"
            heads = (f"{title}, {unit}", "wall", "task", setting.s3.name, "Pravega")
            rows = [(stage, *_medians(costs)) for stage, costs in found.items()]
            figures = {stage: [astuple(cost) for cost in costs] for stage, costs in found.items()}
            results.add(f"stages, {title}", table(heads, rows), figures)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a stage per event or MB: wall time, and CPU time of this process and of the servers."""

    wall: float
    task: float
    s3: float
    pravega: float


def _medians(costs: Sequence[Cost]) -> Iterator[str]:
    digits = 0 if costs[0].wall > 100 else 2
    return (f"{spread([getattr(cost, field.name) for cost in costs]).median:,.{digits}f}" for field in fields(Cost))


class _Task(ABC):
    """Export and import of one segment by one process."""

    layout: LayoutName
    per = 1.0
    """Factor from seconds to the displayed unit of time."""

    def __init__(self, setting: Setting, workload: Workload) -> None:
        self._setting = setting
        self._workload = workload
        self._address, self._stream = parse_stream(setting.stream_uri(setting.stream("source")))
        self._prefix = archive_prefix(self._stream.scope, self._stream.stream)
        self._servers = [psutil.Process(pid) for pid in (setting.s3_pid, setting.pravega.process.pid)]

    def measure(self, repeats: int) -> dict[str, list[Cost]]:
        os.environ.update(self._setting.s3.environment())
        self._workload.fill(self._setting.store, self._stream)
        found: dict[str, list[Cost]] = {}
        for repeat in range(repeats):
            for name, action in (*self._export(repeat), *self._import(repeat)):
                cost = self._cost(action)
                say(f"  {repeat + 1}/{repeats} {name}: {cost.wall:,.1f}")
                found.setdefault(name, []).append(cost)
        return found

    @abstractmethod
    def _export(self, repeat: int) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the stages of an export, the whole task last."""

    @abstractmethod
    def _import(self, repeat: int) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the stages of an import of the exported data."""

    @abstractmethod
    def _units(self) -> float:
        """Return the workload's size in the unit."""

    def _export_task(self, repeat: int, span: Span) -> ExportTask:
        return ExportTask(
            source=self._address,
            stream=self._stream,
            segment=SEGMENT,
            segment_end=self._workload.bytes,
            root=self._root(f"{repeat}/task"),
            prefix=self._prefix,
            generation=1,
            attempt=1,
            layout=self.layout,
            compression="",
            window=WINDOW,
            span=span,
        )

    def _fill_task(self, repeat: int, rows: Iterable[ArchivedRange]) -> FillTask:
        root = self._root(f"{repeat}/task")
        archived = [RangeBytes(PlaceAddress(root, self._prefix), self.layout, row) for row in rows]
        sections = tuple(Section(one.start, one.end, one, one.start) for one in archived)
        return FillTask(
            target=self._address,
            stream=self._made(f"target-{repeat}"),
            segment=SEGMENT,
            window=WINDOW,
            head=0,
            sections=sections,
        )

    def _made(self, name: str) -> StreamName:
        stream = self._setting.stream(name)
        self._setting.store.create_stream(stream, StreamConfiguration(scaling=Scaling(min_segments=1)))
        return stream

    def _digest(self, stream: StreamName) -> str:
        """Read the segment of a stream; return its SHA-256."""
        return _hashed(self._setting.store.read(stream, SEGMENT, 0, self._workload.bytes))

    def _root(self, root: str) -> RootAddress:
        return RootAddress.parse(self._setting.root_uri(root)).resolve()

    def _objects(self, root: str) -> LimitJob:
        return LimitJob(self._setting.s3, self._setting.bucket, root, self._stream, self._workload, processes=1)

    def _cost(self, action: Callable[[], object]) -> Cost:
        before = self._clocks()
        action()
        seconds = (after - earlier for after, earlier in zip(self._clocks(), before, strict=True))
        return Cost(*(one * self.per / self._units() for one in seconds))

    def _clocks(self) -> tuple[float, ...]:
        times = [server.cpu_times() for server in self._servers]
        return (time.monotonic(), time.process_time(), *(one.user + one.system for one in times))


class _EventsTask(_Task):
    """Task of layout ``events``: an object per event."""

    layout = "events"
    per = 1e6

    def _row(self) -> ArchivedRange:
        """Return the segment as one archived range."""
        return ArchivedRange(SEGMENT, 0, self._workload.bytes, self._workload.events, self._digest(self._stream))

    def _units(self) -> float:
        return self._workload.events

    def _export(self, repeat: int) -> Iterator[tuple[str, Callable[[], object]]]:
        end = self._workload.bytes
        yield "limit: put by obstore alone", prepare_put(self._objects(f"{repeat}/limit"))
        beside = self._root(f"{repeat}/beside").open()
        items = list(self._workload.objects(self._stream, SEGMENT.number))
        yield "create-only put, from memory", lambda: put_all(beside, items)
        reader = SegmentReader(self._setting.store, self._stream, SEGMENT, start=0, high=end, segment_end=end)
        yield "read, split, hash", lambda: [deque(piece.blocks(), maxlen=0) for piece in reader.pieces()]
        task = self._export_task(repeat, Span(0, end, known=True))
        yield "**the whole export task**", lambda: export_range(task)
        objects = task.root.open()
        layout = open_layout(self.layout)
        check = partial(layout.check_range, Place(objects, self._prefix), self._row().extent)
        yield "the proof: list, follow the chain", check

    def _import(self, repeat: int) -> Iterator[tuple[str, Callable[[], object]]]:
        end, root = self._workload.bytes, self._root(f"{repeat}/task")
        yield "limit: list and get by obstore alone", prepare_get(self._objects(f"{repeat}/task"))
        row = self._row()
        blocks = partial(open_layout(self.layout).read_range, Place(root.open(), self._prefix), row.extent, 0, end)
        yield "list, get in order, frame", lambda: deque(blocks(), maxlen=0)
        task = self._fill_task(repeat, [row])
        yield "**the whole import task**", lambda: fill_segment(task)
        yield "the proof: read back, hash", partial(self._digest, task.stream)


class _ChunksTask(_Task):
    """Task of layout ``chunks``: an object per range, moved by one task after the other."""

    layout = "chunks"
    per = 1e3

    def __init__(self, setting: Setting, workload: Workload) -> None:
        super().__init__(setting, workload)
        self._rows: list[FinishedSpan | None] = []

    def _units(self) -> float:
        return self._workload.bytes / 1e6

    def _export(self, repeat: int) -> Iterator[tuple[str, Callable[[], object]]]:
        store, end = self._setting.store, self._workload.bytes

        def split() -> None:
            splitter = EventSplitter(0)
            for block in store.read(self._stream, SEGMENT, 0, end):
                deque(splitter.feed(block), maxlen=0)

        yield "read", lambda: deque(store.read(self._stream, SEGMENT, 0, end), maxlen=0)
        yield "read, split", split
        reader = SegmentReader(store, self._stream, SEGMENT, start=0, high=end, segment_end=end)
        yield "read, split, hash", lambda: [deque(piece.blocks(), maxlen=0) for piece in reader.pieces()]
        data = b"".join(bytes(block) for block in store.read(self._stream, SEGMENT, 0, min(end, RANGE_BYTES)))
        beside = self._root(f"{repeat}/beside").open()
        puts = range(0, end, RANGE_BYTES)
        yield (
            "create-only put, from memory",
            lambda: [beside.put(f"{low}", memoryview(data)[: end - low]) for low in puts],
        )
        tasks = [self._export_task(repeat, span) for span in spans_of(0, end, RANGE_BYTES)]
        yield "**the whole export tasks**", lambda: self._rows.extend(export_range(task).row for task in tasks)

    def _import(self, repeat: int) -> Iterator[tuple[str, Callable[[], object]]]:
        root, layout, end = self._root(f"{repeat}/task"), open_layout(self.layout), self._workload.bytes
        pieces = [piece for row in self._rows if row for piece in row.ranges]
        self._rows.clear()
        rows = [ArchivedRange(SEGMENT, piece.start, piece.end, piece.events, piece.digest) for piece in pieces]

        def blocks() -> Iterator[bytes | memoryview]:
            for row in rows:
                yield from layout.read_range(Place(root.open(), self._prefix), row.extent, row.start, row.end, WINDOW)

        yield "get in parts", lambda: deque(blocks(), maxlen=0)
        yield "get in parts, hash", lambda: _hashed(blocks())
        block, beside = bytes(MAX_BLOCK_BYTES), self._made(f"appended-{repeat}")

        def append() -> None:
            with self._setting.store.appender(beside, SEGMENT) as appender:
                for low in range(0, end, MAX_BLOCK_BYTES):
                    appender.append(memoryview(block)[: end - low])

        yield "append, from memory", append
        task = self._fill_task(repeat, rows)
        yield "**the whole import task**", lambda: fill_segment(task)


def _hashed(blocks: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()
