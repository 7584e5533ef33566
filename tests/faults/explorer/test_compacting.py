"""Compactions beside each other and beside exports; each defect that they had is found without its mend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from streamvault.manifests import listing
from streamvault.manifests import merging as replaced
from streamvault.manifests.archive import Archive
from streamvault.manifests.plan import find_rows
from streamvault.rotation import compact
from streamvault.rotation import compact as compacting
from streamvault.rotation import compact as merging
from testkit.explorer.compacting import BESIDE, PAUSED, paused_twice
from testkit.explorer.explore import Outcome, at_each_point, run
from testkit.explorer.schedule import Schedule


def schedules(text: str) -> Iterable[Schedule]:
    scene, commands = text.split()
    names = tuple(commands.split(","))
    return paused_twice(scene, names) if text in sum(BESIDE.values(), ()) else at_each_point(scene, names)


def found(text: str) -> Outcome | None:
    return next((one for one in map(run, schedules(text)) if one.wrong), None)


@pytest.mark.parametrize("text", [text for texts in (*PAUSED.values(), *BESIDE.values()) for text in texts])
def test_nothing_is_lost(text: str) -> None:
    wrong = found(text)
    assert wrong is None, f"{wrong.schedule}: {wrong.wrong[0]}"


def _any_row(archive: Archive, span: Any, _: Any) -> Any:
    return {segment: list(row.ranges) for segment, row in find_rows(archive.place, span)}


def test_generation_without_its_object_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the mends a row counts for any chunk that begins there, and nothing is listed before it is decided."""
    for place in (compact, compacting):
        monkeypatch.setattr(place, "can_merge", lambda _: True)
    monkeypatch.setattr(merging, "_finished", _any_row)
    monkeypatch.setattr(merging, "prove", lambda *_: 0)
    wrong = found("chunks/sizes compact-small,compact,compact-small,compact")
    assert wrong is not None
    assert wrong.kinds <= {"LOST", "MISLED"}


def test_deletion_of_the_only_copy_that_was_read_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the mends what may be deleted is judged by a later listing than the marks, and its marks are not read."""
    real = replaced._ends

    def later(archive: Archive, _: Any, old: Any) -> Any:
        return archive.stable(lambda now: real(archive, now, old))

    monkeypatch.setattr(replaced, "_ends", later)
    monkeypatch.setattr(replaced, "check_mark", lambda *_: None)
    wrong = found("chunks/joined clear,compact")
    assert wrong is not None
    assert wrong.kinds == {"UNPROVED"}


def test_false_alarm_about_a_publication_under_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an index alone were damage, whatever its plan, a run beside a publication would say so."""
    monkeypatch.setattr(listing, "_without_plan", lambda _, __, begun: set(begun))
    wrong = found("chunks/sizes export-56,export,check")
    assert wrong is not None
    assert wrong.kinds == {"MISLED"}
