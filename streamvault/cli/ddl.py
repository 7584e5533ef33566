"""`streamvault ddl`."""

from __future__ import annotations

from typing import Annotated

import typer

from streamvault.cli.options import TableSource
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run
from streamvault.common.progress import Progress
from streamvault.lake.options import DdlOptions, Engine


def ddl(
    source: TableSource,
    engine: Annotated[
        Engine, typer.Argument(metavar="ENGINE", help="athena, trino (also for Presto) or hive (also for Spark).")
    ],
    options: DdlOptions,
    *,
    running: Running,
) -> int:
    """Print the statements that register a table.

    The table must have been created from the same source by `handoff`.
    """

    def work(_: Progress) -> str:
        from streamvault.lake.handoff import table_ddl

        return table_ddl(source, engine, **options.keywords())

    return run(work, show=_show, document=lambda text: {"ddl": text}, running=running)


def _show(results: Results, text: str) -> None:
    for line in text.splitlines():
        results.line(line)
