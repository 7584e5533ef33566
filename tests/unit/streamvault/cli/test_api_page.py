"""The page of the public functions."""

from __future__ import annotations

import inspect
import re

import streamvault
from bin.pages.api import page
from bin.pages.reports import FOLDER
from streamvault import errors
from streamvault.manager.manager import StreamManager


def test_page_has_each_function_with_its_arguments_and_errors() -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page(), re.MULTILINE | re.DOTALL))
    assert set(sections) == {*streamvault.__all__, "register"}
    for name in streamvault.__all__:
        section, called = sections[name], inspect.signature(getattr(streamvault, name))
        assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(called.parameters)
        assert f"{name}(" in section
        assert "``" not in section.replace("```", "")
    assert "`stream` may also name a [scope]" in sections["export_stream"]
    assert "[`ExportReport`](reports.md#export)" in sections["export_stream"]
    assert "[`Manifest`](format.md)" in sections["show_archive"]
    assert "ArchiveSummary" in sections["list_archives"]
    assert "-> " not in sections[StreamManager.__name__].partition("```python")[2].partition("```")[0]
    assert re.findall(r"^\| `(\w+)` \| \d", page(), re.MULTILINE) == errors.__all__


def test_links_of_the_page_lead_somewhere() -> None:
    text = page()
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line.startswith("##")}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= headings
    reports = (FOLDER / "reports.md").read_text()
    for anchor in re.findall(r"\(reports\.md#([\w-]+)\)", text):
        assert re.search(rf"^## {anchor}$", reports, re.MULTILINE | re.IGNORECASE), anchor
