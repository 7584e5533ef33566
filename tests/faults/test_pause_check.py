"""A check that is stopped before its first mark, on a real S3 server, and goes on after others have changed much."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testkit.commands import Ended, run, started, wait_until
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [pytest.mark.minio, pytest.mark.timeout(600)]

GENERATIONS = 3
MARK = ".checked.json"
MOST_SECONDS = 60.0


@dataclass
class Paused:
    """A stream with an archive of three generations, and a check of it that is stopped before its first mark."""

    server: S3Server
    client: S3Client
    bucket: str
    vault: Vault

    def keys(self, folder: str = "") -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=f"vault/{NAME}/{folder}").get("Contents", [])
        return [entry["Key"] for entry in found]

    @property
    def marks(self) -> list[str]:
        return [key for key in self.keys() if key.endswith(MARK)]

    def delete(self, *keys: str) -> None:
        """Delete objects by other tools."""
        for key in keys:
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def run(self, *arguments: str) -> Ended:
        return run(*arguments, "--json", environment=self.server.environment())

    def rotate(self, *options: str) -> Ended:
        return self.run(
            "rotate", self.vault.uri(), self.vault.root, "--truncate-source", "--master", "inline", *options
        )


def grown(server: S3Server, vault: Vault, word: bytes) -> None:
    vault.create()
    for number in range(GENERATIONS):
        vault.add(b"%s %d" % (word, number), word * 1000)
        export = ("export", vault.uri(), vault.root, "--layout", "chunks", "--master", "inline")
        assert run(*export, environment=server.environment()).code == 0


@pytest.fixture
def proxy(minio: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(int(minio.endpoint.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture
def paused(minio: S3Server, tmp_path: Path) -> Paused:
    bucket = minio.make_bucket(f"paused-{uuid.uuid4().hex[:10]}")
    vault = Vault(tmp_path / "mine", f"s3://{bucket}/vault")
    grown(minio, vault, b"mine")
    return Paused(minio, minio.client(), bucket, vault)


def late_marks(paused: Paused, proxy: FaultProxy, happens: Any) -> dict[str, Any]:
    """Check, stopped before the first mark while something happens; returns the check's report."""
    environment = {**paused.server.environment(), "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
    environment.pop("AWS_ENDPOINT_URL_S3", None)
    check = ("check", paused.vault.archive, "--read-data", "--master", "inline", "--json")
    before = proxy.requests
    assert run(*check, environment=environment).report["marked"] == [1, 2, 3]
    needed = proxy.requests - before  # the marks are the last of them
    paused.delete(*paused.marks)
    proxy.hold_at(proxy.requests + needed - GENERATIONS + 1)
    with started(*check, environment=environment) as late:
        assert wait_until(proxy.held.is_set, late, MOST_SECONDS)
        late.send(signal.SIGSTOP)
        assert paused.marks == []
        happens()
        proxy.resume()
        late.send(signal.SIGCONT)
        return late.ended().report


def test_late_marks_of_expired_generations_go_with_the_next_rotation(paused: Paused, proxy: FaultProxy) -> None:
    late_marks(paused, proxy, lambda: paused.rotate("--keep", "1").report)
    assert len(paused.marks) == GENERATIONS
    paused.vault.add(b"more")
    assert paused.rotate("--keep", "2").report["truncated"]
    assert [key.rpartition("/")[2] for key in paused.marks] == [f"{number:010d}{MARK}" for number in (3, 4)]
    assert paused.run("check", paused.vault.archive, "--read-data", "--master", "inline").report["ok"]


def test_late_marks_in_a_deleted_archive_bring_nothing_back(paused: Paused, proxy: FaultProxy) -> None:
    late_marks(paused, proxy, lambda: paused.run("delete", paused.vault.archive, "--yes").report)
    assert len(paused.marks) == GENERATIONS
    assert paused.run("ls", paused.vault.root).report["archives"] == []
    for again in (paused.rotate(), paused.run("export", paused.vault.uri(), paused.vault.root, "--master", "inline")):
        assert again.code == 4
        assert "was deleted" in again.error["what"]
    assert paused.run("delete", paused.vault.archive, "--yes").report["objects"] == GENERATIONS
    assert all("/_manifest/decisions/" in key for key in paused.keys(""))


def test_late_marks_of_an_archive_that_was_removed_and_made_again_keep_the_source(
    paused: Paused, proxy: FaultProxy, tmp_path: Path
) -> None:
    other = Paused(paused.server, paused.client, paused.bucket, Vault(tmp_path / "other", paused.vault.root))

    def made_again() -> None:
        paused.delete(*paused.keys())
        grown(paused.server, other.vault, b"other")

    late_marks(paused, proxy, made_again)
    before = other.vault.events()
    refused = other.rotate()
    assert refused.code == 3
    assert "the mark belongs to a different manifest" in refused.error["what"]
    assert other.vault.events() == before


def test_object_that_is_gone_before_the_marks_come_keeps_the_source(paused: Paused, proxy: FaultProxy) -> None:
    first = min(paused.keys("chunks/"))
    late_marks(paused, proxy, lambda: paused.delete(first))
    before = paused.vault.events()
    refused = paused.rotate("--keep", "1")
    assert refused.code == 3
    assert (refused.error["what"], first in refused.error["where"]) == ("no such object", True)
    assert paused.vault.events() == before
    assert paused.run("timeline", paused.vault.archive).code == 0
