"""Streams whose segment numbers a real Pravega cannot give again: restored with others, and every position found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from streamvault import copy_stream, export_stream, import_stream, translate
from streamvault.cli import main
from streamvault.common.errors import Conflict, Failed
from streamvault.streamstore.model import SEGMENT_END, KeyRange, Scaling, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.routing import SegmentRouter
from streamvault.streamstore.store import StreamStore, TransactionState
from testkit.keyed_stream import KeyedStream, by_key
from testkit.servers.java_client import JavaClient
from testkit.servers.pravega import PravegaServer
from testkit.streams import append_events, digest_of, events_of, frame, make_stream, payloads, shape_of
from tests.integration.conftest import Site

pytestmark = pytest.mark.pravega


def shape_without_numbers(store: StreamStore, stream: StreamName) -> dict[str, object]:
    """`shape_of` with each segment's creation epoch and offsets, but not its number."""
    described, shape = store.describe(stream), shape_of(store, stream)
    shape["epochs"] = [
        [(segment.epoch, held.low, held.high) for segment, held in epoch.segments.items()] for epoch in described.epochs
    ]
    for cut in ("head", "tail"):
        positions: dict[str, int] = shape[cut]  # type: ignore[assignment]
        shape[cut] = [(name.partition(".")[2], offset) for name, offset in positions.items()]
    live: list[tuple[str, int, int]] = shape["live"]  # type: ignore[assignment]
    shape["live"] = [(name.partition(".")[2], start, end) for name, start, end in live]
    return shape


def roll(store: StreamStore, stream: StreamName, ranges: list[KeyRange]) -> None:
    """Commit a transaction over a scale into these ranges, which makes two epochs with numbers of earlier ones."""
    transactions = store.transactions()
    transaction = transactions.begin(stream, 600)
    for segment in transaction.segments:
        with transactions.appender(transaction, segment) as appender:
            for payload in payloads(30, segment.number + 17):
                appender.append(frame(payload))
            appender.flush()
    scaled = store.scale(stream, list(store.describe(stream).tail.offsets), ranges)
    for segment in scaled.segments:
        append_events(store, stream, segment, payloads(20, segment.number))
    assert transactions.commit(transaction) is TransactionState.COMMITTED
    epochs = store.describe(stream).epochs
    assert epochs[-1].number == scaled.number + 2, "the commit rolled"
    assert {segment.number for segment in epochs[-1].segments} == {segment.number for segment in scaled.segments}
    for segment in epochs[-1].segments:
        append_events(store, stream, segment, payloads(10, segment.number + 5))


def test_stream_with_rolled_transactions_is_restored_with_other_numbers(
    pravega: PravegaServer, store: StreamStore, scope_name: str, tmp_path: Path
) -> None:
    source, restored = StreamName(scope_name, "source"), StreamName(scope_name, "restored")
    store.create_scope(scope_name)
    store.create_stream(source, StreamConfiguration(scaling=Scaling(min_segments=2)))
    roll(store, source, [KeyRange(0.0, 0.25), KeyRange(0.25, 0.75), KeyRange(0.75, 1.0)])
    roll(store, source, [KeyRange(0.0, 0.6), KeyRange(0.6, 1.0)])
    root = f"file://{tmp_path}/vault"
    export_stream(f"{pravega.uri}/{source}", root, layout="chunks", master="inline")
    archive, target = f"{root}/{source}", f"{pravega.uri}/{restored}"
    with pytest.raises(Failed, match=r"transaction was committed across a scale.*numbers='map'"):
        import_stream(archive, target, master="inline")
    assert not store.exists(restored)
    report = import_stream(archive, target, numbers="map", read_back=True, master="inline")
    assert shape_without_numbers(store, restored) == shape_without_numbers(store, source)
    assert len(report.renumbered) == len([s for s in store.describe(source).ranges() if str(s) in report.renumbered])
    expected = [(str(pointer), payload) for pointer, payload in events_of(store, source)]
    for one in (archive, f"{pravega.uri}/{source}"):
        new = translate(one, target, [pointer for pointer, _ in expected]).positions
        found = {str(pointer): payload for pointer, payload in events_of(store, restored)}
        assert [found[str(position.new)] for position in new] == [payload for _, payload in expected]
        assert len(found) == len(expected)
    tail = translate(archive, target, [store.describe(source).tail.to_json()]).positions[0].new
    assert tail == store.describe(restored).tail.to_json()
    assert import_stream(archive, target, numbers="map", again=True, master="inline").unchanged


def test_cut_of_a_java_reader_group_is_found_in_the_restored_stream(
    pravega: PravegaServer, store: StreamStore, java_client: JavaClient, scope_name: str, tmp_path: Path
) -> None:
    """The group has read a sealed segment to its end, but none of its successors."""
    source, copied = StreamName(scope_name, "orders"), StreamName(scope_name, "copied")
    uri, archive = f"{pravega.uri}/{source}", f"file://{tmp_path}/vault/{source}"
    store.create_scope(scope_name)
    store.create_stream(source, StreamConfiguration(scaling=Scaling(min_segments=2)))
    split, other = store.describe(source).epochs[0].segments
    for segment in (split, other):
        append_events(store, source, segment, [f"{segment} {number}".encode() for number in range(20)])
    halves = store.scale(source, [split], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)]).segments
    later = [segment for segment in halves if segment != other]
    for segment in later:
        append_events(store, source, segment, [f"{segment} {number}".encode() for number in range(5)])
    *_, positions = java_client.run("ReaderGroupCut", pravega, source, -40)
    ends = {info.segment: info.write_offset for info in store.segment_info(source, [split, other])}
    cut = {name: int(offset) for name, _, offset in (one.partition("=") for one in positions.split())}
    assert cut == StreamCut(source, ends | {split: SEGMENT_END}).to_json()

    def read_on(start: Mapping[str, int]) -> list[str]:
        arguments = [f"{segment}={offset}" for segment, offset in start.items()]
        return sorted(java_client.run("ReaderGroupCut", pravega, source, 10, *arguments))

    resolved = translate(uri, uri, [cut]).positions[0].new
    assert resolved == StreamCut(source, ends).to_json()
    rest = read_on(resolved)
    assert {line.partition(" ")[2] for line in rest} == {f"{one} {number}" for one in later for number in range(5)}
    copy_stream(uri, f"{pravega.uri}/{copied}", from_cut=cut, master="inline")
    assert [payload for _, payload in events_of(store, copied)] == [
        payload for pointer, payload in events_of(store, source) if pointer.segment in later
    ]
    export_stream(uri, f"file://{tmp_path}/vault", master="inline")
    store.delete(source)
    import_stream(archive, uri, numbers="map", master="inline")
    *pointers, start = (
        one.new for one in translate(archive, uri, [*(line.split()[0] for line in rest), cut]).positions
    )
    found = read_on(start)
    assert set(start).isdisjoint(cut)
    assert found == sorted(f"{new} {line.partition(' ')[2]}" for new, line in zip(pointers, rest, strict=True))


def test_deleted_stream_is_restored_under_its_own_name_twice(
    pravega: PravegaServer, store: StreamStore, scope_name: str, tmp_path: Path
) -> None:
    source = StreamName(scope_name, "orders")
    uri, root = f"{pravega.uri}/{source}", f"file://{tmp_path}/vault"
    make_stream(store, source, events=300)
    before, events = shape_without_numbers(store, source), list(events_of(store, source))
    cut = store.describe(source).head
    export_stream(uri, root, layout="chunks", master="inline")
    for _ in range(2):
        store.delete(source)
        with pytest.raises(Conflict, match=r"the name was used before.*numbers='map'"):
            import_stream(f"{root}/{source}", uri, master="inline")
        assert not store.exists(source)
        report = import_stream(f"{root}/{source}", uri, numbers="map", master="inline")
        assert len(report.renumbered) == report.segments
        assert shape_without_numbers(store, source) == before
        restored = list(events_of(store, source))
        assert [payload for _, payload in restored] == [payload for _, payload in events]
        asked = [str(pointer) for pointer, _ in events]
        new = [position.new for position in translate(f"{root}/{source}", uri, [*asked, cut.to_json()]).positions]
        assert new[:-1] == [str(pointer) for pointer, _ in restored]
        head = StreamCut.from_json(new[-1])
        assert head == store.describe(source).head
        assert import_stream(f"{root}/{source}", uri, numbers="map", master="inline").unchanged


# --- copies between two real Pravegas, one of them with TLS and a login


def copy(source: str, target: str, *options: str, capfd: pytest.CaptureFixture[str]) -> dict[str, object]:
    capfd.readouterr()
    assert main(["copy", source, target, "--json", "--master", "inline", *options]) == 0
    report: dict[str, object] = json.loads(capfd.readouterr().out)
    return report


def test_stream_is_copied_to_another_cluster(
    here: Site,
    there: Site,
    scope_name: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = StreamName(scope_name, "orders")
    make_stream(here.store, name, events=400)
    append_events(here.store, name, max(here.store.describe(name).tail.offsets), [b"", b"last"])
    source, target = here.uri(name), there.uri(name)
    copied = copy(source, target, "--read-back", capfd=capfd)
    assert copied["moved_bytes"] == copied["bytes"]
    ours, theirs = shape_of(here.store, name), shape_of(there.store, name)
    assert theirs.pop("configuration") == replace(
        ours.pop("configuration"),  # type: ignore[type-var]
        scaling=Scaling(min_segments=len(here.store.describe(name).tail.offsets)),
        tags=("made-for-a-test", f"streamvault-copy-of:{name}", "ünï"),
    )
    assert ours == theirs
    assert digest_of(here.store, name) == digest_of(there.store, name)
    again = copy(source, target, capfd=capfd)
    assert (again["unchanged"], again["behind_bytes"]) == (True, 0)


def test_copy_by_events_has_other_segments(
    here: Site, there: Site, scope_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each event is where a client writes one with its key, and each key's events are in order."""
    name = StreamName(scope_name, "keyed")
    source = KeyedStream(here.store, stream=name)
    for _ in range(3):
        source.write(200)
        source.scale()
    source.write(200)
    options = ("--method", "events", "--segments", "3", "--key", "/key")
    report = copy(here.uri(name), there.uri(name), *options, capfd=capfd)
    assert (report["segments"], report["bytes"]) == (3, report["moved_bytes"])
    assert by_key(there.store, name) == by_key(here.store, name)
    router = SegmentRouter(there.store.describe(name).epochs[0].segments)
    for pointer, payload in events_of(there.store, name):
        assert router.segments[router.index_of(json.loads(payload)["key"])] == pointer.segment
    assert copy(here.uri(name), there.uri(name), *options, capfd=capfd)["unchanged"]
    assert [one.stream for one in there.store.list_streams(scope_name)] == ["keyed"]
    assert len(list(there.store.list_streams(scope_name, own=True))) == 2, "and the record of what it has"
