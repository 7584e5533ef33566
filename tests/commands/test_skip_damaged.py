"""What `import --skip-damaged` restores of a damaged archive, and what it says about the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, compact_archive, export_stream, import_stream, write_table
from streamvault.cli import main
from streamvault.common.errors import Conflict, Damaged
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.layout import Compression, LayoutName, open_layout
from streamvault.manifests import damage as damaging
from streamvault.manifests.archive import Archive
from streamvault.streamstore.model import EventPointer, Range, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.own import LONGEST_TAG, filled_places, filled_tags
from testkit.scenes import BACK, stopped_after
from testkit.small_archives import KINDS, NAME, Vault, a_root, archive_of, contents, data_keys, replace_object
from tests.told import Ran, Restored

Change = Callable[[bytes], bytes | None]


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def cut_short(data: bytes) -> bytes:
    return data[:-1]


def delete(_: bytes) -> None:
    return None


@pytest.fixture(params=KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def vault(request: pytest.FixtureRequest, tmp_path: Path) -> Vault:
    return made(tmp_path, *request.param)


def made(folder: Path, layout: LayoutName, compress: Compression = "", *, largest: int = 3000) -> Vault:
    """Two generations of a stream that was scaled, and not truncated."""
    vault = Vault(folder, root=f"file://{folder}/vault")
    vault.make(events=300, largest=largest)
    vault.export(layout, compress)
    vault.add(b"of the second generation", b"another")
    vault.export(layout, compress)
    return vault


def rows_of(vault: Vault) -> list[ArchivedRange]:
    history = archive_of(vault.root).history()
    return [row for segment in history.segments() for _, row in history.ranges(segment)]


def keys_of(vault: Vault, row: ArchivedRange) -> list[str]:
    """The keys of a range's objects, in order."""
    archive: Archive = archive_of(vault.root)
    layout = archive.manifest().layout
    return [found.key for found in open_layout(layout).between(archive.place, row.segment, row.start, row.end)]


def spoil(vault: Vault, row: ArchivedRange, change: Change, nth: int = 0) -> None:
    held = contents(vault.root)
    key = next(key for key in keys_of(vault, row)[nth:] if held[key])
    replace_object(vault.root, key, change(held[key]))


Skipped = Callable[..., dict[str, Any]]


@pytest.fixture
def skipped(restored: Restored) -> Skipped:
    """Restores what is not damaged; returns the report."""

    def run(vault: Vault, *options: str, code: int = Damaged.exit_code) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(restored(vault, "--skip-damaged", *options, code=code).out)
        return found

    return run


def is_restored(vault: Vault, damage: Sequence[dict[str, Any]]) -> None:
    """All events but those in the damage are in the restored stream, with their pointers; zeros are in their place."""
    lost = [(one["segment"].rpartition("/")[2], one["start"], one["end"]) for one in damage]

    def is_lost(pointer: EventPointer) -> bool:
        return any(str(pointer.segment) == segment and start <= pointer.offset < end for segment, start, end in lost)

    was, now = (vault.events(name) for name in (NAME, BACK))
    kept = [(str(pointer.segment), pointer.offset, payload) for pointer, payload in now if not is_lost(pointer)]
    assert kept == [(str(pointer.segment), pointer.offset, payload) for pointer, payload in was if not is_lost(pointer)]
    assert all(not any(payload) for pointer, payload in now if is_lost(pointer))
    tails = [{p.segment: p.offset + p.length for p, _ in events} for events in (was, now)]
    assert tails[0] == tails[1]


def places(vault: Vault) -> dict[str, ArchivedRange]:
    """Ranges of several events, at the places where a gap is treated differently."""
    tail = archive_of(vault.root).manifest().to.offsets
    rows = rows_of(vault)
    by_segment = {row.segment: [one for one in rows if one.segment == row.segment] for row in rows}
    sealed = next(some for segment, some in by_segment.items() if segment not in tail and len(some) > 1)
    held = next(some for segment, some in by_segment.items() if segment in tail and len(some) > 2)
    return {"head": sealed[0], "end of a sealed segment": sealed[-1], "middle": held[1], "tail": held[-1]}


@pytest.mark.parametrize("change", [flip, cut_short, delete], ids=lambda change: change.__name__)
def test_everything_else_is_restored(vault: Vault, change: Change, skipped: Skipped, restored: Restored) -> None:
    for row in places(vault).values():
        spoil(vault, row, change)
    assert main(["import", vault.archive, vault.uri(replace(NAME, stream="other")), "--master", "inline"]) == 3
    out, err = restored(vault, "--skip-damaged", code=3)
    report = json.loads(out)
    assert len(report["damage"]) == len(report["findings"]) == len(places(vault))
    assert err.count("damaged: ") == len(places(vault))
    assert vault.describe(BACK).epochs[-1].number == vault.described.epochs[-1].number
    is_restored(vault, report["damage"])
    assert {(one["segment"], one["start"]) for one in report["damage"]} <= {
        (one["segment"], one["start"]) for one in report["gaps"] if one["reason"].startswith("damaged: ")
    }

    again = skipped(vault)
    assert (again["unchanged"], again["damage"]) == (True, report["damage"])
    assert skipped(vault, "--again", "--read-back")["verified"]


def test_intact_archive_is_restored_as_ever(vault: Vault, skipped: Skipped, restored: Restored) -> None:
    assert skipped(vault, code=0)["findings"] == []
    assert vault.digest() == vault.digest(BACK)
    assert json.loads(restored(vault).out)["unchanged"]


def test_offsets_may_be_shifted_over_the_damage(vault: Vault, skipped: Skipped) -> None:
    spoil(vault, places(vault)["middle"], flip)
    report = skipped(vault, "--offsets", "shift")
    was, now = (vault.payloads(name) for name in (NAME, BACK))
    assert len(was) - len(now) == sum(one["lost_events"] for one in report["damage"])


def test_interrupted_import_is_resumed(vault: Vault, skipped: Skipped) -> None:
    spoil(vault, places(vault)["middle"], delete)
    with stopped_after(1):
        skipped(vault, code=1)
    report = skipped(vault)
    assert report["resumed"]
    is_restored(vault, report["damage"])


def test_more_damage_does_not_resume_another_import(vault: Vault, skipped: Skipped) -> None:
    """What was restored with the bytes must not be finished as a stream without them."""
    spoil(vault, places(vault)["middle"], delete)
    with stopped_after(0):
        skipped(vault, code=1)
    spoil(vault, places(vault)["tail"], delete)
    skipped(vault, code=Conflict.exit_code)


def test_one_object_for_each_event_loses_as_little_as_the_listing_proves(tmp_path: Path, skipped: Skipped) -> None:
    vault = made(tmp_path, "events", largest=200)
    first, second = sorted(rows_of(vault), key=lambda row: -row.events)[:2]
    spoil(vault, first, cut_short, 3)
    spoil(vault, second, delete, 4)
    report = skipped(vault)
    lost = {(one["segment"].rpartition("/")[2], one["lost_events"]) for one in report["damage"]}
    # behind a missing object, nothing proves that an object is one of the archived events
    assert lost == {(str(first.segment), 1), (str(second.segment), second.events - 4)}
    is_restored(vault, report["damage"])


def test_all_damage_of_a_range_is_named(tmp_path: Path, skipped: Skipped) -> None:
    """One object is missing and another is cut short; that others are changed, nothing can show."""
    vault = made(tmp_path, "events", largest=200)
    row = max(rows_of(vault), key=lambda row: row.events)
    spoil(vault, row, delete, 4)
    spoil(vault, row, cut_short, 8)
    report = check_archive(vault.archive, read_data=True, master="inline")
    first, second = report.damage
    assert "no object holds" in first.what
    assert "bytes instead of" in second.what
    assert f"the {row.events - 2} other objects of the range cannot be compared with its digest" in second.what
    assert "cannot be compared" not in check_archive(vault.archive).damage[-1].what
    (finding,) = skipped(vault)["findings"]
    assert "no object holds" in finding
    assert "bytes instead of" in finding


def test_filler_is_said_in_each_archive_of_what_was_restored(tmp_path: Path, skipped: Skipped) -> None:
    vault = made(tmp_path, "chunks", largest=200)
    for place in ("middle", "end of a sealed segment"):
        spoil(vault, places(vault)[place], delete)
    report = skipped(vault, "--numbers", "map")
    filled = [(one["segment"], one["start"], one["end"]) for one in report["filled"]]
    assert filled == [(one["segment"], one["start"], one["end"]) for one in report["damage"]]
    assert {one["reason"] for one in report["filled"]} == {
        f"one event of {end - start - 8:,} zero bytes" for _, start, end in filled
    }
    rescued = filler_after(vault, BACK)
    again = replace(NAME, stream="again")
    assert import_stream(rescued, vault.uri(again), master="inline").gaps == ()
    filler_after(vault, again)
    shifted = replace(NAME, stream="shifted")
    assert not import_stream(
        vault.archive, vault.uri(shifted), skip_damaged=True, offsets="shift", master="inline"
    ).filled
    assert filled_places(vault.configuration(shifted)) == ((), 0)


def filler_after(vault: Vault, name: StreamName) -> str:
    """Archive a restored stream: a check says which of its events are filler."""
    found, more = filled_places(vault.configuration(name))
    held = {Range(p.segment, p.offset, p.offset + p.length) for p, payload in vault.events(name) if not any(payload)}
    assert more == 0
    assert len(found) == 2
    assert set(found) <= held
    root = a_root()
    export_stream(vault.uri(name), root, layout="events", master="inline")
    report = check_archive(f"{root}/{name}", read_data=True, master="inline")
    assert report.ok
    (note,) = (note for note in report.notes if "zeros in place" in note)
    for one in found:
        size = f"one event of {one.end - one.start - 8:,} zero bytes"
        assert f"{one.segment.in_stream(name)} bytes {one.start} to {one.end} ({size})" in note
    return f"{root}/{name}"


def test_places_with_filler_fit_into_tags() -> None:
    many = [Range(SegmentId(number, number), 10**18, 2 * 10**18) for number in range(2000)]
    for count, room in ((0, 3), (1, 3), (2000, 3), (2000, 1), (2000, 500)):
        tags = filled_tags(many[:count], room)
        assert len(tags) <= room
        assert all(len(tag) <= LONGEST_TAG for tag in tags)
        found, more = filled_places(StreamConfiguration(tags=(*tags, "streamvault-filled:x,1:2-3", "other")))
        assert list(found) == many[: len(found)]
        assert len(found) + more == count
    assert filled_tags(many, 0) == ()


def test_object_that_may_be_a_stray_is_no_event(tmp_path: Path, skipped: Skipped) -> None:
    """In the place of a missing object, the listing cannot tell a stray one from an event."""
    vault = made(tmp_path, "events", largest=200)
    row = max(rows_of(vault), key=lambda row: row.events)
    key = keys_of(vault, row)[0]
    offset = int(key.rpartition("/")[2].partition("-")[0])
    payload = contents(vault.root)[key]
    spoil(vault, row, delete)
    folder = key.rpartition("/")[0]
    inner = len(payload) // 2
    replace_object(vault.root, f"{folder}/{offset + inner:019d}-{8 + len(payload) - inner:010d}", payload[inner:])
    report = skipped(vault)
    assert sum(one["lost_events"] for one in report["damage"]) == row.events
    is_restored(vault, report["damage"])


def test_second_object_at_an_offset_is_no_event(tmp_path: Path, skipped: Skipped) -> None:
    """Without the object that follows, the listing cannot tell which of two is on the chain."""
    vault = made(tmp_path, "events", largest=200)
    row = max(rows_of(vault), key=lambda row: row.events)
    keys, held = keys_of(vault, row), contents(vault.root)
    index = next(i for i, key in enumerate(keys) if len(held[key]) > 1)
    folder, _, name = keys[index].rpartition("/")
    replace_object(vault.root, keys[index + 1], None)
    replace_object(vault.root, f"{folder}/{name.partition('-')[0]}-{8 + 1:010d}", b"x")
    report = skipped(vault)
    assert sum(one["lost_events"] for one in report["damage"]) == row.events
    is_restored(vault, report["damage"])


def test_ranges_that_were_merged_meanwhile_are_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced objects are missing, but nothing is damaged."""
    vault = made(tmp_path, "chunks")
    real = damaging.damage_of
    merged: list[bool] = []

    def late(*arguments: Any) -> Any:
        if not merged:
            merged.append(True)
            compact_archive(vault.archive, master="inline", target=2**20)
            for row in rows_of_generation_1:
                spoil(vault, row, delete)
        return real(*arguments)

    rows_of_generation_1 = rows_of(vault)[:1]
    monkeypatch.setattr(damaging, "damage_of", late)
    with pytest.raises(Conflict, match="merged while they were being restored"):
        import_stream(vault.archive, vault.uri(BACK), master="inline", skip_damaged=True)


def test_table_is_restored_without_a_damaged_file(tmp_path: Path) -> None:
    vault = made(tmp_path, "chunks")
    write_table(vault.archive, master="inline", format="parquet")
    key = max(key for key in data_keys(vault.root) if key.endswith(".parquet"))
    replace_object(vault.root, key, None)
    with pytest.raises(Damaged):
        import_stream(vault.archive, vault.uri(replace(NAME, stream="other")), layout="table", master="inline")
    report = import_stream(
        vault.archive, vault.uri(BACK), layout="table", master="inline", read_back=True, skip_damaged=True
    )
    assert report.damage
    is_restored(vault, [one.to_json() for one in report.damage])


@pytest.mark.parametrize("merge", [False, True], ids=["", "merged"])
def test_check_says_what_is_intact_and_how_to_restore_it(tmp_path: Path, merge: bool, ran: Ran) -> None:
    vault = made(tmp_path, "events")
    vault.add(b"of the third generation")
    vault.export("events")
    if merge:
        compact_archive(vault.archive, master="inline")
    intact = check_archive(vault.archive, read_data=True, master="inline")
    assert (intact.intact_generation, intact.restore, intact.damage) == (3, "", ())
    ours = [(pointer, payload) for pointer, payload in vault.events() if b"second" in payload]
    pointer, _ = ours[0]
    row = next(
        row for row in rows_of(vault) if row.segment == pointer.segment and row.start <= pointer.offset < row.end
    )
    spoil(vault, row, flip, next(i for i, key in enumerate(keys_of(vault, row)) if f"/{pointer.offset:019d}-" in key))
    report = check_archive(vault.archive, read_data=True, master="inline")
    (damage,) = report.damage
    assert (damage.generation, report.intact_generation) == (2, 1)
    assert damage.lost_events == row.events
    assert damage.cut == import_cut(vault, 1)
    assert report.restore == f"streamvault import {vault.archive} STREAM --generation 1"
    out = ran("check", vault.archive, "--read-data", "--master", "inline", code=3).out
    assert f"generation 2, {row.events} events (" in out
    assert f"generation 2 begins at the cut {json.dumps(import_cut(vault, 1))}" in out
    assert "intact up to generation 1" in out
    assert main([*report.restore.replace("STREAM", vault.uri(BACK)).split()[1:], "--master", "inline"]) == 0
    spoil(vault, rows_of(vault)[0], delete)
    report = check_archive(vault.archive, master="inline")
    assert (report.intact_generation, report.restore) == (
        0,
        f"streamvault import {vault.archive} STREAM --skip-damaged",
    )


def import_cut(vault: Vault, generation: int) -> dict[str, int]:
    return archive_of(vault.root).history(generation).tail.to_json()
