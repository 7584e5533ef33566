"""The *handoff* command."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import get_args

from streamvault.common.errors import Absent, Conflict, Overtaken, Usage
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.report import GapReport
from streamvault.lake.catalogs import Catalog, CatalogFailed, open_catalog
from streamvault.lake.catalogs.hive import HiveTable, partitioned_statements, raw_table, table_statements
from streamvault.lake.catalogs.registration import check_registration, fix_registration
from streamvault.lake.json_payloads import JsonPayloads
from streamvault.lake.location import TablePlace, check_records
from streamvault.lake.plan import (
    TablePlan,
    empty_generation,
    end_plan,
    files_of,
    find_plan,
    finished,
    fix_plan,
    is_empty,
    is_given_up,
    options_after,
    published_plan,
)
from streamvault.lake.reports import DdlOptions, Engine, HandoffOptions, HandoffReport
from streamvault.lake.resolve import ResolvedTable, proposed_columns, refused, resolved_table
from streamvault.lake.table import TableOptions, grown
from streamvault.lake.task import FileTask, WrittenFile, blank_file, write_file
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import Manifest, SchemaGroup
from streamvault.manifests.verbs.costs import cost_of_handoff
from streamvault.objectstore.probe import fit_server
from streamvault.objectstore.store import AccessDenied
from streamvault.runner.opening import open_runner
from streamvault.runner.runner import Runner
from streamvault.sources.reader import NotEvents
from streamvault.streamstore.errors import InvalidCut


@dataclass(slots=True)
class HandoffTotals:
    """Totals of a handoff.

    Attributes:
        manifests: manifests of the added generations.
        files: number of their files.
        file_bytes: size of their files.
        moved_bytes: segment bytes that this run wrote.
        written: events that this run wrote.
        undecoded: those of them that could not be decoded, or not all of their values.
    """

    manifests: list[Manifest] = field(default_factory=list)
    files: int = 0
    file_bytes: int = 0
    moved_bytes: int = 0
    written: int = 0
    undecoded: int = 0

    def add(self, written: WrittenFile) -> None:
        """Count a file."""
        self.files += 1
        self.file_bytes += written.size
        self.moved_bytes += written.moved
        if written.undecoded >= 0:
            self.written += sum(row.events for row in written.ranges)
            self.undecoded += written.undecoded


def plans_of(resolved: ResolvedTable) -> Iterator[TablePlan]:
    """Yield the plans of all missing generations; nothing is written, and ranges are not proved.

    Raises:
        Conflict: as `hand_off`.
    """
    place = resolved.place
    last = place.archive.newest()
    options = options_after(place.archive, place.options, last)
    while (following := _following(resolved, last, options)) is not None:
        plan, _ = following
        yield plan
        last, options = plan.manifest, plan.options(place.options)


def tasks_of(resolved: ResolvedTable, plan: TablePlan, schemas: SchemaGroup | None = None) -> list[FileTask]:
    """Return a task for each file of a generation.

    Args:
        resolved: the table and its source.
        plan: the generation's plan.
        schemas: those of the events' group in a Schema Registry; only for tasks that write files.

    Raises:
        Damaged: the archive lacks some of its ranges.
    """
    return [
        FileTask(
            source=resolved.origin.source,
            folder=resolved.place.folder,
            generation=plan.generation,
            created=plan.manifest.created,
            ranges=ranges,
            options=plan.options(resolved.place.options),
            schemas=schemas,
            file_id=plan.file_id,
        )
        for ranges in files_of(resolved.origin.ranges(plan), resolved.place.options.target_size)
    ]


def hand_off(resolved: ResolvedTable, runner: Runner, progress: Progress) -> HandoffTotals:
    """Write the generations that the table lacks, oldest first. After a kill, repeat the call to resume.

    A generation becomes part of the table with its manifest, which is written last.

    Raises:
        Damaged: the archive's bytes are missing or do not match the manifest; the generation is not published.
        Conflict: another table is at the location, or the origin does not continue the table's stream.
        NotEvents, InvalidCut: the stream contains other data than events, or ends inside an event; the plan can never
            be finished and is given up: its generation stays empty.
    """
    done = HandoffTotals()
    table, origin = resolved.place.archive, resolved.origin
    published: Manifest | None = None
    while True:
        last = published or table.newest()
        if last is not None and is_empty(last):
            _blank(resolved, published_plan(table, last))  # repeats it if a run was killed in the middle
        following = _following(resolved, last, options_after(table, resolved.place.options, last))
        if following is None:
            return done
        plan, is_fixed = following
        if not is_fixed:
            # after a plan was given up, read everything before recording the next: else each attempt adds a generation
            proved = origin.prove(plan, runner, progress, all_of_it=last is not None and is_empty(last))
            plan = fix_plan(table, proved)
            origin.check(plan, table.uri)
        published = _finish(resolved, plan, done, runner, progress)


def _finish(
    resolved: ResolvedTable, plan: TablePlan, done: HandoffTotals, runner: Runner, progress: Progress
) -> Manifest | None:
    """Carry out a plan and publish its generation, empty if the plan was given up; return what this run published."""
    table = resolved.place.archive
    if is_given_up(table, plan.after):
        _give_up(resolved, plan)
        return None
    try:
        rows = _write(resolved, plan, done, runner, progress)
    except (NotEvents, InvalidCut):
        if end_plan(table, plan.after, given_up=True):
            _give_up(resolved, plan)
        raise
    except Conflict:
        if is_given_up(table, plan.after):  # the names of its files are taken
            raise _gave_up(table, plan) from None
        raise
    manifest = finished(plan, rows, table.uri)
    if end_plan(table, plan.after, given_up=False):
        raise _gave_up(table, plan)
    if plan.first > 1 and not plan.after:  # the archive's first generations have expired
        table.decide(lambda listing: listing.begin_after(plan.first - 1))
    published = table.commit(manifest, rows)
    done.manifests.append(manifest)
    return None if published is None else published.manifest


def _write(
    resolved: ResolvedTable, plan: TablePlan, done: HandoffTotals, runner: Runner, progress: Progress
) -> list[ArchivedRange]:
    """Write a generation's files; return their ranges."""
    # asked for when the generation's last event is known, which was written after its encoding was registered
    tasks = tasks_of(resolved, plan, resolved.schemas() if resolved.schemas else None)
    progress.begin(f"handing off generation {plan.generation}", plan.manifest.bytes)
    written: dict[int, WrittenFile] = {}
    for index, file in runner.run(write_file, tasks, progress=progress):
        written[index] = file
        progress.advance(sum(row.events for row in file.ranges), sum(row.end - row.start for row in file.ranges))
        done.add(file)
    return [row for index in range(len(tasks)) for row in written[index].ranges]


def _give_up(resolved: ResolvedTable, plan: TablePlan) -> None:
    """Publish a plan that was given up as an empty generation, so that the next one has another number.

    It then has another folder, too: files that a late task of this plan writes are never registered.
    """
    table = resolved.place.archive
    table.commit(empty_generation(plan, table.manifest(plan.after) if plan.after else None), ())
    _blank(resolved, plan)


def _gave_up(table: Archive, plan: TablePlan) -> Overtaken:
    return Overtaken(f"another run abandoned generation {plan.generation} in the meantime", where=table.uri)


def _blank(resolved: ResolvedTable, plan: TablePlan) -> None:
    """Write files without rows in place of a plan's files, none of which belongs to the published generation."""
    with suppress(AccessDenied):
        for task in tasks_of(resolved, plan):
            blank_file(task)


def _following(resolved: ResolvedTable, last: Manifest | None, options: TableOptions) -> tuple[TablePlan, bool] | None:
    """Return the next plan, and whether it is recorded already; None if the table is up to date.

    Args:
        resolved: the table and its source.
        last: the table's newest generation; None if it has none.
        options: the table's options, with the columns of that generation.
    """
    table, origin = resolved.place.archive, resolved.origin
    plan = find_plan(table, 0 if last is None else last.generation)
    is_fixed = plan is not None
    if plan is None:
        plan = origin.draft(last, resolved.place.options, table.uri)
        if plan is None:
            return None
        options = grown(options, resolved.wanted())
        if options != resolved.place.options:
            plan = plan.decoded_as(options)  # once recorded, it holds for every run
    origin.check(plan, table.uri)
    return plan, is_fixed


MOST_UNDECODED = 0.01
"""Share of a run's events that may have values that fail to decode without a warning."""


@verb(HandoffOptions)
def write_table(source: str, options: HandoffOptions, progress: Progress) -> HandoffReport:
    """Write a table of Parquet files from an archive or directly from a stream, and register it.

    Existing rows are never rewritten. A row is an event: ``scope, stream, epoch, segment, offset, length, pointer,
    payload``, and the columns that ``decode`` extracts from the payload. Rows are in the stream's order. Every range of
    an archive is checked against its digest. After a kill, repeat the call to resume; a later call adds the archive's
    new generations, or a generation with the stream's new events. The first call's options apply to all later ones.

    Args:
        source: an archive, ``ROOT/SCOPE/STREAM``, or a stream, ``pravega://HOST:PORT/SCOPE/STREAM``,
            ``pravega+tls://…`` or ``local:///FOLDER/SCOPE/STREAM``, of which no archive is made.
        table: ``[DATABASE.]NAME``; None for the names of the scope and the stream, in plain letters.
        format: ``"iceberg"`` (the default of a new table) or ``"parquet"``, partitioned as in Hive.
        decode: ``"json"``, ``"csv"``, ``"avro"``, ``"protobuf"``, ``"registry"`` or ``"none"``.
        framing: the header that each payload has before its record: ``"pravega"``, ``"confluent"``, ``"avro"`` or
            ``"none"``.
        schema: JSON text: ``{"field": "type"}`` with Hive types in the order of the fields, or an Avro schema; of
            Protobuf a descriptor set, or the answer of Confluent's registry with ``format=serialized``, in base64;
            None to infer the columns of JSON and CSV from a sample. Of an existing table, the fields that are new.
        message: full name of the payloads' message in a schema of Protobuf; None for the first of its (last) file.
        event_time: the field (dots for nested ones) for a column ``event_time``: ``FIELD`` or ``FIELD:UNIT``, with the
            unit of numbers: s, ms (the default), us or ns.
        catalog: ``glue``, ``rest:URI``, ``sql:URI`` or a name in PyIceberg's configuration; None registers nothing.
        registry: URL of the Schema Registry, for ``decode="registry"``; None for what the archive has noted.
        group: the events' group there, ``[NAMESPACE/]GROUP``; None for the stream's name.
        projection: for Parquet in Glue: declare the generations by partition projection.
        raw: also register a table ``NAME_raw`` in Glue over the unchanged objects of layout ``events``.
        columns: with a schema and an existing table: ``"add"`` (None for the same) adds columns for new fields to the
            next generation, and widens others where Iceberg can; with ``"keep"`` new fields stay in the payload only.
        root: root of the table, which is written below ``ROOT/SCOPE/STREAM/table/NAME``; None for the archive's root.
            Required for a stream.
        target_size: segment bytes per file.
        window: maximum data from an archive that a task buffers in memory, in addition to a row group (bytes).
        largest_event: for a stream: largest payload to accept (bytes); a task holds it in memory as a whole.
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be written and what S3 would charge for it.
        progress: receives the progress.

    Raises:
        NoSuchArchive: there is no archive.
        Damaged: the archive is damaged.
        Conflict: the table was created with other options or from another source, is registered elsewhere, or its
            columns in the catalog no longer fit.
        Usage: an option is not valid, or the source is a stream and no root is given.
        CatalogFailed: the files are written, but not all are registered; repeat the call to resume.
    """
    began = time.monotonic()
    with resolved_table(source, options) as found:
        resolved, origin, place = found, found.origin, found.place
        if options.raw and options.catalog != "glue":
            raise Usage("--raw requires --catalog glue", todo="Use --catalog glue, or `streamvault ddl`.")
        raw_over = _raw_table(resolved) if options.raw else None
        opened = (
            None
            if options.catalog is None
            else open_catalog(options.catalog, place.options.kind, projection=options.projection)
        )
        with place.unless_removed():
            todo = next(plans_of(resolved), None)
            proposed = {} if todo is None or options.columns is not None else proposed_columns(resolved, todo)
            hints = [*refused(resolved)] if todo is not None or resolved.schemas is None else []
            hints += [_how_to_add(proposed)] if proposed else []
            progress.warn_all((*resolved.warnings, *hints))
            if todo is not None:
                check_records(place, todo)
            if opened is not None:
                place = _compared(opened, place, todo)
            resolved = replace(resolved, place=place)
            if options.dry_run:
                report = _rehearsed(resolved, todo.first if todo else 0)
                return replace(report, proposed=proposed, warnings=(*report.warnings, *hints))
        place = place if todo is None else place.begun()
        resolved = replace(resolved, place=place)
        done, start_seconds, registered = HandoffTotals(), 0.0, list[int]()
        probed: tuple[str, ...] = ()
        if todo is not None:
            with place.unless_removed():
                # an archive's own root was probed when the archive was created
                if options.root is not None and not place.archive.generations():
                    probed = fit_server(place.archive.store, place.archive.prefix)
                with (
                    open_runner(options.master, [write_file, JsonPayloads]) as runner,
                    origin.unless_archive_changed(todo.first),
                ):
                    done = hand_off(resolved, runner, progress)
                    start_seconds = runner.start_seconds
        if opened is not None and not place.is_new:
            with place.unless_removed():  # what was removed while its files were written is not registered
                registered = _register(opened, place, progress)
        segments = 0 if raw_over is None else _register_raw(raw_over)
    progress.end()
    report = _report(resolved, done.manifests, done.files)
    warnings = [*probed, *(f"gap: {gap.segment} bytes {gap.start} to {gap.end}: {gap.reason}" for gap in report.gaps)]
    share = done.undecoded / max(done.written, 1)
    if share > MOST_UNDECODED:
        warnings.append(
            f"{done.undecoded:,} of {done.written:,} events ({share:.1%}) could not be decoded, or not all of their "
            "values; the column _error says why"
        )
    progress.warn_all(warnings)
    return replace(
        report,
        warnings=(*report.warnings, *hints, *warnings),
        proposed=proposed,
        moved_bytes=done.moved_bytes,
        file_bytes=done.file_bytes,
        undecoded=done.undecoded,
        undecoded_share=round(share, 6),
        registered=tuple(registered),
        raw_segments=segments,
        seconds=round(time.monotonic() - began - start_seconds, 3),
    )


def _rehearsed(resolved: ResolvedTable, first: int) -> HandoffReport:
    """Return the report of what would be written; one generation's ranges are in memory at a time."""
    begun, origin = resolved.place.options, resolved.origin
    added: list[Manifest] = []
    options, events, files = None, 0, 0

    def planned() -> Iterator[list[tuple[str, ArchivedRange]]]:
        nonlocal options, events, files
        for plan in plans_of(resolved):
            added.append(plan.manifest)
            options, events = plan.options(begun), events + origin.events(plan)
            for ranges in files_of(origin.ranges(plan), begun.target_size):
                files += 1
                yield [(part.layout, part.row) for one in ranges for part in one.parts]

    with origin.unless_archive_changed(first):
        cost = cost_of_handoff(planned())
    return replace(_report(resolved, added, files, options), events=events, dry_run=True, cost=cost)


def _how_to_add(columns: dict[str, str]) -> str:
    few = json.dumps(dict(list(columns.items())[:5]), ensure_ascii=False)
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    return f"new fields stay in the payload; to add columns, use --schema FILE with {few}{more}; else --columns keep"


def _report(
    resolved: ResolvedTable, added: Sequence[Manifest], files: int, planned: TableOptions | None = None
) -> HandoffReport:
    """Return the report of some generations that are added, or would be, as far as their manifests say."""
    place, origin = resolved.place, resolved.origin
    numbers = tuple(manifest.generation for manifest in added)
    # those of an archive were reported by its exports
    gaps = [gap for manifest in added for gap in manifest.gaps if origin.kind == "stream"]
    options = options_after(place.archive, place.options, place.archive.newest()) if planned is None else planned
    return HandoffReport(
        archive=origin.uri if origin.kind == "archive" else "",
        stream=origin.uri if origin.kind == "stream" else "",
        table=place.name,
        location=place.location.rpartition("/")[0] if place.is_new else place.location,
        format=place.options.kind,
        columns=tuple(options.schema.names),
        generations=tuple(sorted({*place.archive.generations(), *numbers})),
        added=numbers,
        events=sum(manifest.events for manifest in added),
        bytes=sum(manifest.bytes for manifest in added),
        gaps=tuple(GapReport(segment=gap.segment, start=gap.start, end=gap.end, reason=gap.reason) for gap in gaps),
        files=files,
        warnings=resolved.warnings,
    )


@verb(DdlOptions)
def table_ddl(source: str, engine: Engine, options: DdlOptions) -> str:
    """Return the statements that register the table and its generations with a query engine.

    Args:
        source: as for `write_table`.
        engine: ``athena``, ``trino`` (also for Presto), ``hive``, ``spark`` or ``duckdb``.
        table: as for `write_table`.
        format: as for `write_table`.
        decode: as for `write_table`.
        framing: as for `write_table`.
        schema: as for `write_table`.
        message: as for `write_table`.
        event_time: as for `write_table`.
        raw: return the statements for a table over the objects of layout ``events`` instead.
        root: as for `write_table`.

    Raises:
        Usage: the engine has no statement that registers such a table.
        Absent: the table has not been begun, so its location is not known.
    """
    if engine not in get_args(Engine):
        raise Usage("unknown engine", where=repr(engine), todo=f"Use {', '.join(get_args(Engine))}.")
    with resolved_table(source, options) as resolved:
        place = resolved.place
        if options.raw:
            return partitioned_statements(_raw_table(resolved), engine)
        if place.is_new:
            raise Absent("there is no such table yet", where=place.name, todo="Run 'streamvault handoff' first.")
        return table_statements(place, place.archive.generations(), engine)


def _compared(catalog: Catalog, place: TablePlace, todo: TablePlan | None) -> TablePlace:
    """See `_compare`; return the table, as another run may have begun it, in another folder, in the meantime."""
    try:
        _compare(catalog, place, todo)
    except Conflict:
        joined = place.joined()
        if joined is None:
            raise
        place = joined
        _compare(catalog, place, todo)
    return place


def _compare(catalog: Catalog, place: TablePlace, todo: TablePlan | None) -> None:
    """Check, before anything is written, that the catalog's table is this one and accepts its generations.

    Args:
        catalog: the catalog.
        place: the table.
        todo: the generation that this run adds next; None for none.

    Raises:
        Conflict: the catalog has another table of this name, its columns no longer fit, or the table is registered
            elsewhere.
    """
    with suppress(CatalogFailed):  # an unavailable catalog must not delay the handoff; registering reports it
        check_registration(place, catalog.identity(place))
        generations = place.archive.generations()
        missing = catalog.missing(place, generations)
        if todo is not None:
            catalog.check_columns(place, todo.options(place.options).schema)
        elif missing:
            catalog.check_columns(place, place.as_of(generations[-1]).options.schema)


def _register(catalog: Catalog, place: TablePlace, progress: Progress) -> list[int]:
    generations = place.archive.generations()
    check_registration(place, catalog.identity(place))  # of a table registered elsewhere, this catalog knows nothing
    missing = catalog.missing(place, generations)
    if generations:
        # once the catalog has answered, so that a mistyped address is not recorded; before it is changed
        fix_registration(place, catalog.identity(place))
        catalog.claim(place)
    done = []
    for number in missing:
        progress.say(f"registering generation {number} of {place.name}")
        if catalog.publish(place, place.archive.load(number)):
            done.append(number)
    return done


def _register_raw(raw: HiveTable) -> int:
    from streamvault.lake.catalogs.glue import publish_raw  # noqa: PLC0415  (it imports boto3)

    return publish_raw(raw)


def _raw_table(resolved: ResolvedTable) -> HiveTable:
    """Return the table over raw events beside a table.

    Raises:
        Usage: there are no objects of layout ``events``.
    """
    origin = resolved.origin
    if not origin.raw_segments:
        todo = "Export or convert with --layout events."
        raise Usage("--raw requires an archive with layout events", where=str(origin.stream), todo=todo)
    return raw_table(resolved.place, origin.uri, origin.raw_segments)
