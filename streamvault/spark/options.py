"""Options of the data sources, from a query or from a table of SQL, and an event's columns.

Spark passes a table's options and location when it is created, but not when it is read or written. So they are kept
in the metadata of the table's first column, which catalogs store with the columns. They are used to read only: what a
query writes may have columns, and so the metadata, of the table that it reads.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from streamvault.common import logins
from streamvault.common.errors import Usage
from streamvault.common.units import parse_moment, parse_size
from streamvault.objectstore.store import InvalidRoot
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import StreamCut, StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress, parse_scope, parse_stream

T = TypeVar("T")

_SPARKS_OWN = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
"""Options that Spark itself adds."""

NO_COLUMNS = "(A table in SQL can only be read, and must be created without columns.)"
"""What to do if a table has no options, see `streamvault.spark.options`."""

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
            raise self.wrong(given[1], f"the option cannot be used with {given[0]}", "Give only one of them.")
        if not given:
            return None
        value = self._given[given[0].lower()].strip()
        if not value:
            raise self.wrong(given[0], "the option is empty", "Give a value, or omit the option.")
        return value

    def secret(self, name: str) -> str | None:
        """Return an option exactly as it was given; None if it is not given."""
        return self._given.get(name.lower())

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
            name = next(name for name in names if name.lower() in self._given)
            where = f"option {name} of format {self._format}: {error.where or text}"
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


def stream_of(options: SourceOptions, pattern: str | None = None) -> tuple[StoreAddress, StreamName]:
    """Return the stream given by ``controller``, ``scope`` and ``stream``, or by ``load(URI)``.

    With a pattern there is no stream: the scope is given, and of the result only the scope counts. The login is that of
    the options; without one, that of the environment.

    Raises:
        Usage: an option is missing.
        InvalidName: the URI is not valid.
    """
    address, stream = _place_of(options, pattern)
    return _logged_in(options, address), stream


_LOGIN = ("username", "password", "caFile", "verifyHostname")
"""Options of a cluster's login. The first two are secrets: a table does not keep them."""


def _logged_in(options: SourceOptions, address: StoreAddress) -> StoreAddress:
    """Return the address with the options' login, if there is one. It is part of no message, nor of a repr."""
    user, ca_file, password = options.text("username"), options.text("caFile"), options.secret("password")
    if (user is None) != (password is None):
        missing = "username" if user is None else "password"
        raise options.wrong(missing, "the option is missing", "Give username and password together.")
    found: dict[str, object] = {"username": user, "password": password, "ca_file": ca_file}
    if options.text("verifyHostname"):
        found["verify_hostname"] = options.flag("verifyHostname", default=True)
    given = {name: value for name, value in found.items() if value is not None}
    if given and address.scheme == "local":
        name = next(name for name in _LOGIN if options.secret(name) is not None)
        raise options.wrong(name, "a folder needs no login", "Omit the option.")
    if password is not None and not logins.are_sent():
        todo = f"Unset {logins.VARIABLE}, or give the login in the environment of the executors."
        raise options.wrong("password", f"logins are not sent to executors ({logins.VARIABLE}=no)", todo)
    if not given:
        return address
    return replace(address, settings=replace(address.settings, **given))


def _place_of(options: SourceOptions, pattern: str | None) -> tuple[StoreAddress, StreamName]:
    parts = {name: options.text(name) for name in ("controller", "scope", "stream")}
    uri = options.uri()
    if pattern is not None and parts["stream"] is not None:
        raise options.wrong("streamPattern", "the stream is given twice", "Give either stream or streamPattern.")
    if pattern is not None and uri is None:
        parts["stream"] = "any"
    missing = [name for name, value in parts.items() if value is None]
    if uri is not None:
        if len(missing) < len(parts):
            raise options.wrong("path", "the stream is given twice", "Give its URI, or controller, scope and stream.")
        if pattern is None:
            return parse_stream(uri)
        address, scope = parse_scope(f"{uri.rstrip('/')}/")
        if not scope:
            raise options.wrong("path", "the scope is missing", 'Use load("pravega://HOST:PORT/SCOPE/").')
        return address, StreamName(scope, "any")
    if missing:
        todo = 'Give controller (pravega://HOST:PORT), scope and stream, or load("pravega://HOST:PORT/SCOPE/STREAM").'
        raise options.wrong(missing[0], "the option is missing", f"{todo} {NO_COLUMNS}")
    scheme, separator, place = str(parts["controller"]).rstrip("/").partition("://")
    controller = f"{_SCHEMES.get(scheme.lower(), scheme)}{separator}{place}"
    return parse_stream(f"{controller}/{parts['scope']}/{parts['stream']}")


_START = ("from", "startingOffsets", "start_stream_cut")
_END = ("to", "endingOffsets", "end_stream_cut")
DECODING = ("decode", "registry", "group")
"""The options."""

_VARIABLE = "STREAMVAULT_REGISTRY"


@dataclass(frozen=True, slots=True)
class PayloadDecoding:
    """How payloads are decoded.

    Attributes:
        registry: URL of Pravega's Schema Registry; None for the schemas that the archive has noted.
        group: the events' group there; None for the one noted, or the stream's name.
    """

    registry: str | None
    group: str | None

    @classmethod
    def of(cls, options: SourceOptions) -> PayloadDecoding | None:
        """Return what the options say; None if payloads are not decoded.

        Raises:
            Usage: an option is not valid, or has a login, which Spark's plans would show.
        """
        decode, registry, group = (options.text(name) for name in DECODING)
        if decode is None:
            if given := next((name for name in DECODING[1:] if options.text(name)), None):
                raise options.wrong(given, "the option requires another one", "Also give decode=registry.")
            return None
        if decode != "registry":
            raise options.wrong("decode", f"{decode!r} is not a way to decode", "Give registry.")
        if registry is not None and "@" in registry:
            todo = f"Set {_VARIABLE} where the query is started, and omit the option."
            raise options.wrong("registry", "a login would be shown in Spark's plans", todo)
        return cls(registry or os.environ.get(_VARIABLE) or None, group)


_READ_OPTIONS = (
    "path", "controller", "scope", "stream", *_LOGIN, *_START, *_END, "failOnDataLoss", "boundaries", "rangeSize",
    "minPartitions", "columns", "maxBytesPerTrigger", "maxEventsPerTrigger", "archive", "streamPattern", *DECODING,
)  # fmt: skip
_FIXED_TO_READ = {
    **FIXED,
    "startingTimestamp": (
        "",
        "Pravega does not keep the time of an event",
        "Give startingOffsets, or read an archive, whose generations have a time.",
    ),
}
_RANGE_SIZE = 64 * 1024 * 1024
MIN_RANGE_SIZE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """Parsed options of a read.

    Attributes:
        address: address of the stream's store.
        stream: the stream; with a pattern, only its scope counts.
        from_cut: a cut, ``earliest`` or ``latest``.
        to_cut: a cut, ``earliest`` or ``latest``.
        fail_on_data_loss: whether the query fails if events were truncated.
        boundaries: how segments are split: ``segment`` (not at all), ``walked`` or ``guessed``.
        range_size: size of the parts of a segment (bytes).
        min_partitions: about how many parts to make of all segments at least; None to go by the range size alone.
        max_bytes: maximum size of a micro-batch; None for no limit.
        max_events: maximum number of events of a micro-batch; None for no limit.
        columns: the requested columns; None for all.
        archive: URI of the stream's archive, which is read first; empty to read the stream alone.
        pattern: a regular expression for the names of the scope's streams to read; empty to read one stream.
        decoding: how payloads are decoded; None if they are not.
    """

    address: StoreAddress
    stream: StreamName
    from_cut: StreamCut | str
    to_cut: StreamCut | str
    fail_on_data_loss: bool
    boundaries: str
    range_size: int
    min_partitions: int | None
    max_bytes: int | None
    max_events: int | None
    columns: list[str] | None
    archive: str = ""
    pattern: str = ""
    decoding: PayloadDecoding | None = None

    def matching(self) -> dict[str, Reading]:
        """Return the options for each of the streams that match the pattern now: its full name → them."""
        with self.address.lend() as store:
            names = [name for name in store.list_streams(self.stream.scope) if re.fullmatch(self.pattern, name.stream)]
        return {str(name): self.of(str(name)) for name in names}

    def of(self, name: str) -> Reading:
        """Return the options for one of the streams, by its full name."""
        return replace(self, stream=StreamName.parse(name), pattern="")

    @contextmanager
    def look(self) -> Iterator[tuple[StreamStore, StreamDescription]]:
        """Lend the store, with the stream as it is now."""
        with self.address.lend() as store:
            yield store, store.describe(self.stream)

    def split_size(self, total: int) -> int:
        """Return the size of the parts of segments, if there are so many bytes in all."""
        most = self.range_size if self.min_partitions is None else -(-total // self.min_partitions)
        return max(MIN_RANGE_SIZE, min(self.range_size, most))


def read_options(given: Mapping[str, str], *, streaming: bool | None = None) -> Reading:
    """Parse the options of a read.

    Args:
        given: the options from Spark.
        streaming: whether it follows the stream; None if that is not known yet.

    Raises:
        Usage, InvalidCut, InvalidName: an option is not valid.
    """
    options = SourceOptions("pravega", given, _READ_OPTIONS, _FIXED_TO_READ)
    pattern = options.text("streamPattern")
    address, stream = stream_of(options, pattern)
    range_size = options.size("rangeSize") or _RANGE_SIZE
    if range_size < MIN_RANGE_SIZE:
        raise options.wrong("rangeSize", f"the range size must be at least {MIN_RANGE_SIZE} bytes", "Give e.g. 64MiB.")
    max_bytes = options.size("maxBytesPerTrigger")
    if max_bytes == 0:
        raise options.wrong("maxBytesPerTrigger", "the limit must be positive", "Give a size, e.g. 64MiB.")
    max_events = options.number("maxEventsPerTrigger", least=1)
    if streaming and (options.text("end_stream_cut") or "").lower() == "latest":
        todo = "Give unbounded, or use Trigger.AvailableNow."
        raise options.wrong("end_stream_cut", "a query that follows a stream does not end at its tail", todo)
    boundaries = options.choice("boundaries", ("segment", "walked", "guessed"))
    min_partitions = options.number("minPartitions", least=1)
    is_limited = bool(max_bytes or max_events) and streaming is not False
    is_split = boundaries == "walked" or is_limited or (boundaries == "guessed" and not streaming)
    if min_partitions and not is_split:
        others = (
            "boundaries=walked, or a limit such as maxBytesPerTrigger"
            if streaming
            else "boundaries=walked or boundaries=guessed"
        )
        raise options.wrong("minPartitions", "a segment is one partition unless it is split", f"Also give {others}.")
    archive, decoding = options.text("archive") or "", PayloadDecoding.of(options)
    from_latest = streaming and not archive
    start = options.cut(stream, *_START, default="latest" if from_latest else "earliest", unbounded="earliest")
    end = options.cut(stream, *_END, default="latest", unbounded="latest")
    if pattern is not None:
        _check_pattern(options, pattern, start, end, archive=archive)
        if decoding and not decoding.group:
            raise options.wrong("streamPattern", "the streams of a pattern share one group", "Also give group.")
    elif archive:
        _check_archive(options, archive, stream, start, streaming=streaming)
    return Reading(
        address,
        stream,
        start,
        end,
        options.flag("failOnDataLoss", default=True),
        boundaries,
        range_size,
        min_partitions,
        max_bytes,
        max_events,
        options.words("columns"),
        archive,
        pattern or "",
        decoding,
    )


def _check_pattern(
    options: SourceOptions, pattern: str, start: StreamCut | str, end: StreamCut | str, *, archive: str
) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        todo = "Give one for whole names, e.g. orders-.*"
        raise options.wrong("streamPattern", f"{pattern!r} is not a regular expression ({error})", todo) from None
    if archive:
        raise options.wrong("archive", "an archive belongs to one stream", "Give stream instead of streamPattern.")
    if isinstance(start, StreamCut) or isinstance(end, StreamCut):
        todo = "Give earliest or latest."
        raise options.wrong("streamPattern", "a stream cut belongs to one stream", todo)


def _check_archive(
    options: SourceOptions, archive: str, stream: StreamName, start: StreamCut | str, *, streaming: bool | None
) -> None:
    try:
        _, scope, name = RootAddress.parse_archive(archive)
    except InvalidRoot as error:
        where = f"option archive of format pravega: {error.where}"
        raise Usage(error.what, where=where, todo=error.todo) from None
    if StreamName(scope, name) != stream:
        todo = "Give the archive of this stream."
        raise options.wrong("archive", f"it is the archive of {scope}/{name}, not of {stream}", todo)
    if start == "latest":
        todo = "Give earliest, or omit the archive."
        raise options.wrong("archive", "a query that starts at the stream's tail reads nothing of the archive", todo)
    if streaming is False:
        todo = 'Use readStream, or read the archive with format("streamvault").'
        raise options.wrong("archive", "only a query that follows the stream reads its archive first", todo)


_WRITE_OPTIONS = (
    *("path", "controller", "scope", "stream", *_LOGIN),
    *("lease", "transaction_timeout_ms", "txnAppId", "txnVersion"),
)
_FIXED_TO_WRITE = {
    **FIXED,
    "exactly_once": ("true", "a write is always one transaction", "Give true."),
    "read_after_write_consistency": ("true", "a write ends when its events can be read", "Give true."),
    "transaction_status_poll_interval_ms": ("", "the interval is not configurable", "Omit the option."),
}
_LEASE_SECONDS = 600
"""Pravega's default maximum."""

PAYLOADS, ROUTING_KEY = ("payload", "event"), "routing_key"
"""Names of the columns; of the former one of both, the second of which is that of Pravega's own connector."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Parsed options of a write.

    Attributes:
        address: address of the stream's store.
        stream: the stream.
        lease: how long a transaction stays open without a ping (seconds).
        app: name of the writer; with `version` it names the write, so that a repetition writes nothing. Empty if the
            write has no name; a streaming query has a default.
        version: version of the write; None if the write has no name.
        payload: index of the column with payloads.
        routing_key: index of the column with routing keys; None if there is none.
    """

    address: StoreAddress
    stream: StreamName
    lease: int
    app: str
    version: int | None
    payload: int
    routing_key: int | None


def write_options(given: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool = False) -> Writing:
    """Parse the options of a write.

    Raises:
        Usage: an option is not valid, or the columns are not those of events.
    """
    options = SourceOptions("pravega", given, _WRITE_OPTIONS, _FIXED_TO_WRITE)
    address, stream = stream_of(options)
    if overwrite:
        raise Usage("events cannot be overwritten", where=str(stream), todo="Use mode append.")
    app, version = options.text("txnAppId"), options.number("txnVersion")
    if streaming and version is not None:
        raise options.wrong("txnVersion", "a streaming query numbers its own batches", "Omit the option.")
    if not streaming and (app is None) != (version is None):
        raise options.wrong(
            "txnVersion" if version is None else "txnAppId",
            "the option is missing",
            "Give txnAppId and txnVersion together.",
        )
    payload, key = _columns(schema)
    return Writing(address, stream, _lease(options), app or "", version, payload, key)


def _lease(options: SourceOptions) -> int:
    options.text("lease", "transaction_timeout_ms")  # only one of them
    millis = options.number("transaction_timeout_ms", least=10_000)
    return -(-millis // 1000) if millis else options.number("lease", least=10) or _LEASE_SECONDS


def _columns(schema: StructType) -> tuple[int, int | None]:
    names = schema.fieldNames()
    payloads = [name for name in names if name in PAYLOADS]
    others = [name for name in names if name not in {*PAYLOADS, ROUTING_KEY}]
    if len(payloads) != 1 or others:
        what = "unknown column" if payloads else f"the column {PAYLOADS[0]} is missing"
        if len(payloads) > 1:
            what, others = "the payload is given twice", payloads
        todo = f"Select {PAYLOADS[0]} (binary or string) and, optionally, {ROUTING_KEY} (string)."
        raise Usage(what, where=", ".join(others or names), todo=todo)
    (name,) = payloads
    payload = names.index(name)
    key = names.index(ROUTING_KEY) if ROUTING_KEY in names else None
    if not isinstance(schema[payload].dataType, BinaryType | StringType):
        kind, todo = schema[payload].dataType.simpleString(), f"Cast it, e.g. CAST({name} AS string)."
        raise Usage(f"the column {name} is neither binary nor string", where=kind, todo=todo)
    if key is not None and not isinstance(schema[key].dataType, StringType):
        kind, todo = schema[key].dataType.simpleString(), f"Cast it: CAST({ROUTING_KEY} AS string)."
        raise Usage(f"the column {ROUTING_KEY} is not a string", where=kind, todo=todo)
    return payload, key


_KEPT = "streamvault.options"
_OPTION = "option."
_CREATION = frozenset({"owner", "provider"})
"""Properties of a table that is being created, which come with its options."""
_PLACE = frozenset({"path", "controller", "scope", "stream"})


def schema_for(given: Mapping[str, str], columns: Callable[[Mapping[str, str]], StructType]) -> StructType:
    """Return the columns of a read, or of a table that is being created.

    Args:
        given: the options from Spark.
        columns: returns the columns, given the options of the read.
    """
    if not given.keys() >= _CREATION:
        return columns(given)
    # beside the options, there are the table's properties, by their own names
    options = {name.removeprefix(_OPTION): text for name, text in given.items() if name.startswith(_OPTION)}
    options |= {name: text for name, text in given.items() if name == "path"}
    if kept := next((name for name in options if name.lower() in {"username", "password"}), None):
        todo = 'Give it to each query: spark.read.option("username", …).option("password", …).table(…).'
        where = f"option {kept} of a table"
        raise Usage("a login cannot be kept with a table, as catalogs store and show it", where=where, todo=todo)
    first, *others = columns(options).fields
    column = StructField(first.name, first.dataType, first.nullable, {_KEPT: json.dumps(options)})
    return StructType([column, *others])


def options_for(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read: of a table, its own and the query's, which must not name another place."""
    if not given.keys().isdisjoint(_PLACE):
        return dict(given)
    kept = (field.metadata[_KEPT] for field in schema.fields if _KEPT in (field.metadata or {}))
    return {**json.loads(next(kept, "{}")), **given}
