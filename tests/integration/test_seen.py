"""Forged objects in a bucket on MinIO do not make a live stream on Pravega lose events."""

from __future__ import annotations

from typing import Any

import pytest

from streamvault import check_archive, export_stream, rotate_stream, show_status
from streamvault.common.errors import Conflict, Damaged
from streamvault.manifests.archive import Archive
from streamvault.sources.comparing import StillHeld
from streamvault.streamstore.model import StreamName
from testkit.small_archives import RANGE_SIZE, forge_gaps
from testkit.streams import make_stream
from tests.integration.conftest import Site

pytestmark = [pytest.mark.pravega, pytest.mark.minio]
OPTIONS: dict[str, Any] = {"layout": "chunks", "range_size": RANGE_SIZE, "master": "inline[2]"}


def test_forged_gaps_and_swapped_chunks_keep_the_stream(here: Site, root: str, scope_name: str) -> None:
    name = StreamName(scope_name, "orders")
    make_stream(here.store, name, events=300, largest=2000)
    uri, archive = here.uri(name), Archive.open(f"{root}/{name}")
    before = here.store.describe(name)
    export_stream(uri, root, **OPTIONS)
    assert check_archive(archive.uri, read_data=True, master="inline").marked == (1,)

    forged = f"{root}-forged"
    forge_gaps(archive, Archive.open(f"{forged}/{name}"))
    with pytest.raises(StillHeld, match="generation 1 calls bytes"):
        rotate_stream(uri, forged, truncate_source=True, **OPTIONS)

    later = f"{root}-later"
    export_stream(uri, later, from_cut=before.tail.to_json(), **OPTIONS)
    report = show_status(uri, root=later)
    assert report.live_streams[0].before_archive == archive.manifest().bytes
    assert "which were never archived" in report.warnings[0]
    with pytest.raises(Conflict, match="which were never archived"):
        rotate_stream(uri, later, truncate_source=True, **OPTIONS)

    segment, rows = next(iter(archive.load(1).rows.items()))
    place = f"{archive.prefix}chunks/"
    key = next(one.key for one in archive.store.list(place) if one.key.endswith(f"-{rows[0].end - rows[0].start:019d}"))
    data = archive.store.get(key, 1 << 20)
    archive.store.delete([key])
    archive.store.put(key, bytes(len(data)))
    with pytest.raises(Damaged, match=f"do not match the manifest: .*{segment}"):
        rotate_stream(uri, root, truncate_source=True, **OPTIONS)
    assert here.store.describe(name).head == before.head

    archive.store.delete([key])
    archive.store.put(key, data)
    rotated = rotate_stream(uri, root, truncate_source=True, **OPTIONS)
    assert (rotated.truncated, rotated.ranges_compared) == (True, sum(map(len, archive.load(1).rows.values())))
    assert here.store.describe(name).head == before.tail
    assert show_status(uri, root=later).live_streams[0].before_archive == 0
