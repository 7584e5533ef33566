"""Chunks compared with the index by what the store says of them, without reading them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive
from streamvault.layouts.keys import Place, chunk_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.archived_range import ArchivedRange
from streamvault.manifests.verbs.check_ranges import ComparedObject, compare_checksums
from streamvault.manifests.verbs.reports import CheckReport
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.s3 import multipart as s3_checksums
from streamvault.objectstore.s3.access import S3Access
from streamvault.objectstore.s3.multipart import kept_checksums
from streamvault.objectstore.store import KeptChecksums, NoSuchObject
from streamvault.streamstore.model import SegmentId
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault, archive_of

RAW = ArchivedRange(SegmentId(0, 0), 10, 110, 2, "ab" * 32, crc64nvme="rosUhgp5mIg=")
FRAMED = replace(RAW, frames=(30, 20))
DIGEST = base64.b64encode(b"\xab" * 32).decode()
OTHER = base64.b64encode(bytes(32)).decode()


class Keeping(ObstoreStore):
    """Says the same of every object."""

    def __init__(self, kept: KeptChecksums | None) -> None:
        self.kept = kept

    def checksums(self, key: str) -> KeptChecksums:
        assert key == "scope/stream/chunks/0000000000.0000000000/0000000000000000010-0000000000000000100"
        if self.kept is None:
            raise NoSuchObject("no such object", where=key)
        return self.kept


def compared(row: ArchivedRange, kept: KeptChecksums | None) -> ComparedObject:
    [found] = compare_checksums(Place(Keeping(kept), "scope/stream/"), "chunks", [row])
    return found


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (RAW, KeptChecksums(100, crc64nvme="rosUhgp5mIg=")),
        (RAW, KeptChecksums(100, sha256=DIGEST)),
        (RAW, KeptChecksums(100, crc64nvme="rosUhgp5mIg=", sha256=DIGEST)),
        (replace(RAW, crc64nvme=""), KeptChecksums(100, sha256=DIGEST)),
        (FRAMED, KeptChecksums(50, crc64nvme="rosUhgp5mIg=")),
        # the digest is not of the compressed bytes
        (FRAMED, KeptChecksums(50, crc64nvme="rosUhgp5mIg=", sha256=OTHER)),
    ],
)
def test_equal_checksums_are_compared(row: ArchivedRange, kept: KeptChecksums) -> None:
    found = compared(row, kept)
    assert (found.damage, found.is_compared) == (None, True)


@pytest.mark.parametrize(
    ("row", "kept", "what"),
    [
        (RAW, KeptChecksums(100, crc64nvme="AAAAAAAAAAA="), "the CRC64NVME that the store keeps"),
        (RAW, KeptChecksums(100, sha256=OTHER), "the SHA-256 that the store keeps"),
        (RAW, KeptChecksums(100, crc64nvme="rosUhgp5mIg=", sha256=OTHER), "the SHA-256 that the store keeps"),
        (FRAMED, KeptChecksums(50, crc64nvme="AAAAAAAAAAA="), "the CRC64NVME that the store keeps"),
        (RAW, KeptChecksums(99, crc64nvme="rosUhgp5mIg="), "the object has 99 bytes instead of 100"),
        (FRAMED, KeptChecksums(100, crc64nvme="rosUhgp5mIg="), "the object has 100 bytes instead of 50"),
        (RAW, None, "the object is missing"),
    ],
)
def test_other_checksums_are_damage(row: ArchivedRange, kept: KeptChecksums | None, what: str) -> None:
    found = compared(row, kept).damage
    assert found is not None
    assert found.what.startswith(what)
    assert (found.segment, found.start, found.end, found.events) == (SegmentId(0, 0), 10, 110, 2)


@pytest.mark.parametrize(
    ("row", "kept", "is_kept"),
    [
        (RAW, KeptChecksums(100), False),
        (replace(RAW, crc64nvme=""), KeptChecksums(100, crc64nvme="rosUhgp5mIg="), True),
        (FRAMED, KeptChecksums(50, sha256=DIGEST), True),
    ],
)
def test_what_is_not_compared_is_not_called_good(row: ArchivedRange, kept: KeptChecksums, is_kept: bool) -> None:
    assert compared(row, kept) == ComparedObject(compared(row, kept).key, None, is_kept=is_kept, is_compared=False)


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        ({"ChecksumCRC64NVME": "rosUhgp5mIg=", "ChecksumType": "FULL_OBJECT"}, KeptChecksums(9, "rosUhgp5mIg=")),
        ({"ChecksumSHA256": DIGEST, "ChecksumType": "FULL_OBJECT"}, KeptChecksums(9, "", DIGEST)),
        ({"ChecksumSHA256": f"{DIGEST}-2", "ChecksumType": "COMPOSITE"}, KeptChecksums(9)),
        ({"ChecksumSHA256": DIGEST, "ChecksumType": "COMPOSITE"}, KeptChecksums(9)),
        ({"ChecksumSHA256": DIGEST}, KeptChecksums(9)),
        ({"ChecksumCRC64NVME": "b8e/EQ==", "ChecksumType": "FULL_OBJECT"}, KeptChecksums(9)),  # moto sends a CRC-32
        ({"ChecksumCRC32": "O0HJ5g==", "ChecksumType": "FULL_OBJECT"}, KeptChecksums(9)),
        ({}, KeptChecksums(9)),
    ],
)
def test_only_checksums_of_all_bytes_count(
    head: dict[str, str], kept: KeptChecksums, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client:
        def head_object(self, **asked: str) -> dict[str, Any]:
            assert asked == {"Bucket": "bucket", "Key": "vault/key", "ChecksumMode": "ENABLED"}
            return {"ContentLength": 9, **head}

    monkeypatch.setattr(s3_checksums, "shared_client", lambda _: Client())
    access = S3Access("http://127.0.0.1:1", "us-east-1", virtual_host=False)
    assert kept_checksums(access, "bucket", "vault/key") == kept


def check(archive: str, **options: Any) -> CheckReport:
    return check_archive(archive, stored_checksums=True, master="inline", **options)


@pytest.mark.parametrize("place", ["memory", "file", "s3"])
def test_store_without_checksums_is_named(
    place: str, tmp_path: Path, moto_s3: S3Server, bucket_name: str, use_s3: Callable[[S3Server], None]
) -> None:
    use_s3(moto_s3)
    moto_s3.make_bucket(bucket_name)
    roots = {"memory": f"memory://{bucket_name}", "file": tmp_path.as_uri(), "s3": f"s3://{bucket_name}"}
    vault = Vault(tmp_path, root=roots[place])
    vault.make(events=40)
    vault.export("chunks")
    found = check(vault.archive)
    assert (found.ok, found.checksums_compared, found.checksums_not_kept) == (True, 0, found.ranges)
    assert found.notes == (
        f"the store keeps no checksums: {found.ranges} objects not compared; --read-data compares their bytes",
    )
    assert check_archive(vault.archive, master="inline").checksums_compared is None


def test_objects_of_single_events_are_not_compared(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=40)
    vault.export("events")
    found = check(vault.archive)
    assert (found.checksums_compared, found.checksums_not_indexed) == (0, found.events)
    why = f"for {found.events} of them, the index has no checksum of the kind that the store keeps"
    assert found.notes == (f"{found.events} objects not compared, such as those of layout events: {why}",)


@pytest.mark.parametrize("compress", ["", "zstd"])
def test_each_chunk_has_its_checksum_in_the_index(
    tmp_path: Path, compress: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is damaged is found, beside those that are not."""
    vault = Vault(tmp_path)
    vault.make()
    vault.export("chunks", compress)
    kept: dict[str, KeptChecksums] = {}
    monkeypatch.setattr(ObstoreStore, "checksums", lambda _, key: kept[key])
    archive = archive_of(vault.root)
    for entry in archive.store.list(f"{NAME}/chunks/"):
        row = row_of(archive, entry.key)
        kept[entry.key] = KeptChecksums(entry.size, row.crc64nvme)
    found = check(vault.archive)
    assert (found.ok, found.checksums_compared, found.ranges) == (True, len(kept), len(kept))
    damaged = sorted(kept)[1]
    kept[damaged] = replace(kept[damaged], crc64nvme="AAAAAAAAAAA=")
    kept[sorted(kept)[2]] = replace(kept[sorted(kept)[2]], crc64nvme="")
    found = check(vault.archive)
    assert (found.exit_code, len(found.damage), found.checksums_compared) == (3, 1, len(kept) - 1)
    assert f"({damaged})" in found.findings[0]
    assert found.notes == (
        f"1 object not compared, such as {sorted(kept)[2]}: for 1 of them, the store keeps no checksum",
    )


def row_of(archive: Archive, key: str) -> ArchivedRange:
    history = archive.history()
    rows = [row for segment in history.segments() for _, row in history.ranges(segment)]
    return next(row for row in rows if key.endswith(chunk_key(row.segment, row.start, row.end - row.start)))
