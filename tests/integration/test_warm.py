"""Archives in an archive class: rejected before anything is created, restored, waited for.

No server that runs here has archive classes; moto behaves as S3 documents it. What is not cold is shown on MinIO.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from moto.moto_api import state_manager

from streamvault import import_stream, warm_archive
from streamvault.cli import main
from streamvault.objectstore.s3.cold import BucketColdStorage
from streamvault.objectstore.store import InArchiveClass
from streamvault.objectstore.uri import RootAddress
from testkit.servers.s3 import S3Server
from testkit.small_archives import KINDS, NAME, Vault

UseS3 = Callable[[S3Server], None]


@pytest.fixture(params=KINDS[1:2], ids=lambda kind: kind[0])
def vault(request: pytest.FixtureRequest, moto_s3: S3Server, use_s3: UseS3, bucket_name: str, tmp_path) -> Vault:  # type: ignore[no-untyped-def]
    """An archive on moto, in two generations."""
    use_s3(moto_s3)
    moto_s3.client().create_bucket(Bucket=bucket_name)
    vault = Vault(tmp_path, f"s3://{bucket_name}/vault")
    vault.make(events=20)
    vault.export(*request.param)
    vault.add(b"more")
    vault.export(*request.param)
    return vault


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Restoring an object takes three checks."""
    state_manager.set_transition("s3::keyrestore", {"progression": "manual", "times": 3})
    yield
    state_manager.unset_transition("s3::keyrestore")


def freeze(server: S3Server, vault: Vault, storage_class: str = "GLACIER") -> int:
    """As a lifecycle rule does; returns how many objects."""
    bucket, client = vault.root.split("/")[2], server.client()
    keys = [entry["Key"] for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
            for entry in page.get("Contents", []) if "/_" not in entry["Key"]]  # fmt: skip
    for key in keys:
        client.copy_object(
            Bucket=bucket,
            Key=key,
            CopySource={"Bucket": bucket, "Key": key},
            StorageClass=storage_class,  # type: ignore[arg-type]
            MetadataDirective="REPLACE",
        )
    return len(keys)


def restore(vault: Vault, name: str = "back", **options: bool) -> int:
    return import_stream(
        vault.archive, vault.uri(replace(NAME, stream=name)), master="inline[2]", **options  # type: ignore[arg-type]
    ).events  # fmt: skip


def test_import_refuses_cold_objects_before_any_change(moto_s3: S3Server, vault: Vault) -> None:
    freeze(moto_s3, vault)
    with pytest.raises(InArchiveClass, match=r"GLACIER.*streamvault warm"):
        restore(vault)
    with vault.store as store:
        assert not store.exists(replace(NAME, stream="back"))


def test_cold_object_found_during_an_import_is_named(moto_s3: S3Server, vault: Vault) -> None:
    freeze(moto_s3, vault)
    store = RootAddress.parse(vault.root).open()
    cold = next(entry.key for entry in store.list(f"{NAME}/") if "/_" not in entry.key)
    with pytest.raises(InArchiveClass, match="streamvault warm"):
        store.get(cold)


@pytest.mark.parametrize("vault", KINDS[:2], indirect=True, ids=lambda kind: kind[0])
@pytest.mark.usefixtures("by_hand")
def test_cold_objects_are_restored_and_waited_for(
    moto_s3: S3Server, vault: Vault, capfd: pytest.CaptureFixture[str]
) -> None:
    events = len(vault.events())
    objects = freeze(moto_s3, vault)

    assert main(["warm", vault.archive, "--dry-run", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["cold"] == objects
    first = warm_archive(vault.archive, tier="Bulk", days=2)
    assert (first.cold, first.asked, first.readable) == (objects, objects, False)
    with pytest.raises(InArchiveClass, match="--wait"):
        restore(vault)
    assert warm_archive(vault.archive).asked == 0

    assert main(["warm", vault.archive, "--wait", "--poll", "1s"]) == 0
    assert "readable" in capfd.readouterr().out
    assert warm_archive(vault.archive).cold == 0
    assert restore(vault) == events


@pytest.mark.usefixtures("by_hand")
def test_import_waits_for_cold_objects(moto_s3: S3Server, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.importer.import_.POLL_SECONDS", 0.05)
    freeze(moto_s3, vault, "DEEP_ARCHIVE")
    with pytest.raises(InArchiveClass, match="streamvault warm"):
        restore(vault, wait_for_warm=True)  # not requested before
    asking = threading.Thread(target=lambda: (time.sleep(0.1), warm_archive(vault.archive)))
    warm_archive(vault.archive)
    asking.start()
    assert restore(vault, wait_for_warm=True) == len(vault.events())
    asking.join()


def test_folder_has_no_cold_objects(tmp_path, capfd: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=5)
    vault.export()
    assert main(["warm", vault.archive]) == 0
    assert capfd.readouterr().out.startswith("readable: ")
    assert main(["warm", f"file://{tmp_path}/vault/no/stream"]) == 5
    assert main(["warm", vault.archive, "--days", "0"]) == 2


@pytest.mark.minio
def test_minio_has_no_cold_objects(minio: S3Server, use_s3: UseS3, bucket_name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    use_s3(minio)
    minio.client().create_bucket(Bucket=bucket_name)
    vault = Vault(tmp_path, f"s3://{bucket_name}/vault")
    vault.make(events=30)
    vault.export()
    report = warm_archive(vault.archive, wait=True)
    assert (report.cold, report.readable) == (0, True)
    assert restore(vault, wait_for_warm=True) == len(vault.events())


def test_intelligent_tiering_is_checked_for_each_object(moto_s3: S3Server, vault: Vault) -> None:
    freeze(moto_s3, vault, "INTELLIGENT_TIERING")
    storage = BucketColdStorage(RootAddress.parse(vault.root).resolve())
    found = list(storage.objects(f"{NAME}/", "", f"{NAME}0"))
    assert {one.warmth for one in found} == {"readable"}
    assert {one.class_name for one in found if "/_" not in one.key} == {"INTELLIGENT_TIERING"}
