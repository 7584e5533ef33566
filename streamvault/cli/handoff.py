"""`streamvault handoff`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from common.errors import Usage
from common.progress import Progress
from common.sizes import bytes_text, generations_text, seconds_text
from lake.reports import HandoffReport
from streamvault.cli.costs import cost_fields
from streamvault.cli.options import (
    DryRun,
    Json,
    LargestEvent,
    LogLevel,
    LogLevelOption,
    Master,
    TableSource,
    TargetSize,
    Window,
)
from streamvault.cli.output import Results
from streamvault.cli.running import run, whole_command

__all__ = ["handoff"]


class Format(StrEnum):
    """What catalogs shall say of the table."""

    ICEBERG = "iceberg"
    PARQUET = "parquet"


class DecodeAs(StrEnum):
    """What payloads are."""

    NONE = "none"
    JSON = "json"
    AVRO = "avro"
    CSV = "csv"


class Engine(StrEnum):
    """Whose statements are printed."""

    ATHENA = "athena"
    TRINO = "trino"
    HIVE = "hive"


def handoff(
    source: TableSource,
    *,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="[DATABASE.]NAME", help="Instead of scope and stream.", show_default=False),
    ] = None,
    table_format: Annotated[
        Format | None, typer.Option("--format", help="Of a new table. [default: iceberg]", show_default=False)
    ] = None,
    decode: Annotated[
        DecodeAs | None, typer.Option("--decode", help="Make columns of the payloads' fields.", show_default=False)
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help='The columns: JSON {"field": "type"}, or an Avro schema; else they are inferred from a sample.',
            show_default=False,
        ),
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option(
            "--event-time",
            metavar="FIELD[:UNIT]",
            help="A column event_time of this field; the unit of numbers is s, ms, us or ns.",
            show_default=False,
        ),
    ] = None,
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="CATALOG",
            help="glue, rest:URI, sql:URI or a name in PyIceberg's configuration.",
            show_default=False,
        ),
    ] = None,
    projection: Annotated[
        bool, typer.Option("--projection", help="Parquet in Glue: partition projection, not partitions.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Also a table over the objects of layout events.")] = False,
    root: Annotated[
        str | None,
        typer.Option(
            "--root", metavar="ROOT", help="Where the table goes, if not into the archive.", show_default=False
        ),
    ] = None,
    target_size: TargetSize = None,
    print_ddl: Annotated[
        Engine | None,
        typer.Option("--print-ddl", help="Only print the statements that register the table.", show_default=False),
    ] = None,
    window: Window = "64MiB",  # type: ignore[assignment]  # typer parses defaults too
    largest_event: LargestEvent = "256MiB",  # type: ignore[assignment]
    master: Master = "local[*]",
    dry_run: DryRun = False,
    as_json: Json = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> int:
    """Make an archive, or a stream, a table for Athena, Trino, Presto, Hive and Spark; what is new is added to it."""
    said: dict[str, Any] = {
        "table": table,
        "format": None if table_format is None else table_format.value,
        "decode": None if decode is None else decode.value,
        "event_time": event_time,
        "raw": raw,
        "root": root,
    }
    if print_ddl is not None:

        def print_it(_: Progress) -> str:
            from lake.handoff import print_table_ddl

            return print_table_ddl(source, print_ddl.value, schema=_read(schema), **said)

        return run(
            print_it,
            show=_print,
            document=lambda text: {"ddl": text},
            as_json=as_json,
            log_level=log_level,
        )

    def work(progress: Progress) -> HandoffReport:
        from lake.handoff import handoff_archive

        report = handoff_archive(
            source,
            schema=_read(schema),
            catalog=catalog,
            projection=projection,
            target_size=target_size,
            window=window,
            largest_event=largest_event,
            master=master,
            dry_run=dry_run,
            progress=progress,
            **said,
        )
        return whole_command(report)

    return run(
        work,
        show=_show,
        document=HandoffReport.to_json,
        as_json=as_json,
        log_level=log_level,
        resumable=not dry_run,
    )


def _print(results: Results, text: str) -> None:
    for line in text.splitlines():
        results.line(line)


def _read(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise Usage("--schema cannot be read", where=f"{name}: {reason}") from None


def _show(results: Results, report: HandoffReport) -> None:
    if report.unchanged:
        what = "nothing new in the stream" if report.stream else "the table has every generation"
        results.line(f"{what}: {report.table} at {report.location}")
        return
    if report.added:
        would = "would write" if report.dry_run else "wrote"
        results.line(f"{would} {generations_text(report.added)} of {report.table}")
    fields = {"table": report.location, "columns": ", ".join(report.columns)}
    if report.added:
        is_estimate = report.dry_run and report.stream
        fields["events"] = f"{'about ' if is_estimate else ''}{report.events:,}"
        fields["bytes"] = f"{report.bytes:,} ({bytes_text(report.bytes)})"
        fields["files"] = f"{report.files:,}"
        if not report.dry_run:
            fields["file bytes"] = f"{report.file_bytes:,} ({bytes_text(report.file_bytes)})"
    if report.gaps:
        fields["gaps"] = f"{len(report.gaps):,} (see the warnings)"
    if report.undecoded:
        fields["not decoded"] = f"{report.undecoded:,} (their column _error says why)"
    if report.registered:
        fields["registered"] = generations_text(report.registered)
    if report.raw_segments:
        fields["raw table"] = f"{report.raw_segments:,} segments"
    results.fields(
        {
            **fields,
            **cost_fields(report.cost),
            "seconds": f"{seconds_text(report.seconds)} of {seconds_text(report.total_seconds)} in all",
        }
    )
