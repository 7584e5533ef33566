"""The bugs that the explorer has found, each as all schedules of the family that found it."""

from __future__ import annotations

import pytest

from testkit.explorer.explore import at_each_point, run
from testkit.explorer.families import KNOWN, family


@pytest.mark.parametrize(("what", "text"), [(what, text) for what, families in KNOWN.items() for text in families])
def test_known_schedules_pass(what: str, text: str) -> None:
    outcomes = map(run, at_each_point(*family(text)))
    wrong = [f"{one.schedule}: {one.wrong[0]}" for one in outcomes if one.wrong]
    assert not wrong, f"{what}: {len(wrong)} schedules, the first: {wrong[0]}"
