"""Positions in restored streams: segments with other numbers, and cuts with the offset -1, as Java writes them."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streamvault import copy_stream, export_stream, import_stream, read_archive, request_restore, translate
from streamvault.cli import main
from streamvault.common.errors import Failed
from streamvault.importer.plan import CannotReplay, plan_replay
from streamvault.streamstore.cuts import common_counterparts, counterparts
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.local import folder
from streamvault.streamstore.model import (
    SEGMENT_END,
    Epoch,
    Epochs,
    EventPointer,
    KeyRange,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamName,
)
from streamvault.streamstore.numbering import nudge
from streamvault.streamstore.own import MOST_TAGS
from testkit.scenes import BACK, restore, stopped_after
from testkit.small_archives import NAME, Vault, a_root, a_vault, archive_of
from testkit.streams import events_of
from tests.told import Ran, Restored, assert_ends

vault = a_vault(events=60, exports=[("chunks", "")], on_disk=True)
"""An archive of a stream with scales and a truncated head; the stream is deleted."""


def delete(vault: Vault, stream: StreamName = NAME) -> None:
    vault.delete(stream)


def numbers(vault: Vault, stream: StreamName = NAME) -> list[SegmentId]:
    return sorted(vault.describe(stream).ranges())


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_deleted_stream_comes_back_under_its_name(vault: Vault, offsets: str, restored: Restored) -> None:
    events, old = vault.events(), numbers(vault)
    before = vault.described
    for turn in range(2):
        delete(vault)
        refused = restored(vault, to=NAME, code=4).err
        assert "the name was used before" in refused
        assert "--numbers map" in refused
        assert not vault.exists()
        report = json.loads(restored(vault, "--numbers", "map", "--offsets", offsets, to=NAME).out)
        new = numbers(vault)
        assert [segment.epoch for segment in new] == [segment.epoch for segment in old]
        assert set(new).isdisjoint(old)
        assert report["renumbered"] == {str(one): str(other) for one, other in zip(old, new, strict=True)}
        after, back = vault.described, vault.events()
        assert [list(epoch.segments.values()) for epoch in after.epochs] == [
            list(epoch.segments.values()) for epoch in before.epochs
        ]
        assert (after.configuration, after.sealed) == (before.configuration, before.sealed)
        assert [payload for _, payload in back] == [payload for _, payload in events]
        if offsets == "keep":
            assert list(after.head.offsets.values()) == list(before.head.offsets.values())
            asked = [str(pointer) for pointer, _ in events]
            found = [one.new for one in translate(vault.archive, vault.uri(), asked).positions]
            assert found == [str(pointer) for pointer, _ in back], turn


def test_restored_stream_is_recognized_and_read_back(vault: Vault, restored: Restored) -> None:
    delete(vault)
    first = json.loads(restored(vault, "--numbers", "map", to=NAME).out)
    for options, verified in (((), False), (("--again",), True)):
        again = json.loads(restored(vault, "--numbers", "map", *options, to=NAME).out)
        assert (again["unchanged"], again["verified"]) == (True, verified)
        assert (again["renumbered"], again["events"]) == (first["renumbered"], first["events"])


def test_unused_name_keeps_its_numbers(vault: Vault, restored: Restored) -> None:
    assert json.loads(restored(vault, "--numbers", "map").out)["renumbered"] == {}
    assert numbers(vault, BACK) == numbers(vault)


def test_unfinished_import_is_resumed_with_its_numbers(vault: Vault) -> None:
    payloads = [payload for _, payload in vault.events()]
    delete(vault)
    with stopped_after(1), pytest.raises(Failed):
        import_stream(vault.archive, vault.uri(), numbers="map", master="inline")
    assert restore(vault, to=NAME) == 2
    report = import_stream(vault.archive, vault.uri(), numbers="map", master="inline", read_back=True)
    assert report.resumed
    assert vault.payloads() == payloads


def test_translate_prints_a_line_for_each(vault: Vault, tmp_path: Path, ran: Ran) -> None:
    head, tail = vault.described.head, vault.described.tail
    pointer, _ = vault.events()[7]
    assert restore(vault) == 0
    delete(vault)
    assert restore(vault, "--numbers", "map", to=NAME) == 0
    file = tmp_path / "cut.json"
    file.write_text(json.dumps(tail.to_json()))
    given = [str(pointer), json.dumps(head.to_json()), str(file)]
    lines = ran("translate", vault.archive, vault.uri(), *given).out.splitlines()
    described = vault.described
    assert json.loads(lines[1]) == described.head.to_json()
    assert json.loads(lines[2]) == described.tail.to_json()
    new = EventPointer.parse(lines[0])
    assert (new.offset, new.length) == (pointer.offset, pointer.length)
    assert new.segment.number > pointer.segment.number
    # and back, from stream to stream
    there = EventPointer(BACK, pointer.segment, pointer.offset, pointer.length)
    assert json.loads(ran("translate", vault.uri(), vault.uri(BACK), lines[0], "--json").out)["positions"] == [
        {"old": lines[0], "new": str(there), "reader_group": ""}
    ]


@pytest.mark.parametrize(
    ("position", "code", "said"),
    [
        ("other/stream/0.#epoch.0:0-8", 2, "the position belongs to another stream: other/stream, not scope/stream"),
        ("scope/stream/0.#epoch.0:x", 2, "cannot be read"),
        ("scope/stream/999.#epoch.7:0-8", 1, "no segment of the stream corresponds to this one: .*999.#epoch.7"),
        ('{"scope/stream/999.#epoch.7": 0}', 1, "no segment of the stream corresponds to this one"),
        ("{}", 2, "a stream cut is a JSON object"),
    ],
)
def test_wrong_positions(vault: Vault, position: str, code: int, said: str, ran: Ran) -> None:
    error = ran("translate", vault.archive, vault.uri(), position, code=code).err
    assert len(error.splitlines()) == 1
    assert re.search(said, error), error


def test_streams_of_other_shape_have_no_common_positions(vault: Vault, ran: Ran) -> None:
    described = vault.described
    scaling = replace(described.configuration.scaling, min_segments=len(described.epochs[0].segments) + 1)
    vault.create_stream(BACK, replace(described.configuration, scaling=scaling))
    assert (
        "have different histories"
        in ran("translate", vault.archive, vault.uri(BACK), "scope/stream/0.#epoch.0:0-8", code=1).err
    )


def test_written_to_since_is_said(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    assert restore(vault) == 0
    segment, end = max(vault.tail(BACK).items())
    vault.write(BACK, segment, [b"more"])
    capfd.readouterr()
    for options in ((), ("--again",)):
        assert restore(vault, *options) == 4
    said = f"has been written to since: {vault.uri(BACK)}: {segment} has {end + 12} bytes instead of {end}"
    assert capfd.readouterr().err.count(said) == 2


def test_archived_stream_itself_is_not_taken_for_restored(vault: Vault, restored: Restored) -> None:
    for options in ((), ("--again",), ("--dry-run",), ("--again", "--numbers", "map")):
        assert (
            "this is the archived stream itself, and nothing was restored into it"
            in restored(vault, *options, to=NAME, code=4).err
        )


@pytest.mark.parametrize("numbers", ["keep", "map"])
def test_restore_into_a_rebuilt_cluster_is_told_from_the_archived_stream(
    vault: Vault, numbers: str, restored: Restored
) -> None:
    """It has the same address, name, segments and bytes; a retry of the import must find it restored."""
    lost = vault.described
    shutil.rmtree(vault.folder / "streams")
    assert restore(vault, "--numbers", numbers, to=NAME) == 0
    found = vault.described
    assert found.epochs == lost.epochs
    (tag,) = set(found.configuration.tags) - set(lost.configuration.tags)
    assert tag.startswith("streamvault-restored:")
    for again in (False, True):
        report = json.loads(restored(vault, "--numbers", numbers, *(["--again"] if again else []), to=NAME).out)
        assert (report["unchanged"], report["verified"]) == (True, again)
    assert restore(vault) == 0
    assert vault.configuration(BACK) == lost.configuration


def test_stream_with_as_many_tags_as_are_possible_is_restored_into_a_rebuilt_cluster(tmp_path: Path) -> None:
    """There is none left for the tag that tells it from the archived one."""
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=10)
    tags = tuple(f"tag-{number:03}" for number in range(MOST_TAGS))
    vault.update_stream(NAME, replace(vault.configuration(), tags=tags))
    vault.export()
    shutil.rmtree(vault.folder / "streams")
    assert restore(vault, to=NAME) == 0
    assert vault.configuration().tags == tags


def test_restored_stream_that_is_archived_is_a_source(vault: Vault, ran: Ran) -> None:
    """Its tag names the restore that made it, not each later one."""
    shutil.rmtree(vault.folder / "streams")
    assert restore(vault, to=NAME) == 0
    report = export_stream(vault.uri(), vault.root, line="2", master="inline")
    assert (
        "this is the archived stream itself"
        in ran("import", report.archive, vault.uri(), "--master", "inline", "--again", code=4).err
    )
    assert main(["import", report.archive, vault.uri(BACK), "--master", "inline"]) == 0
    assert not [tag for tag in vault.configuration(BACK).tags if tag.startswith("streamvault-")]


# two segments; a transaction is opened; a merge; the transaction is committed, so both epochs are repeated; a split
HALVES = [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)]
ROLLED = [
    Epoch(0, dict(zip([SegmentId(0, 0), SegmentId(0, 1)], HALVES, strict=True))),
    Epoch(1, {SegmentId(1, 2): KeyRange(0.0, 1.0)}),
    Epoch(2, dict(zip([SegmentId(2, 0), SegmentId(2, 1)], HALVES, strict=True))),
    Epoch(3, {SegmentId(3, 2): KeyRange(0.0, 1.0)}),
    Epoch(4, dict(zip([SegmentId(4, 3), SegmentId(4, 4)], HALVES, strict=True))),
]


def test_rolled_transaction_is_replayed_as_scales_with_mapped_numbers() -> None:
    with pytest.raises(CannotReplay, match=r"committed across a scale.*(2\.#epoch|0\.#epoch\.2)"):
        plan_replay(Epochs(ROLLED))
    replay = plan_replay(Epochs(ROLLED), "map")
    assert [step.seal for step in replay.steps] == [tuple(epoch.segments) for epoch in ROLLED[:-1]]
    assert [list(step.ranges) for step in replay.steps] == [list(epoch.segments.values()) for epoch in ROLLED[1:]]
    assert not replay.moved
    store_numbers = [(0, 1), (2,), (3, 4), (5,), (6, 7)]
    target = [
        Epoch(old.number, dict(zip((SegmentId(old.number, n) for n in new), old.segments.values(), strict=True)))
        for old, new in zip(ROLLED, store_numbers, strict=True)
    ]
    found = counterparts(Epochs(ROLLED), Epochs(target))
    assert found is not None
    assert [number.number for number in found.values()] == [n for epoch in store_numbers for n in epoch]


def test_scale_without_an_order_near_the_sources_is_replayed_unmoved() -> None:
    count = 64
    even = [KeyRange(i / count, (i + 1) / count) for i in range(count)]
    backwards = list(reversed(even))
    assert nudge(backwards) is None
    epochs = Epochs(
        [
            Epoch(0, {SegmentId(0, 0): KeyRange(0.0, 1.0)}),
            Epoch(1, {SegmentId(1, i + 1): held for i, held in enumerate(backwards)}),
        ]
    )
    with pytest.raises(CannotReplay, match="Give --numbers map"):
        plan_replay(epochs)
    (step,) = plan_replay(epochs, "map").steps
    assert list(step.ranges) == backwards


def test_counterparts_need_the_same_shape() -> None:
    first = Epochs(ROLLED[:1])
    assert counterparts(first, first) == {s: s for s in ROLLED[0].segments}
    moved = Epoch(0, {SegmentId(0, 0): KeyRange(0.0, 0.4), SegmentId(0, 1): KeyRange(0.4, 1.0)})
    assert counterparts(first, Epochs([moved])) is None
    kept = Epoch(1, dict(ROLLED[0].segments))
    assert counterparts(Epochs(ROLLED[:2]), Epochs([ROLLED[0], kept])) is None


def test_positions_that_the_stream_does_not_have_are_refused(vault: Vault, ran: Ran) -> None:
    assert restore(vault, "--numbers", "map") == 0
    vault.add(b"later")
    described, events = vault.described, vault.events()
    tail, copied = described.tail, vault.describe(BACK)

    def refused(position: str) -> str:
        return ran("translate", vault.uri(), vault.uri(BACK), position, code=1).err

    place = vault.uri(BACK).removesuffix(f"/{BACK}")
    last, segment = events[-1][0], events[-1][0].segment
    said = f"lies beyond the end of {place}/{segment.in_stream(BACK)} at {copied.tail.offsets[segment]}: "
    assert f"{said}{segment.in_stream(NAME)}: {last.offset}" in refused(str(last))
    assert "lies beyond the end of" in refused(json.dumps(tail.to_json()))
    inside = replace(last, offset=copied.tail.offsets[segment] - 8)
    assert "lies beyond the end of" in refused(str(inside))
    assert (
        main(["translate", vault.uri(), vault.uri(BACK), json.dumps(copied.tail.to_json()).replace("back", "stream")])
        == 0
    )
    first = min(copied.head.offsets)
    before = EventPointer(NAME, first, copied.head.offsets[first] - 8, 8)
    said = f"was truncated in {place}/{first.in_stream(BACK)}, which begins at {copied.head.offsets[first]}"
    assert said in refused(str(before))
    vault.truncate(copied.tail)
    assert f"was truncated in {place}/{first.in_stream(BACK)}: " in refused(
        str(replace(before, offset=before.offset + 8))
    )


def test_positions_of_the_common_beginning_are_translated(vault: Vault, ran: Ran) -> None:
    assert restore(vault, "--numbers", "map") == 0
    with vault.store as store:
        events, tail = list(events_of(store, BACK)), store.describe(BACK).tail
        for name, parts in ((NAME, 2), (BACK, 3)):
            described = store.describe(name)
            last = max(described.tail.offsets)
            held = described.ranges()[last]
            ends = [held.low + (held.high - held.low) * i / parts for i in range(parts)] + [held.high]
            store.scale(name, [last], [KeyRange(*pair) for pair in pairwise(ends)])
        new = max(store.describe(NAME).tail.offsets)
    asked = [str(replace(pointer, stream=NAME)) for pointer, _ in events]
    found = [one.new for one in translate(vault.uri(), vault.uri(BACK), asked).positions]
    assert found == [str(pointer) for pointer, _ in events]
    cut = json.dumps(tail.to_json()).replace("back", "stream")
    assert translate(vault.uri(), vault.uri(BACK), [cut]).positions[0].new == tail.to_json()
    assert (
        "no segment of the stream corresponds to this one"
        in ran("translate", vault.uri(), vault.uri(BACK), f"{new.in_stream(NAME)}:0-8", code=1).err
    )


def test_common_counterparts_end_where_histories_differ() -> None:
    rolled, first = Epochs(ROLLED), Epochs(ROLLED[:1])
    assert common_counterparts(rolled, rolled) == counterparts(rolled, rolled)
    halves = Epoch(1, {SegmentId(1, 2): KeyRange(0.0, 0.7), SegmentId(1, 3): KeyRange(0.7, 1.0)})
    assert common_counterparts(rolled, Epochs([ROLLED[0], halves])) == counterparts(first, first)
    whole = Epochs([Epoch(0, {SegmentId(0, 0): KeyRange(0.0, 1.0)})])
    assert common_counterparts(rolled, whole) == {}


@pytest.mark.parametrize(
    ("is_archive", "options", "what"),
    [
        (True, ("--reader-group", "app"), "generation 1 has recorded no position of a reader group app"),
        (False, ("--reader-group", "app"), "this store does not support reader groups"),
        (False, (), "no position is given"),
    ],
)
def test_translate_without_reader_groups(
    vault: Vault, capfd: pytest.CaptureFixture[str], is_archive: bool, options: tuple[str, ...], what: str
) -> None:
    source = vault.archive if is_archive else vault.uri()
    assert_ends(["translate", source, vault.uri(), *options], 2, f"{what}.*", capfd)


PART = replace(NAME, stream="part")
INLINE: dict[str, Any] = {"master": "inline"}


def cuts(vault: Vault, *, with_open: bool = False) -> tuple[dict[str, int], dict[str, int]]:
    """A cut at the ends of the head's sealed segments, as Java writes it, and with these ends.

    An open segment has its head's offset in both, or -1 in the first.
    """
    with vault.store as store:
        infos = store.segment_info(NAME, list(store.describe(NAME).head.offsets))
    ends = {info.segment: info.write_offset if info.sealed else info.start_offset for info in infos}
    written = {info.segment: SEGMENT_END if info.sealed or with_open else info.start_offset for info in infos}
    assert len([info for info in infos if info.sealed]) == len(infos) - 1
    return StreamCut(NAME, written).to_json(), StreamCut(NAME, ends).to_json()


def copied(vault: Vault, **cut: dict[str, int]) -> object:
    return made_in(vault, lambda target: copy_stream(vault.uri(), target, **cut, **INLINE))


def imported(vault: Vault, **cut: dict[str, int]) -> object:
    return made_in(vault, lambda target: import_stream(vault.archive, target, **cut, **INLINE))


def made_in(vault: Vault, make: Callable[[str], object]) -> object:
    """The content of a new stream; its name was never used, so that segments are numbered from 0."""
    target = replace(NAME, stream=uuid.uuid4().hex)
    make(vault.uri(target))
    return vault.digest(target)


def exported(vault: Vault, **cut: dict[str, int]) -> object:
    root = a_root()
    dry = export_stream(vault.uri(), root, **cut, dry_run=True, **INLINE)
    report = export_stream(vault.uri(), root, **cut, **INLINE)
    assert dry.bytes == report.bytes
    return read_archive(f"{root}/{NAME}").read_all()


def read(vault: Vault, **cut: dict[str, int]) -> object:
    return read_archive(vault.archive, **cut).read_all()


@pytest.mark.parametrize("verb", [copied, exported, imported, read])
@pytest.mark.parametrize("option", ["from_cut", "to_cut"])
def test_end_of_a_segment_may_be_written_as_minus_one(vault: Vault, verb: Callable[..., object], option: str) -> None:
    written, ends = cuts(vault)
    assert verb(vault, **{option: written}) == verb(vault, **{option: ends})


@pytest.mark.parametrize("verb", [copied, exported, imported, read])
def test_open_segment_has_no_end(vault: Vault, verb: Callable[..., object]) -> None:
    written, _ = cuts(vault, with_open=True)
    with pytest.raises(
        InvalidCut, match=r"^offset -1 .* end of a sealed segment, but this one .* open.*: scope/stream/"
    ):
        verb(vault, to_cut=written)


@pytest.mark.parametrize("live", [True, False])
def test_translated_end_is_that_of_the_restored_segment(vault: Vault, *, live: bool) -> None:
    import_stream(vault.archive, vault.uri(PART), **INLINE)
    written, ends = cuts(vault)
    source = vault.uri() if live else vault.archive
    of_written, of_ends = (one.new for one in translate(source, vault.uri(PART), [json.dumps(written), ends]).positions)
    assert of_written == of_ends
    assert SEGMENT_END not in of_written.values()  # type: ignore[union-attr]
    with pytest.raises(InvalidCut, match="open"):
        translate(source, vault.uri(PART), [cuts(vault, with_open=True)[0]])


def test_end_of_a_truncated_segment_is_not_known(vault: Vault) -> None:
    """To the archive, which has it, and to a stream, which does not."""
    written, ends = cuts(vault)
    described = vault.described
    vault.truncate(described.tail)
    import_stream(vault.archive, vault.uri(PART), **INLINE)
    assert (
        translate(vault.archive, vault.uri(PART), [written]).positions[0].new
        == StreamCut(PART, StreamCut.from_json(ends).offsets).to_json()
    )
    with pytest.raises(InvalidCut, match="does not exist, or was truncated"):
        copied(vault, from_cut=written)
    gone = StreamCut(NAME, {SegmentId(0, 0): SEGMENT_END}).to_json()
    with pytest.raises(InvalidCut, match="is not in the archive"):
        translate(vault.archive, vault.uri(PART), [gone])


def test_sealed_stream_was_read_to_its_end(vault: Vault) -> None:
    vault.seal()
    tail = vault.described.tail
    written = StreamCut(NAME, dict.fromkeys(tail.offsets, SEGMENT_END)).to_json()
    vault.export("chunks")
    import_stream(vault.archive, vault.uri(PART), **INLINE)
    for source in (vault.uri(), vault.archive):
        new = translate(source, vault.uri(PART), [written]).positions[0].new
        assert new == StreamCut(PART, tail.offsets).to_json()


def test_command_line_takes_it(vault: Vault, ran: Ran) -> None:
    written, _ = cuts(vault)
    assert main(["copy", vault.uri(), vault.uri(PART), "--to", json.dumps(written), "--master", "inline"]) == 0
    written, _ = cuts(vault, with_open=True)
    assert (
        "is still open"
        in ran("copy", vault.uri(), vault.uri(PART), "--to", json.dumps(written), "--master", "inline", code=2).err
    )


def test_request_keeps_it_until_it_is_processed(vault: Vault) -> None:
    written, _ = cuts(vault)
    report = request_restore(
        vault.archive, vault.uri(PART), queue=vault.uri(replace(NAME, stream="queue")), to_cut=written, dry_run=True
    )
    assert report.request["to_cut"] == written


def test_generation_before_the_tail_of_a_sealed_stream_is_not_sealed(vault: Vault) -> None:
    root = a_root()
    vault.add(b"first")
    cut = vault.described.tail.to_json()
    vault.add(b"last")
    vault.seal()
    archive = replace(vault, root=root).archive
    for to_cut, sealed in ((cut, False), (None, True)):
        export_stream(vault.uri(), root, to_cut=to_cut, **INLINE)
        assert archive_of(root).manifest().sealed is sealed
        target = replace(NAME, stream=f"sealed-{sealed}")
        import_stream(archive, vault.uri(target), **INLINE)
        assert vault.describe(target).sealed is sealed


@pytest.mark.parametrize("segments", [5, 40])
def test_record_is_not_read_once_for_each_segment(
    tmp_path: Path, segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names all segments, so the time of an export would grow with their square."""
    vault, loads, load = Vault(tmp_path / "many"), 0, folder.load_record

    def counted(*arguments: Any) -> Any:
        nonlocal loads
        loads += 1
        return load(*arguments)

    with vault.store as store:
        store.create_stream_and_scope(NAME, StreamConfiguration(scaling=Scaling(min_segments=segments)))
    vault.add(b"event")
    monkeypatch.setattr(folder, "load_record", counted)
    vault.export("chunks")
    assert loads <= 2
