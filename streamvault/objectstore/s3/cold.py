"""Objects in archive classes (S3 Glacier), and S3 Object Lock: what obstore does not support, by botocore.

A bucket with Object Lock is versioned, so a plain delete of a locked object succeeds and hides it behind a delete
marker. Callers must therefore check before deleting whether the object may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from streamvault.objectstore.bulk import in_order
from streamvault.objectstore.retrying import Retries
from streamvault.objectstore.s3.access import ARCHIVE_CLASSES
from streamvault.objectstore.s3.aws import ask, code_of, open_client
from streamvault.objectstore.store import PAGE, ColdStorage, Lock, ObjectLocks, StoredObject, Tier, Warmth
from streamvault.objectstore.uri import RootAddress

MAYBE_ARCHIVED = {"INTELLIGENT_TIERING"}
"""Classes where only a HEAD request tells whether the object can be read."""

MAX_REQUESTS = 16
"""Requests in flight."""

_AHEAD = 4 * MAX_REQUESTS
"""Requests in flight, and answers that wait for one before them."""


class BucketColdStorage(ColdStorage):
    """The archive classes of a bucket's objects.

    Every method raises the errors of `objectstore.s3.aws.named_errors`.

    Args:
        address: the root; must be resolved unless a client is given.
        client: a botocore S3 client; None opens one.
    """

    def __init__(self, address: RootAddress, client: Any = None) -> None:
        super().__init__(address.uri)
        self._bucket = address.place
        self._base = f"{address.prefix}/" if address.prefix else ""
        self._client = open_client(address.access) if client is None else client
        self._retries = Retries(answered=True)

    def objects(self, folder: str, after: str, stop: str, *, first_page: bool = False) -> Iterator[StoredObject]:
        """See `ColdStorage.objects`."""
        where = f"{self.uri}/{folder}"
        token: dict[str, Any] = {"StartAfter": self._base + after}
        while True:
            request = partial(
                self._client.list_objects_v2,
                Bucket=self._bucket,
                Prefix=self._base + folder,
                OptionalObjectAttributes=["RestoreStatus"],
                MaxKeys=PAGE,
                **token,
            )
            page = ask(self._retries, request, "list", where)
            entries = [e for e in page.get("Contents", []) if e["Key"] < self._base + stop]
            yield from in_order(entries, self._look, lambda _: 1, MAX_REQUESTS, _AHEAD)
            if first_page or len(entries) < len(page.get("Contents", [])) or not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _look(self, entry: Any) -> StoredObject:
        key, kind, status = entry["Key"], entry.get("StorageClass", "STANDARD"), entry.get("RestoreStatus")
        warmth: Warmth = "readable"
        if kind in ARCHIVE_CLASSES and status is not None:
            warmth = "coming" if status.get("IsRestoreInProgress") else "readable"
        elif kind in ARCHIVE_CLASSES | MAYBE_ARCHIVED:
            warmth = self._ask_head(key)
        return StoredObject(key.removeprefix(self._base), entry["Size"], kind, warmth)

    def _ask_head(self, key: str) -> Warmth:
        """Query an object whose listing does not tell (https://docs.aws.amazon.com/AmazonS3/latest/API: HeadObject)."""
        request = partial(self._client.head_object, Bucket=self._bucket, Key=key)
        head = ask(self._retries, request, "inspect", f"s3://{self._bucket}/{key}")
        asked = head.get("Restore", "")
        if 'ongoing-request="true"' in asked:
            return "coming"
        archived = head.get("StorageClass", "STANDARD") in ARCHIVE_CLASSES or head.get("ArchiveStatus")
        return "cold" if archived and not asked else "readable"

    def ask(self, objects: Iterable[StoredObject], days: int, tier: Tier) -> int:
        """See `ColdStorage.ask`."""
        return sum(in_order(objects, lambda one: self._ask(one, days, tier), lambda _: 1, MAX_REQUESTS, _AHEAD))

    def _ask(self, one: StoredObject, days: int, tier: Tier) -> bool:
        request: Any = {"GlacierJobParameters": {"Tier": tier}}
        if one.class_name in ARCHIVE_CLASSES:
            request["Days"] = days  # INTELLIGENT_TIERING objects are restored permanently

        def restore() -> bool:
            try:
                self._client.restore_object(Bucket=self._bucket, Key=self._base + one.key, RestoreRequest=request)
            except ClientError as error:
                if code_of(error) != "RestoreAlreadyInProgress":
                    raise
                return False
            return True

        return ask(self._retries, restore, "restore", f"{self.uri}/{one.key}")


_NO_LOCKS_HERE = {"MethodNotAllowed", "NotImplemented", "ObjectLockConfigurationNotFoundError"}
"""Error codes for a bucket without Object Lock, or a server that does not support it."""

_NOT_LOCKED = {"404", "NoSuchKey", "NoSuchObjectLockConfiguration", "NoSuchVersion", "NotFound"}
"""Error codes for an object without a lock, or a missing object."""


class BucketLocks(ObjectLocks):
    """The locks of objects below a root whose bucket has Object Lock. Created by `open_locks`."""

    def __init__(self, address: RootAddress, client: Any, retries: Retries) -> None:
        self._client = client
        self._retries = retries
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
        with closing(in_order(keys, self._look, lambda _: 1, MAX_REQUESTS, _AHEAD)) as locks:
            return next(filter(None, locks), None)

    def _look(self, key: str) -> Lock | None:
        answer = self._ask("head_object", "s3:GetObject", key)
        if answer.get("ObjectLockLegalHoldStatus") == "ON":
            return Lock(key, "legal hold")
        return _retention(key, answer.get("ObjectLockMode"), answer.get("ObjectLockRetainUntilDate"))

    def _ask(self, operation: str, permission: str, key: str) -> dict[str, Any]:
        request = partial(getattr(self._client, operation), Bucket=self._bucket, Key=self._base + key)
        answer = partial(_answer, request, _NOT_LOCKED)
        return ask(self._retries, answer, "read locks", f"{self._uri}/{key}", permission)


def open_locks(address: RootAddress) -> BucketLocks | None:
    """See `Scheme.open_locks`. Sends one request."""
    client, retries = open_client(address.access), Retries(answered=True)
    request = partial(_answer, partial(client.get_object_lock_configuration, Bucket=address.place), _NO_LOCKS_HERE)
    answer = ask(retries, request, "read locks", f"s3://{address.place}", "s3:GetBucketObjectLockConfiguration")
    enabled = answer.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") == "Enabled"
    return BucketLocks(address, client, retries) if enabled else None


def _answer(request: Callable[[], dict[str, Any]], no_lock: set[str]) -> dict[str, Any]:
    """Return the answer to a request; an empty one for an error whose code means that there is no lock."""
    try:
        return request()
    except ClientError as error:
        if code_of(error) in no_lock:
            return {}
        raise


def _retention(key: str, mode: str | None, until: datetime | None) -> Lock | None:
    if mode is None or until is None or until <= datetime.now(UTC):
        return None
    return Lock(key, f"retention ({mode})", until)
