"""Objects in an archive class (S3 Glacier): which they are, and asking S3 to bring them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from botocore.exceptions import ClientError

from objectstore.s3.aws import open_client
from objectstore.s3.boto_errors import code_of, named_errors
from objectstore.uri import RootAddress

__all__ = ["ColdStorage", "StoredObject", "Tier", "Warmth"]

Warmth = Literal["readable", "cold", "coming"]
Tier = Literal["Bulk", "Standard", "Expedited"]

ARCHIVE_CLASSES = {"GLACIER", "DEEP_ARCHIVE"}
"""Classes whose objects cannot be read before they are restored. (GLACIER_IR can.)"""

MAYBE_ARCHIVED = {"INTELLIGENT_TIERING"}
"""Classes of which only a HEAD of the object says whether it can be read."""

PAGE = 1000

WINDOW = 16
"""Requests in flight."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object and whether it can be read.

    Attributes:
        key: below the root. size: bytes. storage_class: as S3 names it.
        warmth: ``cold``: not before S3 is asked to bring it back; ``coming``: S3 was asked and is not ready.
    """

    key: str
    size: int
    storage_class: str
    warmth: Warmth


class ColdStorage:
    """The storage classes of a bucket's objects. Roots that are no bucket have none: everything is readable.

    Every method raises what `objectstore.boto.named_errors` names.

    Args:
        address: the root, resolved if no client is given.
        client: boto3's for S3; None makes one.

    Attributes:
        uri: the root's.
    """

    def __init__(self, address: RootAddress, client: Any = None) -> None:
        self._bucket = address.place
        self._base = f"{address.prefix}/" if address.prefix else ""
        self.uri = address.uri
        self._client = open_client(address.access) if client is None and address.access is not None else client

    def objects(self, folder: str, after: str, stop: str, *, first_page: bool = False) -> Iterator[StoredObject]:
        """The objects of a folder between two keys, in order; a page of 1,000 is held at a time.

        Args:
            folder: with its slash, below the root; empty for all of it.
            after: a key; what sorts behind it is listed.
            stop: what sorts from here on is not.
            first_page: no more than one request's worth.
        """
        if self._client is None:
            return
        where = f"{self.uri}/{folder}"
        with ThreadPoolExecutor(WINDOW, thread_name_prefix="head") as threads:
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
        """Of an object whose listing does not say it (https://docs.aws.amazon.com/AmazonS3/latest/API: HeadObject)."""
        with named_errors("look at", f"s3://{self._bucket}/{key}"):
            head = self._client.head_object(Bucket=self._bucket, Key=key)
        asked = head.get("Restore", "")
        if 'ongoing-request="true"' in asked:
            return "coming"
        archived = head.get("StorageClass", "STANDARD") in ARCHIVE_CLASSES or head.get("ArchiveStatus")
        return "cold" if archived and not asked else "readable"

    def ask(self, objects: Iterable[StoredObject], days: int, tier: Tier) -> int:
        """Ask S3 to bring objects back for some days, several requests at a time; returns how many were asked for.

        Asking again is harmless: what is under way stays under way. A page of objects is held at a time.
        """
        with ThreadPoolExecutor(WINDOW, thread_name_prefix="restore") as threads:
            waiting = iter(objects)
            asked = 0
            while some := list(islice(waiting, PAGE)):
                asked += sum(threads.map(lambda one: self._ask(one, days, tier), some))
        return asked

    def _ask(self, one: StoredObject, days: int, tier: Tier) -> bool:
        request: Any = {"GlacierJobParameters": {"Tier": tier}}
        if one.storage_class in ARCHIVE_CLASSES:
            request["Days"] = days  # an object of INTELLIGENT_TIERING comes back for good
        with named_errors("restore", f"{self.uri}/{one.key}"):
            try:
                self._client.restore_object(Bucket=self._bucket, Key=self._base + one.key, RestoreRequest=request)
            except ClientError as error:
                if code_of(error) != "RestoreAlreadyInProgress":
                    raise
                return False
        return True
