"""Reading a small JSON file of an archive into a model, with every way it can be wrong as one line."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from common.errors import Damaged
from manifests.entries import File, is_sealed, one_line

__all__ = ["decode"]

M = TypeVar("M", bound=BaseModel)


def decode(model: type[M], data: bytes, where: str) -> M:
    """Validate a file's content.

    Raises:
        Damaged: not JSON (cut short), or not what the model asks for; names the file and the first thing wrong.
    """
    try:
        made = model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "json_invalid":
            raise Damaged("not whole JSON (cut short?)", where=f"{where}: {one_line(first['msg'])}") from None
        if place == "format" and first["type"] == "literal_error":
            raise Damaged("a format this version does not read", where=where, todo="Use a newer streamvault.") from None
        said = one_line(f"{place}: {first['msg']}" if place else first["msg"])
        raise Damaged("not a valid file", where=f"{where}: {said}") from None
    if issubclass(model, File) and not is_sealed(data):
        raise Damaged("the file is not as it was written (its own SHA-256 is another)", where=where)
    return made
