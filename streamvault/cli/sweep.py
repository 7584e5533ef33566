"""`streamvault sweep`."""

from __future__ import annotations

from streamvault.cli.options import ScopeArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import count_text
from streamvault.manager.options import SweepOptions
from streamvault.manager.reports import SweepReport


def sweep(scope: ScopeArgument, options: SweepOptions, *, running: Running) -> int:
    """Delete what killed runs have left behind in a scope.

    Expired ephemeral streams; leases, ledgers and unfinished targets that nobody has held for --older-than. Nothing
    that could be the only copy of an event is deleted: --dry-run shows what stays, and why. A stream that a killed
    append had scaled gets its key ranges and policy back.
    """
    return running.verb("sweep_scope", scope, options, show=_show, resumable=True)


def _show(results: Results, report: SweepReport) -> None:
    verb = "would remove" if report.dry_run else "removed"
    for one in report.leftovers:
        results.line(f"{verb} {one.stream} ({one.role})" if one.swept else f"kept {one.stream}: {one.reason}")
    for stream in report.scaled:
        results.line(f"{'would give' if report.dry_run else 'gave'} {stream} its key ranges and its policy back")
    removed = sum(one.swept for one in report.leftovers)
    results.line(f"{report.scope}: {verb} {count_text(removed, 'stream')}, kept {len(report.leftovers) - removed}")
