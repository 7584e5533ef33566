"""Copies of streams of the embedded store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.errors import Conflict, Failed
from importer.target import Target, TargetTaken
from streamstore.byte_source import LiveSegment
from streamstore.local import LocalStore
from streamstore.model import KeyRange, StreamConfiguration, StreamCut
from streamvault import copy_stream
from streamvault.cli import main
from tests.streams import append_events, digest_of, events_of, make_stream, shape_of
from tests.unit.small_archives import NAME

TARGET = replace(NAME, stream="copy")
TAG = f"streamvault-copy-of:{NAME}"


class Streams:
    """A folder of streams."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder)

    @property
    def source(self) -> str:
        return f"local://{self.folder}/{NAME}"

    @property
    def target(self) -> str:
        return f"local://{self.folder}/{TARGET}"

    def copy(self, **options: object):  # type: ignore[no-untyped-def]
        return copy_stream(self.source, self.target, master="inline[2]", **options)  # type: ignore[arg-type]

    def add(self, *events: bytes) -> None:
        with self.store as store:
            append_events(store, NAME, max(store.describe(NAME).tail.offsets), events)


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    streams = Streams(tmp_path / "streams")
    with streams.store as store:
        make_stream(store, NAME, events=120, largest=20_000)
    return streams


def is_copy(streams: Streams) -> bool:
    with streams.store as store:
        source, copied = shape_of(store, NAME), shape_of(store, TARGET)
        configuration: StreamConfiguration = source.pop("configuration")  # type: ignore[assignment]
        scaling = replace(configuration.scaling, min_segments=len(store.describe(NAME).tail.offsets))
        wanted = replace(configuration, tags=(*configuration.tags, TAG), scaling=scaling)
        assert copied.pop("configuration") == wanted
        return source == copied and digest_of(store, NAME) == digest_of(store, TARGET)


@pytest.mark.parametrize("read_back", [False, True])
def test_copy_equals_its_source(streams: Streams, *, read_back: bool) -> None:
    report = streams.copy(read_back=read_back)
    assert is_copy(streams)
    assert (report.moved_bytes, report.unchanged, report.renumbered) == (report.bytes, False, {})
    with streams.store as store:
        assert report.tail == store.describe(NAME).tail.to_json()
        assert sorted(store.list_streams(NAME.scope, own=True)) == [TARGET, NAME]


def test_sealed_stream_is_copied(streams: Streams) -> None:
    with streams.store as store:
        store.seal(NAME)
    streams.copy()
    assert is_copy(streams)


def test_finished_copy_is_left_alone(streams: Streams, capfd: pytest.CaptureFixture[str]) -> None:
    streams.copy()
    again = streams.copy()
    assert (again.unchanged, again.behind_bytes, again.moved_bytes) == (True, 0, 0)
    streams.add(b"x" * 92)
    assert streams.copy().behind_bytes == 100
    capfd.readouterr()
    assert main(["copy", streams.source, streams.target]) == 0
    shown = capfd.readouterr().out
    assert "already copied" in shown
    assert "100 bytes were written to the source since" in shown


@pytest.mark.parametrize("options", [{}, {"offsets": "shift"}, {"numbers": "map"}])
def test_part_between_two_cuts_is_copied(streams: Streams, options: dict[str, str]) -> None:
    with streams.store as store:
        described = store.describe(NAME)
        events = list(events_of(store, NAME))
        some = {s: min(p.offset for p, _ in events if p.segment == s) for s in described.tail.offsets}
        middle = StreamCut(NAME, some)
    first = copy_stream(
        streams.source, f"local://{streams.folder}/scope/first", to_cut=middle.to_json(), master="inline", **options
    )  # type: ignore[arg-type]
    rest = copy_stream(
        streams.source, f"local://{streams.folder}/scope/rest", from_cut=middle.to_json(), master="inline", **options
    )  # type: ignore[arg-type]
    with streams.store as store:
        parts = [[payload for _, payload in events_of(store, replace(NAME, stream=name))] for name in ("first", "rest")]
        assert sorted(parts[0] + parts[1]) == sorted(payload for _, payload in events)
        assert first.bytes + rest.bytes == sum(pointer.length for pointer, _ in events)
        if options.get("offsets") == "shift":
            assert set(store.describe(replace(NAME, stream="rest")).head.offsets.values()) == {0}


def test_cut_inside_an_event_is_refused(streams: Streams, capfd: pytest.CaptureFixture[str]) -> None:
    with streams.store as store:
        tail = store.describe(NAME).tail
    segment = max(tail.offsets)
    cut = StreamCut(NAME, {**tail.offsets, segment: tail.offsets[segment] - 3})
    for option in ("--from", "--to"):
        assert main(["copy", streams.source, streams.target, option, json.dumps(cut.to_json())]) == 2
        assert "lies inside an event" in capfd.readouterr().err


class Killed(BaseException):
    """As a kill: nobody handles it."""


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_killed_copy_is_resumed_up_to_the_tail_of_then(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, offsets: str
) -> None:
    with monkeypatch.context() as patched:

        def killed(_: Target, step: object) -> None:
            raise Killed(step)

        patched.setattr(Target, "scale", killed)
        with pytest.raises(Killed):
            streams.copy(offsets=offsets)
    streams.add(b"later")
    with streams.store as store:
        described = store.describe(NAME)
        store.scale(NAME, [max(described.tail.offsets)], [described.ranges()[max(described.tail.offsets)]])
        expected = [payload for _, payload in events_of(store, NAME)]
    report = streams.copy(offsets=offsets)
    assert report.resumed
    assert 0 < report.moved_bytes < report.bytes
    with streams.store as store:
        assert [payload for _, payload in events_of(store, TARGET)] == expected
        assert sorted(store.list_streams(NAME.scope, own=True)) == [TARGET, NAME]
    if offsets == "keep":
        assert is_copy(streams)


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_truncation_during_the_copy_moves_its_head(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, offsets: str
) -> None:
    really, seen = LiveSegment.blocks, []

    def blocks(self: LiveSegment, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:
        seen.append(self)
        if len(seen) == 3:
            with streams.store as store:
                store.truncate(store.describe(NAME).tail)
        return really(self, start, end, window)

    with monkeypatch.context() as patched:
        patched.setattr(LiveSegment, "blocks", blocks)
        report = streams.copy(offsets=offsets)
    assert report.truncated
    with streams.store as store:
        assert list(events_of(store, TARGET)) == []
    streams.add(b"after")
    if offsets == "keep":
        with streams.store as store:
            assert store.describe(TARGET).head.offsets == report_offsets(report.head)


def report_offsets(cut: object) -> object:
    return StreamCut.from_json(cut).offsets


def test_foreign_bytes_in_an_unfinished_copy_are_found(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Target, "finish", lambda _: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            streams.copy()
    streams.add(b"ours")
    with streams.store as store:
        segment, end = max(store.describe(TARGET).tail.offsets.items())
        append_events(store, TARGET, segment, [b"else"])
    with pytest.raises(Conflict, match=f"the target has other bytes than the source, from offset {end + 8} on"):
        streams.copy()


def test_read_back_finds_other_bytes(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    really = LocalStore.read

    def read(self: LocalStore, stream, *where):  # type: ignore[no-untyped-def]
        for block in really(self, stream, *where):
            yield memoryview(bytes(len(block))) if stream == TARGET else block

    monkeypatch.setattr(LocalStore, "read", read)
    with pytest.raises(Failed, match="the restored bytes differ"):
        streams.copy(read_back=True)


def test_wrong_targets_are_refused(streams: Streams, capfd: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: str) -> str:
        capfd.readouterr()
        code = main(["copy", *arguments, "--master", "inline"])
        error = capfd.readouterr().err
        assert len(error.splitlines()) == 1, error
        return f"{code} {error}"

    assert refused(streams.source, streams.source).startswith("2 streamvault: source and target are the same stream")
    assert refused(f"local://{streams.folder}/scope/none", streams.target).startswith("1 ")
    with streams.store as store:
        store.create_stream(TARGET, StreamConfiguration())
    assert refused(streams.source, streams.target).startswith("4 streamvault: the stream exists")
    assert refused(streams.source, streams.target, "--dry-run").startswith("4 ")


def test_dry_run_copies_nothing(streams: Streams) -> None:
    report = streams.copy(dry_run=True, offsets="shift")
    assert report.dry_run
    assert report.bytes > 0
    with streams.store as store:
        assert sorted(store.list_streams(NAME.scope, own=True)) == [NAME]


def test_copy_of_a_recreated_source_is_another_copy(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Target, "finish", lambda _: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            streams.copy()
    with streams.store as store:
        store.delete(NAME)
        make_stream(store, NAME, events=20)
    with pytest.raises(Conflict, match="the unfinished stream of another import, copy or replication"):
        streams.copy()


def test_copy_of_a_copy_names_only_its_own_source(streams: Streams) -> None:
    streams.copy()
    second = f"local://{streams.folder}/scope/second"
    copy_stream(streams.target, second, master="inline")
    with streams.store as store:
        tags = store.describe(replace(NAME, stream="second")).configuration.tags
        assert [tag for tag in tags if tag.startswith("streamvault-")] == [f"streamvault-copy-of:{TARGET}"]


def test_scaled_source_keeps_ranges(streams: Streams) -> None:
    with streams.store as store:
        described = store.describe(NAME)
        segment, held = next(iter(described.epochs[-1].segments.items()))
        middle = (held.low + held.high) / 2
        store.scale(NAME, [segment], [KeyRange(held.low, middle), KeyRange(middle, held.high)])
    streams.copy()
    assert is_copy(streams)


@pytest.mark.parametrize("sealed", [False, True])
def test_copy_killed_at_its_end_is_finished(streams: Streams, monkeypatch: pytest.MonkeyPatch, *, sealed: bool) -> None:
    """The tag of the unfinished copy is gone already, and the lease is not."""
    if sealed:
        with streams.store as store:
            store.seal(NAME)

    really = Target.finish

    def finish(target: Target) -> None:
        really(target)
        raise Killed

    def seal(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        if sealed:
            patched.setattr(LocalStore, "seal", seal)
        patched.setattr(Target, "finish", finish)
        with pytest.raises(Killed):
            streams.copy()
    monkeypatch.setattr("streamstore.lease.PATIENCE_SECONDS", 0.3)
    if not sealed:
        streams.add(b"more")
        with streams.store as store:
            described = store.describe(NAME)
            last = max(described.tail.offsets)
            store.scale(NAME, [last], [described.ranges()[last]])
    report = streams.copy()
    assert report.unchanged == (not sealed)
    with streams.store as store:
        assert store.describe(TARGET).sealed == sealed
        assert sorted(store.list_streams(NAME.scope, own=True)) == [TARGET, NAME]
    assert streams.copy().unchanged


def kill_at(patched: pytest.MonkeyPatch, method: str, *, after: bool = False) -> None:
    """Kill the run where it first calls a method of the store for the target."""
    really = getattr(LocalStore, method)

    def call(self: LocalStore, what: Any, *arguments: Any, **options: Any) -> Any:
        if TARGET not in (what, getattr(what, "stream", None)):
            return really(self, what, *arguments, **options)
        if after:
            really(self, what, *arguments, **options)
        raise Killed

    patched.setattr(LocalStore, method, call)


def copy_killed(streams: Streams, monkeypatch: pytest.MonkeyPatch, method: str, **options: Any) -> None:
    """Run a copy that is killed, and let the next run find it dead at once."""
    after = options.pop("after", False)
    with monkeypatch.context() as patched:
        kill_at(patched, method, after=after)
        with pytest.raises(Killed):
            streams.copy(**options)
    monkeypatch.setattr("streamstore.lease.PATIENCE_SECONDS", 0.3)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("numbers", ["keep", "map"])
@pytest.mark.parametrize("same_shape", [False, True])
def test_stream_created_after_a_killed_copy_was_deleted_is_left_alone(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, numbers: str, *, sealed: bool, same_shape: bool
) -> None:
    with streams.store as store:
        if same_shape:
            store.delete(NAME)
            store.create_stream(NAME, StreamConfiguration())
        if sealed:
            store.seal(NAME)
    copy_killed(streams, monkeypatch, "update_stream", numbers=numbers)
    with streams.store as store:
        store.delete(TARGET)
        store.create_stream(TARGET, StreamConfiguration(tags=("mine",)))
        append_events(store, TARGET, max(store.describe(TARGET).tail.offsets), [b"the user's"])
        before = shape_of(store, TARGET)
    for options in ({}, {"read_back": True}):
        with pytest.raises(TargetTaken):
            streams.copy(numbers=numbers, **options)
    with streams.store as store:
        assert shape_of(store, TARGET) == before
