"""Every way in which a command can end: its line, its JSON, its exit code.

Paths, files and standard streams as a shell may give them: one line, and the documented exit code.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, PlainSerializer

from streamvault.cli import main
from streamvault.cli.output import Results
from streamvault.cli.running import Command, LogLevel, _watch, ending_in_time
from streamvault.cli.start import without_collector
from streamvault.common.errors import Conflict, Damaged, Failed, Problem, Usage
from streamvault.common.options import Watched, verb
from streamvault.common.progress import Progress
from streamvault.exporter.reports import ExportReport
from streamvault.manifests.verbs import show
from streamvault.streamstore.errors import InvalidCut, NoSuchStream, StreamStoreUnavailable

REPORT = ExportReport(archive="s3://bucket/sales/orders", generation=2, events=3, warnings=("told again", "once"))


def test_garbage_is_collected_while_a_verb_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector rests only while modules are imported."""
    seen: list[bool] = []
    monkeypatch.setattr(show, "list_archives", lambda *_, **__: seen.append(gc.isenabled()))
    assert main(["ls", "file:///tmp"]) == 1
    assert seen == [True]


def test_garbage_is_collected_after_an_import_that_fails() -> None:
    with suppress(ImportError), without_collector():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()


def command(work: Callable[[Progress], Any], *, as_json: bool = False, debug: bool = False, code: int = 0) -> int:
    running = Command(as_json, LogLevel.DEBUG if debug else LogLevel.WARNING)
    with running.started() as begun:
        begun.resumable = True
        value = work(begun.progress)
        begun.exit_code = code
        begun.write({"value": value}, lambda results: results.line(f"result: {value}"))
    return begun.exit_code


def test_result_in_json_is_also_logged_as_text(capfd: pytest.CaptureFixture[str]) -> None:
    """Only if log lines of level info are written; an event's payload never is."""
    for level, logged in ((LogLevel.INFO, True), (LogLevel.WARNING, False)):
        with Command(as_json=True, log_level=level).started() as begun:
            begun.write({"value": 7}, lambda results: results.fields({"value": "7", "of": "9"}))
            begun.write({"value": 8}, lambda results: results.raw(b"payload"))
        out, err = capfd.readouterr()
        assert out == '{"value": 7}\n{"value": 8}\n'
        assert (" INFO streamvault: value  7\n" in err, " INFO streamvault: of     9\n" in err) == (logged, logged)
        assert "payload" not in err


def failing(error: BaseException) -> Callable[[Progress], Any]:
    def work(_progress: Progress) -> Any:
        raise error

    return work


AGAIN = "Run again with --log-level debug for the traceback."
NO_ANSWER = StreamStoreUnavailable("the controller does not answer", where="127.0.0.1:1")
FOREIGN = InvalidCut("a stream cut names a segment of another stream", where="a/c/0.#epoch.0")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (Failed("no such stream", where="a/b", todo="Create it."), 1, "no such stream: a/b. Create it."),
        (NO_ANSWER, 1, "the controller does not answer: 127.0.0.1:1"),
        (Usage("not a URI", where="x"), 2, "not a URI: x"),
        (NoSuchStream("no such stream", where="a/b"), 5, "no such stream: a/b"),
        (FOREIGN, 2, "a stream cut names a segment of another stream: a/c/0.#epoch.0"),
        (Damaged("an object is missing", where="events/0"), 3, "an object is missing: events/0"),
        (Conflict("the target is not empty", where="a/b"), 4, "the target is not empty: a/b"),
        (KeyboardInterrupt(), 130, "interrupted; run the same command again to resume"),
        (ValueError("odd\nthing"), 1, f"internal error: ValueError: odd thing. {AGAIN}"),
        (NotImplementedError(), 1, f"internal error: NotImplementedError. {AGAIN}"),
        (BrokenPipeError(32, "Broken"), 1, f"internal error: BrokenPipeError: [Errno 32] Broken. {AGAIN}"),
    ],
)
def test_error_is_one_line_and_one_code(
    error: BaseException, code: int, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(failing(error)) == code
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"streamvault: {line}\n")

    assert command(failing(error), as_json=True) == code
    out, err = capfd.readouterr()
    assert err == f"streamvault: {line}\n"
    told = json.loads(out)
    assert set(told) == {"error"}
    assert set(told["error"]) == {"what", "where", "todo", "exit_code", "retriable"}
    assert told["error"]["exit_code"] == code
    if isinstance(error, Problem):
        said = {"what": error.what, "where": error.where, "todo": error.todo}
        assert told["error"] == {**said, "exit_code": code, "retriable": error.retriable}


def test_library_that_stumbles_over_an_interrupt_was_interrupted(capfd: pytest.CaptureFixture[str]) -> None:
    def stumble(_: Progress) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()

    assert command(stumble) == 130
    assert capfd.readouterr().err == "streamvault: interrupted; run the same command again to resume\n"


def test_interrupt_that_pydantic_makes_a_text_of_is_one(capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt(_: int) -> int:
        raise KeyboardInterrupt

    class File(BaseModel):
        size: Annotated[int, PlainSerializer(interrupt)]

    assert command(lambda _: File(size=1).model_dump(mode="json")) == 130
    assert capfd.readouterr().err == "streamvault: interrupted; run the same command again to resume\n"


def test_only_debug_shows_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    assert command(failing(ValueError("odd")), debug=True) == 1
    err = capfd.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.endswith(
        "streamvault: internal error: ValueError: odd. Run again with --log-level debug for the traceback.\n"
    )


def test_control_characters_in_messages_are_escaped(capfd: pytest.CaptureFixture[str]) -> None:
    assert command(failing(Damaged("a hostile name", where="\x1b[2J\x07/bucket\u202e"))) == 3
    assert capfd.readouterr().err == "streamvault: a hostile name: \\x1b[2J\\x07/bucket\\u202e\n"


@pytest.mark.parametrize(("as_json", "expected"), [(False, "result: 7\n"), (True, '{"value": 7}\n')])
def test_only_the_result_reaches_standard_output(
    as_json: bool, expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def work(_progress: Progress) -> int:
        print("a library talks")
        sys.stdout.flush()
        os.write(1, b"a library writes to descriptor 1\n")
        subprocess.run([sys.executable, "-c", "print('a child process talks')"], check=True)
        return 7

    assert command(work, as_json=as_json, code=3) == 3
    out, err = capfd.readouterr()
    assert out == expected
    assert err.splitlines() == ["a library talks", "a library writes to descriptor 1", "a child process talks"]
    print("after the command")
    assert capfd.readouterr().out == "after the command\n"


def test_repeated_warning_is_printed_once_and_the_whole_process_is_timed(capfd: pytest.CaptureFixture[str]) -> None:
    @verb(Watched)
    def export(_options: Watched, progress: Progress) -> ExportReport:
        progress.begin("exporting", 100)
        progress.warn("told again")
        progress.advance(1, 100)
        progress.say("not worth a line here")
        progress.end()
        return REPORT

    with Command(as_json=True).started() as begun:
        begun.call(export, Watched(), show=lambda *_: None)
    assert begun.exit_code == 0
    out, err = capfd.readouterr()
    assert err == "warning: told again\nwarning: once\n"
    assert json.loads(out)["total_seconds"] > 0


def test_info_has_a_line_for_each_phase(capfd: pytest.CaptureFixture[str]) -> None:
    with Command(log_level=LogLevel.INFO).started() as begun:
        begun.progress.begin("exporting", 3 * 1024**2, 1024**2)
        begun.progress.say("went on with generation 3")
    assert begun.exit_code == 0
    err = capfd.readouterr().err
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO streamvault: exporting: 3.0 MiB, 1.0 MiB done before\n", err
    )
    assert "went on with generation 3" in err


def test_a_log_file_gets_log_lines_and_what_standard_error_gets(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "log"
    for _ in range(2):
        with Command(log_file=str(file)).started() as begun:
            begun.progress.begin("exporting", 3)
            begun.progress.warn("a gap")
            raise Failed("no such thing")
    assert capfd.readouterr().err == "warning: a gap\nstreamvault: no such thing\n" * 2
    lines = file.read_text().splitlines()
    assert len(lines) == 6, "it is appended to"
    assert [line.split(" streamvault: ", 1)[1] for line in lines[:3]] == [
        "exporting: 3 B",
        "warning: a gap",
        "streamvault: no such thing",
    ]
    assert main(["ls", "file:///", "--log-file", str(tmp_path / "none" / "log")]) == 1
    assert "the log file cannot be written" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ([], "warning"),
        (["-v"], "info"),
        (["-vv"], "debug"),
        (["-v", "--log-level", "debug"], "debug"),
        (["-q"], "error"),
        (["-q", "--log-level", "info"], "info"),
    ],
)
def test_what_is_logged(
    given: list[str], level: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("streamvault.cli.running.configure_logs", lambda level, _file: seen.append(level))
    assert main(["ls", tmp_path.as_uri(), *given]) in {0, 5}
    assert seen == [level]
    capfd.readouterr()


def test_quiet_and_verbose_exclude_each_other(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "file:///", "-q", "-v"]) == 2
    assert "are mutually exclusive" in capfd.readouterr().err
    assert main(["ls", "file:///", "--progress-every", "often"]) == 2
    assert "'often' is not a duration" in capfd.readouterr().err


def test_time_is_counted_from_the_process_start() -> None:
    script = textwrap.dedent(
        """
        import sys, time
        time.sleep(0.7)
        from streamvault.cli.start import command_seconds
        print(command_seconds())
        """
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert 0.7 <= float(shown.stdout) < 100


SLEEPER = """
import sys, time
from streamvault.cli.running import Command, terminate_as_interrupt

with terminate_as_interrupt(), Command(as_json=True).started() as command:
    command.resumable = True
    print("ready", file=sys.stderr, flush=True)
    time.sleep(60)
sys.exit(command.exit_code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_interrupts_the_command(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "streamvault: interrupted; run the same command again to resume\n"
    assert json.loads(out)["error"]["exit_code"] == 130


DROPPED = """
import sys, time
from streamvault.cli.running import Command, terminate_as_interrupt

class Dropped:
    def __del__(self):
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)

with terminate_as_interrupt(), Command().started():
    Dropped()
    time.sleep(60)
"""
STUCK = """
import signal, sys, threading, time
from streamvault.cli import running

running.ENDS_SECONDS = 0.5
with running.terminate_as_interrupt(), running.Command().started():
    try:
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)
    finally:
        threading.Event().wait()
"""
AT_THE_END = """
import sys, threading, time
from streamvault import cli

class Waiting:
    def __del__(self):
        threading.Event().wait()

kept = Waiting()

def main(arguments):
    try:
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("streamvault: interrupted", file=sys.stderr)
        return 130

cli.main = main
sys.exit(cli.process())
"""


@pytest.mark.parametrize("script", [DROPPED, STUCK, AT_THE_END], ids=["destructor", "stuck", "end of Python"])
def test_interrupted_command_ends_in_any_case(script: str) -> None:
    """Python would ignore the interrupt, or the command, or Python at its end, waits for a thread that never ends."""
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "streamvault: interrupted\n")


def test_table_is_not_folded_when_piped(capfd: pytest.CaptureFixture[str]) -> None:
    with Results() as results:
        results.table({"NAME": False, "EVENTS": True}, [("s3://" + "b" * 300, "1"), ("[red]x[/red]\n", "10,000")])
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "EVENTS"]
    assert lines[2].split() == ["s3://" + "b" * 300, "1"]
    assert lines[3].split() == ["[red]x[/red]\\n", "10,000"]
    assert all(line == line.rstrip() for line in lines)


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
