"""The contract of object stores on a folder, on memory, and on three S3 servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamvault.objectstore.folder import FolderStore
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from testkit.servers.s3 import S3Server
from tests.contract.object_store import ObjectStoreContract
from tests.metered import MeteredStore


class TestMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self, unique_name: str) -> ObjectStore:
        return RootAddress.parse(f"memory://{unique_name}").open()


class TestMeteredBelowAPrefix(ObjectStoreContract):
    @pytest.fixture
    def store(self, unique_name: str) -> ObjectStore:
        other = RootAddress.parse(f"memory://{unique_name}").open()
        for key in ("root", "root-x/y", "rooty/z", "a/b"):
            other.put(key, b"somebody else's")
        return MeteredStore(RootAddress.parse(f"memory://{unique_name}/root").open())


class TestFolder(ObjectStoreContract):
    has_clock = False

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return RootAddress.parse((tmp_path / "a root").as_uri()).open()


class TestFolderWithoutUnnamedFiles(ObjectStoreContract):
    """On file systems without unnamed files, files are staged under a name."""

    has_clock = False

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return FolderStore(tmp_path, unnamed_files=False)


class S3Contract(ObjectStoreContract):
    @pytest.fixture
    def server(self) -> S3Server:
        raise NotImplementedError

    @pytest.fixture
    def store(self, server: S3Server, bucket_name: str, use_s3: Callable[[S3Server], None]) -> ObjectStore:
        use_s3(server)
        server.make_bucket(bucket_name)
        return RootAddress.parse(f"s3://{bucket_name}/some/prefix").open()


class TestMoto(S3Contract):
    @pytest.fixture
    def server(self, moto_s3: S3Server) -> S3Server:
        return moto_s3

    @pytest.mark.long
    def test_thousands_of_keys_are_listed_and_deleted(self, store: ObjectStore) -> None:
        super().test_thousands_of_keys_are_listed_and_deleted(store)


@pytest.mark.minio
class TestMinio(S3Contract):
    @pytest.fixture
    def server(self, minio: S3Server) -> S3Server:
        return minio


@pytest.mark.versitygw
class TestVersitygw(S3Contract):
    @pytest.fixture
    def server(self, versitygw: S3Server) -> S3Server:
        return versitygw
