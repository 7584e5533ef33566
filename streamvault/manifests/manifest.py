"""The manifest of a generation, and its components. `docs/reference/format.md` describes the fields.

A manifest must be consistent: cuts with epochs, segments and gaps with cuts, totals with segments. It contains no keys;
they are derived from its numbers.
"""

from __future__ import annotations

import builtins
import hashlib
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from streamvault.common.errors import Usage
from streamvault.common.report import charts_of, html_of
from streamvault.layouts.keys import GenerationSpan
from streamvault.layouts.layout import Compression, LayoutName, layout_of, open_layout
from streamvault.manifests.epochs import EpochTexts
from streamvault.manifests.files import (
    MAX_COUNT,
    NUMBER,
    UNSUPPORTED,
    Count,
    Cut,
    Digest,
    File,
    Model,
    Moment,
    Offset,
    Positive,
    SegmentName,
    segment_key,
    value_errors,
)
from streamvault.streamstore.cuts import is_before, segments_between
from streamvault.streamstore.model import (
    ContentKind,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamDescription,
    StreamName,
)


def _not_null(value: object, info: ValidationInfo) -> object:
    if value is None and info.context and issubclass(info.context, GenerationModel):
        raise ValueError("null, which only its absence may mean")
    return value


NOT_NULL = AfterValidator(_not_null)
"""Of a member that may be None here: in the file of a manifest or plan it is then absent. Tables' plans have null."""

Setting = Annotated[int, Field(ge=-1, le=0x7FFFFFFFFFFFFFFF)]

MAX_SCHEMA_BYTES = 1024 * 1024
"""Maximum size of a schema, in base64 (bytes)."""

MAX_GROUP_BYTES = 8 * 1024 * 1024
"""Maximum size of all schemas that a generation notes, in base64 (bytes)."""

MAX_SCHEMAS = 1000
"""Maximum encodings that a generation notes."""

MAX_INDEX_BYTES = 1024 * 1024 * 1024
"""Maximum size of an index of ranges: enough for half a petabyte, or a sixth of a petabyte if compressed."""


@cache
def load_index_code() -> None:
    """Import what reads and writes indexes in a thread: loading pyarrow takes about as long as the first requests."""
    module = "streamvault.manifests.index"
    threading.Thread(target=import_module, args=(module,), name="import of pyarrow").start()


class ScalingEntry(Model):
    """A scaling policy; `target` is events or kilobytes per second and segment."""

    kind: ScaleKind
    target: Count
    factor: Count
    min_segments: Positive

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


_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


class SchemaVersion(Model):
    """A version of a schema of a group of Pravega's Schema Registry.

    `type` is the record's name and `format` the kind of its schema, as the registry has them. `data` is the schema's
    bytes in base64, in memory once for all generations that have noted it.
    """

    type: Annotated[str, Field(max_length=1000)]
    format: Annotated[str, Field(min_length=1, max_length=100)]
    version: Annotated[int, Field(ge=0, le=0x7FFFFFFF)]
    data: Annotated[str, Field(pattern=_BASE64, max_length=MAX_SCHEMA_BYTES), AfterValidator(sys.intern)]

    @property
    def key(self) -> tuple[str, str, int]:
        """What the version is called in its group."""
        return self.format, self.type, self.version


class SchemaEntry(SchemaVersion):
    """A version of a schema and a codec: what an encoding id in an event's header stands for.

    `codec` is how payloads are compressed, empty if they are not.
    """

    encoding: Annotated[int, Field(ge=0, le=0x7FFFFFFF)]
    codec: Annotated[str, Field(max_length=100)]


class SchemaGroup(Model):
    """The encodings of a group of Pravega's Schema Registry after a generation's tail was taken, by id.

    `unused` are the schemas without an encoding, and `settings` the group's other properties, as the registry's JSON.
    Earlier releases have noted neither.
    """

    group: Annotated[str, Field(min_length=1, max_length=1000)]
    entries: Annotated[tuple[SchemaEntry, ...], Field(max_length=MAX_SCHEMAS)]
    unused: Annotated[tuple[SchemaVersion, ...], Field(max_length=MAX_SCHEMAS)] = ()
    settings: Annotated[str, Field(max_length=MAX_SCHEMA_BYTES)] = ""

    @model_validator(mode="after")
    def _is_sorted(self) -> Self:
        found = [one.encoding for one in self.entries]
        if found != sorted(set(found)):
            raise ValueError("encodings are not sorted, each once")
        if sum(len(one.data) for one in (*self.entries, *self.unused)) > MAX_GROUP_BYTES:
            raise ValueError(f"the schemas of {self.group} have more than {MAX_GROUP_BYTES} bytes in base64")
        return self

    @classmethod
    def union(cls, groups: Iterable[SchemaGroup | None]) -> SchemaGroup | None:
        """Return the encodings of several generations, oldest first; None if none of them has noted any.

        Raises:
            ValueError: two have different groups, or different schemas for the same encoding or version, as of a
                registry that was set up anew.
        """
        noted = [group for group in groups if group is not None]
        if not noted:
            return None
        entries: dict[int, SchemaEntry] = {}
        unused: dict[tuple[str, str, int], SchemaVersion] = {}
        versions: dict[tuple[str, str, int], str] = {}
        for group in noted:
            if group.group != noted[0].group:
                raise ValueError(f"the schema groups {noted[0].group} and {group.group} differ")
            for entry in group.entries:
                if entries.setdefault(entry.encoding, entry) != entry:
                    raise ValueError(f"encoding {entry.encoding} of {group.group} has two schemas")
            unused.update((one.key, one) for one in group.unused)
            for one in (*group.entries, *group.unused):
                if versions.setdefault(one.key, one.data) != one.data:
                    raise ValueError(f"version {one.version} of {one.type} in {group.group} has two schemas")
        used = {one.key for one in entries.values()}
        return cls(
            group=noted[0].group,
            entries=tuple(entries[number] for number in sorted(entries)),
            unused=tuple(unused[key] for key in sorted(unused) if key not in used),
            settings=next((one.settings for one in reversed(noted) if one.settings), ""),
        )


class Witness(Model):
    """The last bytes of a segment before a cut, by which a different stream of the same name is recognized.

    `digest` is the SHA-256 of the `length` bytes at `offset`.
    """

    segment: SegmentName
    offset: Offset
    length: Annotated[int, Field(ge=1, le=1024 * 1024)]
    digest: Digest


class Replaced(Model):
    """An original generation in a merged one: what is needed to restore the stream as it was then.

    `epochs` is the number of epochs at that time; the other fields are those of its own manifest.
    """

    generation: Annotated[int, Field(ge=1, le=0x7FFFFFFF)]
    created: Moment
    to: Cut
    epochs: Positive
    configuration: Configuration
    sealed: bool
    events: Count
    bytes: Count
    reader_groups: Annotated[tuple[GroupEntry, ...] | None, NOT_NULL] = None


FORMAT: Literal[2] = 2
"""The version of manifests and plans that are written. Of version 1, epochs are read otherwise."""

FEATURES: frozenset[str] = frozenset()
"""The features that this release knows."""


def _known(feature: str) -> str:
    if feature not in FEATURES:
        raise PydanticCustomError(UNSUPPORTED, "unsupported feature {name}", {"name": repr(feature[:100])})
    return feature


Feature = Annotated[str, AfterValidator(_known)]

_NOT_ITS_IDENTITY = frozenset({"format", "layout", "compression", "reader_groups", "line", "schemas"})


class GenerationModel(File):
    """The common fields of a generation's plan and manifest: the stream, its state at the time, and the cuts.

    `source` is the address of the stream's store as given by the user, for messages only. The stream is identified by
    its epochs and `witness`: the last bytes before the cut `to` of each segment that the source still had.
    `reader_groups` are those of its scope that read it; None if they were not asked for. `line` is the name of the
    archive's line, empty for a stream's first archive; None in archives of earlier releases. `schemas` are those by
    which its events are decoded; None if they were not asked for. `features` are what a reader must know.
    """

    format: Annotated[Literal[1, 2], NUMBER]
    generation: Annotated[int, Field(ge=1, le=0x7FFFFFFF)]
    created: Moment
    scope: str
    stream: str
    layout: LayoutName
    compression: Compression
    content: ContentKind = "events"
    configuration: Configuration
    epochs: EpochTexts
    from_: Annotated[Cut, Field(alias="from")]
    to: Cut
    source: Annotated[str, Field(max_length=4096)]
    witness: tuple[Witness, ...] = ()
    replaces: tuple[Replaced, ...] = ()
    reader_groups: Annotated[tuple[GroupEntry, ...] | None, NOT_NULL] = None
    line: Annotated[str | None, Field(max_length=64), NOT_NULL] = None
    schemas: Annotated[SchemaGroup | None, NOT_NULL] = None
    features: Annotated[tuple[Feature, ...], Field(repr=False)] = ()

    def is_same(self, other: GenerationModel) -> bool:
        """Check whether another plan or manifest is of the same generation of the same stream, merged or not.

        An earlier release leaves out the reader groups.
        """
        if self.replaces and not other.replaces:
            found = next((one for one in self.replaces if one.generation == other.generation), None)
            if found is None or found.epochs != len(other.epochs):
                return False
            return (found.created, found.to) == (other.created, other.to) and self.epochs.starts_with(other.epochs)
        compared = GenerationModel.model_fields.keys() - _NOT_ITS_IDENTITY
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    @property
    def first(self) -> int:
        """The first original generation it contains; its own number if it is not merged."""
        return self.replaces[0].generation if self.replaces else self.generation

    @property
    def originals(self) -> tuple[Replaced | Self, ...]:
        """The original generations it contains, oldest first; itself if it is not merged."""
        return self.replaces or (self,)

    @property
    def ends(self) -> Mapping[int, tuple[Moment, Cut]]:
        """Each original generation it contains → when it was created and where it ends, as no other archive has it."""
        return {one.generation: (one.created, one.to) for one in self.originals}

    @property
    def span(self) -> GenerationSpan:
        """The original generations it contains."""
        return GenerationSpan(self.first, self.generation)

    def document(self) -> Mapping[str, object]:
        """See `Model.document`; only a merged generation has `replaces`, only a published one `index` and `before`.

        `content` is left out if it is events, and `reader_groups` if they were not asked for, as in archives of earlier
        releases.
        """
        left_out = {name for name in ("replaces", "index", "features") if not getattr(self, name, None)}
        left_out |= {"content"} if self.content == "events" else set()
        left_out |= {name for name in ("line", "schemas", "before") if getattr(self, name, None) is None}
        document: dict[str, Any] = {name: value for name, value in super().document().items() if name not in left_out}
        document["format"] = FORMAT
        for one in (document, *document.get("replaces", ())):
            if one["reader_groups"] is None:
                del one["reader_groups"]
        for name in ("unused", "settings") if "schemas" in document else ():
            if not document["schemas"][name]:
                del document["schemas"][name]
        return document

    @property
    def name(self) -> StreamName:
        """The archived stream."""
        return StreamName(self.scope, self.stream)

    def require_events(self, where: str) -> None:
        """Check that the archive holds events.

        Args:
            where: the archive's name in messages.

        Raises:
            Usage: it holds bytes.
        """
        if self.content != "events":
            todo = "'streamvault import' restores it."
            raise Usage("the archive is of a byte stream, which has no events", where=where, todo=todo)

    def check_stream(self) -> None:
        """Raise ValueError unless name and epochs are valid and consistent."""
        with value_errors():
            _ = self.name
            layout_of(self.content, self.layout)
        if self.compression not in open_layout(self.layout).compressions:
            raise ValueError(f"layout {self.layout} cannot be compressed")
        if self.replaces:
            numbers = [one.generation for one in self.replaces]
            if len(numbers) < 2 or numbers != list(range(numbers[0], self.generation + 1)):
                raise ValueError("a merged generation must contain two or more consecutive ones up to its own number")
            if self.replaces[-1].to != self.to or any(one.epochs > len(self.epochs) for one in self.replaces):
                raise ValueError("a merged generation must end like the last one it contains")
        with value_errors():
            for noted in (self.reader_groups, *(one.reader_groups for one in self.replaces)):
                self._check_groups(noted or ())

    def _check_groups(self, groups: Iterable[GroupEntry]) -> None:
        described = self._described()
        for group in groups:
            if group.position is not None:
                is_before(described, group.position, group.position)  # raises if it is not a cut of the stream
            for cut in (group.start, group.end):
                if cut is not None and cut.stream != self.name:
                    raise ValueError(f"reader group {group.name} begins or ends in another stream: {cut.stream}")

    def check_segments(self, segments: Sequence[PlannedSegment], gaps: Sequence[GapEntry]) -> None:
        """Raise ValueError unless the segments are those between the cuts, with these bounds, and contain the gaps."""
        with value_errors():
            between = segments_between(self._described(), self.from_, self.to)
        prefix = f"{self.name}/"
        if [segment.name for segment in segments] != [f"{prefix}{key}" for key in between]:
            raise ValueError("segments are not those between the cuts, in order, each once")
        for segment, (start, end) in zip(segments, between.values(), strict=True):
            if segment.start > segment.end:
                raise ValueError(f"{segment.name} ends at {segment.end}, before it starts at {segment.start}")
            if segment.start != start or end not in {None, segment.end}:
                raise ValueError(f"{segment.name} does not start and end at the cuts")
        last = self.epochs[-1].segments
        sealed = {(key in last, segment.sealed) for key, segment in zip(between, segments, strict=True)}
        if (False, False) in sealed or {(True, False), (True, True)} <= sealed:
            raise ValueError("a segment is sealed that is open in the last epoch, or the other way round")
        cut = self.to.to_json()
        for seen in self.witness:
            if cut.get(seen.segment) != seen.offset + seen.length:
                raise ValueError(f"the witness of {seen.segment} does not end at the cut")
        held = {segment.name: segment for segment in segments}
        for gap in gaps:
            around = held.get(gap.segment)
            if around is None or not around.start <= gap.start <= gap.end <= around.end:
                raise ValueError(f"a gap is outside the archived part of {gap.segment}")

    def _described(self) -> StreamDescription:
        return StreamDescription(self.name, self.configuration.value(), self.epochs, self.from_, self.to, sealed=False)


class IndexEntry(Model):
    """Size and SHA-256 of the index of ranges that belongs to a manifest."""

    bytes: Count
    digest: Digest

    @classmethod
    def of(cls, data: builtins.bytes) -> Self:
        """Return that of an index, given its file."""
        return cls(bytes=len(data), digest=hashlib.sha256(data).hexdigest())


class Totals(Model):
    """What generations have in all: `bytes` and `gap_bytes` are those of segments."""

    events: Count = 0
    bytes: Count = 0
    gap_bytes: Count = 0


class Manifest(GenerationModel):
    """A finished export of a stream, or several that were merged. `index` and `before` are set on publication.

    `before` has the totals of all generations before this one, expired ones included; None in archives of earlier
    releases, and in what follows them.
    """

    model_config = ConfigDict(title="Streamvault manifest")

    segments: tuple[SegmentEntry, ...]
    gaps: tuple[GapEntry, ...]
    events: Count
    bytes: Count
    range_size: Positive
    sealed: bool
    before: Annotated[Totals | None, NOT_NULL] = None
    index: IndexEntry | None = None
    tool: Annotated[str, Field(max_length=200)]

    @property
    def own(self) -> Counter[str]:
        """The totals of this generation alone, by the names in `Totals`; a forged one may have more than fit in."""
        gap_bytes = sum(gap.end - gap.start for gap in self.gaps)
        return Counter(events=self.events, bytes=self.bytes, gap_bytes=gap_bytes)

    @property
    def through(self) -> Totals | None:
        """The totals of all generations up to this one, itself included; None if it does not tell."""
        if self.before is None:
            return None
        found = Counter(dict(self.before))
        found.update(self.own)
        return None if max(found.values()) > MAX_COUNT else Totals(**found)  # only a forged one tells so much

    @property
    def max_ranges(self) -> int:
        """The largest number of ranges it can have."""
        return self.events if self.content == "events" else self.bytes

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        self.check_stream()
        self.check_segments(self.segments, self.gaps)
        if self.events != sum(s.events for s in self.segments) or self.bytes != sum(s.bytes for s in self.segments):
            raise ValueError("the totals are not the sums over the segments")
        return self

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return html_of(self.document(), charts_of(self))
