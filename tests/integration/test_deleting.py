"""Many objects expire: in bulk requests, as the server counts them; and a killed deletion is resumed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamvault import check_archive, export_stream
from streamvault.layouts.keys import decision_key
from streamvault.objectstore.bulk import DELETES
from streamvault.streamstore.model import Scaling, StreamConfiguration
from testkit.commands import run, started, wait_until
from testkit.servers.minio import MinioServer, requests_served
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault, archive_of
from testkit.streams import append_events
from tests.conftest import started as started_server

pytestmark = [pytest.mark.minio, pytest.mark.timeout(3000)]
KEYS_A_REQUEST = 1000
FEW = 40
"""Bulk requests for other objects: work files, manifests, marks; and half-empty ones after a kill."""


@pytest.fixture
def own_minio(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    """A MinIO for this test only, so that it counts only the test's requests."""
    with started_server(request, "minio", MinioServer) as server:
        yield server


def test_large_generation_expires(
    own_minio: S3Server, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest asks the conftest beside this file for its options only if its folder is named on the command line
    count = int(request.config.getoption("dropped_objects", default=2_100))
    for name, value in own_minio.environment().items():
        monkeypatch.setenv(name, value)
    client, bucket = own_minio.client(), own_minio.make_bucket("vault")
    vault = Vault(tmp_path, f"s3://{bucket}")
    with vault.store as store:
        store.create_scope(NAME.scope)
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=1)))
        (segment,) = store.describe(NAME).tail.offsets
        append_events(store, NAME, segment, (b"%d" % number for number in range(count)))
    began = time.monotonic()
    export_stream(vault.uri(), vault.root, master="inline")
    print(f"{count} objects exported in {time.monotonic() - began:.1f} s")
    vault.add(b"the last one")
    command = ("rotate", vault.uri(), vault.root, "--keep", "1", "--master", "inline", "--json")

    def has(key: str) -> bool:
        return bool(client.list_objects_v2(Bucket=bucket, Prefix=f"{NAME}/{key}").get("Contents"))

    with started(*command, environment=own_minio.environment()) as running:
        if wait_until(lambda: has(decision_key(1)), running, limit=1500):
            time.sleep(count / 25_000)
            running.send(signal.SIGKILL)
        killed = running.ended().code == -signal.SIGKILL and not has(decision_key(2))
    before = sum(1 for _ in archive_of(vault.root).store.list(f"{NAME}/events/")) - 1
    print(f"killed with {before} of {count} objects left" if killed else "it was quicker than the kill")
    assert archive_of(vault.root).generations() == [2]
    assert check_archive(vault.archive, read_data=True, master="inline").ok

    report = run(*command, environment=own_minio.environment(), limit=1500).report
    print(f"then {report['objects_deleted']} objects by {report['requests']} requests in {report['seconds']} s")
    assert report["resumed"] == killed
    # the server may have executed the killed run's last requests after our count
    in_flight = DELETES * KEYS_A_REQUEST
    assert not killed or before - in_flight <= report["objects_deleted"] <= before
    assert sum(1 for _ in archive_of(vault.root).store.list(f"{NAME}/events/")) == 1
    assert check_archive(vault.archive, read_data=True, master="inline").ok
    served = requests_served(own_minio)
    print(f"the server counts {served}")
    assert served["deletemultipleobjects"] <= count / KEYS_A_REQUEST + FEW
    assert "deleteobject" not in served
    if count >= 50_000:
        assert killed
        assert 0 < before < count
