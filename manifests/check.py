"""The check: every key of every range is there, nothing else is, counts and bytes are right, digests too if wanted.

Made of small tasks that can run side by side: one follows the listing of some ranges of a segment (and reads them), one
looks for keys of a segment that belong to no range of any generation.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from manifests.archive import History
from manifests.model import segment_key
from manifests.plan import Plan
from manifests.range_row import RangeRow
from objectstore.layouts import open_layout
from objectstore.store import ObjectStore
from objectstore.uri import RootAddress
from problems import Damaged
from streamstore.model import SegmentId, StreamName

__all__ = ["CheckResult", "RangesTask", "StraysTask", "check_ranges", "find_strays", "foreign_keys", "plan_check"]

RANGES_A_TASK = 16
MAX_FINDINGS = 100
"""Findings of one task that are told; the rest are counted."""


@dataclass(frozen=True, slots=True)
class RangesTask:
    """Some neighbouring ranges of a segment.

    Attributes:
        root, prefix, layout: the archive. stream: its name, for messages.
        rows: the ranges. read: for each, whether to read it and compare its digest.
    """

    root: RootAddress
    prefix: str
    layout: str
    stream: StreamName
    rows: tuple[RangeRow, ...]
    read: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class StraysTask:
    """Everything that a segment may hold.

    Attributes:
        root, prefix, layout: the archive. stream: its name. segment: which.
        ranges: (start, end) of each stretch that has objects, in order, not overlapping.
    """

    root: RootAddress
    prefix: str
    layout: str
    stream: StreamName
    segment: SegmentId
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a task found.

    Attributes:
        findings: a line each, at most a hundred. found: how many there are.
        read: how many ranges were read. events, bytes: that were looked at.
    """

    findings: tuple[str, ...]
    found: int
    read: int = 0
    events: int = 0
    bytes: int = 0


def plan_check(
    history: History, root: RootAddress, prefix: str, *, share: float, seed: int, unfinished: Plan | None
) -> tuple[list[RangesTask], list[StraysTask]]:
    """Cut the check of an archive into tasks.

    Args:
        history: what the manifests promise.
        root: the archive's root.
        prefix: the archive below it.
        share: of the ranges to read, from 0 to 1; at least one range if it is above 0.
        seed: chooses which.
        unfinished: the plan of a generation that is not published yet: its objects are nobody's damage.
    """
    tasks: list[RangesTask] = []
    held: dict[tuple[str, SegmentId], list[tuple[int, int]]] = {}
    for segment in history.segments():
        by_layout: dict[str, list[RangeRow]] = {}
        for layout, row in history.ranges(segment):
            by_layout.setdefault(layout, []).append(row)
            held.setdefault((layout, segment), []).append((row.start, row.end))
        for layout, rows in by_layout.items():
            for first in range(0, len(rows), RANGES_A_TASK):
                some = tuple(rows[first : first + RANGES_A_TASK])
                tasks.append(RangesTask(root, prefix, layout, history.stream, some, (False,) * len(some)))
    if unfinished is not None:
        for planned in unfinished.segments:
            held.setdefault((unfinished.layout, segment_key(planned.name)), []).append((planned.start, planned.end))
    strays = [
        StraysTask(root, prefix, layout, history.stream, segment, tuple(sorted(ranges)))
        for (layout, segment), ranges in sorted(held.items())
    ]
    return _choose(tasks, share, seed), strays


def _choose(tasks: list[RangesTask], share: float, seed: int) -> list[RangesTask]:
    total = sum(len(task.rows) for task in tasks)
    wanted = min(total, max(1, round(total * share))) if share > 0 else 0
    chosen = set(random.Random(seed).sample(range(total), wanted))  # noqa: S311  (a sample, not a secret)
    numbered = iter(range(total))
    return [replace(task, read=tuple(next(numbered) in chosen for _ in task.rows)) for task in tasks]


def check_ranges(task: RangesTask) -> CheckResult:
    """Follow the listing of ranges and compare it with what the manifest says; read those that are to be read."""
    findings: list[str] = []
    found = read = 0
    store = task.root.open()
    for row, wanted in zip(task.rows, task.read, strict=True):
        told, count = _listed(store, task, row)
        if wanted and not count:
            told, count = _compared(store, task, row)
            read += 1
        found += count
        findings += [f"{row.segment.in_stream(task.stream)} bytes {row.start} to {row.end}: {one}" for one in told]
    return CheckResult(
        tuple(findings[:MAX_FINDINGS]),
        found,
        read,
        sum(row.events for row in task.rows),
        sum(row.end - row.start for row in task.rows),
    )


def _listed(store: ObjectStore, task: RangesTask, row: RangeRow) -> tuple[list[str], int]:
    listed = open_layout(task.layout).check_range(store, task.prefix, row.extent)
    told = [f"{finding.what} ({finding.key})" for finding in listed.findings]
    if not listed.found and listed.events not in {None, row.events}:
        return [f"{listed.events} events instead of {row.events}"], 1
    return told, listed.found


def _compared(store: ObjectStore, task: RangesTask, row: RangeRow) -> tuple[list[str], int]:
    digest = hashlib.sha256()
    try:
        for block in open_layout(task.layout).read_range(store, task.prefix, row.extent, row.start, row.end):
            digest.update(block)
    except Damaged as damaged:
        return [str(damaged)], 1
    if digest.hexdigest() != row.digest:
        return [f"the content is not what was archived (digest {digest.hexdigest()} instead of {row.digest})"], 1
    return [], 0


def find_strays(task: StraysTask) -> CheckResult:
    """Find the segment's keys that belong to no range."""
    segment = task.segment
    strays = open_layout(task.layout).strays(
        task.root.open(), task.prefix, segment.epoch, segment.number, _joined(task.ranges)
    )
    return _told(f"{segment.in_stream(task.stream)}: an object outside of every range ({key})" for key in strays)


def foreign_keys(store: ObjectStore, prefix: str, layout: str, tasks: list[StraysTask]) -> CheckResult:
    """Find keys of a layout that lie in no segment's folder that the tasks look through."""
    known = sorted((t.segment.epoch, t.segment.number) for t in tasks if t.layout == layout)
    keys = open_layout(layout).foreign(store, prefix, known)
    return _told(f"an object in no segment of the archive ({key})" for key in keys)


def _told(lines: Iterator[str]) -> CheckResult:
    findings: list[str] = []
    found = 0
    for line in lines:
        found += 1
        if found <= MAX_FINDINGS:
            findings.append(line)
    return CheckResult(tuple(findings), found)


def _joined(ranges: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    """Ranges without those that are empty, overlaps cut (an unfinished generation starts where the last one ended)."""
    upto = -1
    for start, end in ranges:
        if end > max(start, upto):
            yield max(start, upto), end
            upto = end
