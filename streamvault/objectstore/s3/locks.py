"""S3 Object Lock: whether a bucket has it, and whether an object may be deleted.

A bucket with Object Lock is versioned, so a plain delete of a locked object succeeds and hides it behind a delete
marker. Callers must therefore check before deleting. obstore does not support locks, so botocore is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from botocore.exceptions import ClientError

from streamvault.objectstore.locks import Lock, ObjectLocks
from streamvault.objectstore.s3.aws import open_client
from streamvault.objectstore.s3.boto_errors import code_of, named_errors
from streamvault.objectstore.uri import RootAddress

MAX_REQUESTS = 16
"""Requests in flight."""

_NO_LOCKS_HERE = {"MethodNotAllowed", "NotImplemented", "ObjectLockConfigurationNotFoundError"}
"""Error codes for a bucket without Object Lock, or a server that does not support it."""

_NOT_LOCKED = {"404", "NoSuchKey", "NoSuchObjectLockConfiguration", "NoSuchVersion", "NotFound"}
"""Error codes for an object without a lock, or a missing object."""


class BucketLocks(ObjectLocks):
    """The locks of objects below a root whose bucket has Object Lock. Created by `open_locks`."""

    def __init__(self, address: RootAddress, client: Any) -> None:
        self._client = client
        self._bucket = address.place
        self._base = f"{address.prefix}/" if address.prefix else ""
        self._uri = address.uri

    def lock_of(self, key: str) -> Lock | None:
        """See `ObjectLocks.lock_of`."""
        held = self._ask("get_object_legal_hold", "s3:GetObjectLegalHold", key).get("LegalHold", {})
        if held.get("Status") == "ON":
            return Lock(key, "legal hold")
        kept = self._ask("get_object_retention", "s3:GetObjectRetention", key).get("Retention", {})
        return _retention(key, kept.get("Mode"), kept.get("RetainUntilDate"))

    def first_lock(self, keys: Iterable[str]) -> Lock | None:
        """See `ObjectLocks.first_lock`."""
        left = iter(keys)
        with ThreadPoolExecutor(MAX_REQUESTS, "locks") as pool:
            running = {pool.submit(self._look, key) for key in islice(left, 2 * MAX_REQUESTS)}
            try:
                while running:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for found in _results(done):
                        return found
                    running |= {pool.submit(self._look, key) for key in islice(left, len(done))}
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return None

    def _look(self, key: str) -> Lock | None:
        answer = self._ask("head_object", "s3:GetObject", key)
        if answer.get("ObjectLockLegalHoldStatus") == "ON":
            return Lock(key, "legal hold")
        return _retention(key, answer.get("ObjectLockMode"), answer.get("ObjectLockRetainUntilDate"))

    def _ask(self, operation: str, permission: str, key: str) -> dict[str, Any]:
        with named_errors("read locks", f"{self._uri}/{key}", permission):
            try:
                answer: dict[str, Any] = getattr(self._client, operation)(Bucket=self._bucket, Key=self._base + key)
            except ClientError as error:
                if code_of(error) in _NOT_LOCKED:
                    return {}
                raise
        return answer


def open_locks(address: RootAddress) -> BucketLocks | None:
    """See `Scheme.open_locks`. Sends one request."""
    client = open_client(address.access)
    with named_errors("read locks", f"s3://{address.place}", "s3:GetBucketObjectLockConfiguration"):
        try:
            answer = client.get_object_lock_configuration(Bucket=address.place)
        except ClientError as error:
            if code_of(error) in _NO_LOCKS_HERE:
                return None
            raise
    enabled = answer.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") == "Enabled"
    return BucketLocks(address, client) if enabled else None


def _retention(key: str, mode: str | None, until: datetime | None) -> Lock | None:
    if mode is None or until is None or until <= datetime.now(UTC):
        return None
    return Lock(key, f"retention ({mode})", until)


def _results(done: Iterable[Future[Lock | None]]) -> Iterator[Lock]:
    return (found for future in done if (found := future.result()) is not None)
