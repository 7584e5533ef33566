"""The verb *handoff*."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import get_args

from lake.avro_types import avro_columns
from lake.catalogs import Catalog, open_catalog
from lake.column_types import arrow_type
from lake.ddl import Engine, raw_ddl, table_ddl
from lake.decoding import parser_of, time_field
from lake.inference import infer_columns, sample
from lake.options import (
    Decode,
    TableColumn,
    TableFormat,
    TableOptions,
    TimeUnit,
    check_same,
    find_options,
    fix_options,
    fresh_names,
    plain_name,
)
from lake.place import TablePlace
from lake.plan import TablePlan
from lake.run import HandedOff, Handoff, hand_off, plans_of, tasks_of
from manifests.archive import Archive, History, NoSuchArchive
from objectstore.keys import segment_name, table_folder
from objectstore.uri import RootAddress
from problems import Damaged, Usage
from sparkrun.masters import Master
from sparkrun.progress import Progress
from sparkrun.runner import open_runner
from streamstore.model import StreamName
from streamvault.in_force import check_in_force
from streamvault.preload import TABLE_MODULES
from streamvault.reports import HandoffReport
from streamvault.requests import cost_of_handoff
from streamvault.windows import WINDOW, check_window

__all__ = ["TARGET_SIZE", "handoff_archive", "print_table_ddl"]

TARGET_SIZE = 256 * 1024 * 1024
"""The default (bytes of the segments): between the 128 and 512 MB that query engines like a file to have."""

LEAST_TARGET = 1024


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the caller asks of a table; None where nothing was said."""

    table: str | None
    format: TableFormat | None
    decode: Decode | None
    schema: str | None
    event_time: str | None
    target_size: int | None


@dataclass(frozen=True, slots=True)
class _Setting:
    """What a handoff works on.

    Attributes:
        source: the archive's root. target: the table's. archive, history: the archive.
        place: the table. begun: whether there is one already. warnings: for the user.
    """

    source: RootAddress
    target: RootAddress
    archive: Archive
    history: History
    place: TablePlace
    begun: bool
    warnings: tuple[str, ...]


def handoff_archive(
    archive: str,
    *,
    table: str | None = None,
    format: TableFormat | None = None,  # noqa: A002  (as the option is called)
    decode: Decode | None = None,
    schema: str | None = None,
    event_time: str | None = None,
    catalog: str | None = None,
    projection: bool = False,
    raw: bool = False,
    root: str | None = None,
    target_size: int | None = None,
    window: int = WINDOW,
    master: str = "local[*]",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> HandoffReport:
    """Make an archive's generations a table of Parquet files, and register it; what the table has got is kept.

    A row is an event: ``scope, stream, epoch, segment, offset, length, pointer, payload``, and what `decode` gets out
    of the payload. Rows stand in the stream's order. Every range is proved by its digest on the way. After a kill the
    same call goes on where it stopped; after new generations it adds those. What a table was begun with holds for all.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        table: ``[DATABASE.]NAME``; the scope and the stream, in plain letters, if nothing is said.
        format: ``"iceberg"`` (the default of a new table) or ``"parquet"``, partitioned in Hive's way.
        decode: ``"json"``, ``"csv"``, ``"avro"`` or ``"none"``.
        schema: JSON text: ``{"field": "type"}`` with Hive's types in the fields' order, or an Avro schema; without it
            the columns of JSON and CSV are inferred from a sample.
        event_time: a field (with dots into objects) for a column ``event_time``, ``FIELD`` or ``FIELD:UNIT`` with the
            unit of numbers: s, ms (the default), us or ns.
        catalog: ``glue``, ``rest:URI``, ``sql:URI`` or a name in PyIceberg's configuration; None registers nothing.
        projection: for Parquet in Glue: say by partition projection which generations there are.
        raw: also register a table ``NAME_raw`` over the objects of layout ``events`` as they are, in Glue.
        root: where the table goes, if not below the archive: ``ROOT/SCOPE/STREAM/table/NAME``.
        target_size: segment bytes that make a file.
        window: bytes that a task may hold of what is on its way, beside a row group.
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only say what would be written and what S3 would ask for it.
        progress: told how the run goes on.

    Raises:
        NoSuchArchive: there is nothing to hand off. Damaged: it is not whole. Conflict: something else is there.
        CatalogFailed: the files are there, the catalog does not know all of them; the same call goes on.
    """
    began = time.monotonic()
    progress = progress or Progress()
    check_window(window)
    Master.parse(master)
    setting = _settle(archive, root, _Wanted(table, format, decode, schema, event_time, target_size))
    place, options = setting.place, setting.place.options
    if raw and catalog != "glue":
        raise Usage("a table over raw events is registered in Glue", todo="Use --catalog glue, or --print-ddl.")
    opened = None if catalog is None else open_catalog(catalog, options.kind, projection=projection)
    for warning in setting.warnings:
        progress.warn(warning)
    handoff = Handoff(
        setting.source, setting.archive.prefix, setting.history, setting.target, place.archive, options, window
    )
    if dry_run:
        return _rehearsed(handoff, setting).timed(time.monotonic() - began, 0.0)
    done, start_seconds = HandedOff(), 0.0
    todo = next(plans_of(handoff), None)
    if todo is not None:
        fix_options(setting.target.open(), setting.archive.prefix, options)
        with (
            open_runner(master, TABLE_MODULES) as runner,
            _unless_changed(setting.archive, setting.history, todo.first),
        ):
            done = hand_off(handoff, runner, progress)
            start_seconds = runner.start_seconds
    registered = [] if opened is None else _register(opened, place, progress)
    segments = _register_raw(setting) if raw else 0
    progress.end()
    report = _report(setting, done.plans, done.files)
    return replace(
        report,
        moved_bytes=done.moved_bytes,
        file_bytes=done.file_bytes,
        undecoded=done.undecoded,
        registered=tuple(registered),
        raw_segments=segments,
    ).timed(time.monotonic() - began, start_seconds)


def _rehearsed(handoff: Handoff, setting: _Setting) -> HandoffReport:
    plans = list(plans_of(handoff))
    with _unless_changed(setting.archive, setting.history, plans[0].first if plans else setting.history.first):
        tasks = [task for plan in plans for task in tasks_of(handoff, plan)]
    read = [(source.layout, source.row) for task in tasks for one in task.ranges for source in one.sources]
    return replace(_report(setting, plans, len(tasks)), dry_run=True, cost=cost_of_handoff(read, len(tasks)))


def _report(setting: _Setting, plans: Sequence[TablePlan], files: int) -> HandoffReport:
    """What is known of a handoff before and after it.

    Args:
        setting: what it works on.
        plans: the generations that it adds.
        files: that they have.
    """
    place = setting.place
    added = tuple(plan.generation for plan in plans)
    return HandoffReport(
        archive=setting.archive.uri,
        table=place.name,
        location=place.location,
        format=place.options.kind,
        columns=tuple(place.options.schema.names),
        generations=tuple(sorted({*place.archive.generations(), *added})),
        added=added,
        events=sum(plan.events for plan in plans),
        bytes=sum(plan.manifest.bytes for plan in plans),
        files=files,
        warnings=setting.warnings,
    )


@contextmanager
def _unless_changed(archive: Archive, history: History, first: int) -> Iterator[None]:
    """Say so if what was being handed off expired or was merged meanwhile: then objects are gone with good reason.

    Args:
        archive: where.
        history: what was read of it.
        first: the first generation that matters.
    """
    try:
        yield
    except (Damaged, NoSuchArchive):
        todo = "Run the same command again; a hold ('streamvault hold') keeps generations for as long."
        check_in_force(archive, history, first, doing="handed off", expired_todo=todo)
        raise


def print_table_ddl(
    archive: str,
    engine: Engine,
    *,
    table: str | None = None,
    format: TableFormat | None = None,  # noqa: A002  (as the option is called)
    decode: Decode | None = None,
    schema: str | None = None,
    event_time: str | None = None,
    raw: bool = False,
    root: str | None = None,
) -> str:
    """The statements that make the table known to a query engine, with the generations that it has got.

    Args:
        archive: as for `handoff_archive`, like all that is not named here.
        engine: ``athena``, ``trino`` (Presto too) or ``hive`` (Spark too).
        table: see there.
        format: see there.
        decode: see there.
        schema: see there.
        event_time: see there.
        raw: the statements for a table over the objects of layout ``events`` instead.
        root: see there.

    Raises:
        Usage: the engine does not take such a table from a statement.
    """
    if engine not in get_args(Engine):
        raise Usage("no such engine", where=repr(engine), todo=f"Use {', '.join(get_args(Engine))}.")
    setting = _settle(archive, root, _Wanted(table, format, decode, schema, event_time, None))
    place = setting.place
    if raw:
        name = f"{place.options.table}_raw"
        return raw_ddl(place.database, name, setting.archive.uri, _raw_segments(setting.history), engine)
    return table_ddl(place, place.archive.generations(), engine)


def _settle(archive: str, root: str | None, wanted: _Wanted) -> _Setting:
    source, scope, stream = RootAddress.parse(archive).resolve().split()
    name = StreamName(scope, stream)
    held = Archive(source.open(), name)
    history = held.history()
    target = source if root is None else RootAddress.parse(root).resolve()
    database, dot, table = (wanted.table or "").rpartition(".")
    table = table or plain_name(stream)
    database = database if dot else plain_name(scope)
    table_folder(table)  # says what is wrong with it
    if not database or plain_name(database) != database:
        raise Usage("a database's name has only a-z, 0-9 and _", where=repr(database))
    found = find_options(target.open(), held.prefix, table)
    with _unless_changed(held, history, history.first):
        options, warnings = _options(held, history, found, table, wanted)
    place = TablePlace(database, options, Archive(target.open(), name, table), target.access)
    if found is not None:
        check_same(found, options, place.location)
    return _Setting(source, target, held, history, place, found is not None, warnings)


def _options(
    archive: Archive, history: History, found: TableOptions | None, table: str, wanted: _Wanted
) -> tuple[TableOptions, tuple[str, ...]]:
    """What the table is: what was said, or else what it was begun with, or else the defaults."""
    kind = wanted.format or (found.kind if found else "iceberg")
    decode = wanted.decode or (found.decode if found else "none")
    target_size = wanted.target_size or (found.target_size if found else TARGET_SIZE)
    for value, kinds, what in ((kind, TableFormat, "format"), (decode, Decode, "way to decode")):
        if value not in get_args(kinds):
            raise Usage(f"no such {what}", where=repr(value), todo=f"Use {', '.join(get_args(kinds))}.")
    if target_size < LEAST_TARGET:
        raise Usage(f"a file is {LEAST_TARGET} bytes at least", where=f"--target-size {target_size}")
    if decode == "none" and (wanted.schema is not None or wanted.event_time):
        raise Usage("a schema or an event time needs to know what payloads are", todo="Add --decode.")
    warnings: list[str] = []
    if wanted.schema is None and found is not None and decode == found.decode:
        columns, avro = found.columns, found.avro
    else:
        columns, avro = _columns(archive, history, decode, wanted.schema, warnings)
    if wanted.event_time is None:
        field, unit = (found.event_time, found.event_time_unit) if found and found.decode == decode else ("", "ms")
    else:
        field, unit = _event_time(wanted.event_time, columns)
    options = TableOptions(
        scope=history.stream.scope,
        stream=history.stream.stream,
        table=table,
        kind=kind,
        decode=decode,
        columns=columns,
        avro=avro,
        event_time=field,
        event_time_unit=unit,
        target_size=target_size,
    )
    parser_of(options)  # says what is wrong with it before a task does
    return options, tuple(warnings)


def _columns(
    archive: Archive, history: History, decode: Decode, schema: str | None, warnings: list[str]
) -> tuple[tuple[TableColumn, ...], str]:
    if decode == "none":
        return (), ""
    if decode == "avro":
        if schema is None:
            raise Usage("payloads in Avro need a schema", todo="Give it with --schema FILE.")
        return avro_columns(schema), json.dumps(_json(schema))
    if schema is not None:
        return _declared(schema), ""
    inferred = infer_columns(decode, sample(archive.store, archive.prefix, history))
    if inferred.left_out:
        few = ", ".join(inferred.left_out[:5]) + (" …" if len(inferred.left_out) > 5 else "")
        warnings.append(f"no columns for fields of several types, which stay in the payload: {few}")
    return inferred.columns, ""


def _declared(schema: str) -> tuple[TableColumn, ...]:
    found = _json(schema)
    if not isinstance(found, dict) or not found or not all(isinstance(kind, str) for kind in found.values()):
        raise Usage('a schema is a JSON object {"field": "type", …}', where=schema[:80])
    for kind in found.values():
        arrow_type(kind)
    names = fresh_names(list(found))
    return tuple(
        TableColumn(field=field, column=column, type="".join(kind.split()))
        for (field, kind), column in zip(found.items(), names, strict=True)
    )


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
        raise Usage("no such unit of time", where=repr(unit), todo=f"Use {', '.join(get_args(TimeUnit))}.")
    try:
        time_field(tuple(columns), field)
    except KeyError:
        known = ", ".join(column.field for column in columns)
        raise Usage("no such field for the event time", where=repr(field), todo=f"There are: {known[:200]}.") from None
    return field, unit  # type: ignore[return-value]  # it is one of them


def _register(catalog: Catalog, place: TablePlace, progress: Progress) -> list[int]:
    done = []
    for number in catalog.missing(place, place.archive.generations()):
        progress.say(f"registering generation {number} of {place.name}")
        if catalog.publish(place, place.archive.load(number)):
            done.append(number)
    return done


def _register_raw(setting: _Setting) -> int:
    from lake.catalogs.glue import RawTable, publish_raw  # noqa: PLC0415  (it imports boto3)

    place, segments = setting.place, _raw_segments(setting.history)
    return publish_raw(RawTable(place.database, f"{place.options.table}_raw", setting.archive.uri, segments))


def _raw_segments(history: History) -> list[str]:
    """Folder names of the segments that have objects of layout ``events``."""
    found = {
        segment
        for generation in history.generations
        if generation.manifest.layout == "events"
        for segment in generation.rows
    }
    if not found:
        todo = "Export or convert with --layout events."
        raise Usage("a table over raw events needs an archive of layout events", where=str(history.stream), todo=todo)
    return [segment_name(segment.epoch, segment.number) for segment in sorted(found)]
