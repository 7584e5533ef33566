"""`streamvault demo`."""

from __future__ import annotations

import shlex

from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import seconds_text
from streamvault.demo.report import DemoOptions, DemoReport


def demo(options: DemoOptions, *, command: Command) -> None:
    """Demonstrate the commands on a generated stream.

    No server is needed: the streams are in a folder, and moto serves S3 on this machine.
    """
    from streamvault.demo.tour import run_demo

    command.call(run_demo, options, show=_show)


def _show(results: Results, report: DemoReport) -> None:
    results.table(
        {"STEP": False, "RESULT": False, "SECONDS": True},
        [(proof.step, proof.shown, f"{proof.seconds:.1f}") for proof in report.proofs],
    )
    results.line("")
    results.line(f"The first objects of {report.archive}:")
    for key in report.first_keys:
        results.line(f"  {key}")
    if report.kept:
        results.line(f"Kept in {report.kept}: the streams, and a copy of the archive.")
    if report.page:
        results.line(f"Open {report.page} in a browser to see an archive of a stream that grows.")
        if not report.kept:
            results.line("The archive itself was deleted. With --keep FOLDER it is kept, and the page's commands work.")
    results.line(f"All checks passed. {seconds_text(report.total_seconds)}")
    where = shlex.quote(f"{report.kept}/archive/demo/orders") if report.kept else "ARCHIVE"
    results.line(f"Unchanged Pravega clients can read an archive as if it were the stream: streamvault serve {where}")
