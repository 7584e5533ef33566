from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamvault.streamstore.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore(tmp_path / "streams") as store:
        yield store
