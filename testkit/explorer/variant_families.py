"""Families of schedules with the variants of commands and scenes.

A new family goes into a file of its own, like this one: a mapping of what it is about to texts of families (`family`),
which a test runs with `at_each_point`.
"""

from __future__ import annotations

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
    "a conversion that is given up for another layout": (
        "chunks/grown convert,convert-restart ,!,+!",
        "events/new convert,convert-restart ,!,+!",
        "chunks/grown convert-restart,convert ,!,+!",
        "events/grown convert;convert-restart,convert !,+!",
    ),
    "a conversion that is given up after its archive was compacted": (
        "chunks/grown convert,compact,convert-restart !",
        "chunks/merged convert-restart,compact,convert",
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
    "a command that is killed at any call, and repeated": (
        "chunks/merged expire-all !,+!",
        "chunks/grown compact,hour,compact !,+!",
        "events/grown convert !,+!",
        "zstd/bytes-grown export !,+!",
    ),
    "an import whose generations are merged or expire": (
        "chunks/grown import,compact,hour,compact !,+!",
        "chunks/freed import,expire-all",
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
    "a replica that is deleted after its source was sealed for it": (
        "events/replica move,target-drop,copy !",
        "events/replica-behind promote-seal,target-drop,copy,move !,+!",
        "events/new move,target-drop,copy-shift,move !",
        "events/new move,target-drop,move-shift !",
        "events/replica move,target-drop,replicate-shift,target-drop,move !",
        "events/replica promote-seal,target-drop,copy,target-delete,replicate,promote-seal !",
    ),
    "a copy that was killed leaves a lease or a ledger": (
        "events/scaled copy-shift !,+!",
        "events/new copy;copy,target-delete",
    ),
    "a target that is deleted and made again": (
        "events/replica replicate-follow,target-delete,target-make",
        "events/replica-even promote,target-delete,replicate",
    ),
}


MENDED: dict[str, tuple[str, ...]] = {
    "a clock that is ahead": ("chunks/merged expire-old,clock-ahead", "zstd/grown clock-ahead,rotate;expire-old"),
    "two merges of ranges that do not divide each other": (
        "chunks/new " + "export-48,write," * 3 + "export-72,compact,compact-250,compact-250,compact"
        " 1 2 3 4 5 6 7 9@6 8@42 9 10 11 8",
    ),
    "the only copy that was read back": (
        "chunks/new export-70,write,export-70,compact,rotate,write,export-70,hour;compact-1,compact",
    ),
    "a promotion beside a replication that wakes": (
        "events/replica retain,write,scale,write,replicate,promote,hour 1 2 3 4 5@36 7 6@70 5@44 6 5",
        "events/replica-even scale,replicate,promote 1 2@53 3@65 2@55 3",
    ),
    "a move that finds its source gone after a promotion that has not ended": (
        "events/replica-behind promote,drop,move-bare 1@28 2 3 1+unavailable",
    ),
    "a plan whose generation another run publishes right now": ("chunks/strayed expire-all,follow-rotating 1@11 2@25",),
}
"""Families and schedules that once found a defect; a text with steps is one schedule."""

LEFT_OUT = {
    "the archive is empty when another stream continues it, and the export of the end is told that it is the same": (
        *(frozenset({"other", name}) for name in ("retain", "retain-half", "export-from", "export-to", "seal")),
    ),
    "what lies before the cut of --from is not archived, so a rotation refuses to truncate": (
        *(frozenset({"export-from", name}) for name in ("rotate", "rotate-70", "rotate-2", "expire-all", "expire")),
        *(frozenset({"export-from", name}) for name in ("queue", "follow-rotating", "expire-old")),
    ),
}
"""Why schedules are not drawn if they have all commands of a set."""


def is_left_out(commands: tuple[str, ...]) -> bool:
    """Whether a schedule of these commands is not drawn."""
    names = frozenset(commands)
    return any(some <= names for left_out in LEFT_OUT.values() for some in left_out)
