"""Types of the fields of manifests and plans.

A manifest comes from a bucket that others may write to. So names are parsed, numbers are bounded, and types are strict:
a number in quotes is rejected.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from streamvault.streamstore.errors import InvalidCut, InvalidName
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName

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


def _segment_id(value: int) -> int:
    try:
        SegmentId.of(value)
    except InvalidName as error:
        raise ValueError(str(error)) from None
    return value


SegmentNumber = Annotated[Offset, AfterValidator(_segment_id)]


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
