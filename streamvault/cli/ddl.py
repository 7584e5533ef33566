"""`streamvault ddl`."""

from __future__ import annotations

from typing import Annotated

from streamvault.cli.options import TableSource, argument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.lake.options import DdlOptions, Engine


def ddl(
    source: TableSource,
    engine: Annotated[Engine, argument("ENGINE", "athena, trino (also for Presto) or hive (also for Spark).")],
    options: DdlOptions,
    *,
    running: Running,
) -> int:
    """Print the statements that register a table.

    The table must have been created from the same source by `handoff`.
    """
    from streamvault.lake.handoff import table_ddl

    with running.command() as command:
        text = table_ddl.with_options(source, engine, options)
        command.write({"ddl": text}, lambda results: _show(results, text))
    return command.exit_code


def _show(results: Results, text: str) -> None:
    for line in text.splitlines():
        results.line(line)
