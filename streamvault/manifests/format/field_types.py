"""Types of the fields of manifests and plans.

A manifest comes from a bucket that others may write to. So names are parsed, numbers are bounded, and types are strict:
a number in quotes is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from streamvault.common.errors import Usage
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName

Offset = Annotated[int, Field(ge=0, le=0x7FFFFFFFFFFFFFFF)]
Count = Annotated[int, Field(ge=0, le=0x7FFFFFFFFFFFFFFF)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256, lower-case hexadecimal")]

Checksum = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9+/]{11}=)?$", description="CRC64NVME, base64; empty if it is not known")
]


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise `ValueError`, as validators must, in place of an error about a name or a cut."""
    try:
        yield
    except Usage as error:
        raise ValueError(str(error)) from None


def _segment_name(value: str) -> str:
    owner, _, segment = value.rpartition("/")
    with value_errors():
        StreamName.parse(owner)
        SegmentId.parse(segment)
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
    with value_errors():
        SegmentId.of(value)
    return value


SegmentNumber = Annotated[Offset, AfterValidator(_segment_id)]


def _as_cut(value: object) -> object:
    if isinstance(value, StreamCut):
        return value
    with value_errors():
        return StreamCut.from_json(value)


Cut = Annotated[
    StreamCut,
    BeforeValidator(_as_cut, json_schema_input_type=dict[SegmentName, Offset]),
    PlainSerializer(lambda value: value.to_json(), return_type=dict[SegmentName, Offset]),
]


def segment_key(name: str) -> SegmentId:
    """Return the id in a valid full segment name."""
    return SegmentId.parse(name.rpartition("/")[2])
