"""The status of archives, and of streams that are archived."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

from streamvault.common.errors import Damaged, Failed, Problem
from streamvault.inspect.reports import ArchiveStatus
from streamvault.layouts.keys import GenerationSpan
from streamvault.layouts.layout import LAYOUTS
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.plan import Plan, count_rows, current_plan
from streamvault.manifests.spans import count_spans
from streamvault.manifests.verbs.overview import Overview
from streamvault.sources.identity import check_same_stream
from streamvault.streamstore.cuts import live_between
from streamvault.streamstore.errors import NoSuchSegment
from streamvault.streamstore.model import StreamDescription
from streamvault.streamstore.uri import OpenStream

COMPARED = 4
"""Of how many segments of a stream the last bytes are compared with its archive's witness."""


def status_of(overview: Overview, now: datetime) -> ArchiveStatus:
    """Return the status of an archive or a table; of an unfinished generation, reads the plan and lists the rows.

    One LIST tells whether there are data at all; whether all of them are there is not looked at.

    Args:
        overview: what was read of it.
        now: when it was listed.
    """
    archive, summary = overview.archive, overview.summary
    known = {each.name: getattr(summary, each.name) for each in fields(summary)}
    if summary.created:
        # two machines' clocks may differ
        known["newest_age"] = max(0.0, (now - datetime.fromisoformat(summary.created)).total_seconds())
    is_whole = not (summary.problem or summary.being_deleted)
    try:
        if archive is not None and summary.layout in LAYOUTS and summary.bytes and is_whole:
            _check_data(archive)
    except Problem as problem:
        known["problem"] = str(problem)
    if archive is not None and summary.unfinished_generation:
        try:
            known |= _progress(archive, GenerationSpan.of(summary.unfinished_generation))
        except Problem as problem:
            known["problem"] = known["problem"] or str(problem)
    return ArchiveStatus(**known)


def _check_data(archive: Archive) -> None:
    """Check that an archive has any data, of whatever layout.

    Raises:
        Damaged: it has none.
    """
    if LAYOUTS.keys().isdisjoint(archive.store.folders(archive.prefix)):
        raise Damaged("the archive's data are gone", where=archive.uri)


def _progress(archive: Archive, span: GenerationSpan) -> dict[str, int]:
    plan, attempt = current_plan(archive.place, span)
    if plan is None:  # it was published meanwhile
        return {"unfinished_generation": 0}
    planned = _spans(plan)
    # a range whose start was guessed wrong has a row of its own
    done = min(count_rows(archive.place, span, attempt=attempt), planned)
    return {"spans_planned": planned, "spans_done": done}


def _spans(plan: Plan) -> int:
    """Return how many spans a plan has; none begin in its gaps, which are at the segments' starts."""
    starts: dict[str, int] = {}
    for gap in plan.gaps:
        starts[gap.segment] = max(starts.get(gap.segment, 0), gap.end)
    return sum(count_spans(max(one.start, starts.get(one.name, 0)), one.end, plan.range_size) for one in plan.segments)


def unarchived_bytes(stream: OpenStream, newest: Manifest | None, described: StreamDescription | None = None) -> int:
    """Return how many bytes of a stream come after its archive's newest generation; all that it has if there is none.

    The stream is compared as an export does it, but the bytes of a few segments at most, as there may be many streams.

    Args:
        stream: the stream.
        newest: its archive's newest manifest.
        described: the stream's description, if it was just read.

    Raises:
        Conflict: the stream is another one.
        Failed: what comes after it is truncated.
    """
    described = described or stream.describe()
    if newest is not None:
        check_same_stream(described, stream.store, newest, most=COMPARED)
    try:
        parts = live_between(stream.store, described, described.head if newest is None else newest.to, described.tail)
    except NoSuchSegment:
        raise Failed("what follows the newest generation has been truncated in the stream", where=stream.uri) from None
    return sum(end - start for start, end in parts.values())
