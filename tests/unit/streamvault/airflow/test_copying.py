"""The intermediate archive of a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.helpers import copy_root, remove_copy
from streamvault.common.errors import Failed
from streamvault.objectstore.uri import RootAddress


def test_copy_has_a_root_of_its_own_and_only_that_is_removed(tmp_path: Path) -> None:
    via = f"file://{tmp_path}"
    root = copy_root(via, "copy", "nightly-1")
    assert root.startswith(f"{via}/copy-")
    assert root == copy_root(via, "copy", "nightly-1")
    assert root != copy_root(via, "copy again", "nightly-1")
    folder = Path(root.removeprefix("file://"))
    for name in ("a/b/_manifest/0000000001.json", "a/b/chunks/x"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    assert remove_copy(root, None) == 2
    assert remove_copy(root, None) == 0
    with pytest.raises(AirflowFailException, match="not the root of a copy"):
        remove_copy(f"file://{tmp_path}", None)


def test_folder_of_intermediate_archives_is_made(tmp_path: Path) -> None:
    via = tmp_path / "not" / "there yet"
    root = copy_root(via.as_uri(), "copy", "nightly-1")
    assert via.is_dir()
    store = RootAddress.parse(root).open()
    store.put("scope/stream/_manifest/x", b"")
    assert remove_copy(root, None) == 1
    assert copy_root(via.as_uri(), "copy", "nightly-1") == root
    (tmp_path / "file").touch()
    with pytest.raises(Failed, match="the folder cannot be made"):
        copy_root((tmp_path / "file" / "below").as_uri(), "copy", "nightly-1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nightly_1", "nightly-1"),
        ("scheduled__2026-11-21T19:00:00+01:00", "scheduled__2026-11-21T19:00:00-01:00"),
        ("ночная", "nächtlich"),
        ("夜間", "毎夜"),
        ("a", "A"),
    ],
)
def test_different_runs_have_different_copy_roots(one: str, other: str) -> None:
    assert copy_root("s3://vault/between", "copy", one) != copy_root("s3://vault/between", "copy", other)
