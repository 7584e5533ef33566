"""One archive's generations as one stream: what import, check and show need."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from manifests.model import Manifest, segment_key
from manifests.range_row import RangeRow
from streamstore.model import SegmentId, StreamCut, StreamDescription

__all__ = ["Generation", "History"]


class Generation:
    """A manifest and its ranges, which agree with each other.

    Attributes:
        manifest: the generation's manifest.
        rows: segment → its ranges in order; segments without ranges are absent.
        layout: how its data are kept, for `objectstore.layouts.open_reader`: as the manifest says, or in a table.
    """

    def __init__(self, manifest: Manifest, rows: Mapping[SegmentId, Sequence[RangeRow]], layout: str = "") -> None:
        self.manifest = manifest
        self.rows = rows
        self.layout = layout or manifest.layout


class History:
    """One archive's generations, oldest first, as one stream.

    Attributes:
        stream: the archived stream.
        generations: contiguous: each starts where the one before ended.
    """

    def __init__(self, generations: Sequence[Generation]) -> None:
        self.generations = tuple(generations)
        self.stream = self.newest.name

    @property
    def newest(self) -> Manifest:
        """The newest generation's manifest."""
        return self.generations[-1].manifest

    @property
    def generation(self) -> int:
        """The newest generation's number."""
        return self.newest.generation

    @property
    def head(self) -> StreamCut:
        """Where the archive starts."""
        return self.generations[0].manifest.from_

    @property
    def tail(self) -> StreamCut:
        """Where the archive ends."""
        return self.newest.to

    @property
    def events(self) -> int:
        """Events in all generations."""
        return sum(generation.manifest.events for generation in self.generations)

    @property
    def bytes(self) -> int:
        """Segment bytes in all generations, headers included."""
        return sum(generation.manifest.bytes for generation in self.generations)

    @property
    def description(self) -> StreamDescription:
        """The stream as the newest generation knew it, from the archive's head to its tail."""
        newest = self.newest
        epochs = tuple(epoch.value() for epoch in newest.epochs)
        return StreamDescription(self.stream, newest.configuration.value(), epochs, self.head, self.tail, newest.sealed)

    @property
    def fingerprint(self) -> str:
        """A digest over all that the manifests say was archived."""
        digest = hashlib.sha256()
        for generation in self.generations:
            digest.update(generation.manifest.encode())
        return digest.hexdigest()

    def segments(self) -> list[SegmentId]:
        """Every segment that a generation has ranges or gaps of, in order."""
        found = {s for generation in self.generations for s in generation.rows}
        found |= {segment_key(gap.segment) for generation in self.generations for gap in generation.manifest.gaps}
        return sorted(found)

    def ranges(self, segment: SegmentId) -> Iterator[tuple[str, RangeRow]]:
        """A segment's ranges over all generations, in order, with the layout each is stored in."""
        for generation in self.generations:
            for row in generation.rows.get(segment, ()):
                yield generation.layout, row

    def end(self, segment: SegmentId) -> int | None:
        """Where the newest generation that knows the segment ends it (bytes); None if none does."""
        for generation in reversed(self.generations):
            for entry in generation.manifest.segments:
                if segment_key(entry.name) == segment:
                    return entry.end
        return None

    def gaps(self, segment: SegmentId) -> Iterator[tuple[int, int]]:
        """A segment's declared gaps over all generations, in order."""
        for generation in self.generations:
            for gap in generation.manifest.gaps:
                if segment_key(gap.segment) == segment:
                    yield gap.start, gap.end
