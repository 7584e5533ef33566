"""Rotation with an embedded store and an archive in memory: what expires, what stays, where the source is truncated."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    check_archive,
    compact_archive,
    convert_archive,
    export_stream,
    get_event,
    hold_archive,
    import_stream,
    list_archives,
    release_archive,
    rotate_stream,
    show_archive,
    show_timeline,
)
from streamvault.common.errors import Conflict, Damaged, Problem, Usage
from streamvault.common.units import now_utc
from streamvault.exporter.reports import RotateReport
from streamvault.importer.import_ import generation_at
from streamvault.layouts.keys import GenerationSpan, checked_key, manifest_key, row_key
from streamvault.manifests.decisions import find_checked
from streamvault.manifests.deleting import below_head, delete_expired
from streamvault.manifests.expiry import ExpiryRule
from streamvault.manifests.verbs.check import read_back
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import AccessDenied
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import KeyRange, SegmentId, StreamCut, StreamName
from testkit.killed import before_call
from testkit.locks import Locked
from testkit.small_archives import (
    NAME,
    RANGE_SIZE,
    Vault,
    a_root,
    a_vault,
    archive_of,
    before_a_decision,
    clear,
    contents,
    data_keys,
    is_sound,
    objects_of,
    replace_object,
)

PREFIX = f"{NAME}/"
LAYOUTS = ("events", "chunks", "events", "chunks")


vault = a_vault(
    events=80,
    largest=2000,
    exports=[(layout, "") for layout in LAYOUTS],
    between=[(b"event %d" % number, b"x" * 300) for number in (1, 2, 3)],
)
"""Four generations in alternating layouts, none of them read back yet."""


def rotate(vault: Vault, root: str = "", **options: Any) -> RotateReport:
    return rotate_stream(vault.uri(), root or vault.root, range_size=RANGE_SIZE, master="inline", **options)


def in_force(root: str) -> list[int]:
    return archive_of(root).generations()


def stopped(report: RotateReport) -> tuple[int, str]:
    assert report.stopped is not None
    return report.stopped.generation, report.stopped.reason


def copy(root: str) -> str:
    copied = a_root()
    for key, data in contents(root).items():
        objects_of(copied).put(key, data)
    return copied


def created(root: str, generation: int) -> datetime:
    return archive_of(root).manifest(generation).created


def test_rotate_exports_checks_expires_holds_and_truncates(vault: Vault) -> None:
    vault.add(b"new")
    report = rotate(vault, keep=2, truncate_source=True, hold="monthly")
    assert (report.export.unchanged, report.generation, report.first_generation) == (False, 5, 4)
    assert (report.checked, report.expired, report.stopped) == ((1, 2, 3, 4, 5), (1, 2, 3), None)
    assert in_force(vault.root) == [4, 5]
    assert archive_of(vault.root).listing().holds == {5: ("monthly",)}
    assert report.objects_deleted > 0
    assert report.truncated
    assert vault.described.head == archive_of(vault.root).manifest(5).to
    assert is_sound(vault.root)
    kept = sum(g.manifest.events for g in archive_of(vault.root).history().generations)
    assert sum("/events/" in key for key in data_keys(vault.root)) == kept - archive_of(vault.root).manifest(4).events

    again = rotate(vault, keep=2, truncate_source=True)
    assert (again.export.unchanged, again.checked, again.expired, again.objects_deleted) == (True, (), (), 0)
    vault.add(b"newer")
    last = rotate(vault, keep=1)
    assert (last.checked, last.expired, last.generation) == ((6,), (4,), 6)
    assert stopped(last) == (5, "hold monthly")


def test_rotate_without_a_policy_expires_nothing(vault: Vault) -> None:
    report = rotate(vault)
    assert (report.expired, report.objects_deleted, report.truncated) == ((), 0, False)
    assert in_force(vault.root) == [1, 2, 3, 4]
    assert vault.described.head == archive_of(vault.root).manifest(1).from_


@pytest.mark.parametrize(("keep", "left"), [(1, [4]), (3, [2, 3, 4]), (4, [1, 2, 3, 4]), (99, [1, 2, 3, 4])])
def test_keep_leaves_so_many_generations(vault: Vault, keep: int, left: list[int]) -> None:
    assert rotate(vault, keep=keep, dry_run=True).first_generation == left[0]
    assert in_force(vault.root) == [1, 2, 3, 4]
    report = rotate(vault, keep=keep)
    assert in_force(vault.root) == left
    assert list(report.expired) == [number for number in (1, 2, 3, 4) if number not in left]
    assert is_sound(vault.root)


def test_until_expires_generations_up_to_a_moment(vault: Vault) -> None:
    second = created(vault.root, 2)
    assert rotate(vault, until=created(vault.root, 1) - timedelta(milliseconds=1)).expired == ()
    text = second.astimezone().isoformat()  # the same time in another notation
    assert rotate(vault, until=text).expired == (1, 2)
    later = rotate(vault, until=created(vault.root, 4) + timedelta(seconds=1))
    assert later.expired == ()
    assert "--until, which is later than the newest generation" in stopped(later)[1]
    assert rotate(vault, until=created(vault.root, 4)).first_generation == 4, "never the newest"


def test_keep_for_counts_from_when_the_tail_was_taken(vault: Vault) -> None:
    assert rotate(vault, keep_for=3600).expired == ()
    assert rotate(vault, keep_for=0).expired == (1, 2, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"keep": 1, "keep_for": 3.0},
        {"keep_for": 3.0, "until": "2026-01-01T00:00:00Z"},
        {"keep": 0},
        {"keep_for": -1.0},
        {"keep_for": float("inf")},
        {"until": "2026-01-01T00:00:00"},
        {"until": "yesterday"},
        {"until": datetime(2026, 1, 1)},  # noqa: DTZ001  (that is what is refused)
        {"hold": "a b"},
        {"storage_class": "GLACIER"},
        {"storage_class": "standard"},
        {"layout": "pages"},
    ],
)
def test_invalid_options_change_nothing(vault: Vault, options: dict[str, Any]) -> None:
    before = contents(vault.root)
    vault.add(b"new")
    with pytest.raises(Usage):
        rotate(vault, **options)
    assert contents(vault.root) == before


def test_dry_run_writes_nothing_and_reports_what_a_run_does(vault: Vault) -> None:
    vault.add(b"new")
    hold_archive(vault.archive, "a", generation=3)
    before = contents(vault.root)
    told = rotate(vault, keep=1, truncate_source=True, dry_run=True)
    assert contents(vault.root) == before
    assert (told.dry_run, told.truncated) == (True, False)
    done = rotate(vault, keep=1, truncate_source=True)
    for name in ("generation", "first_generation", "checked", "expired", "stopped", "cut"):
        assert getattr(told, name) == getattr(done, name), name
    assert done.expired == (1, 2)


def grow_idle(vault: Vault, times: int) -> None:
    """The auto-scaler scales an idle stream: each time a generation without an event."""
    for _ in range(times):
        with vault.store as store:
            (*_, (segment, keys)) = store.describe(NAME).epochs[-1].segments.items()
            middle = (keys.low + keys.high) / 2
            store.scale(NAME, [segment], [KeyRange(keys.low, middle), KeyRange(middle, keys.high)])
        vault.export()


def test_keep_does_not_count_generations_without_events(vault: Vault) -> None:
    events = archive_of(vault.root).history().events
    grow_idle(vault, 3)
    assert [archive_of(vault.root).manifest(number).events for number in (5, 6, 7)] == [0, 0, 0]
    assert rotate(vault, keep=4, truncate_source=True).expired == ()
    assert archive_of(vault.root).history().events == events
    assert rotate(vault, keep=1, dry_run=True).expired == (1, 2, 3)
    assert rotate(vault, keep=1).expired == (1, 2, 3), "the last with events stays"
    vault.add(b"new")
    assert rotate(vault, keep=1).expired == (4, 5, 6, 7)


@pytest.fixture(params=["server", "folder"])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whose clock says when a manifest was written: the store's, or only this machine's."""
    if request.param == "folder":
        monkeypatch.setattr(ObstoreStore, "modified", lambda *_: None)
    return str(request.param)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("days", [20, 3650])
@pytest.mark.parametrize("grown", [False, True])
def test_clock_far_ahead_expires_nothing(vault: Vault, monkeypatch: pytest.MonkeyPatch, grown: bool, days: int) -> None:
    """Not even in the run that adds a generation with the wrong time, which is no jump if it is less than a month."""
    ahead = now_utc() + timedelta(days=days)
    monkeypatch.setattr("streamvault.exporter.rotate.now_utc", lambda: ahead)
    if grown:
        vault.add(b"new")
        monkeypatch.setattr("streamvault.exporter.plan.now_utc", lambda: ahead)
    report = rotate(vault, keep_for=86400)
    assert (report.generation, report.expired) == (5 if grown else 4, ())
    assert "the clock may be wrong" in stopped(report)[1]


@pytest.mark.usefixtures("clock")
def test_clock_far_ahead_expires_nothing_in_later_runs(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run adds a generation that has the wrong time, too; when the clock is right again, expiry goes on."""
    for shift in (timedelta(days=3650), timedelta(days=3651)):
        ahead = now_utc() + shift
        with monkeypatch.context() as patch:
            patch.setattr("streamvault.exporter.rotate.now_utc", lambda ahead=ahead: ahead)
            patch.setattr("streamvault.exporter.plan.now_utc", lambda ahead=ahead: ahead)
            vault.add(b"new")
            report = rotate(vault, keep_for=30 * 86400)
            assert (report.expired, stopped(report)[0]) == ((), 1)
    assert in_force(vault.root) == [1, 2, 3, 4, 5, 6]
    vault.add(b"the clock is right again")
    assert rotate(vault, keep_for=30 * 86400).expired == ()
    assert rotate(vault, keep_for=0).expired == (1, 2, 3, 4)


def test_until_is_measured_by_the_store(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = now_utc() + timedelta(days=3650)
    with monkeypatch.context() as patch:
        patch.setattr("streamvault.exporter.plan.now_utc", lambda: ahead)
        vault.add(b"new")
        rotate(vault)
    assert created(vault.root, 5) == ahead
    report = rotate(vault, until=ahead - timedelta(days=30))
    assert report.expired == ()
    assert "--until, which is later than the newest generation" in stopped(report)[1]


@pytest.mark.parametrize(("keep", "expired"), [(1, (1, 2, 3)), (2, (3,)), (3, (2, 3))])
def test_expiry_that_another_run_decides_first_is_whole(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, keep: int, expired: tuple[int, ...]
) -> None:
    """What the other decided is not decided again: of an own decision whose answer was lost, the report says it all."""
    rotate(vault)
    before_a_decision(monkeypatch, lambda: rotate(vault, keep=keep))
    assert rotate(vault, keep=1).expired == expired
    assert in_force(vault.root) == [4]
    assert is_sound(vault.root)


@pytest.mark.parametrize("dry_run", [False, True])
def test_expiry_whose_newest_generation_is_merged_meanwhile_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    """It pauses before it asks for the newest manifest's time, and by then the manifest is deleted."""
    vault = Vault(tmp_path)
    vault.make(events=10, largest=100)
    vault.export()
    vault.add(b"new")
    rotate(vault)

    def others() -> None:
        compact_archive(vault.archive, master="inline[2]")
        clear(vault)

    before_call(monkeypatch, ObstoreStore, "modified", others)
    assert rotate(vault, keep=1, dry_run=dry_run).expired == ()
    assert [tuple(span) for span in archive_of(vault.root).listing().spans] == [(1, 2)]


def test_rotate_reads_back_only_new_generations(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    rotate(vault)
    read: list[str] = []
    get = ObstoreStore.get

    def counted(self: ObstoreStore, key: str, *most: int) -> bytes:
        read.append(key)
        return get(self, key, *most)

    monkeypatch.setattr(ObstoreStore, "get", counted)
    vault.add(b"new")
    report = rotate(vault, keep=4)
    assert report.checked == (5,)
    data = [key for key in read if "/_" not in key]
    assert len(data) == archive_of(vault.root).manifest(5).events
    mark = find_checked(objects_of(vault.root), NAME, GenerationSpan.of(5))
    assert mark is not None
    assert mark.ranges == report.ranges_read


def test_complete_check_counts_as_reading_back(vault: Vault) -> None:
    assert check_archive(vault.archive, generation=2, read_data=True, master="inline").marked == (2,)
    assert check_archive(vault.archive, read_data=True, master="inline").marked == (1, 3, 4)
    assert check_archive(vault.archive, read_data=True, master="inline").marked == ()
    report = rotate(vault, keep=1)
    assert (report.checked, report.ranges_read) == ((), 0)
    assert report.expired == (1, 2, 3)


@pytest.mark.parametrize(
    "options", [{}, {"subset": 0.5, "seed": 1}, {"stored_checksums": True}], ids=["listing", "sample", "checksums"]
)
def test_check_that_does_not_read_everything_does_not_count(vault: Vault, options: dict[str, Any]) -> None:
    before = contents(vault.root)
    assert check_archive(vault.archive, master="inline", **options).marked == ()
    assert contents(vault.root) == before


def test_check_that_finds_damage_does_not_count(vault: Vault) -> None:
    key = max(data_keys(vault.root))
    replace_object(vault.root, key, contents(vault.root)[key][:-1] + b"?")
    report = check_archive(vault.archive, read_data=True, master="inline")
    assert (report.ok, report.marked) == (False, ())
    assert not archive_of(vault.root).listing().checked


def test_check_that_may_not_write_says_that_it_does_not_count(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_store: ObstoreStore, _key: str, *_: object) -> None:
        raise AccessDenied("access denied")

    monkeypatch.setattr(ObstoreStore, "put", denied)
    report = check_archive(vault.archive, read_data=True, master="inline")
    assert (report.ok, report.marked) == (True, ())
    note = "generation 1 cannot be recorded as read back, so a rotation reads it again: access denied"
    assert [one for one in report.notes if "recorded" in one] == [note]


def test_damage_stops_expiry_and_truncation(vault: Vault) -> None:
    rotate(vault)
    vault.add(b"new")
    vault.export()
    key = next(key for key in sorted(data_keys(vault.root), reverse=True) if key.endswith("-0000000011"))
    replace_object(vault.root, key, b"NEW")
    with pytest.raises(Damaged, match="generation 5 differs from what was archived"):
        rotate(vault, keep=1, truncate_source=True)
    assert in_force(vault.root) == [1, 2, 3, 4, 5]
    assert 5 not in archive_of(vault.root).listing().checked
    assert vault.described.head == archive_of(vault.root).manifest(1).from_


def test_missing_manifest_stops_expiry_and_truncation(vault: Vault) -> None:
    replace_object(vault.root, PREFIX + manifest_key(GenerationSpan.of(2)), None)
    before = contents(vault.root)
    with pytest.raises(Damaged, match="manifest of generation 2 is missing"):
        rotate(vault, keep=1, truncate_source=True)
    assert contents(vault.root) == before


def test_mark_of_another_manifest_stops_truncation(vault: Vault) -> None:
    rotate(vault)
    mark = find_checked(objects_of(vault.root), NAME, GenerationSpan.of(4))
    assert mark is not None
    replace_object(
        vault.root, PREFIX + checked_key(GenerationSpan.of(4)), mark.model_copy(update={"digest": "0" * 64}).encode()
    )
    with pytest.raises(Damaged, match="to a different manifest"):
        rotate(vault, truncate_source=True)
    assert vault.described.head == archive_of(vault.root).manifest(1).from_


def test_recreated_source_is_not_truncated(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted and recreated while the archive was read back."""

    def made_again(*arguments: Any) -> tuple[list[int], int]:
        vault.seal()
        vault.delete()
        vault.make(events=5, largest=50)
        heads.append(vault.described.head)
        return read_back(*arguments)

    heads: list[StreamCut] = []
    monkeypatch.setattr("streamvault.exporter.rotate.read_back", made_again)
    with pytest.raises(Conflict, match="not the one that was archived"):
        rotate(vault, truncate_source=True)
    assert [vault.described.head] == heads


def test_sealed_source_is_archived_and_not_truncated(vault: Vault) -> None:
    vault.seal()
    head = vault.described.head
    report = rotate(vault, keep=1, truncate_source=True)
    assert (report.truncated, report.expired) == (False, (1, 2, 3)), "the fifth has no events"
    assert any("the stream is sealed" in warning for warning in report.warnings)
    assert vault.described.head == head


def test_source_truncated_further_in_part_is_truncated_to_the_tail(vault: Vault) -> None:
    rotate(vault)
    archived = archive_of(vault.root).manifest().to
    vault.add(b"new")
    tail = vault.described.tail
    first = min(tail.offsets)
    vault.truncate(StreamCut(NAME, {**archived.offsets, first: tail.offsets[first]}))
    assert rotate(vault, truncate_source=True).export.gaps
    assert vault.described.head == tail


# holds


def test_hold_keeps_its_generation_and_all_later_ones(vault: Vault) -> None:
    assert hold_archive(vault.archive, "audit", generation=2, why="§ 147").generations == (2,)
    assert hold_archive(vault.archive, "audit", generation=2).unchanged
    hold_archive(vault.archive, "other", generation=2)
    hold_archive(vault.archive, "audit")
    report = rotate(vault, keep=1)
    assert report.expired == (1,)
    assert stopped(report) == (2, "holds audit, other")
    assert release_archive(vault.archive, "audit", dry_run=True).generations == (2, 4)
    assert release_archive(vault.archive, "audit").generations == (2, 4)
    assert rotate(vault, keep=1).expired == ()
    release_archive(vault.archive, "other", generation=2)
    assert rotate(vault, keep=1).expired == (2, 3)


def test_invalid_hold_or_release_is_refused(vault: Vault) -> None:
    rotate(vault, keep=2)
    for attempt, said in (
        (lambda: hold_archive(vault.archive, "a", generation=1), "has expired"),
        (lambda: hold_archive(vault.archive, "a", generation=9), "no generation 9"),
        (lambda: hold_archive(vault.archive, "a" * 65), "64 letters"),
        (lambda: hold_archive(vault.archive, "../a"), "64 letters"),
        (lambda: hold_archive(vault.archive, "a", why="x" * 1001), "1000 characters"),
        (lambda: release_archive(vault.archive, "a"), "no hold named a"),
        (lambda: release_archive(vault.archive, "a", generation=1), "has expired"),
        (lambda: hold_archive(f"{vault.root}/x/y", "a"), "no archive"),
    ):
        with pytest.raises(Problem, match=said):
            attempt()


def test_hold_on_a_generation_that_expires_meanwhile_is_refused(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    before_a_decision(monkeypatch, lambda: rotate(vault, keep=1))
    with pytest.raises(Conflict, match="expired in the meantime"):
        hold_archive(vault.archive, "late", generation=1)
    assert archive_of(vault.root).listing().decision.holds == ()


# locks, by a test double; real ones are in tests/integration/test_locks.py


@pytest.mark.parametrize("locked", ["_manifest/0000000002.json", "_manifest/0000000002.ranges.parquet", "data"])
def test_locked_object_keeps_its_whole_generation(vault: Vault, monkeypatch: pytest.MonkeyPatch, locked: str) -> None:
    if locked == "data":
        segment = [one for one in archive_of(vault.root).manifest(2).segments if one.events][-1]
        locked = next(key for key in data_keys(vault.root) if f"{segment.start:019d}-" in key and "/chunks/" in key)
        locked = locked.removeprefix(PREFIX)
    monkeypatch.setattr(RootAddress, "open_locks", lambda _: Locked(PREFIX + locked))
    report = rotate(vault, keep=1)
    assert (report.expired, stopped(report)[0]) == ((1,), 2)
    assert report.stopped is not None
    assert report.stopped.until == "2030-01-01T00:00:00Z"
    assert locked in report.stopped.reason
    assert is_sound(vault.root)
    monkeypatch.setattr(RootAddress, "open_locks", lambda _: Locked("nothing"))
    assert rotate(vault, keep=1).expired == (2, 3)


# an archive whose head has moved


def test_readers_start_at_the_head(vault: Vault) -> None:
    pointers = vault.events()
    rotate(vault, keep=2)
    history = archive_of(vault.root).history()
    assert history.head == archive_of(vault.root).manifest(3).from_
    with pytest.raises(Problem, match=r"generation 2 has expired.* Available: 3 to 4"):
        show_archive(vault.archive, generation=2)
    with pytest.raises(Problem, match=r"no generation 0: .* Available: 3 to 4"):
        show_archive(vault.archive, generation=0)
    assert show_archive(vault.archive).generation == 4
    (summary,) = list_archives(vault.root)
    assert (summary.generations_in_force, summary.first_generation, summary.generation) == (2, 3, 4)
    assert summary.events == history.events
    timeline = show_timeline(vault.archive)
    assert timeline.expired_up_to == 2
    assert [entry.generation for entry in timeline.entries] == [3, 4]
    assert all(entry.checked_at for entry in timeline.entries)
    assert timeline.entries[0].to_cut == timeline.entries[1].from_cut
    kept = [(pointer, payload) for pointer, payload in pointers if is_held(vault, pointer)]
    assert len(kept) == history.events
    assert all(get_event(vault.archive, str(pointer)) == payload for pointer, payload in kept)
    gone = next(pointer for pointer, _ in pointers if not is_held(vault, pointer))
    with pytest.raises(Problem, match="is outside the archive"):
        get_event(vault.archive, str(gone))


def is_held(vault: Vault, pointer: Any) -> bool:
    head = archive_of(vault.root).history().head.offsets
    return bool(pointer.offset >= head.get(pointer.segment, 1 << 62))


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_import_restores_what_has_not_expired(vault: Vault, offsets: Any) -> None:
    rotate(vault, keep=2)
    back, history = StreamName("scope", "back"), archive_of(vault.root).history()
    report = import_stream(vault.archive, vault.uri(back), offsets=offsets, master="inline")
    assert (report.events, report.bytes, report.moved_bytes) == (history.events, history.bytes, history.bytes)
    if offsets == "keep":
        vault.truncate(history.head)
        assert vault.shape(back) == vault.shape()
        assert vault.digest(back) == vault.digest()


def test_convert_keeps_the_head(vault: Vault) -> None:
    rotate(vault, keep=2)
    root = a_root()
    report = convert_archive(vault.archive, root, layout="chunks", master="inline")
    assert report.converted == (3, 4)
    assert in_force(root) == [3, 4]
    assert not archive_of(root).listing().unfinished
    assert is_sound(root)
    vault.add(b"new")
    export_stream(vault.uri(), root, range_size=RANGE_SIZE, master="inline")
    assert in_force(root) == [3, 4, 5]
    behind, old = copy(vault.root), copy(root)
    rotate(vault, keep=1)
    vault.add(b"newer")
    rotate(vault, keep=1)
    assert in_force(vault.root) == [6]
    ends_before = a_root()
    convert_archive(f"{behind}/{NAME}", ends_before, layout="chunks", master="inline")
    with pytest.raises(Conflict, match="ends with generation 4, but the source begins with generation 6"):
        convert_archive(vault.archive, ends_before, layout="chunks", master="inline")
    assert convert_archive(vault.archive, old, layout="chunks", master="inline").converted == (6,)


def test_convert_does_not_bring_back_expired_generations(vault: Vault) -> None:
    root = a_root()
    convert_archive(vault.archive, root, layout="chunks", master="inline")
    rotate(vault, root, keep=2)
    before = contents(root)
    assert convert_archive(vault.archive, root, layout="chunks", master="inline").unchanged
    assert contents(root) == before
    vault.add(b"new")
    vault.export()
    assert convert_archive(vault.archive, root, layout="chunks", master="inline").converted == (5,)
    assert in_force(root) == [3, 4, 5]
    assert is_sound(root)


def test_missing_manifest_behind_a_moved_head_is_damage(vault: Vault) -> None:
    rotate(vault, keep=2)
    for lost, attempt in (
        ([3], archive_of(vault.root).history),
        ([3, 4], archive_of(vault.root).newest),
        ([3, 4], lambda: show_timeline(vault.archive)),
        ([3, 4], lambda: export_stream(vault.uri(), vault.root, master="inline")),
    ):
        for number in lost:
            objects_of(vault.root).delete([PREFIX + manifest_key(GenerationSpan.of(number))])
        with pytest.raises(Damaged, match="the manifest of generation 3 is missing"):
            attempt()
    (summary,) = list_archives(vault.root)
    assert "generation 3 is missing" in summary.problem


# restoring a point in time


def test_import_at_a_moment_restores_the_generation_before_it(vault: Vault) -> None:
    third = created(vault.root, 3)
    back = StreamName("scope", "back")
    moment = third + timedelta(microseconds=400)
    report = import_stream(vault.archive, vault.uri(back), at=moment, master="inline", dry_run=True)
    assert report.generation == 3
    assert report.seconds_before == pytest.approx(0.0, abs=0.001)
    assert any("events written in between are not restored" in warning for warning in report.warnings)
    later = import_stream(vault.archive, vault.uri(back), at="2999-01-01T00:00:00+01:00", master="inline")
    assert later.generation == 4
    assert later.at == "2998-12-31T23:00:00Z"
    with pytest.raises(Problem, match=r"no generation is from 2001-01-01T00:00:00Z or earlier; the oldest is from 20"):
        import_stream(vault.archive, vault.uri(back), at="2001-01-01T00:00:00Z", master="inline")
    with pytest.raises(Usage, match=r"^at and generation are mutually exclusive"):
        import_stream(vault.archive, vault.uri(back), at=moment, generation=1, master="inline")


def test_import_at_a_moment_takes_the_newest_generation_of_it_whatever_the_clocks_were(vault: Vault) -> None:
    """The second generation was taken by a machine whose clock was an hour ahead."""
    archive = archive_of(vault.root)
    second = archive.manifest(2)
    ahead = second.model_copy(update={"created": second.created + timedelta(hours=1)})
    replace_object(vault.root, PREFIX + manifest_key(GenerationSpan.of(2)), ahead.encode())
    assert generation_at(archive, created(vault.root, 3)) == 3
    assert generation_at(archive, created(vault.root, 1)) == 1


# deletion


def test_delete_expired_deletes_nothing_in_force(vault: Vault) -> None:
    before = contents(vault.root)
    assert delete_expired(RootAddress.parse(vault.root), NAME, ExpiryRule(keep=1)).objects == 0
    objects_of(vault.root).delete([PREFIX + manifest_key(GenerationSpan.of(1))])
    with pytest.raises(Damaged, match="generation 1 is missing"):
        delete_expired(RootAddress.parse(vault.root), NAME, ExpiryRule(keep=1))
    assert before.keys() - contents(vault.root).keys() == {PREFIX + manifest_key(GenerationSpan.of(1))}


def test_below_head_covers_the_earlier_generations_alone(vault: Vault) -> None:
    archive = archive_of(vault.root)
    below = below_head(archive.manifest(3))
    for number in (1, 2):
        for entry in archive.manifest(number).segments:
            segment = next(segment for segment in below if segment.in_stream(NAME) == entry.name)
            assert below[segment][1] >= entry.end
    later = {entry.name: entry.start for number in (3, 4) for entry in reversed(archive.manifest(number).segments)}
    for segment, (_, end) in below.items():
        assert end <= later.get(segment.in_stream(NAME), end)


def test_objects_late_runs_leave_below_the_head_are_removed(vault: Vault) -> None:
    rotate(vault)
    before = contents(vault.root)
    rotate(vault, keep=1)
    after = set(contents(vault.root))
    late = {key: data for key, data in before.items() if key not in after}
    late |= {
        PREFIX + row_key(GenerationSpan(1, 2), SegmentId(0, 0), 5): b"{}",
        PREFIX + manifest_key(GenerationSpan(2, 4)): b"{}",
        PREFIX + manifest_key(GenerationSpan(1, 2)): b"{}",
    }
    for key, data in late.items():
        objects_of(vault.root).put(key, data)
    assert in_force(vault.root) == [4]
    assert check_archive(vault.archive, master="inline").ok
    report = rotate(vault, keep=1)
    assert report.objects_deleted == sum("/_" not in key for key in late)
    assert set(contents(vault.root)) == after


@pytest.mark.parametrize("of_manifest", [False, True], ids=["of an event", "of the manifest"])
def test_lock_set_after_the_decision_stops_the_deletion(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, of_manifest: bool
) -> None:
    """Manifests are deleted first: while one is locked, all of the data stay."""
    rotate(vault)
    data = set(data_keys(vault.root))
    key = f"{NAME}/{manifest_key(GenerationSpan.of(1))}" if of_manifest else min(data)
    answers = iter([None, Locked(key)])
    monkeypatch.setattr(RootAddress, "open_locks", lambda _: next(answers))
    report = rotate(vault, keep=1)
    assert report.expired == (1, 2, 3)
    assert any("was not deleted" in warning and key in warning for warning in report.warnings)
    assert (data if of_manifest else {key}) <= set(contents(vault.root))
    assert archive_of(vault.root).listing().unfinished
    assert is_sound(vault.root)
    monkeypatch.setattr(RootAddress, "open_locks", lambda _: None)
    assert rotate(vault, keep=1).resumed
    assert key not in contents(vault.root)


def test_check_of_one_generation_ignores_the_others(vault: Vault) -> None:
    report = check_archive(vault.archive, generation=2, read_data=True, master="inline")
    assert report.ok
    assert report.generations == (2,)
    assert report.ranges_read == report.ranges
    assert report.events == archive_of(vault.root).manifest(2).events
    objects_of(vault.root).delete([next(key for key in data_keys(vault.root) if "/events/" in key)])
    assert check_archive(vault.archive, generation=2, master="inline").ok
    assert not check_archive(vault.archive, generation=1, master="inline").ok
