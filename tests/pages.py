"""The commands that the project's pages show.

A block without a language, or of ``sh``, has commands. What tests cannot have everywhere stands in a comment above the
block, ``<!-- needs: docker -->``. `tests/commands/test_pages.py` names the test that runs such blocks where that is at
hand, and runs all others without a server, but those of pages that have tests of their own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streamvault.cli import main
from streamvault.cli.app import load_command

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = {DOCS / "reference" / f"{name}.md" for name in ("api", "cli", "reports")}
PAGES = sorted(
    {ROOT / "README.md", ROOT / "SECURITY.md", *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")} - GENERATED
)
FENCED = re.compile(
    r"^(?:(?P<heading>## .*)"
    r"| *(?:<!-- needs: (?P<needs>.*) -->\n *)?```(?P<language>.*)\n(?P<text>(?:(?! *```).*\n)*) *```)$",
    re.MULTILINE,
)
SYNOPSIS = re.compile(r"streamvault [^\n]* (\[-|\[[A-Z]|[A-Z]+\||… )|streamvault [^\n]*\w\|\w+ [A-Z]")


@dataclass(frozen=True)
class Block:
    """What a page shows to be typed.

    Attributes:
        section: the heading of the second level above it, or "".
        needs: what the comment above it names, or "".
        lines: the commands; a script is one.
    """

    section: str
    needs: str
    lines: tuple[str, ...]


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page that have commands, without synopses.

    A block that has a prompt shows output as well, so that only the lines at the prompt are commands.
    """
    section = ""
    for found in FENCED.finditer(text):
        if found["heading"]:
            section = found["heading"].removeprefix("## ")
            continue
        shown = re.sub(r"^ +", "", found["text"], flags=re.MULTILINE)
        if found["language"] not in {"", "sh"} or SYNOPSIS.match(shown):
            continue
        if found["language"] == "sh":
            lines = [shown]
        else:
            shown = shown.replace("\\\n", " ")
            lines = re.findall(r"^\$ (.*)$", shown, re.MULTILINE) if shown.startswith("$ ") else shown.splitlines()
            lines = [line for line in (re.sub(r"(^|\s)#\s.*", "", line).strip() for line in lines) if line]
        yield Block(section, found["needs"] or "", tuple(lines))


def command_lines(text: str, program: str = "streamvault", *, needing: bool = True) -> list[list[str]]:
    """The words of a program's commands in a page's blocks, without its name and what follows in a pipe.

    Without ``needing``, those of blocks that need something are left out.
    """
    found = (line for block in blocks(text) if needing or not block.needs for line in block.lines)
    return [words for line in found if (words := _words(line, program))]


def _words(line: str, program: str = "streamvault") -> list[str]:
    if not line.startswith(f"{program} ") or "\n" in line:
        return []
    words = shlex.split(line)
    ends = [words.index(end) for end in ("|", ">", "&&", "<") if end in words]
    return words[1 : min(ends, default=None)]


def sections(text: str) -> dict[str, str]:
    """A page by its headings of the second level; what is above the first has none."""
    parts = ["", *re.split(r"^## (.*)$", text, flags=re.MULTILINE)]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@dataclass
class Page:
    """A page whose commands are run as they are written, but for their places.

    Attributes:
        places: what stands on the page → what it is in the test.
        left: the sections whose commands were not run yet, without those that need something.
    """

    file: str
    places: Mapping[str, str]
    capfd: pytest.CaptureFixture[str]
    left: dict[str, list[list[str]]] = field(init=False)

    def __post_init__(self) -> None:
        text = (DOCS / self.file).read_text()
        self.left = {
            title: lines for title, part in sections(text).items() if (lines := command_lines(part, needing=False))
        }

    def run(self, section: str, *codes: int) -> list[dict[str, Any]]:
        """Run a section's commands, each of which ends with its code, or all with 0; return what they print as JSON."""
        lines = self.left.pop(section)
        return [self.command(line, code) for line, code in zip(lines, codes or [0] * len(lines), strict=True)]

    def command(self, words: Sequence[str], code: int = 0) -> dict[str, Any]:
        """Run a command and return its report."""
        words = [self.placed(word) for word in words]
        self.capfd.readouterr()
        given = [*words, *([] if "--json" in words else ["--json"])]
        if "--for" not in words and (words[0] == "follow" or "--follow" in words):
            given += ["--for", "1s"]
        ended = main(given)
        out, err = self.capfd.readouterr()
        assert ended == code, (given, ended, err, out)
        report: dict[str, Any] = json.loads(out.splitlines()[-1])  # `work` prints a line for each request before
        return report

    def line(self, line: str) -> None:
        """Run a line as a shell does: in this process, if it is one command of this command line."""
        words = _words(line)
        if words == shlex.split(line)[1:] and words[0] not in {"cat", "get"}:
            self.command(words)
            return
        done = subprocess.run(
            ["sh", "-ec", self.placed(line)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )
        assert done.returncode == 0, (line, done.stderr)

    def placed(self, text: str) -> str:
        """The text with the places of the test."""
        for written, real in self.places.items():
            text = text.replace(written, real)
        return text


def is_parsed(words: Sequence[str]) -> bool:
    """Parse a command of this command line without running it; what is wrong with it raises."""
    command, rest = load_command(words[0]), list(words[1:])
    if rest and (sub := getattr(command, "commands", {}).get(rest[0])) is not None:
        command, rest = sub, rest[1:]
    command.make_context(words[0], rest)
    return True
