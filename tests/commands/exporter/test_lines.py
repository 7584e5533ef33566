"""Lines of generations: the archives of streams that follow each other under one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault import check_archive, export_stream, follow_stream, import_stream, list_archives, rotate_stream
from streamvault.common.errors import Conflict, Usage
from tests.unit.small_archives import NAME, Vault, contents

RUN = {"master": "inline[2]"}


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path, root=f"file://{tmp_path}/vault")
    (tmp_path / "vault").mkdir()
    vault.create(2)
    vault.add(b"one", b"two")
    return vault


def restore(vault: Vault) -> None:
    """Lose the stream, and restore it under its own name."""
    with vault.store as store:
        store.seal(NAME)
        store.delete(NAME)
    import_stream(vault.archive, vault.uri(), numbers="map", **RUN)


def test_restored_stream_is_rotated_in_a_line_of_its_own(vault: Vault) -> None:
    rotate_stream(vault.uri(), vault.root, **RUN)
    restore(vault)
    before = contents(vault.root)
    with pytest.raises(Conflict, match="line=NAME"):
        rotate_stream(vault.uri(), vault.root, **RUN)
    first = rotate_stream(vault.uri(), vault.root, line="2", **RUN)
    vault.add(b"three")
    second = rotate_stream(vault.uri(), vault.root, line="2", keep=1, truncate_source=True, **RUN)
    assert first.archive == second.archive == f"{vault.root}/_line-2/{NAME}"
    assert (second.generation, second.expired) == (2, (1,))
    after = contents(vault.root)
    assert {key: after[key] for key in before} == before
    assert {key.split("/")[0] for key in set(after) - set(before)} == {"_line-2"}
    for archive in (vault.archive, second.archive):
        assert check_archive(archive, read_data=True, **RUN).ok
    assert [found.archive for found in list_archives(vault.root)] == [second.archive, vault.archive]
    export_stream(vault.uri(), vault.root, line="2", **RUN)
    with pytest.raises(Conflict):  # a run that forgets the option mixes nothing
        rotate_stream(vault.uri(), vault.root, **RUN)


def test_line_rejects_another_stream(vault: Vault) -> None:
    """Each line belongs to one stream, as the first archive does."""
    rotate_stream(vault.uri(), vault.root, line="2", **RUN)
    restored = Vault(vault.folder, root=f"{vault.root}/_line-2")
    restore(restored)
    with pytest.raises(Conflict, match="not the one that was archived here"):
        rotate_stream(vault.uri(), vault.root, line="2", **RUN)
    assert rotate_stream(vault.uri(), vault.root, line="3", **RUN).generation == 1


def test_stream_is_followed_in_a_line(vault: Vault) -> None:
    report = follow_stream(vault.uri(), vault.root, line="new", idle=0.01, every=0.01, **RUN)
    assert report.archive == f"{vault.root}/_line-new/{NAME}"


@pytest.mark.parametrize("name", ["a/b", "..", "_x", "x" * 65, " "])
def test_invalid_name_of_a_line_is_wrong_usage(vault: Vault, name: str) -> None:
    with pytest.raises(Usage, match=r"^line is not valid: .*1 to 64 letters, digits and hyphens"):
        export_stream(vault.uri(), vault.root, line=name, **RUN)
