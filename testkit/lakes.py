"""Tables of small archives and streams, read back independently of the code that wrote them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

import streamvault.lake.handoff
from streamvault.lake.plan import TablePlan
from streamvault.lake.table import find_options
from streamvault.lake.task import FileTask, WrittenFile, write_file
from streamvault.layouts.keys import table_data
from streamvault.manifests.archive import TableArchive
from streamvault.manifests.files import decode
from streamvault.objectstore.store import ObjectStore
from streamvault.streamstore.model import StreamName
from testkit.small_archives import NAME, Vault, archive_of, objects_of

PREFIX = f"{NAME}/"
RESTORED = StreamName("scope", "restored")


def table_of(vault: Vault, table: str = "stream") -> TableArchive:
    return archive_of(vault.root).table_archive(table)


def table_keys(root: str, table: str = "stream") -> list[str]:
    """The keys of a table's Parquet files, by generation and then in the stream's order."""
    keys = [entry.key for entry in objects_of(root).list(files_folder(root, table))]
    found = [key for key in keys if key.endswith(".parquet")]
    return sorted(found, key=lambda key: (generation_of(key), key))


def files_folder(root: str, table: str = "stream") -> str:
    """The folder of a table's files, below the root, with a trailing slash."""
    return table_data(archive_of(root).table_archive(table).prefix)


def as_earlier_releases(root: str, table: str = "stream", file_id: str = "") -> None:
    """Turns a new table, which is not registered, into one of an earlier release: without a folder of its own."""
    archive, store = archive_of(root).table_archive(table), objects_of(root)
    options = find_options(archive)
    assert options is not None
    former = archive.in_folder("")
    moved = {former.options_key: options.model_copy(update={"format": 1, "folder": ""}).encode()}
    for above, below in ((archive.prefix, former.prefix), (table_data(archive.prefix), table_data(former.prefix))):
        for found in store.list(above):
            key = below + found.key.removeprefix(above)
            data = store.get(found.key)
            if file_id and "/generation=" in key:
                key = f"{key.removesuffix('.parquet')}-{file_id}.parquet"
            if file_id and "/plan/" in key and not key.endswith(".end.json"):
                plan = decode(TablePlan, data, key)
                data = plan.model_copy(update={"format": 2, "file_id": file_id}).encode()
            moved[key] = data
    store.delete([found.key for found in store.list(PREFIX) if found.key.split("/")[2] in {"table", "_table"}])
    for key, data in moved.items():
        store.put(key, data)


def generation_of(key: str) -> int:
    return int(key.split("generation=")[1].split("/", maxsplit=1)[0])


def rows_of(root: str, table: str = "stream") -> list[dict[str, Any]]:
    """All rows of a table."""
    return [row for key in table_keys(root, table) for row in rows_in(objects_of(root), key)]


def rows_in(store: ObjectStore, key: str) -> list[dict[str, Any]]:
    """All rows of a file."""
    return pq.ParquetFile(io.BytesIO(store.get(key))).read().to_pylist()  # type: ignore[no-any-return]


def is_whole(vault: Vault) -> bool:
    """The table has exactly the stream's events, each once, and each generation is in the stream's order."""
    places, found = [], []
    for key in table_keys(vault.root):
        for row in rows_in(objects_of(vault.root), key):
            places.append((generation_of(key), row["epoch"], row["segment"], row["offset"]))
            found.append((row["pointer"], row["payload"]))
    assert places == sorted(places)
    assert sorted(found) == sorted((str(pointer), payload) for pointer, payload in vault.events())
    return True


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], files: int = 0) -> None:
    """Does something once, before a run's next file after some files."""
    left = files

    def write(task: FileTask) -> WrittenFile:
        nonlocal left
        left -= 1
        if left == -1:
            act()
        return write_file(task)

    monkeypatch.setattr(streamvault.lake.handoff, "write_file", write)


def writing(write: Callable[[FileTask], WrittenFile]) -> Any:
    """Files are written so."""
    return patch.object(streamvault.lake.handoff, "write_file", write)
