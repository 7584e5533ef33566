"""The families of variants find nothing; all phases are drawn from.

What the judge takes for expected although a command says that an archive is damaged.

Registrations beside each other and beside a table's users; each defect that they had is found without its mend.

Appends, joins and copies by events under the explorer: nothing is there twice, by half, damaged or out of order.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from itertools import islice

import pytest
from pyiceberg.table import Transaction

from streamvault.common.errors import Conflict, Damaged
from streamvault.lake.catalogs import iceberg
from streamvault.objectstore.store import ObjectStore
from testkit.explorer import judge
from testkit.explorer.exhaust import commute, exhaust
from testkit.explorer.explore import at_each_point, calls_of, run, two_stops
from testkit.explorer.families import KNOWN, MIRRORED, STITCH_ENDINGS, STITCHED, family
from testkit.explorer.former import NoFormer, beside_former, load_former
from testkit.explorer.judge import FOLDER, FORMER, Ledger
from testkit.explorer.memory import Bucket, Cluster, MemoryObjects, MemoryStreams
from testkit.explorer.phases import MIRROR_PHASES, PHASES, drawn, drawn_mirrors
from testkit.explorer.registrations import Ground, beside, both_stopped, four
from testkit.explorer.schedule import Schedule
from testkit.explorer.variant_families import MENDED, MIRROR_VARIED, VARIED, is_left_out
from testkit.explorer.variants import VARIANTS
from testkit.explorer.world import Actor
from testkit.servers.availability import is_required
from tests.contract.open_stores import Open
from tests.contract.test_object_store import ObjectStoreContract
from tests.contract.test_stream_store import StreamStoreContract
from tests.faults.conftest import IS_WHOLE, all_right, thinned

FAMILIES = [
    pytest.param(text, id=f"{what}-{text}")
    for families in (KNOWN, MIRRORED, VARIED, MIRROR_VARIED, MENDED)
    for what, texts in families.items()
    for text in texts
]
"""Those in which the explorer has found a bug, and those of variants."""


@pytest.mark.parametrize("text", FAMILIES)
def test_families_pass(text: str) -> None:
    all_right(map(run, [Schedule.parse(text)] if "@" in text else thinned(at_each_point(*family(text)))))


def test_every_phase_is_drawn_from() -> None:
    some = list(islice(drawn(1), 20 * len(PHASES)))
    assert any(one.scene.endswith("/harsh") for one in some)
    assert any("/bytes" in one.scene for one in some)
    assert any(not VARIANTS.keys().isdisjoint(one.commands) for one in some)
    assert any(step.fault == ":late" for one in some for step in one.steps)
    assert not any(is_left_out(one.commands) for one in some)
    assert len({*map(str, some)}) > len(some) * 3 // 4
    assert len({one.commands for one in islice(drawn_mirrors(1), 20 * len(MIRROR_PHASES))}) > len(MIRROR_PHASES)


def test_parts_draw_different_schedules() -> None:
    assert list(islice(drawn(1, 0, 2), 30)) != list(islice(drawn(1, 1, 2), 30))


def test_late_request_takes_effect_when_it_arrives() -> None:
    before = run(Schedule.parse("events/new hold 1@5"))
    calls = [call for call, _ in run(Schedule.parse("events/grown hold")).traces[0]]
    assert not before.wrong
    put = calls.index("put") + 1
    outcome = run(Schedule.parse(f"events/grown hold,arrive,hold 1@{put} 1:late 2 3"))
    assert not outcome.wrong
    assert outcome.ended[0].startswith("ObjectStoreUnavailable")
    assert outcome.ended[2] == "ok"
    assert "put" not in {call for call, _ in outcome.traces[2]}  # the hold is there


def test_listings_have_pages_and_requests_are_repeated() -> None:
    calm, harsh = (run(Schedule.parse(f"chunks/grown{kind} export")) for kind in ("", "/harsh"))
    assert harsh.calls[0] > calm.calls[0]
    put = [call for call, _ in harsh.traces[0]].index("put") + 1
    again = run(Schedule.parse(f"chunks/grown/harsh export 1@{put} 1+unavailable"))
    assert again.ended == ("ok",)
    assert again.wrong == ()


# --- schedules that are not run equal one that is; none is left out; the former release runs beside today's


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("get", "vault/a"), ("get", "vault/a"), True),
        (("get", "vault/a"), ("put", "vault/a"), False),
        (("get", "vault/a"), ("put", "vault/b"), True),
        (("list", "vault/a/"), ("put", "vault/a/b"), False),
        (("list", "vault/b/"), ("put", "vault/a/b"), True),
        (("delete", "vault/a\nvault/b"), ("get", "vault/b"), False),
        (("put", "vault/a"), ("put", "vault/a"), False),
        (("put", "scope/stream"), ("seal", "scope/stream"), True),
        (("describe", "c/s/a"), ("append", "c/s/a/0.#epoch.0:96"), False),
        (("append", "c/s/a/1.#epoch.0:96"), ("append", "c/s/a/0.#epoch.0:96"), True),
        (("append", "c/s/a/0.#epoch.0:0"), ("append", "c/s/a/0.#epoch.0:96"), False),
        (("list streams", "c/s"), ("create stream", "c/s/a"), False),
        (("read", "c/s/a/0.#epoch.0:0"), ("describe", "c/s/a"), True),
        (("delete stream", "c/s/a"), ("describe", "c/s/a"), False),
        (("wait", "c/s/a"), ("get", "vault/a"), False),
    ],
)
def test_calls_commute(one: tuple[str, str], other: tuple[str, str], expected: bool) -> None:
    assert commute(one, other) is expected
    assert commute(other, one) is expected


def test_none_is_left_out() -> None:
    pair = exhaust("chunks/grown", ("hold", "export"))
    assert pair.wrong == []
    assert pair.left_out == 0
    assert 0 < pair.run < pair.schedules // 2
    assert pair.schedules >= calls_of("chunks/grown", ("hold",))[0] * calls_of("chunks/grown", ("export",))[0]


def test_former_release_runs_beside_todays() -> None:
    try:
        load_former()
    except NoFormer as error:
        if is_required("former", os.environ) and not error.may_be:
            raise
        pytest.skip(str(error))
    outcomes = [run(schedule) for schedule in islice(beside_former(3), 40)]
    all_right(outcomes)


# --- the stores in memory keep the contracts of the real ones


class TestObjects(ObjectStoreContract):
    has_clock = False

    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjects(Bucket(), "memory://bucket")


class TestObjectsBelowAPrefix(ObjectStoreContract):
    has_clock = False

    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjects(Bucket({"root": b"x", "rooty/z": b"y"}), "memory://bucket/root", "root")


class TestStreams(StreamStoreContract):
    @pytest.fixture
    def open_store(self) -> Open:
        cluster = Cluster()
        return lambda: MemoryStreams(cluster, "local:///memory")


LEFT_OUT = "decision 2 of 2026-01-01T00:00:00Z leaves out the hold kept of generation 3, which nobody has released"


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Decision 1 is deleted by a command of the former release, and taken again."""
    return taken_again(f"{FORMER}rotate", monkeypatch)


def taken_again(command: str, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setattr(judge, "_actor", lambda: Actor(0, lambda: None))
    monkeypatch.setattr(judge, "_names", (command,))
    found = Ledger(decided=2)
    for data in (None, b"{}"):
        found._changed(f"{FOLDER}_manifest/decisions/{1:010}.json", data, 0.0)
    return found


def test_hold_at_a_number_that_the_former_release_has_freed_is_expected(ledger: Ledger) -> None:
    assert ledger.explains(Damaged(LEFT_OUT))


@pytest.mark.parametrize(
    "error",
    [
        Damaged(LEFT_OUT.replace("decision 2", "decision 3")),
        Damaged("decision 2 of 2026-01-01T00:00:00Z takes back what has expired"),
        Conflict(LEFT_OUT),
        None,
    ],
)
def test_nothing_else_is(error: Exception | None, ledger: Ledger) -> None:
    assert not ledger.explains(error)


def test_number_that_this_release_has_freed_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not taken_again("rotate", monkeypatch).explains(Damaged(LEFT_OUT))


SCENES = ("new", "begun")
USERS = ("register", "described", "append", "tidy", "rename", "drop")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("registrations"))


def found(ground: Ground, schedules: Iterable[Schedule]) -> str:
    wrong = ((schedule, ground.run(schedule)) for schedule in schedules)
    return next((f"{schedule}: {lines[0]}" for schedule, lines in wrong if lines), "")


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("other", USERS)
def test_a_generation_is_registered_once(ground: Ground, scene: str, other: str) -> None:
    assert not found(ground, beside(scene, other))


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("fault", ["!", "+!"])
def test_a_killed_registration_is_finished_once(ground: Ground, scene: str, fault: str) -> None:
    assert not found(ground, beside(scene, "register", (fault,)))


def test_four_registrations_at_once(ground: Ground) -> None:
    assert not found(ground, islice(four(7), 25))


def test_pyicebergs_own_retries_are_found(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "_OneAttempt", Transaction)
    assert "TWICE" in found(ground, both_stopped("begun"))


def test_second_registration_of_a_renamed_table_is_found(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "check_identity", lambda *_: None)
    monkeypatch.setattr(iceberg, "fix_identity", lambda *_: None)
    assert "DOUBLE" in found(ground, beside("begun", "rename"))


STITCHED_FAMILIES = [pytest.param(f"{scene} {text}", id=text) for scene, texts in STITCHED.items() for text in texts]
POINTS = 10
"""Schedules of each family in which a call fails that a short run draws."""

STOPPED_TWICE = 5
"""Schedules of each family with two stops."""


@pytest.mark.parametrize("text", STITCHED_FAMILIES if IS_WHOLE else STITCHED_FAMILIES[::4])
def test_append_stopped_at_a_call_is_right(text: str) -> None:
    scene, commands, _ = family(text)
    failing = list(at_each_point(scene, commands, STITCH_ENDINGS[1:]))
    all_right(map(run, [*thinned(at_each_point(scene, commands)), *random.Random(text).sample(failing, POINTS)]))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("text", STITCHED_FAMILIES)
def test_append_stopped_at_each_call_is_right(text: str) -> None:
    scene, commands, _ = family(text)
    all_right(map(run, at_each_point(scene, commands, STITCH_ENDINGS)))


def test_append_stopped_twice_is_right() -> None:
    rng = random.Random(3)
    found = [family(f"{scene} {text}") for scene, texts in STITCHED.items() for text in texts if "," in text]
    for scene, commands, _ in found:
        all_right(map(run, islice(two_stops(rng, scene, commands, STITCH_ENDINGS), STOPPED_TWICE)))


@pytest.mark.parametrize(
    "text",
    [
        # one run is about to commit a batch while the other one, to which the source looks empty, finishes the copy
        "copies copy,retain,copy 1@19 2 3@19",
    ],
)
def test_schedule_that_once_went_wrong_is_right(text: str) -> None:
    all_right(map(run, [Schedule.parse(text)]))
