from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.manager import sweep
from streamvault.streamstore import lease
from testkit.small_archives import Vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """A stream and its archive."""
    (tmp_path / "vault").mkdir()
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=60, largest=3000)
    vault.export("chunks")
    return vault


@pytest.fixture
def all_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders of leases count as dead at once, as if their processes had been killed."""
    for module in (lease, sweep):
        monkeypatch.setattr(module, "is_dead", lambda _: True)
