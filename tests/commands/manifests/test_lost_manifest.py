"""The newest manifest is lost: its mark, its index or a decision show it, nothing goes on, and there is a way back.

A check that is stopped before it writes a mark, and goes on after others have changed the archive.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    append_streams,
    check_archive,
    compact_archive,
    convert_archive,
    delete_archive,
    export_stream,
    follow_stream,
    get_event,
    hold_archive,
    import_stream,
    list_archives,
    read_archive,
    rotate_stream,
    show_archive,
    show_status,
    show_timeline,
    write_table,
)
from streamvault.common.errors import Conflict, Damaged, Failed, Problem
from streamvault.common.progress import Progress
from streamvault.common.units import now_utc
from streamvault.exporter import plan as planning
from streamvault.exporter.compact import Compaction, choose_runs
from streamvault.exporter.reports import CompactOptions, RotateOptions, RotateReport
from streamvault.exporter.rotate import expire
from streamvault.inspect.history import read_history
from streamvault.layouts.keys import (
    GenerationSpan,
    checked_key,
    manifest_key,
    plan_key,
    ranges_key,
    truncation_key,
)
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.decisions import find_checked
from streamvault.manifests.files import decode
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.merging import delete_replaced
from streamvault.manifests.plan import Plan, create_plan, find_plan
from streamvault.manifests.verbs.reports import CheckReport
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectStoreUnavailable
from streamvault.runner.opening import Tasks
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.killed import before_call
from testkit.small_archives import (
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
    objects_of,
    replace_object,
)

NEWEST = GenerationSpan.of(3)
MERGED = GenerationSpan(2, 3)
LOST = "the manifest of generation 3 is missing"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """Three generations, all read back, of which the source has nothing any more, and an event of the next one."""
    vault = Vault(tmp_path)
    vault.make(events=20, largest=500)
    for number in range(3):
        vault.add(b"%d" % number)
        rotates(vault, truncate_source=True)
    vault.add(b"next")
    return vault


def rotates(vault: Vault, **options: Any) -> Any:
    return rotate_stream(vault.uri(), vault.root, layout="chunks", master="inline[1]", **options)


def loses(vault: Vault, *lost: Callable[[GenerationSpan], str], span: GenerationSpan = NEWEST) -> dict[str, bytes]:
    """Lose objects of the newest generation; return them."""
    held = {f"{NAME}/{key(span)}": contents(vault.root)[f"{NAME}/{key(span)}"] for key in lost}
    for key in held:
        replace_object(vault.root, key, None)
    return held


def compaction(vault: Vault) -> Compaction:
    return Compaction(archive_of(vault.root), CompactOptions(), Tasks("inline[1]", ExitStack(), []), Progress())


VERBS: dict[str, Callable[[Vault], object]] = {
    "check": lambda vault: check_archive(vault.archive, read_data=True, master="inline[1]"),
    "check-repair": lambda vault: check_archive(vault.archive, repair=True, master="inline[1]"),
    "check-lost": lambda vault: check_archive(vault.archive, generation=3, master="inline[1]"),
    "rotate": partial(rotates, keep=1, truncate_source=True),
    "export": lambda vault: export_stream(vault.uri(), vault.root, master="inline[1]"),
    "follow": lambda vault: follow_stream(vault.uri(), vault.root, lasting=0.001, retry_for=0, master="inline[1]"),
    "compact": lambda vault: compact_archive(vault.archive, master="inline[1]"),
    "compact-run": lambda vault: compaction(vault).run(partial(choose_runs, target=1 << 30, at_least=2)),
    "clear": lambda vault: delete_replaced(archive_of(vault.root)),
    "expire": lambda vault: expire(archive_of(vault.root), RotateOptions(keep=1), parse_stream(vault.uri())[0]),
    "import": lambda vault: import_stream(vault.archive, vault.uri(StreamName("scope", "b")), master="inline[1]"),
    "convert": lambda vault: convert_archive(vault.archive, a_root(), layout="chunks", master="inline[1]"),
    "timeline": lambda vault: show_timeline(vault.archive),
    "show": lambda vault: show_archive(vault.archive),
    "report": lambda vault: read_history(archive_of(vault.root)),
    "cat": lambda vault: read_archive(vault.archive).read_all(),
    "handoff": lambda vault: write_table(vault.archive, master="inline[1]"),
    "append": lambda vault: append_streams([vault.archive], vault.uri(), master="inline[1]"),
    "get": lambda vault: get_event(vault.archive, str(vault.events()[0][0])),
}


def loses_merged(vault: Vault, *, grace: int) -> None:
    """Merge the newest two generations, and lose all that is kept of the merged one but the decision."""
    merge(vault, 2, 3, grace=grace)
    loses(vault, manifest_key, ranges_key, span=MERGED)
    held = f"{NAME}/{checked_key(MERGED)}"
    replace_object(vault.root, held, None)


def loses_all(vault: Vault) -> None:
    """Lose all that is kept of the newest generation."""
    loses(vault, manifest_key, ranges_key, checked_key)


def loses_held(vault: Vault) -> None:
    hold_archive(vault.archive, name="audit", generation=3)
    loses_all(vault)


def loses_noted(vault: Vault) -> None:
    archive = archive_of(vault.root)
    archive.store.put(archive.prefix + truncation_key(3), b"")
    loses_all(vault)


LOSSES: dict[str, tuple[Callable[[Vault], object], GenerationSpan]] = {
    "mark-left": (lambda vault: loses(vault, manifest_key, ranges_key), NEWEST),
    "index-left": (lambda vault: loses(vault, manifest_key, checked_key), NEWEST),
    "both-left": (lambda vault: loses(vault, manifest_key), NEWEST),
    "held": (loses_held, NEWEST),
    "truncation-noted": (loses_noted, NEWEST),
    "merged": (partial(loses_merged, grace=0), MERGED),
    "merged-replaced-left": (partial(loses_merged, grace=1000), MERGED),
}


@pytest.mark.parametrize(
    ("loss", "verb"),
    [*((loss, verb) for loss in ("both-left", "merged") for verb in VERBS), *((loss, "export") for loss in LOSSES)],
)
def test_nothing_goes_on_without_the_newest_manifest(vault: Vault, loss: str, verb: str) -> None:
    lose, lost = LOSSES[loss]
    lose(vault)
    before = contents(vault.root)
    with pytest.raises(Damaged, match=f"the manifest of generation {lost.first} is missing") as caught:
        VERBS[verb](vault)
    assert contents(vault.root) == before
    advice = caught.value.todo
    assert f"Restore {manifest_key(lost)}" in advice
    assert "delete nothing" in advice
    assert f"import --generation {lost.first - 1}" in advice


def test_advice_loses_nothing(vault: Vault) -> None:
    source, held = vault.events(), loses(vault, manifest_key)
    assert check_archive(vault.archive, generation=2, master="inline[1]").ok
    assert import_stream(vault.archive, vault.uri(StreamName("scope", "b")), generation=2, master="inline[1]").events
    (summary,) = list_archives(vault.root)
    assert LOST in summary.problem
    for key, data in held.items():
        replace_object(vault.root, key, data)
    assert check_archive(vault.archive, read_data=True, master="inline[1]").ok
    assert rotates(vault).generation == 4
    assert vault.events() == source


def test_archive_that_lost_its_only_manifest_is_not_begun_anew(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=5, largest=50)
    vault.export()
    loses(vault, manifest_key, span=GenerationSpan.of(1))
    before = contents(vault.root)
    with pytest.raises(Damaged, match="the manifest of generation 1 is missing") as caught:
        vault.export()
    assert "import" not in caught.value.todo
    assert contents(vault.root) == before
    (summary,) = list_archives(vault.root)
    assert "is missing" in summary.problem


@pytest.mark.parametrize("loss", LOSSES)
def test_list_of_archives_names_what_is_lost(vault: Vault, loss: str) -> None:
    LOSSES[loss][0](vault)
    (summary,) = list_archives(vault.root)
    (status,) = show_status(vault.archive).statuses
    assert "is missing" in summary.problem
    assert "is missing" in status.problem


def test_conversion_into_an_archive_that_lost_its_newest_manifest_is_refused(vault: Vault) -> None:
    target = Vault(vault.folder, a_root())
    convert_archive(vault.archive, target.root, layout="chunks", master="inline[1]")
    loses(target, manifest_key)
    before = contents(target.root)
    with pytest.raises(Damaged, match=LOST):
        convert_archive(vault.archive, target.root, layout="chunks", master="inline[1]")
    assert contents(target.root) == before


def test_publication_under_way_is_no_damage(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is written, and the run pauses or is killed before the manifest: its plan is there."""
    seen: list[bool] = []
    put = ObstoreStore.put

    def paused(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        if key.endswith(manifest_key(GenerationSpan.of(4))) and not seen:
            seen.append(archive_of(vault.root).listing().begun == ((4, 4),))
            seen.append(check_archive(vault.archive, read_data=True, master="inline[1]").ok)
            raise Failed("killed for a test")
        put(self, key, data)

    monkeypatch.setattr(ObstoreStore, "put", paused)
    with pytest.raises(Failed, match="killed"):
        rotates(vault)
    assert seen == [True, True]
    assert rotates(vault).generation == 4


def test_publication_between_a_listing_and_the_look_for_its_plan_is_no_damage(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_of(vault.root)
    held = loses(vault, manifest_key, checked_key)
    create_plan(archive.place, _plan_of(vault, held))
    assert archive.listing().missing is None

    def publish() -> None:
        for name, data in held.items():
            replace_object(vault.root, name, data)
        archive.store.delete([archive.prefix + plan_key(NEWEST)])

    before_call(monkeypatch, ObstoreStore, "size", publish)
    listing = archive.listing()
    assert (listing.newest, listing.missing, listing.orphans) == (3, None, ())


def _plan_of(vault: Vault, held: dict[str, bytes]) -> Any:
    return Plan.of(decode(Manifest, held[f"{NAME}/{manifest_key(NEWEST)}"], vault.archive))


def test_late_plan_of_a_generation_whose_manifest_was_lost_is_removed(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is created when the generation was published, its plan was removed, and its manifest was lost."""
    archive = archive_of(vault.root)

    def others() -> None:
        vault.export("chunks")
        loses(vault, manifest_key, span=GenerationSpan.of(4))

    before_call(monkeypatch, planning, "create_plan", others)
    with pytest.raises(Damaged, match="the manifest of generation 4 is missing"):
        vault.export("chunks")
    assert find_plan(archive.place, GenerationSpan.of(4)) is None


def test_late_run_of_a_generation_whose_manifest_was_lost_publishes_nothing(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: dict[str, bytes] = {}

    def others() -> None:
        rotates(vault)
        loses(vault, manifest_key, span=GenerationSpan.of(4))
        before.update(contents(vault.root))

    before_call(monkeypatch, Archive, "commit", others)
    with pytest.raises(Damaged, match="the manifest of generation 4 is missing"):
        vault.export("chunks")
    assert contents(vault.root) == before


MARK = ".checked.json"
DELETED = "the archive was deleted"


@pytest.fixture
def checked(tmp_path: Path) -> Vault:
    """Three generations, none of them read back yet."""
    return filled(Vault(tmp_path / "mine"), b"mine")


def filled(checked: Vault, word: bytes) -> Vault:
    checked.create()
    for number in range(3):
        checked.add(b"%s %d" % (word, number), word * 100)
        checked.export("chunks")
    return checked


def rotate(checked: Vault, **options: Any) -> RotateReport:
    return rotate_stream(checked.uri(), checked.root, layout="chunks", master="inline", **options)


def read_all(checked: Vault, **options: Any) -> CheckReport:
    return check_archive(checked.archive, read_data=True, master="inline", **options)


def late_check(
    checked: Vault, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object], **options: Any
) -> CheckReport:
    """Check everything, stopped before the first mark."""
    before_a_decision(monkeypatch, happens, part=MARK)
    return read_all(checked, **options)


def marks_of(checked: Vault) -> list[str]:
    return [key.rpartition("/")[2] for key in contents(checked.root) if key.endswith(MARK)]


def test_late_mark_of_an_expired_generation_is_deleted_by_the_next_rotation(
    checked: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_check(checked, monkeypatch, lambda: rotate(checked, keep=1))
    assert marks_of(checked) == [f"{number:010d}{MARK}" for number in (1, 2, 3)]
    assert archive_of(checked.root).listing().checked == {3}
    assert is_sound(checked.root)
    rotate(checked, keep=1)
    assert marks_of(checked) == [f"{3:010d}{MARK}"]


def test_late_mark_of_a_merged_generation_does_not_count_for_the_merged_one(
    checked: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for the one of the same number."""
    originals = set(data_keys(checked.root))
    late_check(checked, monkeypatch, lambda: merge(checked, 1, 3))
    assert archive_of(checked.root).listing().checked == set()
    delete_replaced(archive_of(checked.root), now=now_utc() + timedelta(hours=2))
    assert originals <= set(data_keys(checked.root))
    clear(checked)
    assert is_sound(checked.root)


def test_late_mark_of_a_merged_generation_that_is_gone_is_deleted(
    checked: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merged() -> None:
        merge(checked, 1, 3)
        clear(checked)

    late_check(checked, monkeypatch, merged)
    assert len(marks_of(checked)) > 1
    assert is_sound(checked.root)
    assert rotate(checked, truncate_source=True).truncated
    delete_replaced(archive_of(checked.root), now=now_utc() + timedelta(hours=2))
    assert marks_of(checked) == [f"{3:010d}-{1:010d}{MARK}"]
    assert is_sound(checked.root)


def test_late_mark_in_an_archive_that_was_deleted_brings_nothing_back(
    checked: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_check(checked, monkeypatch, lambda: delete_archive(checked.archive, yes=True))
    assert marks_of(checked)
    assert list_archives(checked.root) == []
    for reader in (show_timeline, check_archive):
        with pytest.raises(NoSuchArchive, match=DELETED):
            reader(checked.archive)
    for writer in (checked.export, lambda: rotate(checked, keep=1, truncate_source=True)):
        with pytest.raises(Conflict, match=DELETED):
            writer()
    again = delete_archive(checked.archive, yes=True)
    assert (again.unchanged, again.objects) == (False, 3)
    assert list(contents(checked.root)) == [key for key in contents(checked.root) if "/decisions/" in key]
    assert delete_archive(checked.archive, yes=True).unchanged


def test_late_mark_of_an_archive_that_others_have_removed_and_made_again_proves_nothing(
    checked: Vault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Someone deletes the objects by other tools; then another stream of the name is archived there."""
    other = Vault(tmp_path / "other", checked.root)

    def made_again() -> None:
        objects_of(checked.root).delete(list(contents(checked.root)))
        filled(other, b"other")

    late_check(checked, monkeypatch, made_again, generation=1)
    report = rotate(other, truncate_source=True)
    assert (report.checked, report.ranges_compared) == ((2, 3), 3)


def test_late_mark_before_the_first_export_to_an_archive_that_others_have_removed_is_damage(
    checked: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_check(
        checked, monkeypatch, lambda: objects_of(checked.root).delete(list(contents(checked.root))), generation=1
    )
    with pytest.raises(Damaged, match="the manifest of generation 1 is missing"):
        checked.export("chunks")


def test_two_checks_at_once_mark_each_generation_once(checked: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[tuple[int, ...]] = []
    report = late_check(checked, monkeypatch, lambda: others.append(read_all(checked).marked))
    assert others == [(1, 2, 3)]
    assert report.ok
    assert rotate(checked, truncate_source=True).checked == ()


def test_damage_to_what_was_already_read_is_found_by_the_next_check(
    checked: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark says that the data were intact when they were read, not that they are."""
    key = data_keys(checked.root)[0]
    late_check(checked, monkeypatch, lambda: replace_object(checked.root, key, None))
    assert not read_all(checked).ok
    with pytest.raises(Damaged, match=f"no such object: .*{key}"):
        rotate(checked, truncate_source=True)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_check_that_ends_early_marks_only_what_was_read(
    checked: Vault, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Ctrl-C while it reads leaves no mark; between two marks, those that were written hold."""
    put, puts = ObstoreStore.put, 0

    def interrupted(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        nonlocal puts
        puts += 1
        if puts == number:
            raise KeyboardInterrupt
        put(self, key, data)

    monkeypatch.setattr(ObstoreStore, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_all(checked)
    monkeypatch.undo()
    assert archive_of(checked.root).listing().checked == set(range(1, number))
    assert rotate(checked, truncate_source=True).checked == tuple(range(number, 4))


def test_check_of_which_a_task_fails_marks_nothing(checked: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: object, **__: object) -> Any:
        raise ObjectStoreUnavailable("no answer", where="bucket")

    monkeypatch.setattr("streamvault.manifests.verbs.check_ranges.damage_of", failed)
    with pytest.raises(Problem, match="no answer"):
        read_all(checked)
    assert marks_of(checked) == []


def test_mark_for_another_stream_is_damage_and_not_believed(checked: Vault) -> None:
    """A mark was copied from another archive."""
    read_all(checked)
    mark = find_checked(objects_of(checked.root), NAME, GenerationSpan.of(3))
    assert mark is not None
    another = mark.model_copy(update={"scope": "another"})
    replace_object(checked.root, f"{NAME}/{checked_key(GenerationSpan.of(3))}", another.encode())
    before = checked.events()
    with pytest.raises(Damaged, match="belongs to another archive"):
        rotate(checked, truncate_source=True)
    assert checked.events() == before
