"""A target that is scaled for an append gets its key ranges and its policy back, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import copy_stream, export_stream, move_stream, promote_replica, replicate_stream, sweep_scope
from streamvault.common.errors import Conflict, Damaged
from streamvault.replication.reports import MoveReport, PromoteReport
from streamvault.sources.sources import open_source
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.ledger import Ledger
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.store import LocalTransactions
from streamvault.streamstore.model import (
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    StreamConfiguration,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.own import MEANWHILE, ScaleNote, describe_source
from testkit.killed import Killed
from testkit.scenes import Keyed, leave_leases
from tests.commands.concat.test_append import flip_byte
from tests.told import Ran

TARGET = StreamName("scope", "target")
BOUNDS = [0.2, 0.7]
FIXED = Scaling(min_segments=3)
BY_RATE = Scaling(ScaleKind.BY_KBYTES, 100, 2, 2)
USERS = StreamConfiguration(FIXED, Retention(RetentionKind.TIME, 86_400_000), tags=("mine", "ünï"))


@pytest.fixture
def keyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keyed:
    """A target of three segments of unequal widths, and two sources of one."""
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)
    keyed = Keyed(tmp_path / "streams")
    keyed.make("target", 3)
    keyed.scale("target", BOUNDS)
    keyed.write("target", 60)
    for name in ("one", "two"):
        keyed.make(name, events=30)
    configure(keyed, USERS)
    return keyed


def configure(keyed: Keyed, configuration: StreamConfiguration) -> None:
    with keyed.store as store:
        store.update_stream(TARGET, configuration)


def described(keyed: Keyed) -> StreamDescription:
    with keyed.store as store:
        return store.describe(TARGET)


def bounds(keyed: Keyed) -> list[float]:
    return [held.low for held in described(keyed).epochs[-1].segments.values()][1:]


def check_as_before(keyed: Keyed, configuration: StreamConfiguration = USERS) -> None:
    assert (bounds(keyed), described(keyed).configuration) == (BOUNDS, configuration)


@pytest.mark.parametrize("own_segments", [False, True])
@pytest.mark.parametrize("scaling", [FIXED, BY_RATE, Scaling.never()])
def test_key_ranges_and_policy_are_given_back(keyed: Keyed, scaling: Scaling, *, own_segments: bool) -> None:
    users = replace(USERS, scaling=scaling)
    configure(keyed, users)
    report = keyed.append("one", own_segments=own_segments)
    check_as_before(keyed, users)
    assert (report.segments, len(report.merged_segments), report.warnings) == (3, 3, ())
    assert all(place.exact for place in report.places)
    keyed.write("target", 20)
    assert keyed.by_key("target") == keyed.expected(
        ("target", range(60)), ("one", range(30)), ("target", range(60, 80))
    )
    epochs = len(described(keyed).epochs)
    assert keyed.append("one").unchanged
    assert len(described(keyed).epochs) == epochs


def test_scale_and_policy_are_those_of_the_append_while_it_goes_on(
    keyed: Keyed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads the stream then finds the user's policy: also an archive that is made of it."""
    seen: list[StreamConfiguration] = []
    real = LocalTransactions.commit

    def commit(self: LocalTransactions, *given: Any) -> Any:
        assert (bounds(keyed), described(keyed).configuration.scaling) == ([], MEANWHILE)
        with keyed.store as store:
            seen.append(describe_source(store, TARGET).configuration)
        export_stream(keyed.uri("target"), f"file://{tmp_path}/vault", master="inline")
        return real(self, *given)

    monkeypatch.setattr(LocalTransactions, "commit", commit)
    keyed.append("one")
    with ExitStack() as stack:
        archive = open_source(f"file://{tmp_path}/vault/scope/target", stack)
        assert [*seen, archive.look().described.configuration] == [USERS, USERS]


CALLS = [(call, number) for call in ("update_stream", "scale") for number in (1, 2)]
"""The note, the merge; the former key ranges, the former policy."""


@contextmanager
def killed_at(call: str, number: int, *, after: bool) -> Iterator[None]:
    """Kill the run at a change of the target, before or after it."""
    real, made = getattr(LocalStore, call), 0

    def change(self: LocalStore, name: StreamName, *given: Any, **more: Any) -> Any:
        nonlocal made
        made += name == TARGET
        if name != TARGET or made < number or after:
            found = real(self, name, *given, **more)
        if name == TARGET and made == number:
            raise Killed
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalStore, call, change)
        leave_leases(patched)
        with pytest.raises(Killed):
            yield


NEXT: dict[str, Callable[[Keyed], object]] = {
    "append": lambda keyed: keyed.append("one"),
    "append of another source": lambda keyed: keyed.append("two"),
    "sweep": lambda keyed: sweep_scope(f"local://{keyed.folder}/scope/"),
}


@pytest.mark.parametrize("following", NEXT)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("call", "number"), CALLS)
def test_killed_append_is_put_right_by_the_next_run(
    keyed: Keyed, call: str, number: int, following: str, *, after: bool
) -> None:
    with killed_at(call, number, after=after):
        keyed.append("one")
    keyed.write("target", 20)
    NEXT[following](keyed)
    check_as_before(keyed)
    keyed.append("one")
    check_as_before(keyed)
    appended = keyed.payloads("target")
    assert sorted(appended) == sorted([*keyed.payloads("one"), *(one for one in appended if " one " not in one)])
    assert NEXT["sweep"](keyed).scaled == ()  # type: ignore[attr-defined]


def test_append_that_has_nothing_to_append_puts_it_right(keyed: Keyed) -> None:
    keyed.make("empty")
    with killed_at("scale", 2, after=False):
        keyed.append("one")
    assert keyed.append("empty").unchanged
    check_as_before(keyed)


def test_sweep_says_what_it_has_given_back(keyed: Keyed, ran: Ran) -> None:
    with killed_at("scale", 2, after=False):
        keyed.append("one")
    scope = f"local://{keyed.folder}/scope/"
    assert (
        f"would restore the key ranges and the policy of {keyed.uri('target')}" in ran("sweep", scope, "--dry-run").out
    )
    assert bounds(keyed) == []
    assert f"restored the key ranges and the policy of {keyed.uri('target')}" in ran("sweep", scope).out
    check_as_before(keyed)


@pytest.mark.parametrize("own_segments", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_key_ranges_are_given_back_though_the_user_has_removed_the_tag(
    keyed: Keyed, number: int, *, own_segments: bool
) -> None:
    """The append was killed before the commit, or after it. Who sets a policy by a client replaces all tags."""
    theirs = StreamConfiguration(replace(BY_RATE, min_segments=1), tags=("theirs",))
    with killed_at("scale", number, after=number == 1):
        keyed.append("one", own_segments=own_segments)
    configure(keyed, theirs)
    keyed.append("one", own_segments=own_segments)
    check_as_before(keyed, theirs)
    assert len(keyed.payloads("target")) == 90


def test_former_key_ranges_are_not_those_of_a_killed_append(keyed: Keyed) -> None:
    """Its tag was removed, and one of the segments that it has merged is scaled, before it goes on."""
    quarters = [0.25, 0.5, 0.75]
    keyed.scale("target", quarters)
    keyed.make("halves", 2, events=30)
    with killed_at("scale", 1, after=True):
        keyed.append("halves")
    configure(keyed, StreamConfiguration(BY_RATE))
    with keyed.store as store:
        first = next(iter(store.describe(TARGET).epochs[-1].segments))
        store.scale(TARGET, [first], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
    keyed.append("halves")
    assert bounds(keyed) == quarters


def test_record_of_an_earlier_release_has_no_note(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Ledger.record
    with monkeypatch.context() as patched, killed_at("scale", 1, after=True):
        patched.setattr(Ledger, "record", lambda self, what: real(self, {k: what[k] for k in what if k != "note"}))
        keyed.append("one")
    keyed.append("one")
    check_as_before(keyed)


@pytest.mark.parametrize("call", ["scale", "update_stream"])
def test_interrupt_while_everything_is_given_back_waits_for_it(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real, made = getattr(LocalStore, call), 0

    def change(self: LocalStore, name: StreamName, *given: Any, **more: Any) -> Any:
        nonlocal made
        made += name == TARGET
        if name == TARGET and made == 2:
            raise KeyboardInterrupt
        return real(self, name, *given, **more)

    monkeypatch.setattr(LocalStore, call, change)
    with pytest.raises(KeyboardInterrupt):
        keyed.append("one")
    check_as_before(keyed)
    assert len(keyed.payloads("target")) == 90


def move(keyed: Keyed) -> MoveReport:
    return move_stream(keyed.uri("target"), keyed.uri("moved"), master="inline")


def promote(keyed: Keyed, *, seal_source: bool = True) -> PromoteReport:
    replicate_stream(keyed.uri("target"), keyed.uri("moved"), master="inline")
    return promote_replica(keyed.uri("moved"), seal_source=seal_source, master="inline")


CUT_OVERS: dict[str, Callable[[Keyed], MoveReport | PromoteReport]] = {"move": move, "promote": promote}


@pytest.mark.parametrize("end", CUT_OVERS)
@pytest.mark.parametrize("fixed", [2, 3])
def test_stream_gets_back_what_it_had_before_it_is_sealed_for_its_successor(keyed: Keyed, end: str, fixed: int) -> None:
    configure(keyed, replace(USERS, scaling=Scaling(min_segments=fixed)))
    with killed_at("scale", 2, after=False):
        keyed.append("one")
    report = CUT_OVERS[end](keyed)
    with keyed.store as store:
        moved = store.describe(StreamName("scope", "moved"))
    assert [held.low for held in moved.epochs[-1].segments.values()][1:] == BOUNDS
    assert moved.configuration.scaling == FIXED
    assert [one.split(";")[0] for one in report.warnings] == (
        ["the source's policy asks for 2 segments, but 3 are open"] if fixed == 2 else []
    )


@pytest.mark.parametrize("end", CUT_OVERS)
def test_stream_is_not_sealed_while_an_append_needs_its_room(keyed: Keyed, end: str) -> None:
    def cut_over() -> None:
        with pytest.raises(LeaseHeld, match="scaled for an append that is still running"):
            CUT_OVERS[end](keyed)

    with before_commit(cut_over):
        keyed.append("one")
    check_as_before(keyed)
    CUT_OVERS[end](keyed)
    assert len(keyed.payloads("moved")) == 90


MIRRORS: dict[str, Callable[[Keyed], Any]] = {
    "copy": lambda keyed: copy_stream(keyed.uri("target"), keyed.uri("moved"), master="inline"),
    "copy by events": lambda keyed: copy_stream(keyed.uri("target"), keyed.uri("moved"), method="events"),
    "replicate": lambda keyed: replicate_stream(keyed.uri("target"), keyed.uri("moved"), master="inline"),
    "promote": lambda keyed: promote(keyed, seal_source=False),
}


@pytest.mark.parametrize("verb", MIRRORS)
def test_mirror_of_a_stream_that_is_still_scaled_says_so(keyed: Keyed, verb: str) -> None:
    with killed_at("scale", 1, after=True):
        keyed.append("one")
    warnings = MIRRORS[verb](keyed).warnings
    assert any("policy asks for 3 segments, but 1 are open" in warning for warning in warnings)
    assert bounds(keyed) == []


@contextmanager
def before_commit(do: Callable[[], object]) -> Iterator[None]:
    """Do something while the target is scaled, and everything is in the transaction."""
    real = LocalTransactions.commit

    def commit(self: LocalTransactions, *given: Any) -> Any:
        do()
        return real(self, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalTransactions, "commit", commit)
        yield


@pytest.mark.parametrize("keeps_tags", [False, True])
def test_policy_that_the_user_sets_meanwhile_is_kept(keyed: Keyed, *, keeps_tags: bool) -> None:
    theirs = StreamConfiguration(BY_RATE, tags=("theirs",))

    def change() -> None:
        noted = [tag for tag in described(keyed).configuration.tags if keeps_tags and tag not in USERS.tags]
        configure(keyed, replace(theirs, tags=(*theirs.tags, *noted)))

    configure(keyed, replace(USERS, scaling=Scaling.never()))
    with before_commit(change):
        keyed.append("one")
    check_as_before(keyed, theirs)


def test_policy_that_the_user_sets_at_the_last_moment_is_kept(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalStore.update_stream
    theirs = replace(USERS, scaling=BY_RATE)

    def update(self: LocalStore, name: StreamName, configuration: StreamConfiguration, **more: Any) -> None:
        if configuration == USERS:
            real(self, name, theirs)
        real(self, name, configuration, **more)

    monkeypatch.setattr(LocalStore, "update_stream", update)
    keyed.append("one")
    monkeypatch.undo()
    check_as_before(keyed, theirs)


def test_key_ranges_that_somebody_makes_meanwhile_are_kept(keyed: Keyed) -> None:
    with before_commit(lambda: keyed.scale("target", [0.1, 0.4, 0.8])):
        keyed.append("one")
    assert (bounds(keyed), described(keyed).configuration) == (
        [0.1, 0.4, 0.8],
        replace(USERS, scaling=Scaling(min_segments=4)),
    )
    assert keyed.by_key("target") == keyed.expected(("target", range(60)), ("one", range(30)))


def test_only_segments_that_were_merged_are_split(keyed: Keyed) -> None:
    """The others may be somebody's scale; a commit that rolls because of it opens the merged one again."""
    keyed.make("upper", 2)
    keyed.scale("upper", [0.2])
    keyed.write("upper", 30)

    def scale() -> None:
        with keyed.store as store:
            first = next(iter(store.describe(TARGET).epochs[-1].segments))
            store.scale(TARGET, [first], [KeyRange(0.0, 0.1), KeyRange(0.1, 0.2)])

    with before_commit(scale):
        assert len(keyed.append("upper").merged_segments) == 2
    assert bounds(keyed) == [0.1, 0.2, 0.7]


def test_fixed_number_below_the_open_segments_is_raised(keyed: Keyed) -> None:
    """Pravega would merge them if it got the number that it had."""
    few = replace(USERS, scaling=Scaling(min_segments=2))
    configure(keyed, few)
    report = keyed.append("one")
    check_as_before(keyed)
    (warning,) = report.warnings
    assert "policy asked for 2 segments, but 3 are open; it now asks for 3" in warning


def test_append_that_fails_gives_back_what_it_has_scaled(keyed: Keyed, tmp_path: Path) -> None:
    export_stream(keyed.uri("one"), f"file://{tmp_path}/vault", layout="chunks", master="inline")
    flip_byte(tmp_path / "vault")
    with pytest.raises(Damaged):
        keyed.append(f"file://{tmp_path}/vault/scope/one")
    check_as_before(keyed)
    assert len(keyed.payloads("target")) == 60


def test_append_that_goes_on_keeps_its_room(keyed: Keyed) -> None:
    """Neither a sweep nor another append takes it away; what both append is there, and then everything is as before."""
    room: list[list[float]] = []

    def others() -> None:
        if not room:
            room.append([])
            sweep_scope(f"local://{keyed.folder}/scope/")
            keyed.append("two")
            room.append(bounds(keyed))

    with before_commit(others):
        keyed.append("one")
    assert room == [[], []]
    check_as_before(keyed)
    assert len(keyed.payloads("target")) == 120


def test_two_appends_that_merge_more_and_more(keyed: Keyed) -> None:
    """The second one's scale comes on top of the first one's; the key ranges before both are given back."""
    keyed.make("upper", 2)
    keyed.scale("upper", [0.2])
    keyed.write("upper", 30)
    room: list[list[float]] = []

    def another() -> None:
        if not room:
            room.append(bounds(keyed))
            keyed.append("one")
            room.append(bounds(keyed))

    with before_commit(another):
        keyed.append("upper")
    assert room == [[0.2], BOUNDS]
    check_as_before(keyed)
    assert keyed.by_key("target") == keyed.expected(("target", range(60)), ("one", range(30)), ("upper", range(30)))


@pytest.mark.parametrize("scaling", [FIXED, Scaling.never()])
def test_scale_that_comes_late_is_undone_too(keyed: Keyed, scaling: Scaling) -> None:
    """The process is paused before it merges, and everything is given back meanwhile, by a sweep."""
    users = replace(USERS, scaling=scaling)
    configure(keyed, users)
    real, paused = LocalStore.scale, []

    def scale(self: LocalStore, *given: Any) -> Any:
        if not paused:
            paused.append(ScaleNote.of(described(keyed).configuration))
            configure(keyed, users)
        return real(self, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalStore, "scale", scale)
        with killed_at("scale", 2, after=False):
            keyed.append("one")
    assert paused != [None]
    sweep_scope(f"local://{keyed.folder}/scope/", older_than=0)
    check_as_before(keyed, users)


def test_scale_that_was_made_by_nobody_is_not_undone(keyed: Keyed) -> None:
    """A killed append has not merged; what its user merges later stays."""
    with killed_at("scale", 1, after=False):
        keyed.append("one")
    keyed.scale("target", [0.7])
    sweep_scope(f"local://{keyed.folder}/scope/")
    assert (bounds(keyed), described(keyed).configuration) == ([0.7], USERS)


def test_note_of_another_stream_gives_no_key_ranges(keyed: Keyed) -> None:
    """Somebody has made the stream again with the configuration that it had."""
    with killed_at("scale", 1, after=True):
        keyed.append("one")
    configuration = described(keyed).configuration
    with keyed.store as store:
        store.delete(TARGET)
        store.create_stream(TARGET, StreamConfiguration(FIXED))
        store.update_stream(TARGET, configuration)
    keyed.scale("target", BOUNDS)
    keyed.scale("target", [])
    sweep_scope(f"local://{keyed.folder}/scope/")
    assert (bounds(keyed), described(keyed).configuration) == ([], USERS)
    keyed.append("two")
    assert len(keyed.payloads("target")) == 30


@pytest.mark.parametrize("tags", [127, 130])
def test_stream_without_place_for_the_tag_says_what_helps(keyed: Keyed, tags: int) -> None:
    full = replace(USERS, tags=tuple(f"tag{number}" for number in range(tags)))
    configure(keyed, full)
    with pytest.raises(Conflict, match=f"it has {tags} tags") as caught:
        keyed.append("one")
    assert "streamvault join" in caught.value.todo
    check_as_before(keyed, full)


def test_paused_append_leaves_the_room_to_its_successor(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has lost its lease to a run that goes on with the same append."""
    real = Ledger.record

    def record(self: Ledger, what: Any) -> None:
        real(self, what)
        if what.get("stage") == "committing":
            raise Conflict("stopped", where="here", todo="")

    monkeypatch.setattr(Ledger, "record", record)
    monkeypatch.setattr(Lease, "confirm", _lost)
    with pytest.raises(Conflict, match="stopped"):
        keyed.append("one")
    monkeypatch.undo()
    assert bounds(keyed) == []
    keyed.append("one")
    check_as_before(keyed)


def _lost(_: Lease) -> None:
    raise LeaseHeld("lost", where="here", todo="")
