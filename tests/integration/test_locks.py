"""Object lock and storage classes on a real MinIO: a rotation keeps what S3 has locked; and where data is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamvault import (
    check_archive,
    compact_archive,
    convert_archive,
    delete_archive,
    export_stream,
    rotate_stream,
    write_report,
)
from streamvault.common.errors import Conflict, Usage
from streamvault.exporter.reports import RotateReport
from streamvault.layouts.keys import GenerationSpan, decision_key, manifest_key
from streamvault.manifests.merging import delete_replaced
from streamvault.objectstore.store import AccessDenied, ObjectStoreError
from streamvault.objectstore.uri import RootAddress
from testkit.servers.minio import limited
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, RANGE_SIZE, Vault, archive_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.minio
UseS3 = Callable[[S3Server], None]


def vault_in(folder: Path, bucket: str) -> Vault:
    """Three generations."""
    vault = Vault(folder, f"s3://{bucket}/prefix")
    vault.make(events=9, largest=200)
    for number in range(3):
        vault.add(b"event %d" % number)
        vault.export("events" if number == 1 else "chunks")
    return vault


def rotate(vault: Vault, **options: Any) -> RotateReport:
    return rotate_stream(vault.uri(), vault.root, range_size=RANGE_SIZE, master="inline[2]", **options)


def key_of(vault: Vault, generation: int) -> str:
    """A data object of a generation."""
    manifest = archive_of(vault.root).manifest(generation)
    archive = archive_of(vault.root)
    entry = next(entry for entry in reversed(manifest.segments) if entry.events)
    keys = (found.key for found in archive.store.list(archive.prefix))
    return next(f"prefix/{key}" for key in keys if f"/{entry.start:019d}-" in key)


@pytest.fixture
def locked_bucket(minio: S3Server, use_s3: UseS3, bucket_name: str) -> str:
    use_s3(minio)
    minio.client().create_bucket(Bucket=bucket_name, ObjectLockEnabledForBucket=True)
    return bucket_name


def hidden(client: S3Client, bucket: str) -> set[str]:
    """The keys that a delete marker hides."""
    pages = client.get_paginator("list_object_versions").paginate(Bucket=bucket)
    return {marker["Key"] for page in pages for marker in page.get("DeleteMarkers", []) if marker["IsLatest"]}


def test_legal_hold_on_one_object_keeps_its_generation(minio: S3Server, locked_bucket: str, tmp_path: Path) -> None:
    client, vault = minio.client(), vault_in(tmp_path, locked_bucket)
    key = key_of(vault, 2)
    client.put_object_legal_hold(Bucket=locked_bucket, Key=key, LegalHold={"Status": "ON"})
    for expired in ((1,), ()):
        report = rotate(vault, keep=1)
        assert report.expired == expired
        assert report.stopped is not None
        assert (report.stopped.generation, report.stopped.until) == (2, "")
        assert report.stopped.reason == f"legal hold of {key.removeprefix('prefix/')}"
        assert check_archive(vault.archive, read_data=True, master="inline").ok
        assert key not in hidden(client, locked_bucket)
    client.put_object_legal_hold(Bucket=locked_bucket, Key=key, LegalHold={"Status": "OFF"})
    report = rotate(vault, keep=1)
    assert (report.expired, report.stopped) == ((2,), None)
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    assert key in hidden(client, locked_bucket), "old versions are a lifecycle rule's"


def test_locked_objects_of_merged_generations_are_reported(minio: S3Server, locked_bucket: str, tmp_path: Path) -> None:
    client, vault = minio.client(), Vault(tmp_path, f"s3://{locked_bucket}/prefix")
    vault.make(events=9, largest=200)
    for number in range(3):
        vault.add(b"event %d" % number)
        vault.export("chunks")
    key = key_of(vault, 2)
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    client.put_object_retention(
        Bucket=locked_bucket, Key=key, Retention={"Mode": "GOVERNANCE", "RetainUntilDate": until}
    )
    compact_archive(vault.archive, master="inline")
    archive = archive_of(vault.root)
    later = datetime.now(UTC) + timedelta(hours=2)
    rotate(vault)  # reads it back
    before = hidden(client, locked_bucket)
    deleted, waiting = delete_replaced(archive, now=later)
    assert (deleted.objects, [one.due for one in waiting]) == (0, [until])
    assert hidden(client, locked_bucket) == before
    client.put_object_retention(Bucket=locked_bucket, Key=key, Retention={}, BypassGovernanceRetention=True)
    deleted, waiting = delete_replaced(archive, now=later)
    assert deleted.objects
    assert not waiting
    assert key in hidden(client, locked_bucket)
    assert check_archive(vault.archive, read_data=True, master="inline").ok


def test_archive_with_a_locked_object_is_not_deleted(minio: S3Server, locked_bucket: str, tmp_path: Path) -> None:
    client, vault = minio.client(), vault_in(tmp_path, locked_bucket)
    key, before = key_of(vault, 2), hidden(client, locked_bucket)
    client.put_object_legal_hold(Bucket=locked_bucket, Key=key, LegalHold={"Status": "ON"})
    for yes in (False, True):
        with pytest.raises(
            Conflict, match=r"S3 keeps an object from being deleted \(legal hold\); nothing was deleted"
        ):
            delete_archive(vault.archive, yes=yes)
    assert hidden(client, locked_bucket) == before
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    client.put_object_legal_hold(Bucket=locked_bucket, Key=key, LegalHold={"Status": "OFF"})
    report = delete_archive(vault.archive, yes=True)
    assert report.generations == (1, 2, 3)
    left = [entry.key for entry in archive_of(vault.root).store.list("")]
    assert left == [f"{NAME}/{decision_key(number)}" for number in (1, 2, 3)]
    assert key in hidden(client, locked_bucket)


@pytest.mark.parametrize("name", ["0000000001.json", "data"])
def test_retention_keeps_a_generation_until_it_ends(
    minio: S3Server, locked_bucket: str, tmp_path: Path, name: str
) -> None:
    client, vault = minio.client(), vault_in(tmp_path, locked_bucket)
    key = key_of(vault, 1) if name == "data" else f"prefix/{NAME}/_manifest/{name}"
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    client.put_object_retention(
        Bucket=locked_bucket, Key=key, Retention={"Mode": "GOVERNANCE", "RetainUntilDate": until}
    )
    before = archive_of(vault.root).generations()
    report = rotate(vault, keep=1, dry_run=True)
    assert report.stopped == rotate(vault, keep=1).stopped
    assert report.stopped is not None
    assert (report.stopped.generation, report.expired) == (1, ())
    assert report.stopped.until == until.isoformat().replace("+00:00", "Z")
    assert report.stopped.reason.startswith("retention (GOVERNANCE) of ")
    assert archive_of(vault.root).generations() == before
    assert hidden(client, locked_bucket) == {key for key in hidden(client, locked_bucket) if "/_work/" in key}


def test_bucket_with_default_retention_keeps_generations(minio: S3Server, locked_bucket: str, tmp_path: Path) -> None:
    minio.client().put_object_lock_configuration(
        Bucket=locked_bucket,
        ObjectLockConfiguration={
            "ObjectLockEnabled": "Enabled",
            "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}},
        },
    )
    vault = vault_in(tmp_path, locked_bucket)
    report = rotate(vault, keep=1, hold="a")
    assert report.expired == ()
    assert report.stopped is not None
    assert report.stopped.reason.startswith("retention (COMPLIANCE) of scope/stream/_manifest/0000000001.json")
    assert check_archive(vault.archive, read_data=True, master="inline").ok


def test_rotation_without_permission_to_read_locks_deletes_nothing(
    minio: S3Server, locked_bucket: str, tmp_path: Path, use_s3: UseS3
) -> None:
    vault = vault_in(tmp_path, locked_bucket)
    actions = ["s3:GetBucketLocation", "s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
    for more, missing in (
        ([], "s3:GetBucketObjectLockConfiguration"),
        (["s3:GetBucketObjectLockConfiguration"], "s3:GetObjectLegalHold"),
        (["s3:GetBucketObjectLockConfiguration", "s3:GetObjectLegalHold"], "s3:GetObjectRetention"),
    ):
        statement = {"Effect": "Allow", "Action": actions + more, "Resource": ["arn:aws:s3:::*"]}
        use_s3(limited(minio, {"Version": "2012-10-17", "Statement": [statement]}))
        with pytest.raises(AccessDenied, match=f"no permission to read locks: .*Allow {missing} there"):
            rotate(vault, keep=1)
    use_s3(minio)
    assert archive_of(vault.root).generations() == [1, 2, 3]


def test_bucket_without_object_lock_has_no_locks(bucket: str, tmp_path: Path) -> None:
    assert RootAddress.parse(f"s3://{bucket}").open_locks() is None
    assert RootAddress.parse(f"file://{tmp_path}").open_locks() is None


def test_data_are_sent_with_the_checksum_that_the_server_verifies(
    minio: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamvault.objectstore.s3.scheme.WORTH_ASKING", 1)
    client, vault = minio.client(), Vault(tmp_path, f"s3://{bucket}")
    vault.make(events=20, largest=200)
    for number in range(2):
        vault.add(b"event %d" % number)
        vault.export("chunks")
    compact_archive(vault.archive, master="inline")
    convert_archive(vault.archive, f"{vault.root}/converted", layout="events", master="inline")
    found = {
        key: client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED").get("ChecksumCRC64NVME")
        for key in (entry["Key"] for entry in client.list_objects_v2(Bucket=bucket)["Contents"])
        if "/chunks/" in key or "/events/" in key
    }
    assert len(found) > 20
    assert all(found.values()), found


def test_data_are_written_with_the_storage_class(minio: S3Server, bucket: str, tmp_path: Path) -> None:
    client, vault = minio.client(), Vault(tmp_path, f"s3://{bucket}")
    vault.make(events=20, largest=200)
    export_stream(vault.uri(), vault.root, storage_class="REDUCED_REDUNDANCY", master="inline")
    vault.add(b"new")
    rotate(vault, layout="chunks", compress="zstd", storage_class="REDUCED_REDUNDANCY")
    vault.add(b"newer")
    rotate(vault)
    classes: dict[bool, set[str | None]] = {True: set(), False: set()}
    for entry in client.list_objects_v2(Bucket=bucket)["Contents"]:
        classes["/_manifest/" in entry["Key"]].add(
            client.head_object(Bucket=bucket, Key=entry["Key"]).get("StorageClass")
        )
    assert classes == {True: {None}, False: {"REDUCED_REDUNDANCY", None}}
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    vault.add(b"newest")
    with pytest.raises(ObjectStoreError, match="the server does not support this storage class"):
        rotate(vault, storage_class="PAPER")
    rotate(vault)
    assert archive_of(vault.root).generations() == [1, 2, 3, 4]
    with pytest.raises(Usage, match="this root has no storage classes"):
        export_stream(vault.uri(), f"file://{tmp_path}/vault", storage_class="STANDARD_IA", master="inline")


def test_report_shows_locks_and_the_storage_class(
    minio: S3Server, use_s3: UseS3, locked_bucket: str, tmp_path: Path
) -> None:
    client, vault = minio.client(), vault_in(tmp_path, locked_bucket)
    key = f"prefix/{NAME}/{manifest_key(GenerationSpan.of(2))}"
    client.put_object_legal_hold(Bucket=locked_bucket, Key=key, LegalHold={"Status": "ON"})
    page = tmp_path / "page.html"
    assert write_report(vault.archive, output=page).warnings == ()
    rows = page.read_text().split("<tr>")
    assert [row.count("locked: legal hold") for row in rows if "--generation" in row] == [0, 1, 0]
    assert "STANDARD (in use)" in page.read_text()
    statement = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": ["arn:aws:s3:::*"]}
    use_s3(limited(minio, {"Version": "2012-10-17", "Statement": [statement]}))
    (warning,) = write_report(vault.archive, output=page).warnings
    assert warning.startswith("The locks are not shown: no permission to read locks")
