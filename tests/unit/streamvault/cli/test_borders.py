"""Paths, files and standard streams as a shell may give them: one line, and the documented exit code."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamvault.cli import main
from streamvault.cli.running import Command, _watch, ending_in_time

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="needs /dev/full")


TALKER = """
import sys
from streamvault.cli.running import Command

with Command().started() as command:
    for _ in range(1000):
        command.results.line("x" * 1000)
sys.exit(command.exit_code)
"""


def test_closed_pipe_of_the_output_is_no_error() -> None:
    shown = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{sys.executable}' -c '{TALKER}' | head -n 1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "x" * 1000 + "\n", "")


NOWHERE = "no such folder: file:///nowhere/at/all. Check the address."
UNWRITTEN = "the {} cannot be written to standard output: No space left on device"


@needs_full
@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        *(
            (f"import sys; from streamvault.cli import main; sys.exit(main({words}))", code, said)
            for words, code, said in (
                (["--help"], 1, [UNWRITTEN.format("text")]),
                (["--version"], 1, [UNWRITTEN.format("text")]),
                (["check", "--help"], 1, [UNWRITTEN.format("text")]),
                (["ls", "/nowhere/at/all", "--json"], 5, [NOWHERE, UNWRITTEN.format("result")]),
                (["ls", "FOLDER", "--json"], 1, [UNWRITTEN.format("result")]),
            )
        ),
        (TALKER, 1, [UNWRITTEN.format("result")]),
    ],
    ids=["help", "version", "a command's help", "error", "result", "much"],
)
def test_full_disk_under_standard_output(program: str, code: int, said: list[str], tmp_path: Path) -> None:
    words = [sys.executable, "-c", program.replace("FOLDER", str(tmp_path))]
    with FULL.open("w") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == code
    assert ended.stderr.splitlines() == [f"streamvault: {line}" for line in said], "nothing is said twice"


@needs_full
def test_log_file_on_a_full_disk_is_said_once_and_the_command_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    with Command(log_file=str(FULL)).started() as begun:
        begun.progress.begin("exporting", 3)
        begun.progress.warn("a gap")
        begun.progress.warn("another gap")
    assert begun.exit_code == 0
    assert capfd.readouterr().err.splitlines() == [
        "warning: the log file cannot be written: /dev/full: No space left on device",
        "warning: a gap",
        "warning: another gap",
    ]


def test_path_that_is_no_text_is_a_path(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A name in another encoding, which Python holds as surrogates."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/v\xff\xc3\xa4")
    assert main(["ls", folder]) == 5
    uri = f"file://{tmp_path}/v%FF%C3%A4"
    assert capfd.readouterr().err == f"streamvault: no such folder: {uri}. Check the address.\n"
    Path(folder).mkdir()
    for root in (folder, uri, f"file://{folder}"):
        assert main(["ls", root]) == 0, root
        assert capfd.readouterr().out == f"no archives below {uri if root != f'file://{folder}' else plain(root)}\n"


def plain(text: str) -> str:
    return text.replace("\udcff", r"\udcff")


def test_tilde_is_the_home_folder_where_the_shell_did_not_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    (home / "vault").mkdir()
    assert main(["status", "~/vault", "--metrics", "~/m.prom", "--log-file", "~/l.log"]) == 0
    assert sorted(each.name for each in home.iterdir()) == ["l.log", "m.prom", "vault"]
    assert list(here.iterdir()) == []
    assert main(["ls", "~"]) == 0
    assert main(["ls", "~nobody/vault"]) == 2
    capfd.readouterr()


def test_dots_are_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vault").mkdir()
    monkeypatch.chdir(tmp_path / "vault")
    for text, folder in ((".", "vault"), ("..", ""), ("../vault", "vault"), ("./..", "")):
        assert main(["ls", text]) == 0
        assert capfd.readouterr().out == f"no archives below file://{tmp_path / folder}\n"


@pytest.mark.parametrize("has_started", [True, False])
def test_interrupt_while_the_watch_begins_leaves_nothing(has_started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if has_started:
            start(thread)
        raise KeyboardInterrupt

    def never() -> int:
        raise AssertionError

    before = signal.set_wakeup_fd(-1)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ending_in_time(never).__enter__()
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.set_wakeup_fd(before)
    assert "interrupts" not in {thread.name for thread in threading.enumerate()}
    closed = socket.socket()
    closed.close()
    _watch(closed, never)
