"""Determine a handoff's table from the caller's options, those it was created with, and the payloads."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import get_args
from uuid import uuid4

import pyarrow as pa

from streamvault.common.errors import Conflict, Usage
from streamvault.lake.avro import avro_columns
from streamvault.lake.decoding import parser_of, time_field
from streamvault.lake.framing import guess, sample_records
from streamvault.lake.inference import infer_columns
from streamvault.lake.location import TablePlace
from streamvault.lake.origins import ArchiveOrigin, StreamOrigin
from streamvault.lake.plan import Origin, TablePlan, is_empty, options_after
from streamvault.lake.protobuf_payloads import declared_schema, protobuf_types
from streamvault.lake.registry import columns_of, knows, left_out_warning
from streamvault.lake.reports import DdlOptions, Decode, Framing, HandoffOptions
from streamvault.lake.table import (
    TableColumn,
    TableOptions,
    TimeUnit,
    Wanted,
    arrow_type,
    check_same,
    check_type,
    columns_for,
    find_options,
    grown,
    hive_type,
    holds,
    plain_name,
    unfit,
)
from streamvault.lake.task import check_sample
from streamvault.layouts.keys import FOLDER_DIGITS
from streamvault.manifests.archive import Archive, TableArchive
from streamvault.manifests.manifest import SchemaGroup
from streamvault.objectstore.uri import RootAddress
from streamvault.sources.schemas import Encodings, needless_registry
from streamvault.sources.sources import ArchiveState
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import is_stream, open_stream, parse_stream

TARGET_SIZE = 256 * 1024 * 1024
"""Default segment bytes per file; query engines work best with files of 128 to 512 MB."""

_HAS_TIMES = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp)
"""The types of which `as_time` makes timestamps."""


@dataclass(frozen=True, slots=True)
class ResolvedTable:
    """The table of a handoff, and what it is made from.

    Attributes:
        origin: the table's origin.
        place: the table.
        warnings: warnings for the user.
        wanted: returns the columns that the caller's schema has, or the registry's now: events that a stream has got
            since may have newer schemas. None for a new table, or if nothing gives any.
        schemas: returns the encodings of the events' group in a Schema Registry; None if they are decoded without one.
    """

    origin: Origin
    place: TablePlace
    warnings: tuple[str, ...]
    wanted: Callable[[], Wanted | None] = lambda: None
    schemas: Callable[[], SchemaGroup] | None = None


@contextmanager
def resolved_table(source: str, options: DdlOptions) -> Iterator[ResolvedTable]:
    """Open a table's origin; determine and validate the table. Writes nothing.

    Args:
        source: an archive, ``ROOT/SCOPE/STREAM``, or a stream, ``pravega://HOST:PORT/SCOPE/STREAM``.
        options: the caller's options.

    Raises:
        NoSuchArchive: there is no archive.
        Damaged: the archive is damaged.
        Usage: an option is not valid, the source is a stream and no root is given, or the archive is of a byte stream.
        Conflict: the table was created with other options or from another origin.
    """
    limits = options if isinstance(options, HandoffOptions) else HandoffOptions()
    if not is_stream(source):
        archive = Archive.open(source)
        root = archive.root if options.root is None else RootAddress.parse(options.root).resolve()
        table, found = _table_of(root, archive.stream, options)
        since = _first_needed(table, found, options)
        history = archive.history(since=since, keep="none")
        history.generations[-1].manifest.require_events(archive.uri)
        yield _resolve(ArchiveOrigin(ArchiveState(archive, history), limits.window, since), table, found, options)
        return
    if options.root is None:
        _, name = parse_stream(source)
        todo = f"Add --root ROOT; the table will be below ROOT/{name}/table/NAME."
        raise Usage("a table from a stream requires --root", where=source, todo=todo)
    root = RootAddress.parse(options.root).resolve()
    with open_stream(source) as stream:
        origin = StreamOrigin(stream, limits.largest_event)
        yield _resolve(origin, *_table_of(root, origin.stream, options), options)


def _table_of(root: RootAddress, name: StreamName, given: DdlOptions) -> tuple[TableArchive, TableOptions | None]:
    """Return the table that the caller names, and its options; None if there is none yet."""
    table = (given.table or "").rpartition(".")[2]
    archive = TableArchive(root, name, table or plain_name(name.stream), folder="")
    found = find_options(archive)
    return archive.in_folder(uuid4().hex[:FOLDER_DIGITS] if found is None else found.folder), found


def _first_needed(table: TableArchive, options: TableOptions | None, given: DdlOptions) -> int:
    """Return the first original generation of the archive that a handoff or its statements look at; 0 for all.

    That is the table's newest, which must be the archive's; the one before it if its files may have to be made blank.
    The objects of all are behind a raw table. The newest has noted the schemas of all.
    """
    if given.raw:
        return 0
    last = None if options is None else table.newest()
    if last is None:
        return 0
    return last.first if is_empty(last) else last.generation


def _resolve(origin: Origin, archive: TableArchive, found: TableOptions | None, given: DdlOptions) -> ResolvedTable:
    name = origin.stream
    database, dot, _ = (given.table or "").rpartition(".")
    database = database if dot else plain_name(name.scope)
    if not database or plain_name(database) != database:
        raise Usage("a database name may contain only a-z, 0-9 and _", where=repr(database))
    if found is not None and found.origin != origin.kind:
        is_of = "an archive" if found.origin == "archive" else "the stream itself"
        todo = "Use the same source, or give the new table another name (--table)."
        raise Conflict(f"the table was made from {is_of}", where=archive.uri, todo=todo)
    infers = given.columns_schema is None and given.decode in {"json", "csv", "registry"}
    if found is None and origin.has_nothing_yet and infers:
        # there are no payloads to infer from; nothing will be written, so the next run is the first again
        needless = ("decode", "framing", "event_time", "registry", "group")
        given = given.model_copy(update={name: None for name in needless if hasattr(given, name)})
    if found is not None:  # before anything is inferred with them
        asked = {"kind": given.format or found.kind, "decode": given.decode or found.decode}
        check_same(found, found.model_copy(update=asked), archive.uri)
    with origin.unless_archive_changed():
        options, warnings, schemas = _options(origin, found, archive, given)
    place = TablePlace(database, options, archive, is_new=found is None)
    if found is None:
        return ResolvedTable(origin, place, tuple(warnings), schemas=schemas)
    check_same(found, options, place.location)
    wanted = _wanted(found, given, schemas, warnings)
    return ResolvedTable(origin, place, tuple(warnings), wanted, schemas)


def _wanted(
    found: TableOptions, given: DdlOptions, schemas: Callable[[], SchemaGroup] | None, warnings: list[str]
) -> Callable[[], Wanted | None]:
    """Return `ResolvedTable.wanted` of a table that exists.

    Raises:
        Usage: the schema is not valid, or columns are to be added without one.
    """
    change = given.columns if isinstance(given, HandoffOptions) else None
    if schemas is not None and isinstance(given, HandoffOptions):
        # asked when there is something to write: with nothing new, a handoff does without the registry
        return partial(_of_registry, schemas, adds=change != "keep", is_asked=given.registry is not None)
    if given.columns_schema is None:
        if change == "add":
            todo = "Add --schema FILE with the new fields; columns are inferred only when a table is created."
            raise Usage("--columns add requires a schema", todo=todo)
        return lambda: None
    asked = given.model_copy(update={"message": found.message})
    columns, avro, _ = _columns(list, found.decode, found.framing, asked, warnings)
    return lambda: Wanted(columns, avro, adds=change != "keep")


def _of_registry(schemas: Callable[[], SchemaGroup], *, adds: bool, is_asked: bool) -> Wanted:
    group = schemas()
    try:
        columns, avro, left_out, not_understood = columns_of(group)
    except Usage as error:  # what the table has goes on
        return Wanted((), "", adds=False, warnings=(str(error),))
    known = partial(knows, group)  # what an archive has noted may be older than what a run has asked a registry for
    warnings = (*not_understood, *left_out_warning(left_out))
    return Wanted(columns, avro, adds, (lambda _: True) if is_asked else known, warnings)


def proposed_columns(resolved: ResolvedTable, plan: TablePlan) -> dict[str, str]:
    """Return the types of fields that a sample of a plan's JSON has, and the table no columns for."""
    begun = resolved.place.options
    with resolved.origin.unless_archive_changed(plan.first):
        if resolved.wanted() is not None or begun.decode != "json" or not plan.after:
            return {}
        try:
            inferred = infer_columns("json", sample_records(begun.framing, resolved.origin.sample(plan)))
        except Usage:
            return {}  # no event of it has a field
    held = {column.field for column in plan.options(begun).columns}
    return {column.field: column.type for column in inferred.columns if column.field not in held}


def refused(resolved: ResolvedTable) -> Iterator[str]:
    """Yield a warning for each wanted column that the table will not have as the caller's schema has it.

    Raises:
        Usage: the table cannot grow by them.
        RegistryFailed: the registry cannot be asked.
    """
    place, wanted = resolved.place, resolved.wanted()
    if wanted is None:
        return
    yield from wanted.warnings
    options = grown(options_after(place.archive, place.options, place.archive.newest()), wanted)
    parser_of(options)  # raises here rather than in a task
    if options.reader and resolved.schemas is None:
        yield (
            "the schema lacks fields of the table, so it counts as an older one: defaults, aliases and symbols are "
            "taken from the newest schema so far"
        )
    held = {column.field: column for column in options.columns}
    for column in wanted.columns:
        mine = held.get(column.field)
        if mine is None:
            yield f"the field {column.field} gets no column, but stays in the payload (--columns keep)"
        elif not holds(arrow_type(mine.type), arrow_type(column.type)):
            yield (
                f"the column {mine.column} stays {mine.type[:100]}, as its type cannot become {column.type[:100]}: "
                "values that do not fit stay in the payload, and _error names the field"
            )


def _schemas(
    origin: Origin, found: TableOptions | None, given: DdlOptions, decode: Decode, warnings: list[str]
) -> tuple[str, Callable[[], SchemaGroup] | None]:
    """Return the name of the events' group in a Schema Registry, and what returns its encodings; None for no group.

    Raises:
        Usage: an option is missing or needless.
    """
    url, name = (given.registry, given.group) if isinstance(given, HandoffOptions) else (None, None)
    if decode != "registry":
        warnings += needless_registry(url, name)
        return "", None
    if given.columns_schema is not None or given.framing not in {None, "pravega"}:
        raise Usage("--schema and --framing are not for --decode registry", todo="Omit them.")
    encodings = Encodings.of(origin.stream, origin.noted_schemas, url, name or (found.group if found else None))
    if url is None and encodings.noted is None:
        if isinstance(given, HandoffOptions):
            todo = "Add --registry URL, or record the schemas in the archive (export --schemas URL)."
            raise Usage("--decode registry requires --registry", todo=todo)
        if found is None:
            todo = "Create the table first ('streamvault handoff --decode registry --registry URL')."
            raise Usage("--decode registry requires the events' schemas", todo=todo)
    # all events of an archive's generations are older; a stream may have got others, with new encodings, since
    return encodings.group, cache(encodings.read) if origin.kind == "archive" else encodings.read


def _options(
    origin: Origin, found: TableOptions | None, table: TableArchive, given: DdlOptions
) -> tuple[TableOptions, list[str], Callable[[], SchemaGroup] | None]:
    """Merge the caller's options, those the table was created with, and the defaults, in this order."""
    kind = given.format or (found.kind if found else "iceberg")
    decode = given.decode or (found.decode if found else "none")
    given_size = given.target_size if isinstance(given, HandoffOptions) else None
    target_size = given_size or (found.target_size if found else TARGET_SIZE)
    warnings: list[str] = []
    group, registered = _schemas(origin, found, given, decode, warnings)
    framing = given.framing or (found.framing if found else "none")
    framing = "pravega" if group else framing
    if decode == "none" and (given.columns_schema is not None or given.event_time or framing != "none"):
        raise Usage("--schema, --framing and --event-time require --decode", todo="Add --decode.")
    if framing == "avro" != decode:
        raise Usage("--framing avro requires --decode avro", todo="Add --decode avro --schema FILE.")
    if given.message is not None and decode != "protobuf":
        raise Usage("--message requires --decode protobuf", todo="Add --decode protobuf --schema FILE.")
    sample = cache(lambda: list(origin.sample()))
    if found is not None:
        columns, avro, message = found.columns, found.avro, given.message or found.message
        if isinstance(given, HandoffOptions):
            _check_columns(found)
    elif registered is not None:
        message = ""
        columns, avro, left_out, not_understood = columns_of(registered())
        warnings += (*not_understood, *left_out_warning(left_out))
    else:
        columns, avro, message = _columns(sample, decode, framing, given, warnings)
    if given.event_time is None:
        field, unit = (found.event_time, found.event_time_unit) if found else ("", "ms")
    else:
        field, unit = _event_time(given.event_time, columns)
    has_day = found.generation_day if found else kind == "iceberg" and not field
    options = TableOptions(
        format=3 if found is None else found.format,
        folder=table.folder,
        scope=origin.stream.scope,
        stream=origin.stream.stream,
        origin=origin.kind,
        table=table.table,
        kind=kind,
        decode=decode,
        framing=framing,
        columns=columns,
        avro=avro,
        message=message,
        group=group,
        event_time=field,
        event_time_unit=unit,
        target_size=target_size,
        generation_day=has_day,
    )
    parser_of(options)  # raises here rather than in a task
    if found is None and decode != "none":
        check_sample(options, sample(), registered() if registered else None)
    return options, warnings, registered


def _check_columns(found: TableOptions) -> None:
    """Check the columns of a table that may have been created by an earlier release, which allowed more.

    Raises:
        Conflict: no more can be added to one of them. Maps of JSON are null in later generations.
    """
    for column in found.columns:
        reason = unfit(arrow_type(column.type), "csv" if found.decode == "csv" else "none")
        if reason:
            what = f"the table was created by an earlier release with a column that cannot be continued: {reason}"
            todo = "Create another table (--table NAME)."
            raise Conflict(what, where=f"{column.column} {column.type}"[:100], todo=todo)


def _columns(
    sample: Callable[[], list[bytes]], decode: Decode, framing: Framing, given: DdlOptions, warnings: list[str]
) -> tuple[tuple[TableColumn, ...], str, str]:
    """Return the columns; the schema of Avro or Protobuf, as in `TableOptions`; the message's full name."""
    schema = given.columns_schema
    if decode == "none":
        return (), "", ""
    if decode in {"avro", "protobuf"} and schema is None:
        raise Usage(f"--decode {decode} requires a schema", todo="Add --schema FILE.")
    if decode == "protobuf":
        return _of_protobuf(str(schema), given.message, warnings)
    if decode == "avro":
        return avro_columns(str(schema)), json.dumps(_json(str(schema))), ""
    if schema is not None:
        return _declared(schema, decode), "", ""
    try:
        inferred = infer_columns(decode, sample_records(framing, sample()))
    except Usage as error:
        hint = next(iter(guess(framing, pa.array(sample(), pa.binary())).drop_null().to_pylist()), None)
        raise error if hint is None else Usage(error.what, where=f"an event {hint}", todo=error.todo) from None
    warnings += left_out_warning(inferred.left_out)
    return inferred.columns, "", ""


def _of_protobuf(schema: str, message: str | None, warnings: list[str]) -> tuple[tuple[TableColumn, ...], str, str]:
    files, name = declared_schema(schema, message)
    types = protobuf_types(files, name)
    fields = {field: hive_type(kind) for field, kind in types.items() if kind is not None}
    if not fields:
        raise Usage("the message has no field with a column", where=name, todo="Name another one with --message.")
    warnings += left_out_warning(tuple(field for field in types if field not in fields))
    return columns_for(fields), b64encode(files).decode(), name


def _declared(schema: str, decode: Decode) -> tuple[TableColumn, ...]:
    found = _json(schema)
    if not isinstance(found, dict) or not found or not all(isinstance(kind, str) for kind in found.values()):
        raise Usage('the schema is not a JSON object {"field": "type", …}', where=schema[:80])
    for field, kind in found.items():
        if field != field.encode("utf-8", "replace").decode():
            raise Usage("a field's name has half of a surrogate pair", where=ascii(field))
        check_type(arrow_type(kind), decode, field)
    return columns_for({field: "".join(kind.split()) for field, kind in found.items()})


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Usage("the schema is not JSON", where=str(error)) from None


def _event_time(text: str, columns: Sequence[TableColumn]) -> tuple[str, TimeUnit]:
    field, colon, unit = text.rpartition(":")
    if not colon:
        field, unit = text, "ms"
    if unit not in get_args(TimeUnit):
        raise Usage("unknown unit of time", where=repr(unit), todo=f"Use {', '.join(get_args(TimeUnit))}.")
    try:
        _, _, kind = time_field(tuple(columns), field)
    except KeyError:
        known = ", ".join(column.field for column in columns)
        raise Usage("unknown field for the event time", where=repr(field), todo=f"Available: {known[:200]}.") from None
    if not any(is_kind(kind) for is_kind in _HAS_TIMES):
        todo = "Use a date, a timestamp, a text, or an integer or double since 1970."
        raise Usage("the field for the event time has another type", where=f"{field} {hive_type(kind)}", todo=todo)
    return field, unit  # type: ignore[return-value]  # it is one of them
