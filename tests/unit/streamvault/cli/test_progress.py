"""Which form progress has on standard error."""

from __future__ import annotations

import pytest

from streamvault.cli.progress import watching


def test_quiet_leaves_out_notes_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(quiet=True) as progress:
        progress.note("generation 3")
        progress.warn("a gap")
    assert capsys.readouterr().err == ""
