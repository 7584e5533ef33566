"""The *append* and *join* commands."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import pairwise

from streamvault.common.errors import Overtaken
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.concat.planning import (
    Places,
    SourceCuts,
    StitchPlanner,
    StitchRecord,
    Stretch,
    digest_stretch,
    fill_transaction,
    open_sources,
    shared_ranges,
)
from streamvault.concat.reports import AppendOptions, JoinOptions, PlaceReport, StitchReport
from streamvault.concat.stitching import Stitched, Stitching, StitchTarget
from streamvault.importer.target import (
    OTHER_NAME,
    TargetTaken,
    check_other_stream,
    first_segment_id,
    marked_import,
    target_exists_error,
)
from streamvault.runner.opening import Tasks
from streamvault.sources.identity import AnotherSource
from streamvault.sources.source import Source
from streamvault.sources.sources import StreamSource
from streamvault.streamstore.byte_source import SourceTruncated
from streamvault.streamstore.cuts import Cut, is_before, later_of, parse_cut, segments_between
from streamvault.streamstore.errors import InvalidCut, ScaleRefused, StreamChanged, StreamExists
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamCut, StreamDescription
from streamvault.streamstore.own import JOIN, OWN, UNFINISHED, is_own
from streamvault.streamstore.transaction_log import Stage
from streamvault.streamstore.uri import OpenStream, open_stream


@dataclass(frozen=True, slots=True)
class Reporting:
    """Makes reports of what a planner planned for a stream."""

    planner: StitchPlanner
    stream: OpenStream

    def rehearsed(self, planned: Stitched, *, seconds: float) -> StitchReport:
        """Return the report of a dry run."""
        report = replace(self.report(planned.record, seconds), dry_run=True)
        if planned.record is None:
            return report
        places = tuple(map(_unplaced, self._stretches(planned.record)))
        return replace(
            report,
            resumed=planned.resumed,
            bytes=sum(place.end - place.start for place in places),
            merged_segments=tuple(segment.in_stream(self.stream.name) for segment in planned.merged),
            places=places,
        )

    def done(self, stitched: Stitched, target: StitchTarget, *, seconds: float) -> StitchReport:
        """Return the report of what was appended to a target, which is not finished yet if it was made for it."""
        record = stitched.record
        report = self.report(record, seconds)
        if record is None:
            return report
        return replace(
            report,
            resumed=stitched.resumed,
            segments=len(target.describe(may_be_sealed=True).epochs[-1].segments),
            bytes=sum(record.lengths.values()),
            moved_bytes=stitched.moved,
            merged_segments=tuple(segment.in_stream(self.stream.name) for segment in stitched.merged),
            commit_seconds=stitched.commit_seconds,
            places=tuple(self._places(stitched, record, target)),
        )

    def report(self, record: StitchRecord | None, seconds: float) -> StitchReport:
        """Return what a report says of a record's plan; None is a run that had nothing to do."""
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


STITCH_TASKS = (fill_transaction, digest_stretch)
"""The tasks of a stitch, for opening a runner."""


@verb(AppendOptions)
def append_streams(sources: Sequence[str], into: str, options: AppendOptions, progress: Progress) -> StitchReport:
    """Append streams and archives to a stream: everything becomes readable at once, after its last event.

    Events keep their bytes and, for each routing key, their order: a source's own, and that of the sources. Whoever
    writes to the stream goes on meanwhile. After a kill, repeat the call to resume. A call that is repeated later
    appends what the sources have got since, or nothing.

    If a source's segment covers the keys of several segments of the stream, these are merged into one for the commit,
    and split again after it, whatever the stream's policy; the report of a dry run names them.

    Args:
        sources: the streams and archives to append, in this order.
        into: the stream to append to, which exists; its cluster's login may be given by ``PRAVEGA_TARGET_USERNAME``,
            ``…_PASSWORD``, ``…_CA_FILE`` and ``…_TLS_VERIFY_HOSTNAME``.
        own_segments: put the bytes into segments of their own, from offset 0, sealed at once. The stream gets three
            more epochs for it, and its segments' numbers cannot be given again (an import needs ``numbers="map"``).
        to_cut: append only events before this cut (JSON text or a mapping) of the only source.
        distinct: leave out a segment of which an earlier source has one with the same length and SHA-256.
        window: maximum data a task buffers in memory (bytes).
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be appended.
        progress: receives the progress.

    Raises:
        Problem: nothing was appended; the exception has the command's exit code.
    """
    with ExitStack() as stack:
        opened = open_sources(sources, stack)
        stream = open_into(into, opened, stack)
        target = StitchTarget(stream)
        planner = StitchPlanner(opened, distinct=options.distinct, to_cut=options.to_cut, window=options.window)
        stitching = Stitching(target, planner, own_segments=options.own_segments, window=options.window)
        tasks, reporting = Tasks(options.master, stack, STITCH_TASKS), Reporting(planner, stream)
        if options.dry_run:
            return reporting.rehearsed(stitching.rehearse(tasks), seconds=tasks.seconds)
        stitched = stitching.run(tasks, progress)
        report = reporting.done(stitched, target, seconds=tasks.seconds)
        stitching.check_sources(stitched.record)
        return report


def open_into(into: str, sources: Sequence[Source], stack: ExitStack) -> OpenStream:
    """Open the target of a stitch; ``stack`` closes it.

    Raises:
        Usage: it is one of the sources.
    """
    stream = stack.enter_context(open_stream(into, target=True))
    for source in sources:
        if isinstance(source, StreamSource):
            check_other_stream(source.stream, stream)
    return stream


class NewTarget:
    """The target of a join, which exists or not.

    Args:
        stream: the stream.
        planner: of the sources.
        window: maximum data a task buffers in memory (bytes).
    """

    def __init__(self, stream: OpenStream, planner: StitchPlanner, *, window: int) -> None:
        self._stream = stream
        self._planner = planner
        self._window = window
        asked = json.dumps([planner.names, planner.order, planner.distinct])
        self._join_id = f"{JOIN}{hashlib.sha256(asked.encode()).hexdigest()[:32]}"

    def find(self) -> tuple[Stitching, StitchTarget] | None:
        """Return the stitch into this join's unfinished target; None if there is no stream of that name.

        Raises:
            TargetTaken: there is another one.
        """
        described = self._stream.find()
        if described is None:
            return None
        if not marked_import(described).startswith(f"{self._join_id}."):
            raise target_exists_error(self._stream.store, described)
        return self._stitching(described)

    def is_finished(self) -> bool:
        """Return whether this join has made the stream, and nothing else was appended by the same sources since.

        Raises:
            AnotherSource: it has, of another source than there is now.
            TargetTaken: it was joined of the same sources in another order, or with other options.
        """
        described = self._stream.find()
        if described is None or is_own(described.configuration) or described.sealed:
            return False
        stitching, _ = self._stitching(described)
        record = stitching.newest()
        if record is None or record.stage is not Stage.CLOSED:
            return False
        if not self._planner.is_asked(record):
            what = "the stream was joined from these sources in another order, or with another --distinct"
            raise TargetTaken(what, where=self._stream.uri, todo=OTHER_NAME)
        self._planner.check_sources(record)
        return True

    def make(self) -> tuple[Stitching, StitchTarget]:
        """Create the stream, unless it is there, with the key ranges that all sources share.

        It is always scaled before anything is recorded. So a process that is late with its scale, which may be another
        one, finds that the segment it would replace is sealed.

        Raises:
            TargetTaken: there is another stream of that name.
        """
        # a source or a cut that is not possible is found before anything is made
        ranges = None if self._stream.find() else shared_ranges(self._planner.ranges())
        tags = (OWN, f"{UNFINISHED}{self._join_id}.{secrets.token_hex(8)}")
        with suppress(StreamExists):
            self._stream.store.create_stream_and_scope(self._stream.name, StreamConfiguration(tags=tags))
        found = self.find()
        if found is None:
            raise Overtaken("the stream was deleted meanwhile", where=self._stream.uri)
        stitching, target = found
        described = target.describe()
        if len(described.epochs) == 1 and stitching.newest() is None:
            ranges = ranges or shared_ranges(self._planner.ranges())
            with suppress(ScaleRefused):
                self._stream.store.scale(self._stream.name, list(described.tail.offsets), ranges)
        return found

    def finish(self, target: StitchTarget) -> None:
        """Make the stream its user's, unless another process has; a record says that nothing more is appended.

        Raises:
            Overtaken: it is not the stream that was filled.
        """
        described = self._stream.describe()
        if first_segment_id(described) != target.first_segment_id:
            raise Overtaken("the stream was deleted and created again meanwhile", where=self._stream.uri)
        if not marked_import(described).startswith(f"{self._join_id}."):
            return
        segments = len(described.epochs[-1].segments)
        finished = StreamConfiguration(Scaling(min_segments=segments))
        with suppress(StreamChanged):  # another process has finished it, and its user has configured it
            self._stream.store.update_stream(self._stream.name, finished, was=described.configuration)

    def _stitching(self, described: StreamDescription) -> tuple[Stitching, StitchTarget]:
        marked = marked_import(described)
        target = StitchTarget(self._stream, f"{UNFINISHED}{marked}" if marked else "")
        return Stitching(target, self._planner, own_segments=False, window=self._window), target


@verb(JoinOptions)
def join_streams(sources: Sequence[str], into: str, options: JoinOptions, progress: Progress) -> StitchReport:
    """Put streams and archives together in a new stream, one after the other.

    For each routing key, events keep their order: a source's own, and that of the sources. The stream has the key
    ranges that all sources share, a fixed number of segments, no retention and no tags. Until everything is there, it
    is an internal stream. After a kill, repeat the call to resume. To add what the sources get later, append them.

    Args:
        sources: the streams and archives, in this order.
        into: the stream to create, as for `append_streams`; its scope is created if it does not exist.
        distinct: as for `append_streams`.
        window: maximum data a task buffers in memory (bytes).
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be joined.
        progress: receives the progress.

    Raises:
        Problem: the join failed; the exception has the command's exit code.
        TargetTaken: the stream exists and is neither this call's unfinished one nor a finished one (exit code 4).
    """
    with ExitStack() as stack:
        opened = open_sources(sources, stack)
        planner = StitchPlanner(opened, distinct=options.distinct, window=options.window, joins=True)
        stream, tasks = open_into(into, opened, stack), Tasks(options.master, stack, STITCH_TASKS)
        return join_parts(planner, stream, options, tasks, progress)


def join_parts(
    planner: StitchPlanner, stream: OpenStream, options: JoinOptions, tasks: Tasks, progress: Progress
) -> StitchReport:
    """Make a stream of what a planner plans; see `join_streams`.

    Args:
        planner: decides what is joined.
        stream: the stream to create.
        options: how.
        tasks: open the runner.
        progress: receives the progress.
    """
    new, reporting = NewTarget(stream, planner, window=options.window), Reporting(planner, stream)
    if new.is_finished():
        return replace(reporting.report(None, tasks.seconds), dry_run=options.dry_run)
    found = new.find()
    if options.dry_run:
        planned = found[0].rehearse(tasks) if found else Stitched(planner.plan(None, tasks), resumed=False)
        segments = len(shared_ranges(planner.ranges()))
        return replace(reporting.rehearsed(planned, seconds=tasks.seconds), segments=segments)
    stitching, target = new.make()
    stitched = stitching.run(tasks, progress)
    report = reporting.done(stitched, target, seconds=tasks.seconds)
    new.finish(target)
    stitching.check_sources(stitched.record)
    return report


class RangePlanner(StitchPlanner):
    """Plans a stitch of some parts of one source.

    Args:
        source: the source.
        ranges: the parts, each between two cuts, in the stream's order.
        window: maximum data a task buffers in memory (bytes).

    Raises:
        InvalidCut: a cut is not one of the source, a part ends before it begins, or parts overlap or are out of order.
    """

    def __init__(self, source: Source, ranges: Sequence[tuple[Cut, Cut]], *, window: int) -> None:
        super().__init__([source], distinct=False, window=window, joins=True)
        described = self.sources.looks[0].described
        self._ranges = [(self._cut(one), self._cut(other)) for one, other in ranges]
        for begin, end in self._ranges:
            _check_order(described, begin, end, "a range ends before it begins")
        for (_, end), (begin, _) in pairwise(self._ranges):
            _check_order(described, end, begin, "the ranges overlap, or are not in the stream's order")

    def _cut(self, given: Cut) -> StreamCut:
        source = self.sources.sources[0]
        cut = parse_cut(given, source.name, source.end_of)
        assert cut is not None  # noqa: S101  (one is given)
        return cut

    @property
    def names(self) -> list[str]:
        """See the base class."""
        cuts = [[cut.to_json() for cut in both] for both in self._ranges]
        return [*super().names, json.dumps(cuts)]

    def _parts(self, newest: StitchRecord | None) -> list[SourceCuts]:
        """Return what the source still has of each range; the cuts are checked at first."""
        source, look = self.sources.sources[0], self.sources.looks[0]
        described, found = look.described, list[SourceCuts]()
        for part in newest.parts if newest is not None else ():
            part.between(look)
        known = newest.parts if newest is not None else (None,) * len(self._ranges)
        for (given, until), before in zip(self._ranges, known, strict=True):
            begin = later_of(described, given, described.head)
            end = later_of(described, until, begin)
            if begin != given:
                self.warnings.append(f"{source.uri} was truncated beyond the beginning of a range")
            if newest is None:
                look.parts(begin, end, known=() if begin == given else (begin,))
            found.append(SourceCuts(source.uri, begin, self.sources.position(0, end, before.to if before else None)))
        return found


def _check_order(described: StreamDescription, one: StreamCut, other: StreamCut, what: str) -> None:
    """Check that a cut is not after another one for any key.

    Raises:
        InvalidCut: it is; names the segment.
    """
    if not is_before(described, one, other):
        try:
            segments_between(described, one, other)
        except InvalidCut as error:
            raise InvalidCut(what, where=error.where) from None
