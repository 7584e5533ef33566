"""`streamvault handoff` and `streamvault ddl`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.lines import cost_fields, exact_text, time_text
from streamvault.cli.options import TableSource, argument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import generations_text
from streamvault.lake.reports import DdlOptions, Engine, HandoffOptions, HandoffReport


def handoff(source: TableSource, options: HandoffOptions, *, command: Command) -> None:
    """Write an archive or a stream as a table for SQL engines.

    The table can be read by Athena, Trino, Presto, Hive and Spark. Later runs add new events.
    """
    from streamvault.lake.handoff import write_table

    command.call(write_table, source, options, show=_show, resumable=True)


def _show(results: Results, report: HandoffReport) -> None:
    if report.unchanged:
        what = "nothing new in the stream" if report.stream else "nothing new in the archive"
        results.line(f"{what}: {report.table} at {report.location}")
        return
    if report.added:
        would = "would write" if report.dry_run else "wrote"
        results.line(f"{would} {generations_text(report.added)} of {report.table}")
    about = "about " if report.dry_run and report.stream else ""
    results.fields(
        {
            "table": report.location,
            "columns": ", ".join(report.columns),
            "events": report.added and f"{about}{report.events:,}",
            "bytes": report.added and exact_text(report.bytes),
            "files": report.added and f"{report.files:,}",
            "file bytes": report.added and not report.dry_run and exact_text(report.file_bytes),
            "gaps": report.gaps and f"{len(report.gaps):,} (see the warnings)",
            "not decoded": report.undecoded and f"{report.undecoded:,} (see the column _error)",
            "registered": generations_text(report.registered),
            "raw table": report.raw_segments and f"{report.raw_segments:,} segments",
            **cost_fields(report.cost),
            "time": time_text(report),
        }
    )


def ddl(
    source: TableSource,
    engine: Annotated[Engine, argument("ENGINE", "athena, trino (also for Presto), hive, spark or duckdb.")],
    options: DdlOptions,
    *,
    command: Command,
) -> None:
    """Print the statements that register a table.

    The table must have been created from the same source by `handoff`.
    """
    from streamvault.lake.handoff import table_ddl

    text = command.run(table_ddl, source, engine, options)
    command.write({"ddl": text}, lambda results: results.lines(text.splitlines()))
