"""Schedules drawn from all phases: what was found before, all points of all combinations, pairs of points, and chance.

`systematic` and `mirrored` take one phase after the other, which takes days. A run of a few thousand schedules draws
from all of them in turn, so that none is left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice

from testkit.explorer import served_states
from testkit.explorer.commands import COMMANDS
from testkit.explorer.deleting import BESIDE, STOPPED, beside, stopped
from testkit.explorer.explore import (
    COPIES,
    PLAYS,
    SERVED,
    STATES,
    STITCH,
    at_each_point,
    pairs_of_points,
    random_schedule,
    random_schedules,
    three_stops,
    two_stops,
)
from testkit.explorer.families import (
    BASES,
    ENDINGS,
    KNOWN,
    LAYOUTS,
    MIRRORED,
    STITCH_ENDINGS,
    STITCHED,
    combinations,
    family,
)
from testkit.explorer.families import mirror_families as of_mirrors
from testkit.explorer.schedule import Schedule
from testkit.explorer.served_archives import READ
from testkit.explorer.variant_families import MIRROR_VARIED, VARIED, is_left_out

Phase = Callable[[random.Random], Iterator[Schedule]]
HARSH = (*ENDINGS, ":late", ":late", ":late")
SCENES = [f"{layout}/{base}" for layout in LAYOUTS for base in BASES]
BYTES = [
    f"{layout}/{base}{harsh}"
    for layout in ("chunks", "zstd")
    for base in ("bytes", "bytes-grown")
    for harsh in ("", "/harsh")
]
BESIDE_STITCHES = {
    STITCH: tuple(
        "write scale retain hour target-write target-scale export compact check change lose put-back".split()  # noqa: SIM905
    ),
    COPIES: ("write", "scale", "merge", "retain", "hour", "copy"),
}
"""What may be done beside any append, join or copy."""
READ_SCENES = tuple(
    "chunks/grown chunks/grown/harsh zstd/merged zstd/grown-scaled chunks/joined events/grown events/sizes".split()  # noqa: SIM905
)
BESIDE_READERS = (
    *("export", "export-40", "rotate", "expire", "expire-all", "compact", "compact", "compact-small", "clear"),
    *("write", "scale", "retain", "hour", "hour", "arrive", "delete-unfinished", READ),
)
"""What may be done beside a reader of a served archive."""
NOT_OF_BYTES = frozenset("handoff handoff-stream export-other-layout convert convert-restart other remake".split())  # noqa: SIM905
FEW = 4
"""Schedules that are drawn of a family before the next one: the first takes a run of its own to count calls."""


def _texts(found: Mapping[str, Sequence[str]]) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [family(text) for texts in found.values() for text in texts]


def _some(rng: random.Random, schedules: Iterator[Schedule]) -> list[Schedule]:
    held = list(schedules)
    return rng.sample(held, min(FEW, len(held)))


def _known(found: Mapping[str, Sequence[str]], endings: Sequence[str]) -> Phase:
    def phase(rng: random.Random) -> Iterator[Schedule]:
        families = _texts(found)
        while True:
            scene, commands, _ = rng.choice(families)
            yield from _some(rng, at_each_point(scene, commands, endings))

    return phase


def _points(rng: random.Random) -> Iterator[Schedule]:
    while True:
        scene, commands = rng.choice(combinations())
        yield from _some(rng, at_each_point(scene, commands, ENDINGS))


def _pairs(rng: random.Random) -> Iterator[Schedule]:
    while True:
        scene, commands = rng.choice(combinations())
        yield from _some(rng, pairs_of_points(scene, commands))


def _deletions(rng: random.Random) -> Iterator[Schedule]:
    while True:
        text = rng.choice((*STOPPED, *BESIDE))
        yield from _some(rng, beside(text) if text in BESIDE else stopped(f"{text} {','.join(HARSH)}"))


def _chance(scenes: Sequence[str], without: frozenset[str], endings: Sequence[str]) -> Phase:
    names = tuple(name for name in COMMANDS if name not in without)
    return lambda rng: random_schedules(rng.randrange(1 << 30), scenes, names, endings)


def _three_stops(rng: random.Random) -> Iterator[Schedule]:
    verbs = ("compact", "compact-250", "rotate", "rotate-2", "expire-all", "export", "repair")
    before = ((), ("write", "export"), ("compact", "rotate", "write", "hour"))
    while True:
        pair = rng.choice(verbs[:5]), rng.choice(verbs)
        yield three_stops(rng, rng.choice(SCENES), rng.choice(before), pair)


def _three_stops_of_replicas(rng: random.Random) -> Iterator[Schedule]:
    before = (("write",), ("scale", "write"), ("retain", "write", "scale", "write"))
    while True:
        pair = "replicate", rng.choice(("promote", "promote-seal", "move"))
        yield three_stops(rng, f"events/{rng.choice(('replica', 'replica-even'))}", rng.choice(before), pair)


def _mirror_points(rng: random.Random) -> Iterator[Schedule]:
    families = of_mirrors(rng.randrange(1 << 30))
    while True:
        scene, commands = rng.choice(families)
        yield from _some(rng, at_each_point(scene, commands, ENDINGS))


def _mirror_pairs(rng: random.Random) -> Iterator[Schedule]:
    families = [one for one in of_mirrors(rng.randrange(1 << 30)) if len(one[1]) > 1]
    while True:
        scene, commands = rng.choice(families)
        yield from _some(rng, pairs_of_points(scene, commands))


def _stitch_points(rng: random.Random) -> Iterator[Schedule]:
    while True:
        scene, commands = _stitched(rng)
        yield from _some(rng, at_each_point(scene, commands, STITCH_ENDINGS))


def _stitch_stops(rng: random.Random) -> Iterator[Schedule]:
    while True:
        yield from islice(two_stops(rng, *_stitched(rng), STITCH_ENDINGS), FEW)


def _stitch_chance(rng: random.Random) -> Iterator[Schedule]:
    """A family with up to two other things between its commands, stopped anywhere."""
    while True:
        scene, commands = _stitched(rng)
        names = [name for name in commands if name != ";"]
        for _ in range(rng.randrange(3)):
            names.insert(rng.randrange(len(names) + 1), rng.choice(BESIDE_STITCHES[scene]))
        yield random_schedule(rng, scene, tuple(names), STITCH_ENDINGS)


def _stitched(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    scene = rng.choices(list(STITCHED), [len(texts) for texts in STITCHED.values()])[0]
    return family(f"{scene} {rng.choice(STITCHED[scene])}")[:2]


PHASES: dict[str, Phase] = {
    "known": _known(KNOWN, ENDINGS),
    "variants": _known(VARIED, HARSH),
    "points": _points,
    "pairs": _pairs,
    "chance": _chance(SCENES, frozenset({"arrive"}), ENDINGS),
    "harsh": _chance([f"{scene}/harsh" for scene in SCENES], frozenset(), HARSH),
    "bytes": _chance(BYTES, NOT_OF_BYTES, HARSH),
    "three stops": _three_stops,
    "deletions": _deletions,
}

STITCH_PHASES: dict[str, Phase] = {
    "points": _stitch_points,
    "two stops": _stitch_stops,
    "chance": _stitch_chance,
}


def _state_points(rng: random.Random) -> Iterator[Schedule]:
    while True:
        yield from _some(rng, at_each_point(STATES, _of_states(rng), STITCH_ENDINGS))


def _state_stops(rng: random.Random) -> Iterator[Schedule]:
    while True:
        yield from islice(two_stops(rng, STATES, _of_states(rng), STITCH_ENDINGS), FEW)


def _state_chance(rng: random.Random) -> Iterator[Schedule]:
    return random_schedules(rng.randrange(1 << 30), [STATES], (*served_states.VERBS, "arrive"), STITCH_ENDINGS)


def _of_states(rng: random.Random) -> tuple[str, ...]:
    others = (rng.choice((*served_states.VERBS, "arrive")) for _ in range(rng.randrange(1, 4)))
    return (rng.choice([*served_states.VERBS]), *others)


STATE_PHASES: dict[str, Phase] = {"points": _state_points, "two stops": _state_stops, "chance": _state_chance}


def _served_points(rng: random.Random) -> Iterator[Schedule]:
    while True:
        yield from _some(rng, at_each_point(*_of_served(rng), HARSH))


def _served_stops(rng: random.Random) -> Iterator[Schedule]:
    while True:
        yield from islice(two_stops(rng, *_of_served(rng), HARSH), FEW)


def _served_chance(rng: random.Random) -> Iterator[Schedule]:
    while True:
        yield random_schedule(rng, *_of_served(rng), HARSH)


def _of_served(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    first = rng.choice((READ, READ, "export", "compact", "expire-all", "clear", "delete-unfinished"))
    others = rng.choices(BESIDE_READERS, k=rng.randrange(1, 4))
    return f"{SERVED}/{rng.choice(READ_SCENES)}", (first, *([] if first == READ else [READ]), *others)


SERVED_PHASES: dict[str, Phase] = {"points": _served_points, "two stops": _served_stops, "chance": _served_chance}

MIRROR_PHASES: dict[str, Phase] = {
    "known": _known(MIRRORED, ENDINGS),
    "variants": _known(MIRROR_VARIED, ENDINGS),
    "points": _mirror_points,
    "pairs": _mirror_pairs,
    "three stops of replicas": _three_stops_of_replicas,
}


def _in_turn(phases: Mapping[str, Phase], seed: int, part: int) -> Iterator[Schedule]:
    drawn_of = [phase(random.Random(f"{seed} {part} {name}")) for name, phase in phases.items()]
    rounds = (
        one for phase in iter(lambda: drawn_of, None) for one in chain.from_iterable(islice(of, 1) for of in phase)
    )
    return (one for one in rounds if one.scene.partition("/")[0] in PLAYS or not is_left_out(one.commands))


def drawn(seed: int, part: int = 0, parts: int = 1) -> Iterator[Schedule]:
    """Schedules of archives, one of each phase in turn; endless.

    Args:
        seed: of all chance. part: which of several processes draws; each draws others.
        parts: how many there are.
    """
    return _in_turn(PHASES, seed, part)


def drawn_stitches(seed: int, part: int = 0, parts: int = 1) -> Iterator[Schedule]:
    """As `drawn`, of appends, joins and copies by events."""
    return _in_turn(STITCH_PHASES, seed, part)


def drawn_states(seed: int, part: int = 0, parts: int = 1) -> Iterator[Schedule]:
    """As `drawn`, of the states of reader groups that servers share."""
    return _in_turn(STATE_PHASES, seed, part)


def drawn_mirrors(seed: int, part: int = 0, parts: int = 1) -> Iterator[Schedule]:
    """As `drawn`, of copies, replicas and moves."""
    return _in_turn(MIRROR_PHASES, seed, part)


def drawn_served(seed: int, part: int = 0, parts: int = 1) -> Iterator[Schedule]:
    """As `drawn`, of readers of a served archive."""
    return _in_turn(SERVED_PHASES, seed, part)
