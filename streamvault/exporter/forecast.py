"""The *plan* command: computes what an archive of a stream, or of one that need not exist, would take.

To know their sizes, the manifest and the index of a generation are encoded by the code that writes them; of thousands
of entries only a sample is, and the rest grows in proportion. The memory of each process follows from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, repeat
from math import ceil

from streamvault.common.errors import Usage
from streamvault.common.options import verb
from streamvault.common.units import bytes_text, now_utc
from streamvault.common.version import TOOL
from streamvault.exporter.plan import make_plan
from streamvault.exporter.reports import ExportOptions, PlanOptions, PlanReport, StorageForecast, VerbForecast, VerbName
from streamvault.layouts.archived_range import ArchivedRange, block_checksums_length
from streamvault.layouts.chunks import FRAME_BYTES
from streamvault.layouts.layout import LAYOUTS, Layout, LayoutName, layout_of, open_layout
from streamvault.manifests.deleting import below_head
from streamvault.manifests.manifest import (
    MAX_INDEX_BYTES,
    Configuration,
    IndexEntry,
    Manifest,
    PlannedSegment,
    SegmentEntry,
    Totals,
    Witness,
)
from streamvault.manifests.options import RANGE_SIZE
from streamvault.manifests.plan import Plan
from streamvault.manifests.verbs.costs import (
    Part,
    Prices,
    Requests,
    least_to_export,
    list_prices,
    load_prices,
    objects_of,
    ranges_of,
    to_check,
    to_export,
    to_read_history,
    to_read_part,
    to_touch,
)
from streamvault.objectstore.store import PAGE, SMALL
from streamvault.sources.identity import WITNESS_BYTES
from streamvault.sources.reader import estimate_parts
from streamvault.streamstore.model import (
    HEADER_BYTES,
    LARGEST_EVENT_BYTES,
    Epoch,
    Epochs,
    KeyRange,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamName,
)
from streamvault.streamstore.own import describe_source
from streamvault.streamstore.uri import parse_stream

SAMPLE_SEGMENTS = 97
"""A prime, so that key ranges have as many digits as most have."""
SAMPLE_ROWS = 10_000
"""Rows of an index that are encoded together."""

SAMPLE_FRAMES, SAMPLE_BLOCKS = 256, 4096
"""Frames, and characters of blocks' checksums, of a range that are encoded; of more, their size is added."""

DRIVER_BYTES = 200 * 2**20
"""Memory of a command with few ranges."""

DRIVER_BYTES_A_RANGE: Mapping[VerbName, int] = {
    "export": 3_000,
    "import": 60,
    "check": 60,
    "check --read-data": 80,
}
"""Memory of a verb's process, for each range: its task, its row, its entry of the index. An export has the ranges of
one generation, the others those of all; a check that reads has a hash of each range's checksums of blocks."""

DRIVER_BYTES_A_MANIFEST_BYTE = 22
"""Memory of any process, for each byte of a manifest, most of which are of the stream's history."""

_DIGEST = "0" * 64
_CHECKSUM = f"{'A' * 11}="

MOST_CUT = 10_000
"""Parts of segments whose ranges are counted one by one."""


def manifest_of(plan: Plan, events: Mapping[SegmentId, int], index: int) -> Manifest:
    """Return the manifest that an export with a plan would write, but for digests.

    Args:
        plan: the plan.
        events: number of events of each segment that has some.
        index: size of the index.
    """
    entries = (
        SegmentEntry(**dict(one), events=events.get(one.id, 0), bytes=one.end - one.start, digest=_DIGEST)
        for one in plan.segments
    )
    manifest = plan.manifest(entries, plan.gaps, TOOL)
    published = {"index": IndexEntry(bytes=index, digest=_DIGEST), "before": Totals(), "line": ""}
    return manifest.model_copy(update=published)


def index_bytes(
    stream: StreamName, parts: Sequence[tuple[SegmentId, Part]], layout: Layout, *, compressed: bool
) -> int:
    """Return the size of an index of parts, given with the first of the segments that are alike."""
    from streamvault.manifests.index import MAX_WITH_BLOCKS, encode_ranges  # noqa: PLC0415  (imports pyarrow)

    checksum, ranges = "" if layout.one_object_per_event else _CHECKSUM, ranges_of(part for _, part in parts)
    sizes = Counter[int]()
    for _, part in parts:
        for units, times in part.pieces():
            sizes[part.bytes * units // part.units] += times * part.alike

    def frames_of(size: int) -> int:
        return -(-size // FRAME_BYTES) if compressed else 0

    def encoded(blocks_of: Callable[[int], int]) -> int:
        def size_of(count: int) -> int:
            rows = (
                ArchivedRange(
                    segment,
                    0,
                    size,
                    1,
                    _DIGEST,
                    (FRAME_BYTES,) * min(frames_of(size), SAMPLE_FRAMES),
                    checksum,
                    "A" * min(blocks_of(size), SAMPLE_BLOCKS),
                )
                for segment, size in islice(_each_range(parts), count)
            )
            return len(encode_ranges(stream, rows))

        left = ((4, frames_of, SAMPLE_FRAMES), (1, blocks_of, SAMPLE_BLOCKS))  # of ranges that are very large
        more = sum(one * max(of(size) - most, 0) * times for size, times in sizes.items() for one, of, most in left)
        return _extrapolated(size_of, ranges, SAMPLE_ROWS) + more

    found = encoded(lambda _: 0)
    length = sum(block_checksums_length(size) * times for size, times in sizes.items())
    if layout.one_object_per_event or found + length > MAX_WITH_BLOCKS:  # then they are left out
        return found
    return encoded(block_checksums_length)


def _each_range(parts: Iterable[tuple[SegmentId, Part]]) -> Iterator[tuple[SegmentId, int]]:
    """Yield the segment and the size of each range."""
    for first, part in parts:
        sizes = [(part.bytes * units // part.units, times) for units, times in part.pieces()]
        for number in range(part.alike):
            segment = SegmentId(first.epoch, first.number + number)
            for size, times in sizes:
                yield from repeat((segment, size), times)


def _extrapolated(size_of: Callable[[int], int], count: int, sample: int) -> int:
    """Return the size of so many entries; of many, from the sizes of one and two samples."""
    if count <= 2 * sample:
        return size_of(count)
    one, two = size_of(sample), size_of(2 * sample)
    return one + (two - one) * (count - sample) // sample


def manifest_bytes(stream: StreamName, layout: LayoutName, segments: int, part: Part, index: int) -> int:
    """Return the size of a manifest of a stream that was never scaled, and each of whose segments has a part."""

    def size_of(count: int) -> int:
        ids = [SegmentId(0, number) for number in range(segments - count, segments)]
        edges = [n / count for n in range(count + 1)]
        epoch = Epoch(0, {one: KeyRange(low, high) for one, (low, high) in zip(ids, pairwise(edges), strict=True)})
        held, names = min(WITNESS_BYTES, part.end), [one.in_stream(stream) for one in ids]
        plan = Plan(
            generation=1,
            created=now_utc(),
            scope=stream.scope,
            stream=stream.stream,
            layout=layout,
            compression="",
            source="",
            content="bytes" if part.bytes and not part.events else "events",
            configuration=Configuration.of(StreamConfiguration()),
            epochs=Epochs([epoch]),
            from_=StreamCut(stream, dict.fromkeys(ids, part.start)),
            to=StreamCut(stream, dict.fromkeys(ids, part.end)),
            witness=tuple(
                Witness(segment=name, offset=part.end - held, length=held, digest=_DIGEST)
                for name in islice(names, count if held else 0)
            ),
            segments=tuple(PlannedSegment(name=name, start=part.start, end=part.end, sealed=False) for name in names),
            gaps=(),
            range_size=part.range_size,
            sealed=False,
        )
        return len(manifest_of(plan, dict.fromkeys(ids, part.events), index).encode())

    return _extrapolated(size_of, segments, SAMPLE_SEGMENTS)


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of a core.

    Attributes:
        gigabyte: for 10^9 bytes of the segments.
        million: for a million objects of one event, besides their bytes; of a listing, for a million keys.
    """

    gigabyte: float
    million: float

    def hours(self, size: int, objects: int) -> float:
        """Return the hours for so many bytes, and so many objects besides them."""
        return (size / 1e9 * self.gigabyte + objects / 1e6 * self.million) / 3600


EXPORT = Speed(2.4, 189.0)
IMPORT = Speed(1.6, 255.0)
READ = Speed(1.1, 253.0)
LIST = Speed(0.0, 10.0)


PUTS_A_SECOND, GETS_A_SECOND = 3500, 5500
"""What S3 promises for each prefix."""

BURST = 60 * PUTS_A_SECOND
"""PUT requests that are too few to be slowed down noticeably: those of one prefix in a minute."""


@verb(PlanOptions)
def plan_archive(stream: str | None, options: PlanOptions) -> PlanReport:
    """Compute what an archive would take: requests, dollars, hours, sizes. Nothing is written.

    A stream is described, and a sample of it is read. Without one, the options say how large it is, and no server is
    needed.

    Args:
        stream: the stream, ``pravega://HOST:PORT/SCOPE/STREAM`` or ``local:///FOLDER/SCOPE/STREAM``; None for one that
            need not exist.
        segments: its number of segments, if there is no stream.
        bytes: its bytes, event headers included.
        events: its events.
        content: ``"bytes"`` for a byte stream.
        layout: the archive's layout, as for `export_stream`.
        compress: the archive's compression, as for `export_stream`; sizes are given as if it saved nothing.
        range_size: size of ranges (bytes); None for 64 MiB.
        exports: in how many exports the bytes are archived.
        cores: cores that run tasks.
        network: bandwidth of their network in Gbit/s.
        prices: a file of prices; empty for S3's list prices.

    Raises:
        Usage: an option is not valid, or both a stream and its size are given, or neither.
        Problem: the stream cannot be read.
    """
    prices = load_prices(options.prices) if options.prices else list_prices()
    layout = layout_of(options.content or "events", options.layout)
    open_layout(layout, options.compress or "")
    given = {"--segments": options.segments, "--bytes": options.bytes, "--events": options.events}
    if stream and any(value is not None for value in given.values()):
        raise Usage("a stream has its own size", where=stream, todo=f"Omit {', '.join(given)}, or the stream.")
    if stream:
        return _Calculation(stream, _read(stream, options), layout, options, prices).report()
    missing = [option for option, value in given.items() if value is None]
    if missing:
        todo = "Give a STREAM, or --segments, --bytes and --events for one that need not exist."
        raise Usage(f"{missing[0]} is missing", todo=todo)
    return _Calculation("", _imagined(options), layout, options, prices).report()


@dataclass(frozen=True, slots=True)
class _Described:
    """The stream that is planned for.

    Attributes:
        name: its name.
        parts: what its segments hold, by the first of the segments that are alike.
        plan: the plan of an export of all of it; None if it need not exist.
        is_exact: whether the numbers of events are.
    """

    name: StreamName
    parts: Mapping[SegmentId, Part]
    plan: Plan | None = None
    is_exact: bool = True


def _read(stream: str, options: PlanOptions) -> _Described:
    address, name = parse_stream(stream)
    with address.open() as store:
        plan = make_plan(describe_source(store, name), store, None, options.shared_with(ExportOptions))
        parts, is_exact = estimate_parts(store, plan, LARGEST_EVENT_BYTES) if plan else ({}, True)
    return _Described(name, parts, plan, is_exact)


def _imagined(options: PlanOptions) -> _Described:
    """Return a stream whose segments are alike: those with one event more, and the others."""
    segments, size, count = options.segments or 1, options.bytes or 0, options.events or 0
    if size < count * HEADER_BYTES:
        what = f"{count:,} events take at least {count * HEADER_BYTES:,} bytes"
        raise Usage(what, where=f"--bytes {size}", todo="The bytes include a header of 8 bytes for each event.")
    if options.content == "bytes" and count:
        raise Usage("a byte stream has no events", where=f"--events {count}", todo="Give --events 0.")
    if options.content != "bytes" and bool(count) != bool(size):
        raise Usage("--events and --bytes must both be 0, or neither", where=f"--bytes {size}, --events {count}")
    each, more = divmod(count or size, segments)
    parts = {}
    for first, units, alike in ((0, each + 1, more), (more, each, segments - more)):
        if alike and units:
            held = ceil(size * units / count) if count else units
            parts[SegmentId(0, first)] = Part(0, held, units if count else 0, options.range_size or RANGE_SIZE, alike)
    return _Described(StreamName("scope", "stream"), parts)


@dataclass(frozen=True, slots=True)
class _Generation:
    """What an export archives, or several do that are alike.

    Attributes:
        number: the number of its generation.
        times: how many are alike.
        parts: as `_Described.parts`.
    """

    number: int
    times: int
    parts: Mapping[SegmentId, Part]


def _generations(parts: Mapping[SegmentId, Part], exports: int) -> Iterator[_Generation]:
    """Yield what each of some exports archives; of more than `MOST_CUT`, most stand for several."""
    step = ceil(exports * len(parts) / MOST_CUT) or 1
    numbers = sorted({1, *range(2, exports, step), exports})
    for number, after in pairwise([*numbers, exports + 1]):
        held = {segment: _share(part, number, exports) for segment, part in parts.items()}
        yield _Generation(number, after - number, {segment: part for segment, part in held.items() if part.bytes})


def _share(part: Part, number: int, exports: int) -> Part:
    """Return what an export has of a part: of its events as many as each other one, and the first one the rest."""
    each = part.units // exports
    first = part.units - each * (exports - 1)
    low, high = 0 if number == 1 else first + each * (number - 2), first + each * (number - 1)
    start, end = (part.start + part.bytes * upto // part.units for upto in (low, high))
    return replace(part, start=start, end=end, events=high - low if part.events else 0)


class _Calculation:
    """What a report is computed from."""

    def __init__(
        self, stream: str, described: _Described, layout: LayoutName, options: PlanOptions, prices: Prices
    ) -> None:
        self._stream = stream
        self._described = described
        self._layout_name = layout
        self._layout = open_layout(layout)
        self._options = options
        self._prices = prices
        parts = described.parts
        self._generations = list(_generations(parts, options.exports))
        self._held = [
            [replace(each.parts[one], alike=part.alike * each.times) for each in self._generations if one in each.parts]
            for one, part in parts.items()
        ]
        self._whole = [part for held in self._held for part in held]
        self._objects = objects_of(self._layout, self._whole)
        self._ranges = ranges_of(self._whole)
        self._events = sum(part.events * part.alike for part in parts.values())
        size = sum(part.bytes * part.alike for part in parts.values())
        self._size = size if options.bytes is None else options.bytes
        self._largest = max((each.parts for each in self._generations), key=lambda some: ranges_of(some.values()))
        compressed = bool(options.compress)
        self._index = index_bytes(described.name, list(self._largest.items()), self._layout, compressed=compressed)
        self._manifest = self._manifest_bytes()
        self._read = Requests()
        for held in self._held:
            for part in held:
                self._read += to_read_part(self._layout, part, frames=compressed, is_last=part is held[-1])

    def report(self) -> PlanReport:
        """Return the report."""
        options, found = self._options, self._described
        segments, ranges = sum(part.alike for part in found.parts.values()), ranges_of(self._largest.values())
        report = PlanReport(
            stream=self._stream,
            segments=segments,
            events=self._events,
            events_estimated=not found.is_exact,
            bytes=self._size,
            layout=self._layout.name,
            compression=options.compress or "",
            range_size=options.range_size or RANGE_SIZE,
            exports=options.exports,
            ranges=self._ranges,
            objects=self._objects,
            work=tuple(self._work()),
            storage=tuple(self._storage()),
            written_prefixes=min(segments, ceil(options.cores * segments / ranges)) if ranges else 0,
            manifest_bytes=self._manifest,
            index_bytes=self._index,
            driver_bytes=self._driver_bytes("export"),
            cores=options.cores,
            network=options.network,
            prices=self._prices.source,
            prices_date=self._prices.date,
        )
        return replace(report, warnings=tuple(_warnings(report)))

    def _manifest_bytes(self) -> int:
        """Return the size of the last manifest; of a stream, of one that has all of it."""
        found = self._described
        if found.plan is not None:
            return len(self._manifest_of(found.plan, self._index).encode())
        none = Part(0, 0, 0, self._options.range_size or RANGE_SIZE)
        last = next((each for each in reversed(self._generations) if each.parts), None)
        typical = none if last is None else max(last.parts.values(), key=lambda part: part.bytes)
        segments = sum(part.alike for part in found.parts.values()) or 1
        return manifest_bytes(found.name, self._layout_name, segments, typical, self._index)

    def _manifest_of(self, plan: Plan, index: int = 0) -> Manifest:
        return manifest_of(plan, {segment: part.events for segment, part in self._described.parts.items()}, index)

    def _driver_bytes(self, name: VerbName) -> int:
        """Return the memory of a verb's process, with the largest index, which is encoded or decoded in memory."""
        ranges = ranges_of(self._largest.values()) if name == "export" else self._ranges
        frames = -(-self._size // FRAME_BYTES) if self._options.compress and name != "export" else 0
        kept = ranges * DRIVER_BYTES_A_RANGE[name] + 4 * frames
        return DRIVER_BYTES + kept + self._manifest * DRIVER_BYTES_A_MANIFEST_BYTE + self._index

    def _work(self) -> Iterator[VerbForecast]:
        layout, exports, size, made, least = self._layout, self._options.exports, self._size, Requests(), 0
        for each in self._generations:
            parts = list(each.parts.values())
            made += to_export(layout, parts, generation=each.number) * each.times
            least += least_to_export(layout, parts) * each.times
        history, objects, pages = to_read_history(exports), self._objects, ceil(self._objects / PAGE)
        yield self._verb("export", made, least, EXPORT, size)
        read = history + to_touch(self._ranges) + self._read
        yield self._verb("import", read, objects + history.total, IMPORT, size)
        checked, and_read = (
            to_check(layout, self._held, exports, empty=self._empty(), reads=reads) for reads in (False, True)
        )
        yield self._verb("check", checked, pages + history.total, LIST, 0, objects)
        yield self._verb("check --read-data", and_read + self._read, objects + pages + history.total, READ, size)

    def _empty(self) -> int:
        """Return the number of folders without ranges in which a check looks for strays."""
        if self._described.plan is None:
            return 0
        below = below_head(self._manifest_of(self._described.plan))
        return len(below) * (len(LAYOUTS) - 1) + len(below.keys() - self._described.parts.keys())

    def _verb(
        self, name: VerbName, requests: Requests, least: int, speed: Speed, size: int, listed: int = 0
    ) -> VerbForecast:
        moved = requests.puts + requests.gets if self._layout.one_object_per_event else 0
        core_hours = speed.hours(size, listed or moved)
        working, moving = core_hours / self._options.cores, size * 8 / (self._options.network * 1e9) / 3600
        seconds = max(working, moving) * 3600
        rates = (requests.puts / PUTS_A_SECOND, requests.gets / GETS_A_SECOND)
        return VerbForecast(
            verb=name,
            puts=requests.puts,
            lists=requests.lists,
            gets=requests.gets,
            usd=round(requests.usd(self._prices.standard), 6),
            least_requests=least,
            processor_hours=round(core_hours, 4),
            hours=round(seconds / 3600, 4),
            limit="processor" if working >= moving else "network",
            prefixes=max(ceil(max(rates) / seconds), 1) if seconds else 1,
            driver_bytes=self._driver_bytes(name),
        )

    def _storage(self) -> Iterator[StorageForecast]:
        """Yield what each class costs."""
        standard, objects = self._prices.standard, self._objects
        stored = self._size - self._events * HEADER_BYTES if self._layout.one_object_per_event else self._size
        for name, one in self._prices.classes.items():
            reading = self._read.gets * one.get + self._read.lists * standard.put
            yield StorageForecast(
                storage_class=name,
                usd_month=round(one.usd_a_month(objects, stored, standard), 6),
                usd_write=round(objects * one.put, 6),
                usd_read=round(reading + one.usd_to_retrieve(objects, stored), 6),
                least_days=one.least_days,
            )


def _warnings(report: PlanReport) -> Iterator[str]:
    """Yield what the archive could not have, and what would slow it down."""
    if report.index_bytes > MAX_INDEX_BYTES:
        yield (
            f"the index of a generation would have {bytes_text(report.index_bytes)}, but at most "
            f"{bytes_text(MAX_INDEX_BYTES)} can be written: use a larger --range-size, or more exports (--exports)"
        )
    if report.manifest_bytes > SMALL:
        yield (
            f"the manifest would have {bytes_text(report.manifest_bytes)}, but at most {bytes_text(SMALL)} can "
            "be written: a stream with so many segments cannot be archived"
        )
    export = report.work[0]
    if export.prefixes > report.written_prefixes and export.puts > BURST:
        yield (
            f"an export needs {export.prefixes} prefixes of S3, but writes to {report.written_prefixes} at a time: S3 "
            "throttles it, and refused requests are sent again"
        )
