"""The stream that an import restores into: created by it, or its own unfinished one.

An import may be paused before any of these calls while another run of it ends, and while a user configures, writes to
or deletes the restored stream. So each call is conditional on what the import saw: scales and truncations name
segments, whose numbers are never reused; a deletion and the seal name the stream's first epoch; a new configuration
names the one it replaces, which has the mark. The lease is confirmed before each of them too, but only for a better
message.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from common.errors import Conflict, Failed
from importer.lease import MARK, marked_work
from importer.plan import RestorePlan, generation_of
from importer.replay import ScaleStep
from streamstore.errors import StreamExists
from streamstore.lease import Lease
from streamstore.model import Epoch, ScaleKind, Scaling, SegmentId, StreamConfiguration, StreamDescription, StreamName
from streamstore.own import OWN, is_own, own_stream
from streamstore.store import StreamStore

__all__ = ["Target", "TargetTaken", "taken_error"]


class TargetTaken(Conflict):
    """The target exists and is not this import's own unfinished one."""


class Target:
    """A target stream that this import owns.

    Acquire it with `Target.take`, holding the lease. Its epochs are always the first ones of the plan's.

    Attributes:
        resumed: whether an unfinished import is resumed.
        marked: whether it has the mark of an unfinished import. If not, an earlier run has verified it and set its
            policies, and only the seal may be missing.
        epoch: its newest epoch.
    """

    def __init__(
        self, store: StreamStore, described: StreamDescription, plan: RestorePlan, lease: Lease, *, resumed: bool
    ) -> None:
        self._store = store
        self._name = described.name
        self._configuration = described.configuration
        self._plan = plan
        self._lease = lease
        self.resumed = resumed
        self.marked = _is_marked(described, plan)
        self.epoch = described.epochs[-1].number
        if self.marked:
            self._fix_segments(len(described.epochs[-1].segments))

    @classmethod
    def is_finished(cls, store: StreamStore, name: StreamName, plan: RestorePlan) -> bool:
        """Return whether all but the target's bytes is as planned.

        This does not hold for a restored stream that was written to since.
        """
        if not store.exists(name):
            return False
        described = store.describe(name)
        return (
            described.configuration == plan.configuration
            and tuple(described.epochs) == plan.replay.epochs
            and described.head.offsets == plan.head.offsets
            and described.tail.offsets == _ends(plan)
            and described.sealed == plan.sealed
        )

    @classmethod
    def take(cls, store: StreamStore, name: StreamName, plan: RestorePlan, lease: Lease) -> Target:
        """Create the target, or resume this import's unfinished one.

        Args:
            store: the target's store.
            name: the target.
            plan: the target's final content.
            lease: the lease on the target; confirmed before each change, also by `scale` and `finish`. If an earlier
                run was finishing, the target may have lost its mark already.

        Raises:
            TargetTaken: another stream has the name.
            LeaseHeld: the lease was lost.
        """
        if not store.exists(name):
            return cls(store, _create(store, name, plan, lease), plan, lease, resumed=False)
        described = store.describe(name)
        marked, epochs_match = _is_marked(described, plan), _epochs_match(described, plan)
        if not (epochs_match and (marked or lease.finished_before)):
            if not marked or _has_data(described):
                raise taken_error(store, described, plan)
            described = _create(store, name, plan, lease, described)
        return cls(store, described, plan, lease, resumed=True)

    def scale(self, step: ScaleStep) -> None:
        """Replay one scale; the segments it seals must be full.

        Raises:
            Failed: the store created other segments than expected.
        """
        expected = self._plan.replay.epochs[step.epoch]
        self._lease.confirm()
        if len(expected.segments) < self._configuration.scaling.min_segments:
            # A store rejects a scale below the policy's minimum, and scales by itself if given a fixed number other
            # than that of the open segments. So until the scale is done, the policy is a rate that is never reached.
            self._configure(Scaling(ScaleKind.BY_EVENTS, 2**31 - 1, 2, len(expected.segments)))
        made = self._store.scale(self._name, step.seal, step.ranges)
        self.epoch = made.number
        if made != expected:
            raise Failed(
                f"the store created other segments in epoch {step.epoch} than the source has",
                where=f"{self._name}: {_text(made)} instead of {_text(expected)}",
                todo="Please report this with the stream's scale history.",
            )
        self._fix_segments(len(made.segments))

    def _fix_segments(self, segments: int) -> None:
        """Set a fixed policy, so that no auto-scaler merges segments that are idle for a while."""
        if self._configuration.scaling.kind is not ScaleKind.FIXED:
            self._lease.confirm()
            self._configure(Scaling(min_segments=segments))

    def _configure(self, scaling: Scaling) -> None:
        wanted = replace(self._configuration, scaling=scaling)
        self._store.update_stream(self._name, wanted, was=self._configuration)
        self._configuration = wanted

    def finish(self) -> None:
        """Set the head, then the source's policies and tags (which removes the mark), then seal.

        A target without the mark was finished by another run; its policies are left to its user.

        Raises:
            Failed: another process scaled the stream.
            Conflict: the stream was written to before it was sealed.
            StreamChanged: another process deleted or configured the stream.
        """
        described = self._store.describe(self._name)
        if tuple(described.epochs) != self._plan.replay.epochs:
            raise Failed(
                "another process scaled the stream during the import",
                where=str(self._name),
                todo="Delete it and import again.",
            )
        if described.sealed:
            return
        if _is_marked(described, self._plan):
            if described.head.offsets != self._plan.head.offsets:
                self._lease.confirm()
                self._store.truncate(replace(self._plan.head, stream=self._name))
            self._lease.confirm()
            self._store.update_stream(self._name, self._plan.configuration, was=described.configuration)
        if self._plan.sealed:
            if described.tail.offsets != _ends(self._plan):
                raise Conflict(
                    "another process wrote to the restored stream before it was sealed",
                    where=str(self._name),
                    todo="Seal it yourself, or delete it and import again.",
                )
            self._lease.confirm()
            self._store.seal(self._name, first=described.epochs[0])


def mark(plan: RestorePlan) -> str:
    """Return the tag that marks an unfinished target as this plan's."""
    return MARK + plan.work


def _create(
    store: StreamStore, name: StreamName, plan: RestorePlan, lease: Lease, described: StreamDescription | None = None
) -> StreamDescription:
    """Create the target with the source's first segments, a fixed policy and the mark.

    If the source was deleted and recreated, its segment numbers start above 0. Numbering continues when a stream is
    created again under the same name, so a stream is created and deleted first to use up the lower numbers.

    Args:
        store: the target's store.
        name: the target.
        plan: the target's final content.
        lease: the lease on the target.
        described: the empty stream that an earlier run created, which starts with other segments; None if there is
            none.

    Raises:
        Conflict: the name was used before, so the segments would get higher numbers.
    """
    first = plan.replay.first
    wanted, segments = min(segment.number for segment in first.segments), len(first.segments)
    if described is None:
        # a killed run may have used them up already
        described = _make(store, name, plan, lease, segments if lease.died_before else wanted or segments)
    while described.epochs[0] != first:
        number = min(segment.number for segment in described.epochs[0].segments)
        following = number + len(described.epochs[0].segments)
        lease.confirm()
        store.delete(name, first=described.epochs[0])
        if following > wanted:
            raise Conflict(
                f"the name was used before, so segments would be numbered from {number}, not {wanted}",
                where=str(name),
                todo="Choose a name that was never used.",
            )
        described = _make(store, name, plan, lease, wanted - following or segments)
    return described


def _make(store: StreamStore, name: StreamName, plan: RestorePlan, lease: Lease, segments: int) -> StreamDescription:
    """Create a marked stream. An existing one with the mark was created by a request whose answer was lost."""
    lease.confirm()
    with suppress(StreamExists):
        store.create_stream(name, StreamConfiguration(Scaling(min_segments=segments), tags=(OWN, mark(plan))))
    described = store.describe(name)
    if not _is_marked(described, plan):
        raise taken_error(store, described, plan)
    return described


def _is_marked(described: StreamDescription, plan: RestorePlan) -> bool:
    return {OWN, mark(plan)}.issubset(described.configuration.tags)


def _ends(plan: RestorePlan) -> dict[SegmentId, int]:
    """Return the final write offsets of the last segments (bytes)."""
    return {segment: plan.segments[segment].end for segment in plan.replay.epochs[-1].segments}


def _epochs_match(described: StreamDescription, plan: RestorePlan) -> bool:
    return tuple(described.epochs) == plan.replay.epochs[: len(described.epochs)]


def _has_data(described: StreamDescription) -> bool:
    return len(described.epochs) > 1 or any(described.tail.offsets.values())


def taken_error(store: StreamStore, described: StreamDescription, plan: RestorePlan, begun: str = "") -> Conflict:
    """Return the error for a target that is not this import's.

    Args:
        store: the target's store.
        described: the existing stream.
        plan: the plan to restore.
        begun: the unfinished import that it belongs to (`unfinished_work`), if it has no mark.
    """
    what, todo = "the stream exists", "Choose another name, or delete it first."
    begun = marked_work(described) or begun
    if begun:
        what, generation = "another import's unfinished stream", generation_of(begun)
        if generation is not None and generation != plan.generation:
            what = f"the unfinished stream of an import up to generation {generation}, not {plan.generation}"
            todo = f"Try --generation {generation}, choose another name, or delete it first."
    elif is_own(described.configuration):
        return own_stream(store, described.name)
    return TargetTaken(what, where=str(described.name), todo=todo)


def _text(epoch: Epoch) -> str:
    return ", ".join(f"{segment} [{held.low!r}, {held.high!r})" for segment, held in epoch.segments.items())
