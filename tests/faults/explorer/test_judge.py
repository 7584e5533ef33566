"""What the judge takes for expected although a command says that an archive is damaged."""

from __future__ import annotations

import pytest

from streamvault.common.errors import Conflict, Damaged
from testkit.explorer import judge
from testkit.explorer.judge import FOLDER, FORMER, Ledger
from testkit.explorer.world import Actor

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
