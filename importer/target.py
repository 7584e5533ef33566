"""The stream that an import restores into: made by it, or its own unfinished one, or nothing at all.

An import may be paused before any of these calls while another run of it ends, and while a user configures, writes to
or deletes what was restored. So each call names what it saw: scales and truncations name segments, whose numbers are
never used again; a deletion and the seal name the stream's first epoch; a new configuration names the one it replaces,
which has the mark. The lease is looked at before each of them too, but that only gives the better message.
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

__all__ = ["Target", "TargetTaken", "taken"]


class TargetTaken(Conflict):
    """The target exists and is not this import's own unfinished one."""


class Target:
    """A target stream that this import owns.

    Use `Target.take`, holding the lease. Its epochs are always a beginning of the plan's.

    Attributes:
        resumed: whether an unfinished import is gone on with.
        marked: whether it has the mark of an unfinished import. Without, an earlier run has verified it and set its
            policies, and only the seal may be missing.
        epoch: the newest epoch it has.
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
            self._fix(len(described.epochs[-1].segments))

    @classmethod
    def is_finished(cls, store: StreamStore, name: StreamName, plan: RestorePlan) -> bool:
        """Whether the target looks like a finished restore of this plan: all but the bytes is as planned.

        One that somebody wrote to since does not.
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
        """Make the target, or go on with this import's unfinished one.

        Args:
            store: where it is.
            name: of the target.
            plan: what is to stand there.
            lease: on the target; confirmed before each change, by `scale` and `finish` too. If an earlier run was
                finishing, the target may have lost its mark already.

        Raises:
            TargetTaken: something else is there. LeaseHeld: the lease is lost.
        """
        if not store.exists(name):
            return cls(store, _create(store, name, plan, lease), plan, lease, resumed=False)
        described = store.describe(name)
        marked, begun_right = _is_marked(described, plan), _begun_right(described, plan)
        if not (begun_right and (marked or lease.finished_before)):
            if not marked or _has_data(described):
                raise taken(store, described, plan)
            described = _create(store, name, plan, lease, described)
        return cls(store, described, plan, lease, resumed=True)

    def scale(self, step: ScaleStep) -> None:
        """Replay one scale; what it seals is full.

        Raises:
            Failed: the store numbered the new segments in another way than expected.
        """
        expected = self._plan.replay.epochs[step.epoch]
        self._lease.confirm()
        if len(expected.segments) < self._configuration.scaling.min_segments:
            # A store refuses to go below the policy's minimum, and given a fixed number other than that of the open
            # segments it scales by itself. So until the scale is done, the policy is a rate that is never reached.
            self._configure(Scaling(ScaleKind.BY_EVENTS, 2**31 - 1, 2, len(expected.segments)))
        made = self._store.scale(self._name, step.seal, step.ranges)
        self.epoch = made.number
        if made != expected:
            raise Failed(
                f"the store made other segments in epoch {step.epoch} than the source has",
                where=f"{self._name}: {_text(made)} instead of {_text(expected)}",
                todo="Please report this with the stream's scale history.",
            )
        self._fix(len(made.segments))

    def _fix(self, segments: int) -> None:
        """See that no auto-scaler merges segments that are not written to for a while."""
        if self._configuration.scaling.kind is not ScaleKind.FIXED:
            self._lease.confirm()
            self._configure(Scaling(min_segments=segments))

    def _configure(self, scaling: Scaling) -> None:
        wanted = replace(self._configuration, scaling=scaling)
        self._store.update_stream(self._name, wanted, was=self._configuration)
        self._configuration = wanted

    def finish(self) -> None:
        """Set the head, then the source's policies and tags (which takes the mark away), then seal.

        What has no mark any more was finished by another run, and its policies are its user's.

        Raises:
            Failed: the stream has other epochs than it was given: somebody else scaled it.
            Conflict: it should be sealed, and somebody has written to it since it was finished.
            StreamChanged: it was deleted or configured by somebody else meanwhile.
        """
        described = self._store.describe(self._name)
        if tuple(described.epochs) != self._plan.replay.epochs:
            raise Failed(
                "the restored stream was scaled by somebody else meanwhile",
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
                    "somebody wrote to the restored stream before it was sealed",
                    where=str(self._name),
                    todo="Seal it yourself, or delete it and import again.",
                )
            self._lease.confirm()
            self._store.seal(self._name, first=described.epochs[0])


def mark(plan: RestorePlan) -> str:
    """The tag on an unfinished target: whose it is."""
    return MARK + plan.work


def _create(
    store: StreamStore, name: StreamName, plan: RestorePlan, lease: Lease, described: StreamDescription | None = None
) -> StreamDescription:
    """Make the target with the source's first segments, under a fixed policy and marked.

    If the source was deleted and made again, its numbers start above 0. A stream that is made again goes on numbering,
    so one of the name is made and deleted first, which uses up the numbers before.

    Args:
        store: where.
        name: of the target.
        plan: what is to stand there.
        lease: on the target.
        described: what an earlier run has made; it begins with other segments, and nobody can have filled it.

    Raises:
        Conflict: the name was used before, so that higher numbers would come out.
    """
    first = plan.replay.first
    wanted, segments = min(segment.number for segment in first.segments), len(first.segments)
    if described is None:
        # one that was killed may have used them up already
        described = _make(store, name, plan, lease, segments if lease.died_before else wanted or segments)
    while described.epochs[0] != first:
        number = min(segment.number for segment in described.epochs[0].segments)
        following = number + len(described.epochs[0].segments)
        lease.confirm()
        store.delete(name, first=described.epochs[0])
        if following > wanted:
            raise Conflict(
                f"a stream of this name was there before, so segments would be numbered from {number}, not {wanted}",
                where=str(name),
                todo="Choose a name that was never used.",
            )
        described = _make(store, name, plan, lease, wanted - following or segments)
    return described


def _make(store: StreamStore, name: StreamName, plan: RestorePlan, lease: Lease, segments: int) -> StreamDescription:
    """Create a marked stream. One that is there and has the mark was made by a request whose answer was lost."""
    lease.confirm()
    with suppress(StreamExists):
        store.create_stream(name, StreamConfiguration(Scaling(min_segments=segments), tags=(OWN, mark(plan))))
    described = store.describe(name)
    if not _is_marked(described, plan):
        raise taken(store, described, plan)
    return described


def _is_marked(described: StreamDescription, plan: RestorePlan) -> bool:
    return {OWN, mark(plan)}.issubset(described.configuration.tags)


def _ends(plan: RestorePlan) -> dict[SegmentId, int]:
    """Where the restored stream ends: its last segments' write offsets (bytes)."""
    return {segment: plan.segments[segment].end for segment in plan.replay.epochs[-1].segments}


def _begun_right(described: StreamDescription, plan: RestorePlan) -> bool:
    return tuple(described.epochs) == plan.replay.epochs[: len(described.epochs)]


def _has_data(described: StreamDescription) -> bool:
    return len(described.epochs) > 1 or any(described.tail.offsets.values())


def taken(store: StreamStore, described: StreamDescription, plan: RestorePlan, begun: str = "") -> Conflict:
    """What to say of a target that is not this import's.

    Args:
        store: where it is.
        described: the stream.
        plan: what was to be restored.
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
