"""Parts of uploads that killed exports leave: what the guide says of them, on each server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from streamvault import delete_archive, export_stream
from streamvault.objectstore.store import NoSuchObject, ObjectStoreError
from streamvault.objectstore.uri import RootAddress
from testkit.servers.s3 import S3Server

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "export.md"
PART = 5 * 1024 * 1024
SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("minio", "versitygw")]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, use_s3: Callable[[S3Server], None], bucket_name: str) -> S3Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, S3Server)
    use_s3(found)
    found.make_bucket(bucket_name)
    return found


def rule() -> Any:
    (text,) = re.findall(r"```json\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return json.loads(text)


def uploads(server: S3Server, bucket: str) -> list[dict[str, str]]:
    found = server.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return [{"Bucket": bucket, "Key": each["Key"], "UploadId": each["UploadId"]} for each in found]


def test_the_rule_is_one_that_s3_takes(moto_s3: S3Server, bucket_name: str) -> None:
    moto_s3.make_bucket(bucket_name)
    client = moto_s3.client()
    client.put_bucket_lifecycle_configuration(Bucket=bucket_name, LifecycleConfiguration=rule())
    (taken,) = client.get_bucket_lifecycle_configuration(Bucket=bucket_name)["Rules"]
    assert taken["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert taken["Filter"]["Prefix"].endswith("/"), "else it would be of a root whose name is longer, too"


def test_other_servers_reject_the_rule(server: S3Server, bucket_name: str) -> None:
    with pytest.raises(ClientError, match=r"not well-formed|NotImplemented"):
        server.client().put_bucket_lifecycle_configuration(Bucket=bucket_name, LifecycleConfiguration=rule())


def test_parts_are_left_by_a_deletion(server: S3Server, bucket_name: str, stream: str) -> None:
    root = f"s3://{bucket_name}/vault"
    export_stream(stream, root, master="inline")
    for scope in ("scope", "scope2"):
        server.client().create_multipart_upload(Bucket=bucket_name, Key=f"vault/{scope}/stream/chunks/1/2-3")
    delete_archive(f"{root}/scope/stream", yes=True)
    assert len(uploads(server, bucket_name)) == 2


def test_an_upload_whose_parts_are_deleted_fails_and_can_be_made_again(server: S3Server, bucket_name: str) -> None:
    store = RootAddress.parse(f"s3://{bucket_name}/vault").open()

    def blocks(*, lose: bool) -> Iterator[bytes]:
        for number in range(4):
            if lose and number == 3:
                (upload,) = uploads(server, bucket_name)
                server.client().abort_multipart_upload(**upload)  # type: ignore[arg-type]
            yield bytes([number]) * PART

    with pytest.raises(ObjectStoreError, match="NoSuchUpload") as caught:
        store.put_blocks("a/large", blocks(lose=True))
    assert (caught.value.exit_code, caught.value.retriable) == (1, True)
    with pytest.raises(NoSuchObject):
        store.size("a/large")
    store.put_blocks("a/large", blocks(lose=False))
    assert store.size("a/large") == 4 * PART
    assert uploads(server, bucket_name) == []
