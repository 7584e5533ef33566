"""Compaction of generations with several range sizes, beside other compactions, exports and deletions."""

from __future__ import annotations

from collections.abc import Iterator

from testkit.explorer.explore import at_each_point, calls_of
from testkit.explorer.schedule import Schedule, Step

PAUSED: dict[str, tuple[str, ...]] = {
    "the only copy that was read back is deleted": (
        "chunks/joined clear,compact",
        "zstd/joined clear,compact",
        "chunks/joined rotate,compact",
        "chunks/joined compact,write,export-40,compact",
        "events/joined clear,compact",
    ),
    "range sizes that do not divide each other": (
        "chunks/sizes compact-small,export-40,compact,hour,compact",
        "zstd/sizes compact,write,export-56,compact-small,hour,compact",
        "chunks/sizes export-72,compact-small,write,export-48,compact",
        "chunks/new export-40,write,export-56,write,export-70,compact",
        "events/sizes compact,write,export-56,compact-small,hour,compact",
        "events/sizes export-40,compact-small,compact",
    ),
    "an index without its manifest, and a plan that goes": (
        "chunks/sizes export-56,export,check",
        "events/sizes export-56,check,export",
        "zstd/joined rotate,export-48,check",
        "chunks/merged export-40,expire-all,check",
    ),
}
"""As `families.KNOWN`: one command is stopped before each of its calls."""

BESIDE: dict[str, tuple[str, ...]] = {
    "a generation is published whose object does not exist": (
        "chunks/sizes compact-small,compact,compact-small,compact",
        "zstd/sizes compact-small,compact,compact-small,compact",
    ),
}
"""Families of `paused_twice`."""

EARLY = range(2, 14, 3)
"""Before which calls the first compaction is stopped: it has looked for merges under way, or is about to."""


def paused_twice(scene: str, commands: tuple[str, ...]) -> Iterator[Schedule]:
    """A compaction is stopped early, the next one anywhere; the first goes on, the others run, then the second."""
    others = (Step(place) for place in range(2, len(commands)))
    middle = (Step(0), *others)
    for two in range(1, calls_of(scene, commands[1:2])[0] + 1):
        for one in EARLY:
            yield Schedule(scene, commands, (Step(0, one), Step(1, two), *middle, Step(1)))


def compacting(faults: tuple[str, ...] = ("",)) -> Iterator[Schedule]:
    """All schedules of this module.

    Args:
        faults: what becomes of the call that the only one was stopped before.
    """
    for text in (text for texts in PAUSED.values() for text in texts):
        scene, commands = text.split()
        yield from at_each_point(scene, commands.split(","), faults)
    for text in (text for texts in BESIDE.values() for text in texts):
        scene, commands = text.split()
        yield from paused_twice(scene, tuple(commands.split(",")))
