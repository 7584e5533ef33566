"""Commands of README.md and the guides, run as they are written but for their places; all others are parsed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamvault import export_stream
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamName
from tests.pages import DOCS, ROOT, Page, command_lines, is_parsed
from tests.streams import make_byte_stream, make_stream

PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
RUN = {
    "../README.md": ("/data",),  # the tour, which tests/unit/project/test_tutorials.py runs
    "guide/delete.md": (),
    "guide/export.md": (),
    "guide/import.md": ("BUCKET", "…"),  # with Glacier, and under its own name: tests/commands/test_runbooks.py
    "guide/layouts.md": ("get ",),  # the pointer is of another stream
    "guide/manager.md": (),
    "guide/plan.md": (),
    "guide/queue.md": ("queue skip",),  # no request is there
    "guide/read.md": (),
    "guide/report.md": (),
    "guide/rotation.md": ("--at ",),  # the time is long before the stream
    "guide/status.md": ("--config ",),  # the file is one of the guide to scopes
    "sizing.md": (),
}
"""Page → the commands that are not run, and why."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_parsed(page: Path) -> None:
    assert all(is_parsed(words) for words in command_lines(page.read_text()))


def test_most_commands_are_found() -> None:
    assert sum(len(command_lines(page.read_text())) for page in PAGES) > 150


@pytest.mark.parametrize("name", RUN)
def test_commands_run(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    monkeypatch.chdir(tmp_path)
    for folder in ("vault/backups", "vault/other", "prom"):
        Path(folder).mkdir(parents=True)
    streams = f"local://{tmp_path}/streams"
    with LocalStore(tmp_path / "streams") as store:
        make_stream(store, StreamName("shop", "orders"), events=60, largest=2000)
        make_byte_stream(store, StreamName("media", "recording"))
        cut = {
            str(segment): offset
            for segment, offset in store.describe(StreamName("shop", "orders")).head.offsets.items()
        }
    for file in ("end.json", "last-seen.json"):
        Path(file).write_text(json.dumps({f"shop/orders/{segment}": offset for segment, offset in cut.items()}))
    export_stream(f"{streams}/shop/orders", f"file://{tmp_path}/vault/backups")
    places = {
        "pravega://127.0.0.1:9090": streams,
        "pravega://localhost:9090": streams,
        "s3://": f"file://{tmp_path}/",
        "file:///data/vault": f"file://{tmp_path}/vault/backups",
        "file:///data": f"file://{tmp_path}/vault",
        "/var/lib/node_exporter": f"{tmp_path}/prom",
        "ARCHIVE": f"file://{tmp_path}/vault/backups/shop/orders",
    }
    page = Page(name, places, capfd)
    lines = command_lines((DOCS / name).read_text())
    kept = [words for words in lines if not any(text in " ".join(words) for text in RUN[name])]
    assert kept
    for words in kept:
        page.command(words)
