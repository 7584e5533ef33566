"""The page about the command line, and the man pages."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bin.pages.__main__ import main
from bin.pages.cli import commands, man_pages, page
from streamvault.cli.app import COMMANDS, help_records


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


def test_man_pages_have_each_command(tmp_path: Path) -> None:
    pages = man_pages()
    assert set(pages) == {"streamvault.1", *(f"streamvault-{name.replace(' ', '-')}.1" for name, _ in commands())}
    for text in pages.values():
        assert text.isascii()
        assert all(re.match(r"\.(TH|SH|TP|PP)\b", line) for line in text.splitlines() if line.startswith((".", "'")))
    main(str(tmp_path))
    assert {file.name for file in tmp_path.iterdir()} == set(pages)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_page_is_printed(tmp_path: Path) -> None:
    main(str(tmp_path))
    command = ["groff", "-man", "-Tutf8", "-P-c", "-ww", "streamvault-export.1"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    assert "--range-size SIZE" in re.sub(".\b", "", shown.stdout)
    assert "Archive a stream" in " ".join(shown.stdout.split())


def test_page_has_no_tags() -> None:
    assert re.findall(r"<[A-Za-z]+>", re.sub(r"`[^`]*`", "", page())) == []
