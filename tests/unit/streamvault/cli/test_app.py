"""The command line as a user's shell sees it."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import streamvault.cli as cli_package
from streamvault.cli import main
from streamvault.cli.app import COMMANDS as APP_COMMANDS
from streamvault.cli.app import EPILOG, load_command
from streamvault.common.errors import Problem
from streamvault.streamstore.cuts import load_cut
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamConfiguration, StreamName

COMMANDS = ("export", "import", "follow", "rotate", "compact", "convert", "hold", "release", "delete", "warm", "ls",
            "show", "timeline", "status", "report", "check", "get", "cat", "serve", "handoff", "ddl", "copy", "append",
            "join", "replicate", "promote", "move", "translate", "streams", "sweep", "request-restore", "work", "queue",
            "demo", "doctor", "plan")  # fmt: skip
READING = {"translate", "streams", "ls", "show", "timeline", "doctor", "status", "report", "check", "get", "cat",
           "plan", "ddl", "follow", "queue", "serve", "demo"}  # fmt: skip
COMPUTING = {"export", "import", "copy", "append", "join", "replicate", "promote", "move", "check", "convert",
             "handoff", "compact", "rotate", "follow", "work", "demo"}  # fmt: skip
CUT = '{"a/b/0.#epoch.0": 8}'


def streamvault(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streamvault", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100", **environment},
        timeout=60,
    )


def test_help_names_every_command() -> None:
    shown = streamvault("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert tuple(re.findall(r"^  ([a-z][a-z-]+)  ", shown.stdout, re.MULTILINE)) == COMMANDS


def test_no_arguments_show_the_help_as_wrong_usage() -> None:
    shown = streamvault()
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "Archive and restore:" in shown.stderr


@pytest.mark.parametrize("name", [*(name for name in COMMANDS if name != "queue"), "queue show", "queue skip"])
def test_each_command_has_help(name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name.split(), "--help"]) == 0
    text, err = capfd.readouterr()
    assert err == ""
    assert max(map(len, text.splitlines())) <= 80
    assert "..." not in text.partition("\n\n")[2], "a sentence is cut off"
    assert {"--json", "--log-level"} <= set(options := re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE))
    name, _, subcommand = name.partition(" ")
    assert ("--dry-run" in options) == (name not in READING | {"delete"})  # which only rehearses without --yes
    assert ("--master" in options) == (name in COMPUTING)
    assert " ".join(text.split()).endswith(EPILOG)
    assert re.findall(r"<(?:str|int|float|list\[)|\d[<>]=?x|x[<>]=?\d|\[required", text) == []  # Python's types, ranges
    assert subcommand or load_command(name).help.partition("\n\n")[0] == APP_COMMANDS[name]


def test_lists_of_commands_fit_80_columns() -> None:
    for command in ([], ["queue"]):
        shown = streamvault(*command, "--help", COLUMNS="80").stdout
        listed = re.findall(r"^  ([a-z][a-z-]+) {2,}(\S.*)$", shown.partition("Show this message")[2], re.MULTILINE)
        assert listed
        assert all(text.endswith(".") and "..." not in text for _, text in listed), shown


def test_version_is_that_of_the_package() -> None:
    shown = streamvault("--version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"streamvault {version('streamvault')}\n", "")


def test_own_options_come_before_shared_ones(capfd: pytest.CaptureFixture[str]) -> None:
    main(["import", "--help"])
    shown = re.findall(r"^  (--[a-z-]+)", capfd.readouterr().out, re.MULTILINE)
    places = [shown.index(option) for option in ("--skip-damaged", "--generation", "--from", "--window", "--master")]
    assert places == sorted(places)


def test_help_imports_nothing_heavy() -> None:
    script = """
import sys
from streamvault.common.errors import Problem
from streamvault.cli import main
assert main(["--help"]) == 0
heavy = {"pyspark", "pyarrow", "numpy", "pandas", "pydantic", "boto3", "obstore", "grpc", "rich", "moto"}
heavy |= {"streamvault.cli.options", "streamvault.cli.export", "exporter"}
print(*sorted(heavy & sys.modules.keys()), file=sys.stderr)
print(len(sys.modules), file=sys.stderr)
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found, modules = shown.stderr.splitlines()
    assert found == ""
    assert int(modules) < 400  # it was 197; each takes its time


WRONG = r"""
$ ls
Missing argument 'ROOT'. See streamvault ls --help.
$ ls ''
not a root URI: ''. A root is s3://BUCKET/PREFIX, file:///FOLDER or the absolute path of a folder.
$ append '' --into local:///x/a/b
not an archive URI: ''. An archive is ROOT/SCOPE/STREAM.
$ export local:///x/a/b
Missing argument 'ROOT'. See streamvault export --help.
$ fly
No such command 'fly'. See streamvault --help.
$ ls file:///x --loud
No such option: --loud. See streamvault ls --help.
$ ls file:///x more
Got unexpected extra argument(s) (more). See streamvault ls --help.
$ export x y --layout pages
Invalid value for '--layout': 'pages' is not one of 'events', 'chunks'. See streamvault export --help.
$ export x y --range-size 5Q
Invalid value for '--range-size': '5Q' is not a size. Examples: 64MiB, 1GiB
$ check x --read-data-subset 0%
Invalid value for '--read-data-subset': '0%' is not a percentage above 0% and up to 100%. Example: 10%
$ check x --read-data --read-data-subset 10%
--read-data and --read-data-subset are mutually exclusive. Give only one of them.
$ check x --seed 1
--seed requires --read-data-subset. Add --read-data-subset.
$ export x y --from no/such/file
--from cannot be read: no/such/file: No such file or directory. Give a file's name or the cut itself
$ import x y --to '{"a/b/0.#epoch.0": 1'
a stream cut is not JSON: --to:
$ import x y --to '{"a/b/0.#epoch.0": -2}'
an offset in the stream cut is not a non-negative integer
$ import x y --to '[]'
a stream cut is a JSON object
$ rotate x y --keep few
Invalid value for '--keep': it is not a whole number. See
$ plan --network fast
Invalid value for '--network': it is not a number. See
$ rotate x y --keep-for '3 years'
Invalid value for '--keep-for': '3 years' is not a duration. Examples: 90d, 2w, 36h, 1h30m, 30s.
$ rotate x y --keep-for 3m
Invalid value for '--keep-for': '3m' is 3 minutes. Write it twice if that is meant: '3m 3m'. There is no
$ follow x y --keep-for 0s
Invalid value for '--keep-for': '0s' is 0 seconds. Write it twice if that is meant: '0s 0s'.
$ rotate x y --keep-for '3m 4m'
Invalid value for '--keep-for': '3m 4m' is not a duration.
$ rotate x y --hold ''
Invalid value for '--hold': it is empty; omit the option, or give it a value.
$ import x y --from ''
Invalid value for '--from': it is empty; omit the option, or give it a value.
$ rotate x y --keep 0
--keep must be at least 1: 0
$ rotate local:///x/a/b file:///x --keep 1 --until 2026-01-01T00:00:00Z
--keep, --keep-for and --until are mutually exclusive. Give only one of them.
$ rotate local:///x/a/b file:///x --storage-class STANDARD_IA
this root has no storage classes: file:///x. Omit --storage-class.
$ export file:///x local:///x/a/b
not a stream's URI: 'file:///x'. It is a place for archives: are the arguments in the wrong order? Write
$ import local:///x/a/b file:///x/a/b
not an archive URI: 'local:///x/a/b'. An archive is ROOT/SCOPE/STREAM. It is a stream's URI: are the
$ status 127.0.0.1:9090
not a root URI: '127.0.0.1:9090'. If it is a Pravega cluster, write pravega://127.0.0.1:9090. A root is
$ status pravega://127.0.0.1:9090
a whole cluster has no status: pravega://127.0.0.1:9090. Give a scope, pravega://127.0.0.1:9090/SCOPE/;
$ export 127.0.0.1:9090/a/b file:///x
not a stream's URI: '127.0.0.1:9090/a/b'. The URI of a Pravega cluster begins with pravega://. Write
$ export local:///x/a/b file:///x --line ../x
--line is not valid: a line's name must be 1 to 64 letters, digits and hyphens: '../x'
$ hold file:///x/a/b 'a b'
a hold's name must be 1 to 64 letters, digits and hyphens: 'a b'
$ import file:///x/a/b local:///x/a/c --at noon
--at is not a time: 'noon'. Examples: 2026-01-31T18:00:00Z
$ import x y --to '{"a/b": 1}'
a key of the stream cut is not a segment name: --to:
"""
"""Wrong commands, and how the line begins that each prints."""


def empty_values() -> Iterator[tuple[list[str], str]]:
    """Each option of each command that takes a value, with an empty one."""
    for name in APP_COMMANDS:
        params = getattr(load_command(name), "params", [])
        arguments = ["x" for param in params if param.param_type_name == "argument" and param.required]
        for param in params:
            if param.param_type_name == "option" and not param.is_flag and not param.count and param.nargs == 1:
                yield [name, *arguments, param.opts[0], ""], f"Invalid value for '{param.opts[0]}'"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        *((shlex.split(words), line) for words, line in re.findall(r"^\$ (.*)\n(.*)$", WRONG, re.MULTILINE)),
        *empty_values(),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(arguments: list[str], line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"streamvault: {line}")
    assert err.count("\n") == 1

    assert main([*arguments, "--json"]) == 2
    out, again = capfd.readouterr()
    assert again == err
    told = json.loads(out)["error"]
    assert told["exit_code"] == 2
    assert err == f"streamvault: {Problem(told['what'], where=told['where'], todo=told['todo'])}\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("export {demo}/a/b {file}", "a file is in the place of a folder (file): file://{file}. Check the path."),
        ("export {demo}/a/b {file}/x", "a file is in the place of a folder (file): file://{file}/x. Check the path."),
        ("ls {file}", "it is a file, not a folder: file://{file}. Check the address."),
        ("export local://{file}/a/b {folder}", "a file is in the place of the store's folder: {file}/a/b. Check the"),
    ],
)
def test_a_file_where_a_folder_belongs_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    (tmp_path / "file").touch()
    LocalStore(tmp_path / "demo").create_stream_and_scope(StreamName("a", "b"), StreamConfiguration())
    places = {"demo": f"local://{tmp_path}/demo", "file": tmp_path / "file", "folder": tmp_path}
    assert main([*line.format(**places).split()]) in {1, 5}
    assert capfd.readouterr().err.startswith(f"streamvault: {said.format(**places)}")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("export", "x", "y"), "--range-size"),
        (("rotate", "x", "y"), "--range-size"),
        (("plan",), "--range-size"),
        (("handoff", "x"), "--target-size"),
    ],
)
def test_a_forgotten_unit_of_a_range_is_noticed(
    arguments: tuple[str, ...], option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMVAULT_SMALLEST_RANGE")
    shown = streamvault(*arguments, option, "64")
    todo = "A size without a unit is in bytes; 64MiB has one."
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr == f"streamvault: {option} must be at least 64KiB: 64. {todo}\n"


def test_cut_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "cut.json"
    file.write_text(CUT)
    assert load_cut(str(file), "--from") == load_cut(CUT, "--from") == {"a/b/0.#epoch.0": 8}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_commands_and_choices(shell: str) -> None:
    # a shell requests completions by these variables
    words = {"bash": "COMP_WORDS", "zsh": "_TYPER_COMPLETE_ARGS", "fish": "_TYPER_COMPLETE_ARGS"}[shell]
    ask = {"_STREAMVAULT_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    shown = streamvault(**ask, **{words: "streamvault ", "COMP_CWORD": "1"})
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in COMMANDS)
    shown = streamvault(**ask, **{words: "streamvault export a b --layout ", "COMP_CWORD": "5"})
    assert "events" in shown.stdout
    assert "chunks" in shown.stdout


def test_completion_script_is_printed() -> None:
    shown = streamvault("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert shown.returncode == 0
    assert "_STREAMVAULT_COMPLETE=complete_bash" in shown.stdout


def test_closed_standard_streams_are_no_error() -> None:
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        shown = subprocess.run(
            ["sh", "-c", f"'{sys.executable}' -m streamvault check x --seed 1 --json {closed}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 2
        assert "Traceback" not in shown.stderr


INTERRUPTED = """
import sys
from streamvault.cli import main

class Interrupting:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
sys.exit(main(["ls", "file:///"]))
"""


@pytest.mark.parametrize("module", ["typer", "streamvault.cli.ls", "streamvault.manifests.verbs.show"])
def test_interrupt_while_the_program_is_loaded_is_one_line(module: str) -> None:
    shown = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout, shown.stderr) == (130, "", "streamvault: interrupted\n")


def test_what_an_interrupt_leaves_half_made_says_nothing() -> None:
    script = """
import sys
from streamvault.cli import main

class HalfMade:
    def __del__(self):
        self._state

sys.argv[1:] = ["--version"]
main()
HalfMade()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_interrupt_before_the_command_begins_is_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for where in (
        "app.typer.main.get_command",
        "app.TyperGroup.make_context",
        "app.load_command",
        "options.command_of",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"streamvault.cli.{where}", interrupted)
            assert main(["status", "file:///"]) == 130, where
            assert capfd.readouterr() == ("", "streamvault: interrupted\n"), where


BARS = """
import time
from streamvault.cli.progress import watching

with watching() as progress:
    progress.begin("exporting [bold]", 10 * 1024**2, 1024**2)
    for _ in range(9):
        progress.advance(1000, 1024**2)
        time.sleep(0.05)
    progress.say("something to say")
    progress.warn("something to know")
    progress.end()
"""


def _at_a_terminal(script: str) -> str:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", COLUMNS="140")
        os.execv(sys.executable, [sys.executable, "-c", script])
    seen = bytearray()
    try:
        while chunk := os.read(terminal, 65536):
            seen += chunk
    except OSError:
        pass  # how Linux reports that the other side is closed
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())


def test_bars_show_events_bytes_rate_and_time_left_at_a_terminal() -> None:
    seen = _at_a_terminal(BARS)
    assert "exporting [bold]" in seen
    assert "9,000 events" in seen
    assert "10.0/10.0 MiB" in seen
    assert "100 %" in seen
    assert re.search(r"[0-9.]+ [kMG]?i?B/s", seen)
    assert "something to say\r\n" in seen
    assert "warning: something to know\r\n" in seen


def test_no_bars_are_shown_without_a_terminal() -> None:
    shown = subprocess.run([sys.executable, "-c", BARS], capture_output=True, text=True, check=True)
    assert (shown.stdout, shown.stderr) == ("", "warning: something to know\n")


def test_misspelt_command_is_told_which_are_alike(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["exprot", "a", "b"]) == 2
    line = "No such command 'exprot' (did you mean export or promote?). See streamvault --help."
    assert capfd.readouterr().err == f"streamvault: {line}\n"
    assert main(["qqq"]) == 2
    assert "did you mean" not in capfd.readouterr().err


def test_folder_is_given_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A relative one too: it is made a URI before it can be recorded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a vault").mkdir()
    for root in ("./a vault", "a vault/..", f"{tmp_path}/a vault", "~/a vault"):
        code = main(["ls", root])
        out = capfd.readouterr().out
        if root.startswith("a"):
            assert code == 2, "it may as well be a bucket"
        else:
            assert (code, out) == (0, f"no archives below file://{tmp_path}/a%20vault\n")
    cluster = f"local://{tmp_path}/streams"
    for command in (
        ["append", "./a vault/scope/stream", "--into", f"{cluster}/scope/target"],
        ["join", "./a vault/scope/stream", "--into", f"{cluster}/scope/target"],
        ["replicate", "./a vault/scope/stream", f"{cluster}/scope/target"],
        ["translate", "./a vault/scope/stream", f"{cluster}/scope/target", "scope/stream/0.#epoch.0:0-9"],
    ):
        assert main(command) == 5, "the path was taken"
        capfd.readouterr()
    assert main(["show", "./a vault/scope/stream"]) == 5
    assert f"no archive: file://{tmp_path}/a%20vault/scope/stream." in capfd.readouterr().err
    assert main(["check", "./a vault/scope/"]) == 2
    assert f"nothing matches: file://{tmp_path}/a%20vault/scope/." in capfd.readouterr().err


def test_each_command_imports_what_it_runs_within_its_function() -> None:
    """An editor finds the way from a command to its verb, and help texts do not wait for the import."""
    seen: set[str] = set()
    for file in Path(*cli_package.__path__).glob("*.py"):
        functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
        for function in functions:
            nodes = list(ast.walk(function))
            imported = {
                name.asname or name.name for one in nodes if isinstance(one, ast.ImportFrom) for name in one.names
            }
            for node in nodes:
                if isinstance(node, ast.Call) and ast.unparse(node.func) in {"command.call", "command.run"}:
                    called = {one.id for one in ast.walk(node.args[0]) if isinstance(one, ast.Name)}
                    assert called & imported, f"{file.name}: {function.name}"
                    seen.add(f"{file.stem}.{function.name}")
    assert len(seen) == len(APP_COMMANDS) + 3, "the command queue is four"
