"""How a command ends: its exit code, and what it prints; if it is refused, one line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pytest

from streamvault.cli import main
from streamvault.common.errors import Damaged


class Printed(NamedTuple):
    """What a command wrote to standard output and standard error."""

    out: str
    err: str


class Ran(Protocol):
    """Runs a command line in this process, checks its exit code, and returns what it printed."""

    def __call__(self, *words: str, code: int = 0) -> Printed: ...


Restored = Callable[..., Printed]
"""Imports an archive, as `testkit.scenes.restore` does, and returns what that printed."""


def assert_ends(arguments: Sequence[str], code: int, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Run a command line, plain and with ``--json``; it ends with a code and one line that matches."""
    for as_json in (False, True):
        capfd.readouterr()
        assert main([*arguments, *(["--json"] if as_json else [])]) == code
        out, err = capfd.readouterr()
        assert_told(out, err, code, line, as_json=as_json)


def assert_told(out: str, err: str, code: int, line: str, *, as_json: bool) -> None:
    assert "Traceback" not in err + out
    lines = [each for each in err.splitlines() if not each.startswith("warning: ")]
    assert len(lines) == 1, err
    assert re.fullmatch(f"streamvault: {line}", lines[0]), lines[0]
    if not as_json:
        assert not out
        return
    error = json.loads(out)["error"]
    assert error["exit_code"] == code
    assert error["what"] in lines[0]


def damage(attempt: Callable[[], object], where: str = "") -> str:
    """What is said of damage that an attempt meets: a short line, with the place."""
    with pytest.raises(Damaged) as caught:
        attempt()
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 700
    assert where in text
    assert caught.value.exit_code == 3
    return text
