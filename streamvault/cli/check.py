"""`streamvault check`."""

from __future__ import annotations

from typing import Annotated

import typer

from common.errors import Damaged, Usage
from common.progress import Progress
from common.sizes import bytes_text, count_text, seconds_text
from manifests.reports import CheckReport
from streamvault.cli.options import (
    ArchiveArgument,
    Fingerprints,
    Generation,
    Json,
    LogLevel,
    LogLevelOption,
    Master,
    Share,
)
from streamvault.cli.output import Results
from streamvault.cli.running import run, whole_command

__all__ = ["check"]


def check(
    archive: ArchiveArgument,
    *,
    read_data: Annotated[
        bool, typer.Option("--read-data", help="Read all data again and compare its digests.")
    ] = False,
    share: Share = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Choose the same ranges as the check that printed this seed.", show_default=False),
    ] = None,
    generation: Generation = None,
    fingerprint: Fingerprints = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Delete objects that belong to no event, if nothing is damaged.")
    ] = False,
    master: Master = "local[*]",
    as_json: Json = False,
    log_level: LogLevelOption = LogLevel.WARNING,
) -> int:
    """Prove that an archive is whole. Exit code 3 if anything is missing or changed."""

    def work(progress: Progress) -> CheckReport:
        if read_data and share is not None:
            raise Usage("--read-data reads everything, --read-data-subset a part", todo="Give one of them.")
        if seed is not None and share is None:
            raise Usage("--seed chooses the ranges of a sample", todo="Give --read-data-subset too.")
        from manifests.check_archive import check_archive

        report = check_archive(
            archive,
            read_data=read_data,
            subset=share,
            seed=seed,
            generation=generation,
            fingerprints=fingerprint or (),
            repair=repair,
            master=master,
            progress=progress,
        )
        return whole_command(report)

    return run(
        work,
        show=_show,
        document=CheckReport.to_json,
        as_json=as_json,
        log_level=log_level,
        exit_code=lambda report: 0 if report.ok else Damaged.exit_code,
    )


def _show(results: Results, report: CheckReport) -> None:
    results.line(f"{'sound' if report.ok else 'DAMAGED'}: {report.archive}")
    read = f"the data of {report.ranges_read:,} read and compared" if report.ranges_read else "no data read"
    results.fields(
        {
            "generations": ", ".join(map(str, report.generations)),
            "events": f"{report.events:,}",
            "bytes": f"{report.bytes:,} ({bytes_text(report.bytes)})",
            "ranges": f"{report.ranges:,}, {read}",
            "seed": "" if report.seed is None else str(report.seed),
            "seconds": f"{seconds_text(report.seconds)} of {seconds_text(report.total_seconds)} in all",
        }
    )
    if report.strays:
        results.line(f"note: {_strays(report)}")
    for note in report.notes:
        results.line(f"note: {note}")
    for finding in report.findings:
        results.line(f"damaged: {finding}")
    if report.more_findings:
        results.line(f"damaged: and {count_text(report.more_findings, 'more finding')}")


def _strays(report: CheckReport) -> str:
    objects = count_text(report.strays, "object")
    if report.removed:
        return f"{objects} belonged to no event; {report.removed:,} removed"
    told = "belongs to no event; it harms" if report.strays == 1 else "belong to no event; they harm"
    return f"{objects} {told} nobody. --repair removes what can be proved to be useless"
