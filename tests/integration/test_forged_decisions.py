"""Decisions that a client of S3 has put beside those of Streamvault, on a real Pravega and a real MinIO."""

from __future__ import annotations

import pytest

from streamvault import export_stream, hold_archive, rotate_stream
from streamvault.common.errors import Damaged
from streamvault.layouts.keys import decision_key
from streamvault.manifests.files import seal
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.store import StreamStore
from testkit.servers.pravega import PravegaServer
from testkit.servers.s3 import S3Server
from testkit.streams import append_more, make_stream

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(300)]


def test_nothing_is_deleted_on_their_word(
    pravega: PravegaServer, store: StreamStore, minio: S3Server, bucket: str, scope_name: str
) -> None:
    name = StreamName(scope_name, "orders")
    uri, root = f"{pravega.uri}/{name}", f"s3://{bucket}/vault"
    client = minio.client()
    make_stream(store, name, events=50, largest=300)
    for _ in range(3):
        export_stream(uri, root, layout="chunks", master="inline")
        append_more(uri)

    def keys() -> set[str]:
        return {found["Key"] for found in client.list_objects_v2(Bucket=bucket, Prefix="vault/")["Contents"]}

    def forge(number: int, **change: object) -> str:
        document = {"format": 1, "scope": name.scope, "stream": name.stream, "created": "2026-11-20T00:00:00Z"}
        key = f"vault/{name}/{decision_key(number)}"
        client.put_object(Bucket=bucket, Key=key, Body=seal({**document, "number": number, **change}), IfNoneMatch="*")
        return key

    before = keys()
    forged = forge(1, dropped=2)
    report = rotate_stream(uri, root, master="inline")
    assert report.objects_deleted == 0
    assert any("decision 1 of 2026-11-20T00:00:00Z" in warning for warning in report.warnings)
    assert before <= keys()
    client.delete_object(Bucket=bucket, Key=forged)
    hold_archive(f"{root}/{name}", "legal", generation=1)
    deleting = {"format": 2, "deletion": "decided"}
    for number, change in ((2, {"dropped": 2}), (2, deleting), (0x7FFFFFFF, {})):
        before = keys()
        forged = forge(number, **change)
        with pytest.raises(Damaged, match=r"^decision \d+ of 2026-11-20"):
            rotate_stream(uri, root, keep=1, master="inline")
        assert before <= keys()
        client.delete_object(Bucket=bucket, Key=forged)
    assert rotate_stream(uri, root, keep=1, master="inline").expired == ()
