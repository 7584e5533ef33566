"""Reading a data source's options: what they are called, what they default to, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from common.errors import Usage
from common.sizes import parse_size
from streamstore.errors import InvalidCut
from streamstore.model import StreamCut, StreamName
from streamstore.uri import StoreAddress, parse_stream

__all__ = ["Options", "stream_of"]

T = TypeVar("T")

_SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
"""What Spark itself passes on with the options of a source."""

_BOOLEANS = {"true": True, "false": False}


class Options:
    """The options of one use of a data source. Names are not case-sensitive.

    Args:
        format_: the source's name, for messages.
        given: as Spark hands them over.
        known: every option that there is.

    Raises:
        Usage: an option that there is not; says which there are.
    """

    def __init__(self, format_: str, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._format = format_
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower() for name in known}
        unknown = sorted(name for name in self._given if name not in names and name not in _SPARKS_OWN)
        if unknown:
            raise self.wrong(unknown[0], "there is no such option", f"There are {', '.join(known)}.")

    def text(self, *names: str) -> str | None:
        """The value of an option that may have several names; None if it is not given.

        Raises:
            Usage: it is given under two names, or empty.
        """
        given = [name for name in names if name.lower() in self._given]
        if len(given) > 1:
            raise self.wrong(given[1], f"it is the same as {given[0]}", "Give one of them.")
        if not given:
            return None
        value = self._given[given[0].lower()].strip()
        if not value:
            raise self.wrong(given[0], "it is empty")
        return value

    def number(self, name: str, *, least: int = 0) -> int | None:
        """A whole number."""

        def read(text: str) -> int:
            value = int(text)
            if value < least:
                raise ValueError(f"less than {least}")
            return value

        return self._read(name, read, f"Give a whole number from {least} on.")

    def size(self, name: str) -> int | None:
        """A number of bytes: ``1048576``, ``64MiB``."""
        return self._read(name, parse_size, "Give a size, e.g. 64MiB.")

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        found = self._read(name, lambda text: _BOOLEANS[text.lower()], "Give true or false.")
        return default if found is None else found

    def choice(self, name: str, among: tuple[str, ...]) -> str:
        """One of a few words; the first is the default."""

        def read(text: str) -> str:
            return among[[word.lower() for word in among].index(text.lower())]

        return self._read(name, read, f"Give one of {', '.join(among)}.") or among[0]

    def words(self, name: str) -> list[str] | None:
        """Words with commas between them."""
        text = self.text(name)
        return None if text is None else [word.strip() for word in text.split(",")]

    def cut(self, stream: StreamName, *names: str, default: str) -> StreamCut | str:
        """A stream cut as JSON, or ``earliest``, or ``latest``."""
        text = self.text(*names) or default
        if text.lower() in {"earliest", "latest"}:
            return text.lower()
        try:
            return StreamCut.from_json(text, stream)
        except InvalidCut as error:
            todo = error.todo or "Give earliest, latest, or a stream cut as JSON."
            where = f"option {names[0]} of format {self._format}: {error.where or text}"
            raise InvalidCut(error.what, where=where, todo=todo) from None

    def wrong(self, name: str, what: str, todo: str = "") -> Usage:
        """The error to raise for an option."""
        return Usage(what, where=f"option {name} of format {self._format}", todo=todo)

    def _read(self, name: str, read: Callable[[str], T], todo: str) -> T | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return read(text)
        except (ValueError, KeyError):
            raise self.wrong(name, f"{text!r} cannot be meant", todo) from None


def stream_of(options: Options) -> tuple[StoreAddress, StreamName]:
    """The stream that ``controller``, ``scope`` and ``stream`` name, or ``load(URI)``.

    Raises:
        Usage: one is missing. InvalidName: it is no stream's URI.
    """
    parts = {name: options.text(name) for name in ("controller", "scope", "stream")}
    uri = options.text("path")
    missing = [name for name, value in parts.items() if value is None]
    if uri is not None:
        if len(missing) < len(parts):
            raise options.wrong("path", "the stream is named twice", "Give its URI, or controller, scope and stream.")
        return parse_stream(uri)
    if missing:
        todo = 'Give controller (pravega://HOST:PORT), scope and stream, or load("pravega://HOST:PORT/SCOPE/STREAM").'
        raise options.wrong(missing[0], "it is missing", todo)
    return parse_stream(f"{str(parts['controller']).rstrip('/')}/{parts['scope']}/{parts['stream']}")
