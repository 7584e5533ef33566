"""Finds objects in archive classes (S3 Glacier) and requests their restore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from botocore.exceptions import ClientError

from streamvault.objectstore.cold import ColdStorage, StoredObject, Tier, Warmth
from streamvault.objectstore.s3.access import ARCHIVE_CLASSES
from streamvault.objectstore.s3.aws import open_client
from streamvault.objectstore.s3.boto_errors import code_of, named_errors
from streamvault.objectstore.uri import RootAddress

MAYBE_ARCHIVED = {"INTELLIGENT_TIERING"}
"""Classes where only a HEAD request tells whether the object can be read."""

PAGE = 1000

MAX_REQUESTS = 16
"""Requests in flight."""


class BucketColdStorage(ColdStorage):
    """The archive classes of a bucket's objects.

    Every method raises the errors of `objectstore.s3.boto_errors.named_errors`.

    Args:
        address: the root; must be resolved unless a client is given.
        client: a botocore S3 client; None opens one.
    """

    def __init__(self, address: RootAddress, client: Any = None) -> None:
        super().__init__(address.uri)
        self._bucket = address.place
        self._base = f"{address.prefix}/" if address.prefix else ""
        self._client = open_client(address.access) if client is None else client

    def objects(self, folder: str, after: str, stop: str, *, first_page: bool = False) -> Iterator[StoredObject]:
        """See `ColdStorage.objects`."""
        where = f"{self.uri}/{folder}"
        with ThreadPoolExecutor(MAX_REQUESTS, thread_name_prefix="head") as threads:
            token: dict[str, Any] = {"StartAfter": self._base + after}
            while True:
                with named_errors("list", where):
                    page = self._client.list_objects_v2(
                        Bucket=self._bucket,
                        Prefix=self._base + folder,
                        OptionalObjectAttributes=["RestoreStatus"],
                        MaxKeys=PAGE,
                        **token,
                    )
                entries = [e for e in page.get("Contents", []) if e["Key"] < self._base + stop]
                yield from threads.map(self._look, entries)
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
        with named_errors("inspect", f"s3://{self._bucket}/{key}"):
            head = self._client.head_object(Bucket=self._bucket, Key=key)
        asked = head.get("Restore", "")
        if 'ongoing-request="true"' in asked:
            return "coming"
        archived = head.get("StorageClass", "STANDARD") in ARCHIVE_CLASSES or head.get("ArchiveStatus")
        return "cold" if archived and not asked else "readable"

    def ask(self, objects: Iterable[StoredObject], days: int, tier: Tier) -> int:
        """See `ColdStorage.ask`."""
        with ThreadPoolExecutor(MAX_REQUESTS, thread_name_prefix="restore") as threads:
            waiting = iter(objects)
            asked = 0
            while some := list(islice(waiting, PAGE)):
                asked += sum(threads.map(lambda one: self._ask(one, days, tier), some))
        return asked

    def _ask(self, one: StoredObject, days: int, tier: Tier) -> bool:
        request: Any = {"GlacierJobParameters": {"Tier": tier}}
        if one.class_name in ARCHIVE_CLASSES:
            request["Days"] = days  # INTELLIGENT_TIERING objects are restored permanently
        with named_errors("restore", f"{self.uri}/{one.key}"):
            try:
                self._client.restore_object(Bucket=self._bucket, Key=self._base + one.key, RestoreRequest=request)
            except ClientError as error:
                if code_of(error) != "RestoreAlreadyInProgress":
                    raise
                return False
        return True
