"""A check that is stopped before it writes a mark, and goes on after others have changed the archive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, delete_archive, list_archives, rotate_stream, show_timeline
from streamvault.common.errors import Conflict, Damaged, Problem
from streamvault.common.units import now_utc
from streamvault.exporter.reports import RotateReport
from streamvault.layouts.keys import GenerationSpan, checked_key
from streamvault.manifests.archive import NoSuchArchive
from streamvault.manifests.decisions import find_checked
from streamvault.manifests.merging import delete_replaced
from streamvault.manifests.verbs.reports import CheckReport
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectStoreUnavailable
from testkit.small_archives import (
    NAME,
    Vault,
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

MARK = ".checked.json"
DELETED = "the archive was deleted"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """Three generations, none of them read back yet."""
    return filled(Vault(tmp_path / "mine"), b"mine")


def filled(vault: Vault, word: bytes) -> Vault:
    vault.create()
    for number in range(3):
        vault.add(b"%s %d" % (word, number), word * 100)
        vault.export("chunks")
    return vault


def rotate(vault: Vault, **options: Any) -> RotateReport:
    return rotate_stream(vault.uri(), vault.root, layout="chunks", master="inline", **options)


def read_all(vault: Vault, **options: Any) -> CheckReport:
    return check_archive(vault.archive, read_data=True, master="inline", **options)


def late_check(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object], **options: Any
) -> CheckReport:
    """Check everything, stopped before the first mark."""
    before_a_decision(monkeypatch, happens, part=MARK)
    return read_all(vault, **options)


def marks_of(vault: Vault) -> list[str]:
    return [key.rpartition("/")[2] for key in contents(vault.root) if key.endswith(MARK)]


def test_late_mark_of_an_expired_generation_is_deleted_by_the_next_rotation(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_check(vault, monkeypatch, lambda: rotate(vault, keep=1))
    assert marks_of(vault) == [f"{number:010d}{MARK}" for number in (1, 2, 3)]
    assert archive_of(vault.root).listing().checked == {3}
    assert is_sound(vault.root)
    rotate(vault, keep=1)
    assert marks_of(vault) == [f"{3:010d}{MARK}"]


def test_late_mark_of_a_merged_generation_does_not_count_for_the_merged_one(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for the one of the same number."""
    originals = set(data_keys(vault.root))
    late_check(vault, monkeypatch, lambda: merge(vault, 1, 3))
    assert archive_of(vault.root).listing().checked == set()
    delete_replaced(archive_of(vault.root), now=now_utc() + timedelta(hours=2))
    assert originals <= set(data_keys(vault.root))
    clear(vault)
    assert is_sound(vault.root)


def test_late_mark_of_a_merged_generation_that_is_gone_is_deleted(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merged() -> None:
        merge(vault, 1, 3)
        clear(vault)

    late_check(vault, monkeypatch, merged)
    assert len(marks_of(vault)) > 1
    assert is_sound(vault.root)
    assert rotate(vault, truncate_source=True).truncated
    delete_replaced(archive_of(vault.root), now=now_utc() + timedelta(hours=2))
    assert marks_of(vault) == [f"{3:010d}-{1:010d}{MARK}"]
    assert is_sound(vault.root)


def test_late_mark_in_an_archive_that_was_deleted_brings_nothing_back(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_check(vault, monkeypatch, lambda: delete_archive(vault.archive, yes=True))
    assert marks_of(vault)
    assert list_archives(vault.root) == []
    for reader in (show_timeline, check_archive):
        with pytest.raises(NoSuchArchive, match=DELETED):
            reader(vault.archive)
    for writer in (vault.export, lambda: rotate(vault, keep=1, truncate_source=True)):
        with pytest.raises(Conflict, match=DELETED):
            writer()
    again = delete_archive(vault.archive, yes=True)
    assert (again.unchanged, again.objects) == (False, 3)
    assert list(contents(vault.root)) == [key for key in contents(vault.root) if "/decisions/" in key]
    assert delete_archive(vault.archive, yes=True).unchanged


def test_late_mark_of_an_archive_that_others_have_removed_and_made_again_proves_nothing(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Someone deletes the objects by other tools; then another stream of the name is archived there."""
    other = Vault(tmp_path / "other", vault.root)

    def made_again() -> None:
        objects_of(vault.root).delete(list(contents(vault.root)))
        filled(other, b"other")

    late_check(vault, monkeypatch, made_again, generation=1)
    report = rotate(other, truncate_source=True)
    assert (report.checked, report.ranges_compared) == ((2, 3), 3)


def test_late_mark_before_the_first_export_to_an_archive_that_others_have_removed_is_damage(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_check(vault, monkeypatch, lambda: objects_of(vault.root).delete(list(contents(vault.root))), generation=1)
    with pytest.raises(Damaged, match="the manifest of generation 1 is missing"):
        vault.export("chunks")


def test_two_checks_at_once_mark_each_generation_once(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[tuple[int, ...]] = []
    report = late_check(vault, monkeypatch, lambda: others.append(read_all(vault).marked))
    assert others == [(1, 2, 3)]
    assert report.ok
    assert rotate(vault, truncate_source=True).checked == ()


def test_damage_to_what_was_already_read_is_found_by_the_next_check(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mark says that the data were intact when they were read, not that they are."""
    key = data_keys(vault.root)[0]
    late_check(vault, monkeypatch, lambda: replace_object(vault.root, key, None))
    assert not read_all(vault).ok
    with pytest.raises(Damaged, match=f"no such object: .*{key}"):
        rotate(vault, truncate_source=True)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_check_that_ends_early_marks_only_what_was_read(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, number: int
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
        read_all(vault)
    monkeypatch.undo()
    assert archive_of(vault.root).listing().checked == set(range(1, number))
    assert rotate(vault, truncate_source=True).checked == tuple(range(number, 4))


def test_check_of_which_a_task_fails_marks_nothing(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: object, **__: object) -> Any:
        raise ObjectStoreUnavailable("no answer", where="bucket")

    monkeypatch.setattr("streamvault.manifests.verbs.check_ranges.damage_of", failed)
    with pytest.raises(Problem, match="no answer"):
        read_all(vault)
    assert marks_of(vault) == []


def test_mark_for_another_stream_is_damage_and_not_believed(vault: Vault) -> None:
    """A mark was copied from another archive."""
    read_all(vault)
    mark = find_checked(objects_of(vault.root), NAME, GenerationSpan.of(3))
    assert mark is not None
    another = mark.model_copy(update={"scope": "another"})
    replace_object(vault.root, f"{NAME}/{checked_key(GenerationSpan.of(3))}", another.encode())
    before = vault.events()
    with pytest.raises(Damaged, match="belongs to another archive"):
        rotate(vault, truncate_source=True)
    assert vault.events() == before
