"""Histories whose segment numbers a store cannot give again: rejected, or restored with other numbers."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from streamvault import export_stream, import_stream, translate
from streamvault.cli import main
from streamvault.common.errors import Failed
from streamvault.importer.plan import CannotReplay, plan_replay
from streamvault.streamstore.cuts import common_counterparts, counterparts
from streamvault.streamstore.model import Epoch, EventPointer, KeyRange, SegmentId, StreamName
from streamvault.streamstore.numbering import nudge
from streamvault.streamstore.own import MOST_TAGS
from testkit.small_archives import NAME, Vault
from testkit.streams import append_events, events_of
from tests.commands.importer.restores import BACK, restore, stopped_after
from tests.told import assert_ends


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """An archive of a stream with scales and a truncated head; the stream is deleted."""
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=60)
    vault.export("chunks")
    return vault


def delete(vault: Vault, stream: StreamName = NAME) -> None:
    with vault.store as store:
        store.delete(stream)


def numbers(vault: Vault, stream: StreamName = NAME) -> list[SegmentId]:
    with vault.store as store:
        return sorted(store.describe(stream).ranges())


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_deleted_stream_comes_back_under_its_name(
    vault: Vault, offsets: str, capfd: pytest.CaptureFixture[str]
) -> None:
    events, old = vault.events(), numbers(vault)
    with vault.store as store:
        before = store.describe(NAME)
    for turn in range(2):
        delete(vault)
        capfd.readouterr()
        assert restore(vault, to=NAME) == 4
        refused = capfd.readouterr().err
        assert "the name was used before" in refused
        assert "--numbers map" in refused
        with vault.store as store:
            assert not store.exists(NAME)
        assert restore(vault, "--numbers", "map", "--offsets", offsets, to=NAME) == 0
        report = json.loads(capfd.readouterr().out)
        new = numbers(vault)
        assert [segment.epoch for segment in new] == [segment.epoch for segment in old]
        assert set(new).isdisjoint(old)
        assert report["renumbered"] == {str(one): str(other) for one, other in zip(old, new, strict=True)}
        with vault.store as store:
            after, restored = store.describe(NAME), list(events_of(store, NAME))
        assert [list(epoch.segments.values()) for epoch in after.epochs] == [
            list(epoch.segments.values()) for epoch in before.epochs
        ]
        assert (after.configuration, after.sealed) == (before.configuration, before.sealed)
        assert [payload for _, payload in restored] == [payload for _, payload in events]
        if offsets == "keep":
            assert list(after.head.offsets.values()) == list(before.head.offsets.values())
            asked = [str(pointer) for pointer, _ in events]
            found = [one.new for one in translate(vault.archive, vault.uri(), asked).positions]
            assert found == [str(pointer) for pointer, _ in restored], turn


def test_restored_stream_is_recognized_and_read_back(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    delete(vault)
    assert restore(vault, "--numbers", "map", to=NAME) == 0
    first = json.loads(capfd.readouterr().out)
    for options, verified in (((), False), (("--again",), True)):
        assert restore(vault, "--numbers", "map", *options, to=NAME) == 0
        again = json.loads(capfd.readouterr().out)
        assert (again["unchanged"], again["verified"]) == (True, verified)
        assert (again["renumbered"], again["events"]) == (first["renumbered"], first["events"])


def test_unused_name_keeps_its_numbers(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    assert restore(vault, "--numbers", "map") == 0
    assert json.loads(capfd.readouterr().out)["renumbered"] == {}
    assert numbers(vault, BACK) == numbers(vault)


def test_unfinished_import_is_resumed_with_its_numbers(vault: Vault) -> None:
    payloads = [payload for _, payload in vault.events()]
    delete(vault)
    with stopped_after(1), pytest.raises(Failed):
        import_stream(vault.archive, vault.uri(), numbers="map", master="inline")
    assert restore(vault, to=NAME) == 2
    report = import_stream(vault.archive, vault.uri(), numbers="map", master="inline", read_back=True)
    assert report.resumed
    with vault.store as store:
        assert [payload for _, payload in events_of(store, NAME)] == payloads


def test_translate_prints_a_line_for_each(vault: Vault, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with vault.store as store:
        head, tail = store.describe(NAME).head, store.describe(NAME).tail
    pointer, _ = vault.events()[7]
    assert restore(vault) == 0
    delete(vault)
    assert restore(vault, "--numbers", "map", to=NAME) == 0
    capfd.readouterr()
    file = tmp_path / "cut.json"
    file.write_text(json.dumps(tail.to_json()))
    given = [str(pointer), json.dumps(head.to_json()), str(file)]
    assert main(["translate", vault.archive, vault.uri(), *given]) == 0
    lines = capfd.readouterr().out.splitlines()
    with vault.store as store:
        described = store.describe(NAME)
    assert json.loads(lines[1]) == described.head.to_json()
    assert json.loads(lines[2]) == described.tail.to_json()
    new = EventPointer.parse(lines[0])
    assert (new.offset, new.length) == (pointer.offset, pointer.length)
    assert new.segment.number > pointer.segment.number
    # and back, from stream to stream
    there = EventPointer(BACK, pointer.segment, pointer.offset, pointer.length)
    assert main(["translate", vault.uri(), vault.uri(BACK), lines[0], "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["positions"] == [{"old": lines[0], "new": str(there), "reader_group": ""}]


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
def test_wrong_positions(vault: Vault, position: str, code: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", vault.archive, vault.uri(), position]) == code
    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1
    assert re.search(said, error), error


def test_streams_of_other_shape_have_no_common_positions(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    with vault.store as store:
        described = store.describe(NAME)
        scaling = replace(described.configuration.scaling, min_segments=len(described.epochs[0].segments) + 1)
        store.create_stream(BACK, replace(described.configuration, scaling=scaling))
    assert main(["translate", vault.archive, vault.uri(BACK), "scope/stream/0.#epoch.0:0-8"]) == 1
    assert "have different histories" in capfd.readouterr().err


def test_written_to_since_is_said(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    assert restore(vault) == 0
    with vault.store as store:
        segment, end = max(store.describe(BACK).tail.offsets.items())
        append_events(store, BACK, segment, [b"more"])
    capfd.readouterr()
    for options in ((), ("--again",)):
        assert restore(vault, *options) == 4
    said = f"was written to since: {vault.uri(BACK)}: {segment} has {end + 12} bytes instead of {end}"
    assert capfd.readouterr().err.count(said) == 2


def test_archived_stream_itself_is_not_taken_for_restored(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    for options in ((), ("--again",), ("--dry-run",), ("--again", "--numbers", "map")):
        assert restore(vault, *options, to=NAME) == 4
        assert "this is the archived stream itself, and nothing was restored into it" in capfd.readouterr().err


@pytest.mark.parametrize("numbers", ["keep", "map"])
def test_restore_into_a_rebuilt_cluster_is_told_from_the_archived_stream(
    vault: Vault, numbers: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It has the same address, name, segments and bytes; a retry of the import must find it restored."""
    with vault.store as store:
        lost = store.describe(NAME)
    shutil.rmtree(vault.folder / "streams")
    assert restore(vault, "--numbers", numbers, to=NAME) == 0
    with vault.store as store:
        found = store.describe(NAME)
    assert found.epochs == lost.epochs
    (tag,) = set(found.configuration.tags) - set(lost.configuration.tags)
    assert tag.startswith("streamvault-restored:")
    capfd.readouterr()
    for again in (False, True):
        assert restore(vault, "--numbers", numbers, *(["--again"] if again else []), to=NAME) == 0
        report = json.loads(capfd.readouterr().out)
        assert (report["unchanged"], report["verified"]) == (True, again)
    assert restore(vault) == 0
    with vault.store as store:
        assert store.describe(BACK).configuration == lost.configuration


def test_stream_with_as_many_tags_as_are_possible_is_restored_into_a_rebuilt_cluster(tmp_path: Path) -> None:
    """There is none left for the tag that tells it from the archived one."""
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=10)
    tags = tuple(f"tag-{number:03}" for number in range(MOST_TAGS))
    with vault.store as store:
        store.update_stream(NAME, replace(store.describe(NAME).configuration, tags=tags))
    vault.export()
    shutil.rmtree(vault.folder / "streams")
    assert restore(vault, to=NAME) == 0
    with vault.store as store:
        assert store.describe(NAME).configuration.tags == tags


def test_restored_stream_that_is_archived_is_a_source(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    """Its tag names the restore that made it, not each later one."""
    shutil.rmtree(vault.folder / "streams")
    assert restore(vault, to=NAME) == 0
    report = export_stream(vault.uri(), vault.root, line="2", master="inline")
    assert main(["import", report.archive, vault.uri(), "--master", "inline", "--again"]) == 4
    assert "this is the archived stream itself" in capfd.readouterr().err
    assert main(["import", report.archive, vault.uri(BACK), "--master", "inline"]) == 0
    with vault.store as store:
        assert not [tag for tag in store.describe(BACK).configuration.tags if tag.startswith("streamvault-")]


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
        plan_replay(ROLLED)
    replay = plan_replay(ROLLED, "map")
    assert [step.seal for step in replay.steps] == [tuple(epoch.segments) for epoch in ROLLED[:-1]]
    assert [list(step.ranges) for step in replay.steps] == [list(epoch.segments.values()) for epoch in ROLLED[1:]]
    assert not replay.moved
    store_numbers = [(0, 1), (2,), (3, 4), (5,), (6, 7)]
    target = [
        Epoch(old.number, dict(zip((SegmentId(old.number, n) for n in new), old.segments.values(), strict=True)))
        for old, new in zip(ROLLED, store_numbers, strict=True)
    ]
    found = counterparts(ROLLED, target)
    assert found is not None
    assert [number.number for number in found.values()] == [n for epoch in store_numbers for n in epoch]


def test_scale_without_an_order_near_the_sources_is_replayed_unmoved() -> None:
    count = 64
    even = [KeyRange(i / count, (i + 1) / count) for i in range(count)]
    backwards = list(reversed(even))
    assert nudge(backwards) is None
    epochs = [
        Epoch(0, {SegmentId(0, 0): KeyRange(0.0, 1.0)}),
        Epoch(1, {SegmentId(1, i + 1): held for i, held in enumerate(backwards)}),
    ]
    with pytest.raises(CannotReplay, match="Give --numbers map"):
        plan_replay(epochs)
    (step,) = plan_replay(epochs, "map").steps
    assert list(step.ranges) == backwards


def test_counterparts_need_the_same_shape() -> None:
    assert counterparts(ROLLED[:1], ROLLED[:1]) == {s: s for s in ROLLED[0].segments}
    assert counterparts(ROLLED[:1], ROLLED[1:2]) is None
    moved = Epoch(0, {SegmentId(0, 0): KeyRange(0.0, 0.4), SegmentId(0, 1): KeyRange(0.4, 1.0)})
    assert counterparts(ROLLED[:1], [moved]) is None
    kept = Epoch(1, dict(ROLLED[0].segments))
    assert counterparts(ROLLED[:2], [ROLLED[0], kept]) is None


def test_positions_that_the_stream_does_not_have_are_refused(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
    assert restore(vault, "--numbers", "map") == 0
    vault.add(b"later")
    with vault.store as store:
        described, events = store.describe(NAME), list(events_of(store, NAME))
        tail, copied = described.tail, store.describe(BACK)
    capfd.readouterr()

    def refused(position: str) -> str:
        assert main(["translate", vault.uri(), vault.uri(BACK), position]) == 1
        return capfd.readouterr().err

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
    with vault.store as store:
        store.truncate(copied.tail)
    assert f"was truncated in {place}/{first.in_stream(BACK)}: " in refused(
        str(replace(before, offset=before.offset + 8))
    )


def test_positions_of_the_common_beginning_are_translated(vault: Vault, capfd: pytest.CaptureFixture[str]) -> None:
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
    capfd.readouterr()
    assert main(["translate", vault.uri(), vault.uri(BACK), f"{new.in_stream(NAME)}:0-8"]) == 1
    assert "no segment of the stream corresponds to this one" in capfd.readouterr().err


def test_common_counterparts_end_where_histories_differ() -> None:
    assert common_counterparts(ROLLED, ROLLED) == counterparts(ROLLED, ROLLED)
    halves = Epoch(1, {SegmentId(1, 2): KeyRange(0.0, 0.7), SegmentId(1, 3): KeyRange(0.7, 1.0)})
    assert common_counterparts(ROLLED, [ROLLED[0], halves]) == counterparts(ROLLED[:1], ROLLED[:1])
    assert common_counterparts(ROLLED, [halves]) == {}


@pytest.mark.parametrize(
    ("is_archive", "options", "what"),
    [
        (True, ("--reader-group", "app"), "generation 1 has noted no position of a reader group app"),
        (False, ("--reader-group", "app"), "this store does not support reader groups"),
        (False, (), "no position is given"),
    ],
)
def test_translate_without_reader_groups(
    vault: Vault, capfd: pytest.CaptureFixture[str], is_archive: bool, options: tuple[str, ...], what: str
) -> None:
    source = vault.archive if is_archive else vault.uri()
    assert_ends(["translate", source, vault.uri(), *options], 2, f"{what}.*", capfd)
