"""What there is to archive in a scope or a store."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from streamvault import ephemeral_stream, list_streams, replicate_stream, request_restore
from streamvault.cli import main
from streamvault.common.at_once import AT_ONCE, each_of
from streamvault.errors import InvalidName, StreamStoreError
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamConfiguration, StreamName
from streamvault.streamstore.uri import open_stream
from testkit.streams import append_events, make_stream

ORDERS, OTHER = StreamName("shop", "orders"), StreamName("other", "one")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "streams")
    make_stream(store, ORDERS, events=100, largest=3000)
    store.create_stream_and_scope(OTHER, StreamConfiguration())
    return store


def test_figures_are_those_of_what_an_export_would_read(store: LocalStore) -> None:
    described = store.describe(ORDERS)
    found = {one.stream: one for one in list_streams(f"{store.uri}/shop/")}
    assert found.keys() == {f"{store.uri}/{ORDERS}"}
    one = found[f"{store.uri}/{ORDERS}"]
    live = segments_between(described, described.head, described.tail)
    infos = store.segment_info(ORDERS, list(live))
    starts = {segment: start for segment, (start, _) in live.items()}
    assert one.bytes == sum(info.write_offset - starts[info.segment] for info in infos) > 0
    assert (one.role, one.own, one.segments, one.epochs, one.sealed) == (
        "stream",
        False,
        len(described.tail.offsets),
        len(described.epochs),
        described.sealed,
    )


def test_a_store_has_all_its_scopes_in_order(store: LocalStore) -> None:
    assert [one.stream for one in list_streams(store.uri)] == [f"{store.uri}/{OTHER}", f"{store.uri}/{ORDERS}"]


def test_internal_streams_are_marked(store: LocalStore, tmp_path: Path) -> None:
    replicate_stream(f"{store.uri}/{ORDERS}", f"{store.uri}/other/replica", master="inline")
    (tmp_path / "vault").mkdir()
    request_restore(f"file://{tmp_path}/vault/shop/none", f"{store.uri}/shop/back", queue=f"{store.uri}/other/queue")
    with ephemeral_stream(f"{store.uri}/other/while"):
        kinds = {one.stream.rpartition("/")[2]: (one.role, one.own) for one in list_streams(f"{store.uri}/other/")}
    ledger, lease = (next(name for name in kinds if name.startswith(p)) for p in ("streamvault-c", "streamvault-e"))
    assert kinds == {
        "one": ("stream", False),
        "replica": ("replica", True),
        "queue": ("queue", True),
        "while": ("ephemeral", False),
        ledger: ("ledger", True),
        lease: ("lease", True),
    }


def test_a_stream_that_vanishes_is_left_out(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    really = LocalStore.describe

    def describe(self: LocalStore, name: StreamName) -> Any:
        if name == OTHER:
            raise NoSuchStream("no such stream", where=str(name))
        return really(self, name)

    monkeypatch.setattr(LocalStore, "describe", describe)
    assert [one.stream for one in list_streams(store.uri)] == [f"{store.uri}/{ORDERS}"]


def test_a_stream_that_is_truncated_meanwhile_is_looked_at_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, asked = LocalStore.segment_info, []

    def segment_info(self: LocalStore, name: StreamName, segments: Any) -> Any:
        asked.append(name)
        if len(asked) == 1:
            raise NoSuchSegment("no such segment")
        return really(self, name, segments)

    monkeypatch.setattr(LocalStore, "segment_info", segment_info)
    (one,) = list_streams(f"{store.uri}/shop/")
    assert (one.problem, len(asked)) == ("", 2)


def test_a_stream_that_cannot_be_read_is_listed_with_the_reason(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def describe(*_: Any) -> Any:
        raise StreamStoreError("the record is damaged")

    monkeypatch.setattr(LocalStore, "describe", describe)
    (one,) = list_streams(f"{store.uri}/shop/")
    assert one.problem == "the record is damaged"
    assert main(["streams", f"{store.uri}/shop/"]) == 0
    printed = capfd.readouterr()
    assert "cannot be read" in printed.out
    assert "the record is damaged" in printed.err


def test_command(store: LocalStore, capfd: pytest.CaptureFixture[str]) -> None:
    with open_stream(f"{store.uri}/{OTHER}") as stream:
        append_events(store, OTHER, next(iter(stream.describe().tail.offsets)), [b"x" * 92])
        store.seal(OTHER)
    assert main(["streams", store.uri]) == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert lines[0] == ["STREAM", "SEGMENTS", "BYTES", "REMARKS"]
    assert lines[2] == [f"{store.uri}/{OTHER}", "1", "100", "B", "sealed"]
    assert lines[3][0] == f"{store.uri}/{ORDERS}"
    assert main(["streams", f"{store.uri}/other/", "--json"]) == 0
    assert [one["bytes"] for one in json.loads(capfd.readouterr().out)["streams"]] == [100]
    store.create_scope("empty")
    assert main(["streams", f"{store.uri}/empty/"]) == 0
    assert capfd.readouterr().out == f"no streams in {store.uri}/empty/\n"


def test_scope_that_does_not_exist(store: LocalStore) -> None:
    with pytest.raises(NoSuchScope):
        list(list_streams(f"{store.uri}/none/"))


@pytest.mark.parametrize(
    "uri", ["s3://bucket/x/", "shop/", "pravega://host/", "pravega://host:9090/shop", "local://shop/", "local:///a/_x/"]
)
def test_what_is_no_scope_is_rejected_at_once(uri: str) -> None:
    with pytest.raises(InvalidName):
        list_streams(uri)


def test_few_are_begun_before_they_are_asked_for() -> None:
    begun, lock = [], threading.Lock()

    def function(number: int) -> int:
        with lock:
            begun.append(number)
        return number

    numbers = iter(range(1000))
    results = each_of(function, numbers)
    assert next(results) == 0
    assert next(numbers) == 2 * AT_ONCE
    results.close()  # type: ignore[attr-defined]
    assert len(begun) <= 2 * AT_ONCE
    assert list(each_of(function, range(100))) == list(range(100))
