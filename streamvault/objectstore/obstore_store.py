"""Object store over obstore, which knows S3, memory and others; roots in memory are for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import MemoryStore, S3Store

from streamvault.common.errors import Problem
from streamvault.objectstore.store import (
    PAGE,
    SMALL,
    STREAM_BYTES,
    AlreadyExists,
    ByteStream,
    NoSuchObject,
    ObjectInfo,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    TooLarge,
    UnorderedListing,
    WrongSize,
    check_key,
    check_prefix,
)
from streamvault.objectstore.uri import Scheme, parse_path

if TYPE_CHECKING:
    from obstore import Attributes, BytesStream, GetOptions, GetResult, ObjectMeta

    from streamvault.objectstore.uri import RootAddress


BACKEND_ERRORS = (BaseError, OSError, ValueError)
"""The exceptions obstore raises."""


class ObstoreStore(ObjectStore):
    """Objects below a prefix of an obstore store. Does not retry; obstore's retries must be disabled.

    Args:
        backend: obstore's store.
        bucket: its URI, ``s3://bucket``.
        prefix: the root's path in it, without leading or trailing slash; may be empty.
    """

    _attributes: Attributes | None = None
    """Attributes of new objects."""

    def __init__(self, backend: S3Store | MemoryStore, *, bucket: str, prefix: str = "") -> None:
        self._backend = backend
        self._bucket = bucket
        self._base = f"{prefix}/" if prefix else ""
        self.uri = f"{bucket}/{prefix}".rstrip("/")

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See `ObjectStore.put`."""
        check_key(key)
        backend = self._backend_for(len(data))
        try:
            # One request per object regardless of size: obstore's multipart uploads cannot be create-only.
            backend.put(self._base + key, data, mode="create", use_multipart=False, attributes=self._attributes)
        except BACKEND_ERRORS as error:
            raise self._problem(error, "put", key) from None

    def get(self, key: str, at_most: int = SMALL) -> bytes:
        """See `ObjectStore.get`."""
        check_key(key)
        try:
            found = self._backend.get(self._base + key)
            size = found.meta["size"]
            if size <= at_most:
                return bytes(_received(found, size, f"{self.uri}/{key}"))
        except BACKEND_ERRORS as error:
            raise self._problem(error, "get", key) from None
        raise TooLarge.of(size, at_most, f"{self.uri}/{key}")

    def get_range(self, key: str, start: int, end: int) -> memoryview:
        """See `ObjectStore.get_range`."""
        check_key(key)
        if end <= start:  # servers reject empty ranges
            if start > self.size(key):
                raise WrongSize.short(start, start, f"{self.uri}/{key}")
            return memoryview(b"")
        try:
            found = self.ranged(key, {"range": (start, end)})
            return _received(found, end - start, f"{self.uri}/{key}", start)
        except BACKEND_ERRORS as error:
            raise self.range_problem(error, key, start, end) from None

    def stream(self, key: str, start: int, end: int) -> ByteStream:
        """See `ObjectStore.stream`."""
        check_key(key)
        body = _Body(self, key, start, end)
        return ByteStream(body.take, body.close)

    def ranged(self, key: str, options: GetOptions) -> GetResult:
        """Request a range of an object, as the options say; errors are obstore's."""
        return self._backend.get(self._base + key, options=options)

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
            problem = self._problem(error, "get", key)
        if isinstance(problem, ObjectStoreUnavailable):
            raise problem
        # A HEAD response has no body to tell a missing object from a missing bucket or bad credentials; a GET does.
        try:
            return self._backend.get(self._base + key).meta
        except BACKEND_ERRORS as error:
            raise self._problem(error, "get", key) from None

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        check_prefix(prefix)
        offset = self._base + after if after else None
        asked, skip, last = self._base + prefix, len(self._base), ""
        try:
            pages = self._backend.list(self._base + prefix or None, offset=offset, chunk_size=PAGE)
            for page in pages:
                for entry in page:
                    path, size = entry["path"], entry["size"]
                    if size == 0 and last < f"{path}/" and (path <= last or f"{path}/" == asked):
                        continue  # a "folder" object lost its slash
                    if path <= last:
                        raise UnorderedListing.at(self.uri)
                    if not path.startswith(asked):
                        what = "the server lists an object that is not below the folder that was asked for"
                        raise ObjectStoreError(what, where=f"{self.uri}/{prefix}")
                    last = path
                    if path[skip:] > after:  # else the server ignores the start key
                        yield ObjectInfo(path[skip:], size)
        except BACKEND_ERRORS as error:
            raise self._problem(error, "list", prefix) from None

    def folders(self, prefix: str) -> Sequence[str]:
        """See `ObjectStore.folders`."""
        check_prefix(prefix)
        full = self._base + prefix
        try:
            found = self._backend.list_with_delimiter(full or None)["common_prefixes"]
        except BACKEND_ERRORS as error:
            raise self._problem(error, "list", prefix) from None
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
            problem = self._problem(error, "delete", keys[0])
            if not isinstance(problem, NoSuchObject):
                raise problem from None
            if len(keys) > 1:  # the error concerns one key; the outcome of the others is unknown
                for key in keys:
                    self._delete([key])

    def _backend_for(self, size: int) -> S3Store | MemoryStore:  # noqa: ARG002
        """Return obstore's store for putting so many bytes."""
        return self._backend

    def _problem(self, error: BaseException, action: str, key: str) -> Problem:  # noqa: ARG002
        """Translate one of `BACKEND_ERRORS`; ``action`` is ``put``, ``get``, ``list`` or ``delete``."""
        where = f"{self._bucket}/{self._base}{key}"
        if isinstance(error, AlreadyExistsError):
            return AlreadyExists("the object exists", where=where)
        if isinstance(error, FileNotFoundError):
            return NoSuchObject("no such object", where=where)
        return ObjectStoreError(f"the store rejected the request ({str(error)[:200]})", where=where)

    def range_problem(self, error: BaseException, key: str, start: int, end: int) -> Problem:
        """Translate one of `BACKEND_ERRORS` for a range of an object."""
        if self._is_beyond_end(error):
            return WrongSize.short(start, end, f"{self.uri}/{key}")
        return self._problem(error, "get", key)

    def _is_beyond_end(self, error: BaseException) -> bool:
        """Return whether a ranged read failed because the object ends before the range starts."""
        return "StartTooLarge" in str(error)


def _received(found: GetResult, size: int, where: str, start: int = 0) -> memoryview:
    """Return the body of a response as one block; of one that goes on for longer, no more is received.

    Raises:
        WrongSize: it has another size.
    """
    data = memoryview(next(found.stream(min_chunk_size=max(size, 1)), b""))
    if len(data) != size:
        raise WrongSize.short(start, start + size, where)
    return data


class _Body:
    """The bytes ``[at, end)`` of an object, received as they are taken. A broken response is followed by another one.

    Only of the same object: its ETag is in the request, and in the response, as not every server heeds the request's.

    Args:
        store: where the object is.
        key: its key.
        at: the first byte; then, the next one.
        end: the byte after the last.
    """

    def __init__(self, store: ObstoreStore, key: str, at: int, end: int) -> None:
        self._store, self._key = store, key
        self._where = f"{store.uri}/{key}"
        self._at, self._end = at, end
        self._etag: str | None = None
        self._blocks: BytesStream | None = None

    def take(self) -> memoryview | None:
        if self._at >= self._end:
            return None
        try:
            if self._blocks is None:
                self._blocks = self._begin()
            block = memoryview(next(self._blocks, b""))
        except PreconditionError:
            raise self._replaced() from None
        except BACKEND_ERRORS as error:
            self.close()
            raise self._store.range_problem(error, self._key, self._at, self._end) from None
        if not 0 < len(block) <= self._end - self._at:
            self.close()
            raise WrongSize.short(self._at, self._end, self._where)
        self._at += len(block)
        return block

    def close(self) -> None:
        self._blocks = None  # obstore closes the connection if there is more to come

    def _begin(self) -> BytesStream:
        options: GetOptions = {"range": (self._at, self._end)}
        if self._etag is not None:
            options["if_match"] = self._etag
        found = self._store.ranged(self._key, options)
        if self._etag not in {None, found.meta["e_tag"]}:
            raise self._replaced()
        self._etag = found.meta["e_tag"]
        if found.range[1] < self._end:
            raise WrongSize.short(self._at, self._end, self._where)
        return found.stream(min_chunk_size=STREAM_BYTES)

    def _replaced(self) -> ObjectStoreError:
        return ObjectStoreError("the object was replaced while it was read", where=self._where)


_STORES: dict[str, MemoryStore] = {}


class _MemoryScheme(Scheme):
    form = "memory://NAME/PREFIX"

    def parse(self, rest: str, uri: str) -> tuple[str, str]:
        """The store's name and the prefix in it."""
        name, _, prefix = rest.partition("/")
        return name, parse_path(prefix, uri)

    def open(self, address: RootAddress, **_: Any) -> ObjectStore:
        """See the base class."""
        store = _STORES.setdefault(address.place, MemoryStore())
        return ObstoreStore(store, bucket=f"memory://{address.place}", prefix=address.prefix)


SCHEME = _MemoryScheme()
