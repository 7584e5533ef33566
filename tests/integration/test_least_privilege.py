"""The guide's policies, on a real MinIO: each verb works with its own, and needs all of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from streamvault import (
    check_archive,
    compact_archive,
    convert_archive,
    delete_archive,
    export_stream,
    import_stream,
    list_archives,
    release_archive,
    rotate_stream,
    write_table,
)
from streamvault.objectstore.errors import AccessDenied
from streamvault.objectstore.s3.access import S3Access, StaticKeys
from streamvault.objectstore.s3.checksums import with_cheapest
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from tests.servers.minio import limited
from tests.servers.s3 import S3Server
from tests.servers.spoiling import SpoilingGateway
from tests.streams import append_events, append_more

pytestmark = pytest.mark.minio

POLICIES = Path(__file__).parents[2] / "docs" / "reference" / "policies"
NAME = StreamName("scope", "stream")
SMALL: dict[str, Any] = {"range_size": 16 * 1024, "master": "inline"}


@pytest.fixture
def use(minio: S3Server, bucket: str, use_s3: Callable[[S3Server], None]) -> Callable[[str], None]:
    """A function that logs in with the permissions of one of the guide's policies."""

    def log_in(policy: str) -> None:
        text = (POLICIES / f"{policy}.json").read_text().replace(":::vault", f":::{bucket}")
        use_s3(limited(minio, json.loads(text)))

    return log_in


@pytest.mark.parametrize("layout", ["events", "chunks"])
def test_each_command_runs_with_its_own_policy(
    use: Callable[[str], None], stream: str, bucket_name: str, tmp_path: Path, layout: Any
) -> None:
    root = f"s3://{bucket_name}/backups"
    archive = f"{root}/{NAME}"
    use("export")
    assert export_stream(stream, root, layout=layout, **SMALL).generation == 1
    append_more(stream)
    assert export_stream(stream, root, layout=layout, **SMALL).generation == 2
    use("import")
    assert check_archive(archive, read_data=True, master="inline").ok
    compared = check_archive(archive, stored_checksums=True, master="inline")
    assert compared.checksums_compared == (compared.ranges if layout == "chunks" else 0)
    assert [found.archive for found in list_archives(root)] == [archive]
    import_stream(archive, f"local://{tmp_path}/streams/scope/restored", master="inline")
    use("rotate")
    append_more(stream)
    report = rotate_stream(stream, root, layout=layout, keep=1, truncate_source=True, hold="audit", **SMALL)
    assert (report.generation, report.expired, report.truncated) == (3, (1, 2), True)
    release_archive(archive, "audit")
    use("export")
    with pytest.raises(AccessDenied):
        delete_archive(archive, yes=True)
    use("rotate")
    assert delete_archive(archive, yes=True).generations == (3,)
    assert list_archives(root) == []


def test_every_write_is_create_only(
    minio: S3Server, stream: str, bucket_name: str, use_s3: Callable[[S3Server], None], tmp_path: Path
) -> None:
    """No server of the tests knows the policy of create-only.json, so a gateway enforces it as S3 describes it."""
    policy = json.loads((POLICIES / "create-only.json").read_text())
    (statement,) = policy["Statement"]
    assert statement["Condition"]["Null"] == {"s3:if-none-match": "true"}
    minio.make_bucket(bucket_name)
    with SpoilingGateway(minio.endpoint) as gateway:
        gateway.create_only = f"/{bucket_name}/backups/"
        use_s3(dataclasses.replace(minio, endpoint=gateway.endpoint))
        root = f"s3://{bucket_name}/backups"
        archive = f"{root}/{NAME}"
        with parse_stream(stream)[0].open() as store:
            append_events(store, NAME, min(store.describe(NAME).tail.offsets), [b"x" * 17_000_000])
        for _ in range(2):
            rotate_stream(
                stream, root, layout="chunks", range_size="1MiB", window="16MiB", keep=5, hold="audit", master="inline"
            )
            append_more(stream)
        release_archive(archive, "audit")
        assert compact_archive(archive, master="inline").runs
        rotate_stream(stream, root, layout="events", range_size="1MiB", window="16MiB", keep=1, master="inline")
        convert_archive(archive, f"{root}/converted", layout="events", master="inline")
        write_table(archive, format="parquet", master="inline")
        assert check_archive(archive, read_data=True, master="inline").ok
        keys = StaticKeys(minio.access_key, minio.secret_key)
        access = S3Access(gateway.endpoint, minio.region, virtual_host=False, keys=keys)
        assert with_cheapest(access, bucket_name, "backups/").checksum == "CRC64NVME"
        assert gateway.rejected == []
        with pytest.raises(ClientError, match="AccessDenied"):
            boto3.client("s3").put_object(Bucket=bucket_name, Key="backups/other", Body=b"x")


def test_import_policy_refuses_writes(use: Callable[[str], None], stream: str, bucket_name: str) -> None:
    use("import")
    with pytest.raises(AccessDenied):
        export_stream(stream, f"s3://{bucket_name}/backups", **SMALL)


def test_export_policy_refuses_expiry(use: Callable[[str], None], stream: str, bucket_name: str) -> None:
    root = f"s3://{bucket_name}/backups"
    use("export")
    export_stream(stream, root, **SMALL)
    append_more(stream)
    with pytest.raises(AccessDenied):
        rotate_stream(stream, root, keep=1, **SMALL)
    assert check_archive(f"{root}/{NAME}", master="inline").generations == (1, 2)


@pytest.mark.parametrize("policy", ["export", "import", "rotate"])
def test_policy_refuses_keys_outside_the_prefix(
    use: Callable[[str], None], stream: str, bucket_name: str, policy: str
) -> None:
    use(policy)
    with pytest.raises(AccessDenied):
        export_stream(stream, f"s3://{bucket_name}/elsewhere", **SMALL)
