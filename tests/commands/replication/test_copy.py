"""Copies of streams of the embedded store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import copy_stream, export_stream, import_stream
from streamvault.common.errors import Conflict, Failed, Usage
from streamvault.importer.run import ImportRun
from streamvault.importer.target import Target, TargetTaken
from streamvault.replication.replica import Record
from streamvault.streamstore.errors import InvalidCut, OffsetConflict, StreamExists
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.ledger import LedgerNameTaken
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.store import LocalAppender
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.own import TARGET_LEDGER, is_own, stream_beside
from testkit.scenes import TARGET, Streams, at_block, killed_at, ledger_of
from testkit.small_archives import NAME
from testkit.streams import boundary, make_stream
from tests.told import Ran

TAG = f"streamvault-copy-of:{NAME}"
OTHER = replace(NAME, stream="other")


def is_copy(streams: Streams) -> bool:
    return streams.is_like_its_source(TAG)


def other(streams: Streams) -> Streams:
    """The same source, with another target."""
    return Streams(streams.folder, target_name=OTHER)


@pytest.mark.parametrize("read_back", [False, True])
@pytest.mark.parametrize("change", ["", "seal", "scale"])
def test_copy_equals_its_source(streams: Streams, change: str, *, read_back: bool) -> None:
    if change:
        getattr(streams, change)()
    report = streams.copy(read_back=read_back)
    assert is_copy(streams)
    assert (report.moved_bytes, report.unchanged, report.renumbered) == (report.bytes, False, {})
    assert report.tail == StreamCut(NAME, streams.tail()).to_json()
    assert streams.own() == []


def test_finished_copy_is_left_alone(streams: Streams, ran: Ran) -> None:
    streams.copy()
    again = streams.copy()
    assert (again.unchanged, again.behind_bytes, again.moved_bytes) == (True, 0, 0)
    streams.add_last(b"x" * 92)
    assert streams.copy().behind_bytes == 100
    streams.seal()
    shown = ran("copy", streams.source, streams.target).out
    assert "already copied" in shown
    assert "100 bytes have been written to the source since" in shown
    assert not streams.is_sealed()


def test_shifted_copy_that_equals_nothing_in_its_source_is_warned_of(streams: Streams) -> None:
    """A user has written to it; or, which looks the same, its source was truncated and written to since."""
    streams.remake()
    streams.add(b"an event before the head")
    streams.truncate()
    streams.add(*(b"%d of some events" % number for number in range(100)))
    streams.copy(offsets="shift")
    assert streams.copy(offsets="shift").warnings == ()
    streams.add_last(b"a user's", name=TARGET)
    [warning] = streams.copy(offsets="shift").warnings
    assert re.fullmatch(r"[0-9]+ bytes of the copy match nothing in the source: .*", warning)


@pytest.mark.parametrize("options", [{}, {"offsets": "shift"}, {"numbers": "map"}])
def test_part_between_two_cuts_is_copied(streams: Streams, options: dict[str, str]) -> None:
    events = streams.events()
    middle = {s.in_stream(NAME): min(p.offset for p, _ in events if p.segment == s) for s in streams.tail()}
    first = streams.copy(to_cut=middle, **options)
    rest = other(streams).copy(from_cut=middle, **options)
    assert sorted(streams.payloads(TARGET) + streams.payloads(OTHER)) == sorted(payload for _, payload in events)
    assert first.bytes + rest.bytes == sum(pointer.length for pointer, _ in events)
    if options.get("offsets") == "shift":
        assert set(streams.describe(OTHER).head.offsets.values()) == {0}


def test_cut_inside_an_event_is_refused(streams: Streams, ran: Ran) -> None:
    tail = streams.tail()
    cut = StreamCut(NAME, {**tail, max(tail): tail[max(tail)] - 3})
    for option in ("--from", "--to"):
        assert (
            "lies inside an event"
            in ran("copy", streams.source, streams.target, option, json.dumps(cut.to_json()), code=2).err
        )


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_killed_copy_is_resumed_up_to_the_tail_of_then(streams: Streams, offsets: str) -> None:
    with killed_at("scale"):
        streams.copy(offsets=offsets)
    streams.add(b"later")
    streams.scale(1)
    report = streams.copy(offsets=offsets)
    assert report.resumed
    assert 0 < report.moved_bytes < report.bytes
    assert streams.payloads(TARGET) == streams.payloads()
    assert streams.own() == []
    if offsets == "keep":
        assert is_copy(streams)


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_truncation_during_the_copy_moves_its_head(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, offsets: str
) -> None:
    at_block(monkeypatch, 3, streams.truncate)
    report = streams.copy(offsets=offsets)
    assert report.truncated
    assert streams.payloads(TARGET) == []
    if offsets == "keep":
        assert streams.describe(TARGET).head.offsets == StreamCut.from_json(report.head).offsets


@pytest.mark.parametrize("when", ["during the copy", "after a kill"])
@pytest.mark.usefixtures("impatient")
def test_source_created_again_is_said(streams: Streams, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    if when == "after a kill":
        with killed_at("update_stream"):
            streams.copy()
        streams.remake()
    else:
        at_block(monkeypatch, 1, streams.remake)
    with pytest.raises(TargetTaken, match="the source has been deleted and created again since this copy was started"):
        copy_stream(streams.source, streams.target, master="inline")


@pytest.mark.parametrize("options", [{}, {"offsets": "shift"}, {"numbers": "map"}])
@pytest.mark.usefixtures("impatient")
def test_source_of_a_rebuilt_cluster_is_refused_while_the_copys_open_segments_are_empty(
    streams: Streams, options: dict[str, Any]
) -> None:
    streams.rebuild(*[b"old"] * 20, after=[b"older"])
    with killed_at("scale", after=True):
        streams.copy(**options)
    streams.rebuild(*[b"new"] * 20, after=[b"newer"])
    with pytest.raises(Conflict, match="the source has been deleted and created again since this copy was started"):
        streams.copy(**options)
    assert streams.payloads(TARGET) == [b"old"] * 20


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_source_of_a_rebuilt_cluster_is_found_before_the_copy_is_finished(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, offsets: str
) -> None:
    streams.rebuild(*[b"old"] * 20, after=[b"older"])
    at_block(monkeypatch, 2, lambda: streams.rebuild(*[b"new"] * 20, after=[b"newer"]))
    for _ in range(2):  # to the second one, the target's last bytes are the source's
        with pytest.raises(
            TargetTaken, match="the source has been deleted and created again since this copy was started"
        ):
            copy_stream(streams.source, streams.target, master="inline", offsets=offsets)
    with streams.store as store:
        assert is_own(store.describe(TARGET).configuration)


@pytest.mark.parametrize("offsets", ["keep", "shift"])
@pytest.mark.parametrize("replaced", [False, True])
def test_source_that_is_gone_at_the_end_is_compared_with_what_was_copied(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, offsets: str, replaced: bool
) -> None:
    streams.rebuild(*[b"old"] * 20, after=[b"older"])
    if replaced:
        at_block(monkeypatch, 2, lambda: streams.rebuild(*[b"new"] * 20, after=[b"newer"]))
    really = ImportRun.fill

    def fill(run: ImportRun, *arguments: Any) -> None:
        really(run, *arguments)
        streams.delete(NAME)

    monkeypatch.setattr(ImportRun, "fill", fill)
    if not replaced:
        streams.copy(offsets=offsets)
        assert set(streams.payloads(TARGET)) == {b"old", b"older"}
        return
    with pytest.raises(TargetTaken, match="the source has been deleted and created again since this copy was started"):
        streams.copy(offsets=offsets)
    with streams.store as store:
        assert is_own(store.describe(TARGET).configuration)


@pytest.mark.usefixtures("impatient")
def test_source_whose_head_is_before_the_beginning_of_its_shifted_copy_is_another_one(streams: Streams) -> None:
    streams.rebuild(*[b"old"] * 20, after=[b"older"])
    streams.truncate()
    streams.add(b"oldest")
    with killed_at("update_stream"):
        streams.copy(offsets="shift")
    streams.rebuild(*[b"old"] * 20, after=[b"older", b"oldest"])  # the same bytes, and all are there
    with pytest.raises(TargetTaken, match="the source has been deleted and created again since this copy was started"):
        streams.copy(offsets="shift")


def test_copy_with_another_policy_is_not_cut_short(streams: Streams) -> None:
    streams.rebuild(b"event")
    report = streams.copy()
    assert [report.truncated, len(report.warnings)] == [False, 1]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("when", ["before the look", "after it"])
def test_foreign_bytes_in_an_unfinished_copy_are_found(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    with killed_at("truncate"):
        streams.copy()
    streams.add_last(b"ours")
    _, end = streams.add_last(b"else", name=TARGET)
    if when == "after it":
        monkeypatch.setattr(ImportRun, "check_unfinished", lambda *_: None)
    with pytest.raises(Conflict, match=f"the target differs from the source, from offset {end + 8} on"):
        streams.copy()


def test_read_back_finds_other_bytes(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    really = LocalStore.read

    def read(self: LocalStore, stream: StreamName, *where: Any) -> Iterator[memoryview]:
        for block in really(self, stream, *where):
            yield memoryview(bytes(len(block))) if stream == TARGET else block

    monkeypatch.setattr(LocalStore, "read", read)
    with pytest.raises(Failed, match="the restored bytes differ"):
        streams.copy(read_back=True)


def test_dry_run_copies_nothing(streams: Streams) -> None:
    report = streams.copy(dry_run=True, offsets="shift")
    assert report.dry_run
    assert report.bytes > 0
    assert streams.listed(own=True) == [NAME]


def test_copy_of_a_copy_names_only_its_own_source(streams: Streams) -> None:
    streams.copy()
    Streams(streams.folder, TARGET, OTHER).copy()
    tags = streams.configuration(OTHER).tags
    assert [tag for tag in tags if tag.startswith("streamvault-")] == [f"streamvault-copy-of:{TARGET}"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("then", ["", "grow", "scale", "seal", "grow and seal", "scale and seal"])
def test_copy_killed_at_its_end_is_finished(streams: Streams, then: str) -> None:
    """The tag of the unfinished copy is gone already, and the lease is not."""
    with killed_at("update_stream", after=True):
        streams.copy()
    if "grow" in then:
        streams.add_last(b"more")
    if "scale" in then:
        streams.scale(1)
    if "seal" in then:
        streams.seal()
    left = streams.own()
    before = streams.copy(dry_run=True)
    assert streams.own() == left
    report = streams.copy()
    assert before.unchanged == report.unchanged == (then != "seal")
    assert report.behind_bytes == (12 if "grow" in then else 0)
    assert streams.is_sealed() == (then == "seal")
    assert streams.own() == []
    assert streams.copy().unchanged


@pytest.mark.usefixtures("impatient")
def test_copy_of_a_sealed_stream_killed_before_its_seal_is_sealed(streams: Streams) -> None:
    streams.seal()
    with killed_at("seal"):
        streams.copy()
    assert not streams.copy().unchanged
    assert streams.is_sealed()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("numbers", ["keep", "map"])
@pytest.mark.parametrize("same_shape", [False, True])
def test_stream_created_after_a_killed_copy_was_deleted_is_left_alone(
    streams: Streams, numbers: str, *, sealed: bool, same_shape: bool
) -> None:
    if same_shape:
        streams.make_plain()
    if sealed:
        streams.seal()
    with killed_at("update_stream"):
        streams.copy(numbers=numbers)
    streams.delete(TARGET)
    streams.create_stream(TARGET, StreamConfiguration(tags=("mine",)))
    streams.add_last(b"the user's", name=TARGET)
    before = streams.shape(TARGET)
    for options in ({}, {"read_back": True}):
        with pytest.raises(TargetTaken):
            streams.copy(numbers=numbers, **options)
    assert streams.shape(TARGET) == before


def given(streams: Streams, options: dict[str, Any]) -> dict[str, Any]:
    """Options in which a number is a cut after this share of each open segment."""

    def cut_after(share: float) -> dict[str, int]:
        with streams.store as store:
            return {segment.in_stream(NAME): boundary(store, NAME, segment, share) for segment in streams.tail()}

    return {key: cut_after(value) if isinstance(value, float) else value for key, value in options.items()}


OPTIONS: list[dict[str, Any]] = [{}, {"offsets": "shift"}, {"numbers": "map"}, {"from_cut": 0.3}, {"to_cut": 0.7}]


@pytest.mark.parametrize("first", OPTIONS, ids=str)
def test_copy_with_other_options_is_not_taken_for_finished(streams: Streams, first: dict[str, Any]) -> None:
    streams.copy(**given(streams, first))
    (tag,) = [tag for tag in streams.configuration(TARGET).tags if tag.startswith("streamvault-copy-of:")]
    assert re.fullmatch(re.escape(TAG) + ("#[0-9a-f]{8}" if first else ""), tag)
    for options in OPTIONS:
        again = given(streams, options)
        if options == first:
            assert streams.copy(**again).unchanged
        else:
            with pytest.raises(TargetTaken, match=f"is a copy of {NAME} with other cuts or options"):
                streams.copy(**again)
    streams.remake(OTHER)
    with pytest.raises(TargetTaken, match=f"is a copy of {NAME}: .*{TARGET}"):
        Streams(streams.folder, OTHER).copy()


def test_long_name_has_a_tag(tmp_path: Path) -> None:
    for numbers in ("keep", "map"):
        streams = Streams(tmp_path, StreamName("s" * 200, "t" * 200), StreamName("scope", numbers))
        with streams.store as store:
            if numbers == "keep":
                make_stream(store, streams.source_name, events=10)
        assert [streams.copy(numbers=numbers).unchanged for _ in range(2)] == [False, True]


def flip_before_end(streams: Streams, distance: int) -> tuple[SegmentId, int]:
    """Change a byte of the copy's newest segment; return the segment, and the byte's offset."""
    segment, end = max(streams.tail(TARGET).items())
    (file,) = Path(streams.folder, str(TARGET)).glob(f"{segment}*.data")
    data = bytearray(file.read_bytes())
    data[end - distance] ^= 1
    file.write_bytes(data)
    return segment, end - distance


def test_other_bytes_in_a_finished_copy_are_found(streams: Streams) -> None:
    streams.copy()
    segment, offset = flip_before_end(streams, 1)
    said = f"the copy has been written to since.*{segment} differs .* offset {offset}"
    with pytest.raises(TargetTaken, match=said):
        streams.copy()


def test_finished_copy_is_read_back(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    first = streams.copy()
    assert not streams.copy().read_back
    again = streams.copy(read_back=True)
    assert (again.unchanged, again.read_back, again.warnings) == (True, True, ())
    assert (again.bytes, again.head, again.tail) == (first.bytes, first.head, first.tail)
    streams.add_last(b"more")
    assert streams.copy(read_back=True).read_back
    monkeypatch.setattr("streamvault.replication.copy.COMPARED_BYTES", 1)
    flip_before_end(streams, 5)
    assert streams.copy().unchanged
    with pytest.raises(Failed, match="the restored bytes differ"):
        streams.copy(read_back=True)
    streams.truncate()
    gone = streams.copy(read_back=True)
    assert not gone.read_back
    assert gone.warnings == (
        f"{first.bytes} bytes of the copy were not compared, as the source has been truncated since",
    )


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_source_truncated_beyond_the_copy_is_behind(streams: Streams, offsets: str) -> None:
    first = streams.copy(offsets=offsets)
    streams.add_last(b"gone")
    streams.truncate()
    streams.add_last(b"left")
    again = streams.copy(offsets=offsets, filler_limit=0)
    assert (again.unchanged, again.bytes) == (True, first.bytes)
    if offsets == "keep":
        assert (again.behind_bytes, again.tail, again.head) == (12, first.tail, first.head)


@pytest.mark.parametrize("sealed", [False, True])
def test_copy_that_was_written_to_is_refused(streams: Streams, *, sealed: bool) -> None:
    streams.copy()
    segment, end = streams.add_last(b"the user's", name=TARGET)
    if sealed:
        streams.seal()
    said = f"the copy has been written to since: .*{TARGET}: {segment} has {end + 18} bytes"
    for options in ({}, {"dry_run": True}):
        with pytest.raises(TargetTaken, match=said):
            streams.copy(**options)
    if not sealed:
        streams.add_last(b"x" * 50)
        with pytest.raises(TargetTaken, match=f"{segment} differs from the source from offset {end + 7} on"):
            streams.copy()


def test_copy_that_was_scaled_is_refused(streams: Streams) -> None:
    streams.copy()
    streams.scale(1, TARGET)
    with pytest.raises(TargetTaken, match=rf"the copy has been written to since: .*{TARGET}: 5 epochs instead of 4"):
        streams.copy()


def test_report_of_a_finished_copy_is_about_the_copy(streams: Streams) -> None:
    streams.create_stream(TARGET, StreamConfiguration())
    streams.delete(TARGET)
    first = streams.copy(numbers="map")
    assert first.renumbered
    streams.add_last(b"more")
    streams.scale(1)
    again = streams.copy(numbers="map")
    for field in ("bytes", "head", "tail", "renumbered", "segments", "epochs"):
        assert getattr(again, field) == getattr(first, field), field
    assert again.behind_bytes == 12


@pytest.mark.usefixtures("impatient")
def test_another_commands_lease_stays(streams: Streams) -> None:
    """An import of an archive of a copy gives its target the copy's tag."""
    streams.copy()
    streams.seal(TARGET)
    archive, restored = f"file://{streams.folder}/vault", other(streams)
    export_stream(streams.target, archive, master="inline")
    with killed_at("seal", OTHER):
        import_stream(f"{archive}/{TARGET}", restored.target, master="inline")
    for dry_run in (True, False):
        with pytest.raises(TargetTaken, match="the unfinished target of another import"):
            restored.copy(dry_run=dry_run)
    assert import_stream(f"{archive}/{TARGET}", restored.target, master="inline").resumed
    assert streams.is_sealed(OTHER)


def stop_fill(patched: pytest.MonkeyPatch, after: int) -> None:
    """Stop the run when it has appended some bytes."""
    really = LocalAppender.append

    def append(self: LocalAppender, block: bytes) -> None:
        really(self, block)
        if len(block) > after:
            self.flush()
            raise Failed("stopped for a test")

    patched.setattr(LocalAppender, "append", append)


def test_refused_copy_leaves_no_ledger(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Usage):
        streams.copy(offsets="shift", from_cut={f"{NAME}/0.#epoch.0": 0})
    streams.create_stream(TARGET, StreamConfiguration())
    with pytest.raises(TargetTaken):
        streams.copy(offsets="shift")
    assert streams.own() == []
    streams.delete(TARGET)
    really = LocalStore.create_stream

    def create(self: LocalStore, name: StreamName, configuration: StreamConfiguration) -> None:
        really(self, name, StreamConfiguration() if name == TARGET else configuration)
        if name == TARGET:
            raise StreamExists("by a user")

    monkeypatch.setattr(LocalStore, "create_stream", create)
    with pytest.raises(TargetTaken):
        streams.copy(offsets="shift")
    assert streams.own() == []


@pytest.mark.usefixtures("impatient")
def test_another_copy_leaves_the_ledger_alone(streams: Streams) -> None:
    """Otherwise the resumed copy would take other bytes of the source for those that it has."""
    streams.remake(OTHER)
    with killed_at("scale"):
        streams.copy(offsets="shift")
    for dry_run in (False, True):
        with pytest.raises(TargetTaken):
            Streams(streams.folder, OTHER).copy(offsets="shift", dry_run=dry_run)
    head = dict(streams.described.head.offsets)
    for segment in (max(head), min(head)):
        after = [p.offset for p, _ in streams.events() if p.segment == segment and p.offset > head[segment]]
        head[segment] = min(after, default=head[segment])
    streams.truncate(head)
    assert streams.copy(offsets="shift").resumed
    assert streams.payloads(TARGET) == streams.payloads()
    assert [name for name in streams.own() if name != OTHER] == []


@pytest.mark.usefixtures("impatient")
def test_ledger_of_a_deleted_target_does_not_shift_a_new_copy(streams: Streams) -> None:
    for offsets in ("shift", "keep"):
        with killed_at("scale"):
            streams.copy(offsets="shift", numbers="map")
        streams.delete(TARGET)
        cut = streams.tail()
        streams.truncate()
        streams.add_last(b"new")
        report = streams.copy(offsets=offsets, numbers="map")
        assert (report.resumed, streams.own()) == (False, [])
        assert streams.payloads(TARGET) == [b"new"]
        if offsets == "shift":
            assert report.shifts == {segment.in_stream(NAME): offset for segment, offset in cut.items() if offset}
        streams.delete(TARGET)
    with pytest.raises(Conflict, match="the name was used before"):
        streams.copy(offsets="shift")
    assert streams.own() == []


@pytest.mark.usefixtures("impatient")
def test_late_run_does_not_begin_the_ledger_of_a_finished_copy(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would append what the other run has appended elsewhere; events that are alike do not show it."""
    (segment,) = streams.make_plain(*[b"x" * 92] * 100)
    really, late = ImportRun.take, list[Lease]()

    def take(run: ImportRun, lease: Lease) -> Target:
        target = really(run, lease)
        if not late:
            late.append(lease)
            lease._stop.set()
            lease._appender.close()
            lease._lost = OffsetConflict("another process took over", where="")
            streams.truncate({segment: 2000})
            assert streams.copy(offsets="shift").resumed
        return target

    monkeypatch.setattr("streamvault.importer.run.COMPARED_BYTES", 1000)
    monkeypatch.setattr(ImportRun, "take", take)
    with pytest.raises(Conflict, match="lost its lease"):
        streams.copy(offsets="shift")
    assert len(late) == 1
    assert streams.own() == []
    assert streams.payloads(TARGET) == streams.payloads()
    assert (streams.copy(offsets="shift").unchanged, streams.own()) == (True, [])


@pytest.mark.usefixtures("impatient")
def test_late_run_does_not_replace_what_another_has_recorded(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed_at("scale"):
        streams.copy()
    really, recorded = ImportRun.take, list[Record | None]()

    def take(run: ImportRun, lease: Lease) -> Target:
        target = really(run, lease)
        if not recorded:
            recorded.append(None)
            lease._stop.set()
            lease._appender.close()
            lease._lost = OffsetConflict("another process took over", where="")
            streams.add(b"seen by the other one")
            with killed_at("scale"):
                streams.copy()
            recorded[0] = ledger_of(streams).read()
        return target

    monkeypatch.setattr(ImportRun, "take", take)
    with pytest.raises(Conflict):
        streams.copy()
    assert recorded[0] is not None
    assert recorded == [ledger_of(streams).read()]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("offsets", ["keep", "shift"])
@pytest.mark.parametrize("left", ["no ledger", "a ledger of an earlier version"])
def test_unfinished_copy_without_a_record_of_its_source_is_refused(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, offsets: str, left: str
) -> None:
    if left != "no ledger":
        really = Record.to_json
        monkeypatch.setattr(Record, "to_json", lambda record: really(replace(record, reading=None)))
    with killed_at("scale"):
        streams.copy(offsets=offsets)
    if left == "no ledger":
        streams.delete(stream_beside(TARGET, TARGET_LEDGER))
    for dry_run in (True, False):
        with pytest.raises(TargetTaken, match="the record of where the unfinished copy began is gone"):
            streams.copy(offsets=offsets, dry_run=dry_run)


def test_cut_inside_an_event_of_zeros_is_refused(streams: Streams) -> None:
    (segment,) = streams.make_plain(b"a", bytes(64), b"b", bytes(20 * 1024 * 1024), b"c")
    name, large = segment.in_stream(NAME), 9 + 72 + 9 + 8 + 20 * 1024 * 1024
    for offset in (1, 8, 33, 9 + 8, 90 + 8, 90 + 9 * 1024 * 1024, large + 3):
        for option in ("from_cut", "to_cut"):
            with pytest.raises(InvalidCut, match=f"lies inside an event: .*: {offset}"):
                streams.copy(**{option: {name: offset}})
    for number, (low, high) in enumerate([(0, 9), (9, 81), (81, large), (90, large + 9)]):
        part = Streams(streams.folder, target_name=replace(NAME, stream=f"part{number}"))
        assert part.copy(from_cut={name: low}, to_cut={name: high}).bytes == high - low
    streams.truncate({segment: 9})
    with pytest.raises(InvalidCut):
        streams.copy(to_cut={name: 33})
    assert streams.copy(to_cut={name: 81}).bytes == 72


def test_bytes_that_are_no_events_can_be_cut_anywhere(streams: Streams) -> None:
    (segment,) = streams.make_plain()
    with streams.store as store, store.appender(NAME, segment) as appender:
        appender.append(b"plain text, no events")
    assert streams.copy(from_cut={segment.in_stream(NAME): 3}, to_cut={segment.in_stream(NAME): 11}).bytes == 8


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_copy_from_a_cut_begins_at_the_head_where_that_is_later(streams: Streams, offsets: str) -> None:
    one, two = streams.make_plain(segments=2)
    for segment in (one, two):
        streams.write(NAME, segment, [b"%d %04d" % (segment.number, i) for i in range(10)])
    cut = StreamCut(NAME, {one: 5 * 14, two: 0}).to_json()
    assert streams.copy(from_cut=cut, dry_run=True).warnings == ()
    with killed_at("update_stream"):
        streams.copy(from_cut=cut, offsets=offsets)
    streams.truncate({one: 14, two: 14})
    report, second = streams.copy(from_cut=cut, offsets=offsets), other(streams).copy(from_cut=cut, offsets=offsets)
    assert report.truncated
    assert report.warnings == ("the source was truncated beyond --from; what is missing there is not copied",)
    assert report.head == StreamCut(NAME, {one: 5 * 14, two: 14}).to_json()
    assert second.shifts == ({one.in_stream(NAME): 5 * 14, two.in_stream(NAME): 14} if offsets == "shift" else {})
    expected = [payload for p, payload in streams.events() if p.segment == two or p.offset >= 5 * 14]
    if offsets == "shift":
        assert set(streams.describe(OTHER).head.offsets.values()) == {0}
    assert streams.payloads(TARGET) == streams.payloads(OTHER) == expected
    assert streams.copy(from_cut=cut, offsets=offsets).unchanged
    assert [name for name in streams.own() if name != OTHER] == []


@pytest.mark.usefixtures("impatient")
def test_torn_event_is_filled_up(streams: Streams) -> None:
    """An event above 8 MiB is appended in pieces; the source is truncated right behind it."""
    (segment,) = streams.make_plain(bytes(9 * 1024 * 1024), b"rest" * 100)
    large = 9 * 1024 * 1024 + 8
    with pytest.MonkeyPatch.context() as patched:
        stop_fill(patched, 2000)
        with pytest.raises(Failed):
            streams.copy()
    ((target, held),) = streams.tail(TARGET).items()
    assert 0 < held < large
    with streams.store as store, store.appender(TARGET, target) as appender:
        while appender.offset < large - 3:
            appender.append(bytes(min(4 * 1024 * 1024, large - 3 - appender.offset)))
        appender.flush()
    streams.truncate({segment: large})
    assert streams.copy(numbers="keep", filler_limit=3).resumed
    assert streams.payloads(TARGET)[0] == b"rest" * 100


def test_copies_append_whole_events(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    streams.make_plain(*[b"%04d" % i * 25 for i in range(30000)])
    stop_fill(monkeypatch, 100_000)
    with pytest.raises(Failed):
        streams.copy()
    (end,) = streams.tail(TARGET).values()
    assert end > 0
    assert end % 108 == 0


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_users_stream_with_the_ledgers_name_stays(streams: Streams, offsets: str) -> None:
    name = stream_beside(TARGET, TARGET_LEDGER)
    streams.create_stream(name, StreamConfiguration(tags=("mine",)))
    with pytest.raises(LedgerNameTaken):
        streams.copy(offsets=offsets)
    assert streams.configuration(name).tags == ("mine",)
    with streams.store as store:
        store.delete(name)
    streams.copy(offsets=offsets)
    with streams.store as store:
        store.create_stream(name, StreamConfiguration(tags=("mine",)))
    assert streams.copy(offsets=offsets).unchanged
    assert streams.configuration(name).tags == ("mine",)


@pytest.mark.usefixtures("impatient")
def test_filler_that_an_unfinished_copy_has_does_not_count(streams: Streams) -> None:
    (segment,) = streams.make_plain(*[b"x" * 92] * 1000)
    streams.truncate({segment: 40_000})
    with pytest.raises(Usage, match="needs 40000 bytes of filler"):
        streams.copy(filler_limit=39_999, numbers="map")
    with killed_at("truncate_segment"):
        streams.copy(numbers="map")
    report = streams.copy(filler_limit=0, numbers="map")
    assert (report.resumed, report.bytes) == (True, 60_000)
