"""The runbook for a deleted stream, on a real Pravega and a real MinIO; tests/commands has the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from tests.integration.conftest import Place
from tests.integration.test_append import check_as_before
from tests.pages import DOCS, Page, command_lines
from tests.streams import append_events, events_of, make_stream


@pytest.mark.pravega
@pytest.mark.minio
def test_stream_deleted(
    place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    monkeypatch.chdir(tmp_path)
    orders, store = StreamName(place.source.scope, "orders"), place.store

    def payloads() -> list[bytes]:
        return sorted(payload for _, payload in events_of(store, orders))

    def add(payload: bytes) -> None:
        for segment in sorted(store.describe(orders).tail.offsets):
            append_events(store, orders, segment, [payload])

    places = {
        "pravega://HERE:9090": place.server.uri,
        "s3://vault": f"s3://{place.bucket}",
        "/shop/": f"/{orders.scope}/",
    }
    page = Page("runbooks/stream-deleted.md", places, capfd)
    (schedule,) = command_lines((DOCS / "runbooks/index.md").read_text())
    make_stream(store, orders, events=60, largest=2000)
    before = payloads()
    page.command(schedule)
    store.delete(orders)
    page.command(schedule, 5)
    store.create_stream(orders, StreamConfiguration(scaling=Scaling(min_segments=3)))
    add(b"too early")
    page.command(schedule, 4)
    for section in ("What there is", "Keep it", "If the name is in use"):
        page.run(section)
    store.delete(orders)
    append = page.left["Restore"].pop()
    page.run("Restore")
    assert payloads() == before
    restored = store.describe(orders)
    page.command(append)
    check_as_before(store, restored)
    assert payloads() == sorted([*before, *[b"too early"] * 3])
    Path("cut.json").write_text(json.dumps(page.command(["show", "s3://vault/backups/shop/orders"])["to"]))
    page.run("Readers and writers")
    again = page.left["The schedule runs again"][0]
    page.run("The schedule runs again")
    add(b"the next one")
    assert page.command(again)["generation"] == 2
    assert page.left == {}
