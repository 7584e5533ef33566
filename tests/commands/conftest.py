"""What the tests of several packages' verbs share."""

from __future__ import annotations

import pytest

from streamvault.streamstore.local import LocalStore
from tests.memory_groups import MemoryGroups


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> MemoryGroups:
    """The reader groups of embedded stores."""
    groups = MemoryGroups()
    monkeypatch.setattr(LocalStore, "reader_groups", lambda _: groups)
    return groups
