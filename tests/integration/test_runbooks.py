"""Runbooks about streams on a real Pravega and a real MinIO; the cluster that takes its place is the embedded store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.test_runbooks import (
    Site,
    test_cluster_lost,
    test_old_cluster_back,
    test_readers_read_from_the_archive,
    test_stream_deleted,
)
from tests.integration.conftest import Place

__all__ = [
    "test_cluster_lost",
    "test_old_cluster_back",
    "test_readers_read_from_the_archive",
    "test_stream_deleted",
]

pytestmark = [pytest.mark.pravega, pytest.mark.minio]


@pytest.fixture
def site(place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline[2]")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    there, vault = f"local://{tmp_path}/there", f"s3://{place.bucket}"
    return Site(place.server.uri, there, vault, capfd, place.source.scope).make()
