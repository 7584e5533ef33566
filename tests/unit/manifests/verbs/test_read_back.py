"""How far an archive was read back: up to the first generation that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.common.errors import Damaged
from streamvault.common.progress import Progress
from streamvault.layouts.keys import GenerationSpan, checked_key
from streamvault.manifests.verbs.check import last_checked, read_back
from streamvault.runner.inline import InlineRunner
from testkit.small_archives import NAME, Vault, archive_of, contents, replace_object


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.make(events=5, largest=100)
    for number in range(3):
        vault.add(b"%d" % number)
        vault.export()
    return vault


@pytest.mark.parametrize(
    ("marked", "last"), [((), None), ((3,), None), ((2, 3), None), ((1,), 1), ((1, 3), 1), ((1, 2), 2), ((1, 2, 3), 3)]
)
def test_generation_counts_once_all_before_it_were_read_back(
    vault: Vault, marked: tuple[int, ...], last: int | None
) -> None:
    archive = archive_of(vault.root)
    read_back(archive, lambda: InlineRunner(1), Progress(), marked)
    assert archive.listing().checked == set(marked)
    found = last_checked(archive)
    assert (None if found is None else found.generation) == last


def test_mark_of_another_manifest_is_damage_and_nothing_is_to_be_deleted(vault: Vault) -> None:
    archive = archive_of(vault.root)
    read_back(archive, lambda: InlineRunner(1), Progress())
    newest = f"{NAME}/{checked_key(GenerationSpan.of(3))}"
    older = contents(vault.root)[f"{NAME}/{checked_key(GenerationSpan.of(2))}"]
    replace_object(vault.root, newest, older.replace(b'"generation":2', b'"generation":3'))
    with pytest.raises(Damaged) as caught:
        last_checked(archive)
    assert "Delete" not in caught.value.todo
