"""Check of ranges: every object exists and has the right size, counts match and, on request, digests too.

The check consists of small tasks that run in parallel: some follow the listing of a segment's ranges (and read them),
others look for keys of a segment that belong to no range of any generation. Missing and changed objects are damage;
additional ones are strays, which readers skip.
"""

from __future__ import annotations

import base64
import random
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from itertools import chain

from streamvault.common.lazy import LazyChain, LazyMap
from streamvault.common.progress import task_progress
from streamvault.layouts.archived_range import ArchivedRange, BlockChecksums, block_checksums_hash
from streamvault.layouts.keys import (
    MANIFESTS,
    TABLES,
    WORK,
    Place,
    PlaceAddress,
    chunk_key,
    parse_decision,
    parse_record,
    parse_truncation,
)
from streamvault.layouts.layout import LAYOUTS, open_layout
from streamvault.layouts.packed_ranges import PackedRanges
from streamvault.manifests.damage import ArchivedPart, Lost, damage_of, listed_damage, uncompared, whole
from streamvault.manifests.deleting import ranges_a_task
from streamvault.manifests.history import History, by_segment
from streamvault.manifests.plan import Plan
from streamvault.objectstore.bulk import in_order
from streamvault.objectstore.store import KeptChecksums, NoSuchObject
from streamvault.streamstore.model import Range, SegmentId

MAX_REQUESTS = 16
"""Requests in flight for a task."""


MAX_FINDINGS = 100
"""Findings reported by one task; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class RangesTask:
    """Check of some consecutive ranges of a segment.

    Attributes:
        address: the archive.
        layout: the ranges' layout.
        rows: the ranges.
        read: for each range, whether to read it and compare its digest.
        known: keys (relative to the archive) of other objects that are expected in these ranges.
        checksums: whether to compare the checksums that the store keeps.
        blocks: whether to return the checksums of blocks of those that are read and have none.
    """

    address: PlaceAddress
    layout: str
    rows: Sequence[ArchivedRange]
    read: Sequence[bool]
    known: frozenset[str] = frozenset()
    checksums: bool = False
    blocks: bool = False

    @property
    def size(self) -> int:
        """Bytes of the ranges that are read."""
        return sum(row.end - row.start for row, read in zip(self.rows, self.read, strict=True) if read)


@dataclass(frozen=True, slots=True)
class StraysTask:
    """Search of a segment for strays.

    Attributes:
        address: the archive.
        layout: the layout to search.
        segment: the segment.
        ranges: (start, end) of each range that has objects, in order; empty and overlapping ones are allowed.
        known: keys (relative to the archive) of other expected objects.
    """

    address: PlaceAddress
    layout: str
    segment: SegmentId
    ranges: Iterable[tuple[int, int]]
    known: frozenset[str] = frozenset()


_COUNTS = ("found", "stray", "read", "compared", "not_kept", "not_indexed", "events", "bytes")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one task.

    Attributes:
        findings: the damages, at most `MAX_FINDINGS`; `found` is their number.
        strays: keys of strays, at most `MAX_FINDINGS`; `stray` is their number.
        read: number of ranges that were read.
        compared: number of objects whose checksum in the store was compared with the index.
        not_kept: number of objects that were to be compared, and of which the store keeps no checksum.
        not_indexed: number of those of which the index has no checksum, or not of the kind that the store keeps.
        not_compared: the key of one of them; empty if there is none.
        blocks: segment and start of ranges without checksums of blocks → those of what was read, if asked for.
    """

    findings: tuple[Lost, ...] = ()
    found: int = 0
    strays: tuple[str, ...] = ()
    stray: int = 0
    read: int = 0
    compared: int = 0
    not_kept: int = 0
    not_indexed: int = 0
    not_compared: str = ""
    events: int = 0
    bytes: int = 0
    blocks: Mapping[tuple[SegmentId, int], str] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether it has only numbers, whose order among others does not matter."""
        return not (self.findings or self.found or self.strays or self.not_compared or self.blocks)

    @classmethod
    def sum_of(cls, results: Sequence[CheckResult]) -> CheckResult:
        """Return the results of several tasks as one, with all of their findings."""
        return cls(
            findings=tuple(lost for result in results for lost in result.findings),
            strays=tuple(key for result in results for key in result.strays),
            not_compared=next((result.not_compared for result in results if result.not_compared), ""),
            blocks={place: text for result in results for place, text in result.blocks.items()},
            **{name: sum(getattr(result, name) for result in results) for name in _COUNTS},
        )


def range_tasks(  # noqa: PLR0913  (what a check has options for)
    history: History,
    address: PlaceAddress,
    extra: Iterable[Range],
    *,
    share: float,
    seed: int,
    checksums: bool = False,
    blocks: bool = False,
) -> Sequence[RangesTask]:
    """Divide the check of generations into tasks, each of which is made when it is asked for.

    Args:
        history: the generations.
        address: the archive.
        extra: chunks that were joined, or are being joined, into larger ones; they are not strays.
        share: share of the ranges to read, from 0 to 1; at least one range if it is above 0.
        seed: chooses the ranges to read.
        checksums: whether to compare the checksums that the store keeps.
        blocks: whether to return the checksums of blocks of ranges that are read and have none.
    """
    known = by_segment(extra)
    parts: list[_Ranges] = []
    for segment in history.segments():
        for layout, some in _by_layout(history, segment).items():
            found = sorted(known.get(segment, ()), key=_start) if open_layout(layout).joinable else ()
            rows = LazyChain(some)
            parts.append(_Ranges(RangesTask(address, layout, rows, (), frozenset(), checksums, blocks), found))
    chosen = _chosen(sum(len(one.whole.rows) for one in parts), share, seed)
    tasks: list[Sequence[RangesTask]] = []
    number = 0
    for one in parts:
        step = ranges_a_task(one.whole.layout, reads=share > 0)
        starts = range(0, len(one.whole.rows), step)
        tasks.append(LazyMap(partial(one.task, step=step, chosen=chosen, number=number), starts))
        number += len(one.whole.rows)
    return LazyChain(tasks)


@dataclass(frozen=True, slots=True)
class _Ranges:
    """The ranges of a segment in one layout, to be divided into tasks.

    Attributes:
        whole: a task of all of them, which reads none.
        joined: chunks in between that are expected, too, in order.
    """

    whole: RangesTask
    joined: Sequence[Range]

    def task(self, first: int, *, step: int, chosen: bytearray, number: int) -> RangesTask:
        """Return the task of some ranges from one on; ``number`` is that of the first of all among those of a check."""
        rows = tuple(self.whole.rows[first : first + step])
        read = tuple(map(bool, chosen[number + first : number + first + len(rows)]))
        low, high = (bisect_left(self.joined, at, key=_start) for at in (rows[0].start, rows[-1].end))
        keys = keys_of(self.joined[low:high])
        return replace(self.whole, rows=rows, read=read, known=keys)


def _chosen(total: int, share: float, seed: int) -> bytearray:
    """Return a byte for each range of a check, by its number: 1 if it is to be read."""
    count = min(total, max(1, round(total * share))) if share > 0 else 0
    if count in {0, total}:
        return bytearray([count > 0]) * total
    chosen = bytearray(total)
    for number in random.Random(seed).sample(range(total), count):  # noqa: S311  (a sample, not a secret)
        chosen[number] = 1
    return chosen


def strays_tasks(
    history: History,
    address: PlaceAddress,
    extra: Iterable[Range],
    *,
    unfinished: Plan | None = None,
    below: Mapping[SegmentId, tuple[int, int]] | None = None,
) -> list[StraysTask]:
    """Divide the search for strays among all of an archive's generations into tasks.

    Args:
        history: the generations.
        address: the archive.
        extra: as for `range_tasks`.
        unfinished: the plan of a generation that is not published yet; its objects are not strays.
        below: the parts of segments below the archive's head, from `manifests.deleting.below_head`. Objects
            there have expired or were written late; rotations delete them, so they are not strays either.
    """
    known = by_segment(extra)
    rows = {
        (layout, segment): found
        for segment in history.segments()
        for layout, found in _by_layout(history, segment).items()
    }
    more: dict[tuple[str, SegmentId], list[tuple[int, int]]] = {}
    if unfinished is not None:
        for planned in unfinished.segments:
            more.setdefault((unfinished.layout, planned.id), []).append((planned.start, planned.end))
    for segment, bounds in (below or {}).items():
        for layout in LAYOUTS:
            more.setdefault((layout, segment), []).append(bounds)
    return [
        StraysTask(
            address,
            layout,
            segment,
            _Bounds(segment, rows.get((layout, segment), ()), tuple(sorted(more.get((layout, segment), ())))),
            keys_of(known.get(segment, ()) if open_layout(layout).joinable else ()),
        )
        for layout, segment in sorted({*rows, *more})
    ]


@dataclass(frozen=True)
class _Bounds:
    """Start and end of a segment's ranges, by generation, and of other places, each in order: of all, in order.

    Pickled, it is numbers alone: a task of Spark must not have the ranges with their checksums.
    """

    segment: SegmentId
    rows: Sequence[Sequence[ArchivedRange]]
    more: tuple[tuple[int, int], ...]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return merge(chain.from_iterable(PackedRanges.of(self.segment, some).bounds() for some in self.rows), self.more)

    def __reduce__(self) -> tuple[Callable[[array[int]], object], tuple[array[int]]]:
        return _pairs, (array("Q", chain.from_iterable(self)),)


def _pairs(numbers: array[int]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _start(row: Range) -> int:
    return row.start


def _by_layout(history: History, segment: SegmentId) -> dict[str, list[Sequence[ArchivedRange]]]:
    found: dict[str, list[Sequence[ArchivedRange]]] = {}
    for generation in history.generations:
        if rows := generation.rows.get(segment):
            found.setdefault(generation.layout, []).append(rows)
    return found


def keys_of(rows: Iterable[Range]) -> frozenset[str]:
    """Return the keys of chunks, relative to the archive."""
    return frozenset(chunk_key(r.segment, r.start, r.end - r.start) for r in rows)


def check_ranges(task: RangesTask) -> CheckResult:
    """Compare the listing of ranges with the manifest; read those marked for reading, and compare checksums."""
    findings: list[Lost] = []
    strays: list[str] = []
    intact: list[ArchivedRange] = []
    blocks: dict[tuple[SegmentId, int], str] = {}
    found = read = stray = 0
    place, layout, done = task.address.open(), open_layout(task.layout), task_progress()
    done.only_reads()
    checks = layout.check_ranges(place, task.rows, task.known)
    for row, is_read, listed in zip(task.rows, task.read, checks, strict=True):
        strays += listed.strays
        stray += listed.stray
        damage = listed_damage(listed, row)
        if is_read:
            read += not listed.damaged
            part = ArchivedPart.all_of(task.address, task.layout, row)
            if listed.damaged:
                damage = uncompared(damage, listed)
            elif row.block_checksums or (task.blocks and not layout.one_object_per_event):
                damage, found_blocks = _compare_blocks(part)
                blocks |= {} if row.block_checksums else {(row.segment, row.start): found_blocks}
            else:
                damage = damage_of(part)
        found += max(listed.damaged, len(damage))
        findings += damage
        intact += () if damage else (row,)
        if not is_read:
            done.acknowledge(row.end - row.start)
    listed_only = CheckResult(
        findings=tuple(findings[:MAX_FINDINGS]),
        found=found,
        strays=tuple(strays[:MAX_FINDINGS]),
        stray=stray,
        read=read,
        events=sum(row.events for row in task.rows),
        bytes=sum(row.end - row.start for row in task.rows),
        blocks=blocks,
    )
    if not task.checksums:
        return listed_only
    if layout.one_object_per_event:
        return replace(
            listed_only, not_indexed=sum(row.events for row in intact), not_compared=f"those of layout {layout.name}"
        )
    compared = CheckResult.sum_of(list(compare_checksums(place, task.layout, intact)))
    return CheckResult.sum_of([listed_only, replace(compared, findings=compared.findings[:MAX_FINDINGS])])


def _compare_blocks(part: ArchivedPart) -> tuple[tuple[Lost, ...], str]:
    """Return a range's damage, as `damage_of` and by its noted checksums of blocks, and those of its bytes."""
    checksums, noted = BlockChecksums(), part.row.block_checksums
    damage = damage_of(part, checksums)
    found = checksums.finish()[1]
    if noted and noted not in {found, block_checksums_hash(found)} and not damage:
        what = "the range matches its digest, but the checksums of its blocks do not match its bytes"
        return (whole(part.row, what),), found
    return damage, found


def compare_checksums(place: Place, layout: str, rows: Iterable[ArchivedRange]) -> Iterable[CheckResult]:
    """Compare ranges of a layout with one object each with the index, by one request for each; yield each result."""
    keys = open_layout(layout).keys

    def ask(row: ArchivedRange) -> CheckResult:
        key = place.prefix + keys.key(row.segment, row.start, row.end - row.start)
        try:
            return _compare_checksums(row, key, place.store.checksums(key))
        except NoSuchObject:
            return _damaged(row, f"the object is missing ({key})")

    return in_order(rows, ask, lambda _: 1, MAX_REQUESTS, MAX_REQUESTS)


def _compare_checksums(row: ArchivedRange, key: str, kept: KeptChecksums) -> CheckResult:
    size = sum(row.frames) or row.end - row.start
    if kept.size != size:
        return _damaged(row, f"the object has {kept.size} bytes instead of {size} ({key})")
    # the digest is of the segment's bytes, which are those of an object that is not compressed
    digest = "" if row.frames else base64.b64encode(bytes.fromhex(row.digest)).decode()
    pairs = {"CRC64NVME": (row.crc64nvme, kept.crc64nvme), "SHA-256": (digest, kept.sha256)}
    compared = {name: pair for name, pair in pairs.items() if all(pair)}
    for name, (recorded, held) in compared.items():
        if recorded != held:
            what = f"the {name} that the store keeps of the object is {held} instead of {recorded} ({key})"
            return _damaged(row, what, compared=1)
    if compared:
        return CheckResult(compared=1)
    is_kept = bool(kept.crc64nvme or kept.sha256)
    return CheckResult(not_kept=not is_kept, not_indexed=is_kept, not_compared=key)


def _damaged(row: ArchivedRange, what: str, compared: int = 0) -> CheckResult:
    return CheckResult(findings=(whole(row, what),), found=1, compared=compared)


def find_strays(task: StraysTask) -> CheckResult:
    """Find keys of a segment that belong to no range."""
    place = task.address.open()
    strays = open_layout(task.layout).strays(place, task.segment, _without_overlaps(task.ranges))
    return _count_strays(key for key in strays if key.removeprefix(place.prefix) not in task.known)


def foreign_keys(place: Place, layout: str, tasks: Sequence[StraysTask]) -> CheckResult:
    """Find keys of a layout that are in none of the segments' folders that the tasks search."""
    known = sorted(task.segment for task in tasks if task.layout == layout)
    return _count_strays(open_layout(layout).foreign(place, known))


def foreign_records(place: Place) -> Iterator[str]:
    """Yield every key beside the archive's folders, and of ``_manifest/`` every one that is no record."""
    store, prefix = place
    roots = sorted({MANIFESTS, WORK, TABLES, "table/", *(open_layout(name).keys.root for name in LAYOUTS)})
    after = ""
    for root in [*roots, None]:
        for entry in store.list(prefix, after):
            if root is not None and entry.key >= prefix + root:
                break
            yield entry.key
        after = f"{prefix}{root}\U0010ffff"
    for entry in store.list(prefix + MANIFESTS):
        key = entry.key.removeprefix(prefix)
        if parse_record(key) is None and parse_decision(key) is None and parse_truncation(key) is None:
            yield entry.key


def _count_strays(keys: Iterator[str]) -> CheckResult:
    strays: list[str] = []
    stray = 0
    for key in keys:
        stray += 1
        if stray <= MAX_FINDINGS:
            strays.append(key)
    return CheckResult(strays=tuple(strays), stray=stray)


def _without_overlaps(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Drop empty ranges and overlaps (an unfinished generation starts where the last one ended)."""
    upto = -1
    for start, end in ranges:
        if end > max(start, upto):
            yield max(start, upto), end
            upto = end
