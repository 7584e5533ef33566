"""``python -m benchmarks NAME``: runs a benchmark and prints its tables in Markdown."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from benchmarks import (
    chunks,
    copying,
    cores,
    decoding,
    epochs,
    export_import,
    growth,
    handoff,
    memory,
    rotation,
    scaling,
    scopes,
    serving,
    standby,
)
from benchmarks.results import Results
from testkit.servers.availability import Unavailable

MODULES = (
    chunks,
    copying,
    cores,
    decoding,
    epochs,
    export_import,
    growth,
    handoff,
    memory,
    rotation,
    scaling,
    scopes,
    serving,
    standby,
)
BENCHMARKS = {module.__name__.rpartition(".")[2]: module for module in MODULES}


def main() -> int:
    """Run the named benchmark; return 1 if a server is not available."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Runs a benchmark and prints its tables in Markdown."
    )
    names = parser.add_subparsers(dest="name", required=True)
    for name, module in BENCHMARKS.items():
        benchmark = names.add_parser(name, help=module.HELP)
        module.add_arguments(benchmark)
        benchmark.add_argument("--json", type=Path, metavar="FILE", help="write every single figure to this file, too")
    arguments = parser.parse_args()
    results = Results(f"python -m benchmarks {shlex.join(sys.argv[1:])}")
    try:
        BENCHMARKS[arguments.name].run(arguments, results)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    print(results.markdown())
    if arguments.json:
        results.write_json(arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
