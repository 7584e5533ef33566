"""Parse and validate the options of a data source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from streamvault.common.errors import Usage
from streamvault.common.sizes import parse_size
from streamvault.common.times import parse_moment
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.uri import StoreAddress, parse_stream

T = TypeVar("T")

_SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
"""Options that Spark itself adds."""

NO_COLUMNS = "(A table in SQL can only be read, and must be created without columns.)"
"""What to do if a table has no options, see `streamvault.spark.tables`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOOLEANS = {"true": True, "false": False}

_SCHEMES = {"tcp": "pravega", "tls": "pravega+tls"}
"""Schemes of a controller's address as Pravega's clients write it, and ours."""

_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+]*):/(?!/)")
"""How Hadoop's paths spell ``SCHEME:///``, which the ``LOCATION`` of a table becomes."""

_NOT_CREATED = "scopes and streams are not created"
_CREATED_BEFORE = "Create the stream with its policies first."
FIXED = {
    "allow_create_scope": ("false", _NOT_CREATED, "Give false, and create the scope first."),
    "allow_create_stream": ("false", _NOT_CREATED, "Give false, and create the stream first."),
    **{
        f"default_{name}": ("", _NOT_CREATED, _CREATED_BEFORE)
        for name in (
            *("num_segments", "scale_factor", "retention_duration_milliseconds", "retention_size_bytes"),
            *("segment_target_rate_bytes_per_sec", "segment_target_rate_events_per_sec"),
        )
    },
    "metadata": ("", "the source reads events only", "'streamvault streams' lists streams, 'timeline' stream cuts."),
}
"""Options of Pravega's own connector that have no effect here: the only value that means the same (empty if none does),
why others are refused, and what to do instead."""


class SourceOptions:
    """The options given to a data source for a read or write. Names are not case-sensitive.

    Args:
        format_: the source's name, for messages.
        given: the options from Spark.
        known: all valid names.
        fixed: names that others use, each with the only accepted value, the reason, and what to do; see `FIXED`.

    Raises:
        Usage: an unknown option, in which case the valid ones are listed; or another value than the accepted one.
    """

    def __init__(
        self,
        format_: str,
        given: Mapping[str, str],
        known: tuple[str, ...],
        fixed: Mapping[str, tuple[str, str, str]] = FIXED,
    ) -> None:
        self._format = format_
        self._given = {name.lower(): value for name, value in given.items()}
        for name, (only, reason, todo) in fixed.items():
            value = self._given.pop(name.lower(), None)
            if value is not None and (not only or value.strip().lower() != only):
                raise self.wrong(name, reason, todo)
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

    def uri(self) -> str | None:
        """Return the option ``path``, which is the ``LOCATION`` of a table, too; None if it is not given."""
        text = self.text("path")
        return text and _ONE_SLASH.sub(r"\1:///", text, count=1)

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

    def moment(self, name: str) -> datetime | None:
        """Return a time, given in milliseconds since 1970 or as RFC 3339; None if it is not given."""
        text = self.text(name)
        if text is None or not text.isdecimal():
            return None if text is None else parse_moment(text, f"option {name} of format {self._format}")
        return self._read(name, lambda millis: _EPOCH + timedelta(milliseconds=int(millis)), "Give milliseconds.")

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

    def cut(self, stream: StreamName, *names: str, default: str, unbounded: str) -> StreamCut | str:
        """Return a stream cut (from JSON, or as the Java client prints it), ``earliest`` or ``latest``.

        Args:
            stream: the stream of the cut.
            names: the option's names.
            default: ``earliest`` or ``latest``.
            unbounded: what ``unbounded`` means, which Pravega's own connector has.
        """
        text = self.text(*names) or default
        if (word := text.lower()) in {"earliest", "latest", "unbounded"}:
            return unbounded if word == "unbounded" else word
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
        except (ValueError, KeyError, OverflowError):
            raise self.wrong(name, f"{text!r} is not valid", todo) from None


def stream_of(options: SourceOptions) -> tuple[StoreAddress, StreamName]:
    """Return the stream given by ``controller``, ``scope`` and ``stream``, or by ``load(URI)``.

    Raises:
        Usage: an option is missing.
        InvalidName: the URI is not valid.
    """
    parts = {name: options.text(name) for name in ("controller", "scope", "stream")}
    uri = options.uri()
    missing = [name for name, value in parts.items() if value is None]
    if uri is not None:
        if len(missing) < len(parts):
            raise options.wrong("path", "the stream is given twice", "Give its URI, or controller, scope and stream.")
        return parse_stream(uri)
    if missing:
        todo = 'Give controller (pravega://HOST:PORT), scope and stream, or load("pravega://HOST:PORT/SCOPE/STREAM").'
        raise options.wrong(missing[0], "the option is missing", f"{todo} {NO_COLUMNS}")
    scheme, separator, place = str(parts["controller"]).rstrip("/").partition("://")
    controller = f"{_SCHEMES.get(scheme.lower(), scheme)}{separator}{place}"
    return parse_stream(f"{controller}/{parts['scope']}/{parts['stream']}")
