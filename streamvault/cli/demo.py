"""`streamvault demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from streamvault.cli.options import Master, option
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run, whole_command
from streamvault.common.progress import Progress
from streamvault.common.sizes import seconds_text

if TYPE_CHECKING:
    from streamvault.demo import DemoReport


def demo(
    *,
    keep: Annotated[
        str | None,
        option(
            "--keep",
            "Keep the streams and a copy of the archive in this folder.",
            environment=False,
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
    events: Annotated[
        int, option("--events", "Number of events to generate.", metavar="N", min=10, max=1_000_000)
    ] = 2_000,
    master: Master = "local[*]",
    running: Running,
) -> int:
    """Demonstrate the commands on a generated stream.

    No server is needed: the streams are in a folder, and moto serves S3 on this machine.
    """

    def work(progress: Progress) -> DemoReport:
        from streamvault.demo import run_demo

        return whole_command(
            run_demo(events=events, keep=None if keep is None else Path(keep), master=master, progress=progress)
        )

    return run(work, show=_show, document=lambda report: report.to_json(), running=running)


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
    results.line(f"All checks passed. {seconds_text(report.total_seconds)}")
