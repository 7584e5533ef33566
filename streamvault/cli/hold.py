"""`streamvault hold` and `streamvault release`."""

from __future__ import annotations

from streamvault.cli.options import ArchiveArgument, HoldName
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import generations_text
from streamvault.manifests.options import HoldOptions, ReleaseOptions
from streamvault.manifests.verbs.reports import HoldReport


def hold(archive: ArchiveArgument, name: HoldName, options: HoldOptions, *, running: Running) -> int:
    """Keep a generation and those after it from expiring.

    It lasts until the hold is released.
    """
    return running.verb("hold_archive", archive, name, options, show=_show_held)


def _show_held(results: Results, report: HoldReport) -> None:
    done = "is already on" if report.unchanged else "would be placed on" if report.dry_run else "is on"
    results.line(f"hold {report.name} {done} generation {report.generations[0]} of {report.archive}")


def release(archive: ArchiveArgument, name: HoldName, options: ReleaseOptions, *, running: Running) -> int:
    """Release a hold, so that the generations it kept may expire."""
    return running.verb("release_archive", archive, name, options, show=_show_released)


def _show_released(results: Results, report: HoldReport) -> None:
    done = "would be released from" if report.dry_run else "released from"
    results.line(f"hold {report.name} {done} {generations_text(report.generations)} of {report.archive}")
