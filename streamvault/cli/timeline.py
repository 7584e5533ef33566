"""`streamvault timeline`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from streamvault.cli.options import ArchiveArgument, option
from streamvault.cli.output import Results
from streamvault.cli.running import Running
from streamvault.common.sizes import bytes_text, events_text
from streamvault.common.times import exact_moment_text, seconds_moment_text
from streamvault.manifests.verbs.reports import Timeline

SEGMENTS_SHOWN = 3
"""Maximum segments of a cut with ``--wide``; `--json` has all of them."""


def timeline(
    archive: ArchiveArgument,
    *,
    wide: Annotated[
        bool, option("--wide", "Also show where each generation begins and ends in the first segments.")
    ] = False,
    running: Running,
) -> int:
    """List an archive's generations, holds and checks.

    Generations that have expired are left out.
    """
    return running.verb("show_timeline", archive, show=partial(_show, wide=wide))


def _show(results: Results, timeline: Timeline, *, wide: bool = False) -> None:
    results.line(timeline.archive)
    if timeline.expired_up_to:
        results.line(f"generations up to {timeline.expired_up_to} have expired, says {timeline.decision}")
    if timeline.being_deleted:
        results.line(f"the archive is being deleted, says {timeline.decision}")
    columns = {
        "GENERATION": True,
        "TAKEN": False,
        "EVENTS": True,
        "BYTES": True,
        "LAYOUT": False,
        "READ BACK": False,
        "HOLDS": False,
        "READER GROUPS": False,
        "FROM": False,
        "TO": False,
    }
    rows = [
        (
            str(entry.generation) if entry.first == entry.generation else f"{entry.first} to {entry.generation}",
            exact_moment_text(entry.created),  # --at with a rounded time would choose the generation before
            events_text(entry.events, entry.bytes) or "-",
            bytes_text(entry.bytes),
            entry.layout,
            seconds_moment_text(entry.checked_at) or "no",
            ", ".join(entry.holds),
            "-" if entry.group_names is None else ", ".join(entry.group_names) or "none",
            _short(entry.from_cut),
            _short(entry.to_cut),
        )
        for entry in timeline.entries
    ]
    hidden = set() if wide else {"FROM", "TO"}
    hidden |= set() if any(entry.holds for entry in timeline.entries) else {"HOLDS"}
    hidden |= {"READER GROUPS"} if all(entry.group_names is None for entry in timeline.entries) else set()
    shown = [index for index, name in enumerate(columns) if name not in hidden]
    results.table(
        {name: number for name, number in columns.items() if name not in hidden},
        [tuple(row[index] for index in shown) for row in rows],
    )


def _short(cut: Mapping[str, int]) -> str:
    """Return a cut's first segments, without scope and stream."""
    shown = [f"{name.rpartition('/')[2]}:{offset}" for name, offset in list(cut.items())[:SEGMENTS_SHOWN]]
    more = len(cut) - len(shown)
    return " ".join([*shown, *([f"+{more} more"] if more else [])])
