"""Streams appended to a stream of a real Pravega, which is written to meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streamvault import append_streams, copy_stream, export_stream, join_streams
from streamvault.concat.reports import StitchReport
from streamvault.sources.identity import AnotherSource
from streamvault.streamstore.errors import StreamStoreUnavailable
from streamvault.streamstore.ledger import Ledger
from streamvault.streamstore.model import (
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.pravega.connection import PravegaSettings
from streamvault.streamstore.pravega.store import PravegaStore
from streamvault.streamstore.store import StreamStore
from testkit.killed import Killed, killed
from testkit.scenes import leave_leases
from testkit.servers.java_client import JavaClient
from testkit.servers.proxy import FaultProxy
from testkit.streams import events_of
from tests.integration.conftest import Site
from tests.integration.keyed_writer import KeyedWriter, numbers_by_key

pytestmark = pytest.mark.pravega

SHAPES = ([0.5], [0.25, 0.5, 0.75], [0.5, 0.75], [0.5], [0.1, 0.5, 0.9])
"""The boundaries of the source's epochs: all have one in the middle."""


def make(store: StreamStore, name: StreamName, segments: int) -> None:
    """Make a stream of the ordinary kind: with a fixed number of segments."""
    store.create_stream_and_scope(name, StreamConfiguration(Scaling(min_segments=segments)))


def make_old(store: StreamStore, name: StreamName) -> KeyedWriter:
    """Make a stream of five epochs; return its writer, which has stopped."""
    make(store, name, 2)
    store.update_stream(name, StreamConfiguration(Scaling.never()))  # any number of segments
    writer = KeyedWriter(store, name, prefix="old")
    for number, bounds in enumerate(SHAPES):
        if number:
            ranges = [KeyRange(low, high) for low, high in pairwise([0.0, *bounds, 1.0])]
            store.scale(name, list(store.describe(name).epochs[-1].segments), ranges)
        writer.write(200)
    return writer


def check_places(store: StreamStore, report: StitchReport) -> None:
    """Check that the bytes are where the report says, as far as it is exact."""
    for place in report.places:
        if place.exact:
            source, target = (text.rpartition("/") for text in (place.segment, place.target_segment))
            data = store.read_bytes(StreamName.parse(source[0]), SegmentId.parse(source[2]), place.start, place.end)
            end = place.offset + len(data)
            there = StreamName.parse(target[0]), SegmentId.parse(target[2])
            assert store.read_bytes(*there, place.offset, end) == data


def check_as_before(store: StreamStore, before: StreamDescription) -> None:
    """Check that a stream has the key ranges and the configuration that it had."""
    now = store.describe(before.name)
    ranges = [list(one.epochs[-1].segments.values()) for one in (before, now)]
    assert (ranges[0], before.configuration) == (ranges[1], now.configuration)


@pytest.mark.parametrize(
    "scaling", [Scaling(ScaleKind.BY_EVENTS, 1000, 2, 3), pytest.param(Scaling(min_segments=2), marks=pytest.mark.long)]
)
def test_key_ranges_and_policy_are_given_back(here: Site, scope_name: str, scaling: Scaling) -> None:
    """Those of unequal widths, too, which Pravega would not make by itself; also if the append was killed."""
    source, other, target = (StreamName(scope_name, name) for name in ("old", "other", "target"))
    old = make_old(here.store, source)
    make(here.store, other, 1)
    users = StreamConfiguration(scaling, Retention(RetentionKind.TIME, 86_400_000), tags=("mine",))
    here.store.create_stream(target, users)
    ranges = [KeyRange(0.0, 0.2), KeyRange(0.2, 0.7), KeyRange(0.7, 1.0)]
    here.store.scale(target, list(here.store.describe(target).epochs[-1].segments), ranges)
    before = here.store.describe(target)
    if scaling.min_segments < len(ranges):  # Pravega would merge them
        before = replace(before, configuration=replace(users, scaling=Scaling(min_segments=3)))
    with KeyedWriter(here.store, target, prefix="new", rate=200) as writer:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(PravegaStore, "scale", killed_at_second(PravegaStore.scale))
            leave_leases(patched)
            with pytest.raises(Killed):
                append_streams([here.uri(source)], here.uri(target), master="inline")
        assert len(here.store.describe(target).epochs[-1].segments) == 1
        append_streams([here.uri(other)], here.uri(target), master="inline")
        check_as_before(here.store, before)
        old.write(40)
        append_streams([here.uri(source)], here.uri(target), master="inline")
        check_as_before(here.store, before)
    assert writer.error is None
    expected = {**old.written, **writer.written}
    assert numbers_by_key(here.store, target) == {key: list(range(count)) for key, count in expected.items() if count}


def killed_at_second(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that kills the run when it is made the second time."""
    made: list[object] = []

    def call(*given: Any) -> Any:
        made.append(given)
        return killed() if len(made) > 1 else real(*given)

    return call


def test_stream_is_appended_at_once_while_others_write(
    here: Site, scope_name: str, java_client: JavaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = StreamName(scope_name, "old"), StreamName(scope_name, "target")
    old = make_old(here.store, source)
    make(here.store, target, 3)
    before = here.store.describe(target)
    real, readable = Ledger.record, []

    def record(self: Ledger, what: Any) -> None:
        real(self, what)
        readable.append(sum(key.startswith("old") for key in numbers_by_key(here.store, target)))

    monkeypatch.setattr(Ledger, "record", record)
    with KeyedWriter(here.store, target, prefix="new", rate=200) as writer:
        writer_began = dict(writer.written)
        report = append_streams([here.uri(source)], here.uri(target), master="inline")
    assert writer.error is None
    assert writer.written != writer_began
    writer.write(40)
    assert readable[:3] == [0, 0, 0]  # planned, filling, committing
    expected = {**old.written, **writer.written}
    found = numbers_by_key(here.store, target)
    assert {key: list(range(count)) for key, count in expected.items() if count} == found
    assert len(report.merged_segments) == 3
    check_places(here.store, report)
    java_client.digest(here.server, target, sum(expected.values()))
    check_as_before(here.store, before)
    assert append_streams([here.uri(source)], here.uri(target), master="inline").unchanged


@pytest.mark.parametrize(("own_segments", "away"), [pytest.param(False, False, marks=pytest.mark.long), (True, True)])
def test_lost_answer_to_a_commit_appends_once(
    here: Site, scope_name: str, monkeypatch: pytest.MonkeyPatch, *, own_segments: bool, away: bool
) -> None:
    """The answer is lost on its way; then the controller is there again, or is not before the command gives up."""
    source, target = StreamName(scope_name, "old"), StreamName(scope_name, "target")
    old = make_old(here.store, source)
    make(here.store, target, 2)
    real = PravegaSettings.from_environment
    impatient = staticmethod(lambda *given, **more: replace(real(*given, **more), timeout=3.0))
    monkeypatch.setattr(PravegaSettings, "from_environment", impatient)
    with FaultProxy(here.server.controller_port) as proxy:
        uris = [here.uri(source)], f"pravega://127.0.0.1:{proxy.port}/{target}"
        options: dict[str, Any] = {"master": "inline", "own_segments": own_segments}
        proxy.lose_answer(b"/commitTransaction", refuse=away)
        with pytest.raises(StreamStoreUnavailable) if away else nullcontext():
            report = append_streams(*uris, **options)
        assert proxy.lost.is_set()
        if away:
            proxy.accept()
            report = append_streams(*uris, **options)
        assert (report.resumed, report.moved_bytes > 0) == (away, not away)
    assert all(place.exact for place in report.places)
    check_places(here.store, report)
    assert numbers_by_key(here.store, target) == {key: list(range(n)) for key, n in old.written.items() if n}
    if own_segments:
        old.write(100)
        for each in (report, append_streams(uris[0], here.uri(target), **options)):
            assert all(place.exact for place in each.places)
            check_places(here.store, each)
            assert {place.offset for place in each.places} >= {0}
            landed = {SegmentId.parse(place.target_segment.rpartition("/")[2]) for place in each.places}
            assert all(info.sealed for info in here.store.segment_info(target, list(landed)))


@pytest.mark.spark
def test_spark_fills_a_task_each_segment(here: Site, scope_name: str, tmp_path: Path) -> None:
    source, archived, target, joined = (StreamName(scope_name, name) for name in ("old", "new", "target", "joined"))
    old = make_old(here.store, source)
    make(here.store, target, 2)
    make(here.store, archived, 4)
    new = KeyedWriter(here.store, archived, prefix="new")
    new.write(100)
    export_stream(here.uri(archived), f"file://{tmp_path}/vault", master="inline")
    sources = [here.uri(source), f"file://{tmp_path}/vault/{archived}"]
    expected = {key: list(range(count)) for key, count in {**old.written, **new.written}.items() if count}
    for report, name in (
        (append_streams(sources, here.uri(target), master="local[2]"), target),
        (join_streams(sources, here.uri(joined), master="local[2]"), joined),
    ):
        assert numbers_by_key(here.store, name) == expected
        assert report.bytes == report.moved_bytes
        check_places(here.store, report)


def test_three_streams_and_an_archive_are_joined(
    here: Site, scope_name: str, tmp_path: Path, java_client: JavaClient
) -> None:
    """Their epochs share the boundary in the middle; the result is read by Pravega's own client, and cut again."""
    written: dict[str, int] = {}
    names = [StreamName(scope_name, name) for name in ("one", "two", "three", "four")]
    for number, name in enumerate(names):
        make(here.store, name, 2 * (1 + number % 2))
        writer = KeyedWriter(here.store, name, prefix=name.stream)
        writer.write(100)
        written |= {key: count for key, count in writer.written.items() if count}
    export_stream(here.uri(names[3]), f"file://{tmp_path}/vault", master="inline")
    joined, some = (StreamName(scope_name, name) for name in ("joined", "some"))
    sources = [*map(here.uri, names[:3]), f"file://{tmp_path}/vault/{names[3]}"]
    report = join_streams(sources, here.uri(joined), master="inline")
    assert report.segments == 2
    assert all(place.exact for place in report.places)
    check_places(here.store, report)
    expected = {key: list(range(count)) for key, count in written.items()}
    assert numbers_by_key(here.store, joined) == expected
    java_client.digest(here.server, joined, sum(written.values()))
    assert join_streams(sources, here.uri(joined), master="inline").unchanged
    described = here.store.describe(joined)
    ranges = [(described.head.to_json(), described.tail.to_json())]
    copy_stream(here.uri(joined), here.uri(some), ranges=ranges, master="inline")
    assert numbers_by_key(here.store, some) == expected


def test_source_that_was_replaced_is_not_appended(here: Site, scope_name: str, tmp_path: Path) -> None:
    """By a longer one. Its scope was deleted and made again, so that it has the same segments; its archive, too."""
    source, target = StreamName(f"{scope_name}-old", "orders"), StreamName(scope_name, "target")
    make(here.store, target, 1)
    archive = f"file://{tmp_path}/vault/{source}"
    KeyedWriter(here.store, target, prefix="mine").write(10)
    for prefix, count in (("old", 100), ("new", 300)):
        if prefix == "new":
            here.store.seal(source)
            here.store.delete(source)
            here.store.delete_scope(source.scope)
            (tmp_path / "vault").rename(tmp_path / "former")
        make(here.store, source, 1)
        KeyedWriter(here.store, source, prefix=prefix).write(count)
        (tmp_path / "vault").mkdir()
        export_stream(here.uri(source), f"file://{tmp_path}/vault", master="inline")
        for uri in (here.uri(source), archive):
            if prefix == "old":
                assert append_streams([uri], here.uri(target), master="inline").moved_bytes
                before = list(events_of(here.store, target))
            else:
                with pytest.raises(AnotherSource):
                    append_streams([uri], here.uri(target), master="inline")
                assert list(events_of(here.store, target)) == before
    assert not any(payload.startswith(b"new") for _, payload in before)
