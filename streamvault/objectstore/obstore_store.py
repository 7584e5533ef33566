"""Object store over obstore: an S3 bucket, or memory for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, NoReturn

from obstore.store import MemoryStore, S3Store

from streamvault.objectstore.errors import NoSuchObject, ObjectStoreUnavailable, TooLarge, UnorderedListing, WrongSize
from streamvault.objectstore.paths import check_key, check_prefix
from streamvault.objectstore.s3.errors import BACKEND_ERRORS, beyond_the_end, translate
from streamvault.objectstore.store import SMALL, ObjectInfo, ObjectStore

if TYPE_CHECKING:
    from obstore import Attributes, ObjectMeta  # not there at run time

LARGE = 1024 * 1024
"""Larger objects (bytes) get a longer timeout: a slow upload does not mean a dead server."""

PAGE = 1000
"""Listing entries held at once; also S3's page size and its maximum of keys per bulk delete."""


class ObstoreStore(ObjectStore):
    """Objects below a prefix of an obstore store. Does not retry; obstore's retries must be disabled.

    Args:
        backend: the bucket, or memory.
        bucket: its URI, ``s3://bucket``.
        prefix: the root's path in the bucket, without leading or trailing slash; may be empty.
        endpoint: the server's URL, for messages.
        patient: opens the same bucket with longer timeouts, for putting large objects.
        storage_class: S3 storage class of new objects; empty for the bucket's default.
        upload: uploads blocks to a full key as described in `put_blocks`; None to buffer them instead.
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
        self.uri = f"{bucket}/{prefix}".rstrip("/")

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.put`."""
        check_key(key)
        backend = self._patient if len(data) > LARGE else self._backend
        try:
            # One request per object regardless of size: obstore's multipart uploads cannot be create-only.
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
        if end <= start:  # servers reject empty ranges
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
        return self._meta(key)["size"]

    def modified(self, key: str) -> datetime:
        """See `ObjectStore.modified`."""
        return self._meta(key)["last_modified"]

    def _meta(self, key: str) -> ObjectMeta:
        check_key(key)
        try:
            return self._backend.head(self._base + key)
        except BACKEND_ERRORS as error:
            problem = translate(error, **self._place("get", key))
        if isinstance(problem, ObjectStoreUnavailable):
            raise problem
        # A HEAD response has no body to tell a missing object from a missing bucket or bad credentials; a GET does.
        try:
            return self._backend.get(self._base + key).meta
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
                            continue  # the server ignores the start key, or a "folder" object lost its slash
                        raise UnorderedListing(
                            "the server does not list keys in byte order",
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
            if len(keys) > 1:  # the error concerns one key; the outcome of the others is unknown
                for key in keys:
                    self._delete([key])

    @property
    def _patient(self) -> S3Store | MemoryStore:
        """The backend with longer timeouts, opened with the first large object: many runs have none."""
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
    return WrongSize(f"the object is too short for bytes {start} to {end}", where=f"{uri}/{key}")
