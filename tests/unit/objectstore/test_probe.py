"""S3 servers that cannot hold an archive, or not safely, are detected and reported when an archive is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamvault import export_stream, write_table
from streamvault.common.progress import Progress
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectInfo, UnorderedListing
from testkit.small_archives import Vault, data_keys


class Told(Progress):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.make(events=10)
    return vault


def export(vault: Vault) -> list[str]:
    told = Told()
    export_stream(vault.uri(), vault.root, master="inline", progress=told)
    return told.warnings


def test_sound_server_gives_no_warning(vault: Vault) -> None:
    assert export(vault) == []
    assert not [key for key in data_keys(vault.root) if "probe" in key]


def test_server_that_lists_in_another_order_is_refused(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ObstoreStore.list

    def in_another_order(self: ObstoreStore, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        return iter(sorted(listed(self, prefix, after), key=lambda entry: entry.key.lower(), reverse=True))

    monkeypatch.setattr(ObstoreStore, "list", in_another_order)
    with pytest.raises(UnorderedListing, match="another server"):
        export(vault)
    assert data_keys(vault.root) == []


@pytest.mark.parametrize("verb", ["export", "write_table"])
def test_server_that_overwrites_is_warned_of_once(vault: Vault, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwrite(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        self._backend.put(self._base + key, data, mode="overwrite")

    def warnings() -> list[str]:
        if verb == "export":
            return export(vault)
        told = Told()
        report = write_table(vault.uri(), root=vault.root, master="inline", progress=told)
        assert report.warnings == tuple(told.warnings)
        return told.warnings

    monkeypatch.setattr(ObstoreStore, "put", overwrite)
    (warning,) = warnings()
    assert "do not run two exports" in warning
    vault.add(b"more")
    assert warnings() == []
