"""The *plan* command: computes what an archive of a stream, or of one that need not exist, would take.

The sizes of a generation's manifest and index are those of a sample, encoded by the code that writes them; what follows
the sample grows in proportion. The memory of the process that exports the generation follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import ceil

from streamvault.common.errors import Usage
from streamvault.common.options import verb
from streamvault.common.units import bytes_text, now_utc
from streamvault.exporter.plan import make_plan
from streamvault.exporter.reports import ExportOptions, PlanOptions, PlanReport, StorageForecast, VerbForecast, VerbName
from streamvault.layouts.archived_range import ArchivedRange, block_checksums_length
from streamvault.layouts.chunks import FRAME_BYTES
from streamvault.layouts.layout import Layout, layout_of, open_layout
from streamvault.manifests.manifest import FORMAT, MAX_INDEX_BYTES, Configuration, Manifest, SegmentEntry, Witness
from streamvault.manifests.options import RANGE_SIZE
from streamvault.manifests.verbs.costs import (
    Part,
    Prices,
    Requests,
    least_to_export,
    list_prices,
    load_prices,
    objects_of,
    to_check,
    to_export,
    to_read_alike,
    to_read_history,
    to_touch,
)
from streamvault.objectstore.store import PAGE, SMALL
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

SAMPLE_FRAMES = 16

DRIVER_BYTES = 200 * 2**20
"""Memory of a command with few ranges."""

DRIVER_BYTES_A_RANGE = 3_000
"""Memory of the process that exports, for each range: its task, its row, its entry of the index."""

_DIGEST = "0" * 64
_CHECKSUM = f"{'A' * 11}="
_WITNESS_BYTES = 2**20


def manifest_bytes(stream: StreamName, segments: int, part: Part) -> int:
    """Return the size of a manifest with so many segments, each of which has a part."""

    def size_of(count: int) -> int:
        return len(_manifest(stream, range(segments - count, segments), part).encode())

    return _extrapolated(size_of, segments, SAMPLE_SEGMENTS)


def index_bytes(stream: StreamName, ranges: int, part: Part, layout: Layout, *, compressed: bool) -> int:
    """Return the size of an index with so many ranges, of segments that each have a part."""
    from streamvault.manifests.index import MAX_WITH_BLOCKS, encode_ranges  # noqa: PLC0415  (imports pyarrow)

    checksum = "" if layout.one_object_per_event else _CHECKSUM
    each, size = max(part.ranges, 1), max(part.bytes // max(part.ranges, 1), 1)

    def encoded(frames: int, blocks: str = "") -> int:
        held = (FRAME_BYTES,) * frames

        def size_of(count: int) -> int:
            begins = ((SegmentId(0, n // each), n % each * size) for n in range(count))
            rows = (ArchivedRange(s, at, at + size, 1, _DIGEST, held, checksum, blocks) for s, at in begins)
            return len(encode_ranges(stream, rows))

        return _extrapolated(size_of, ranges, SAMPLE_ROWS)

    found = plain = encoded(0)
    if compressed:
        frames = -(-size // FRAME_BYTES)
        sample = min(frames, SAMPLE_FRAMES)
        found += (encoded(sample) - plain) * frames // sample
    if layout.one_object_per_event:
        return found
    length = block_checksums_length(size)
    if found + ranges * length > MAX_WITH_BLOCKS:  # then they are left out
        return found
    return found + encoded(0, "A" * length) - plain


def driver_bytes(ranges: int, index: int) -> int:
    """Return the memory of a process that exports so many ranges; their index is encoded in memory."""
    return DRIVER_BYTES + ranges * DRIVER_BYTES_A_RANGE + index


def _extrapolated(size_of: Callable[[int], int], count: int, sample: int) -> int:
    """Return the size of so many entries; of many, from the sizes of one and two samples."""
    if count <= 2 * sample:
        return size_of(count)
    one, two = size_of(sample), size_of(2 * sample)
    return one + (two - one) * (count - sample) // sample


def _manifest(stream: StreamName, numbers: range, part: Part) -> Manifest:
    count = len(numbers)
    edges = [n / count for n in range(count + 1)]
    ids = [SegmentId(0, number) for number in numbers]
    epoch = Epoch(0, {one: KeyRange(low, high) for one, (low, high) in zip(ids, pairwise(edges), strict=True)})
    held = min(_WITNESS_BYTES, part.bytes)
    names = [one.in_stream(stream) for one in ids]
    return Manifest(
        format=FORMAT,
        generation=1,
        created=now_utc(),
        scope=stream.scope,
        stream=stream.stream,
        layout="chunks",
        configuration=Configuration.of(StreamConfiguration()),
        epochs=Epochs([epoch]),
        from_=StreamCut(stream, dict.fromkeys(ids, 0)),
        to=StreamCut(stream, dict.fromkeys(ids, part.bytes)),
        witness=tuple(
            Witness(segment=name, offset=part.bytes - held, length=held, digest=_DIGEST)
            for name in islice(names, count if held else 0)
        ),
        segments=tuple(
            SegmentEntry(
                name=name, start=0, end=part.bytes, sealed=False, events=part.events, bytes=part.bytes, digest=_DIGEST
            )
            for name in names
        ),
        gaps=(),
        events=part.events * count,
        bytes=part.bytes * count,
        range_size=1,
        sealed=False,
    )


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

_SOMEONES = StreamName("scope", "stream")


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
        network: Their network's bandwidth in Gbit/s.
        prices: a file of prices; empty for S3's list prices.

    Raises:
        Usage: an option is not valid, or both a stream and its size are given, or neither.
        Problem: the stream cannot be read.
    """
    prices = load_prices(options.prices) if options.prices else list_prices()
    name = layout_of(options.content or "events", options.layout)
    layout = open_layout(name, options.compress or "")
    given = {"--segments": options.segments, "--bytes": options.bytes, "--events": options.events}
    if stream and any(value is not None for value in given.values()):
        raise Usage("a stream has its own size", where=stream, todo=f"Omit {', '.join(given)}, or the stream.")
    size = options.range_size or RANGE_SIZE
    if stream:
        source, parts, is_exact = _read(stream, options)
    else:
        missing = [option for option, value in given.items() if value is None]
        if missing:
            todo = "Give a STREAM, or --segments, --bytes and --events of one that need not exist."
            raise Usage(f"{missing[0]} is missing", todo=todo)
        source, parts, is_exact = _SOMEONES, list(_imagined(options, size)), True
    return _Calculation(source, stream or "", layout, size, options, prices, is_exact).report(parts)


def _read(stream: str, options: PlanOptions) -> tuple[StreamName, list[Part], bool]:
    address, name = parse_stream(stream)
    with address.open() as store:
        described = describe_source(store, name)
        exporting = options.shared_with(ExportOptions)
        plan = make_plan(described, store, None, exporting)
        parts, is_exact = estimate_parts(store, plan, LARGEST_EVENT_BYTES) if plan else ([], True)
    return name, parts, is_exact


def _imagined(options: PlanOptions, range_size: int) -> Iterator[Part]:
    """Yield the parts of a stream whose segments are alike: those with one event more, and the others."""
    segments, size, count = options.segments or 1, options.bytes or 0, options.events or 0
    if size < count * HEADER_BYTES:
        what = f"{count:,} events take {count * HEADER_BYTES:,} bytes at least"
        raise Usage(what, where=f"--bytes {size}", todo="The bytes include a header of 8 bytes for each event.")
    if options.content == "bytes" and count:
        raise Usage("a byte stream has no events", where=f"--events {count}", todo="Give --events 0.")
    if options.content != "bytes" and bool(count) != bool(size):
        raise Usage("events and bytes go together", where=f"--bytes {size}, --events {count}")
    each, more = divmod(count, segments)
    held = ceil(size / segments)
    for events, alike in ((each + 1, more), (each, segments - more)):
        if alike and (events or options.content == "bytes") and held:
            ranges = ceil(held / range_size)
            yield Part(ranges if options.content == "bytes" else min(ranges, events), events, held, alike)


@dataclass(frozen=True, slots=True)
class _Calculation:
    """What a report is computed from, besides the parts of all exports together."""

    name: StreamName
    stream: str
    layout: Layout
    range_size: int
    options: PlanOptions
    prices: Prices
    is_exact: bool

    def report(self, parts: Sequence[Part]) -> PlanReport:
        layout, options, exports = self.layout, self.options, self.options.exports
        first = [_first(part, exports) for part in parts]
        later = [_later(part, exports) for part in parts] if exports > 1 else []
        whole = [replace(part, ranges=one.ranges * exports) for part, one in zip(parts, first, strict=True)]
        segments, held = sum(part.segments for part in parts), sum(part.bytes * part.segments for part in parts)
        size = held if options.bytes is None else options.bytes
        ranges, objects = sum(part.ranges * part.segments for part in first), objects_of(layout, whole)
        typical = max(first, key=lambda part: part.bytes, default=Part(0, 0))
        index = index_bytes(self.name, ranges, typical, layout, compressed=bool(options.compress))
        events = sum(part.events * part.segments for part in parts)
        read = sum((to_read_alike(layout, part, frames=bool(options.compress)) for part in whole), Requests())
        report = PlanReport(
            stream=self.stream,
            segments=segments,
            events=events,
            events_estimated=not self.is_exact,
            bytes=size,
            layout=layout.name,
            compression=options.compress or "",
            range_size=self.range_size,
            exports=exports,
            ranges=ranges * exports,
            objects=objects,
            work=tuple(self._work(first, later, whole, read, size)),
            storage=tuple(_storage(self.prices, layout, objects, (events, size), read)),
            written_prefixes=min(segments, ceil(options.cores * segments / ranges)) if ranges else 0,
            manifest_bytes=manifest_bytes(self.name, max(segments, 1), typical),
            index_bytes=index,
            driver_bytes=driver_bytes(ranges, index),
            cores=options.cores,
            network=options.network,
            prices=self.prices.source,
            prices_date=self.prices.date,
        )
        return replace(report, warnings=tuple(_warnings(report)))

    def _work(
        self, first: Sequence[Part], later: Sequence[Part], whole: Sequence[Part], read: Requests, size: int
    ) -> Iterator[VerbForecast]:
        layout, exports = self.layout, self.options.exports
        objects, ranges = objects_of(layout, whole), sum(part.ranges * part.segments for part in whole)
        made = to_export(layout, first, generation=1)
        made += to_export(layout, later, generation=exports) * (exports - 1)
        least = least_to_export(layout, first) + least_to_export(layout, later) * (exports - 1)
        history, pages = to_read_history(exports), ceil(objects / PAGE)
        yield self._verb("export", made, least, EXPORT, size)
        yield self._verb("import", history + to_touch(ranges) + read, objects + history.total, IMPORT, size)
        yield self._verb("check", to_check([(layout, whole)], exports), pages + history.total, LIST, 0, objects)
        checked = to_check([(layout, whole)], exports, reads=True) + read
        yield self._verb("check --read-data", checked, objects + pages + history.total, READ, size)

    def _verb(
        self, name: VerbName, requests: Requests, least: int, speed: Speed, size: int, listed: int = 0
    ) -> VerbForecast:
        moved = requests.puts + requests.gets if self.layout.one_object_per_event else 0
        core_hours = speed.hours(size, listed or moved)
        working, moving = core_hours / self.options.cores, size * 8 / (self.options.network * 1e9) / 3600
        seconds = max(working, moving) * 3600
        rates = (requests.puts / PUTS_A_SECOND, requests.gets / GETS_A_SECOND)
        return VerbForecast(
            verb=name,
            puts=requests.puts,
            lists=requests.lists,
            gets=requests.gets,
            usd=round(requests.usd(self.prices.standard), 6),
            least_requests=least,
            processor_hours=round(core_hours, 4),
            hours=round(seconds / 3600, 4),
            limit="processor" if working >= moving else "network",
            prefixes=max(ceil(max(rates) / seconds), 1) if seconds else 1,
        )


def _first(part: Part, exports: int) -> Part:
    """Return what the first of some exports has of a segment; a range that spans two of them is two."""
    later = _later(part, exports)
    return replace(
        later,
        events=part.events - later.events * (exports - 1),
        bytes=part.bytes - later.bytes * (exports - 1),
    )


def _later(part: Part, exports: int) -> Part:
    ranges = ceil((part.ranges + exports - 1) / exports) if part.ranges else 0
    return replace(part, ranges=ranges, events=part.events // exports, bytes=part.bytes // exports)


def _storage(
    prices: Prices, layout: Layout, objects: int, held: tuple[int, int], read: Requests
) -> Iterator[StorageForecast]:
    """Yield what each class costs; `held` are events and bytes."""
    events, size = held
    stored = size - events * HEADER_BYTES if layout.one_object_per_event else size
    for name, one in prices.classes.items():
        reading = read.gets * one.get + read.lists * prices.standard.put
        yield StorageForecast(
            storage_class=name,
            usd_month=round(one.usd_a_month(objects, stored, prices.standard), 6),
            usd_write=round(objects * one.put, 6),
            usd_read=round(reading + one.usd_to_retrieve(objects, stored), 6),
            least_days=one.least_days,
        )


def _warnings(report: PlanReport) -> Iterator[str]:
    """Yield what the archive could not have, and what would slow it down."""
    if report.index_bytes > MAX_INDEX_BYTES:
        yield (
            f"the index of a generation would have {bytes_text(report.index_bytes)}, and at most "
            f"{bytes_text(MAX_INDEX_BYTES)} are written: use a larger --range-size, or more exports (--exports)"
        )
    if report.manifest_bytes > SMALL:
        yield (
            f"the manifest would have {bytes_text(report.manifest_bytes)}, and at most {bytes_text(SMALL)} are "
            "written: a stream of so many segments cannot be archived"
        )
    export = report.work[0]
    if export.prefixes > report.written_prefixes and export.puts > BURST:
        yield (
            f"an export needs {export.prefixes} prefixes of S3, but writes to {report.written_prefixes} at a time: S3 "
            "slows it down, and what it refuses is sent again"
        )
