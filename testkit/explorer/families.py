"""Which schedules are run: one command that is preempted, and what others do meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import islice, product

from testkit.explorer.commands import COMMANDS, MIRRORS
from testkit.explorer.compacting import compacting
from testkit.explorer.explore import COPIES, STITCH, at_each_point, pairs_of_points, random_schedules
from testkit.explorer.schedule import Schedule
from testkit.explorer.variant_families import is_left_out
from testkit.explorer.variants import MIRROR_VARIANTS, VARIANTS

STOPPED = (
    "export",
    "follow",
    "follow-rotating",
    "rotate",
    "expire",
    "expire-all",
    "queue",
    "compact",
    "hold",
    "hold-first",
    "import",
    "convert",
    "handoff",
    "handoff-stream",
    "repair",
    "other",
)
"""Commands that are preempted; an outside event is atomic."""

CHAINS = tuple(
    tuple(text.split(","))
    for text in (
        "export",
        "rotate",
        "expire",
        "expire-all",
        "compact",
        "import",
        "convert",
        "handoff",
        "handoff-stream",
        "hold",
        "hold-first",
        "check",
        "repair",
        "follow",
        "follow-rotating",
        "write",
        "retain",
        "retain-half",
        "scale",
        "remake",
        "other",
        "export,retain",
        "write,export,retain",
        "export,retain,compact",
        "export,retain,write,export,expire-all",
        "export,compact,hour,compact",
        "compact,hour,compact",
        "compact,hour,compact,expire-all",
        "compact,write,export,compact,hour,compact",
        "expire-all,write,export",
        "hour,expire-all",
        "queue,work",
        "queue,hold-first,work",
        "rotate,write,rotate",
        "rotate,write,scale,write,rotate,compact",
        "retain,write,export",
        "export,remake,export",
        "remake,export",
        "export,scale,write,rotate",
        "handoff,write,export,handoff",
        "convert,write,export,convert",
        "hold,write,export,expire-all",
        "hold-first,release,expire-all",
        "write,export,write,export,write,export,compact,hour,compact",
        "write,export-72,compact-small,compact",
        "write,export-40,write,export-56,compact,hour,clear",
    )
)
"""The commands that run to their ends while the first one is stopped."""

BASES = ("new", "scaled", "grown", "grown-scaled", "freed", "merged", "strayed", "joined", "sizes")
LAYOUTS = ("events", "chunks", "zstd")

ENDINGS = ("", "!", "+!", ":unavailable", "+unavailable", ":denied", "+exists")
"""The outcomes of the call before which the first command was stopped."""

KNOWN: dict[str, tuple[str, ...]] = {
    "a late export sweeps what was published": (
        "chunks/new export,rotate",
        "events/new export,rotate",
        "chunks/new export,export,retain",
        "events/new export,export,retain",
        "events/grown rotate,export,retain",
        "chunks/merged follow,rotate",
        "zstd/scaled follow-rotating,rotate,write,rotate",
        "chunks/freed expire-all,rotate,write,rotate",
    ),
    "a late export gives up a plan that was published": (
        "chunks/new export,export,remake",
        "events/grown rotate,remake !",
        "events/scaled other,export,retain",
        "chunks/new other,hour,expire-all",
    ),
    "a plan of another stream is gone on with": (
        "chunks/new export,other",
        "events/new other,rotate",
        "zstd/new queue,other",
        "chunks/grown follow-rotating,other",
        "chunks/grown-scaled expire-all,other",
        "zstd/new other,export,remake,export",
        "events/grown export,remake !",
    ),
    "a dropped mark that comes late": (
        "chunks/grown expire,compact,hour,compact",
        "events/freed expire-all,compact,hour,compact",
        "chunks/merged expire-all,compact,hour,compact",
    ),
    "a hold that is put while a mark is on its way": (
        "chunks/freed expire-all,hold-first",
        "events/freed hold-first,queue,hold-first,work +exists",
        "chunks/merged queue,hold-first,work",
    ),
    "generations that are dropped though none with events stays": (
        "chunks/scaled queue,write,export,retain",
        "chunks/grown queue,write,export,retain",
    ),
    "what late runs leave is called damage": (
        "chunks/merged compact,expire-all",
        "zstd/merged compact,write,export,compact,hour,compact",
        "zstd/freed follow,compact,write,export,compact,hour,compact",
        "zstd/scaled queue,hold,write,export,expire-all",
    ),
    "another run's work is called damage": (
        "zstd/grown compact,hold,compact,hour,compact",
        "zstd/grown hold,compact,compact,hour,compact",
        "chunks/grown convert,compact,hour,compact",
        "chunks/freed convert,expire-all",
        "zstd/grown-scaled export,export,compact,hour,compact",
        "chunks/scaled follow,export,retain,write,export,expire-all",
        "zstd/new follow-rotating,write,export,write,export,write,export,compact,hour,compact",
    ),
    "a conversion ends for good when what it converts is merged": ("events/freed convert,compact !,+!",),
    "a conversion that is killed before its first generation calls its archive damaged": (
        "events/freed expire-all;convert,hold !,+!",
        "events/freed expire-all;convert,write,export,expire-all !,+!",
    ),
    "a sweep that others overtake finds damage": (
        "events/strayed export,write,expire-all",
        "chunks/strayed repair,expire-all",
        "chunks/strayed repair,export,compact,hour,compact",
        "zstd/strayed export,write,expire-all",
    ),
    "a stream that was made again cannot be restored": ("chunks/new hold,remake,export",),
}
"""Bugs that were found: under the name of each, the families of schedules (`at_each_point`) that found it."""


def family(text: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Scene, commands, and the outcomes with which the family was found; before a ``;`` is what runs first."""
    scene, commands, *endings = text.split()
    names = commands.replace(";", ",;,").split(",")
    return scene, tuple(names), tuple(endings[0].split(",")) if endings else ("",)


@cache
def combinations() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every scene with every command that is preempted and every chain."""
    return tuple(
        (f"{layout}/{base}", (stopped, *chain))
        for layout, base, stopped, chain in product(LAYOUTS, BASES, STOPPED, CHAINS)
    )


def systematic(seed: int, part: int = 0, parts: int = 1) -> Iterator[Schedule]:
    """One preemption: all points of all combinations, with all outcomes; then two preemptions. It may take days.

    Of the combinations, pairs of commands come first, then longer and longer ones: most faults need few steps.

    Args:
        seed: of the order, but that what was ever found comes first.
        part, parts: only every so many-th combination.
    """
    known = [family(text) for families in KNOWN.values() for text in families]
    for scene, commands, _ in known[part::parts]:
        yield from at_each_point(scene, commands, ENDINGS)
    yield from islice(compacting(ENDINGS), part, None, parts)
    rng = random.Random(seed)
    rest = list(combinations())
    rng.shuffle(rest)
    rest.sort(key=lambda one: len(one[1]))
    for scene, commands in rest[part::parts]:
        yield from at_each_point(scene, commands, ENDINGS)
    for scene, commands in rest[part::parts]:
        if len(commands) > 1:
            yield from pairs_of_points(scene, commands)
    names = tuple(name for name in COMMANDS if name not in VARIANTS)
    rest_of_it = random_schedules(seed + part, [f"{a}/{b}" for a in LAYOUTS for b in BASES], names, ENDINGS)
    yield from (one for one in rest_of_it if not is_left_out(one.commands))


MIRRORED: dict[str, tuple[str, ...]] = {
    "a user's stream is taken for the replica that was promoted": (
        "events/replica-sealed promote,target-delete,target-make !,+!",
        "events/replica-sealed promote,promote,target-delete,target-make",
        "events/replica-sealed promote-seal,promote,target-delete,target-make",
        "events/new move,target-delete,target-make",
    ),
    "a source is sealed for a replica that is gone, and the next one is sealed": (
        "events/replica-behind move-bare,target-drop",
        "events/new move,target-delete,replicate",
    ),
    "a move goes on with other options and leaves the source": (
        "events/replica move,move-shift",
        "events/replica-even promote-seal,move-shift !",
    ),
    "a promotion goes on as one that seals the source, and does not": ("events/replica-behind promote,promote-seal",),
    "a late promotion leaves a lease or a ledger": ("events/replica-behind promote,promote-seal +!",),
    "a late copy leaves an empty lease or ledger": ("events/scaled copy-shift,copy-shift +!",),
    "a late run creates a ledger that is gone": (
        "events/replica promote-seal,promote",
        "events/scaled move,move-shift",
    ),
    "a promotion ends a move, which leaves no sealed tombstone": ("events/new move,promote +!",),
    "a move ends a promotion and then refuses to go on": ("events/replica promote,move",),
    "a move replaces the stream that its user is about to scale": ("events/scaled scale,move-shift",),
    "a ledger that is gone is no conflict": ("events/replica move-bare,promote",),
    "a sweep deletes what only a target has": (
        "events/scaled copy,sweep !,+!",
        "events/replica promote-seal,sweep",
        "events/replica-behind sweep,target-delete,replicate,promote",
        "events/grown import,sweep",
        "events/grown import,sweep,import !",
    ),
}
"""As `KNOWN`, of verbs with a stream as their target."""

AT_SOURCE = (
    "write",
    "scale",
    "retain",
    "retain-half",
    "seal",
    "drop",
    "remake",
    "write,scale,write",
    "write,retain,write",
    "scale,retain,write",
    "write,seal",
    "remake,write",
)
AT_TARGET = (
    "target-write",
    "target-configure",
    "target-retain",
    "target-delete",
    "target-delete,target-make",
    "target-drop",
    "target-drop,target-make",
    "target-make",
    "target-flip",
)


STITCHED: dict[str, tuple[str, ...]] = {
    STITCH: (
        "append",
        "append,append",
        "append,write,append",
        "append,hour,append",
        "append,retain,write,append",
        "append,hour,retain,append,write",
        "append,remake",
        "append,hour,append,remake",
        "append,scale,write,append",
        "append,target-scale",
        "append,target-scale,append",
        "append,target-configure,append",
        "append,target-seal",
        "append,target-remake",
        "append,append-one",
        "append-own,target-write,append-own",
        "append-own,append",
        "append-distinct",
        "append-distinct,append-distinct",
        "append-distinct,write,append-distinct",
        "append-distinct,hour,clone-write,append-distinct",
        "append-distinct,retain",
        "append-distinct,remake",
        "join",
        "join,join",
        "join,hour,join",
        "join,write,scale,join",
        "join,retain,join",
        "join,remake",
        "join,joined-drop",
        "join,joined-drop,join",
        "join,joined-take",
        "join,join,joined-write",
        "join,join,joined-configure",
        "join,join,write,append-joined",
        "join-distinct",
        "join-distinct,hour,join-distinct",
        "join-distinct,write,join-distinct",
        "join-distinct,retain,join-distinct",
        "join-distinct,remake",
        "join-distinct,join",
        "ranges",
        "ranges,ranges",
        "ranges,hour,ranges",
        "ranges,write,scale,ranges",
        "ranges,retain,ranges",
        "ranges,remake",
        "ranges,joined-drop,ranges",
        "ranges,joined-take",
        "ranges,ranges-other",
        "ranges,join",
        "append-archive",
        "append-archive,append-archive",
        "append-archive,change",
        "append-archive,lose",
        "append-archive,hour,export,append-archive",
        "append-archive,compact,hour,compact",
        "append-archive,retain",
        "change;append-archive,put-back",
        "change;append-archive,hour,put-back,append-archive",
        "lose;append-archive,put-back",
        "join-archive",
        "join-archive,join-archive",
        "join-archive,change",
        "join-archive,lose,put-back,join-archive",
        "join-archive,remake",
        "change;join-archive,put-back",
        "change;join-archive,put-back,join-archive",
    ),
    COPIES: (
        "copy",
        "copy,copy",
        "copy,hour,copy",
        "copy,write,scale,copy",
        "copy,retain,copy",
        "copy,hour,retain,write,copy",
        "copy,remake,copy",
        "copy,copy-drop",
        "copy,copy-drop,copy",
        "copy,copy-take",
        "copy,copy,copy-write",
        "copy,merge,write,copy",
        "copy,scale,merge,copy",
    ),
}
"""Families of appends and joins, and of copies by events, by their scene."""
STITCH_ENDINGS = ("", "!", "+!", ":unavailable", "+unavailable", ":late")
"""The outcomes of their calls."""


def mirror_families(seed: int) -> list[tuple[str, tuple[str, ...]]]:
    """Scenes with one verb that is stopped, and what is done meanwhile; short ones first."""
    left_out = {*MIRROR_VARIANTS} | {name for name in MIRRORS if name.endswith("follow")}
    verbs = [name for name, command in MIRRORS.items() if not command.outside and name not in left_out]
    between = ["", *AT_SOURCE, *AT_TARGET, *verbs]
    between += [f"{verb},{at}" for verb in verbs for at in (*AT_TARGET, "remake", "drop", "write", "scale")]
    between += [f"{at},{verb}" for verb in verbs for at in (*AT_TARGET, "remake", "drop", "write", "scale", "retain")]
    found = []
    for verb, text in product(verbs, between):
        scenes = ["new", "scaled"]
        if not verb.startswith("copy") and not verb.endswith("shift"):
            scenes += ["replica", "replica-behind", "replica-even", "replica-sealed"]
        if verb.startswith("promote"):
            scenes = scenes[2:]
        found += [(f"events/{scene}", (verb, *filter(None, text.split(",")))) for scene in scenes]
    random.Random(seed).shuffle(found)
    return sorted(found, key=lambda one: len(one[1]))


def mirrored(seed: int, part: int = 0, parts: int = 1) -> Iterator[Schedule]:
    """As `systematic`, of verbs with a stream as their target."""
    for scene, commands, _ in [family(text) for texts in MIRRORED.values() for text in texts][part::parts]:
        yield from at_each_point(scene, commands, ENDINGS)
    families = mirror_families(seed)
    for scene, commands in families[part::parts]:
        yield from at_each_point(scene, commands, ENDINGS)
    for scene, commands in families[part::parts]:
        if len(commands) > 1:
            yield from pairs_of_points(scene, commands)
