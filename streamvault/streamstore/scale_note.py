"""The note in the tags of a stream that is scaled for an append: what it gets back afterwards.

While events are appended to a stream whose key ranges are finer than those of the sources, some of its segments are
merged, and its policy lets the store scale nothing. The note is set together with that policy, before the first scale.
So whoever finds it knows the policy and the key ranges before, even if the append was killed; and to those who only
read the stream, it has the policy that its user has set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from streamvault.streamstore.model import KeyRange, ScaleKind, Scaling, StreamConfiguration

SCALED = "streamvault-scaled:"
"""Prefix of the tag that has the note."""

MEANWHILE = Scaling.never()
"""The policy of a stream that is scaled for an append."""


@dataclass(frozen=True, slots=True)
class ScaleNote:
    """What a stream gets back.

    Attributes:
        first: which stream it is about, see `importer.ownership.first_segment_id`.
        former: the epoch that has the key ranges.
        made: the epoch that the newest scale for an append makes; the epochs between are of earlier ones.
        ranges: tells the key ranges of that scale's new segments from others, see `ranges_digest`.
        lease: name of the lease of the append that has set it, in the stream's scope.
        scaling: the policy.
    """

    first: str
    former: int
    made: int
    ranges: str
    lease: str
    scaling: Scaling

    def tag(self) -> str:
        """Return the tag."""
        policy = self.scaling
        fields = (self.first, self.former, self.made, self.ranges, self.lease)
        return SCALED + ",".join(
            map(str, (*fields, policy.kind.value, policy.target, policy.factor, policy.min_segments))
        )

    @classmethod
    def of(cls, configuration: StreamConfiguration) -> ScaleNote | None:
        """Return the note among a stream's tags; None if there is none."""
        return next(filter(None, map(cls.parse, configuration.tags)), None)

    @classmethod
    def parse(cls, tag: str) -> ScaleNote | None:
        """Parse the output of `tag`; None if it is another text."""
        with suppress(ValueError):
            if tag.startswith(SCALED):
                first, former, made, ranges, lease, kind, *numbers = tag.removeprefix(SCALED).split(",")
                target, factor, least = map(int, numbers)
                if not 0 <= int(former) < int(made):
                    raise ValueError
                scaling = Scaling(ScaleKind(kind), target, factor, least)
                return cls(first, int(former), int(made), ranges, lease, scaling)
        return None


def users_configuration(configuration: StreamConfiguration) -> StreamConfiguration:
    """Return the configuration that a stream's user has set: without a note, and with the policy that is in it.

    A policy that the user has set meanwhile is the user's.
    """
    note = ScaleNote.of(configuration)
    if note is None:
        return configuration
    scaling = note.scaling if configuration.scaling == MEANWHILE else configuration.scaling
    return replace(configuration, scaling=scaling, tags=_without_note(configuration))


def noted(configuration: StreamConfiguration, note: ScaleNote) -> StreamConfiguration:
    """Return the configuration of a stream that is scaled for an append."""
    return replace(configuration, scaling=MEANWHILE, tags=(*_without_note(configuration), note.tag()))


def ranges_digest(ranges: Iterable[KeyRange]) -> str:
    """Return a short digest of key ranges, in any order."""
    return hashlib.sha256(repr(sorted((held.low, held.high) for held in ranges)).encode()).hexdigest()[:16]


def _without_note(configuration: StreamConfiguration) -> tuple[str, ...]:
    return tuple(tag for tag in configuration.tags if not tag.startswith(SCALED))
