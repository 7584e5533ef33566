"""Comparison of chunks with the index by the checksums that the store keeps of them, which downloads nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass

from streamvault.layouts.layout import open_layout
from streamvault.layouts.place import Place
from streamvault.manifests.archive.damage import Lost, whole
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.objectstore.checksums import KeptChecksums
from streamvault.objectstore.errors import NoSuchObject
from streamvault.objectstore.transfers import in_order

MAX_REQUESTS = 16
"""Requests in flight for a task."""


@dataclass(frozen=True, slots=True)
class ComparedObject:
    """Result for one object.

    Attributes:
        key: its key.
        damage: what is wrong with it, if anything.
        is_kept: whether the store keeps a checksum of all of its bytes.
        is_compared: whether the index has the same kind of checksum, and both were compared.
    """

    key: str
    damage: Lost | None = None
    is_kept: bool = False
    is_compared: bool = False


def compare_checksums(place: Place, layout: str, rows: Iterable[ArchivedRange]) -> Iterable[ComparedObject]:
    """Compare ranges of a layout with one object each with the index, by one request for each."""
    keys = open_layout(layout).keys

    def ask(row: ArchivedRange) -> ComparedObject:
        key = place.prefix + keys.key(row.segment, row.start, row.end - row.start)
        try:
            kept = place.store.checksums(key)
        except NoSuchObject:
            return ComparedObject(key, whole(row, f"the object is missing ({key})"))
        return _compared(row, key, kept)

    return in_order(rows, ask, lambda _: 1, MAX_REQUESTS, MAX_REQUESTS)


def _compared(row: ArchivedRange, key: str, kept: KeptChecksums) -> ComparedObject:
    size = sum(row.frames) or row.end - row.start
    if kept.size != size:
        what = f"the object has {kept.size} bytes instead of {size} ({key})"
        return ComparedObject(key, whole(row, what), is_kept=True)
    # the digest is of the segment's bytes, which are those of an object that is not compressed
    digest = "" if row.frames else base64.b64encode(bytes.fromhex(row.digest)).decode()
    pairs = {"CRC64NVME": (row.crc64nvme, kept.crc64nvme), "SHA-256": (digest, kept.sha256)}
    compared = {name: pair for name, pair in pairs.items() if all(pair)}
    damage = next(
        (
            whole(row, f"the {name} that the store keeps of the object is {held} instead of {recorded} ({key})")
            for name, (recorded, held) in compared.items()
            if recorded != held
        ),
        None,
    )
    return ComparedObject(key, damage, is_kept=bool(kept.crc64nvme or kept.sha256), is_compared=bool(compared))
