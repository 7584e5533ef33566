"""The families of variants find nothing; all phases are drawn from."""

from __future__ import annotations

from itertools import islice

import pytest

from testkit.explorer.explore import at_each_point, run
from testkit.explorer.families import family
from testkit.explorer.phases import MIRROR_PHASES, PHASES, drawn, drawn_mirrors
from testkit.explorer.schedule import Schedule
from testkit.explorer.variant_families import MENDED, MIRROR_VARIED, VARIED, is_left_out
from testkit.explorer.variants import VARIANTS

FAMILIES = [
    (what, text) for found in (VARIED, MIRROR_VARIED, MENDED) for what, texts in found.items() for text in texts
]


@pytest.mark.parametrize(("what", "text"), FAMILIES)
def test_families_pass(what: str, text: str) -> None:
    outcomes = map(run, [Schedule.parse(text)] if "@" in text else at_each_point(*family(text)))
    wrong = [f"{one.schedule}: {one.wrong[0]}" for one in outcomes if one.wrong]
    assert not wrong, f"{what}: {len(wrong)} schedules, the first: {wrong[0]}"


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
