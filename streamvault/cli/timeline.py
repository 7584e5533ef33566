"""`streamvault timeline`."""

from __future__ import annotations

from collections.abc import Mapping

from streamvault.cli.options import ArchiveArgument
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text, events_text
from streamvault.manifests.verbs.reports import Timeline

SEGMENTS_SHOWN = 3
"""Maximum segments of a cut in the table; `--json` has all of them."""


def timeline(archive: ArchiveArgument, *, running: Running) -> int:
    """List an archive's generations, cuts, holds and checks.

    Generations that have expired are left out.
    """
    return running.verb("show_timeline", archive, show=_show)


def _show(results: Results, timeline: Timeline) -> None:
    results.line(timeline.archive)
    if timeline.expired_up_to:
        results.line(f"generations up to {timeline.expired_up_to} have expired")
    results.table(
        {
            "GENERATION": True,
            "TAKEN": False,
            "EVENTS": True,
            "BYTES": True,
            "LAYOUT": False,
            "CHECKED": False,
            "HOLDS": False,
            "READER GROUPS": False,
            "FROM": False,
            "TO": False,
        },
        [
            (
                str(entry.generation) if entry.first == entry.generation else f"{entry.first}-{entry.generation}",
                entry.created,
                events_text(entry.events, entry.bytes) or "-",
                bytes_text(entry.bytes),
                entry.layout,
                entry.checked_at or "no",
                ", ".join(entry.holds),
                "-" if entry.group_names is None else ", ".join(entry.group_names) or "none",
                _short(entry.from_cut),
                _short(entry.to_cut),
            )
            for entry in timeline.entries
        ],
    )


def _short(cut: Mapping[str, int]) -> str:
    """Return a cut's first segments, without scope and stream."""
    shown = [f"{name.rpartition('/')[2]}:{offset}" for name, offset in list(cut.items())[:SEGMENTS_SHOWN]]
    more = len(cut) - len(shown)
    return " ".join([*shown, *([f"+{more} more"] if more else [])])
