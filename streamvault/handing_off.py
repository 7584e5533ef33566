"""The verb *handoff*."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from lake.catalogs import Catalog, open_catalog
from lake.ddl import Engine, raw_ddl, table_ddl
from lake.options import Decode, TableFormat, fix_options
from lake.place import TablePlace
from lake.plan import TablePlan
from lake.run import HandedOff, Handoff, hand_off, plans_of, tasks_of
from manifests.history import History
from objectstore.keys import segment_name
from problems import Usage
from sparkrun.masters import Master
from sparkrun.progress import Progress
from sparkrun.runner import open_runner
from streamvault.in_force import unless_changed
from streamvault.preload import TABLE_MODULES
from streamvault.reports import HandoffReport
from streamvault.requests import cost_of_handoff
from streamvault.table_settings import TableSetting, WantedTable, settle_table
from streamvault.windows import WINDOW, check_window

__all__ = ["handoff_archive", "print_table_ddl"]


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
    setting = settle_table(archive, root, WantedTable(table, format, decode, schema, event_time, target_size))
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
            unless_changed(setting.archive, setting.history, todo.first),
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


def _rehearsed(handoff: Handoff, setting: TableSetting) -> HandoffReport:
    plans = list(plans_of(handoff))
    with unless_changed(setting.archive, setting.history, plans[0].first if plans else setting.history.first):
        tasks = [task for plan in plans for task in tasks_of(handoff, plan)]
    read = [(source.layout, source.row) for task in tasks for one in task.ranges for source in one.sources]
    return replace(_report(setting, plans, len(tasks)), dry_run=True, cost=cost_of_handoff(read, len(tasks)))


def _report(setting: TableSetting, plans: Sequence[TablePlan], files: int) -> HandoffReport:
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
    setting = settle_table(archive, root, WantedTable(table, format, decode, schema, event_time, None))
    place = setting.place
    if raw:
        name = f"{place.options.table}_raw"
        return raw_ddl(place.database, name, setting.archive.uri, _raw_segments(setting.history), engine)
    return table_ddl(place, place.archive.generations(), engine)


def _register(catalog: Catalog, place: TablePlace, progress: Progress) -> list[int]:
    done = []
    for number in catalog.missing(place, place.archive.generations()):
        progress.say(f"registering generation {number} of {place.name}")
        if catalog.publish(place, place.archive.load(number)):
            done.append(number)
    return done


def _register_raw(setting: TableSetting) -> int:
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
