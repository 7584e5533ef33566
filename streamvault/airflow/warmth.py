"""Whether all of an archive on S3 can be read now, and asking S3 for what cannot: by a connection's client."""

from __future__ import annotations

from typing import Any, NamedTuple

from objectstore.cold import ColdStorage, Tier
from objectstore.uri import RootAddress

__all__ = ["NextCold", "ask_back", "next_cold"]

_LAST = "\x7f"
"""Sorts behind every key: keys are plain ASCII."""


class NextCold(NamedTuple):
    """An object that cannot be read now, and the key listed before it, to look on from; both below the archive."""

    key: str
    before: str


def next_cold(client: Any, archive: str, after: str = "") -> NextCold | None:
    """The first object of an archive that cannot be read now; None if all can.

    Args:
        client: boto3's for S3.
        archive: ``s3://…/SCOPE/STREAM``.
        after: what comes up to this key was readable before, and is not asked for again.

    Raises:
        ObjectStoreError: the bucket cannot be looked at.
    """
    before = after
    for one in ColdStorage(RootAddress.parse(archive), client).objects("", after, _LAST):
        if one.warmth != "readable":
            return NextCold(one.key, before)
        before = one.key
    return None


def ask_back(client: Any, archive: str, *, days: int, tier: Tier) -> int:
    """Ask S3 to bring back every object that cannot be read; how many it has been asked for now.

    Args:
        client: boto3's for S3.
        archive: ``s3://…/SCOPE/STREAM``.
        days: for how long they stay readable.
        tier: ``Bulk``, ``Standard`` or ``Expedited``.

    Raises:
        ObjectStoreError: the bucket cannot be looked at, or asking is not allowed.
    """
    storage = ColdStorage(RootAddress.parse(archive), client)
    return storage.ask((one for one in storage.objects("", "", _LAST) if one.warmth == "cold"), days, tier)
