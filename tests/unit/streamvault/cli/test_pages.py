"""The page about the command line, and the man pages.

The page of the public functions.
"""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess

import pytest

import streamvault
from bin.pages.api import page as api_page
from bin.pages.cli import MAN, commands, man_pages, page
from bin.pages.reports import FOLDER
from streamvault import errors
from streamvault.cli.app import COMMANDS, help_records
from streamvault.manager.manager import StreamManager


def test_page_has_each_command_with_its_options_in_whole_sentences() -> None:
    sections = dict(re.findall(r"^## ([a-z -]+)\n(.*?)(?=^## |\Z)", page(), re.MULTILINE | re.DOTALL))
    assert list(sections) == [name for name, _ in commands()]
    assert {name.partition(" ")[0] for name in sections} == {*COMMANDS}
    for name, command in commands():
        for one in re.findall(r"^\| `.*` \| (.*) \|$", sections[name], re.MULTILINE):
            assert one.endswith((".", "]", ")")), one
        records = help_records(command, command.make_context(name, [], resilient_parsing=True))
        shown = {"--json", "--log-level", "-h"}
        options = {form.split()[0].rstrip(",") for form, _ in records["Options"]} - shown
        assert options == set(re.findall(r"^\| `(-[^ `,]+)", sections[name], re.MULTILINE))


def test_man_pages_have_each_command() -> None:
    pages = man_pages()
    assert set(pages) == {"streamvault.1", *(f"streamvault-{name.replace(' ', '-')}.1" for name, _ in commands())}
    for text in pages.values():
        assert text.isascii()
        assert all(re.match(r"\.(TH|SH|TP|PP)\b", line) for line in text.splitlines() if line.startswith((".", "'")))
    assert {file.name: file.read_text() for file in MAN.iterdir()} == pages


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_page_is_printed() -> None:
    command = ["groff", "-man", "-Tutf8", "-P-c", "-ww", "streamvault-export.1"]
    shown = subprocess.run(command, cwd=MAN, capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    assert "--range-size SIZE" in re.sub(".\b", "", shown.stdout)
    assert "Archive a stream" in " ".join(shown.stdout.split())


def test_page_has_no_tags() -> None:
    assert re.findall(r"<[A-Za-z]+>", re.sub(r"`[^`]*`", "", page())) == []


def test_page_has_each_function_with_its_arguments_and_errors() -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", api_page(), re.MULTILINE | re.DOTALL))
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
    assert re.findall(r"^\| `(\w+)` \| \d", api_page(), re.MULTILINE) == errors.__all__


def test_links_of_the_page_lead_somewhere() -> None:
    text = api_page()
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line.startswith("##")}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= headings
    reports = (FOLDER / "reports.md").read_text()
    for anchor in re.findall(r"\(reports\.md#([\w-]+)\)", text):
        assert re.search(rf"^## {anchor}$", reports, re.MULTILINE | re.IGNORECASE), anchor
