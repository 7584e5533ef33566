"""`streamvault show --timeline`."""

from __future__ import annotations

from collections.abc import Mapping

from common.errors import Usage
from common.progress import Progress
from common.sizes import bytes_text
from manifests.reports import Timeline
from streamvault.cli.options import LogLevel
from streamvault.cli.output import Results
from streamvault.cli.running import run

__all__ = ["show"]

SEGMENTS_SHOWN = 3
"""Of a cut; `--json` has all."""


def show(archive: str, generation: int | None, *, as_json: bool, log_level: LogLevel) -> int:
    """Print the generations that have not expired."""

    def work(_progress: Progress) -> Timeline:
        if generation is not None:
            raise Usage("--timeline shows every generation", todo="Leave --generation out.")
        from manifests.show import show_timeline

        return show_timeline(archive)

    return run(work, show=_show, document=Timeline.to_json, as_json=as_json, log_level=log_level)


def _show(results: Results, timeline: Timeline) -> None:
    results.line(timeline.archive)
    if timeline.expired:
        results.line(f"generations up to {timeline.expired} have expired")
    results.table(
        {
            "GENERATION": True,
            "TAKEN": False,
            "EVENTS": True,
            "BYTES": True,
            "LAYOUT": False,
            "CHECKED": False,
            "HOLDS": False,
            "FROM": False,
            "TO": False,
        },
        [
            (
                str(entry.generation) if entry.first == entry.generation else f"{entry.first}-{entry.generation}",
                entry.created,
                f"{entry.events:,}",
                bytes_text(entry.bytes),
                entry.layout,
                entry.checked or "no",
                ", ".join(entry.holds),
                _short(entry.start),
                _short(entry.end),
            )
            for entry in timeline.generations
        ],
    )


def _short(cut: Mapping[str, int]) -> str:
    """A cut's first segments, without scope and stream."""
    told = [f"{name.rpartition('/')[2]}:{offset}" for name, offset in list(cut.items())[:SEGMENTS_SHOWN]]
    more = len(cut) - len(told)
    return " ".join([*told, *([f"+{more} more"] if more else [])])
