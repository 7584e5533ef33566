"""Makes the report of a stitch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from streamvault.joining.placing import Places
from streamvault.joining.planning import StitchPlanner
from streamvault.joining.record import StitchRecord
from streamvault.joining.reports import PlaceReport, StitchReport
from streamvault.joining.sources import Stretch
from streamvault.joining.stitching import Rehearsal, Stitched
from streamvault.joining.target import StitchTarget
from streamvault.reading.identity import AnotherSource
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.open_stream import OpenStream


@dataclass(frozen=True, slots=True)
class Reporting:
    """Makes reports of what a planner planned for a stream."""

    planner: StitchPlanner
    stream: OpenStream

    def rehearsed(self, rehearsal: Rehearsal, *, seconds: float) -> StitchReport:
        """Return the report of a dry run."""
        report = self._report(rehearsal.record, seconds)
        if rehearsal.record is None:
            return replace(report, dry_run=True)
        merged = rehearsal.scale.seal if rehearsal.scale else ()
        places = tuple(map(_unplaced, self._stretches(rehearsal.record)))
        merged_segments = tuple(segment.in_stream(self.stream.name) for segment in merged)
        return replace(
            report,
            dry_run=True,
            resumed=rehearsal.resumed,
            bytes=sum(place.end - place.start for place in places),
            merged_segments=merged_segments,
            places=places,
        )

    def nothing(self, *, seconds: float) -> StitchReport:
        """Return the report of a run that had nothing to do."""
        return self._report(None, seconds)

    def done(self, stitched: Stitched, target: StitchTarget, *, seconds: float) -> StitchReport:
        """Return the report of what was appended to a target, which is not finished yet if it was made for it."""
        record = stitched.record
        report = self._report(record, seconds)
        if record is None:
            return report
        name = self.stream.name
        return replace(
            report,
            resumed=stitched.resumed,
            segments=len(target.describe(may_be_sealed=True).epochs[-1].segments),
            bytes=sum(record.lengths.values()),
            moved_bytes=stitched.moved,
            merged_segments=tuple(segment.in_stream(name) for segment in stitched.merged),
            commit_seconds=stitched.commit_seconds,
            places=tuple(self._places(stitched, record, target)),
        )

    def _report(self, record: StitchRecord | None, seconds: float) -> StitchReport:
        uris = [part.uri for part in record.parts] if record else [one.uri for one in self.planner.sources.sources]
        return StitchReport(
            sources=tuple(uris),
            stream=self.stream.uri,
            unchanged=record is None,
            left_out=tuple(self.planner.left_out(record)) if record else (),
            warnings=tuple(self.planner.warnings),
            seconds=seconds,
        )

    def _stretches(self, record: StitchRecord) -> list[Stretch]:
        try:
            return self.planner.stretches(record)
        except (SourceTruncated, AnotherSource):  # since it was appended
            return []

    def _places(self, stitched: Stitched, record: StitchRecord, target: StitchTarget) -> Iterator[PlaceReport]:
        transaction = record.begun
        landed = target.find_landed(transaction, record.lengths, record.ends)
        places, before = Places(transaction.segments), dict.fromkeys(transaction.segments, 0)
        for stretch in self._stretches(record):
            segment = places.of(stretch.keys)[0]
            yield replace(
                _unplaced(stretch),
                target_segment=landed[segment].segment.in_stream(transaction.stream),
                offset=landed[segment].offset + before[segment],
                exact=landed[segment].exact,
                digest=stitched.digests.get(stretch.key, ""),
            )
            before[segment] += stretch.size


def _unplaced(stretch: Stretch) -> PlaceReport:
    return PlaceReport(source=stretch.uri, segment=stretch.segment, start=stretch.start, end=stretch.end)
