"""The contract of an object store as tests: one class per implementation provides the `store`.

The contract of object stores on a folder, on memory, and on three S3 servers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from streamvault.objectstore.bulk import put_all
from streamvault.objectstore.folder import FolderStore
from streamvault.objectstore.probe import creates_only_in_parts, fit_server
from streamvault.objectstore.store import (
    STREAM_BYTES,
    AlreadyExists,
    InvalidKey,
    NoSuchObject,
    ObjectInfo,
    ObjectStore,
    ObjectStoreError,
    TooLarge,
    WrongSize,
)
from streamvault.objectstore.uri import RootAddress
from testkit.servers.s3 import S3Server
from tests.metered import MeteredStore

HOSTILE = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/..",
    "a/../../b",
    "a/./b",
    "a\\b",
    "a\nb",
    "a\0b",
    "a\x7fb",
    "a#1",
    "a%2fb",
    "a?b",
    "a*b",
    "ä",
    "a" * 256,
    "a/" * 500 + "a",
]


class ObjectStoreContract:
    """The behaviour of every object store. Subclasses provide an empty `store`.

    Attributes:
        has_clock: whether its objects have times; a folder's would be this machine's.
    """

    has_clock = True

    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError

    def test_get_returns_the_put_bytes(self, store: ObjectStore) -> None:
        payload = bytes(range(256)) * 3
        store.put("a/b/c", payload)
        assert store.get("a/b/c") == payload
        assert type(store.get("a/b/c")) is bytes
        assert store.size("a/b/c") == len(payload)

    def test_object_may_be_empty(self, store: ObjectStore) -> None:
        store.put("a/empty", b"")
        assert store.get("a/empty") == b""
        assert store.get_range("a/empty", 0, 0) == b""
        assert store.size("a/empty") == 0
        assert list(store.list("a/")) == [ObjectInfo("a/empty", 0)]

    def test_object_may_be_large(self, store: ObjectStore) -> None:
        payload = os.urandom(12 * 1024 * 1024 + 1)
        store.put("large", memoryview(payload))
        assert store.get("large") == payload
        with pytest.raises(AlreadyExists):
            store.put("large", payload[::-1])
        assert store.size("large") == len(payload)

    def test_put_accepts_a_partial_memoryview(self, store: ObjectStore) -> None:
        store.put("part", memoryview(bytearray(b"0123456789"))[2:5])
        assert store.get("part") == b"234"

    def test_put_refuses_a_taken_key(self, store: ObjectStore) -> None:
        store.put("a/b", b"first")
        for again in (b"first", b"second", b""):
            with pytest.raises(AlreadyExists, match="a/b"):
                store.put("a/b", again)
        assert store.get("a/b") == b"first"

    def test_one_of_twenty_concurrent_puts_succeeds(self, store: ObjectStore) -> None:
        for race in range(5):
            start = Barrier(20)

            def create(number: int, key: str = f"race/{race}", start: Barrier = start) -> bool:
                start.wait()
                try:
                    store.put(key, b"%d" % number * 1000)
                except AlreadyExists:
                    return False
                return True

            with ThreadPoolExecutor(20) as threads:
                won = list(threads.map(create, range(20)))
            assert won.count(True) == 1
            assert store.get(f"race/{race}") == b"%d" % won.index(True) * 1000

    def test_time_of_an_object_is_the_stores_own_and_stays(self, store: ObjectStore) -> None:
        store.put("a/first", b"1")
        first = store.modified("a/first")
        store.put("a/second", b"2")
        second = store.modified("a/second")
        with pytest.raises(AlreadyExists):
            store.put("a/first", b"3")
        assert store.modified("a/first") == first
        assert (first is None, second is None) == (not self.has_clock, not self.has_clock)
        if first is not None and second is not None:
            assert first.utcoffset() == timedelta(0)
            assert first <= second
        with pytest.raises(NoSuchObject, match="a/none"):
            store.modified("a/none")

    def test_get_refuses_an_object_above_the_limit(self, store: ObjectStore) -> None:
        store.put("a/b", b"0123456789")
        assert store.get("a/b", 10) == b"0123456789"
        for at_most in (9, 0):
            with pytest.raises(TooLarge, match=f"10 bytes instead of at most {at_most}: .*a/b"):
                store.get("a/b", at_most)

    def test_put_of_blocks_creates_an_object_and_refuses_a_taken_key(self, store: ObjectStore) -> None:
        payload = os.urandom(11 * 1024 * 1024 + 5)
        buffer = bytearray(700_000)

        def blocks() -> Iterator[memoryview]:
            """Each is valid until the next one is requested."""
            for low in range(0, len(payload), len(buffer)):
                some = payload[low : low + len(buffer)]
                buffer[: len(some)] = some
                yield memoryview(buffer)[: len(some)]

        assert creates_only_in_parts(store, "parts/")
        assert list(store.list("parts/")) == []
        store.put_blocks("parts/large", blocks())
        assert store.get("parts/large") == payload
        store.put("parts/small", b"first")
        for key, held in (("parts/large", payload), ("parts/small", b"first")):
            with pytest.raises(AlreadyExists):
                store.put_blocks(key, [b"again" * 2_000_000])
            assert store.get(key) == held
        store.put_blocks("parts/empty", [])
        assert store.get("parts/empty") == b""

    def test_failed_put_of_blocks_leaves_no_object(self, store: ObjectStore) -> None:
        def blocks() -> Iterator[bytes]:
            for _ in range(7):
                yield bytes(1024 * 1024)
            raise LookupError("the source is gone")

        with pytest.raises(LookupError):
            store.put_blocks("parts/cut", blocks())
        assert list(store.list("parts/")) == []

    def test_get_range_returns_the_range(self, store: ObjectStore) -> None:
        store.put("r", b"0123456789")
        assert store.get_range("r", 0, 10) == b"0123456789"
        assert store.get_range("r", 3, 5) == b"34"
        for at in (0, 4, 10):
            assert store.get_range("r", at, at) == b""
        part = store.get_range("r", 3, 6)
        assert part.readonly
        assert bytes(part[1:]) == b"45"

    def test_get_range_refuses_a_range_beyond_the_end(self, store: ObjectStore) -> None:
        store.put("r", b"0123456789")
        for start, end in ((0, 11), (5, 11), (10, 11), (12, 20), (11, 11)):
            with pytest.raises(WrongSize, match="r"):
                store.get_range("r", start, end)

    def test_stream_returns_the_range_in_blocks(self, store: ObjectStore) -> None:
        payload = os.urandom(3 * STREAM_BYTES + 17)
        store.put("r", payload)
        for start, end in ((0, len(payload)), (5, len(payload) - 5), (0, 1), (STREAM_BYTES, 2 * STREAM_BYTES), (9, 9)):
            blocks = list(store.stream("r", start, end))  # which stay valid
            assert b"".join(blocks) == payload[start:end]
            assert all(block.readonly for block in blocks)
        blocks = store.stream("r", 0, 2 * STREAM_BYTES)
        first = blocks.take()
        blocks.close()
        assert first is not None
        assert payload.startswith(first)
        assert store.get_range("r", 1, 3) == payload[1:3]

    def test_stream_refuses_a_range_beyond_the_end(self, store: ObjectStore) -> None:
        store.put("r", b"0123456789")
        for start, end in ((0, 11), (10, 11), (12, 20)):
            with pytest.raises(WrongSize, match="r"):
                list(store.stream("r", start, end))

    def test_stream_never_mixes_the_bytes_of_two_objects(self, store: ObjectStore) -> None:
        payload, other = os.urandom(8 * STREAM_BYTES), bytes(8 * STREAM_BYTES)
        store.put("r", payload)
        blocks = store.stream("r", 0, len(payload))
        received = bytes(blocks.take() or b"")
        store.delete(["r"])
        store.put("r", other)
        with suppress(ObjectStoreError):  # a server may break off
            for block in blocks:
                received += block
            assert len(received) == len(payload)
        assert payload.startswith(received)

    def test_missing_object_is_named(self, store: ObjectStore) -> None:
        store.put("a/b", b"x")
        for key in ("nope", "a", "a/nope", "a/b/c"):
            for ask in (
                store.get,
                store.size,
                lambda key: store.get_range(key, 1, 2),
                lambda key: store.get_range(key, 1, 1),
                lambda key: store.stream(key, 0, 1).take(),
            ):
                with pytest.raises(NoSuchObject, match=key):
                    ask(key)

    def test_hostile_keys_are_refused(self, store: ObjectStore) -> None:
        for key in HOSTILE:
            for ask in (
                store.get,
                store.size,
                lambda key: store.stream(key, 0, 1).take(),
                lambda key: store.put(key, b""),
                lambda key: store.delete(["a", key]),
            ):
                with pytest.raises(InvalidKey):
                    ask(key)
        for prefix in {*HOSTILE, *(f"{key}/" for key in HOSTILE)} - {"", "a/"}:
            with pytest.raises(InvalidKey):
                list(store.list(prefix))
            with pytest.raises(InvalidKey):
                store.folders(prefix)
        assert list(store.list("")) == []

    def test_listing_is_in_byte_order(self, store: ObjectStore) -> None:
        keys = ["A", "_x/y", "a-b", "a.b/c", "a/0", "a/00", "a/b-c", "a/b/c", "a/b0", "a0", "aa", "b", "b=1/c", "~"]
        for key in reversed(keys):
            store.put(key, key.encode())
        assert keys == sorted(keys, key=str.encode)
        assert list(store.list("")) == [ObjectInfo(key, len(key)) for key in keys]
        for after in [*keys, "a", "a/", "a/b", "a/b/", "a/b/zzz", "zzz", "0"]:
            assert [entry.key for entry in store.list("", after)] == [key for key in keys if key > after]
            inside = [entry.key for entry in store.list("a/", after)]
            assert inside == [key for key in keys if key > after and key.startswith("a/")]

    def test_prefix_matches_whole_folders(self, store: ObjectStore) -> None:
        for key in ("ab/c", "a/b", "abc"):
            store.put(key, b"")
        assert [entry.key for entry in store.list("a/")] == ["a/b"]
        assert list(store.list("nope/")) == []
        assert list(store.list("abc/")) == []
        with pytest.raises(InvalidKey):
            list(store.list("a"))

    def test_folders_are_listed(self, store: ObjectStore) -> None:
        for key in ("top", "b/x", "b-/x", "a/x", "a/y/z", "_work/1/x"):
            store.put(key, b"")
        assert list(store.folders("")) == ["_work", "a", "b", "b-"]
        assert list(store.folders("a/")) == ["y"]
        assert list(store.folders("nope/")) == []
        assert list(store.folders("top/")) == []

    def test_delete_removes_objects_and_ignores_missing_ones(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/2", "b"):
            store.put(key, b"")
        store.delete(["a/1", "a/nope", "nope/nope"])
        store.delete([])
        store.delete(["a/1"])
        assert [entry.key for entry in store.list("")] == ["a/2", "b"]
        store.delete(["a/2"])
        assert list(store.folders("")) == []
        store.put("a/1", b"again")
        assert store.get("a/1") == b"again"

    def test_thousands_of_keys_are_listed_and_deleted(self, store: ObjectStore) -> None:
        keys = [f"many/{number:06d}" for number in range(3210)]
        put_all(store, ((key, b"x") for key in reversed(keys)))
        store.put("many-more", b"")
        store.put("many0", b"")
        assert [entry.key for entry in store.list("many/")] == keys
        for first in (1, 999, 1000, 1001, 2500, 3209):
            assert [entry.key for entry in store.list("many/", keys[first - 1])] == keys[first:]
            assert [entry.key for entry in store.list("many/", keys[first][:-1])] == keys[first // 10 * 10 :]
        listing = store.list("many/")
        assert next(listing).key == keys[0]
        listing.close()  # type: ignore[attr-defined]  # early, in the middle of a page
        store.delete(keys)
        assert [entry.key for entry in store.list("")] == ["many-more", "many0"]

    def test_probe_accepts_the_store_and_leaves_no_object(self, store: ObjectStore) -> None:
        assert fit_server(store, "scope/stream/") == ()
        assert list(store.list("")) == []

    def test_errors_contain_the_uri(self, store: ObjectStore) -> None:
        assert not store.uri.endswith("/")
        with pytest.raises(NoSuchObject) as caught:
            store.get("a/b")
        assert caught.value.where == f"{store.uri}/a/b"
        assert "\n" not in str(caught.value)


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
