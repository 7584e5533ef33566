"""Tables of small archives, read back independently of the code that wrote them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow.parquet as pq

from streamvault.objectstore.store import ObjectStore
from tests.unit.small_archives import NAME, objects_of

PREFIX = f"{NAME}/"


def table_keys(root: str, table: str = "stream") -> list[str]:
    """The keys of a table's Parquet files, by generation and then in the stream's order."""
    keys = [entry.key for entry in objects_of(root).list(f"{PREFIX}table/{table}/")]
    found = [key for key in keys if key.endswith(".parquet")]
    return sorted(found, key=lambda key: (int(key.split("generation=")[1].split("/")[0]), key))


def rows_of(root: str, table: str = "stream") -> list[dict[str, Any]]:
    """All rows of a table."""
    return [row for key in table_keys(root, table) for row in rows_in(objects_of(root), key)]


def rows_in(store: ObjectStore, key: str) -> list[dict[str, Any]]:
    """All rows of a file."""
    return pq.ParquetFile(io.BytesIO(store.get(key))).read().to_pylist()  # type: ignore[no-any-return]
