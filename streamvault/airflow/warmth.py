"""Whether all objects of an archive on S3 can be read now, and asking S3 to bring back those that cannot.

Objects of the storage classes GLACIER and DEEP_ARCHIVE have to be restored before they can be read, which takes
minutes to two days (https://docs.aws.amazon.com/AmazonS3/latest/userguide/restoring-objects.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from objectstore.uri import RootAddress

__all__ = ["Cold", "ask_back", "next_cold"]

COLD_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_IN_PROGRESS = "RestoreAlreadyInProgress"
_RESTORED = re.compile(r'ongoing-request="false"')


@dataclass(frozen=True, slots=True)
class Cold:
    """An object that cannot be read now.

    Attributes:
        key: of the object.
        before: the key that is listed before it, to look on from; empty if it is the first.
        coming: whether S3 is bringing it back already.
    """

    key: str
    before: str
    coming: bool


def next_cold(client: Any, archive: str, after: str = "") -> Cold | None:
    """The first object of an archive that cannot be read now; None if all can.

    Args:
        client: boto3's for S3.
        archive: ``s3://…/SCOPE/STREAM``.
        after: what comes up to this key was readable before, and is not asked for again.
    """
    return next(_cold(client, archive, after), None)


def ask_back(client: Any, archive: str, *, days: int, tier: str) -> int:
    """Ask S3 to bring back every object that cannot be read; how many it has been asked for now.

    Args:
        client: boto3's for S3.
        archive: ``s3://…/SCOPE/STREAM``.
        days: for how long they stay readable.
        tier: ``Bulk``, ``Standard`` or ``Expedited``.
    """
    asked = 0
    for cold in _cold(client, archive, ""):
        if cold.coming:
            continue
        request = {"Days": days, "GlacierJobParameters": {"Tier": tier}}
        try:
            client.restore_object(Bucket=RootAddress.parse(archive).place, Key=cold.key, RestoreRequest=request)
        except ClientError as error:
            if error.response["Error"]["Code"] != _IN_PROGRESS:
                raise
        asked += 1
    return asked


def _cold(client: Any, archive: str, after: str) -> Iterator[Cold]:
    address = RootAddress.parse(archive)
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=address.place,
        Prefix=f"{address.prefix}/",
        StartAfter=after,
        OptionalObjectAttributes=["RestoreStatus"],
    )
    before = after
    for page in pages:
        for entry in page.get("Contents", ()):
            if entry.get("StorageClass") in COLD_CLASSES:
                coming, readable = _restoring(client, address.place, entry)
                if not readable:
                    yield Cold(entry["Key"], before, coming)
            before = entry["Key"]


def _restoring(client: Any, bucket: str, entry: dict[str, Any]) -> tuple[bool, bool]:
    """Whether an object of a cold class is on its way, and whether it is there."""
    status = entry.get("RestoreStatus")
    if status is not None:
        expires = status.get("RestoreExpiryDate")
        return bool(status.get("IsRestoreInProgress")), expires is not None and expires > datetime.now(UTC)
    # not every server lists it
    said = client.head_object(Bucket=bucket, Key=entry["Key"]).get("Restore", "")
    readable = _RESTORED.search(said) is not None
    return bool(said) and not readable, readable
