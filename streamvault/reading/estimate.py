"""Estimates the number of objects that a plan will write, from a sample of the stream."""

from __future__ import annotations

from streamvault.manifests.archive.plan import Plan
from streamvault.manifests.format.manifest import Manifest
from streamvault.reading.spans import spans_of
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.store import StreamStore

SAMPLE_SEGMENTS = 8
SAMPLE_BYTES = 1024 * 1024


def count_ranges(plan: Plan) -> int:
    """Return the maximum number of ranges of a plan."""
    return sum(1 for s in plan.segments for _ in spans_of(s.start, s.end, plan.range_size))


def estimate_events(store: StreamStore, plan: Plan | Manifest, largest: int) -> tuple[int, bool]:
    """Estimate the number of events between a plan's cuts; `largest` is the maximum payload (bytes).

    Returns:
        The number, and whether it is exact (the sample contained all events).
    """
    if plan.content == "bytes":
        return 0, True
    gone = {gap.segment: gap.end for gap in plan.gaps}
    starts = [(s, max(s.start, gone.get(s.name, 0))) for s in plan.segments]
    starts = sorted((pair for pair in starts if pair[1] < pair[0].end), key=lambda pair: pair[1] - pair[0].end)
    total = sum(segment.end - start for segment, start in starts)
    events = size = 0
    for segment, start in starts[:SAMPLE_SEGMENTS]:
        splitter = EventSplitter(start, segment.name, largest=largest)
        for block in store.read(plan.name, segment.id, start, min(segment.end, start + SAMPLE_BYTES)):
            events += sum(1 for _ in splitter.events(block))
        size += splitter.offset - start
        if splitter.pending:  # count the event at the sample's end as a whole: it may be much larger than the others
            events += 1
            size += splitter.next_length
    if not size:
        return (1 if total else 0), not total
    return max(round(events * total / size), 1), size == total
