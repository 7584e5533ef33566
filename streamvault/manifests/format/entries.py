"""Components of manifests and plans: configuration, epochs, segments, gaps, witnesses."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from streamvault.manifests.format.field_types import (
    Count,
    Cut,
    Digest,
    Offset,
    SegmentName,
    SegmentNumber,
    segment_key,
)
from streamvault.manifests.format.jsonfile import Model
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
)

Setting = Annotated[int, Field(ge=-1, le=0x7FFFFFFFFFFFFFFF)]


class ScalingEntry(Model):
    """A scaling policy; `target` is events or kilobytes per second and segment."""

    kind: ScaleKind
    target: Count
    factor: Count
    min_segments: Annotated[int, Field(ge=1)]

    def value(self) -> Scaling:
        """Return the stream store's value."""
        return Scaling(self.kind, self.target, self.factor, self.min_segments)


class RetentionEntry(Model):
    """A retention policy, in milliseconds or bytes."""

    kind: RetentionKind
    minimum: Count
    maximum: Count

    def value(self) -> Retention:
        """Return the stream store's value."""
        return Retention(self.kind, self.minimum, self.maximum)


class Configuration(Model):
    """A stream's configuration, as set by users."""

    scaling: ScalingEntry
    retention: RetentionEntry
    tags: tuple[str, ...]
    rollover_bytes: Count = 0
    timestamp_aggregation_timeout: Count = 0

    @classmethod
    def of(cls, value: StreamConfiguration) -> Self:
        """Create it from the stream store's value."""
        return cls.model_validate(value, from_attributes=True)

    def value(self) -> StreamConfiguration:
        """Return the stream store's value."""
        fields = {**dict(self), "scaling": self.scaling.value(), "retention": self.retention.value()}
        return StreamConfiguration(**fields)


class EpochSegment(Model):
    """A segment of an epoch: its int64 id (epoch << 32 | number) and its key range [low, high)."""

    id: SegmentNumber
    low: Annotated[float, Field(ge=0, le=1)]
    high: Annotated[float, Field(ge=0, le=1)]


FLOAT_SLACK = 1e-12
"""Tolerance for a key space that ends below 1.0: Pravega's default ranges for 49 segments end an ulp below it."""


class EpochEntry(Model):
    """The segments of an epoch, which is the period between two scales; their key ranges cover [0, 1) exactly once."""

    epoch: Annotated[int, Field(ge=0, le=0x7FFFFFFF)]
    segments: tuple[EpochSegment, ...]

    @model_validator(mode="after")
    def _covers(self) -> Self:
        at = 0.0
        for segment in sorted(self.segments, key=lambda s: s.low):
            if segment.low != at or segment.high <= at:
                raise ValueError(f"epoch {self.epoch} does not cover the key space exactly once")
            at = segment.high
        if not 1.0 - FLOAT_SLACK < at <= 1.0:
            raise ValueError(f"epoch {self.epoch} does not cover the key space exactly once")
        if len({segment.id for segment in self.segments}) != len(self.segments):
            raise ValueError(f"epoch {self.epoch} has a segment twice")
        if any(SegmentId.of(segment.id).epoch > self.epoch for segment in self.segments):
            raise ValueError(f"epoch {self.epoch} has a segment of a later epoch")
        return self

    @classmethod
    def of(cls, value: Epoch) -> Self:
        """Create it from the stream store's value."""
        segments = tuple(EpochSegment(id=s.value, low=r.low, high=r.high) for s, r in value.segments.items())
        return cls(epoch=value.number, segments=segments)

    def value(self) -> Epoch:
        """Return the stream store's value."""
        return Epoch(self.epoch, {SegmentId.of(s.id): KeyRange(s.low, s.high) for s in self.segments})


class PlannedSegment(Model):
    """A segment between the plan's cuts: its bytes from `start` to `end` are archived, except for gaps."""

    name: SegmentName
    start: Offset
    end: Offset
    sealed: bool

    @property
    def id(self) -> SegmentId:
        """The segment's id."""
        return segment_key(self.name)


class SegmentEntry(PlannedSegment):
    """A generation's part of a segment: its bytes from `start` to `end`, except for gaps.

    `bytes` includes event headers; `digest` is the SHA-256 of the raw digests of its ranges, in order.
    """

    events: Count
    bytes: Count
    digest: Digest


class GapEntry(Model):
    """Bytes of a segment that were truncated before they could be archived."""

    segment: SegmentName
    start: Offset
    end: Offset
    reason: Annotated[str, Field(max_length=1000)]

    @property
    def id(self) -> SegmentId:
        """The segment's id."""
        return segment_key(self.segment)


class GroupEntry(Model):
    """A reader group that read the stream when the generation's tail was taken, or right before.

    `position` is where it would have gone on in the stream if all of its readers had been lost; None if that could not
    be told. `problem` is why it cannot be created for a restored stream; empty if it can. `start` and `end` are the
    cuts between which it reads; None for no bound.
    """

    name: Annotated[str, Field(min_length=1, max_length=255)]
    position: Cut | None = None
    problem: Annotated[str, Field(max_length=1000)] = ""
    id: Annotated[str, Field(pattern=r"^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?$")] = ""
    start: Cut | None = None
    end: Cut | None = None
    refresh_millis: Setting = 0
    checkpoint_millis: Setting = 0
    most_checkpoints: Setting = 0
    retention: Setting = 0

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.position is None) != (not self.id) or not (self.position or self.problem):
            raise ValueError(f"reader group {self.name} has neither a position with an id nor a reason for having none")
        return self


class Witness(Model):
    """The last bytes of a segment before a cut, by which a different stream of the same name is recognized.

    `digest` is the SHA-256 of the `length` bytes at `offset`.
    """

    segment: SegmentName
    offset: Offset
    length: Annotated[int, Field(ge=1, le=1024 * 1024)]
    digest: Digest
