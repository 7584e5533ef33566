"""The object store over obstore: an S3 bucket, or memory for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

from obstore.store import MemoryStore, S3Store

from objectstore.errors import NoSuchObject, ObjectStoreUnavailable, TooLarge, UnorderedListing, WrongSize
from objectstore.paths import check_key, check_prefix
from objectstore.s3.errors import BACKEND_ERRORS, beyond_the_end, translate
from objectstore.store import SMALL, ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from obstore import Attributes  # not there at run time

__all__ = ["ObstoreStore"]

LARGE = 1024 * 1024
"""Objects of more bytes than this are given more time: sending them over a slow line is no sign of a dead server."""

PAGE = 1000
"""Entries of a listing that are held at once; also the size of S3's pages, and the keys of one bulk deletion."""


class ObstoreStore(ObjectStore):
    """Objects below a prefix of an obstore store. It does not retry, and obstore must be told not to.

    Args:
        backend: the bucket, or memory.
        bucket: its URI, ``s3://bucket``.
        prefix: where the root is in the bucket: a path without slashes at its ends, or empty.
        endpoint: the server's URL, for messages.
        patient: opens the same bucket with more time for a request; used to put large objects.
        storage_class: S3 storage class of what is put; empty for the bucket's own.
        upload: sends blocks in parts to a full key, as `put_blocks` says; None to hold them instead.
    """

    def __init__(
        self,
        backend: S3Store | MemoryStore,
        *,
        bucket: str,
        prefix: str = "",
        endpoint: str = "",
        patient: Callable[[], S3Store] | None = None,
        storage_class: str = "",
        upload: Callable[[str, Iterable[bytes | bytearray | memoryview]], None] | None = None,
    ) -> None:
        self._backend = backend
        self._open_patient = patient
        self._lock = Lock()
        self._large_backend = backend
        self._upload = upload
        self._bucket = bucket
        self._endpoint = endpoint
        self._attributes: Attributes | None = {"Storage-Class": storage_class} if storage_class else None
        self._base = f"{prefix}/" if prefix else ""

    @property
    def uri(self) -> str:
        """See `ObjectStore.uri`."""
        return f"{self._bucket}/{self._base}".rstrip("/")

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.put`."""
        check_key(key)
        backend = self._patient if len(data) > LARGE else self._backend
        try:
            # One request per object whatever its size: a multipart upload cannot be create-only.
            backend.put(self._base + key, data, mode="create", use_multipart=False, attributes=self._attributes)
        except BACKEND_ERRORS as error:
            self._raise(error, "put", key)

    def put_blocks(self, key: str, blocks: Iterable[bytes | bytearray | memoryview]) -> None:
        """See `ObjectStore.put_blocks`."""
        check_key(key)
        if self._upload is None:
            super().put_blocks(key, blocks)
        else:
            self._upload(self._base + key, blocks)

    def get(self, key: str, at_most: int = SMALL) -> bytes:
        """See `ObjectStore.get`."""
        check_key(key)
        try:
            found = self._backend.get(self._base + key)
            size = found.meta["size"]
            if size <= at_most:
                return bytes(found.bytes())
        except BACKEND_ERRORS as error:
            self._raise(error, "get", key)
        raise TooLarge.of(size, at_most, f"{self.uri}/{key}")

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """See `ObjectStore.get_range`."""
        check_key(key)
        if end <= start:  # an empty range is an error to the server
            if start > self.size(key):
                raise _wrong_size(self.uri, key, start, start)
            return memoryview(b"")
        try:
            data = memoryview(self._backend.get_range(self._base + key, start=start, end=end))
        except BACKEND_ERRORS as error:
            if beyond_the_end(error):
                raise _wrong_size(self.uri, key, start, end) from None
            self._raise(error, "get", key)
        if len(data) != end - start:
            raise _wrong_size(self.uri, key, start, end)
        return data

    def size(self, key: str) -> int:
        """See `ObjectStore.size`."""
        check_key(key)
        try:
            return int(self._backend.head(self._base + key)["size"])
        except BACKEND_ERRORS as error:
            problem = translate(error, **self._place("get", key))
        if isinstance(problem, ObjectStoreUnavailable):
            raise problem
        # The answer to HEAD has no body: a missing object, a missing bucket, wrong credentials. A GET says which.
        try:
            return int(self._backend.get(self._base + key).meta["size"])
        except BACKEND_ERRORS as error:
            self._raise(error, "get", key)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        check_prefix(prefix)
        offset = self._base + after if after else None
        skip, last = len(self._base), after
        try:
            pages = self._backend.list(self._base + prefix or None, offset=offset, chunk_size=PAGE)
            for page in pages:
                for entry in page:
                    key, size = entry["path"][skip:], entry["size"]
                    if key <= last:
                        if key <= after or (size == 0 and key + "/" > last):
                            continue  # a server that ignores the start, or a "folder" object, listed without its slash
                        raise UnorderedListing(
                            "the server does not list keys in the order of their bytes",
                            where=self.uri,
                            todo="It cannot hold an archive; use another server.",
                        )
                    last = key
                    if key.startswith(prefix):
                        yield ObjectInfo(key, size)
        except BACKEND_ERRORS as error:
            self._raise(error, "list", prefix)

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ObjectStore.folders`."""
        check_prefix(prefix)
        full = self._base + prefix
        try:
            found = self._backend.list_with_delimiter(full or None)["common_prefixes"]
        except BACKEND_ERRORS as error:
            self._raise(error, "list", prefix)
        return sorted(folder[len(full) :].rstrip("/") for folder in found)

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore.delete`."""
        for key in keys:
            check_key(key)
        for first in range(0, len(keys), PAGE):
            self._delete(keys[first : first + PAGE])

    def _delete(self, keys: Sequence[str]) -> None:
        try:
            self._backend.delete([self._base + key for key in keys])
        except BACKEND_ERRORS as error:
            problem = translate(error, **self._place("delete", keys[0]))
            if not isinstance(problem, NoSuchObject):
                raise problem from None
            if len(keys) > 1:  # one of them; what became of the others was not told
                for key in keys:
                    self._delete([key])

    @property
    def _patient(self) -> S3Store | MemoryStore:
        """Opened when the first large object is put: many runs have none."""
        with self._lock:
            if self._open_patient is not None:
                self._large_backend, self._open_patient = self._open_patient(), None
        return self._large_backend

    def _raise(self, error: BaseException, action: str, key: str) -> NoReturn:
        raise translate(error, **self._place(action, key)) from None

    def _place(self, action: str, key: str) -> dict[str, str]:
        where = f"{self._bucket}/{self._base}{key}"
        return {"action": action, "bucket": self._bucket, "endpoint": self._endpoint, "key": where}


def _wrong_size(uri: str, key: str, start: int, end: int) -> WrongSize:
    return WrongSize(f"the object does not reach from byte {start} to {end}", where=f"{uri}/{key}")
