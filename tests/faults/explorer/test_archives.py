"""Checks and rotations beside the loss of an object: a source loses nothing of which the archive lacks the object then.

What is lost is lost before a rotation looks: nothing helps if others delete it between that look and the truncation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pytest

from streamvault import check_archive
from streamvault.common.errors import Damaged, Problem
from streamvault.exporter import compact, rotate, truncate
from streamvault.layouts.keys import chunk_key
from streamvault.manifests import listing, merging
from streamvault.manifests.archive import Archive
from streamvault.manifests.index import decode_ranges
from streamvault.manifests.listing import Listing
from streamvault.manifests.plan import find_rows
from streamvault.streamstore.model import StreamName
from testkit.explorer import compacting as compactions
from testkit.explorer import deleting as deletions
from testkit.explorer import judge
from testkit.explorer.command import Command
from testkit.explorer.commands import COMMANDS
from testkit.explorer.explore import at_each_point, calls_of, run
from testkit.explorer.memory import StreamState
from testkit.explorer.scenes import CLUSTER, NAME, Scene, scene_of
from testkit.explorer.schedule import Schedule
from testkit.explorer.world import Actor, World, in_memory
from tests.faults.conftest import all_right, thinned

FOLDER = f"{NAME}/"


def _lose(place: int) -> Command:
    """A lifecycle rule deletes the data object of this place in the order of the keys."""

    def lose(_: Scene, world: World) -> None:
        bucket = world.bucket("vault")
        bucket.delete(list(bucket.keys(f"{FOLDER}chunks/"))[place])

    return Command(lose, outside=True)


def _lose_merged(_: Scene, world: World) -> None:
    """All that is kept of the newest merged generation is lost, but for the decision that names it."""
    bucket = world.bucket("vault")
    merged = sorted({found[0] for key in bucket.keys(f"{FOLDER}_manifest/") if (found := _MERGED.search(key))})
    for key in list(bucket.keys(f"{FOLDER}_manifest/")) if merged else ():
        if merged[-1] in key:
            bucket.delete(key)


_MERGED = re.compile(r"/[0-9]{10}-[0-9]{10}\.")

ALL = {
    **COMMANDS,
    "lose-first": _lose(0),
    "lose-last": _lose(-1),
    "lose-merged": Command(_lose_merged, outside=True),
}

STOPPED = (
    ("chunks/grown", "check", ("lose-first",), ("rotate",)),
    ("chunks/grown", "check", ("lose-last",), ("rotate",)),
    ("chunks/grown", "check", ("check", "lose-first", "rotate"), ("rotate",)),
    ("chunks/grown", "check", ("lose-first", "rotate"), ("rotate",)),
    ("chunks/grown", "check", ("write", "export", "lose-last"), ("rotate",)),
    ("chunks/grown", "check", ("lose-first", "compact"), ("rotate", "hour", "compact", "rotate")),
    ("chunks/grown", "check", ("compact", "lose-last"), ("rotate",)),
    ("chunks/merged", "check", ("lose-first",), ("compact", "rotate")),
    ("chunks/merged", "compact", ("check", "lose-first"), ("rotate",)),
    ("chunks/merged", "repair", ("lose-last",), ("follow-rotating",)),
    ("chunks/grown", "compact", ("write", "lose-merged"), ("write", "rotate")),
    ("chunks/grown", "check", ("compact", "lose-merged", "write"), ("rotate",)),
    ("chunks/grown", "check", ("compact", "hour", "compact", "lose-merged", "write"), ("rotate",)),
    ("chunks/merged", "export", ("compact", "lose-merged"), ("write", "rotate", "rotate")),
)
"""Scene, the command that is stopped before each of its calls, what happens then, and what runs once it has ended."""


def archived(world: World) -> dict[str, int]:
    """The bytes of which the archive has the object, in generations that no decision has put out of force."""
    objects = world.bucket("vault").objects
    found: dict[str, int] = {}
    decisions = [data for key, data in sorted(objects.items()) if key.startswith(f"{FOLDER}_manifest/decisions/")]
    merged = json.loads(decisions[-1])["merged"] if decisions else []
    for key, data in objects.items():
        if key.startswith(FOLDER) and key.endswith(".ranges.parquet"):
            number = key.removeprefix(f"{FOLDER}_manifest/").partition(".")[0]
            if "-" not in number and any(one["first"] <= int(number) <= one["generation"] for one in merged):
                continue
            for row in decode_ranges(NAME, data, key):
                chunk = objects.get(FOLDER + chunk_key(row.segment, row.start, row.end - row.start), b"")
                name = row.segment.in_stream(NAME)
                found[name] = found.get(name, 0) | (judge.mask(row.start, row.end) if chunk else 0)
    return found


def lost_by(scene: Scene, names: Sequence[str], steps: Sequence[tuple[int, int | None]]) -> list[str]:
    """Run commands; return what rotations have truncated of which the archive had no object."""
    world, wrong = scene.world.copy(), list[str]()

    def lost(name: StreamName, before: StreamState, after: StreamState | None) -> None:
        left = {} if after is None else after.readable()
        gone = {}
        for segment, start in before.readable().items():
            end = len(before.data.get(segment, b""))
            gone[segment.in_stream(NAME)] = judge.mask(start, max(start, min(left.get(segment, end), end)))
        if name == NAME and (missing := judge.without(gone, archived(world))):
            wrong.append(judge.told(missing))

    with in_memory(world):
        world.cluster(CLUSTER).lost = lost
        actors = [Actor(place, partial(ALL[name].run, scene, world)) for place, name in enumerate(names)]
        for place, until in steps:
            actors[place].go_on(until)
    assert [a.error for a in actors if a.error is not None and not isinstance(a.error, Problem)] == []
    return wrong


def losses(text: tuple[str, str, Sequence[str], Sequence[str]]) -> Iterator[list[str]]:
    name, stopped, then, after = text
    names = (stopped, *then, *after)
    scene = scene_of(name)
    for until in range(1, calls_of(name, (stopped,))[0] + 1):
        between = [(1 + place, None) for place in range(len(then))]
        rest = [(1 + len(then) + place, None) for place in range(len(after))]
        yield lost_by(scene, names, [(0, until), *between, (0, None), *rest])


@pytest.mark.parametrize("text", STOPPED, ids=lambda text: f"{text[0]}-{text[1]}-{'-'.join((*text[2], *text[3]))}")
def test_source_keeps_what_the_archive_has_lost(text: tuple[str, str, Sequence[str], Sequence[str]]) -> None:
    assert [wrong for wrong in losses(text) if wrong] == []


def called_intact() -> Iterator[bool]:
    """Whether a check that follows the loss of the newest merged generation says that nothing is lost.

    A merge is stopped before each of its calls, while a further one makes that generation of what is published then.
    """
    first, *then = "compact-small", "write", "export", "write", "export", "compact-small"
    scene = scene_of("chunks/grown")
    for until in range(1, calls_of("chunks/grown", (first,))[0] + 1):
        world = scene.world.copy()
        with in_memory(world):
            actors = [Actor(place, partial(ALL[name].run, scene, world)) for place, name in enumerate((first, *then))]
            actors[0].go_on(until)
            for actor in (*actors[1:], actors[0]):
                actor.go_on(None)
            _lose_merged(scene, world)
            with suppress(Damaged):
                check_archive(scene.archive, read_data=True, master="inline")
                yield True
                continue
            yield False


def test_archive_that_has_lost_a_merged_generation_is_not_called_intact() -> None:
    assert not any(called_intact())


def test_without_the_names_in_decisions_it_is_called_intact(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Listing.missing

    def unnamed(self: Listing) -> int | None:
        bare = replace(self, orphans=(), decision=self.decision.model_copy(update={"merged": ()}))
        return missing.__get__(bare)  # type: ignore[no-any-return]

    monkeypatch.setattr(Listing, "missing", property(unnamed))
    assert any(called_intact())


def test_without_the_look_the_source_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = truncate.truncate_source

    def unseen(*arguments: Any, **options: Any) -> truncate.Truncated:
        return real(*arguments, **{**options, "run": lambda _: None})

    monkeypatch.setattr(rotate, "truncate_source", unseen)
    assert any(losses(STOPPED[0]))


# --- compactions beside each other and beside exports; each defect that they had is found without its mend


BESIDE = sum(compactions.BESIDE.values(), ())


def schedules(text: str) -> Iterable[Schedule]:
    scene, commands = text.split()
    names = tuple(commands.split(","))
    return compactions.paused_twice(scene, names) if text in BESIDE else at_each_point(scene, names)


def kinds_found(text: str) -> set[str]:
    """What the first of the schedules that go wrong does."""
    return next(({*one.kinds} for one in map(run, schedules(text)) if one.wrong), set())


@pytest.mark.parametrize("text", [*sum(compactions.PAUSED.values(), ()), *BESIDE])
def test_nothing_is_lost(text: str) -> None:
    all_right(map(run, thinned(schedules(text))))


def _any_row(archive: Archive, span: Any, _: Any) -> Any:
    return {segment: list(row.ranges) for segment, row in find_rows(archive.place, span)}


def test_generation_without_its_object_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the mends a row counts for any chunk that begins there, and nothing is listed before it is decided."""
    monkeypatch.setattr(compact, "can_merge", lambda _: True)
    monkeypatch.setattr(compact, "_finished", _any_row)
    monkeypatch.setattr(compact, "prove", lambda *_: 0)
    found = kinds_found("chunks/sizes compact-small,compact,compact-small,compact")
    assert found
    assert found <= {"LOST", "MISLED"}


def test_deletion_of_the_only_copy_that_was_read_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the mends what may be deleted is judged by a later listing than the marks, and its marks are not read."""
    real, overlapping = merging._ends, merging._overlapping

    def later(archive: Archive, held: Any) -> Any:
        spans = [one.manifest.span for one in held]
        return archive.stable(lambda now: real(archive, map(archive.load_span, overlapping(now, spans))))

    monkeypatch.setattr(merging, "_ends", later)
    monkeypatch.setattr(merging, "check_mark", lambda *_: None)
    assert kinds_found("chunks/joined clear,compact") == {"UNPROVED"}


def test_false_alarm_about_a_publication_under_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an index alone were damage, whatever its plan, a run beside a publication would say so."""
    monkeypatch.setattr(listing, "has_plan", lambda *_: False)
    assert kinds_found("chunks/sizes export-56,export,check") == {"MISLED"}


# --- deletions of an archive beside everything that writes to it, and what the explorer says without their rules


@pytest.mark.parametrize("text", [*deletions.STOPPED, *deletions.KILLED])
def test_nothing_is_lost_beside_a_deletion(text: str) -> None:
    all_right(map(run, thinned(deletions.stopped(text))))


@pytest.mark.parametrize("text", deletions.BESIDE)
def test_nothing_is_lost_if_both_are_stopped(text: str) -> None:
    all_right(map(run, islice(deletions.beside(text), 0, None, deletions.EVERY)))


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("events/grown import,delete", {"NoSuchArchive"}),
        ("chunks/grown convert,delete", {"NoSuchArchive"}),
        ("chunks/grown handoff,delete", {"NoSuchArchive"}),
        ("chunks/merged compact,delete-unfinished", {"NoSuchArchive", "Conflict"}),
    ],
)
def test_whoever_works_on_it_is_told_that_the_archive_was_deleted(text: str, errors: set[str]) -> None:
    ended = {run(schedule).ended[0].partition(",")[0] for schedule in deletions.stopped(text)}
    assert ended == {"ok", *(f"{error}: the archive was deleted" for error in errors)}
