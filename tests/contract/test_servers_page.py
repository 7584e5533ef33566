"""The servers of docs/reference/s3-servers.md that are tested do what the table says."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from streamvault.objectstore.probe import creates_only_in_parts, fit_server
from streamvault.objectstore.store import crc64nvme
from streamvault.objectstore.uri import RootAddress
from testkit.servers.s3 import S3Server
from tests.pages import DOCS

ROWS = {
    name: cells.split(" | ")
    for name, cells in re.findall(
        r"^\| \*\*(\w+)\*\*.*? \| (.*) \|$", (DOCS / "reference/s3-servers.md").read_text(), re.MULTILINE
    )
}
WRONG = "AAAAAAAAAAA="


def yes(fact: object) -> str:
    return "yes" if fact else "no"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("minio", marks=pytest.mark.minio),
        pytest.param("versitygw", marks=pytest.mark.versitygw),
        pytest.param("moto"),
    ],
)
def test_row_of_a_server(
    name: str, request: pytest.FixtureRequest, bucket_name: str, use_s3: Callable[[S3Server], None]
) -> None:
    server = request.getfixturevalue({"moto": "moto_s3"}.get(name, name))
    use_s3(server)
    server.make_bucket(bucket_name)
    store = RootAddress.parse(f"s3://{bucket_name}").open()
    warnings = fit_server(store)  # raises if keys are not listed in order
    client, place = server.client(), {"Bucket": bucket_name, "Key": "checksum"}
    try:
        client.put_object(**place, Body=b"x", ChecksumCRC64NVME=WRONG)
        rejected = False
    except ClientError:
        rejected = True
    client.put_object(**place, Body=b"x", ChecksumCRC64NVME=crc64nvme(b"x"))
    kept = client.head_object(**place, ChecksumMode="ENABLED").get("ChecksumCRC64NVME")
    found = ["yes", yes(not warnings), yes(creates_only_in_parts(store, "")), yes(rejected), yes(kept)]
    assert {"minio": "MinIO"}.get(name, name) in ROWS
    assert ROWS[{"minio": "MinIO"}.get(name, name)] == found
