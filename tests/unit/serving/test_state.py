"""The states of reader groups, shared by servers: two of them, and any stop between two requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

import pytest
from obstore.store import MemoryStore

from streamvault.common.errors import Damaged
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectStore, ObjectStoreUnavailable
from streamvault.objectstore.uri import RootAddress
from streamvault.serving import state as module
from streamvault.serving.state import NULL, Appended, Groups, StateMoved, StateSegment
from streamvault.streamstore.errors import NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import StreamName
from testkit.servers.s3 import S3Server
from tests.pages import ROOT

NAME = StreamName("shop", "group")
ONE, OTHER, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)


class Killed(BaseException):
    """The server ends here."""


class Stops:
    """Calls a function before the request of some number, from 1 on; then the request is made."""

    def __init__(self, store: ObjectStore, at: int = 0, then: Callable[[], None] = lambda: None) -> None:
        self.inner, self.at, self.then, self.requests = store, at, then, 0
        self.uri = store.uri

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)

        def call(*args: Any) -> Any:
            self.requests += 1
            if self.requests == self.at:
                self.then()
            return found(*args)

        return call


def kill() -> None:
    raise Killed


def new_store() -> ObjectStore:
    return ObstoreStore(MemoryStore(), bucket="memory://state")


def opened(store: ObjectStore | Stops) -> StateSegment:
    """A server's segment of the group's state, created if need be."""
    try:
        return Groups(cast("ObjectStore", store)).create(NAME, b"configuration").state
    except StateMoved:  # said of a change that was very late; the client makes it again
        return opened(store)


def contents(store: ObjectStore) -> bytes:
    """What a server that knows nothing reads."""
    segment = opened(store)
    return segment.read(0, segment.info().write_offset)


@pytest.fixture
def short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EPOCH_ENTRIES", 3)


@pytest.fixture
def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are read one after the other: a stop is always before the same one, and no threads are started."""
    monkeypatch.setattr(module, "get_all", lambda store, items: [(key, store.get(key)) for key, _ in items])


def test_of_two_servers_one_appends_at_an_offset() -> None:
    store = new_store()
    one, other = opened(store), opened(store)
    assert one.append(ONE, 1, b"first", 0) == Appended(NULL, 5)
    assert other.append(OTHER, 1, b"late", 0) is None
    assert other.append(OTHER, 2, b"second", 5) == Appended(NULL, 11)
    assert one.append(ONE, 2, b"!", 11) == Appended(1, 12)
    assert one.append(ONE, 3, b"?", 11) is None
    assert contents(store) == b"firstsecond!"


def test_a_repeated_append_is_stored_once_whichever_server_it_goes_to() -> None:
    store = new_store()
    one, other = opened(store), opened(store)
    one.append(ONE, 7, b"once", None)
    for server in (one, other, opened(store)):
        assert server.append(ONE, 7, b"once", None) == Appended(7, 4)
        assert server.append(ONE, 7, b"once", 0) == Appended(7, 4)
        assert server.last_event(ONE) == 7
    assert contents(store) == b"once"


def test_truncated_and_created_again() -> None:
    store = new_store()
    one = opened(store)
    one.append(ONE, 1, b"oldwhole", 0)
    assert not one.truncate(9)
    assert one.truncate(3)
    assert opened(store).read(3, 5) == b"whole"
    with pytest.raises(SegmentTruncated):
        opened(store).read(0, 3)
    groups, late = Groups(store), Groups(store)
    before = groups.find(NAME)
    assert before is not None
    assert groups.delete(NAME, before)
    assert not groups.delete(NAME, before)
    assert groups.find(NAME) is None
    again = opened(store)
    assert not late.delete(NAME, before)
    assert (again.id == one.id, again.info().write_offset, again.last_event(ONE)) == (False, 0, NULL)
    with pytest.raises(NoSuchSegment):
        one.append(ONE, 2, b"late", None)
    with pytest.raises(NoSuchSegment):
        groups.segment(NAME, one.id)


def test_attributes_and_configurations_are_compared_and_set() -> None:
    store = new_store()
    one, other = opened(store), opened(store)
    assert one.swap(ONE, NULL, 5)
    assert not other.swap(ONE, NULL, 6)
    assert other.swap(ONE, 5, 6)
    assert one.attribute(ONE) == 6
    groups, late = Groups(store), Groups(store)
    before = groups.find(NAME)
    assert before is not None
    assert late.update(NAME, b"second", before)
    assert not groups.update(NAME, b"third", before)
    found = groups.find(NAME)
    assert found is not None
    assert found.configuration == b"second"


def test_an_append_makes_two_requests_and_a_start_a_bounded_number() -> None:
    store = new_store()
    counted = Stops(store)
    one = opened(counted)
    for number in range(1, 1001):
        before = counted.requests
        one.append(ONE, number, b"x", number - 1)
        assert counted.requests - before == 2 or number % module.EPOCH_ENTRIES == 0
    assert len(list(store.list(""))) <= module.EPOCH_ENTRIES + 1
    start = Stops(store)
    assert opened(start).info().write_offset == 1000
    assert start.requests <= module.EPOCH_ENTRIES + 10


def test_a_server_without_its_store_acknowledges_nothing() -> None:
    def lost() -> None:
        raise ObjectStoreUnavailable("no answer")

    for at in (1, 2):
        store = new_store()
        stops = Stops(store, then=lost)
        one = opened(stops)
        stops.at = stops.requests + at
        with pytest.raises(ObjectStoreUnavailable):
            one.append(ONE, 1, b"data", 0)
        assert one.append(ONE, 1, b"data", 0) is not None
        assert contents(store) == b"data"


def work(server: StateSegment, writer: UUID, letter: str, acknowledged: dict[bytes, int], times: int) -> None:
    """Append some events at whatever is the end."""
    for number in range(1, times + 1):
        event = f"{letter}{number:02d}".encode()
        done = None
        while done is None:
            expected = server.info().write_offset if number % 2 else None
            done = server.append(writer, number, event, expected)
        acknowledged[event] = done.end


def judge(store: ObjectStore, acknowledged: dict[bytes, int]) -> None:
    data = contents(store)
    events = [data[at : at + 3] for at in range(0, len(data), 3)]
    assert len(events) == len(set(events)), f"stored twice: {events}"
    assert set(acknowledged) <= set(events), f"lost: {set(acknowledged) - set(events)}"


def stops_of(script: Callable[[Stops], None]) -> Iterator[int]:
    counted = Stops(new_store())
    script(counted)
    yield from range(1, counted.requests + 1)


@pytest.mark.usefixtures("short_epochs", "in_turn")
@pytest.mark.parametrize("first_dies", [False, True])
def test_two_servers_and_any_stop_between_two_requests(*, first_dies: bool) -> None:
    """The first stops before any request; the second runs through epochs, or dies before any request; a third reads."""
    seconds = [0, *stops_of(lambda store: work(opened(store), OTHER, "b", {}, 5))]
    for at in stops_of(lambda store: work(opened(store), ONE, "a", {}, 2)):
        for dies in seconds:
            store, acknowledged = new_store(), dict[bytes, int]()

            def others(
                store: ObjectStore = store, acknowledged: dict[bytes, int] = acknowledged, dies: int = dies
            ) -> None:
                with suppress(Killed):
                    work(opened(Stops(store, dies, kill)), OTHER, "b", acknowledged, 5)
                work(opened(store), OTHER, "b", acknowledged, 5)  # its client repeats all at another server
                judge(store, acknowledged)
                if first_dies:
                    raise Killed

            with suppress(Killed):
                work(opened(Stops(store, at, others)), ONE, "a", acknowledged, 2)
            work(opened(store), ONE, "a", acknowledged, 2)
            judge(store, acknowledged)
            assert len(acknowledged) == 2 + 5


def test_a_deletion_that_stops_or_comes_late_deletes_the_group_that_was_meant() -> None:
    def delete(stops: Stops) -> None:
        before = Groups(stops.inner).find(NAME) or Groups(stops.inner).create(NAME, b"configuration")
        with suppress(StateMoved):
            Groups(cast("ObjectStore", stops)).delete(NAME, before)

    for at in stops_of(delete):
        for dies in (False, True):
            store = new_store()

            def others(store: ObjectStore = store, dies: bool = dies) -> None:
                groups = Groups(store)
                if (before := groups.find(NAME)) is not None:
                    assert groups.delete(NAME, before)
                opened(store).append(OTHER, 1, b"new", 0)
                if dies:
                    raise Killed

            with suppress(Killed):
                delete(Stops(store, at, others))
            assert contents(store) == b"new"


@pytest.mark.usefixtures("short_epochs")
@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[1]\n", b'{"version": 1}\n', b'{"version": 2}\n', b'{"version": 1, "token": []}\n']
)
@pytest.mark.parametrize("kind", ["entries/0000000000/0000000001", "snapshots/0000000001"])
def test_a_damaged_state_is_an_error_that_names_it(kind: str, body: bytes) -> None:
    store = new_store()
    opened(store)
    store.put(f"{NAME}/{kind}", body)
    groups = Groups(store)
    for _ in range(2):
        with pytest.raises(Damaged, match="not a state of a reader group that this version can read"):
            groups.find(NAME)


@pytest.mark.usefixtures("short_epochs")
def test_two_late_servers_do_not_read_each_others_entries() -> None:
    store = new_store()
    late, later = opened(store), opened(store)
    work(opened(store), OTHER, "b", {}, 20)
    assert late.append(ONE, 1, b"late", 0) is None
    assert late.append(ONE, 1, b"end", 60) == Appended(NULL, 63)
    assert later.info().write_offset == 63
    assert later.read(57, 6) == b"b20end"


def test_the_page_has_the_limits_that_servers_must_agree_on() -> None:
    page = (ROOT / "docs" / "reference" / "format-state.md").read_text()
    rows = dict(re.findall(r"^\| ([a-z' ]+) \| ([\d,]+)", page.partition("## Limits")[2], re.MULTILINE))
    limits = {name: int(value.replace(",", "")) for name, value in rows.items()}
    assert limits == {
        "entries of an epoch": module.EPOCH_ENTRIES,
        "bytes of an epoch's entries": module.EPOCH_BYTES,
        "writers of a group": module.MOST_WRITERS,
    }
    assert f"{module.MOST_STATE_BYTES:,} bytes of a group's state" in page
    assert f"{module.MOST_ATTRIBUTES} attributes" in page


def test_objects_have_the_fields_that_the_page_names(short_epochs: None) -> None:
    page = (ROOT / "docs" / "reference" / "format-state.md").read_text()
    entries, snapshot = (set(re.findall(r"`(\w+)`", part)) for part in (page, page.partition("A snapshot's JSON")[2]))
    store = new_store()
    one = opened(store)
    one.append(ONE, 1, b"event", None)
    one.truncate(2)
    group = Groups(store).find(NAME)
    assert group is not None
    one.swap(ONE, NULL, 5)
    Groups(store).update(NAME, b"other", group)
    seen = set()
    for item in store.list(""):
        head = json.loads(store.get(item.key).partition(b"\n")[0])
        assert head.keys() <= {*(snapshot if "/snapshots/" in item.key else entries), "version"}
        assert re.fullmatch(rf"{NAME}/(entries/\d{{10}}/\d{{10}}|snapshots/\d{{10}})", item.key)
        seen |= {head.get("kind"), "snapshot" if "/snapshots/" in item.key else None}
    assert {"snapshot", "swap", "configure"} <= seen


@pytest.mark.minio
def test_two_servers_on_minio(minio: S3Server, bucket_name: str, use_s3: Callable[[S3Server], None]) -> None:
    use_s3(minio)
    minio.make_bucket(bucket_name)
    one, other = (opened(RootAddress.parse(f"s3://{bucket_name}/state").open()) for _ in range(2))
    for number in range(1, 301):
        server, late = (one, other) if number % 7 < 3 else (other, one)
        assert server.append(ONE, number, b"x", None) is not None
        assert late.append(OTHER, number, b"y", number - 1) is None
    assert contents(RootAddress.parse(f"s3://{bucket_name}/state").open()) == b"x" * 300
