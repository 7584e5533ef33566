"""Stolen logins, on a real MinIO: 1,000 hostile requests by each change nothing that was published."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from streamvault import check_archive, compact_archive, hold_archive, import_stream, rotate_stream
from streamvault.common.errors import Damaged, Problem
from streamvault.layouts.layout import LayoutName
from streamvault.streamstore.model import StreamName
from testkit.servers.minio import limited
from testkit.servers.s3 import S3Server
from testkit.servers.spoiling import SpoilingGateway
from testkit.small_archives import NAME, RANGE_SIZE, Vault, archive_of, contents
from testkit.streams import events_of
from tests.hostile_requests import Thief, forgeries
from tests.policies import CREATES, KEYS, PLAIN, kinds_of, policy

pytestmark = pytest.mark.minio

TELLING = [kind for kind in KEYS if kind not in PLAIN]
"""Kinds in which noise does not keep a run from believing the forged generation."""
THIEVES, REQUESTS = 8, 1000
LAYOUTS: tuple[LayoutName, ...] = ("chunks", "events")
HARMLESS = [kind for kind in TELLING if kind not in {"work", "mark"}]
"""Kinds that do not keep an export from going on, whatever is in them."""


GRANTED = {
    "put_object",
    "delete_object",
    "deleted",
    "create_multipart_upload",
    "upload_part",
    "complete_multipart_upload",
}
"""What an export's login may do somewhere. A copy has no condition, and so is not create-only."""


@pytest.fixture
def bucket_name() -> str:
    """A short name: MinIO takes no policy of more than 2,048 characters for a login that is lent."""
    return f"vault-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def guarded(minio: S3Server, bucket: str) -> Iterator[S3Server]:
    """MinIO as strangers reach it: with what create-only.json says, which MinIO itself does not know."""
    with SpoilingGateway(minio.endpoint) as gateway:
        gateway.create_only = f"/{bucket}/backups/"
        yield dataclasses.replace(minio, endpoint=gateway.endpoint)


def published_in(folder: Path, root: str, layout: LayoutName) -> Vault:
    """Three generations that were read back, two of them merged, with a hold, and a stream that went on."""
    vault = Vault(folder, root)
    vault.make(events=60, largest=2000)
    for payload in (b"one", b"two", b"three"):
        vault.export(layout)
        vault.add(payload)
        if payload == b"two":
            compact_archive(vault.archive, master="inline")
    vault.add(*(bytes([number]) * 1500 for number in range(9)))  # not archived yet
    check_archive(vault.archive, read_data=True, master="inline")
    hold_archive(vault.archive, "audit", generation=3)
    return vault


def restored(vault: Vault, name: str, generation: int) -> dict[str, bytes]:
    target = StreamName("scope", name)
    import_stream(vault.archive, vault.uri(target), generation=generation, master="inline")
    with vault.store as store:
        return {f"{one.segment}:{one.offset}": payload for one, payload in events_of(store, target)}


def live(vault: Vault) -> dict[str, bytes]:
    return {f"{one.segment}:{one.offset}": payload for one, payload in vault.events()}


def test_stolen_login_harms_nothing_published_and_nothing_live(
    minio: S3Server, guarded: S3Server, bucket: str, use_s3: Callable[[S3Server], None], tmp_path: Path
) -> None:
    base = f"s3://{bucket}/backups"
    vaults = [published_in(tmp_path / layout, f"{base}/{layout}", layout) for layout in LAYOUTS]
    folders = [f"backups/{layout}/{NAME}/" for layout in LAYOUTS]
    kinds = {folders[0]: TELLING, folders[1]: HARMLESS}
    published = {f"backups/{key}": data for key, data in contents(base).items() if "/_work/" not in key}
    forged: dict[str, bytes] = {}
    for vault, layout in zip(vaults, LAYOUTS, strict=True):
        found = forgeries(vault, generations=vault == vaults[0])
        forged |= {f"backups/{layout}/{key}": data for key, data in found.items()}
    before = [(live(vault), restored(vault, "before", 3)) for vault in vaults]
    recorded = archive_of(vaults[0].root).load(3).fingerprint
    for login in ("query", "import", "export"):
        server = guarded if login == "export" else minio  # the others need no more than their policies
        stolen = limited(server, policy(login, bucket))
        gang = [
            Thief(stolen.own_client(), bucket, published, forged, folders, kinds, seed)
            for seed in range(35, 35 + THIEVES)
        ]
        with ThreadPoolExecutor(THIEVES) as pool:
            list(pool.map(lambda thief: thief.rob(REQUESTS // THIEVES), gang))
        assert sum(thief.sent for thief in gang) >= REQUESTS
        # a bulk delete is granted, and none of its keys; import may list versions by the right to list
        granted = {one for thief in gang for one, count in thief.granted.items() if count}
        granted -= {"delete_objects", "list_object_versions"}
        assert granted <= GRANTED if login == "export" else not granted
        now = {f"backups/{key}": data for key, data in contents(base).items()}
        assert {key: now.get(key) for key in published} == published
    assert {"put_object", "delete_object", "deleted"} <= granted
    with pytest.raises(Damaged, match="fingerprint"):
        check_archive(vaults[0].archive, fingerprints=[recorded], master="inline")
    assert {key for key in forged if now.get(key) == forged[key]} == {key for key in forged if "/decisions/" not in key}
    for vault, (events, archived) in zip(vaults, before, strict=True):
        assert all(check_archive(vault.archive, generation=one, read_data=True, master="inline").ok for one in (2, 3))
        assert restored(vault, "after", 3) == archived
        use_s3(limited(minio, policy("rotate", bucket)))
        report = None
        with nullcontext() if vault == vaults[1] else suppress(Problem):  # what was forged may stop a run
            report = rotate_stream(vault.uri(), vault.root, range_size=RANGE_SIZE, truncate_source=True,
                                   keep_for=timedelta(days=1), master="inline")  # fmt: skip
        use_s3(minio)
        assert report is None or report.expired == ()
        last = {} if report is None else restored(vault, "rotated", report.generation)
        assert events.items() <= {**archived, **last, **live(vault)}.items()
    now = {f"backups/{key}": data for key, data in contents(base).items()}
    assert {key: now.get(key) for key in published} == published


@pytest.mark.parametrize("login", ["export", "rotate"])
def test_objects_are_replaced_where_nothing_demands_create_only_writes(
    minio: S3Server, bucket: str, tmp_path: Path, login: str
) -> None:
    """S3 has one right to create and to replace. In a bucket with versions, what was published can be put back."""
    admin = minio.client()
    admin.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    vault = published_in(tmp_path, f"s3://{bucket}/backups", "chunks")
    held = {f"backups/{key}": data for key, data in contents(vault.root).items()}
    published = [
        one for one in admin.list_object_versions(Bucket=bucket)["Versions"] if one["IsLatest"] and one["Key"] in held
    ]
    client = limited(minio, policy(login, bucket)).client()
    replaced = set()
    for one in published:
        key, kind = one["Key"], kinds_of([one["Key"].removeprefix(f"backups/{NAME}/")])
        for ask in (
            lambda key=key: client.put_object(Bucket=bucket, Key=key, Body=b"forged"),
            lambda key=key: client.delete_object(Bucket=bucket, Key=key),
            lambda one=one: client.delete_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"]),
        ):
            with suppress(ClientError):
                ask()
        if kind <= CREATES[login]:
            replaced.add(key)
    assert len(replaced) > 5
    with pytest.raises(Problem):  # forged manifests, or none
        check_archive(vault.archive, read_data=True, master="inline")
    for one in published:
        answer = admin.get_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])
        assert answer["Body"].read() == held[one["Key"]]
        admin.put_object(Bucket=bucket, Key=one["Key"], Body=held[one["Key"]])
    report = check_archive(vault.archive, read_data=True, master="inline")
    assert (report.ok, report.generations) == (True, (2, 3))
    assert contents(vault.root) == {key.removeprefix("backups/"): data for key, data in held.items()}
