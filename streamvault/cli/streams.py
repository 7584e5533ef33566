"""`streamvault streams` and `streamvault sweep`."""

from __future__ import annotations

from streamvault.cli.options import ScopeArgument, StoreArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.units import bytes_text, count_text
from streamvault.manager.reports import StreamListing, StreamSummary, SweepOptions, SweepReport


def streams(store: StoreArgument, *, command: Command) -> None:
    """List the streams of a scope or a cluster."""
    from streamvault.manager.manager import list_streams

    found = tuple(command.run(list_streams, store))
    command.progress.warn_all(f"{one.stream}: {one.problem}" for one in found if one.problem)
    command.write(StreamListing(streams=found).to_json(), lambda results: _show(results, store, found))


def _show(results: Results, store: str, found: tuple[StreamSummary, ...]) -> None:
    if not found:
        results.line(f"no streams in {store}")
        return
    results.table(
        {"STREAM": False, "SEGMENTS": True, "BYTES": True, "REMARKS": False},
        [
            (one.stream, "?", "?", "cannot be read")
            if one.problem
            else (one.stream, f"{one.segments:,}", bytes_text(one.bytes), _remarks(one))
            for one in found
        ],
    )


def _remarks(one: StreamSummary) -> str:
    remarks = [f"Streamvault's: {one.role}"] if one.own else ["ephemeral"] if one.role == "ephemeral" else []
    return ", ".join(["sealed"] * one.sealed + remarks)


def sweep(scope: ScopeArgument, options: SweepOptions, *, command: Command) -> None:
    """Delete what killed runs have left behind in a scope.

    Deletes expired ephemeral streams, and leases, ledgers and unfinished targets that nobody has held for --older-than.
    Nothing that could be the only copy of an event is deleted; --dry-run shows what is kept, and why. Restores the key
    ranges and policy of a stream that a killed append had scaled.
    """
    from streamvault.manager.sweep import sweep_scope

    command.call(sweep_scope, scope, options, show=_show_sweep, resumable=True)


def _show_sweep(results: Results, report: SweepReport) -> None:
    verb = "would remove" if report.dry_run else "removed"
    for one in report.leftovers:
        results.line(f"{verb} {one.stream} ({one.role})" if one.swept else f"kept {one.stream}: {one.reason}")
    for stream in report.scaled:
        results.line(f"{'would restore' if report.dry_run else 'restored'} the key ranges and the policy of {stream}")
    removed = sum(one.swept for one in report.leftovers)
    results.line(f"{report.scope}: {verb} {count_text(removed, 'stream')}, kept {len(report.leftovers) - removed}")
