"""The explorer finds planted bugs, and none in the product."""

from __future__ import annotations

from typing import Any

import pytest

from streamvault.exporter.run import ExportRun
from streamvault.layouts.layout import open_layout
from testkit.explorer.explore import at_each_point, run, shrink
from testkit.explorer.many import explore, fails_alike, sort_of
from testkit.explorer.schedule import Schedule

SEED = 11
SCHEDULES = 1_000


@pytest.mark.parametrize(
    "text",
    ["chunks/new export", "events/grown export,retain 1@7 2 1", "zstd/merged rotate,export 1@3 2:unavailable@9 1+! 2!"],
)
def test_schedule_round_trips_as_text(text: str) -> None:
    assert str(Schedule.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["chunks/new", "chunks/new export 1@", "chunks/new export 0", "chunks/new export 1:huh"]
)
def test_invalid_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"step|unpack"):
        Schedule.parse(text)


def test_schedule_is_deterministic() -> None:
    schedule = Schedule.parse("zstd/grown-scaled follow-rotating,scale,write,compact,import 1@40 2 3 4@20 1+! 5")
    assert run(schedule) == run(schedule)


def _sweep_by_its_own_view(run: Any) -> None:
    """Delete whatever this export does not know, as exports once did before they published."""
    archive, layout = run._archive, open_layout(run._plan.layout)
    for segment, planned in run._segments.items():
        if not list(run._chains[segment].ranges()):
            objects = layout.between(archive.place, segment, planned.start, planned.end)
            archive.store.delete([found.key for found in objects])


@pytest.mark.parametrize("scene", ["chunks/new", "events/grown"])
def test_reintroduced_defect_is_found_and_its_schedule_shrunk(scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prove: Any = ExportRun._prove

    def proved(self: Any, *args: Any) -> Any:
        _sweep_by_its_own_view(self)
        return prove(self, *args)

    monkeypatch.setattr(ExportRun, "_prove", proved)
    found = [one for one in map(run, at_each_point(scene, ("export", "write", "export", "retain"))) if one.wrong]
    assert found
    assert all("LOST" in one.kinds for one in found)
    sort = sort_of(found[0])
    short = shrink(found[0].schedule, lambda one: fails_alike(sort, one))
    assert set(short.commands) == {"export", "retain"}
    assert len(short.steps) <= 3
    assert "LOST" in run(short).kinds


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("schedules", [SCHEDULES, pytest.param(10 * SCHEDULES, marks=pytest.mark.long)])
def test_random_schedules_lose_nothing(schedules: int) -> None:
    tally = list(explore(schedules, SEED))[-1]
    assert tally.total == schedules
    assert not tally.failures, "\n".join(map(str, tally.failures.values()))
