"""Estimates what a plan will write, from a sample of the stream."""

from __future__ import annotations

from streamvault.manifests.archive.plan import Plan
from streamvault.manifests.format.manifest import Manifest
from streamvault.manifests.verbs.costs import Part
from streamvault.reading.spans import count_spans
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.store import StreamStore

SAMPLE_SEGMENTS = 8
SAMPLE_BYTES = 1024 * 1024


def estimate_parts(store: StreamStore, plan: Plan | Manifest, largest: int) -> tuple[list[Part], bool]:
    """Estimate what a plan writes of each segment that has bytes between its cuts.

    Args:
        store: the stream's store.
        plan: the plan.
        largest: maximum payload of an event (bytes).

    Returns:
        The parts, with the maximum number of ranges, and whether the numbers of events are exact: the sample, of the
        longest segments, contained all events.
    """
    gone = {gap.segment: gap.end for gap in plan.gaps}
    bounds = [(segment, max(segment.start, gone.get(segment.name, 0)), segment.end) for segment in plan.segments]
    held = sorted((one for one in bounds if one[1] < one[2]), key=lambda one: one[1] - one[2])
    sampled: dict[str, tuple[int, int]] = {}
    for segment, start, end in held[:SAMPLE_SEGMENTS] if plan.content == "events" else ():
        splitter, events = EventSplitter(start, segment.name, largest=largest), 0
        for block in store.read(plan.name, segment.id, start, min(end, start + SAMPLE_BYTES)):
            events += sum(1 for _ in splitter.events(block))
        size = splitter.offset - start
        if splitter.pending:  # count the event at the sample's end as a whole: it may be much larger than the others
            events, size = events + 1, size + splitter.next_length
        sampled[segment.name] = events, size
    events, size = (sum(column) for column in zip((0, 0), *sampled.values(), strict=True))
    parts = []
    for segment, start, end in held:
        of, among = sampled.get(segment.name, (events, size))
        count = round(of * (end - start) / among) if among else 0
        parts.append(Part(count_spans(start, end, plan.range_size), count, end - start))
    return parts, plan.content == "bytes" or size == sum(end - start for _, start, end in held)


def estimate_events(store: StreamStore, plan: Plan | Manifest, largest: int) -> int:
    """Estimate the number of events between a plan's cuts; arguments as for `estimate_parts`."""
    return sum(part.events for part in estimate_parts(store, plan, largest)[0])
