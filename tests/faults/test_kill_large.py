"""An export that is killed during the multipart upload of a large event, and run again."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path
from random import Random

import pytest

from streamvault.layouts.keys import chunk_key
from streamvault.streamstore.model import HEADER_BYTES, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.commands import run, started, wait_until
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Server
from testkit.streams import append_events, digest_of
from tests.faults.test_pause_export import MOST_SECONDS, through

pytestmark = [pytest.mark.minio, pytest.mark.timeout(300)]

MIB = 1024 * 1024
NAME = StreamName("shop", "orders")
PARTS = 8
OPTIONS = ("--layout", "chunks", "--window", "16MiB", "--range-size", "16MiB", "--master", "inline", "--json")


@pytest.mark.parametrize("sent", [1, 3, 5], ids=lambda sent: f"{sent} of {PARTS} parts")
def test_export_killed_between_parts_is_resumed(minio: S3Server, tmp_path: Path, sent: int) -> None:
    bucket = minio.make_bucket(f"large-{uuid.uuid4().hex[:10]}")
    source, target = (f"local://{tmp_path}/cluster/{name}" for name in (NAME, "shop/restored"))
    environment, client = minio.environment(), minio.client()
    with parse_stream(source)[0].open() as store, FaultProxy(int(minio.endpoint.rpartition(":")[2])) as proxy:
        store.create_scope(NAME.scope)
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=1)))
        append_events(store, NAME, SegmentId(0, 0), [b"before", Random(1).randbytes(PARTS * 5 * MIB), b"after"])
        expected = digest_of(store, NAME)
        length = PARTS * 5 * MIB + HEADER_BYTES
        root, large = (
            f"s3://{bucket}/vault",
            f"vault/{NAME}/{chunk_key(SegmentId(0, 0), len(b'before') + HEADER_BYTES, length)}",
        )

        def parts() -> int:
            uploads = client.list_multipart_uploads(Bucket=bucket, Prefix=large).get("Uploads", [])
            asked = [{"Bucket": bucket, "Key": one["Key"], "UploadId": one["UploadId"]} for one in uploads]
            return sum(len(client.list_parts(**one).get("Parts", [])) for one in asked)

        proxy.delay = 0.01  # for each 64 KiB, so that there is time between two parts
        with started("export", source, root, *OPTIONS, environment=through(proxy, environment)) as running:
            assert wait_until(lambda: parts() >= sent, running, MOST_SECONDS)
            running.send(signal.SIGKILL)
            assert running.ended().code == -signal.SIGKILL
        assert parts(), "what was sent is there, and nobody sees it"
        assert not client.list_objects_v2(Bucket=bucket, Prefix=large).get("Contents")

        again = run("export", source, root, *OPTIONS, environment=environment)
        assert again.report["resumed"]
        archive = f"{root}/{NAME}"
        checked = run("check", archive, "--read-data", "--master", "inline", "--json", environment=environment).report
        assert (checked["ok"], checked["strays"], checked["events"]) == (True, 0, 3)
        restored = run("import", archive, target, "--window", "16MiB", "--master", "inline", environment=environment)
        assert restored.code == 0, restored.err
        assert digest_of(store, StreamName(NAME.scope, "restored")) == expected
