"""S3 Object Lock: whether a bucket has it, and whether an object may be deleted yet.

A bucket with object lock keeps versions, so a plain delete of a locked object is not refused: it hides the object
behind a marker. Who deletes therefore has to look first. obstore does not know locks, so boto3's core is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from objectstore.errors import AccessDenied, ObjectStoreError
from objectstore.s3.aws import open_client
from objectstore.s3.boto_errors import code_of, unavailable
from objectstore.uri import RootAddress

__all__ = ["Lock", "ObjectLocks", "open_locks"]

WINDOW = 16
"""Requests in flight."""

_NO_LOCKS_HERE = {"MethodNotAllowed", "NotImplemented", "ObjectLockConfigurationNotFoundError"}
"""What servers answer for a bucket without object lock, or that know none."""

_NOT_LOCKED = {"404", "NoSuchKey", "NoSuchObjectLockConfiguration", "NoSuchVersion", "NotFound"}
"""What they answer for an object that has no lock, or is gone."""

_DENIED = {"AccessDenied", "403", "Forbidden"}


@dataclass(frozen=True, slots=True)
class Lock:
    """Why an object may not be deleted yet.

    Attributes:
        key: the object, below the root.
        reason: ``legal hold``, ``retention (GOVERNANCE)`` or ``retention (COMPLIANCE)``.
        until: when a retention ends; None for a legal hold, which ends when it is lifted.
    """

    key: str
    reason: str
    until: datetime | None = None


class ObjectLocks:
    """Asks for the locks of objects below a root whose bucket has object lock. See `open_locks`."""

    def __init__(self, address: RootAddress, client: Any) -> None:
        self._client = client
        self._bucket = address.place
        self._base = f"{address.prefix}/" if address.prefix else ""
        self._uri = address.uri

    def lock_of(self, key: str) -> Lock | None:
        """The lock of one object, or None; asked so that a missing permission is told and never taken for no lock.

        Raises:
            AccessDenied: locks cannot be read.
        """
        held = self._ask("get_object_legal_hold", "s3:GetObjectLegalHold", key).get("LegalHold", {})
        if held.get("Status") == "ON":
            return Lock(key, "legal hold")
        kept = self._ask("get_object_retention", "s3:GetObjectRetention", key).get("Retention", {})
        return _retention(key, kept.get("Mode"), kept.get("RetainUntilDate"))

    def first_lock(self, keys: Iterable[str]) -> Lock | None:
        """A lock on one of many objects, or None: one request each, a few at a time, until one is found.

        Args:
            keys: below the root. Taken as they are asked for; memory does not grow with their number.

        Raises:
            AccessDenied, ObjectStoreError: the objects cannot be looked at.
        """
        left = iter(keys)
        with ThreadPoolExecutor(WINDOW, "locks") as pool:
            running = {pool.submit(self._look, key) for key in islice(left, 2 * WINDOW)}
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
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(Bucket=self._bucket, Key=self._base + key)
        except (ClientError, BotoCoreError) as error:
            if code_of(error) in _NOT_LOCKED:
                return {}
            raise _problem(error, f"{self._uri}/{key}", permission) from None
        return answer


def open_locks(address: RootAddress) -> ObjectLocks | None:
    """The locks below a root, or None if there can be none: no S3, or a bucket without object lock.

    One request. An answer that is not understood is an error: to take it for "no locks" could hide locked objects.

    Raises:
        AccessDenied: the bucket's configuration may not be read. ObjectStoreError: the server cannot be asked.
    """
    access = address.resolve().access
    if access is None:
        return None
    client = open_client(access)
    try:
        answer = client.get_object_lock_configuration(Bucket=address.place)
    except (ClientError, BotoCoreError) as error:
        if code_of(error) in _NO_LOCKS_HERE:
            return None
        raise _problem(error, f"s3://{address.place}", "s3:GetBucketObjectLockConfiguration") from None
    enabled = answer.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") == "Enabled"
    return ObjectLocks(address, client) if enabled else None


def _retention(key: str, mode: str | None, until: datetime | None) -> Lock | None:
    if mode is None or until is None or until <= datetime.now(UTC):
        return None
    return Lock(key, f"retention ({mode})", until)


def _results(done: Iterable[Future[Lock | None]]) -> Iterator[Lock]:
    return (found for future in done if (found := future.result()) is not None)


def _problem(error: ClientError | BotoCoreError, where: str, permission: str) -> ObjectStoreError:
    if (away := unavailable(error, "read locks", where)) is not None:
        return away
    if not isinstance(error, ClientError):
        return ObjectStoreError(f"locks cannot be read: {error}", where=where)
    code = code_of(error)
    if code in _DENIED:
        return AccessDenied("no permission to read locks", where=where, todo=f"Allow {permission} there.")
    return ObjectStoreError(f"the server does not tell of locks ({code})", where=where)
