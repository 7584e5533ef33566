"""One archive's generations as one stream: what import, check and show need."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from common.errors import Damaged, Usage
from manifests.model import Configuration, Manifest, Replaced, segment_key
from manifests.range_row import RangeRow
from streamstore.cuts import segments_between
from streamstore.model import SegmentId, StreamCut, StreamDescription

__all__ = ["Generation", "History"]

_FINGERPRINT = re.compile("[0-9a-f]{64}")


class Generation:
    """A manifest and its ranges, which agree with each other.

    Attributes:
        manifest: the generation's manifest.
        rows: segment → its ranges in order; segments without ranges are absent.
        layout: how its data are kept, for `layouts.layout.open_reader`: as the manifest says, or in a table.
        fingerprint: SHA-256 of the manifest's file, hexadecimal; empty if it was not read from one.
    """

    def __init__(
        self,
        manifest: Manifest,
        rows: Mapping[SegmentId, Sequence[RangeRow]],
        layout: str = "",
        fingerprint: str = "",
    ) -> None:
        self.manifest = manifest
        self.rows = rows
        self.fingerprint = fingerprint
        self.layout = layout or manifest.layout


class History:
    """One archive's generations, oldest first, as one stream.

    Args:
        generations: contiguous: each starts where the one before ended.
        upto: an original generation that the last of them stands for, if the stream is to end with that one: it then is
            the stream as it was at that moment, and only what lies before its cut counts.

    Attributes:
        stream: the archived stream.
        generations: as given; the last may reach beyond the tail.
    """

    def __init__(self, generations: Sequence[Generation], upto: Replaced | None = None) -> None:
        self.generations = tuple(generations)
        self.stream = self._last.name
        self._upto = upto

    @property
    def _last(self) -> Manifest:
        return self.generations[-1].manifest

    @property
    def newest(self) -> Manifest | Replaced:
        """What the newest original generation says of its number, moment and stream."""
        return self._upto or self._last

    @property
    def first(self) -> int:
        """The oldest original generation's number."""
        return self.generations[0].manifest.first

    @property
    def generation(self) -> int:
        """The newest original generation's number."""
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
        return sum(part.events for part in self._parts())

    @property
    def bytes(self) -> int:
        """Segment bytes in all generations, headers included."""
        return sum(part.bytes for part in self._parts())

    def _parts(self) -> Iterator[Manifest | Replaced]:
        """What adds up to the whole."""
        upto = self._upto
        yield from (generation.manifest for generation in self.generations[: None if upto is None else -1])
        if upto is not None:
            yield from (one for one in self._last.replaces if one.generation <= upto.generation)

    @property
    def description(self) -> StreamDescription:
        """The stream as the newest generation knew it, from the archive's head to its tail."""
        newest = self.newest
        known = self._last.epochs if self._upto is None else self._last.epochs[: self._upto.epochs]
        epochs = tuple(epoch.value() for epoch in known)
        return StreamDescription(self.stream, newest.configuration.value(), epochs, self.head, self.tail, newest.sealed)

    @property
    def content_digest(self) -> str:
        """A digest over what was archived, as the manifests say it; the same before and after generations are merged.

        So it speaks of the stream's shape and of what lies between its two cuts, not of ranges and manifests.
        """
        described = self.description
        stretches = segments_between(described, self.head, self.tail)
        ends = {segment_key(entry.name): entry.end for part in self.generations for entry in part.manifest.segments}
        held = {
            segment: (start, ends.get(segment) if end is None else end) for segment, (start, end) in stretches.items()
        }
        content = {
            "stream": str(self.stream),
            "configuration": Configuration.of(described.configuration).document(),
            "epochs": [
                [epoch.number, *((segment.value, keys.low, keys.high) for segment, keys in epoch.segments.items())]
                for epoch in described.epochs
            ],
            "sealed": described.sealed,
            "head": self.head.to_json(),
            "tail": self.tail.to_json(),
            "segments": [(segment.value, *bounds) for segment, bounds in held.items()],
            "gaps": self._gaps_within(held),
            "events": self.events,
            "bytes": self.bytes,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _gaps_within(self, held: Mapping[SegmentId, tuple[int, int | None]]) -> list[tuple[int, int, int]]:
        """The gaps before the ends of segments, neighbours joined: segment's id, start, end."""
        found: list[tuple[int, int, int]] = []
        gaps = [gap for part in self.generations for gap in part.manifest.gaps]
        for segment, low, high in sorted((segment_key(gap.segment), gap.start, gap.end) for gap in gaps):
            end = held.get(segment, (0, 0))[1]
            cut = high if end is None else min(high, end)
            if low >= cut:
                continue
            if found and (found[-1][0], found[-1][2]) == (segment.value, low):
                found[-1] = (segment.value, found[-1][1], cut)
            else:
                found.append((segment.value, low, cut))
        return found

    def check_fingerprints(self, wanted: Iterable[str], where: str) -> None:
        """Refuse manifests other than those that the user has noted.

        Args:
            wanted: fingerprints of manifests; if there is one at all, the newest generation's has to be among them.
            where: names the archive in messages.

        Raises:
            Usage: one cannot be a fingerprint.
            Damaged: the newest generation's is not wanted, or no generation has one that is.
        """
        held = {generation.fingerprint for generation in self.generations}
        asked = {one.lower() for one in wanted}
        if wrong := next((one for one in asked if not _FINGERPRINT.fullmatch(one)), None):
            raise Usage("a fingerprint has 64 hexadecimal digits", where=repr(wrong), todo="'show' prints it.")
        newest = self.generations[-1]
        if not asked or (newest.fingerprint in asked and asked <= held):
            return
        where = f"{where}, generation {newest.manifest.generation}"
        if newest.fingerprint not in asked:
            raise Damaged(
                f"the manifest has the fingerprint {newest.fingerprint}, not the one that was asked for", where=where
            )
        raise Damaged(f"no generation has the fingerprint {min(asked - held)}", where=where)

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
