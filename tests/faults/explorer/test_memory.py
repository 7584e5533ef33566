"""The stores in memory keep the contracts of the real ones."""

from __future__ import annotations

import pytest

from streamvault.objectstore.store import ObjectStore
from testkit.explorer.memory import Bucket, Cluster, MemoryObjects, MemoryStreams
from tests.contract.open_stores import Open
from tests.contract.test_object_store import ObjectStoreContract
from tests.contract.test_stream_store import StreamStoreContract


class TestObjects(ObjectStoreContract):
    has_clock = False

    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjects(Bucket(), "memory://bucket")


class TestObjectsBelowAPrefix(ObjectStoreContract):
    has_clock = False

    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjects(Bucket({"root": b"x", "rooty/z": b"y"}), "memory://bucket/root", "root")


class TestStreams(StreamStoreContract):
    @pytest.fixture
    def open_store(self) -> Open:
        cluster = Cluster()
        return lambda: MemoryStreams(cluster, "local:///memory")
