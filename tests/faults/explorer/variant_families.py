"""Families of schedules with the variants of commands and scenes, and those that find what is not mended yet.

A new family goes into a file of its own, like this one: a mapping of what was found to texts of families (`family`),
which a test runs with `at_each_point`. What finds a defect that is known and not mended is in `UNTIL_MENDED`, too: its
test is expected to fail, and to pass is a failure, so that nobody forgets to take the name out.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MIRROR_VARIED", "UNTIL_MENDED", "VARIED", "Unmended", "is_left_out"]

VARIED: dict[str, tuple[str, ...]] = {
    "ranges of two sizes": (
        "chunks/grown export-70,write,export-130",
        "zstd/new export-130,export-70,retain",
        "chunks/grown/harsh rotate-70,export",
        "chunks/scaled export-70,compact,hour,compact",
    ),
    "two layouts of one archive": (
        "events/grown export-other-layout,export",
        "chunks/grown export,export-other-layout,retain",
        "zstd/grown compact,export-other-layout,compact,hour,compact",
    ),
    "an export to a cut beside one to the tail": (
        "chunks/grown export-to,export,retain",
        "events/scaled export,export-to",
        "chunks/new/harsh export-to,rotate",
    ),
    "an export that begins at a cut": ("chunks/new export-from,write,export", "events/new export,export-from"),
    "segments of bytes": (
        "chunks/bytes export,rotate",
        "zstd/bytes-grown export,export,retain",
        "chunks/bytes-grown compact,expire-all",
        "chunks/bytes-grown/harsh rotate,write,rotate",
    ),
    "events that are longer than a range": (
        "chunks/grown export,write-large,export,retain",
        "events/new write-large,export,export,retain",
        "zstd/grown compact,write-large,export,compact,hour,compact",
    ),
    "pages of a listing that are of different moments": (
        "chunks/grown/harsh export,export,retain",
        "events/strayed/harsh export,write,expire-all",
        "chunks/merged/harsh compact,rotate,hour,compact",
        "zstd/merged/harsh check,compact,hour,compact",
    ),
    "requests that are made twice, or arrive late": (
        "chunks/new/harsh export,rotate,arrive :late,+unavailable",
        "events/grown/harsh rotate,export,retain,arrive :late,+unavailable",
        "chunks/merged/harsh compact,rotate,hour,compact,arrive :late,+unavailable",
        "chunks/freed/harsh expire-all,hold-first,arrive :late,+unavailable",
        "events/freed hold-first,expire-all,arrive :late",
    ),
    "merges whose originals are deleted": (
        "chunks/merged rotate,compact,hour,compact-soon",
        "zstd/merged compact-soon,rotate,hour,compact",
        "chunks/grown compact-3,rotate,hour,compact-soon",
    ),
    "a clock that goes back": (
        "chunks/grown expire-old,clock-back,day,export",
        "events/merged rotate,clock-back,rotate",
    ),
}

MIRROR_VARIED: dict[str, tuple[str, ...]] = {
    "rounds that follow each other": (
        "events/replica replicate-follow,write",
        "events/replica replicate-follow,scale,write",
        "events/new replicate-follow,write,retain,write",
        "events/replica-even promote,replicate-follow",
    ),
    "an archive as the source of a replica": (
        "events/grown replicate-archive,write,export",
        "events/grown replicate-archive,promote",
        "chunks/grown-scaled replicate-archive,export",
    ),
    "a target that is deleted and made again": (
        "events/replica replicate-follow,target-delete,target-make",
        "events/replica-even promote,target-delete,replicate",
    ),
}


@dataclass(frozen=True)
class Unmended:
    """A defect that is known.

    Attributes:
        point: of the issue. families: find it; a text with steps is one schedule.
        together: commands that find it if a schedule has all of one set; such schedules are not drawn.
        phases: which find it, and are not drawn from.
    """

    point: str
    families: tuple[str, ...]
    together: tuple[frozenset[str], ...] = ()
    phases: frozenset[str] = frozenset()


UNTIL_MENDED: dict[str, Unmended] = {
    "another stream is taken for an archived one of which nothing can be compared": Unmended(
        "section 2: nothing is truncated that was not compared",
        ("events/new retain,export;other",),
        tuple(frozenset({"other", name}) for name in ("retain", "retain-half", "export-from", "export-to", "seal")),
    ),
    "what lies before the cut of --from is truncated": Unmended(
        "section 2: export --from CUT, then rotate --truncate-source",
        ("events/new export-from;expire-all", "chunks/new export-from;rotate"),
        (frozenset({"export-from"}),),
    ),
    "a clock that is ahead lets generations expire": Unmended(
        "section 2: a wrong clock expires generations on its second run",
        ("chunks/merged expire-old,clock-ahead", "zstd/grown clock-ahead,rotate;expire-old"),
        (frozenset({"expire-old", "clock-ahead"}),),
    ),
    "two merges of ranges that do not divide each other": Unmended(
        "section 2: two compactions publish a generation whose object does not exist",
        (
            "chunks/new " + "export-48,write," * 3 + "export-72,compact,compact-250,compact-250,compact"
            " 1 2 3 4 5 6 7 9@6 8@42 9 10 11 8",
        ),
        tuple(frozenset({export, "compact-250"}) for export in ("export-48", "export-70", "export-72", "export-130")),
    ),
    "the only copy that was read back is deleted before the merged one was": Unmended(
        "section 2: what may be deleted, and the marks that allow it, are judged in one listing",
        ("chunks/new export-70,write,export-70,compact,rotate,write,export-70,hour;compact-1,compact",),
        (
            frozenset({"compact-1"}),
            *(
                frozenset({merge, "rotate", "hour"})
                for merge in ("compact", "compact-3", "compact-250", "compact-soon")
            ),
            frozenset({"compact", "rotate-2", "hour"}),
        ),
        frozenset({"three stops"}),
    ),
    "a promotion beside a replication that wakes": Unmended(
        "section 3: promote beside a replication that wakes",
        (
            "events/replica retain,write,scale,write,replicate,promote,hour 1 2 3 4 5@36 7 6@70 5@44 6 5",
            "events/replica-even scale,replicate,promote 1 2@53 3@65 2@55 3",
        ),
        phases=frozenset({"three stops of replicas"}),
    ),
}


def is_left_out(commands: tuple[str, ...]) -> bool:
    """Whether a schedule of these commands may find a defect that is not mended yet."""
    names = frozenset(commands)
    return any(some <= names for unmended in UNTIL_MENDED.values() for some in unmended.together)
