"""Copies of streams of the embedded store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from streamvault import copy_stream, export_stream, import_stream
from streamvault.cli import main
from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.importer.lease import TargetBusy
from streamvault.importer.target import Target, TargetTaken
from streamvault.streamstore.arithmetic.byte_source import LiveSegment
from streamvault.streamstore.errors import InvalidCut, StreamExists
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.appender import LocalAppender
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.own import TARGET_LEDGER, stream_beside
from streamvault.streamstore.services.ledger import LedgerNameTaken
from tests.killed import Killed
from tests.streams import append_events, boundary, digest_of, events_of, make_stream, shape_of
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
    with pytest.raises(Conflict, match="the source was deleted and created again since this copy was begun"):
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
    monkeypatch.setattr("streamvault.streamstore.services.lease.PATIENCE_SECONDS", 0.3)
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
    monkeypatch.setattr("streamvault.streamstore.services.lease.PATIENCE_SECONDS", 0.3)


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


def cut_after(streams: Streams, share: float) -> dict[str, int]:
    """A cut between two events of each open segment."""
    with streams.store as store:
        tail = store.describe(NAME).tail.offsets
        return StreamCut(NAME, {segment: boundary(store, NAME, segment, share) for segment in tail}).to_json()


OPTIONS: list[dict[str, Any]] = [{}, {"offsets": "shift"}, {"numbers": "map"}, {"from_cut": 0.3}, {"to_cut": 0.7}]


def given(streams: Streams, options: dict[str, Any]) -> dict[str, Any]:
    return {key: cut_after(streams, value) if isinstance(value, float) else value for key, value in options.items()}


@pytest.mark.parametrize("first", OPTIONS, ids=str)
def test_copy_with_other_options_is_not_taken_for_finished(streams: Streams, first: dict[str, Any]) -> None:
    done = given(streams, first)
    streams.copy(**done)
    with streams.store as store:
        tags = store.describe(TARGET).configuration.tags
    (tag,) = [tag for tag in tags if tag.startswith("streamvault-copy-of:")]
    assert re.fullmatch(re.escape(TAG) + ("#[0-9a-f]{8}" if first else ""), tag)
    for options in OPTIONS:
        again = given(streams, options)
        if options == first:
            assert streams.copy(**again).unchanged
        else:
            with pytest.raises(TargetTaken, match=f"is a copy of {NAME} with other cuts or options"):
                streams.copy(**again)
    other = replace(NAME, stream="other")
    with streams.store as store:
        make_stream(store, other, events=10)
    with pytest.raises(TargetTaken, match=f"is a copy of {NAME}: .*scope/copy"):
        copy_stream(f"local://{streams.folder}/{other}", streams.target, master="inline")


def test_long_name_has_a_tag(tmp_path: Path) -> None:
    streams = Streams(tmp_path / "streams")
    long = StreamName("s" * 200, "t" * 200)
    with streams.store as store:
        make_stream(store, long, events=10)
    for numbers in ("keep", "map"):
        target = f"local://{streams.folder}/scope/{numbers}"
        for unchanged in (False, True):
            report = copy_stream(f"local://{streams.folder}/{long}", target, numbers=numbers, master="inline")  # type: ignore[arg-type]
            assert report.unchanged == unchanged


def test_finished_copy_of_a_recreated_source_is_refused(streams: Streams) -> None:
    streams.copy()
    with streams.store as store:
        store.delete(NAME)
        make_stream(store, NAME, events=300)
    with pytest.raises(TargetTaken, match="the source was deleted and created again since it was copied"):
        streams.copy()


def flip(streams: Streams, name: str, segment: object, offset: int) -> None:
    """Change one byte of a segment."""
    (file,) = Path(streams.folder, "scope", name).glob(f"{segment}*.data")
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def test_other_bytes_in_a_finished_copy_are_found(streams: Streams) -> None:
    streams.copy()
    with streams.store as store:
        segment, end = max(store.describe(TARGET).tail.offsets.items())
    flip(streams, "copy", segment, end - 1)
    with pytest.raises(
        TargetTaken, match=f"the copy was written to since.*{segment} has other bytes .* offset {end - 1}"
    ):
        streams.copy()


def test_finished_copy_is_read_back(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    first = streams.copy()
    assert not streams.copy().read_back
    again = streams.copy(read_back=True)
    assert (again.unchanged, again.read_back, again.warnings) == (True, True, ())
    assert (again.bytes, again.head, again.tail) == (first.bytes, first.head, first.tail)
    streams.add(b"more")
    assert streams.copy(read_back=True).read_back
    monkeypatch.setattr("streamvault.mirrors.copied.COMPARED_BYTES", 1)
    with streams.store as store:
        segment, end = max(store.describe(TARGET).tail.offsets.items())
    flip(streams, "copy", segment, end - 5)
    assert streams.copy().unchanged
    with pytest.raises(Failed, match="the restored bytes differ"):
        streams.copy(read_back=True)
    with streams.store as store:
        store.truncate(store.describe(NAME).tail)
    gone = streams.copy(read_back=True)
    assert not gone.read_back
    assert gone.warnings == (f"{first.bytes} bytes of the copy were not compared, as the source was truncated since",)


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_source_truncated_beyond_the_copy_is_behind(streams: Streams, offsets: str) -> None:
    first = streams.copy(offsets=offsets)
    streams.add(b"gone")
    with streams.store as store:
        store.truncate(store.describe(NAME).tail)
    streams.add(b"left")
    again = streams.copy(offsets=offsets, filler_limit=0)
    assert (again.unchanged, again.bytes) == (True, first.bytes)
    if offsets == "keep":
        assert (again.behind_bytes, again.tail, again.head) == (12, first.tail, first.head)


@pytest.mark.parametrize("sealed", [False, True])
def test_copy_that_was_written_to_is_refused(streams: Streams, *, sealed: bool) -> None:
    streams.copy()
    with streams.store as store:
        segment, end = max(store.describe(TARGET).tail.offsets.items())
        append_events(store, TARGET, segment, [b"the user's"])
        if sealed:
            store.seal(NAME)
    for options in ({}, {"dry_run": True}):
        with pytest.raises(
            TargetTaken, match=f"the copy was written to since: .*scope/copy: {segment} has {end + 18} bytes"
        ):
            streams.copy(**options)
    if sealed:
        return
    streams.add(b"x" * 50)
    with pytest.raises(TargetTaken, match=f"{segment} has other bytes than the source from offset {end + 7} on"):
        streams.copy()


def test_copy_that_was_scaled_is_refused(streams: Streams) -> None:
    streams.copy()
    with streams.store as store:
        described = store.describe(TARGET)
        last = max(described.tail.offsets)
        store.scale(TARGET, [last], [described.ranges()[last]])
    with pytest.raises(TargetTaken, match=r"the copy was written to since: .*scope/copy: 5 epochs instead of 4"):
        streams.copy()


def test_report_of_a_finished_copy_is_about_the_copy(streams: Streams) -> None:
    with streams.store as store:
        store.create_stream(TARGET, StreamConfiguration())
        store.delete(TARGET)
    first = streams.copy(numbers="map")
    assert first.renumbered
    streams.add(b"more")
    with streams.store as store:
        described = store.describe(NAME)
        last = max(described.tail.offsets)
        store.scale(NAME, [last], [described.ranges()[last]])
    again = streams.copy(numbers="map")
    for field in ("bytes", "head", "tail", "renumbered", "segments", "epochs"):
        assert getattr(again, field) == getattr(first, field), field
    assert again.behind_bytes == 12


@pytest.mark.parametrize("change", ["", "grow", "scale"])
def test_copy_killed_at_its_end_is_finished_when_its_source_is_sealed(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    copy_killed(streams, monkeypatch, "update_stream", after=True)
    with streams.store as store:
        if change == "scale":
            described = store.describe(NAME)
            last = max(described.tail.offsets)
            store.scale(NAME, [last], [described.ranges()[last]])
    if change == "grow":
        streams.add(b"more")
    with streams.store as store:
        store.seal(NAME)
    before = streams.copy(dry_run=True)
    report = streams.copy()
    assert before.unchanged == report.unchanged == bool(change)
    assert report.behind_bytes == (12 if change == "grow" else 0)
    with streams.store as store:
        assert store.describe(TARGET).sealed == (not change)
        assert sorted(store.list_streams(NAME.scope, own=True)) == [TARGET, NAME]


def test_sealed_source_does_not_seal_a_copy_that_was_finished(streams: Streams) -> None:
    streams.copy()
    with streams.store as store:
        store.seal(NAME)
    assert streams.copy().unchanged
    with streams.store as store:
        assert not store.describe(TARGET).sealed


def test_another_commands_lease_stays(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import of an archive of a copy gives its target the copy's tag."""
    second = replace(NAME, stream="second")
    streams.copy()
    with streams.store as store:
        store.seal(TARGET)
    archive = f"file://{streams.folder}/vault"
    export_stream(streams.target, archive, master="inline")
    streams_of = f"local://{streams.folder}/{second}"

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "seal", killed)
        with pytest.raises(Killed):
            import_stream(f"{archive}/{TARGET}", streams_of, master="inline")
    monkeypatch.setattr("streamvault.streamstore.services.lease.PATIENCE_SECONDS", 0.3)
    for dry_run in (True, False):
        with pytest.raises(TargetTaken, match="the unfinished target of another import"):
            copy_stream(streams.source, streams_of, master="inline", dry_run=dry_run)
    assert import_stream(f"{archive}/{TARGET}", streams_of, master="inline").resumed
    with streams.store as store:
        assert store.describe(second).sealed


def test_dry_run_leaves_the_lease_of_a_killed_copy(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_killed(streams, monkeypatch, "update_stream", after=True)
    with streams.store as store:
        before = list(store.list_streams(NAME.scope, own=True))
    assert streams.copy(dry_run=True).unchanged
    with streams.store as store:
        assert list(store.list_streams(NAME.scope, own=True)) == before
    assert streams.copy().unchanged
    with streams.store as store:
        assert sorted(store.list_streams(NAME.scope, own=True)) == [TARGET, NAME]


def own_streams(streams: Streams) -> list[StreamName]:
    with streams.store as store:
        return [name for name in store.list_streams(NAME.scope, own=True) if str(name.stream).startswith("streamvault")]


def stop_fill(patched: pytest.MonkeyPatch, after: int) -> None:
    """Stop the run when it has appended some bytes."""
    really = LocalAppender.append

    def append(self: LocalAppender, block: bytes) -> None:
        really(self, block)
        if len(block) > after:
            self.flush()
            raise Failed("stopped for a test")

    patched.setattr(LocalAppender, "append", append)


@pytest.mark.parametrize("killed", ["create_stream", "scale", "truncate", "update_stream", "seal"])
@pytest.mark.parametrize("after", [False, True])
def test_shifted_copy_leaves_no_ledger(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, killed: str, *, after: bool
) -> None:
    with streams.store as store:
        expected = [payload for _, payload in events_of(store, NAME)]
        store.seal(NAME)
    copy_killed(streams, monkeypatch, killed, after=after, offsets="shift")
    assert not streams.copy(offsets="shift").dry_run
    assert own_streams(streams) == []
    with streams.store as store:
        assert [payload for _, payload in events_of(store, TARGET)] == expected
        assert store.describe(TARGET).sealed


@pytest.mark.parametrize("killed", [0, 1])
def test_copy_killed_while_it_deletes_its_ledger_leaves_none(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, killed: int
) -> None:
    really = LocalStore.delete
    seen: list[StreamName] = []

    def delete(self: LocalStore, name: StreamName, **options: Any) -> None:
        seen.append(name)
        if len(seen) == killed + 1:
            raise Killed
        really(self, name, **options)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "delete", delete)
        with pytest.raises(Killed):
            streams.copy(offsets="shift")
    monkeypatch.setattr("streamvault.streamstore.services.lease.PATIENCE_SECONDS", 0.3)
    assert own_streams(streams)
    assert streams.copy(offsets="shift").unchanged
    assert own_streams(streams) == []


def test_refused_copy_leaves_no_ledger(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Usage):
        streams.copy(offsets="shift", from_cut={f"{NAME}/0.#epoch.0": 0})
    with streams.store as store:
        store.create_stream(TARGET, StreamConfiguration())
    with pytest.raises(TargetTaken):
        streams.copy(offsets="shift")
    assert own_streams(streams) == []
    with streams.store as store:
        store.delete(TARGET)
    really = LocalStore.create_stream

    def create(self: LocalStore, name: StreamName, configuration: StreamConfiguration) -> None:
        really(self, name, StreamConfiguration() if name == TARGET else configuration)
        if name == TARGET:
            raise StreamExists("by a user")

    monkeypatch.setattr(LocalStore, "create_stream", create)
    with pytest.raises(TargetTaken):
        streams.copy(offsets="shift")
    assert own_streams(streams) == []


def test_another_copy_leaves_the_ledger_alone(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the resumed copy would take other bytes of the source for those that it has."""
    other = replace(NAME, stream="other")
    with streams.store as store:
        make_stream(store, other, events=20)
        expected = [payload for _, payload in events_of(store, NAME)]
    copy_killed(streams, monkeypatch, "scale", offsets="shift")
    for dry_run in (False, True):
        with pytest.raises(TargetTaken):
            copy_stream(
                f"local://{streams.folder}/{other}", streams.target, offsets="shift", master="inline", dry_run=dry_run
            )
    with streams.store as store:
        described = store.describe(NAME)
        head = dict(described.head.offsets)
        for segment in (max(head), min(head)):
            after = [p.offset for p, _ in events_of(store, NAME) if p.segment == segment and p.offset > head[segment]]
            head[segment] = min(after, default=head[segment])
        store.truncate(StreamCut(NAME, head))
        expected = [payload for _, payload in events_of(store, NAME)]
    report = streams.copy(offsets="shift")
    assert report.resumed
    with streams.store as store:
        assert [payload for _, payload in events_of(store, TARGET)] == expected
    assert own_streams(streams) == []


def test_ledger_of_a_deleted_target_does_not_shift_a_new_copy(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offsets in ("shift", "keep"):
        copy_killed(streams, monkeypatch, "scale", offsets="shift", numbers="map")
        with streams.store as store:
            store.delete(TARGET)
            cut = store.describe(NAME).tail
            store.truncate(cut)
        streams.add(b"new")
        report = streams.copy(offsets=offsets, numbers="map")
        assert (report.resumed, own_streams(streams)) == (False, [])
        with streams.store as store:
            assert [payload for _, payload in events_of(store, TARGET)] == [b"new"]
            if offsets == "shift":
                assert report.shifts == {s.in_stream(NAME): offset for s, offset in cut.offsets.items() if offset}
            store.delete(TARGET)
    with pytest.raises(Conflict, match="the name was used before"):
        streams.copy(offsets="shift")
    assert own_streams(streams) == []


def test_unfinished_copy_without_its_ledger_is_refused(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_killed(streams, monkeypatch, "scale", offsets="shift")
    with streams.store as store:
        store.delete(next(name for name in own_streams(streams) if "-copy-" in str(name)))
    with pytest.raises(TargetTaken, match="the record of where the unfinished copy began is gone"):
        streams.copy(offsets="shift")


def zeros(streams: Streams, *payloads: bytes) -> SegmentId:
    """A source of one segment."""
    with streams.store as store:
        store.delete(NAME)
        store.create_stream(NAME, StreamConfiguration())
        (segment,) = store.describe(NAME).tail.offsets
        append_events(store, NAME, segment, payloads)
        return segment


def test_cut_inside_an_event_of_zeros_is_refused(streams: Streams) -> None:
    segment = zeros(streams, b"a", bytes(64), b"b", bytes(20 * 1024 * 1024), b"c")
    large = 9 + 72 + 9 + 8 + 20 * 1024 * 1024
    for offset in (1, 8, 33, 9 + 8, 90 + 8, 90 + 9 * 1024 * 1024, large + 3):
        for option in ("from_cut", "to_cut"):
            with pytest.raises(InvalidCut, match=f"lies inside an event: .*: {offset}"):
                streams.copy(**{option: {segment.in_stream(NAME): offset}})
    for number, (low, high) in enumerate([(0, 9), (9, 81), (81, large), (90, large + 9)]):
        report = copy_stream(
            streams.source,
            f"local://{streams.folder}/scope/part{number}",
            from_cut={segment.in_stream(NAME): low},
            to_cut={segment.in_stream(NAME): high},
            master="inline",
        )
        assert report.bytes == high - low
    with streams.store as store:
        store.truncate(StreamCut(NAME, {segment: 9}))
    with pytest.raises(InvalidCut):
        streams.copy(to_cut={segment.in_stream(NAME): 33})
    assert streams.copy(to_cut={segment.in_stream(NAME): 81}).bytes == 72


def test_bytes_that_are_no_events_can_be_cut_anywhere(streams: Streams) -> None:
    segment = zeros(streams)
    with streams.store as store, store.appender(NAME, segment) as appender:
        appender.append(b"plain text, no events")
    report = streams.copy(from_cut={segment.in_stream(NAME): 3}, to_cut={segment.in_stream(NAME): 11})
    assert report.bytes == 8


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_copy_from_a_cut_begins_at_the_head_where_that_is_later(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, offsets: str
) -> None:
    with streams.store as store:
        store.delete(NAME)
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
        one, two = sorted(store.describe(NAME).tail.offsets)
        for segment in (one, two):
            append_events(store, NAME, segment, [b"%d %04d" % (segment.number, i) for i in range(10)])
    cut = StreamCut(NAME, {one: 5 * 14, two: 0}).to_json()
    assert streams.copy(from_cut=cut, dry_run=True).warnings == ()
    copy_killed(streams, monkeypatch, "update_stream", from_cut=cut, offsets=offsets)
    with streams.store as store:
        store.truncate(StreamCut(NAME, {one: 14, two: 14}))
    report = streams.copy(from_cut=cut, offsets=offsets)
    assert report.truncated
    assert report.warnings == ("the source was truncated beyond --from; what is missing there is not copied",)
    assert report.head == StreamCut(NAME, {one: 5 * 14, two: 14}).to_json()
    other = copy_stream(
        streams.source,
        f"local://{streams.folder}/scope/other",
        from_cut=cut,
        offsets=offsets,
        master="inline",  # type: ignore[arg-type]
    )
    assert other.shifts == ({one.in_stream(NAME): 5 * 14, two.in_stream(NAME): 14} if offsets == "shift" else {})
    with streams.store as store:
        expected = [payload for p, payload in events_of(store, NAME) if p.segment == two or p.offset >= 5 * 14]
        for name in (TARGET, replace(NAME, stream="other")):
            assert [payload for _, payload in events_of(store, name)] == expected
        if offsets == "shift":
            assert set(store.describe(replace(NAME, stream="other")).head.offsets.values()) == {0}
    assert streams.copy(from_cut=cut, offsets=offsets).unchanged
    assert own_streams(streams) == []


def test_torn_event_is_filled_up(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event above 8 MiB is appended in pieces; the source is truncated right behind it."""
    segment = zeros(streams, bytes(9 * 1024 * 1024), b"rest" * 100)
    large = 9 * 1024 * 1024 + 8
    with monkeypatch.context() as patched:
        stop_fill(patched, 2000)
        with pytest.raises(Failed):
            streams.copy()
    monkeypatch.setattr("streamvault.streamstore.services.lease.PATIENCE_SECONDS", 0.3)
    with streams.store as store:
        end = store.describe(TARGET).tail.offsets
    ((target, held),) = end.items()
    assert 0 < held < large
    with streams.store as store, store.appender(TARGET, target) as appender:
        while appender.offset < large - 3:
            appender.append(bytes(min(4 * 1024 * 1024, large - 3 - appender.offset)))
        appender.flush()
    with streams.store as store:
        store.truncate(StreamCut(NAME, {segment: large}))
    report = streams.copy(numbers="keep", filler_limit=3)
    assert report.resumed
    with streams.store as store:
        assert next(events_of(store, TARGET))[1] == b"rest" * 100


def test_copies_append_whole_events(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros(streams, *[b"%04d" % i * 25 for i in range(30000)])
    with monkeypatch.context() as patched:
        stop_fill(patched, 100_000)
        with pytest.raises(Failed):
            streams.copy()
    with streams.store as store:
        (end,) = store.describe(TARGET).tail.offsets.values()
    assert end > 0
    assert end % 108 == 0


def test_users_stream_with_the_ledgers_name_matters_only_to_shifted_copies(streams: Streams) -> None:
    name = stream_beside(TARGET, TARGET_LEDGER)
    with streams.store as store:
        store.create_stream(name, StreamConfiguration(tags=("mine",)))
    with pytest.raises(LedgerNameTaken):
        streams.copy(offsets="shift")
    assert not streams.copy().unchanged
    assert streams.copy().unchanged
    with streams.store as store:
        assert store.describe(name).configuration.tags == ("mine",)


def test_target_deleted_while_it_is_looked_at_is_free(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    really = LocalStore.describe
    streams.copy(numbers="map")
    seen: list[StreamName] = []

    def describe(self: LocalStore, name: StreamName) -> Any:
        if name == TARGET and not seen:
            seen.append(name)
            self.delete(name)
        return really(self, name)

    monkeypatch.setattr(LocalStore, "describe", describe)
    assert not streams.copy(numbers="map").unchanged


def test_filler_that_an_unfinished_copy_has_does_not_count(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = zeros(streams, *[b"x" * 92] * 1000)
    with streams.store as store:
        store.truncate(StreamCut(NAME, {segment: 40_000}))
    with pytest.raises(Usage, match="needs 40000 bytes of filler"):
        streams.copy(filler_limit=39_999, numbers="map")
    with monkeypatch.context() as patched:
        kill_at(patched, "truncate_segment")
        with pytest.raises(Failed):
            streams.copy(numbers="map")
    report = streams.copy(filler_limit=0, numbers="map")
    assert (report.resumed, report.bytes) == (True, 60_000)


def test_second_copy_of_two_at_once_is_told_so(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []

    def meanwhile(method: str) -> None:
        really = getattr(LocalStore, method)

        def call(self: LocalStore, what: Any, *arguments: Any, **options: Any) -> Any:
            if TARGET in (what, getattr(what, "stream", None)) and not refused:
                refused.append("")
                monkeypatch.setattr(LocalStore, method, really)
                with pytest.raises(TargetBusy) as error:
                    streams.copy(offsets="shift", numbers="map")
                refused.append(str(error.value))
            return really(self, what, *arguments, **options)

        monkeypatch.setattr(LocalStore, method, call)

    for method in ("create_stream", "scale", "truncate", "update_stream"):
        refused.clear()
        meanwhile(method)
        streams.copy(offsets="shift", numbers="map")
        assert "another import, copy or replication is writing to this stream" in refused[1], method
        assert own_streams(streams) == []
        with streams.store as store:
            store.delete(TARGET)


def test_source_created_again_during_the_copy_is_said(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    really, seen, lock = LiveSegment.blocks, [], Lock()

    def blocks(self: LiveSegment, start: int, end: int, window: int) -> Iterator[bytes | memoryview]:
        with lock, streams.store as store:
            if not seen:
                seen.append(self)
                store.delete(NAME)
                make_stream(store, NAME, events=20)
        return really(self, start, end, window)

    monkeypatch.setattr(LiveSegment, "blocks", blocks)
    with pytest.raises(TargetTaken, match="the source was deleted and created again since this copy was begun"):
        copy_stream(streams.source, streams.target, master="inline")
