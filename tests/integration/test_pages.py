"""Commands of the pages on the servers that they need, as they are written but for their places."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

from testkit.servers.iceberg_rest import IcebergRestServer
from testkit.servers.s3 import S3Server
from tests.integration.conftest import Site as Cluster
from tests.pages import DOCS, blocks
from tests.site_of_pages import Site, Walk, walks

PAGES = [
    "../README.md",
    "guide/copy.md",
    "guide/queue.md",
    "guide/reader-groups.md",
    "guide/rotation.md",
    "guide/standby.md",
]
"""Pages whose commands depend on what clusters and buckets do."""


@pytest.fixture(autouse=True)
def beside_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    monkeypatch.chdir(tmp_path)


@pytest.mark.pravega
@pytest.mark.minio
@pytest.mark.parametrize("walk", [walk for walk in walks(PAGES) if walk.section != "A tour"], ids=str)
def test_commands_run_on_pravega(
    walk: Walk,
    here: Cluster,
    there: Cluster,
    bucket: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CA_FILE", "USERNAME", "PASSWORD"):  # an import has one cluster, whose login is not the target's
        monkeypatch.setenv(f"PRAVEGA_{name}", os.environ[f"PRAVEGA_TARGET_{name}"])
    scope = f"shop{uuid.uuid4().hex[:8]}"
    walk.follow(Site(here.server.uri, there.server.uri, f"s3://{bucket}", tmp_path, capfd, scope))


def walk_that_needs(file: str, section: str, what: str) -> Walk:
    """A section's blocks that need something."""
    (walk,) = (walk for walk in walks([file], {what}) if walk.section == section)
    return walk


@pytest.fixture
def site(
    request: pytest.FixtureRequest,
    use_s3: Callable[[S3Server], None],
    bucket_name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> Site:
    """Embedded streams, and a bucket on the server that the test names."""
    server = request.getfixturevalue(request.param)
    use_s3(server)
    server.client().create_bucket(Bucket=bucket_name)
    scope = f"shop{uuid.uuid4().hex[:8]}"
    return Site(f"local://{tmp_path}/here", f"local://{tmp_path}/there", f"s3://{bucket_name}", tmp_path, capfd, scope)


@pytest.mark.parametrize("site", ["moto_s3"], indirect=True)
def test_archive_class(site: Site, moto_s3: S3Server) -> None:
    walk_that_needs("guide/import.md", "From an archive class (Glacier)", "glacier").follow(site)


@pytest.mark.parametrize("site", ["moto_s3"], indirect=True)
@pytest.mark.parametrize("section", ["", "Straight from a stream"])
def test_glue(site: Site, section: str) -> None:
    walk_that_needs("guide/lake.md", section, "glue").follow(site)
    assert boto3.client("glue", region_name="us-east-1").get_table(DatabaseName=site.scope, Name="orders")["Table"]


@pytest.mark.minio
@pytest.mark.parametrize("site", ["minio"], indirect=True)
def test_rest_catalog(site: Site, iceberg_rest: IcebergRestServer) -> None:
    site.places["http://127.0.0.1:8181"] = iceberg_rest.uri
    walk_that_needs("guide/lake.md", "Catalogs", "iceberg-rest").follow(site)


def test_nothing_else_is_marked_so() -> None:
    marked = [block.needs for page in ("import", "lake") for block in blocks((DOCS / f"guide/{page}.md").read_text())]
    assert sorted(filter(None, marked)) == ["glacier", "glue", "glue", "iceberg-rest", "protoc", "registry", "registry"]
