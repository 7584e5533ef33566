"""JSON files that contain their own SHA-256: how they are written, read and validated."""

from __future__ import annotations

import builtins
import hashlib
import json
import re
from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from streamvault.common.errors import Damaged, Failed
from streamvault.common.plain_json import MOST_VALUES, check_names, has_too_many
from streamvault.objectstore.deciding import decide
from streamvault.objectstore.errors import NoSuchObject
from streamvault.objectstore.store import SMALL, ObjectStore


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


def decode(model: type[F], data: bytes, where: str) -> F:
    """Decode and validate a file's content.

    Raises:
        Damaged: it is not complete JSON, has a name twice, has too many values, or does not fit the model; names
            the file and the first error.
    """
    if has_too_many(data):
        raise Damaged(f"not a valid file (more than {MOST_VALUES} values)", where=where)
    try:
        made = model.model_validate_json(data)
        check_names(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "json_invalid":
            raise Damaged("not complete JSON (truncated?)", where=f"{where}: {one_line(first['msg'])}") from None
        if place == "format" and first["type"] == "literal_error":
            raise Damaged("unsupported format version", where=where, todo="Use a newer release.") from None
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
