"""What `serve` keeps and what it serves, under the explorer; each rule's planted fault is found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from streamvault.objectstore.store import AlreadyExists
from streamvault.serving.archived import ServedArchive
from streamvault.serving.state import _Log, _State
from streamvault.streamstore.errors import SegmentTruncated
from testkit.explorer.explore import SERVED, STATES, at_each_point, pairs_of_points, run
from testkit.explorer.families import STITCH_ENDINGS, family
from testkit.explorer.phases import drawn_served, drawn_states
from testkit.explorer.served_states import VERBS
from tests.faults.conftest import all_right, thinned

SEED = 5
OTHERS = ("state-append", "state-remake", "state-append,state-append", "state-append,state-remake,state-append,arrive")


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("first", VERBS)
def test_a_server_of_states_stops_before_each_request(first: str, others: str) -> None:
    all_right(map(run, at_each_point(STATES, (first, *others.split(",")), STITCH_ENDINGS)))


def test_two_servers_of_states_stop() -> None:
    all_right(map(run, pairs_of_points(STATES, ("state-append", "state-append"))))


def test_drawn_schedules_of_states() -> None:
    all_right(map(run, islice(drawn_states(SEED), 2_000)))


def _deletes_first(log: Any, state: Any) -> None:
    """Delete the entries before the snapshot that has them is stored."""
    held = [one.key for one in log._store.list(f"{log._folder}entries/") if one.key < log._entry(state.epoch + 1, 0)]
    log._store.delete(held)
    with suppress(AlreadyExists):
        log._store.put(log._snapshot(state.epoch + 1), state.snapshot())
    state.epoch, state.entries, state.entry_bytes = state.epoch + 1, 0, 0


def _forgets_writers(state: Any, *args: Any, apply: Any = _State.apply) -> None:
    apply(state, *args)
    state.writers.clear()


def _looks_no_more(log: Any) -> Any:
    return log.known()


@pytest.mark.parametrize(
    ("place", "name", "fault", "kinds"),
    [
        (_Log, "_is_current", lambda *_: True, {"LOST", "DOUBLED"}),
        (_Log, "_begin_epoch", _deletes_first, {"LOST"}),
        (_State, "apply", _forgets_writers, {"DOUBLED"}),
        (_Log, "look", _looks_no_more, {"STALE"}),
    ],
)
def test_planted_faults_of_states_are_found(
    place: Any, name: str, fault: Callable[..., Any], kinds: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, fault)
    found = {kind for schedule in islice(drawn_states(SEED), 2_000) for kind in run(schedule).kinds}
    assert kinds <= found


# --- readers of an archive that changes


@pytest.mark.parametrize(
    "text",
    [
        "chunks/grown read,compact,hour,compact",
        "chunks/grown read,compact,hour,compact,write,export,expire-all",
        "events/grown read,compact,hour,compact",
        "zstd/merged read,expire-all",
        "chunks/grown/harsh compact,hour;compact,read",
        "events/grown expire-all,read",
        "chunks/grown read,delete",
        "events/grown delete,read",
    ],
)
def test_a_reader_of_an_archive_that_changes(text: str) -> None:
    all_right(map(run, thinned(at_each_point(*family(f"{SERVED}/{text}")))))


def test_drawn_schedules_of_readers() -> None:
    all_right(map(run, islice(drawn_served(SEED), 60)))


def _truncated(*_: Any) -> bool:
    raise SegmentTruncated("merged", where="", start_offset=1 << 20)


@pytest.mark.parametrize(("fault", "kind"), [(lambda *_: False, "REFUSED"), (_truncated, "SKIPPED")])
def test_planted_faults_of_readers_are_found(
    fault: Callable[..., bool], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServedArchive, "renewed", fault)
    schedules = at_each_point(*family(f"{SERVED}/chunks/grown read,compact,hour,compact"))
    assert any(kind in run(schedule).kinds for schedule in schedules)
