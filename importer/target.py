"""The stream that an import restores into: made by it, or its own unfinished one, or nothing at all."""

from __future__ import annotations

from dataclasses import replace

from importer.lease import MARK, marked_work
from importer.plan import RestorePlan, generation_of
from importer.replay import ScaleStep
from problems import Conflict, Failed
from streamstore.model import Epoch, ScaleKind, Scaling, StreamConfiguration, StreamDescription, StreamName
from streamstore.store import StreamStore

__all__ = ["Target", "TargetTaken", "taken"]

ANY_NUMBER = Scaling(kind=ScaleKind.BY_EVENTS, target=2**31 - 1, factor=2, min_segments=1)
"""A policy under which a stream may have any number of segments, and no rate is ever too high."""


class TargetTaken(Conflict):
    """The target exists and is not this import's own unfinished one."""


class Target:
    """A target stream that this import owns.

    Use `Target.take`, holding the lease. Its epochs are always a beginning of the plan's.

    Attributes:
        resumed: whether an unfinished import is gone on with.
        epoch: the newest epoch it has.
    """

    def __init__(self, store: StreamStore, name: StreamName, plan: RestorePlan, *, resumed: bool) -> None:
        self._store = store
        self._name = name
        self._plan = plan
        self.resumed = resumed
        self.epoch = 0

    @classmethod
    def is_finished(cls, store: StreamStore, name: StreamName, plan: RestorePlan) -> bool:
        """Whether the target looks like a finished restore of this plan: all but the bytes is as planned.

        One that somebody wrote to since does not.
        """
        if not store.exists(name):
            return False
        described = store.describe(name)
        ends = {segment: plan.segments[segment].end for segment in plan.replay.epochs[-1].segments}
        return (
            described.configuration == plan.configuration
            and tuple(described.epochs) == plan.replay.epochs
            and described.head.offsets == plan.head.offsets
            and described.tail.offsets == ends
            and described.sealed == plan.sealed
        )

    @classmethod
    def take(cls, store: StreamStore, name: StreamName, plan: RestorePlan, *, verified: bool) -> Target:
        """Make the target, or go on with this import's unfinished one.

        Args:
            store: where it is.
            name: of the target.
            plan: what is to stand there.
            verified: an earlier run of this import had verified the target and was setting its policies: it may have
                lost its mark already.

        Raises:
            TargetTaken: something else is there.
        """
        if not store.exists(name):
            _create(store, name, plan)
            return cls(store, name, plan, resumed=False)
        described = store.describe(name)
        if mark(plan) not in described.configuration.tags and not verified:
            raise taken(name, marked_work(described), plan)
        if not _begun_right(described, plan):
            if verified or _has_data(described):
                raise taken(name, marked_work(described), plan)
            store.delete(name)
            _create(store, name, plan)
            described = store.describe(name)
        target = cls(store, name, plan, resumed=True)
        target.epoch = described.epochs[-1].number
        return target

    def scale(self, step: ScaleStep) -> None:
        """Replay one scale; what it seals is full.

        Raises:
            Failed: the store numbered the new segments in another way than expected.
        """
        expected = self._plan.replay.epochs[step.epoch]
        self._allow(len(expected.segments))
        made = self._store.scale(self._name, step.seal, step.ranges)
        self.epoch = made.number
        if made != expected:
            raise Failed(
                f"the store made other segments in epoch {step.epoch} than the source has",
                where=f"{self._name}: {_text(made)} instead of {_text(expected)}",
                todo="Please report this with the stream's scale history.",
            )

    def _allow(self, segments: int) -> None:
        """See that the policy lets the stream have so few segments; a store refuses to scale below its minimum."""
        if segments < len(self._plan.replay.first.segments):
            configuration = self._store.describe(self._name).configuration
            if configuration.scaling.min_segments > segments:
                self._store.update_stream(self._name, replace(configuration, scaling=ANY_NUMBER))

    def finish(self) -> None:
        """Set the head, then the source's policies and tags (which takes the mark away), then seal.

        Raises:
            Failed: the stream has other epochs than it was given: somebody else scaled it.
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
        if described.head.offsets != self._plan.head.offsets:
            self._store.truncate(replace(self._plan.head, stream=self._name))
        if described.configuration != self._plan.configuration:
            self._store.update_stream(self._name, self._plan.configuration)
        if self._plan.sealed:
            self._store.seal(self._name)


def mark(plan: RestorePlan) -> str:
    """The tag on an unfinished target: whose it is."""
    return MARK + plan.work


def _create(store: StreamStore, name: StreamName, plan: RestorePlan) -> None:
    """Make the target with the source's first segments, under a fixed policy and marked."""
    first = plan.replay.first
    wanted = min(segment.number for segment in first.segments)
    marked = StreamConfiguration(
        scaling=Scaling(kind=ScaleKind.FIXED, min_segments=len(first.segments)), tags=(mark(plan),)
    )
    store.create_stream(name, marked)
    made = store.describe(name).epochs[0]
    number = min(segment.number for segment in made.segments)
    if number < wanted:
        # The source was deleted and made again, so its numbers start above 0. A store goes on numbering in a stream
        # that is made again: use up the numbers before.
        store.delete(name)
        used = replace(marked, scaling=replace(marked.scaling, min_segments=wanted - number))
        store.create_stream(name, used)
        store.delete(name)
        store.create_stream(name, marked)
        made = store.describe(name).epochs[0]
    if made != first:
        store.delete(name)
        raise Conflict(
            f"a stream of this name was there before, so its segments would be numbered from {number}, not {wanted}",
            where=str(name),
            todo="Choose a name that was never used.",
        )


def _begun_right(described: StreamDescription, plan: RestorePlan) -> bool:
    return tuple(described.epochs) == plan.replay.epochs[: len(described.epochs)]


def _has_data(described: StreamDescription) -> bool:
    return len(described.epochs) > 1 or any(described.tail.offsets.values())


def taken(name: StreamName, begun: str, plan: RestorePlan) -> TargetTaken:
    """What to say of a target that is not this import's.

    Args:
        name: of the target.
        begun: the unfinished import that it belongs to (`unfinished_work`); empty if it is none's.
        plan: what was to be restored.
    """
    what, todo = "the stream exists", "Choose another name, or delete it first."
    if begun:
        what, generation = "another import's unfinished stream", generation_of(begun)
        if generation is not None and generation != plan.generation:
            what = f"the unfinished stream of an import up to generation {generation}, not {plan.generation}"
            todo = f"Try --generation {generation}, choose another name, or delete it first."
    return TargetTaken(what, where=str(name), todo=todo)


def _text(epoch: Epoch) -> str:
    return ", ".join(f"{segment} [{held.low!r}, {held.high!r})" for segment, held in epoch.segments.items())
