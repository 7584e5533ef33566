"""A deletion of an archive on a real S3 server that is stopped before a request, killed or late, beside a rotation."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.commands import run, started, wait_until
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault

pytestmark = [pytest.mark.minio, pytest.mark.timeout(600)]

MOST_SECONDS = 60.0
MORE = [pytest.param(share, marks=pytest.mark.long) for share in (0.12, 0.26, 0.4, 0.9)]
"""Up to about 0.2, nothing is decided yet, and the rotation wins; then the deletion does."""


@pytest.fixture
def proxy(minio: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(int(minio.endpoint.rpartition(":")[2])) as proxy:
        yield proxy


def archived(server: S3Server, folder: Path, root: str) -> Vault:
    """A stream with two generations at a root, the newest of which is not truncated yet."""
    vault = Vault(folder, root)
    vault.create()
    for payload in (b"one", b"two"):
        vault.add(payload, payload * 1000)
        export = ("export", vault.uri(), root, "--layout", "chunks", "--master", "inline")
        assert run(*export, environment=server.environment()).code == 0
    return vault


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "late"])
@pytest.mark.parametrize("share", [0.2, 0.6, *MORE])
def test_deletion_takes_nothing_that_a_rotation_relies_on(
    minio: S3Server, proxy: FaultProxy, tmp_path: Path, share: float, is_killed: bool
) -> None:
    bucket, environment = minio.make_bucket(f"deleted-{uuid.uuid4().hex[:10]}"), minio.environment()
    slow = {**environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
    slow.pop("AWS_ENDPOINT_URL_S3", None)
    counted = archived(minio, tmp_path / "counted", f"s3://{bucket}/counted")
    before = proxy.requests
    assert run("delete", counted.archive, "--yes", environment=slow).code == 0
    needed = proxy.requests - before

    vault = archived(minio, tmp_path / "mine", f"s3://{bucket}/vault")
    vault.add(b"three")
    events = vault.events()
    proxy.hold_at(proxy.requests + max(1, round(share * needed)))
    rotate = (
        "rotate",
        vault.uri(),
        vault.root,
        "--truncate-source",
        "--layout",
        "chunks",
        "--master",
        "inline",
        "--json",
    )
    with started("delete", vault.archive, "--yes", "--json", environment=slow) as late:
        assert wait_until(proxy.held.is_set, late, MOST_SECONDS)
        late.send(signal.SIGKILL if is_killed else signal.SIGSTOP)
        rotated = run(*rotate, environment=environment)
        proxy.resume()  # what was held back arrives now
        if not is_killed:
            late.send(signal.SIGCONT)
        deleted = late.ended()
    assert rotated.code in {0, 4}, rotated.err
    if rotated.code == 0:
        assert rotated.report["truncated"]
        assert deleted.code == (-signal.SIGKILL if is_killed else 4)
        check = run("check", vault.archive, "--read-data", "--master", "inline", "--json", environment=environment)
        assert check.report["events"] == len(events)
    else:
        assert vault.events() == events
    assert run("delete", vault.archive, "--yes", environment=environment).code == 0
    left = minio.client().list_objects_v2(Bucket=bucket, Prefix=f"vault/{NAME}/")["Contents"]
    assert all("/decisions/" in entry["Key"] for entry in left)
