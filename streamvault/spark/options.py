"""Parse and validate the options of a data source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from streamvault.common.errors import Usage
from streamvault.common.sizes import parse_size
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.uri import StoreAddress, parse_stream

T = TypeVar("T")

_SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
"""Options that Spark itself adds."""

_BOOLEANS = {"true": True, "false": False}


class SourceOptions:
    """The options given to a data source for a read or write. Names are not case-sensitive.

    Args:
        format_: the source's name, for messages.
        given: the options from Spark.
        known: all valid names.

    Raises:
        Usage: an unknown option; lists the valid ones.
    """

    def __init__(self, format_: str, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._format = format_
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower() for name in known}
        unknown = sorted(name for name in self._given if name not in names and name not in _SPARKS_OWN)
        if unknown:
            raise self.wrong(unknown[0], "unknown option", f"Available: {', '.join(known)}.")

    def text(self, *names: str) -> str | None:
        """Return the value of an option that may have several names; None if it is not given.

        Raises:
            Usage: the option is given under two names, or is empty.
        """
        given = [name for name in names if name.lower() in self._given]
        if len(given) > 1:
            raise self.wrong(given[1], f"the option is another name of {given[0]}", "Give only one of them.")
        if not given:
            return None
        value = self._given[given[0].lower()].strip()
        if not value:
            raise self.wrong(given[0], "the option is empty")
        return value

    def number(self, name: str, *, least: int = 0) -> int | None:
        """Return an integer option; None if it is not given."""

        def read(text: str) -> int:
            value = int(text)
            if value < least:
                raise ValueError(f"less than {least}")
            return value

        return self._read(name, read, f"Give an integer of at least {least}.")

    def size(self, name: str) -> int | None:
        """Return a size in bytes (``1048576``, ``64MiB``); None if it is not given."""
        return self._read(name, parse_size, "Give a size, e.g. 64MiB.")

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean option."""
        found = self._read(name, lambda text: _BOOLEANS[text.lower()], "Give true or false.")
        return default if found is None else found

    def choice(self, name: str, among: tuple[str, ...]) -> str:
        """Return one of some words; the first is the default."""

        def read(text: str) -> str:
            return among[[word.lower() for word in among].index(text.lower())]

        return self._read(name, read, f"Give one of {', '.join(among)}.") or among[0]

    def words(self, name: str) -> list[str] | None:
        """Return a comma-separated list; None if it is not given."""
        text = self.text(name)
        return None if text is None else [word.strip() for word in text.split(",")]

    def cut(self, stream: StreamName, *names: str, default: str) -> StreamCut | str:
        """Return a stream cut (from JSON), ``earliest`` or ``latest``."""
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
        """Return the error for an invalid option."""
        return Usage(what, where=f"option {name} of format {self._format}", todo=todo)

    def _read(self, name: str, read: Callable[[str], T], todo: str) -> T | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return read(text)
        except (ValueError, KeyError):
            raise self.wrong(name, f"{text!r} is not valid", todo) from None


def stream_of(options: SourceOptions) -> tuple[StoreAddress, StreamName]:
    """Return the stream given by ``controller``, ``scope`` and ``stream``, or by ``load(URI)``.

    Raises:
        Usage: an option is missing.
        InvalidName: the URI is not valid.
    """
    parts = {name: options.text(name) for name in ("controller", "scope", "stream")}
    uri = options.text("path")
    missing = [name for name, value in parts.items() if value is None]
    if uri is not None:
        if len(missing) < len(parts):
            raise options.wrong("path", "the stream is given twice", "Give its URI, or controller, scope and stream.")
        return parse_stream(uri)
    if missing:
        todo = 'Give controller (pravega://HOST:PORT), scope and stream, or load("pravega://HOST:PORT/SCOPE/STREAM").'
        raise options.wrong(missing[0], "the option is missing", todo)
    return parse_stream(f"{str(parts['controller']).rstrip('/')}/{parts['scope']}/{parts['stream']}")
