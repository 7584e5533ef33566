"""The manifest of a generation; `docs/format.md` describes the fields, `schema.json` is made from here.

What is read is held against itself: cuts against epochs, segments and gaps against cuts, totals against segments. No
key is ever taken from a manifest; keys are derived from its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import ConfigDict, Field, model_validator

from layouts.keys import GenerationSpan
from layouts.layout import open_layout
from manifests.entries import (
    Compression,
    Configuration,
    Count,
    Cut,
    Digest,
    EpochEntry,
    File,
    GapEntry,
    Layout,
    Model,
    Moment,
    SegmentEntry,
    SegmentName,
    Witness,
    now_utc,
    one_line,
    segment_key,
)
from streamstore.cuts import segments_between
from streamstore.errors import InvalidCut, InvalidName
from streamstore.model import KeyRange, SegmentId, StreamDescription, StreamName

__all__ = [
    "Compression",
    "Configuration",
    "Digest",
    "EpochEntry",
    "GapEntry",
    "GenerationModel",
    "IndexEntry",
    "Layout",
    "Manifest",
    "Replaced",
    "SegmentEntry",
    "SegmentName",
    "now_utc",
    "one_line",
    "segment_key",
]


class Stretch(Protocol):
    """A segment's bytes between a generation's cuts."""

    @property
    def name(self) -> str:
        """Full name."""

    @property
    def start(self) -> int:
        """First offset (bytes)."""

    @property
    def end(self) -> int:
        """Offset after the last byte."""


class Replaced(Model):
    """An original generation that a merged one stands for: what is needed to restore the stream as it was then.

    `epochs` is how many epochs it knew; the rest is what its own manifest said.
    """

    generation: Annotated[int, Field(ge=1, le=0x7FFFFFFF)]
    created: Moment
    to: Cut
    epochs: Annotated[int, Field(ge=1)]
    configuration: Configuration
    sealed: bool
    events: Count
    bytes: Count


class GenerationModel(File):
    """What plan and manifest of a generation have in common: which stream, as it was then, between which cuts.

    `source` is the address of the stream's store as it was given, for messages only. Which stream it is, epochs and
    `witness` say: the last bytes before the cut `to` of each segment that the source still had.
    """

    format: Literal[1]
    generation: Annotated[int, Field(ge=1, le=0x7FFFFFFF)]
    created: Moment
    scope: str
    stream: str
    layout: Layout
    compression: Compression = ""
    configuration: Configuration
    epochs: Annotated[tuple[EpochEntry, ...], Field(min_length=1)]
    from_: Annotated[Cut, Field(alias="from")]
    to: Cut
    source: Annotated[str, Field(max_length=4096)] = ""
    witness: tuple[Witness, ...] = ()
    replaces: tuple[Replaced, ...] = ()

    def in_common(self) -> dict[str, Any]:
        """What plan and manifest of a generation have in common, by field."""
        return {name: getattr(self, name) for name in GenerationModel.model_fields}

    def is_same(self, other: GenerationModel) -> bool:
        """Whether another plan or manifest is of the same generation of the same stream, merged since or not."""
        if self.replaces and not other.replaces:
            found = next((one for one in self.replaces if one.generation == other.generation), None)
            known = self.epochs[: found.epochs] if found else ()
            return found is not None and (found.created, found.to, known) == (other.created, other.to, other.epochs)
        mine, others = self.in_common(), other.in_common()
        return all(mine[name] == others[name] for name in mine if name not in {"layout", "compression"})

    @property
    def first(self) -> int:
        """The first original generation that it stands for; its own number if it is not merged of several."""
        return self.replaces[0].generation if self.replaces else self.generation

    @property
    def span(self) -> GenerationSpan:
        """The original generations that it stands for."""
        return GenerationSpan(self.first, self.generation)

    def document(self) -> Mapping[str, object]:
        """See `Model.document`; only a merged generation has `replaces`, and only a published one `index`."""
        left_out = {name for name in ("replaces", "index") if not getattr(self, name, None)}
        return {name: value for name, value in super().document().items() if name not in left_out}

    @property
    def name(self) -> StreamName:
        """The stream."""
        return StreamName(self.scope, self.stream)

    def check_stream(self) -> None:
        """Raise ValueError unless name, epochs and cuts are those of one stream."""
        try:
            _ = self.name
        except InvalidName as error:
            raise ValueError(str(error)) from None
        if self.compression not in open_layout(self.layout).compressions:
            raise ValueError(f"layout {self.layout} is never compressed")
        if [epoch.epoch for epoch in self.epochs] != list(range(len(self.epochs))):
            raise ValueError("epochs are not numbered from 0 on")
        if self.replaces:
            numbers = [one.generation for one in self.replaces]
            if len(numbers) < 2 or numbers != list(range(numbers[0], self.generation + 1)):
                raise ValueError(
                    "a merged generation stands for two or more that follow each other up to its own number"
                )
            if self.replaces[-1].to != self.to or any(one.epochs > len(self.epochs) for one in self.replaces):
                raise ValueError("a merged generation does not end as the last that it stands for")
        ranges: dict[SegmentId, KeyRange] = {}
        for epoch in self.epochs:
            for segment, held in epoch.value().segments.items():
                if ranges.setdefault(segment, held) != held:
                    raise ValueError(f"segment {segment} has other keys in epoch {epoch.epoch}")

    def check_stretches(self, stretches: Sequence[Stretch], gaps: Sequence[GapEntry]) -> None:
        """Raise ValueError unless stretches are what lies between the cuts, and gaps lie in them."""
        try:
            between = segments_between(self._described(), self.from_, self.to)
        except InvalidCut as error:
            raise ValueError(str(error)) from None
        found = [stretch.name for stretch in stretches]
        if found != [segment.in_stream(self.name) for segment in between]:
            raise ValueError("segments are not those between the cuts, in order, each once")
        for stretch, (start, end) in zip(stretches, between.values(), strict=True):
            if stretch.start > stretch.end:
                raise ValueError(f"{stretch.name} ends at {stretch.end}, before it starts at {stretch.start}")
            if stretch.start != start or end not in {None, stretch.end}:
                raise ValueError(f"{stretch.name} does not start and end where the cuts say")
        cut = self.to.to_json()
        for seen in self.witness:
            if cut.get(seen.segment) != seen.offset + seen.length:
                raise ValueError(f"the witness of {seen.segment} does not end at the cut")
        held = {stretch.name: stretch for stretch in stretches}
        for gap in gaps:
            around = held.get(gap.segment)
            if around is None or not around.start <= gap.start <= gap.end <= around.end:
                raise ValueError(f"a gap lies outside of what is archived of {gap.segment}")

    def _described(self) -> StreamDescription:
        epochs = tuple(epoch.value() for epoch in self.epochs)
        return StreamDescription(self.name, self.configuration.value(), epochs, self.from_, self.to, sealed=False)


class IndexEntry(Model):
    """The index of ranges that belongs to a manifest: its file's size and SHA-256."""

    bytes: Count
    digest: Digest


class Manifest(GenerationModel):
    """One finished export of a stream, or several that were merged. `index` is set when it is published."""

    model_config = ConfigDict(title="Streamvault manifest")

    segments: tuple[SegmentEntry, ...]
    gaps: tuple[GapEntry, ...]
    events: Count
    bytes: Count
    range_size: Annotated[int, Field(ge=1)]
    sealed: bool
    index: IndexEntry | None = None
    tool: Annotated[str, Field(max_length=200)] = ""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        self.check_stream()
        self.check_stretches(self.segments, self.gaps)
        if self.events != sum(s.events for s in self.segments) or self.bytes != sum(s.bytes for s in self.segments):
            raise ValueError("the totals are not the sums over the segments")
        return self
