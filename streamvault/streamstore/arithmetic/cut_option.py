"""Stream cuts as options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from streamvault.common.options import CommandLine, load_file
from streamvault.streamstore.arithmetic.cuts import EndOf, with_ends
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.java_cut import is_java_cut
from streamvault.streamstore.model import StreamCut, StreamName, is_pointer

Cut = str | Mapping[str, int]
"""JSON, the Java client's text, or full segment name → offset (bytes).

-1 stands for the end of a sealed segment (`SEGMENT_END`).
"""


def parse_cut(cut: Cut | None, stream: StreamName, end_of: EndOf) -> StreamCut | None:
    """Parse a stream cut that a user gave; None if none was given.

    Args:
        cut: the cut; of a mapping with the cuts of several streams, only that of this one counts.
        stream: the stream it must belong to.
        end_of: finds the ends of the stream's sealed segments.

    Raises:
        InvalidCut: it is not a cut of the stream, or the end of a segment is not known.
    """
    if cut is None:
        return None
    if isinstance(cut, Mapping):
        cut = {name: offset for name, offset in cut.items() if name.rpartition("/")[0] == str(stream)} or cut
    return with_ends(StreamCut.from_json(cut, stream, ends=True), end_of)


def load_cut(text: str, option: str) -> dict[str, int]:
    """Read a stream cut from JSON, from the Java client's text, or from a file that is named.

    A report of a promotion stands for its tail, that of a scope for those of all its streams.

    Args:
        text: the option's value.
        option: its name, for messages.

    Returns:
        Full segment name → offset (bytes).

    Raises:
        Usage: the file cannot be read, or holds no stream cut.
    """
    cuts = dict[str, int]()
    try:
        for each in _cuts(_source(text, option)):
            cuts |= StreamCut.from_json(each, ends=True).to_json()
    except InvalidCut as error:
        raise InvalidCut(error.what, where=f"{option}: {error.where or text}", todo=error.todo) from None
    return cuts


def load_position(text: str, option: str) -> Cut:
    """Read an event pointer, or a stream cut as `load_cut` does; either may be in a file that is named."""
    if is_pointer(text):
        return text
    pointer = _source(text, option).strip()
    return pointer if is_pointer(pointer) else load_cut(text, option)


def _source(text: str, option: str) -> str:
    if text.lstrip().startswith(("{", "[", '"')) or is_java_cut(text):
        return text
    return load_file(text, option, todo="Give a file's name or the cut itself, as JSON or as Java prints it.")


def _cuts(source: str) -> Sequence[object]:
    """Return the cuts that a text has: one, or the tails of a report."""
    try:
        found: Any = json.loads(source)
        reports = [each["result"] or {} for each in found["outcomes"]] if "outcomes" in found else [found]
        return [each["tail"] for each in reports if each.get("tail")] or [source]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [source]


FromCut = Annotated[
    SkipValidation[Cut | None],
    Field(description="Start at this stream cut: a file name, JSON, or the Java client's text form."),
    CommandLine(name="--from", metavar="CUT", load=load_cut),
]
ToCut = Annotated[
    SkipValidation[Cut | None],
    Field(description="Stop at this stream cut: a file name, JSON, or the Java client's text form."),
    CommandLine(name="--to", metavar="CUT", load=load_cut),
]
Ranges = Annotated[
    SkipValidation[Sequence[tuple[Cut, Cut]]],
    Field(
        description="Copy only the events between these two stream cuts. Repeat for several parts, copied one after "
        "the other."
    ),
    CommandLine(name="--range", metavar="FROM TO", load=load_cut, pair=True, environment=False),
]
