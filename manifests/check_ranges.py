"""The check: every key of every range is there, counts and bytes are right, digests too if wanted.

Made of small tasks that can run side by side: one follows the listing of some ranges of a segment (and reads them), one
looks for keys of a segment that belong to no range of any generation. What is missing or different is damage; what lies
there beside it is a stray, which readers skip.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from common.errors import Damaged
from layouts.keys import chunk_key
from layouts.layout import RangeCheck, open_layout
from layouts.place import Place
from manifests.archive import Generation, History
from manifests.model import segment_key
from manifests.plan import Plan
from manifests.range_row import RangeRow
from objectstore.uri import RootAddress
from streamstore.model import SegmentId, StreamName

__all__ = [
    "CheckResult",
    "RangesTask",
    "StraysTask",
    "check_ranges",
    "find_strays",
    "foreign_keys",
    "keys_of",
    "plan_check",
    "plan_reading",
]

RANGES_A_TASK = 16
MAX_FINDINGS = 100
"""Findings of one task that are told; the rest are counted."""


@dataclass(frozen=True, slots=True)
class RangesTask:
    """Some neighbouring ranges of a segment.

    Attributes:
        root, prefix, layout: the archive. stream: its name, for messages.
        rows: the ranges. read: for each, whether to read it and compare its digest.
        known: keys (below the archive) of other objects that may lie in these ranges.
    """

    root: RootAddress
    prefix: str
    layout: str
    stream: StreamName
    rows: tuple[RangeRow, ...]
    read: tuple[bool, ...]
    known: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StraysTask:
    """Everything that a segment may hold.

    Attributes:
        root, prefix, layout: the archive. stream: its name. segment: which.
        ranges: (start, end) of each stretch that has objects, in order, not overlapping.
        known: keys (below the archive) of other objects that may lie elsewhere.
    """

    root: RootAddress
    prefix: str
    layout: str
    stream: StreamName
    segment: SegmentId
    ranges: tuple[tuple[int, int], ...]
    known: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a task found.

    Attributes:
        findings: a line for each damage, at most a hundred. found: how many there are.
        strays: keys of objects that belong to nothing, at most a hundred. stray: how many there are.
        read: how many ranges were read. events, bytes: that were looked at.
    """

    findings: tuple[str, ...] = ()
    found: int = 0
    strays: tuple[str, ...] = ()
    stray: int = 0
    read: int = 0
    events: int = 0
    bytes: int = 0


def plan_check(
    history: History,
    root: RootAddress,
    prefix: str,
    *,
    share: float,
    seed: int,
    unfinished: Plan | None,
    below: Mapping[SegmentId, tuple[int, int]] | None = None,
    joins: Iterable[RangeRow] = (),
) -> tuple[list[RangesTask], list[StraysTask]]:
    """Cut the check of an archive into tasks.

    Args:
        history: what the manifests promise.
        root: the archive's root.
        prefix: the archive below it.
        share: of the ranges to read, from 0 to 1; at least one range if it is above 0.
        seed: chooses which.
        unfinished: the plan of a generation that is not published yet: its objects are nobody's damage.
        below: what lies below the archive's head, as `manifests.deleting.below_head` says. What is still there has
            expired, or was left by a task that was late, and rotations delete it: nor is this.
        joins: chunks that were joined, or are being joined to larger ones: nor are these.
    """
    known: dict[SegmentId, list[RangeRow]] = {}
    for row in joins:
        known.setdefault(row.segment, []).append(row)
    tasks: list[RangesTask] = []
    held: dict[tuple[str, SegmentId], list[tuple[int, int]]] = {}
    for segment in history.segments():
        by_layout: dict[str, list[RangeRow]] = {}
        for layout, row in history.ranges(segment):
            by_layout.setdefault(layout, []).append(row)
            held.setdefault((layout, segment), []).append((row.start, row.end))
        for layout, rows in by_layout.items():
            found = known.get(segment, ()) if layout == "chunks" else ()
            tasks += _ranges_tasks(root, prefix, layout, history.stream, rows, joins=found)
    if unfinished is not None:
        for planned in unfinished.segments:
            held.setdefault((unfinished.layout, segment_key(planned.name)), []).append((planned.start, planned.end))
    for segment, stretch in (below or {}).items():
        for layout in ("events", "chunks"):
            held.setdefault((layout, segment), []).append(stretch)
    strays = [
        StraysTask(
            root,
            prefix,
            layout,
            history.stream,
            segment,
            tuple(sorted(ranges)),
            keys_of(known.get(segment, ()) if layout == "chunks" else ()),
        )
        for (layout, segment), ranges in sorted(held.items())
    ]
    return _choose(tasks, share, seed), strays


def plan_reading(
    generation: Generation,
    root: RootAddress,
    prefix: str,
    *,
    share: float,
    seed: int,
    joins: Sequence[RangeRow] = (),
) -> list[RangesTask]:
    """Cut the check of one generation's ranges into tasks; objects outside of them are not looked for.

    Args:
        generation: what its manifest promises.
        root: the archive's root.
        prefix: the archive below it.
        share: of the ranges to read, as for `plan_check`.
        seed: chooses which.
        joins: as for `plan_check`.
    """
    manifest = generation.manifest
    known: dict[SegmentId, list[RangeRow]] = {}
    for row in joins if manifest.layout == "chunks" else ():
        known.setdefault(row.segment, []).append(row)
    tasks = [
        task
        for segment in sorted(generation.rows)
        for task in _ranges_tasks(
            root, prefix, manifest.layout, manifest.name, generation.rows[segment], joins=known.get(segment, ())
        )
    ]
    return _choose(tasks, share, seed)


def _ranges_tasks(
    root: RootAddress,
    prefix: str,
    layout: str,
    stream: StreamName,
    rows: Sequence[RangeRow],
    *,
    joins: Sequence[RangeRow] = (),
) -> Iterator[RangesTask]:
    for first in range(0, len(rows), RANGES_A_TASK):
        some = tuple(rows[first : first + RANGES_A_TASK])
        known = keys_of(row for row in joins if some[0].start <= row.start < some[-1].end)
        yield RangesTask(root, prefix, layout, stream, some, (False,) * len(some), known)


def keys_of(rows: Iterable[RangeRow]) -> frozenset[str]:
    """The keys of chunks (below the archive)."""
    return frozenset(chunk_key(r.segment, r.start, r.end - r.start) for r in rows)


def _choose(tasks: list[RangesTask], share: float, seed: int) -> list[RangesTask]:
    total = sum(len(task.rows) for task in tasks)
    wanted = min(total, max(1, round(total * share))) if share > 0 else 0
    chosen = set(random.Random(seed).sample(range(total), wanted))  # noqa: S311  (a sample, not a secret)
    numbered = iter(range(total))
    return [replace(task, read=tuple(next(numbered) in chosen for _ in task.rows)) for task in tasks]


def check_ranges(task: RangesTask) -> CheckResult:
    """Follow the listing of ranges and compare it with what the manifest says; read those that are to be read."""
    findings: list[str] = []
    strays: list[str] = []
    found = read = stray = 0
    place = Place(task.root.open(), task.prefix)
    for row, wanted in zip(task.rows, task.read, strict=True):
        listed = open_layout(task.layout).check_range(place, row.extent, task.known)
        strays += listed.strays
        stray += listed.stray
        told, count = _damage(listed, row)
        if wanted and not count:
            told, count = _compared(place, task, row)
            read += 1
        found += count
        findings += [f"{row.segment.in_stream(task.stream)} bytes {row.start} to {row.end}: {one}" for one in told]
    return CheckResult(
        tuple(findings[:MAX_FINDINGS]),
        found,
        tuple(strays[:MAX_FINDINGS]),
        stray,
        read,
        sum(row.events for row in task.rows),
        sum(row.end - row.start for row in task.rows),
    )


def _damage(listed: RangeCheck, row: RangeRow) -> tuple[list[str], int]:
    if not listed.damaged and listed.events not in {None, row.events}:
        return [f"{listed.events} events instead of {row.events}"], 1
    return [f"{finding.what} ({finding.key})" for finding in listed.damage], listed.damaged


def _compared(place: Place, task: RangesTask, row: RangeRow) -> tuple[list[str], int]:
    digest = hashlib.sha256()
    try:
        for block in open_layout(task.layout).read_range(place, row.extent, row.start, row.end):
            digest.update(block)
    except Damaged as damaged:
        return [str(damaged)], 1
    if digest.hexdigest() != row.digest:
        return [f"the content is not what was archived (digest {digest.hexdigest()} instead of {row.digest})"], 1
    return [], 0


def find_strays(task: StraysTask) -> CheckResult:
    """Find the segment's keys that belong to no range."""
    place = Place(task.root.open(), task.prefix)
    strays = open_layout(task.layout).strays(place, task.segment, _joined(task.ranges))
    return _told(key for key in strays if key.removeprefix(task.prefix) not in task.known)


def foreign_keys(place: Place, layout: str, tasks: list[StraysTask]) -> CheckResult:
    """Find keys of a layout that lie in no segment's folder that the tasks look through."""
    known = sorted(task.segment for task in tasks if task.layout == layout)
    keys = open_layout(layout).foreign(place, known)
    return _told(keys)


def _told(keys: Iterator[str]) -> CheckResult:
    strays: list[str] = []
    stray = 0
    for key in keys:
        stray += 1
        if stray <= MAX_FINDINGS:
            strays.append(key)
    return CheckResult(strays=tuple(strays), stray=stray)


def _joined(ranges: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    """Ranges without those that are empty, overlaps cut (an unfinished generation starts where the last one ended)."""
    upto = -1
    for start, end in ranges:
        if end > max(start, upto):
            yield max(start, upto), end
            upto = end
