"""The commands that the project's pages show."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from streamvault.cli import main
from streamvault.cli.app import load_command

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def blocks(text: str) -> list[str]:
    """The blocks of a page that have no language: what is typed at a prompt, and what is shown there."""
    return [
        re.sub(r"^ +", "", block, flags=re.MULTILINE)
        for language, block in re.findall(r"^ *```(.*)\n((?:(?! *```).*\n)*) *```$", text, re.MULTILINE)
        if not language
    ]


def command_lines(text: str, program: str = "streamvault") -> list[list[str]]:
    """The words of each command of a program in a page's blocks, without the program's name; no synopses.

    A block that has a prompt shows output as well, so that only the lines at the prompt are commands.
    """
    found = []
    for block in blocks(text):
        if re.match(rf"{program} \S+ .*(\[-|\[[A-Z]|\|[A-Z])", block):
            continue
        shown = block.replace("\\\n", " ")
        lines = re.findall(r"^\$ (.*)$", shown, re.MULTILINE) if "$ " in shown[:2] else shown.splitlines()
        for line in lines:
            if line.startswith(f"{program} "):
                words = shlex.split(re.sub(r"\s#.*", "", line))
                ends = [words.index(end) for end in ("|", ">", "&&") if end in words]
                found.append(words[1 : min(ends, default=None)])
    return found


def sections(text: str) -> dict[str, str]:
    """A page by its headings of the second level."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@dataclass
class Page:
    """A page whose commands are run as they are written, but for their places.

    Attributes:
        places: what stands on the page → what it is in the test.
        left: the sections whose commands were not run yet.
    """

    file: str
    places: Mapping[str, str]
    capfd: pytest.CaptureFixture[str]
    left: dict[str, list[list[str]]] = field(init=False)

    def __post_init__(self) -> None:
        text = (DOCS / self.file).read_text()
        self.left = {title: lines for title, part in sections(text).items() if (lines := command_lines(part))}

    def run(self, section: str, *codes: int) -> list[dict[str, Any]]:
        """Run a section's commands, each of which ends with its code, or all with 0; return what they print as JSON."""
        lines = self.left.pop(section)
        return [self.command(line, code) for line, code in zip(lines, codes or [0] * len(lines), strict=True)]

    def command(self, words: Sequence[str], code: int = 0) -> dict[str, Any]:
        """Run a command and return its report."""
        for written, real in self.places.items():
            words = [word.replace(written, real) for word in words]
        self.capfd.readouterr()
        given = [*words, *([] if "--json" in words else ["--json"])]
        ended = main(given)
        out, err = self.capfd.readouterr()
        assert ended == code, (given, ended, err, out)
        report: dict[str, Any] = json.loads(out.splitlines()[-1])  # `work` prints a line for each request before
        return report


def is_parsed(words: Sequence[str]) -> bool:
    """Parse a command of this command line without running it; what is wrong with it raises."""
    command, rest = load_command(words[0]), list(words[1:])
    if rest and (sub := getattr(command, "commands", {}).get(rest[0])) is not None:
        command, rest = sub, rest[1:]
    command.make_context(words[0], rest)
    return True
