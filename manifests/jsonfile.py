"""Decoding of an archive's small JSON files into models; any error is one line."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from common.errors import Damaged
from manifests.entries import File, is_sealed, one_line

__all__ = ["decode"]

M = TypeVar("M", bound=BaseModel)


def decode(model: type[M], data: bytes, where: str) -> M:
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
    if issubclass(model, File) and not is_sealed(data):
        raise Damaged("the file was changed after it was written (its SHA-256 does not match)", where=where)
    return made
