"""A bucket that does not exist is no empty one: each command says so, and decides nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from streamvault import check_archive, compact_archive, convert_archive, delete_archive, export_stream
from streamvault.cli import main
from streamvault.manifests.archive import Archive
from streamvault.manifests.verbs.reports import CheckReport
from streamvault.objectstore.s3 import scheme
from streamvault.objectstore.store import NoSuchObject, ObjectStoreError, crc64nvme
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.pravega_script import wait_for
from testkit.servers.s3 import S3Server
from testkit.streams import append_more
from tests.counting import counted

NOWHERE = "s3://bucket-of-nobody/vault"
NO_ARCHIVE = f"{NOWHERE}/scope/stream"
INLINE = ("--master", "inline")

COMMANDS = [
    ("ls", NOWHERE),
    ("ls", "s3://bucket-of-nobody"),
    ("show", NO_ARCHIVE),
    ("timeline", NO_ARCHIVE),
    ("status", NOWHERE),
    ("status", "SCOPE/", "--root", NOWHERE),
    ("status", "STREAM", "--root", NOWHERE),
    ("report", NO_ARCHIVE, "-o", "FILE"),
    ("report", NOWHERE, "-o", "FILE"),
    ("check", NO_ARCHIVE, *INLINE),
    ("check", NO_ARCHIVE, "--stored-checksums", *INLINE),
    ("get", NO_ARCHIVE, "scope/stream/0.#epoch.0:0-10"),
    ("cat", NO_ARCHIVE),
    ("import", NO_ARCHIVE, "STREAM-2", *INLINE),
    ("import", NO_ARCHIVE, "STREAM-2", "--dry-run"),
    ("append", NO_ARCHIVE, "--into", "STREAM", *INLINE),
    ("join", NO_ARCHIVE, "STREAM", "--into", "STREAM-2", *INLINE),
    ("replicate", NO_ARCHIVE, "STREAM-2", *INLINE),
    ("convert", NO_ARCHIVE, "file://FOLDER/other", "--layout", "chunks", *INLINE),
    ("handoff", NO_ARCHIVE, *INLINE),
    ("handoff", "STREAM", "--root", NOWHERE, *INLINE),
    ("ddl", NO_ARCHIVE, "athena"),
    ("compact", NO_ARCHIVE, *INLINE),
    ("export", "STREAM", NOWHERE, *INLINE),
    ("export", "STREAM", NOWHERE, "--dry-run"),
    ("export", "STREAM", NOWHERE, "--restart", *INLINE),
    ("rotate", "STREAM", NOWHERE, "--keep", "1", "--truncate-source", *INLINE),
    ("rotate", "SCOPE/", NOWHERE, "--keep", "1", *INLINE),
    ("follow", "STREAM", NOWHERE, *INLINE),
    ("hold", NO_ARCHIVE, "a-hold"),
    ("release", NO_ARCHIVE, "a-hold"),
    ("delete", NO_ARCHIVE),
    ("delete", NO_ARCHIVE, "--yes", "--unfinished"),
    ("warm", NO_ARCHIVE),
]


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("minio", "versitygw")])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


@pytest.mark.usefixtures("bucket")
def test_each_command_says_so(server: S3Server, stream: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scope, _, name = stream.rpartition("/")
    words = {"STREAM-2": f"{scope}/{name}-2", "STREAM": stream, "SCOPE/": f"{scope}/", "FILE": f"{tmp_path}/page.html"}
    line = (
        f"no such bucket: s3://bucket-of-nobody at {server.endpoint}. "
        "Check its name and the endpoint; a new one must be created first."
    )
    with parse_stream(stream)[0].open() as store:
        before = store.describe(parse_stream(stream)[1])
        for command in COMMANDS:
            given = [words.get(each, each).replace("FOLDER", str(tmp_path)) for each in command]
            assert main(given) == 5, command
            told = capfd.readouterr()
            assert line in told.err + told.out, command
            assert len(told.err.splitlines()) == 1 or given[1].endswith("/"), command
        assert store.describe(before.name) == before
        assert [str(each) for each in store.list_streams("scope")] == ["scope/stream"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["streams"]


def test_a_bucket_that_is_gone_was_no_deleted_archive(
    server: S3Server, stream: str, bucket: str, root: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor does the next rotation begin a new archive, or say that there is nothing to do."""
    assert main(["export", stream, root, *INLINE]) == 0
    objects = [each.key for each in Archive.open(f"{root}/scope/stream").store.list("")]
    client = server.client()
    for key in objects:
        client.delete_object(Bucket=bucket, Key=f"vault/{key}")
    client.delete_bucket(Bucket=bucket)
    capfd.readouterr()
    for command in (["delete", f"{root}/scope/stream", "--yes"], ["rotate", stream, root, "--keep", "1", *INLINE]):
        assert main(command) == 5
        assert capfd.readouterr().err.startswith(f"streamvault: no such bucket: s3://{bucket} at ")


# --- parts of uploads that killed exports leave: what the guide says of them, on each server


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "export.md"
PART = 5 * 1024 * 1024


def rule() -> Any:
    (text,) = re.findall(r"```json\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return json.loads(text)


def uploads(server: S3Server, bucket: str) -> list[dict[str, str]]:
    found = server.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return [{"Bucket": bucket, "Key": each["Key"], "UploadId": each["UploadId"]} for each in found]


def lose_upload(server: S3Server, bucket: str, parts: int) -> None:
    """Abort the only upload once the server has its parts: versitygw begins it anew for one that is on its way."""
    client, (upload,) = server.client(), uploads(server, bucket)
    assert wait_for(lambda: len(client.list_parts(**upload).get("Parts", [])) == parts)  # type: ignore[arg-type]
    client.abort_multipart_upload(**upload)  # type: ignore[arg-type]


def test_the_rule_is_one_that_s3_takes(moto_s3: S3Server, bucket_name: str) -> None:
    moto_s3.make_bucket(bucket_name)
    client = moto_s3.client()
    client.put_bucket_lifecycle_configuration(Bucket=bucket_name, LifecycleConfiguration=rule())
    (taken,) = client.get_bucket_lifecycle_configuration(Bucket=bucket_name)["Rules"]
    assert taken["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert taken["Filter"]["Prefix"].endswith("/"), "else it would be of a root whose name is longer, too"


def test_other_servers_reject_the_rule(server: S3Server, bucket: str) -> None:
    with pytest.raises(ClientError, match=r"not well-formed|NotImplemented"):
        server.client().put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=rule())


def test_parts_are_left_by_a_deletion(server: S3Server, bucket: str, root: str, stream: str) -> None:
    export_stream(stream, root, master="inline")
    for scope in ("scope", "scope2"):
        server.client().create_multipart_upload(Bucket=bucket, Key=f"vault/{scope}/stream/chunks/1/2-3")
    delete_archive(f"{root}/scope/stream", yes=True)
    assert len(uploads(server, bucket)) == 2


def test_an_upload_whose_parts_are_deleted_fails_and_can_be_made_again(
    server: S3Server, bucket: str, root: str
) -> None:
    store = RootAddress.parse(root).open()

    def blocks(*, lose: bool) -> Iterator[bytes]:
        for number in range(4):
            if lose and number == 3:
                lose_upload(server, bucket, parts=3)
            yield bytes([number]) * PART

    with pytest.raises(ObjectStoreError, match="NoSuchUpload") as caught:
        store.put_blocks("a/large", blocks(lose=True))
    assert (caught.value.exit_code, caught.value.retriable) == (1, True)
    with pytest.raises(NoSuchObject):
        store.size("a/large")
    store.put_blocks("a/large", blocks(lose=False))
    assert store.size("a/large") == 4 * PART
    assert uploads(server, bucket) == []


# --- `check --stored-checksums` on real servers: what an object was replaced by is found without reading it


NAME = StreamName("scope", "stream")
SMALL: dict[str, Any] = {"layout": "chunks", "range_size": 16 * 1024, "master": "inline"}


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
