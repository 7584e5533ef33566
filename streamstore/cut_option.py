"""Stream cuts as options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, SkipValidation

from common.options import CommandLine, load_file
from streamstore.errors import InvalidCut
from streamstore.model import StreamCut

__all__ = ["Cut", "FromCut", "ToCut", "load_cut"]

Cut = str | Mapping[str, int]
"""JSON text, or full segment name → offset (bytes)."""


def load_cut(text: str, option: str) -> dict[str, int]:
    """Read a stream cut from JSON, or from a file that is named.

    Args:
        text: the option's value.
        option: its name, for messages.

    Returns:
        Full segment name → offset (bytes).

    Raises:
        Usage: the file cannot be read, or holds no stream cut.
    """
    source = text
    if not text.lstrip().startswith(("{", "[", '"')):
        source = load_file(text, option, todo="Give a file's name or the cut itself as JSON.")
    try:
        return StreamCut.from_json(source).to_json()
    except InvalidCut as error:
        raise InvalidCut(error.what, where=f"{option}: {error.where or text}", todo=error.todo) from None


FromCut = Annotated[
    SkipValidation[Cut | None],
    Field(description="Start at this stream cut: a file's name, or JSON."),
    CommandLine(name="--from", metavar="CUT", load=load_cut),
]
ToCut = Annotated[
    SkipValidation[Cut | None],
    Field(description="Stop at this stream cut: a file's name, or JSON."),
    CommandLine(name="--to", metavar="CUT", load=load_cut),
]
