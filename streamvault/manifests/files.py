"""JSON files that contain their own SHA-256: how they are written, read and validated, and their types of fields.

A manifest comes from a bucket that others may write to. So names are parsed, numbers are bounded, and types are
strict: a number in quotes is rejected. Of concurrent runs that decide on one file, the first writer wins.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic_core import ErrorDetails

from streamvault.common.errors import Damaged, Failed, Usage
from streamvault.common.waiting import pauses
from streamvault.objectstore.store import SMALL, AlreadyExists, NoSuchObject, ObjectStore, ObjectStoreUnavailable
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName

MOST_VALUES = 3_000_000
"""Values of a JSON text: 2 bytes can be a value that takes a hundred in memory."""

TRIES = 6
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 1.6
UNSUPPORTED = "unsupported"
"""The kind of a validation error by which a newer release's file is recognized."""


def has_too_many(text: bytes) -> bool:
    """Return whether a JSON text, which need not be parsed yet, may have more than `MOST_VALUES` values."""
    return len(text) > MOST_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES


def check_names(text: bytes) -> None:
    """Check that a text is JSON in which no object has a name twice: readers differ in which value they take.

    Raises:
        ValueError: it is not, or it is nested too deeply.
    """
    try:
        json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _once(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)!r:.100} twice in one object")


def decide(store: ObjectStore, key: str, data: bytes) -> tuple[bytes, bool]:
    """Create an object or read the existing one; return the deciding bytes and whether this call created it.

    If the object is deleted between the two requests, both are retried a few times.

    Raises:
        ObjectStoreUnavailable: the server reported the key as taken, then as missing, on every attempt.
        TooLarge: the existing object is too large to be a decision.
    """
    for _ in islice(pauses(math.inf, first=FIRST_PAUSE, longest=LONGEST_PAUSE), TRIES):
        try:
            store.put(key, data)
        except AlreadyExists:
            with suppress(NoSuchObject):
                return store.get(key), False
        else:
            return data, True
    raise ObjectStoreUnavailable(
        "the server reports the object as existing, then as missing",
        where=f"{store.uri}/{key}",
        todo="Try again later.",
    )


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
        if len(data) > SMALL or has_too_many(data):
            what = f"its {type(self).__name__.lower()} would have {len(data)} bytes; readers accept at most {SMALL}"
            raise Failed(f"the stream has too many segments and epochs: {what} and {MOST_VALUES} values")
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


def decide_file(store: ObjectStore, key: str, file: F) -> tuple[F, bool]:
    """Write a file, create-only; return the file in the store, and whether it is this one.

    Raises:
        Damaged: as for `decode`, of the existing file.
    """
    data, created = decide(store, key, file.encode())
    return (file if created else decode(type(file), data, f"{store.uri}/{key}")), created


def _is_newer(error: ErrorDetails) -> bool:
    """Return whether a validation error says that a newer release wrote the file, whatever else is wrong with it."""
    return error["type"] == UNSUPPORTED or (error["loc"] == ("format",) and error["type"] == "literal_error")


def decode(model: type[F], data: bytes, where: str) -> F:
    """Decode and validate a file's content.

    Raises:
        Damaged: it is not complete JSON, has a name twice, has too many values, or does not fit the model; names
            the file and the first error.
    """
    if has_too_many(data):
        raise Damaged(f"not a valid file (more than {MOST_VALUES} values)", where=where)
    try:
        check_names(data)
        made = model.model_validate_json(data, context=model, by_alias=True, by_name=False)
    except json.JSONDecodeError as error:
        raise Damaged("not complete JSON (truncated?)", where=f"{where}: {one_line(error)}") from None
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        first = next((one for one in errors if _is_newer(one)), errors[0])
        place = ".".join(str(part) for part in first["loc"])
        if _is_newer(first):
            what = first["msg"] if first["type"] == UNSUPPORTED else "unsupported format version"
            raise Damaged(one_line(what), where=where, todo="Use a newer release.") from None
        problem = one_line(f"{place}: {first['msg']}" if place else first["msg"])
        raise Damaged("not a valid file", where=f"{where}: {problem}") from None
    except ValueError as error:
        raise Damaged("not a valid file", where=f"{where}: {one_line(error)}") from None
    if not is_sealed(data):
        raise Damaged("the file was changed after it was written (its SHA-256 does not match)", where=where)
    return made


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, including those that change the writing direction."""


def one_line(error: object) -> str:
    """Return an error text about a file's content as one short line without control characters."""
    return _CONTROL.sub(" ", str(error))[:300]


MAX_COUNT = 0x7FFFFFFFFFFFFFFF
Positive = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Offset = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256, lower-case hexadecimal")]

Checksum = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9+/]{11}=)?$", description="CRC64NVME, base64; empty if it is not known")
]


def _number(value: object) -> object:
    if type(value) is not int and not (isinstance(value, float) and not value.is_integer()):
        raise ValueError("not an integer")
    return value


NUMBER = BeforeValidator(_number)
"""Of a version: another number is a newer release's, and what is no integer is damage, although ``2.0 == 2``."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise `ValueError`, as validators must, in place of an error about a name or a cut."""
    try:
        yield
    except Usage as error:
        raise ValueError(str(error)) from None


_stream_name = lru_cache(maxsize=16)(StreamName.parse)  # the segments of a file are of one stream


def _segment_name(value: str) -> str:
    owner, _, segment = value.rpartition("/")
    try:
        _stream_name(owner)
        SegmentId.parse(segment)
    except Usage as error:
        raise ValueError(str(error)) from None
    return value


SegmentName = Annotated[
    str, AfterValidator(_segment_name), Field(description="full name of a segment: scope/stream/N.#epoch.E")
]

_TIME = re.compile(
    r"(19[7-9]|2[0-9]{2})[0-9]-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)


def _as_time(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not _TIME.fullmatch(value):
        raise ValueError("not a time from 1970 to 2999 with its offset from UTC")
    return datetime.fromisoformat(value)


Moment = Annotated[
    datetime,
    BeforeValidator(_as_time),
    PlainSerializer(lambda value: value.astimezone(UTC).isoformat().replace("+00:00", "Z"), return_type=str),
]


def _as_cut(value: object) -> object:
    if isinstance(value, StreamCut):
        return value
    if isinstance(value, str):
        raise ValueError("a cut is an object")  # noqa: TRY004  (as validators must)
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
