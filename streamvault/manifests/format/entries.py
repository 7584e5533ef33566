"""Components of manifests and plans: validated names and numbers, configuration, epochs, segments, gaps, cuts.

A manifest comes from a bucket that others may write to. So names are parsed, numbers are bounded, and types are strict:
a number in quotes is rejected.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from streamvault.common.errors import Damaged, Failed
from streamvault.layouts.layout import Compression
from streamvault.layouts.layout import LayoutName as Layout
from streamvault.objectstore.errors import NoSuchObject
from streamvault.objectstore.store import SMALL, ObjectStore
from streamvault.streamstore.errors import InvalidCut, InvalidName
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamName,
)

__all__ = [
    "Compression",
    "Configuration",
    "Count",
    "Cut",
    "Digest",
    "EpochEntry",
    "File",
    "GapEntry",
    "Layout",
    "Model",
    "Moment",
    "Offset",
    "PlannedSegment",
    "SegmentEntry",
    "SegmentName",
    "Witness",
    "decode",
    "find_file",
    "is_sealed",
    "now_utc",
    "one_line",
    "seal",
    "segment_key",
]

Offset = Annotated[int, Field(ge=0, le=0x7FFFFFFFFFFFFFFF)]
Count = Annotated[int, Field(ge=0, le=0x7FFFFFFFFFFFFFFF)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256, lower-case hexadecimal")]


def _segment_name(value: str) -> str:
    owner, _, segment = value.rpartition("/")
    try:
        StreamName.parse(owner)
        SegmentId.parse(segment)
    except InvalidName as error:
        raise ValueError(str(error)) from None
    return value


SegmentName = Annotated[
    str, AfterValidator(_segment_name), Field(description="full name of a segment: scope/stream/N.#epoch.E")
]

Moment = Annotated[
    datetime,
    AfterValidator(lambda value: value if value.tzinfo else value.replace(tzinfo=UTC)),
    PlainSerializer(lambda value: value.astimezone(UTC).isoformat().replace("+00:00", "Z"), return_type=str),
]


class Model(BaseModel):
    """Base of all models: frozen; unknown fields are ignored, and not written again."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", populate_by_name=True, arbitrary_types_allowed=True
    )

    def encode(self) -> builtins.bytes:
        """Encode as a JSON file: equal values give equal bytes, and numbers are read back unchanged.

        Raises:
            Failed: the file would be larger than readers accept.
        """
        data = self._written()
        if len(data) > SMALL:
            what = f"its {type(self).__name__.lower()} would have {len(data)} bytes; readers accept at most {SMALL}"
            raise Failed(f"the stream has too many segments and epochs: {what}")
        return data

    def _written(self) -> builtins.bytes:
        return (json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n").encode()

    def document(self) -> Mapping[str, object]:
        """Return the model as plain JSON values, keys in order."""
        return self.model_dump(mode="json", by_alias=True)


_SEAL = b' "sha256": "'
_UNSEALED = b"0" * 64


class File(Model):
    """A model that is a whole file. Its last field, ``sha256``, is the digest of the file with zeros in its place.

    So any accidental change of the file is detected.
    """

    def _written(self) -> builtins.bytes:
        return seal(self.document())


def seal(document: Mapping[str, object]) -> builtins.bytes:
    """Encode a JSON file that contains its own SHA-256, see `File`."""
    text = (json.dumps({**document, "sha256": _UNSEALED.decode()}, indent=1, ensure_ascii=False) + "\n").encode()
    before, found, rest = text.rpartition(_SEAL)
    return before + found + hashlib.sha256(text).hexdigest().encode() + rest.removeprefix(_UNSEALED)


def is_sealed(data: builtins.bytes) -> bool:
    """Check whether a file is unchanged since `seal`."""
    before, found, rest = data.rpartition(_SEAL)
    digits, rest = rest[:64], rest[64:]
    return bool(found) and hashlib.sha256(before + found + _UNSEALED + rest).hexdigest().encode() == digits


F = TypeVar("F", bound=File)


def find_file(model: type[F], store: ObjectStore, key: str) -> F | None:
    """Read a file; return None if it does not exist.

    Raises:
        Damaged: as for `decode`.
    """
    try:
        data = store.get(key)
    except NoSuchObject:
        return None
    return decode(model, data, f"{store.uri}/{key}")


def decode(model: type[F], data: bytes, where: str) -> F:
    """Decode and validate a file's content.

    Raises:
        Damaged: it is not complete JSON, or does not fit the model; names the file and the first error.
    """
    try:
        made = model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "json_invalid":
            raise Damaged("not complete JSON (truncated?)", where=f"{where}: {one_line(first['msg'])}") from None
        if place == "format" and first["type"] == "literal_error":
            raise Damaged("unsupported format version", where=where, todo="Use a newer release.") from None
        problem = one_line(f"{place}: {first['msg']}" if place else first["msg"])
        raise Damaged("not a valid file", where=f"{where}: {problem}") from None
    if not is_sealed(data):
        raise Damaged("the file was changed after it was written (its SHA-256 does not match)", where=where)
    return made


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


def _segment_id(value: int) -> int:
    try:
        SegmentId.of(value)
    except InvalidName as error:
        raise ValueError(str(error)) from None
    return value


class EpochSegment(Model):
    """A segment of an epoch: its int64 id (epoch << 32 | number) and its key range [low, high)."""

    id: Annotated[Offset, AfterValidator(_segment_id)]
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


class Witness(Model):
    """The last bytes of a segment before a cut, by which a different stream of the same name is recognized.

    `digest` is the SHA-256 of the `length` bytes at `offset`.
    """

    segment: SegmentName
    offset: Offset
    length: Annotated[int, Field(ge=1, le=1024 * 1024)]
    digest: Digest


def _as_cut(value: object) -> object:
    if isinstance(value, StreamCut):
        return value
    try:
        return StreamCut.from_json(value)
    except InvalidCut as error:
        raise ValueError(str(error)) from None


Cut = Annotated[
    StreamCut,
    BeforeValidator(_as_cut, json_schema_input_type=dict[SegmentName, Offset]),
    PlainSerializer(lambda value: value.to_json(), return_type=dict[SegmentName, Offset]),
]


def segment_key(name: str) -> SegmentId:
    """Return the id in a valid full segment name."""
    return SegmentId.parse(name.rpartition("/")[2])


def now_utc() -> datetime:
    """Return the current time in UTC, in milliseconds."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, including those that change the writing direction."""


def one_line(error: object) -> str:
    """Return an error text about a file's content as one short line without control characters."""
    return _CONTROL.sub(" ", str(error))[:300]
