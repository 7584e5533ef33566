"""`check --stored-checksums` on real servers: what an object was replaced by is found without reading it."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from streamvault import check_archive, compact_archive, convert_archive, export_stream
from streamvault.manifests.archive import Archive
from streamvault.manifests.verbs.reports import CheckReport
from streamvault.objectstore.s3 import scheme
from streamvault.objectstore.store import crc64nvme
from streamvault.streamstore.model import StreamName
from testkit.servers.s3 import S3Server
from testkit.streams import append_more
from tests.counting import counted

NAME = StreamName("scope", "stream")
SMALL: dict[str, Any] = {"layout": "chunks", "range_size": 16 * 1024, "master": "inline"}
REAL = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("minio", "versitygw")]


@pytest.fixture(params=REAL)
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


def check(archive: str, **options: Any) -> CheckReport:
    return check_archive(archive, stored_checksums=True, master="inline", **options)


def replace_one(server: S3Server, archive: str, sent: str = "CRC64NVME") -> str:
    """Put other bytes of the same length in the place of a chunk; return its key below the root."""
    held = Archive.open(archive)
    entry = list(held.store.list(f"{NAME}/chunks/"))[1]
    body = held.store.get(entry.key)
    held.store.delete([entry.key])
    body = body[:-1] + bytes([body[-1] ^ 1])
    sha256 = base64.b64encode(hashlib.sha256(body).digest()).decode()
    checksum: Any = {"ChecksumCRC64NVME": crc64nvme(body)} if sent == "CRC64NVME" else {"ChecksumSHA256": sha256}
    server.client().put_object(
        Bucket=held.root.place, Key=f"{held.root.prefix}/{entry.key}", Body=body, IfNoneMatch="*", **checksum
    )
    return entry.key


@pytest.mark.parametrize("sent", ["CRC64NVME", "SHA256"])
def test_replaced_object_is_found_without_reading_it(
    server: S3Server, root: str, stream: str, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = f"{root}/{NAME}"
    if sent == "CRC64NVME":
        monkeypatch.setattr(scheme, "WORTH_ASKING", 0)
    export_stream(stream, root, **SMALL)
    found = check(archive)
    assert (found.ok, found.notes, found.checksums_compared) == (True, (), found.ranges)
    key = replace_one(server, archive, sent)
    assert check_archive(archive, master="inline").ok
    with counted(monkeypatch) as made:
        found = check(archive)
    assert (made[0].puts, made[0].gets) == (0, 4 + found.ranges)  # manifest, index, plans; no chunk is read
    assert (found.exit_code, found.checksums_compared, len(found.damage)) == (3, found.ranges, 1)
    assert "that the store keeps of the object is" in found.damage[0].what
    assert found.damage[0].what.endswith(f"({key})")
    assert check_archive(archive, read_data=True, master="inline").damage[0].start == found.damage[0].start


def test_compressed_compacted_and_converted_chunks_are_compared(
    server: S3Server, root: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheme, "WORTH_ASKING", 0)
    for _ in range(2):
        export_stream(stream, root, compress="zstd", **SMALL)
        append_more(stream)
    compact_archive(f"{root}/{NAME}", master="inline")
    export_stream(stream, root, compress="zstd", **SMALL)
    convert_archive(f"{root}/{NAME}", f"{root}-raw", layout="chunks", master="inline")
    for archive in (f"{root}/{NAME}", f"{root}-raw/{NAME}"):
        found = check(archive)
        assert (found.ok, found.checksums_compared) == (True, found.ranges)
        replace_one(server, archive)
        assert len(check(archive).damage) == 1


def test_compressed_chunks_that_were_sent_with_another_checksum_are_not_called_compared(root: str, stream: str) -> None:
    export_stream(stream, root, compress="zstd", **SMALL)
    found = check(f"{root}/{NAME}")
    assert (found.ok, found.checksums_compared, found.checksums_not_indexed) == (True, 0, found.ranges)
    assert "the index has no checksum of the kind that the store keeps" in found.notes[0]
