"""The check: everything missing, changed or extra is found and named, and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from streamvault.layouts.keys import EVENT_KEYS, GenerationSpan, PlaceAddress, event_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import PlannedSegment
from streamvault.manifests.plan import create_plan, find_plan
from streamvault.manifests.verbs.check_ranges import (
    MAX_FINDINGS,
    CheckResult,
    check_ranges,
    find_strays,
    foreign_keys,
    range_tasks,
    strays_tasks,
)
from streamvault.manifests.verbs.reports import damage_reports
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import SegmentId, StreamCut
from tests.archives import LEFT, NAME, RIGHT, generation, publish, two_generations
from tests.unit.plans import plan_of

T = TypeVar("T")


@pytest.fixture
def root(tmp_path: Path) -> RootAddress:
    return RootAddress.parse(f"file://{tmp_path}")


@pytest.fixture
def archive(root: RootAddress) -> Archive:
    archive = Archive(root, NAME)
    publish(archive, *two_generations())
    return archive


def sent(task: T) -> T:
    """Serialized, as Spark would send it."""
    return pickle.loads(pickle.dumps(task))


def check(archive: Archive, root: RootAddress, *, share: float = 0.0, seed: int = 1) -> CheckResult:
    """The sums over all of a check's tasks."""
    history = archive.history()
    unfinished = find_plan(archive.place, GenerationSpan.of(history.generation + 1))
    address = PlaceAddress(root, archive.prefix)
    ranges = range_tasks(history, address, (), share=share, seed=seed)
    strays = strays_tasks(history, address, (), unfinished=unfinished)
    results = [
        *(sent(check_ranges(sent(task))) for task in ranges),
        *(sent(find_strays(sent(task))) for task in strays),
        foreign_keys(archive.place, "events", strays),
    ]
    return CheckResult.sum_of(results)


def test_sound_archive_has_no_findings(archive: Archive, root: RootAddress) -> None:
    history = archive.history()
    assert check(archive, root) == CheckResult(events=history.events, bytes=history.bytes)
    assert check(archive, root, share=1.0) == CheckResult(read=4, events=history.events, bytes=history.bytes)


Damage = Callable[[Archive], None]


def put(segment: str, name: str, data: bytes = b"12345") -> Damage:
    return lambda archive: archive.store.put(f"{archive.prefix}events/{segment}/{name}", data)


def remove(epoch: int, number: int, offset: int, length: int) -> Damage:
    key = event_key(SegmentId(epoch, number), offset, length)
    return lambda archive: archive.store.delete([archive.prefix + key])


def change(data: bytes, epoch: int, number: int, offset: int, length: int) -> Damage:
    def damage(archive: Archive) -> None:
        remove(epoch, number, offset, length)(archive)
        archive.store.put(archive.prefix + event_key(SegmentId(epoch, number), offset, length), data)

    return damage


FIRST = "0000000000.0000000000"
DAMAGES: dict[str, tuple[Damage, tuple[str, ...]]] = {
    "missing": (
        remove(0, 0, 0, 11),
        (
            "scope/stream/0.#epoch.0 bytes 0 to 11: no object holds the bytes 0 to 11",
            EVENT_KEYS.after(SegmentId(0, 0), 0),
            "generation 1, 1 event (11 B) lost",
        ),
    ),
    "missing, an empty event": (
        remove(0, 0, 11, 8),
        ("no object holds the bytes 11 to 19", "generation 1, 1 event (8 B) lost"),
    ),
    "missing, in the second generation": (
        remove(0, 1, 125, 12),
        ("bytes 125 to 137: no object holds", "generation 2, 1 event"),
    ),
    "changed in size": (
        change(b"longer", 0, 0, 0, 11),
        ("the object has 6 bytes instead of 3", event_key(SegmentId(0, 0), 0, 11), "generation 1, 1 event (11 B) lost"),
    ),
}  # fmt: skip
STRAYS = {
    "in a range": f"{FIRST}/{5:019d}-{13:010d}",
    "before the first": f"0000000000.0000000001/{0:019d}-{13:010d}",
    "behind the last": f"{FIRST}/{10**9:019d}-{13:010d}",
    "with a foreign name": f"{FIRST}/readme.txt",
    "in a segment of its own": f"0000000007.0000000000/{0:019d}-{13:010d}",
    "in a foreign folder": "other/x",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_kind_of_damage_is_found_and_named(archive: Archive, root: RootAddress, name: str) -> None:
    damage, expected = DAMAGES[name]
    damage(archive)
    result = check(archive, root)
    assert result.found == len(result.findings) == 1
    (line,) = map(str, damage_reports(archive.history(), result.findings))
    assert all(text in line for text in expected), line
    assert line.isprintable()


@pytest.mark.parametrize("name", STRAYS)
def test_strays_are_found_and_no_damage(archive: Archive, root: RootAddress, name: str) -> None:
    put(*STRAYS[name].split("/"))(archive)
    result = check(archive, root, share=1.0)
    assert (result.found, result.stray, result.strays) == (0, 1, (f"{archive.prefix}events/{STRAYS[name]}",))


def test_changed_content_is_found_by_reading_alone(archive: Archive, root: RootAddress) -> None:
    change(b"One", 0, 0, 0, 11)(archive)
    assert check(archive, root).found == 0
    result = check(archive, root, share=1.0)
    assert result.found == 1
    (line,) = map(str, damage_reports(archive.history(), result.findings))
    assert line.startswith("scope/stream/0.#epoch.0 bytes 0 to 19: the archive's bytes do not match the manifest")
    assert line.endswith("generation 1, 2 events (19 B) lost")


def test_range_with_missing_objects_is_not_read(archive: Archive, root: RootAddress) -> None:
    remove(0, 0, 0, 11)(archive)
    assert check(archive, root, share=1.0).read == 3


def test_findings_are_bounded_and_counted(archive: Archive, root: RootAddress) -> None:
    for number in range(MAX_FINDINGS + 50):
        put(FIRST, f"{10**9 + number:019d}-{13:010d}")(archive)
    result = check(archive, root)
    assert (len(result.strays), result.stray, result.found) == (MAX_FINDINGS, MAX_FINDINGS + 50, 0)


def test_objects_of_an_unfinished_generation_are_no_damage(archive: Archive, root: RootAddress) -> None:
    newest = archive.manifest()
    ends = newest.to.offsets
    plan = plan_of(
        3,
        from_=newest.to,
        to=StreamCut(NAME, {LEFT: ends[LEFT] + 100, RIGHT: ends[RIGHT]}),
        segments=(
            PlannedSegment(name=LEFT.in_stream(NAME), start=ends[LEFT], end=ends[LEFT] + 100, sealed=False),
            PlannedSegment(name=RIGHT.in_stream(NAME), start=ends[RIGHT], end=ends[RIGHT], sealed=False),
        ),
        gaps=(),
    )
    put(FIRST, f"{ends[LEFT]:019d}-{13:010d}")(archive)
    assert check(archive, root).stray == 1
    create_plan(archive.place, plan)
    assert check(archive, root).stray == 0
    put(FIRST, f"{ends[LEFT] + 100:019d}-{13:010d}")(archive)
    assert check(archive, root).stray == 1


def test_sample_depends_on_the_seed_and_has_at_least_one_range(tmp_path: Path) -> None:
    root = RootAddress.parse(f"file://{tmp_path}")
    archive = Archive(root, NAME)
    made = generation({LEFT: [[b"%d" % number] for number in range(200)]})
    assert archive.commit(made.manifest, made.rows)

    def sample(share: float, seed: int) -> list[int]:
        ranges = range_tasks(archive.history(), PlaceAddress(root, archive.prefix), (), share=share, seed=seed)
        return [row.start for task in ranges for row, read in zip(task.rows, task.read, strict=True) if read]

    assert len(sample(0.1, 1)) == 20
    assert sample(0.1, 1) == sample(0.1, 1) != sample(0.1, 2)
    assert len(sample(0.0001, 1)) == 1
    assert sample(0.0, 1) == []
    assert len(sample(1.0, 1)) == 200
    assert len({start for seed in range(60) for start in sample(0.1, seed)}) > 190
