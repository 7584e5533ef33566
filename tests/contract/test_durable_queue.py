"""The contract of durable queues on both stream stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.pravega import PravegaServer
from tests.contract.durable_queue import DurableQueueContract
from tests.contract.open_stores import Open


class TestLocal(DurableQueueContract):
    keeps_out = True

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Open:
        return lambda: LocalStore(tmp_path / "a store")


@pytest.mark.pravega
class TestPravega(DurableQueueContract):
    keeps_out = False

    @pytest.fixture
    def open_store(self, pravega: PravegaServer) -> Open:
        address, _ = parse_stream(f"{pravega.uri}/scope/stream")
        return address.open
