"""The stream that an import restores into: who owns it, what it holds, and how it is created, resumed and finished.

A stream tag names the unfinished import, and a lease beside the stream shows whether that import still runs. The name,
an *import id*, is the same for the same source and options; so is that of a copy or a replica.

An import may be paused before any of these calls while another run of it ends, and while a user configures, writes to
or deletes the restored stream. So each call is conditional on what the import saw: scales and truncations name
segments, whose numbers are never reused; a deletion and the seal name the stream's first epoch; a new configuration
names the one it replaces, which has the mark. The lease is confirmed before each of them too, but only for a better
message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.importer.from_archive import generation_of
from streamvault.importer.plan import MAP_NUMBERS, RestorePlan, ScaleStep
from streamvault.streamstore.cuts import counterparts, is_before, pair_changes, segments_between
from streamvault.streamstore.errors import (
    InvalidCut,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    ScaleRefused,
    StreamExists,
    StreamSealed,
)
from streamvault.streamstore.lease import Heartbeat, Lease, LeaseHeld, last_heartbeat
from streamvault.streamstore.ledger import Ledger, LedgerNameTaken
from streamvault.streamstore.model import (
    Epoch,
    EpochChange,
    Epochs,
    KeyRange,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.own import (
    FILLED,
    FROM,
    LONGEST_TAG,
    MOST_TAGS,
    OWN,
    RESTORED,
    SWEPT,
    TARGET_LEASE,
    TARGET_LEDGER,
    UNFINISHED,
    filled_tags,
    is_own,
    own_stream,
    stream_beside,
    tag_of,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import OpenStream, is_same_store


class TargetBusy(LeaseHeld):
    """Another import is restoring into this target."""


def lease_stream(target: StreamName) -> StreamName:
    """Return the name of the stream that holds the target's lease, in the same scope."""
    return stream_beside(target, TARGET_LEASE)


def take_lease(target: OpenStream, import_id: str, *, wait_seconds: float = 0.0) -> Lease:
    """Acquire the lease on a target; wait up to ``wait_seconds`` for a live import to end.

    Raises:
        TargetBusy: a live import holds it.
    """
    held = TargetBusy(
        "another import, copy or replication is writing to this stream",
        where=target.uri,
        todo="Wait for it, or choose another name.",
    )
    return Lease.take(target.store, lease_stream(target.name), import_id, held=held, wait_seconds=wait_seconds)


@contextmanager
def finishing_under_lease(target: OpenStream, import_id: str) -> Iterator[Lease]:
    """Hold the lease on a target until it is finished; then the lease is deleted.

    Raises:
        TargetBusy: a live import holds it.
    """
    lease = take_lease(target, import_id)
    try:
        yield lease
    except BaseException:
        # Once policies are set, the mark is gone and only the lease shows which import the target belongs to.
        lease.release(remove=not lease.is_finishing)
        raise
    lease.release(remove=True)


@contextmanager
def reporting_lost_lease(lease: Lease) -> Iterator[None]:
    """Report a lost lease instead of its consequences: the store rejects a late run's requests in many ways.

    Raises:
        LeaseHeld: the lease was lost.
    """
    try:
        yield
    except (Conflict, InvalidCut, NoSuchSegment, NoSuchStream, ScaleRefused, StreamSealed):
        lease.confirm()
        raise


def remove_leftovers(target: OpenStream) -> None:
    """Delete the lease and the ledger that late or killed runs have left beside a finished target.

    Nothing is deleted while another process holds the lease.
    """
    ledger = Ledger(target.store, stream_beside(target.name, TARGET_LEDGER), target.name)
    if not target.store.exists(lease_stream(target.name)) and not target.store.exists(ledger.name):
        return
    with suppress(TargetBusy):
        lease = take_lease(target, "")
        try:
            if unfinished_import(target) == "":
                with suppress(LedgerNameTaken):
                    ledger.newest(create=False)
                ledger.delete()
        finally:
            lease.release(remove=True)


def marked_import(described: StreamDescription) -> str:
    """Return the import id in a stream's mark; empty if the stream has no mark."""
    return tag_of(described.configuration, UNFINISHED)


def unfinished_import(target: OpenStream) -> str | None:
    """Return the id of the unfinished import that a target belongs to, whether or not that import still runs.

    Returns:
        The id; empty if the target belongs to no unfinished import; None if the target does not exist.
    """
    if not target.exists() or (described := target.find()) is None:
        return None
    if marked := marked_import(described):
        return marked
    # The last steps of an import remove the tag; it is unfinished until the lease is gone.
    record = finishing_record(target.store, described)
    return record.work if record is not None else ""


def first_segment_id(described: StreamDescription) -> str:
    """Tell a stream from others of the same name: after a deletion, a new stream has higher segment numbers."""
    return str(min(described.epochs[0].segments))


def finishing_record(store: StreamStore, described: StreamDescription) -> Heartbeat | None:
    """Return the last record of a target's lease if its holder, alive or dead, was finishing this very stream."""
    record = last_heartbeat(store, lease_stream(described.name))
    if record is None or not record.finishing or record.about != first_segment_id(described):
        return None
    return record


OTHER_NAME = "Choose another name. Delete the stream only if its events are elsewhere, too."


class TargetTaken(Conflict):
    """The target exists and is not this import's own unfinished one."""


class Target:
    """A target stream that this import owns.

    Acquire it with `Target.take`, holding the lease. Its epochs are always the first ones of the plan's.

    Attributes:
        segments: the plan's segment → the target's, for all of the target's epochs.
        resumed: whether an unfinished import is resumed.
        marked: whether it has the mark of an unfinished import. If not, an earlier run has verified it and set its
            policies, and only the seal may be missing.
        epoch: its newest epoch.
        first_segment_id: see `importer.target.first_segment_id`.
    """

    def __init__(
        self, stream: OpenStream, described: StreamDescription, plan: RestorePlan, lease: Lease, *, resumed: bool
    ) -> None:
        self._stream = stream
        self._store = stream.store
        self._configuration = described.configuration
        self._plan = plan
        self._lease = lease
        self._changes = list(described.epochs.changes)
        self._current = described.epochs[-1]
        self.segments = matching(described.epochs, plan) or {}
        self.resumed = resumed
        self.marked = _is_marked(described, plan)
        self.epoch = described.epochs[-1].number
        self.first_segment_id = first_segment_id(described)
        if self.marked:
            self._fix_segments(len(described.epochs[-1].segments))

    @staticmethod
    def find_finished(stream: OpenStream, plan: RestorePlan) -> Mapping[SegmentId, SegmentId] | None:
        """Return the segments of a stream that looks restored, as `segments`; None if there is none.

        Its bytes are not read, and its user may have changed its policies and tags. A stream that was written to since
        it was restored does not look restored.
        """
        described = stream.find()
        segments = None if described is None else matching(described.epochs, plan)
        if (
            described is None
            or segments is None
            or len(described.epochs) < len(plan.replay.epochs)
            or is_own(described.configuration)
            or described.head.offsets != renamed(plan.head.offsets, segments)
            or described.tail.offsets != renamed(plan.tail, segments)
            or described.sealed != plan.sealed
        ):
            return None
        between = segments_between(described, described.head, described.tail)
        sealed = [segment for segment, (_, end) in between.items() if end is None]
        try:
            ends = {info.segment: info.write_offset for info in stream.store.segment_info(stream.name, sealed)}
        except (NoSuchSegment, NoSuchStream, NoSuchScope):
            return None  # it was truncated or deleted meanwhile
        planned = {new: plan.segments[old].end for old, new in segments.items()}
        return segments if all(planned[segment] == end for segment, end in ends.items()) else None

    @classmethod
    def take(cls, stream: OpenStream, plan: RestorePlan, lease: Lease) -> Target:
        """Create the target, or resume this import's unfinished one.

        Args:
            stream: the target.
            plan: the target's final content.
            lease: the lease on the target; confirmed before each change, also by `scale` and `finish`. If an earlier
                run was finishing, the target may have lost its mark already.

        Raises:
            TargetTaken: another stream has the name.
            LeaseHeld: the lease was lost.
        """
        if not stream.exists():
            return cls(stream, _create(stream, plan, lease), plan, lease, resumed=False)
        described = stream.describe()
        marked, matches = _is_marked(described, plan), matching(described.epochs, plan) is not None
        if not (matches and (marked or _was_finishing(described, plan, lease))):
            if not marked or has_data(described):
                raise target_exists_error(stream.store, described, plan)
            described = _create(stream, plan, lease, described)
        return cls(stream, described, plan, lease, resumed=True)

    def check_unfinished(self) -> None:
        """Check that no other run has finished the target, which then is its user's, or deleted it.

        Raises:
            TargetTaken: one has.
        """
        described = self._stream.describe()
        if not _is_marked(described, self._plan) or first_segment_id(described) != self.first_segment_id:
            raise target_exists_error(self._store, described, self._plan)

    def scale(self, step: ScaleStep) -> None:
        """Replay one scale; the segments it seals must be full.

        Raises:
            Failed: the store created other segments than expected.
        """
        count = len(self._current.segments) - len(step.seal) + len(step.opens)
        seal = [self.segments[segment] for segment in step.seal]
        self._lease.confirm()
        if count < self._configuration.scaling.min_segments:
            # a store rejects a scale below the policy's minimum
            self._configure(Scaling.never(count))
        made = self._store.scale(self._stream.name, seal, step.ranges)
        expected = self._plan.replay.epochs.changes[step.epoch]
        if not self._is_followed_by(made, expected):
            raise Failed(
                f"the segments that the store created in epoch {step.epoch} differ from the source's",
                where=f"{self._stream.uri}: {_text(made.segments)} instead of, among others, {_text(expected.opens)}",
                todo="Please report this with the stream's scale history.",
            )
        self._fix_segments(len(made.segments))

    def _is_followed_by(self, made: Epoch, expected: EpochChange) -> bool:
        """Take the epoch that a scale made as the newest one; return whether it is the expected one."""
        try:
            change = EpochChange.between(self._current.segments, made.segments)
        except ValueError:
            return False
        self.epoch, self._current = made.number, made
        self._changes.append(change)
        is_next = made.number == len(self._changes) - 1 and (self._plan.numbers == "map" or change == expected)
        return is_next and pair_changes(made.number, expected, change, self.segments)

    def _fix_segments(self, segments: int) -> None:
        """Set a fixed policy, so that no auto-scaler merges segments that are idle for a while."""
        if self._configuration.scaling.kind is not ScaleKind.FIXED:
            self._lease.confirm()
            self._configure(Scaling(min_segments=segments))

    def _configure(self, scaling: Scaling) -> None:
        changed = replace(self._configuration, scaling=scaling)
        self._store.update_stream(self._stream.name, changed, was=self._configuration)
        self._configuration = changed

    def move_head(self, described: StreamDescription | None = None) -> None:
        """Truncate the target up to the plan's head.

        Args:
            described: the target as it is; None looks.

        Raises:
            LeaseHeld: the lease was lost.
        """
        described = described or self._stream.describe()
        head = renamed(self._plan.head.offsets, self.segments)
        if described.head.offsets != head:
            self._lease.confirm()
            self._store.truncate(StreamCut(self._stream.name, head))

    def finish(self) -> None:
        """Set the head, then the source's policies and tags (which removes the mark), then seal.

        A target without the mark was finished by another run; its policies are left to its user.

        Raises:
            Failed: another process scaled the stream.
            Conflict: the stream was written to before it was sealed.
            StreamChanged: another process deleted or configured the stream.
        """
        described = self._stream.describe()
        if described.epochs.changes != tuple(self._changes) or self.epoch != len(self._plan.replay.epochs) - 1:
            raise Failed(
                "another process scaled the stream during the import",
                where=self._stream.uri,
                todo="Import into another name, or delete this stream if nobody uses it, and import again.",
            )
        if SWEPT in described.configuration.tags:
            raise target_exists_error(self._store, described)
        if described.sealed:
            return
        if _is_marked(described, self._plan):
            self.move_head(described)
            self._lease.confirm()
            self._store.update_stream(self._stream.name, self._final_configuration(), was=described.configuration)
        if self._plan.sealed:
            if described.tail.offsets != renamed(self._plan.tail, self.segments):
                raise Conflict(
                    "another process wrote to the restored stream before it was sealed",
                    where=self._stream.uri,
                    todo="Seal it yourself if what was written may stay; otherwise import into another name.",
                )
            self._lease.confirm()
            self._store.seal(self._stream.name, first=described.epochs[0])

    def _final_configuration(self) -> StreamConfiguration:
        """Return the source's policies and tags. What has other segment numbers is told from the source by them."""
        configuration = self._plan.configuration
        tags = tuple(tag for tag in configuration.tags if not tag.startswith(FILLED))
        if any(old != new for old, new in self.segments.items()):
            tags = tuple(tag for tag in tags if not tag.startswith(RESTORED))
        filled = sorted(replace(place, segment=self.segments[place.segment]) for place in self._plan.filled)
        return replace(configuration, tags=(*tags, *filled_tags(filled, MOST_TAGS - len(tags))))


def check_other_stream(source: OpenStream, target: OpenStream) -> None:
    """Check that source and target are not the same stream.

    Raises:
        Usage: they are, even if their URIs are spelled differently.
    """
    if source.name == target.name and is_same_store(source.address, target.address):
        raise Usage("source and target are the same stream", where=target.uri, todo="Give the target another name.")


def mark(plan: RestorePlan) -> str:
    """Return the tag that marks an unfinished target as this plan's."""
    return UNFINISHED + plan.import_id


def origin_tag(target: StreamName, origin: str) -> str:
    """Return the tag that says from which archive an unfinished target is restored.

    It names the target, too, so that a tag that was copied to another stream says nothing of that.
    """
    return f"{FROM}{hashlib.sha256(str(target).encode()).hexdigest()[:12]}:{origin}"


def _create(
    stream: OpenStream, plan: RestorePlan, lease: Lease, described: StreamDescription | None = None
) -> StreamDescription:
    """Create the target with the source's first segments, a fixed policy and the mark.

    If the source was deleted and recreated, its segment numbers start above 0. Numbering continues when a stream is
    created again under the same name, so a stream is created and deleted first to use up the lower numbers. If the name
    was used before, its numbers may be too high already; then they are mapped, if the plan says so.

    Args:
        stream: the target.
        plan: the target's final content.
        lease: the lease on the target.
        described: the empty stream that an earlier run created, which starts with other segments; None if there is
            none.

    Raises:
        Conflict: the name was used before, so the segments would get higher numbers.
    """
    first = plan.replay.first
    lowest, segments = min(segment.number for segment in first.segments), len(first.segments)
    if described is None:
        # a killed run may have used them up already
        described = _make(stream, plan, lease, segments if lease.died_before else lowest or segments)
    while described.epochs[0] != first:
        number = min(segment.number for segment in described.epochs[0].segments)
        following = number + len(described.epochs[0].segments)
        if number > lowest and matching(described.epochs, plan) is not None:
            break
        lease.confirm()
        stream.store.delete(stream.name, first=described.epochs[0])
        if following > lowest and plan.numbers == "keep":
            raise Conflict(
                f"the name was used before, so segments would be numbered from {number}, not {lowest}",
                where=stream.uri,
                todo=f"Choose a name that was never used. {MAP_NUMBERS}",
            )
        described = _make(stream, plan, lease, lowest - following if following < lowest else segments)
    return described


def _make(stream: OpenStream, plan: RestorePlan, lease: Lease, segments: int) -> StreamDescription:
    """Create a marked stream. An existing one with the mark was created by a request whose answer was lost."""
    lease.confirm()
    with suppress(StreamExists):
        origin = origin_tag(stream.name, plan.origin)
        tags = (OWN, mark(plan), origin) if plan.origin and len(origin) <= LONGEST_TAG else (OWN, mark(plan))
        configuration = StreamConfiguration(Scaling(min_segments=segments), tags=tags)
        stream.store.create_stream(stream.name, configuration)
    described = stream.describe()
    if not _is_marked(described, plan):
        raise target_exists_error(stream.store, described, plan)
    return described


def _is_marked(described: StreamDescription, plan: RestorePlan) -> bool:
    return {OWN, mark(plan)}.issubset(described.configuration.tags) and SWEPT not in described.configuration.tags


def _was_finishing(described: StreamDescription, plan: RestorePlan, lease: Lease) -> bool:
    """Return whether an earlier run of the same import was finishing this very stream."""
    if lease.former is None or not lease.finished_before or len(described.epochs) < len(plan.replay.epochs):
        return False
    return lease.former.about == first_segment_id(described)


def renamed(offsets: Mapping[SegmentId, int], segments: Mapping[SegmentId, SegmentId]) -> dict[SegmentId, int]:
    """Return offsets by the target's segments, given the plan's segment → the target's."""
    return {segments[segment]: offset for segment, offset in offsets.items()}


def matching(epochs: Epochs, plan: RestorePlan) -> dict[SegmentId, SegmentId] | None:
    """Return the plan's segment → the target's, given its epochs; None if these are not as planned."""
    planned = plan.replay.epochs
    if len(planned) < len(epochs) or (plan.numbers == "keep" and not planned.starts_with(epochs)):
        return None
    return counterparts(planned, epochs)


def has_data(described: StreamDescription) -> bool:
    """Return whether a target was ever filled or scaled."""
    return len(described.epochs) > 1 or any(described.tail.offsets.values())


def target_exists_error(
    store: StreamStore, described: StreamDescription, plan: RestorePlan | None = None, begun: str = ""
) -> Conflict:
    """Return the error for a target that is not this import's.

    Args:
        store: the target's store.
        described: the existing stream.
        plan: the plan to restore, if there is one.
        begun: the unfinished import that it belongs to (`unfinished_import`), if it has no mark.
    """
    what, where, todo = "the stream exists", f"{store.uri}/{described.name}", OTHER_NAME
    begun = marked_import(described) or begun
    if SWEPT in described.configuration.tags:
        what, todo = "the stream is being deleted by a sweep", "Run 'streamvault sweep' again, then this command."
    elif begun:
        what = "the stream is the unfinished target of another import, copy or replication"
        generation = generation_of(begun)
        if plan is not None and generation and plan.generation not in (0, generation):
            what = f"the stream is the unfinished target of an import up to generation {generation}"
            what += f", not {plan.generation}"
            todo = f"Try --generation {generation}, or choose another name."
    elif is_own(described.configuration):
        return own_stream(store, described)
    elif plan is not None and (more := _written_since(described, plan)):
        what, where = "the stream has the archived segments, but has been written to since", f"{where}: {more}"
    return TargetTaken(what, where=where, todo=todo)


def _written_since(described: StreamDescription, plan: RestorePlan) -> str:
    """Return what a stream has more than planned; empty if it does not look restored."""
    planned = len(plan.replay.epochs)
    segments = matching(described.epochs.upto(planned), plan)
    if segments is None or len(described.epochs) < planned:
        return ""
    if len(described.epochs) > planned:
        return f"{len(described.epochs)} epochs instead of {planned}"
    sizes = {segments[segment]: (described.tail.offsets[segments[segment]], end) for segment, end in plan.tail.items()}
    if any(held < end for held, end in sizes.values()):
        return ""
    grown = [f"{segment} has {held} bytes instead of {end}" for segment, (held, end) in sizes.items() if held > end]
    return next(iter(grown), "")


def _text(segments: Mapping[SegmentId, KeyRange]) -> str:
    return ", ".join(f"{segment} [{held.low!r}, {held.high!r})" for segment, held in segments.items())


T = TypeVar("T")

LOOKS = 10
"""How often a stream is looked at if it is truncated meanwhile."""


def look_again(look: Callable[[], T], *changed: type[Exception]) -> T:
    """Return what a look finds; look again if an error shows that the stream has changed meanwhile."""
    for _ in range(LOOKS - 1):
        with suppress(*changed):
            return look()
    return look()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What an unfinished target holds at one moment.

    Look at it before the source: whatever runs of the same work have appended, the source has.

    Attributes:
        stream: the target.
        described: its description.
        ends: its segment → the segment's end (bytes), of those that are not truncated.
    """

    stream: OpenStream
    described: StreamDescription
    ends: Mapping[SegmentId, int]

    @classmethod
    def find(cls, stream: OpenStream) -> Unfinished | None:
        """Look at a target; None if it does not exist, or is a user's stream."""
        return look_again(lambda: cls._find(stream), NoSuchSegment)

    @classmethod
    def _find(cls, stream: OpenStream) -> Unfinished | None:
        try:
            described = stream.describe()
            if not is_own(described.configuration):
                return None
            live = segments_between(described, described.head, described.tail)
            ends = {info.segment: info.write_offset for info in stream.store.segment_info(stream.name, list(live))}
        except (NoSuchStream, NoSuchScope):
            return None
        return cls(stream, described, ends)

    def check(self, plan: RestorePlan) -> Mapping[SegmentId, SegmentId]:
        """Check that only runs of the same work can have changed the target, as far as its shape shows.

        Args:
            plan: its final content.

        Returns:
            The plan's segment → the target's.

        Raises:
            TargetTaken: it was sealed, scaled, truncated or written to.
        """
        if self.described.sealed:
            raise self._changed("sealed")
        segments = matching(self.described.epochs, plan)
        if segments is None:
            if not has_data(self.described):
                return {}  # it only uses up numbers, and will be created again
            raise self._changed("scaled by another process")
        checked = {segments[old] for old in segments if plan.segments[old].spans}
        if segments.keys() >= plan.head.offsets.keys():
            head = StreamCut(self.described.name, renamed(plan.head.offsets, segments))
            if not is_before(self.described, self.described.head, head):
                raise self._changed("truncated by another process")
            if is_before(self.described, head, self.described.tail):  # else it is behind the source's head
                checked = set(segments_between(self.described, head, self.described.tail))
        for old, new in segments.items():
            end = plan.segments[old].end
            if new in checked and self.ends.get(new, 0) > end:
                where = f"{self.stream.store.uri}/{new.in_stream(self.described.name)} offset {end}"
                raise self._changed(f"written to by another process; the source has {end} bytes", where)
        return segments

    def _changed(self, how: str, where: str = "") -> TargetTaken:
        return TargetTaken(f"the unfinished stream was {how}", where=where or self.stream.uri, todo=OTHER_NAME)


def check_filler(plan: RestorePlan, limit: int, unfinished: Unfinished | None = None) -> None:
    """Check how much filler a target still needs.

    Args:
        plan: its final content.
        limit: see `TargetOptions.filler_limit`.
        unfinished: what it holds already; None if that does not count, or it does not exist.

    Raises:
        Usage: it is more than the limit.
    """
    held: Mapping[SegmentId, int] = {}
    if unfinished is not None:
        segments = counterparts(plan.replay.epochs, unfinished.described.epochs) or {}
        held = {old: unfinished.ends.get(new, plan.segments[old].end) for old, new in segments.items()}
    for segment, planned in plan.segments.items():
        begun = held.get(segment, 0)
        size = sum(max(0, span.end - max(span.start, begun)) for span in planned.spans if span.part is None)
        if size > limit:
            raise Usage(
                f"keeping offsets needs {size} bytes of filler, more than --filler-limit {limit}",
                where=segment.in_stream(plan.source),
                todo="Use --offsets shift, so that segments start at 0, or raise the limit.",
            )
