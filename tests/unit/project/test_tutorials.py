"""The tour of README.md and the tutorials, one after the other as they are written, but for their folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import DOCS, Page, blocks, command_lines

TUTORIAL = ("first-archive", "first-restore", "first-table", "disaster-drill")
OTHERS = ["ls ~/tour/vault/demo/orders/events/0000000001.0000000003 | head -n 3", "rm -r /tmp/trial/streams/demo/sales"]
"""The commands that are not Streamvault's."""

EVENTS = 300
"""Fewer events than the demo makes by default."""


def test_tutorials(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    trial = tmp_path / "trial"
    reports = {}
    tour = Page("../README.md", {"$HOME/tour": str(trial), "~/tour": str(trial)}, capfd)
    for name in TUTORIAL:
        page = Page(f"tutorial/{name}.md", {"/tmp/trial": str(trial)}, capfd)
        text = (DOCS / page.file).read_text()
        assert sum(map(len, page.left.values())) == len(command_lines(text)), "each command is in a section"
        for section in list(page.left):
            if section == "A stream":
                page.left[section][0] += ["--events", str(EVENTS)]
            if section == "The disaster":
                page.line(OTHERS[1])
                page.run(section, 5)
            elif section == "A single event":
                listed, _ = page.left.pop(section)
                (event,) = page.command(listed)["events"]
                assert page.command(["get", listed[1], event["pointer"]])["payload"]
            else:
                reports[section] = page.run(section)
            if section == "A stream":
                shown = tour.run("A tour")
                tour.line(OTHERS[0])
                assert [report.get("events") for report in shown] == [EVENTS, None, EVENTS, EVENTS]
        for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(program.replace("/tmp/trial", str(trial)))
            assert "events" in capfd.readouterr().out
    files = ["../README.md", *(f"tutorial/{name}.md" for name in TUTORIAL)]
    shown_lines = [
        line for file in files for block in blocks((DOCS / file).read_text()) if not block.needs for line in block.lines
    ]
    assert [line for line in shown_lines if not line.startswith("streamvault ")] == OTHERS
    first, second = reports["Archive it"][1], reports["Archive new events"][2]
    assert (first["generation"], second["generation"]) == (1, 2)
    assert first["events"] == second["events"] > 0
    assert reports["Keep it up to date"][0]["unchanged"]
    assert reports["Resume the schedule"][1]["archives"]
