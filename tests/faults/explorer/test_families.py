"""The families of variants find nothing; all phases are drawn from."""

from __future__ import annotations

import os
from itertools import islice

import pytest

from streamvault.objectstore.store import ObjectStore
from testkit.explorer.exhaust import commute, exhaust
from testkit.explorer.explore import at_each_point, calls_of, run
from testkit.explorer.families import KNOWN, MIRRORED, family
from testkit.explorer.former import NoFormer, beside_former, load_former
from testkit.explorer.memory import Bucket, Cluster, MemoryObjects, MemoryStreams
from testkit.explorer.phases import MIRROR_PHASES, PHASES, drawn, drawn_mirrors
from testkit.explorer.schedule import Schedule
from testkit.explorer.variant_families import MENDED, MIRROR_VARIED, VARIED, is_left_out
from testkit.explorer.variants import VARIANTS
from testkit.servers.availability import is_required
from tests.contract.open_stores import Open
from tests.contract.test_object_store import ObjectStoreContract
from tests.contract.test_stream_store import StreamStoreContract
from tests.faults.conftest import all_right, thinned

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
