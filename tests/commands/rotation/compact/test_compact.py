"""Merging of small generations: the stream and the points in time to restore stay the same at every stage."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    compact_archive,
    convert_archive,
    export_stream,
    get_event,
    hold_archive,
    import_stream,
    list_archives,
    release_archive,
    rotate_stream,
    show_timeline,
)
from streamvault.common.errors import Conflict, Damaged, Failed, Usage
from streamvault.common.units import now_utc
from streamvault.exporter import archived_events, compact
from streamvault.exporter.reports import CompactReport, RotateReport
from streamvault.layouts.keys import (
    CHUNK_KEYS,
    GenerationSpan,
    checked_key,
    decision_key,
    manifest_key,
    plan_key,
    ranges_key,
)
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests import merging
from streamvault.manifests.listing import KEPT
from streamvault.manifests.merging import delete_replaced
from streamvault.streamstore.model import StreamName
from testkit.small_archives import (
    KINDS,
    NAME,
    Vault,
    a_root,
    archive_of,
    before_a_decision,
    clear,
    contents,
    data_keys,
    is_sound,
    merge,
    replace_object,
)
from tests.told import Ran

PREFIX = f"{NAME}/"
LATER = timedelta(hours=2)
RANGE_SIZE = 16 * 1024


def kinds(kind: tuple[LayoutName, Compression]) -> str:
    return "-".join(filter(None, kind))


def export(vault: Vault, kind: tuple[LayoutName, Compression]) -> None:
    export_stream(vault.uri(), vault.root, layout=kind[0], compress=kind[1], range_size=RANGE_SIZE, master="inline[2]")


@pytest.fixture(params=KINDS, ids=kinds)
def kind(request: pytest.FixtureRequest) -> tuple[LayoutName, Compression]:
    found: tuple[LayoutName, Compression] = request.param
    return found


def grown(folder: Path, kind: tuple[LayoutName, Compression], generations: int = 5) -> Vault:
    """A stream with scales and a truncation, and its archive of some generations."""
    vault = Vault(folder)
    vault.make(events=120, largest=4000)
    export(vault, kind)
    for number in range(1, generations):
        vault.add(*(b"%d-%d" % (number, index) * 20 for index in range(25)))
        export(vault, kind)
    return vault


@pytest.fixture
def vault(tmp_path: Path, kind: tuple[LayoutName, Compression]) -> Vault:
    return grown(tmp_path, kind)


@pytest.fixture
def chunks(tmp_path: Path) -> Vault:
    return grown(tmp_path, ("chunks", ""))


def compacted(vault: Vault, **options: Any) -> CompactReport:
    return compact_archive(vault.archive, master="inline[2]", **options)


def rotated(vault: Vault, **options: Any) -> RotateReport:
    return rotate_stream(vault.uri(), vault.root, layout="chunks", range_size=RANGE_SIZE, master="inline[2]", **options)


def restored(vault: Vault, name: str, **options: Any) -> tuple[Any, dict[str, object]]:
    target = StreamName("scope", name)
    import_stream(vault.archive, vault.uri(target), master="inline[2]", **options)
    return vault.digest(target), vault.shape(target)


def source(vault: Vault) -> tuple[Any, dict[str, object]]:
    return vault.digest(), vault.shape()


def flip(vault: Vault, key: str) -> None:
    """Change a byte within an event: only the digest differs."""
    *data, last = contents(vault.root)[key]
    replace_object(vault.root, key, bytes([*data, last ^ 1]))


def names(vault: Vault) -> list[tuple[int, int]]:
    return list(archive_of(vault.root).listing().spans)


def test_merged_generations_are_the_same_stream_before_and_after_clearing(vault: Vault) -> None:
    before = archive_of(vault.root).history()
    whole, third = source(vault), restored(vault, "third", generation=3)
    report = compacted(vault)
    assert [(run.first, run.generation, run.merged) for run in report.runs] == [(1, 5, 5)]
    assert names(vault) == [(1, 5)]
    assert report.waits_until
    for stage in ("before", "after"):
        after = archive_of(vault.root).history()
        assert (after.content_digest, after.events, after.bytes) == (before.content_digest, before.events, before.bytes)
        assert (after.head, after.tail, after.generation) == (before.head, before.tail, 5)
        assert restored(vault, f"whole-{stage}") == whole
        assert restored(vault, f"third-{stage}", generation=3) == third
        (summary,) = list_archives(vault.root)
        assert (summary.first_generation, summary.generation, summary.generations_in_force) == (1, 5, 1)
        (entry,) = show_timeline(vault.archive).entries
        assert (entry.first, entry.generation, bool(entry.checked_at)) == (1, 5, stage == "after")
        assert is_sound(vault.root)
        pointer, payload = vault.events()[-1]
        assert get_event(vault.archive, str(pointer)) == payload
        deleted = clear(vault)
        if before.generations[0].manifest.layout == "events":
            assert deleted == 0
        elif stage == "before":
            assert deleted > 0
    keys = [key.removeprefix(PREFIX) for key in contents(vault.root)]
    assert sorted(key for key in keys if key.startswith("_")) == sorted(
        [
            checked_key(GenerationSpan(1, 5)),
            decision_key(1),
            manifest_key(GenerationSpan(1, 5)),
            ranges_key(GenerationSpan(1, 5)),
        ]
    )
    rows = [row for rows in archive_of(vault.root).load(5).rows.values() for row in rows]
    if before.generations[0].manifest.layout == "chunks":
        assert sorted(CHUNK_KEYS.parse(key)[:2] for key in keys if not key.startswith("_")) == sorted(  # type: ignore[index]
            (row.segment, row.start) for row in rows
        )
        assert len(rows) < sum(len(held) for g in before.generations for held in g.rows.values())
    again = compacted(vault)
    assert (again.unchanged, again.moved_bytes, again.waits_until) == (True, 0, "")


def test_merged_generations_are_merged_again(chunks: Vault) -> None:
    compacted(chunks)
    for number in range(3):
        chunks.add(b"later %d" % number)
        export(chunks, ("chunks", ""))
    assert names(chunks) == [(1, 5), (6, 6), (7, 7), (8, 8)]
    before = archive_of(chunks.root).history()
    at_six = archive_of(chunks.root).history(6).content_digest
    at_two = archive_of(chunks.root).history(2).content_digest
    report = compacted(chunks)
    assert [(run.first, run.generation, run.merged) for run in report.runs] == [(1, 8, 4)]
    assert report.moved_bytes < before.bytes, "full ranges stay as they are"
    after = archive_of(chunks.root)
    assert [one.generation for one in after.manifest().replaces] == list(range(1, 9))
    assert after.history().content_digest == before.content_digest
    assert (after.history(6).content_digest, after.history(2).content_digest) == (at_six, at_two)
    assert is_sound(chunks.root)
    clear(chunks)
    assert is_sound(chunks.root)
    assert restored(chunks, "again") == source(chunks)


def test_archive_with_merged_generations_is_converted_and_added_to(chunks: Vault) -> None:
    compacted(chunks)
    chunks.add(b"new")
    export(chunks, ("chunks", ""))
    root = a_root()
    report = convert_archive(chunks.archive, root, layout="events", master="inline[2]")
    assert report.converted == (5, 6)
    there = archive_of(root)
    assert there.listing().spans == ((1, 5), (6, 6))
    assert there.history().content_digest == archive_of(chunks.root).history().content_digest
    assert is_sound(root)
    assert convert_archive(chunks.archive, root, layout="events", master="inline[2]").unchanged
    # merged on either side since
    compact_archive(f"{root}/{NAME}", master="inline")
    assert convert_archive(chunks.archive, root, layout="events", master="inline[2]").unchanged
    compacted(chunks)
    chunks.add(b"newer")
    export(chunks, ("chunks", ""))
    assert convert_archive(chunks.archive, root, layout="events", master="inline[2]").converted == (7,)
    other = a_root()
    early = Vault(chunks.folder, other)
    export(early, ("events", ""))
    with pytest.raises(Conflict):
        convert_archive(chunks.archive, other, layout="events", master="inline[2]")


def test_moments_between_merged_generations_are_restored(chunks: Vault) -> None:
    before = [archive_of(chunks.root).history(number) for number in range(1, 6)]
    compacted(chunks)
    clear(chunks)
    for history in before:
        target = StreamName("scope", f"at-{history.generation}")
        moment = history.generations[-1].manifest.created
        report = import_stream(chunks.archive, chunks.uri(target), at=moment, master="inline[2]")
        assert report.generation == history.generation
        assert chunks.tail(target) == history.tail.offsets


def test_held_generation_is_not_merged_and_a_later_hold_holds_all(chunks: Vault) -> None:
    hold_archive(chunks.archive, "keep", generation=3)
    assert [(run.first, run.generation) for run in compacted(chunks).runs] == [(1, 2), (4, 5)]
    assert names(chunks) == [(1, 2), (3, 3), (4, 5)]
    release_archive(chunks.archive, "keep")
    compacted(chunks)
    assert names(chunks) == [(1, 5)]
    hold_archive(chunks.archive, "late", generation=2)
    assert archive_of(chunks.root).listing().holds == {5: ("late",)}
    chunks.add(b"new")
    report = rotated(chunks, keep=1)
    assert (report.expired, report.checked) == ((), (5, 6))
    assert report.stopped is not None
    assert release_archive(chunks.archive, "late", generation=3).generations == (5,)
    report = rotated(chunks, keep=1)
    assert (report.expired, report.first_generation) == ((1, 2, 3, 4, 5), 6)
    assert not [key for key in contents(chunks.root) if "-0000000001." in key]
    assert is_sound(chunks.root)


def test_layouts_are_not_mixed(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=30, largest=500)
    for kind in (KINDS[0], KINDS[0], KINDS[1], KINDS[1], KINDS[2], KINDS[2], KINDS[0]):
        export(vault, kind)
        vault.add(b"x")
    report = compacted(vault)
    assert [(run.first, run.generation) for run in report.runs] == [(1, 2), (3, 4), (5, 6)]
    assert is_sound(vault.root)


@pytest.mark.parametrize(
    "options", [{"target": 0}, {"at_least": 1}, {"grace": 599.0}, {"window": 1}, {"storage_class": "GLACIER"}]
)
def test_invalid_options_change_nothing(chunks: Vault, options: dict[str, Any]) -> None:
    before = contents(chunks.root)
    with pytest.raises(Usage):
        compacted(chunks, **options)
    assert contents(chunks.root) == before


def test_dry_run_writes_nothing_and_reports_what_a_run_does(chunks: Vault) -> None:
    before = contents(chunks.root)
    told = compacted(chunks, dry_run=True)
    assert contents(chunks.root) == before
    done = compacted(chunks)
    assert (told.runs, told.moved_bytes, told.joined) == (done.runs, done.moved_bytes, done.joined)
    assert compacted(chunks, at_least=9).unchanged


def test_compact_refuses_a_damaged_archive(chunks: Vault) -> None:
    before = names(chunks)
    flip(chunks, data_keys(chunks.root)[-1])
    with pytest.raises(Damaged, match="do not match the manifest"):
        compacted(chunks)
    assert names(chunks) == before


def test_run_that_cannot_be_merged_does_not_stop_the_others(chunks: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some chunks cannot be read (for example from Glacier), also those of a merge that an earlier run has started."""
    real = archived_events.rewrite_range

    def cold(task: Any) -> Any:
        if task.to.span.last == 2:
            raise Failed("the object is in an archive class")
        return real(task)

    monkeypatch.setattr(archived_events, "rewrite_range", cold)
    hold_archive(chunks.archive, "a", generation=3)
    for _ in range(2):
        with pytest.raises(Failed, match="archive class"):
            compacted(chunks)
        assert names(chunks) == [(1, 1), (2, 2), (3, 3), (4, 5)]
    assert is_sound(chunks.root)


def test_replaced_generations_stay_during_the_grace(chunks: Vault) -> None:
    compacted(chunks, grace=600.0)
    old = [key for key in contents(chunks.root) if key.endswith("0000000002.json")]
    assert old
    assert compacted(chunks, grace=600.0).objects_deleted == 0
    assert set(old) <= set(contents(chunks.root))


# -- stopped anywhere, concurrent runs, and concurrent expiry --


def drops(vault: Vault, upto: int) -> None:
    """Decide, as a rotation does, that generations have expired."""
    archive_of(vault.root).decide(lambda listing: listing.decision.expire(upto) if listing.dropped < upto else None)


def test_plan_of_a_merge_that_comes_too_late_is_removed(chunks: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its generations have expired before it is created; nothing is joined for it."""
    create, before = compact.create_plan, data_keys(chunks.root)

    def late(*arguments: Any) -> Any:
        drops(chunks, 2)
        return create(*arguments)

    monkeypatch.setattr(compact, "create_plan", late)
    with pytest.raises(Conflict, match="have expired or were merged"):
        merge(chunks, 1, 5)
    assert data_keys(chunks.root) == before
    assert not [key for key in contents(chunks.root) if "/_work/" in key]


def test_merge_overtaken_by_an_expiry_is_a_conflict(chunks: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    rotated(chunks)
    before_a_decision(monkeypatch, lambda: rotated(chunks, keep=3))
    with pytest.raises(Conflict, match="have expired or were merged"):
        merge(chunks, 1, 5)
    assert names(chunks) == [(3, 3), (4, 4), (5, 5)]
    assert is_sound(chunks.root)
    assert compacted(chunks).runs[0].first == 3
    assert is_sound(chunks.root)
    clear(chunks)
    rotated(chunks, keep=3)
    assert is_sound(chunks.root)
    assert not [key for key in contents(chunks.root) if "-0000000001" in key or "/_work/" in key]


def test_decision_put_long_after_its_number_was_superseded_is_void(
    chunks: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its put arrives when that number was superseded and deleted long ago."""

    def others() -> None:
        compacted(chunks)
        clear(chunks)
        for _ in range(KEPT):
            hold_archive(chunks.archive, "a")
            release_archive(chunks.archive, "a")
        assert archive_of(chunks.root).listing().superseded == ()

    before_a_decision(monkeypatch, others)
    assert rotated(chunks, keep=3).expired == ()
    assert (names(chunks), archive_of(chunks.root).listing().superseded) == ([(1, 5)], (1,))
    assert is_sound(chunks.root)
    hold_archive(chunks.archive, "a")
    assert archive_of(chunks.root).listing().superseded == ()


def test_replaced_generations_stay_until_the_merged_one_is_read_back(
    chunks: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated(chunks)
    before = set(data_keys(chunks.root))
    compacted(chunks)
    (joined, *_) = [key for key in data_keys(chunks.root) if key not in before]
    flip(chunks, joined)
    monkeypatch.setattr("streamvault.exporter.compact.now_utc", lambda: now_utc() + LATER)
    with pytest.raises(Damaged):
        compacted(chunks)
    assert before <= set(data_keys(chunks.root))
    _, waiting = delete_replaced(archive_of(chunks.root), now=now_utc() + LATER)
    assert [bool(one.unchecked) for one in waiting] == [True]


def test_grace_of_a_merge_is_remembered(chunks: Vault) -> None:
    compacted(chunks, grace=7200.0)
    rotated(chunks)
    archive = archive_of(chunks.root)
    deleted, waiting = delete_replaced(archive, now=now_utc() + timedelta(hours=1.9))
    assert (deleted.objects, [one.span for one in waiting]) == (0, [(1, 5)])
    deleted, waiting = delete_replaced(archive, now=now_utc() + timedelta(hours=2.1))
    assert deleted.objects
    assert not waiting


def test_merged_generation_is_checked_anew(chunks: Vault) -> None:
    assert rotated(chunks).checked == (1, 2, 3, 4, 5)
    compacted(chunks)
    assert rotated(chunks, truncate_source=True).checked == (5,)
    assert PREFIX + checked_key(GenerationSpan(1, 5)) in contents(chunks.root)
    clear(chunks)
    assert rotated(chunks).checked == ()
    assert is_sound(chunks.root)


def test_interrupted_plan_is_resumed(chunks: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    real = archived_events.rewrite_range
    calls: list[object] = []

    def failing(task: Any) -> Any:
        calls.append(task)
        if len(calls) > 2:
            raise Failed("stopped for a test")
        return real(task)

    monkeypatch.setattr(archived_events, "rewrite_range", failing)
    with pytest.raises(Failed):
        compact_archive(chunks.archive, master="inline[1]")
    monkeypatch.setattr(archived_events, "rewrite_range", real)
    assert PREFIX + plan_key(GenerationSpan(1, 5)) in contents(chunks.root)
    assert is_sound(chunks.root)
    assert compacted(chunks, dry_run=True).resumed_runs == 1
    chunks.add(b"more")
    export(chunks, ("chunks", ""))
    report = compacted(chunks, at_least=3)
    assert (report.resumed_runs, [(run.first, run.generation) for run in report.runs]) == (1, [(1, 5)])
    assert names(chunks) == [(1, 5), (6, 6)]


def test_command_prints_what_it_did(vault: Vault, ran: Ran) -> None:
    # the store in memory belongs to this process, so the command can run here
    assert "would merge generations 1 to 5" in ran("compact", vault.archive, "--master", "inline", "--dry-run").out
    report = json.loads(ran("compact", vault.archive, "--master", "inline", "--json").out)
    assert (report["runs"][0]["generation"], report["unchanged"]) == (5, False)
    assert "of generations 1 to 5" in ran("show", vault.archive).out
    assert "1 to 5" in ran("timeline", vault.archive).out
    assert "10m" in ran("compact", vault.archive, "--master", "inline", "--grace", "1s", code=2).err


def test_replacements_have_the_moment_they_are_due(chunks: Vault) -> None:
    compacted(chunks)
    archive = archive_of(chunks.root)
    (one,) = merging.replacements(archive, archive.listing())
    assert (one.span, len(one.old), bool(one.unchecked)) == ((1, 5), 5, True)
    (merged,) = archive.listing().decision.merged
    assert one.due == merged.at + timedelta(hours=1)
