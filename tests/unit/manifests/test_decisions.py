"""Marks and decisions: their contents, and that invalid ones are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from streamvault.common.errors import Conflict, Damaged
from streamvault.common.units import now_utc
from streamvault.layouts.keys import GenerationSpan, checked_key, decision_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.decisions import Checked, Decision, Hold, find_checked
from streamvault.manifests.files import seal
from streamvault.manifests.listing import KEPT, Listing
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import AlreadyExists, ObjectStore
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import SegmentId, StreamCut
from tests.archives import NAME, new_decision

PREFIX = f"{NAME}/"


@pytest.fixture
def archive(unique_name: str) -> Archive:
    return Archive(RootAddress.parse(f"memory://{unique_name}"), NAME)


@pytest.fixture
def store(archive: Archive) -> ObjectStore:
    return archive.store


def test_marks_are_read_as_they_were_written(store: ObjectStore) -> None:
    mark = Checked.of(NAME, 2, ranges=3, digest="0" * 64)
    store.put(PREFIX + checked_key(GenerationSpan.of(2)), mark.encode())
    assert find_checked(store, NAME, GenerationSpan.of(2)) == mark
    assert find_checked(store, NAME, GenerationSpan.of(1)) is None


@pytest.mark.parametrize(
    ("change", "cut", "said"),
    [({"scope": "other"}, None, "another archive"), ({"generation": 3}, None, "another"), ({}, 20, "truncated")],
)
def test_invalid_mark_is_damage(store: ObjectStore, change: dict[str, object], cut: int | None, said: str) -> None:
    mark = Checked.of(NAME, 2, ranges=3, digest="0" * 64)
    store.put(PREFIX + checked_key(GenerationSpan.of(2)), seal({**mark.document(), **change})[:cut])
    with pytest.raises(Damaged, match=said):
        find_checked(store, NAME, GenerationSpan.of(2))


# decisions


def hold(number: int, name: str = "a") -> Hold:
    return Hold(generation=number, name=name, who="wer", why="für später", created=now_utc())


def test_decision_has_the_whole_state() -> None:
    taken = new_decision(0).expire(2).merge(GenerationSpan(3, 5), 600.0).hold(hold(4)).hold(hold(4, "b")).sweep(2)
    assert (taken.dropped, taken.swept) == (2, 2)
    assert [(one.generation, one.first, one.grace) for one in taken.merged] == [(5, 3, 600.0)]
    assert [one.name for one in taken.release("a", range(3, 6)).holds] == ["b"]
    assert [
        (one.generation, one.first)
        for one in taken.merge(GenerationSpan(6, 9), 0).merge(GenerationSpan(3, 9), 0).merged
    ] == [(9, 3)]
    assert taken.release("a", range(1, 9)).release("b", range(1, 9)).expire(5).merged == ()
    assert Decision.model_validate_json(taken.encode()) == taken


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.expire(4),  # a part of what is merged
        lambda one: one.expire(5),  # what is held
        lambda one: one.sweep(3),  # what is in force
        lambda one: one.merge(GenerationSpan(4, 7), 0),  # a part of what is merged
        lambda one: one.merge(GenerationSpan(1, 6), 0).expire(3),
    ],
)
def test_contradictory_decision_is_refused(change: Callable[[Decision], object]) -> None:
    taken = new_decision(7).expire(2).merge(GenerationSpan(3, 5), 0).hold(hold(5))
    with pytest.raises(ValueError, match=r"generation|expired"):
        change(taken)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scope": "other"}, "another archive"),
        ({"number": 3}, "another archive"),
        ({"format": 3}, "unsupported format version"),
        ({"merged": [{"generation": 3, "first": 3}]}, "not a valid file"),
        ({"holds": [{"generation": 3, "name": "../a"}]}, "not a valid file"),
        ({"dropped": 2**31 - 1}, "dropped: Input should be less than"),
        ({"begin": '{"scope/stream/0.#epoch.0": 1}'}, "begin: Value error, a cut is an object"),
        ({"format": True}, "format: Value error, not an integer"),
    ],
)
def test_invalid_decision_is_damage(archive: Archive, change: dict[str, object], said: str) -> None:
    document = {**new_decision(2).document(), **change}
    archive.store.put(PREFIX + decision_key(2), seal(document))
    with pytest.raises(Damaged, match=said):
        archive.listing()


DECIDED = new_decision(2, who="wer").hold(hold(5)).merge(GenerationSpan(3, 4), 0.0).document()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *(((), name) for name in ("format", "created", "dropped", "swept", "merged", "holds")),
        *((("holds", 0), name) for name in ("who", "why", "created")),
        *((("merged", 0), name) for name in ("at", "grace")),
    ],
)
def test_decision_that_lacks_a_member_is_damage(archive: Archive, path: tuple[str, int], name: str) -> None:
    document = json.loads(json.dumps(DECIDED))
    del (document[path[0]][path[1]] if path else document)[name]
    archive.store.put(PREFIX + decision_key(2), seal(document))
    with pytest.raises(Damaged, match=rf"{name}: Field required"):
        archive.listing()


def test_decision_of_an_earlier_release_is_read(archive: Archive) -> None:
    """It lacks who has made it, and what was added to decisions later."""
    since = {"who", "begin", "dropped_created", "empty", "deletion", "released"}
    document = {name: value for name, value in DECIDED.items() if name not in since}
    archive.store.put(PREFIX + decision_key(2), seal(document))
    assert archive.listing().decision.who == ""


def expire(upto: int) -> Callable[[Listing], Decision | None]:
    return lambda listing: listing.decision.expire(upto) if listing.dropped < upto else None


def test_decisions_are_numbered_and_only_the_newest_ones_stay(archive: Archive) -> None:
    last = KEPT + 3
    for number in range(1, last + 1):
        listing, taken = archive.decide(expire(number))
        assert (listing.dropped, taken) == (number, True)
    kept = [PREFIX + decision_key(number) for number in range(last - KEPT, last + 1)]
    assert [entry.key for entry in archive.store.list(PREFIX)] == kept
    listing, taken = archive.decide(expire(2))
    assert (listing.decision.number, taken) == (last, False)


def test_contradicting_server_is_not_asked_for_ever(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    def lying(*_: object) -> None:
        raise AlreadyExists("no", where="there")

    monkeypatch.setattr(ObstoreStore, "put", lying)
    with pytest.raises(Conflict, match="other runs kept writing theirs first"):
        archive.decide(expire(1))


def test_decision_superseded_while_it_is_read_is_read_again(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.decide(expire(1))
    get = ObstoreStore.get

    def late(self: ObstoreStore, key: str, *most: int) -> bytes:
        monkeypatch.setattr(ObstoreStore, "get", get)
        archive.decide(expire(2))
        return get(self, key, *most)

    monkeypatch.setattr(ObstoreStore, "get", late)
    listing: Listing = archive.listing()
    assert (listing.dropped, listing.decision.number) == (2, 2)


def test_deletion_that_is_decided_is_not_taken_back() -> None:
    begun = new_decision(7).expire(2).merge(GenerationSpan(3, 5), 0).delete("begun")
    assert (begun.format, begun.is_deleted, begun.is_over(GenerationSpan(3, 5))) == (2, False, False)
    kept = begun.delete("")
    assert (kept.format, kept.deletion, kept.merged) == (1, "", begun.merged)
    decided = begun.delete("decided")
    for span in (GenerationSpan(3, 5), GenerationSpan.of(6), GenerationSpan.of(7_000_000)):
        assert decided.is_over(span)
    for deletion in ("", "begun", "decided"):
        with pytest.raises(ValueError, match="decided"):
            decided.delete(deletion)
    done = decided.delete("done")
    assert (done.format, done.is_deleted) == (2, True)
    with pytest.raises(ValueError, match="format"):
        new_decision(7, deletion="begun")


# what a decision may follow


BEFORE = new_decision(6).expire(2, StreamCut(NAME, {SegmentId(0, 0): 5})).merge(GenerationSpan(3, 5), 0).hold(hold(5))


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.hold(hold(4)),
        lambda one: one.release("a", {5}),
        lambda one: one.merge(GenerationSpan(6, 7), 0),
        lambda one: one.merge(GenerationSpan(3, 7), 0),
        lambda one: one.sweep(2),
        lambda one: one.delete("begun"),
    ],
)
def test_decision_follows_the_one_that_it_was_made_from(change: Callable[[Decision], Decision]) -> None:
    assert change(BEFORE).numbered(7).follows(BEFORE) == ""


def test_decisions_follow_from_the_first_one_to_the_last() -> None:
    new = new_decision(0)
    begun = new.begin_after(3).numbered(1)
    assert (begun.follows(new), new.expire(1).numbered(1).follows(new)) == ("", "")
    elsewhere = StreamCut(NAME, {SegmentId(0, 0): 5})
    assert begun.begin_after(5, elsewhere).numbered(2).follows(begun) == ""
    for empty in (True, False):
        forged = begun.model_copy(update={"begin": elsewhere, "empty": empty}).numbered(2)
        assert "takes back" in forged.follows(begun)
    for number, deletion in enumerate(("begun", "", "begun", "decided", "done"), 2):
        before, begun = begun, begun.delete(deletion).numbered(number)
        assert begun.follows(before) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"number": 6}, "does not follow"),
        ({"number": 8}, "does not follow"),
        ({"dropped": 1, "swept": 1}, "takes back"),
        ({"swept": 1}, "takes back"),
        ({"begin": StreamCut(NAME, {SegmentId(0, 0): 7})}, "takes back"),
        ({"begin": None}, "takes back"),
        ({"empty": True}, "takes back"),
        ({"holds": ()}, "leaves out the hold a of generation 5"),
        ({"holds": (), "released": (hold(4),)}, "leaves out the hold a of generation 5"),
        ({"holds": (), "released": BEFORE.holds, "dropped": 5, "merged": ()}, "leaves out the hold a of generation 5"),
        ({"merged": ()}, "leaves out the merged generation 5"),
        ({"format": 2, "deletion": "decided"}, "deletion is decided, although it was not begun"),
        ({"format": 2, "deletion": "done"}, "deletion is done, although it was not begun"),
        ({"format": 2, "deletion": "begun", "holds": (), "released": BEFORE.holds}, "changes more"),
    ],
)
def test_decision_that_cannot_have_been_made_from_the_one_before(change: dict[str, object], said: str) -> None:
    fields = {name: getattr(BEFORE, name) for name in Decision.model_fields}
    before = BEFORE.model_copy(update={"swept": 2})
    assert said in Decision(**{**fields, "swept": 2, "number": 7, **change}).follows(before)


def test_held_generations_are_not_deleted_by_two_decisions() -> None:
    begun = BEFORE.delete("begun").numbered(7)
    assert "deletes generations that have a hold" in begun.delete("decided").numbered(8).follows(begun)
