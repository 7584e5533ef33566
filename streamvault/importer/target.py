"""The stream that an import restores into: created by it, or its own unfinished one.

An import may be paused before any of these calls while another run of it ends, and while a user configures, writes to
or deletes the restored stream. So each call is conditional on what the import saw: scales and truncations name
segments, whose numbers are never reused; a deletion and the seal name the stream's first epoch; a new configuration
names the one it replaces, which has the mark. The lease is confirmed before each of them too, but only for a better
message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.importer.from_archive import generation_of
from streamvault.importer.ownership import first_segment_id, marked_import
from streamvault.importer.plan import RestorePlan
from streamvault.importer.replay import MAP_NUMBERS, ScaleStep
from streamvault.streamstore.arithmetic.counterparts import counterparts
from streamvault.streamstore.arithmetic.cuts import segments_between
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream, StreamExists
from streamvault.streamstore.model import (
    Epoch,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import (
    FILLED,
    FROM,
    LONGEST_TAG,
    MOST_TAGS,
    OWN,
    RESTORED,
    SWEPT,
    UNFINISHED,
    filled_tags,
    is_own,
    own_stream,
)
from streamvault.streamstore.services.lease import Lease
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import is_same_store

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
        first_segment_id: see `importer.ownership.first_segment_id`.
    """

    def __init__(
        self, stream: OpenStream, described: StreamDescription, plan: RestorePlan, lease: Lease, *, resumed: bool
    ) -> None:
        self._stream = stream
        self._store = stream.store
        self._configuration = described.configuration
        self._plan = plan
        self._lease = lease
        self._epochs = described.epochs
        self.segments: Mapping[SegmentId, SegmentId] = matching(described.epochs, plan) or {}
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
        expected = self._plan.replay.epochs[step.epoch]
        seal = [self.segments[segment] for segment in step.seal]
        self._lease.confirm()
        if len(expected.segments) < self._configuration.scaling.min_segments:
            # a store rejects a scale below the policy's minimum
            self._configure(Scaling.never(len(expected.segments)))
        made = self._store.scale(self._stream.name, seal, step.ranges)
        self.epoch = made.number
        self._epochs = (*self._epochs, made)
        segments = matching([made], self._plan, self.segments)
        if segments is None:
            raise Failed(
                f"the store created other segments in epoch {step.epoch} than the source has",
                where=f"{self._stream.uri}: {_text(made)} instead of {_text(expected)}",
                todo="Please report this with the stream's scale history.",
            )
        self.segments = segments
        self._fix_segments(len(made.segments))

    def _fix_segments(self, segments: int) -> None:
        """Set a fixed policy, so that no auto-scaler merges segments that are idle for a while."""
        if self._configuration.scaling.kind is not ScaleKind.FIXED:
            self._lease.confirm()
            self._configure(Scaling(min_segments=segments))

    def _configure(self, scaling: Scaling) -> None:
        changed = replace(self._configuration, scaling=scaling)
        self._store.update_stream(self._stream.name, changed, was=self._configuration)
        self._configuration = changed

    def move_head(self) -> None:
        """Truncate the target up to the plan's head.

        Raises:
            LeaseHeld: the lease was lost.
        """
        self._move_head(self._stream.describe())

    def _move_head(self, described: StreamDescription) -> None:
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
        if described.epochs != self._epochs or self.epoch != self._plan.replay.epochs[-1].number:
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
            self._move_head(described)
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
        filled = sorted(place._replace(segment=self.segments[place.segment]) for place in self._plan.filled)
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


def matching(
    epochs: Sequence[Epoch], plan: RestorePlan, known: Mapping[SegmentId, SegmentId] | None = None
) -> Mapping[SegmentId, SegmentId] | None:
    """Return the plan's segment → the target's; None if the target's epochs are not as planned.

    Args:
        epochs: epochs of the target.
        plan: the plan.
        known: the result for the epochs before; None if there are none before.
    """
    first = epochs[0].number
    planned = plan.replay.epochs[first : first + len(epochs)]
    if len(planned) < len(epochs) or (plan.numbers == "keep" and tuple(epochs) != planned):
        return None
    return counterparts(planned, epochs, known)


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
        what, where = "the stream has the archived segments, but was written to since", f"{where}: {more}"
    return TargetTaken(what, where=where, todo=todo)


def _written_since(described: StreamDescription, plan: RestorePlan) -> str:
    """Return what a stream has more than planned; empty if it does not look restored."""
    planned = len(plan.replay.epochs)
    segments = matching(described.epochs[:planned], plan)
    if segments is None or len(described.epochs) < planned:
        return ""
    if len(described.epochs) > planned:
        return f"{len(described.epochs)} epochs instead of {planned}"
    sizes = {segments[segment]: (described.tail.offsets[segments[segment]], end) for segment, end in plan.tail.items()}
    if any(held < end for held, end in sizes.values()):
        return ""
    grown = [f"{segment} has {held} bytes instead of {end}" for segment, (held, end) in sizes.items() if held > end]
    return next(iter(grown), "")


def _text(epoch: Epoch) -> str:
    return ", ".join(f"{segment} [{held.low!r}, {held.high!r})" for segment, held in epoch.segments.items())
