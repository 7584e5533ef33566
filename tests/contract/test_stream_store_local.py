"""The contract of stream stores on the embedded store."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.streamstore.local import LocalStore
from tests.contract.open_stores import Open
from tests.contract.stream_store import StreamStoreContract


class TestLocal(StreamStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Open:
        return lambda: LocalStore(tmp_path / "a store")
