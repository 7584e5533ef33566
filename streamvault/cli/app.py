"""The program: its commands, each imported when it is used, and errors in the command line."""

from __future__ import annotations

import re
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Abort, TyperException

from streamvault.cli import INTERRUPTED
from streamvault.cli.output import Results, log_unraisable, open_standard_streams, print_stderr
from streamvault.cli.running import EXIT_CODES, finish, terminate_as_interrupt, usage_error
from streamvault.cli.start import without_collector
from streamvault.common.errors import Failed

PROGRAM = "streamvault"

GROUPS = {
    "Archive and restore": {
        "export": "Archive a stream, or the events since the last export.",
        "import": "Restore an archive into a new stream.",
        "follow": "Archive a stream as it grows.",
        "rotate": "Archive, read back, expire old generations, truncate.",
        "compact": "Merge small adjacent generations.",
        "convert": "Copy an archive to another root in another layout.",
        "hold": "Keep a generation and those after it from expiring.",
        "release": "Release a hold, so that the generations it kept may expire.",
        "delete": "Delete an archive.",
        "warm": "Restore an archive's objects from an archive class of S3.",
    },
    "Read and inspect archives": {
        "ls": "List the archives and tables below a root.",
        "show": "Print the manifest of an archive's newest generation.",
        "timeline": "List an archive's generations, holds and checks.",
        "status": "Show how old and how complete archives are.",
        "report": "Report on an archive, a root or a stream as a web page.",
        "check": "Verify that an archive is complete and intact.",
        "get": "Write one event's payload to standard output.",
        "cat": "Write an archive's events to standard output.",
        "serve": "Serve archives to Pravega clients as if they were streams.",
    },
    "Tables": {
        "handoff": "Write an archive or a stream as a table for SQL engines.",
        "ddl": "Print the statements that register a table.",
    },
    "Copy and manage streams": {
        "copy": "Copy a stream, or a part of it, into a new stream.",
        "append": "Append streams and archives to a stream, all at once.",
        "join": "Join streams and archives into a new stream.",
        "replicate": "Keep a replica of a stream or an archive up to date.",
        "promote": "Turn a replica into an ordinary stream.",
        "move": "Move a stream to another name or cluster.",
        "translate": "Translate cuts and pointers for a restored stream.",
        "streams": "List the streams of a scope or a cluster.",
        "sweep": "Delete what killed runs have left behind in a scope.",
    },
    "Restores on request": {
        "request-restore": "Queue a restore for a worker.",
        "work": "Process the requests of a queue until interrupted.",
        "queue": "Show a queue of requests; retry, drop or skip some.",
    },
    "Try and plan": {
        "demo": "Demonstrate the commands on a generated stream.",
        "doctor": "Check whether a stream can be archived from this machine.",
        "plan": "Estimate the cost, time and resources of an archive.",
    },
}
"""Commands as the help text lists them, each with the first sentence of its own help text."""

COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}

MODULES = {
    "convert": "export",
    "plan": "export",
    "append": "join",
    "promote": "replicate",
    "move": "copy",
    "translate": "replicate",
    "sweep": "streams",
    "timeline": "ls",
    "doctor": "status",
    "report": "status",
    "cat": "get",
    "ddl": "handoff",
    "compact": "rotate",
    "follow": "rotate",
    "release": "hold",
    "delete": "hold",
    "request_restore": "work",
    "warm": "check",
}
"""The modules of commands that have none of their own name."""

_NOISE = re.compile(r"  \[(?:required|x[<>]=?[^];]*|[^]<>]*[<>]=?x[^];]*)\]|; x[<>]=?[^];]*(?=\])")

EPILOG = (
    f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}. "
    "Options can also be set as STREAMVAULT_<OPTION>, except those that delete, truncate or seal."
)

SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    # plain help: rich takes longer to import than the rest of the command line
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "epilog": EPILOG,
}


class PlainCommand(TyperCommand):
    """Command whose help text shows arguments and options as they are written, without Python types and ranges."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """See the base class."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See the base class. With ``--config``, the file has the arguments, so that none may be given."""
        from_file = any(one == "--config" or one.startswith("--config=") for one in args)
        arguments = [one for one in self.params if one.param_type_name == "argument" and one.required]
        for one in arguments if from_file else []:
            one.required = False
        try:
            rest = super().parse_args(ctx, args)
        finally:
            for one in arguments:
                one.required = True
        if from_file and any(ctx.params.get(one.name) is not None for one in arguments):
            raise typer.BadParameter("--config takes the place of the arguments; give one or the other", ctx)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """See the base class."""
        for title, rows in help_records(self, ctx).items():
            with formatter.section(title):
                formatter.write_dl(rows)


def help_records(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return a command's arguments and options, each with its help text, below their titles."""
    records: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for one in command.get_params(ctx):
        record = one.get_help_record(ctx)
        if record is None:
            continue
        if one.param_type_name == "argument":
            records["Arguments"].append((record[0].split(" <")[0], _NOISE.sub("", record[1])))
        else:
            records["Options"].append((record[0], _NOISE.sub("", record[1])))
    return {title: rows for title, rows in records.items() if rows}


def load_command(name: str) -> Any:
    """Import a command and return it as a typer command."""
    function = _function(name)
    with without_collector():
        from streamvault.cli.options import as_command, take_pairs

        module = import_module(f"streamvault.cli.{MODULES.get(function, function)}")
    sub = typer.Typer(name=name, add_completion=False, **SETTINGS)
    several = getattr(module, "SUBCOMMANDS", None)
    if several is not None:
        sub.callback(help=COMMANDS[name])(lambda: None)
    for one, run in (several or {name: getattr(module, function)}).items():
        sub.command(one, cls=PlainCommand, epilog=EPILOG)(as_command(run))
    command = typer.main.get_command(sub)
    command.name = name
    if several is None:
        take_pairs(getattr(module, function), command)
    return command


def _function(name: str) -> str:
    plain = name.replace("-", "_")
    return f"{plain}_" if plain in {"import", "queue"} else plain


class Commands(TyperGroup):
    """Group of all commands; prints the list of commands without importing any."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See the base class. Names the commands that are spelt alike, of those that are not imported too."""
        try:
            return super().resolve_command(ctx, args)
        except TyperException as error:
            if similar := get_close_matches(args[0], COMMANDS):
                error.message = f"No such command {args[0]!r} (did you mean {' or '.join(similar)}?)"
            raise

    def make_context(self, *args: Any, **others: Any) -> Any:
        """See the base class. An interrupt is an `Abort`: typer would turn it into an exit code without a message."""
        try:
            return super().make_context(*args, **others)
        except KeyboardInterrupt:
            raise Abort from None

    def invoke(self, ctx: Any) -> Any:
        """See the base class, and `make_context`."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Abort from None

    def list_commands(self, _ctx: Any) -> list[str]:
        """See the base class."""
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """See the base class."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = load_command(cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """See the base class."""
        width = max(map(len, COMMANDS))  # of one column for all groups
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in commands.items()])


app = typer.Typer(name=PROGRAM, cls=Commands, **SETTINGS)


def _version(requested: bool) -> None:
    if requested:
        from streamvault.common.version import VERSION

        typer.echo(f"{PROGRAM} {VERSION}")
        raise typer.Exit


@app.callback()
def program(
    _version_requested: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Archive Pravega streams to S3 and restore them: every event, once, in order, under the same event pointer.

    The documentation, the examples and the format's specification are in share/doc/streamvault of the environment.
    """


def run_app(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code; raise nothing and show no traceback.

    Args:
        arguments: without the program's name; None takes those of the process.
    """
    if arguments is None:
        arguments = sys.argv[1:]
        sys.unraisablehook = log_unraisable
    open_standard_streams()
    with terminate_as_interrupt():
        try:
            code = typer.main.get_command(app).main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        except TyperException as error:
            return _usage_error(error, arguments)
        except (Abort, KeyboardInterrupt):  # before the command itself has started
            print_stderr(f"{PROGRAM}: interrupted")
            return INTERRUPTED
        except OSError as error:  # of a help text: a command has dealt with its own
            print_stderr(f"{PROGRAM}: the text cannot be written to standard output: {error.strerror or error}")
            return Failed.exit_code
    return code if isinstance(code, int) else 0


def _usage_error(error: TyperException, arguments: list[str]) -> int:
    context = getattr(error, "ctx", None)
    if context is not None and (not arguments or type(error).__name__ == "NoArgsIsHelpError"):
        sys.stderr.write(context.get_help() + "\n")
        return error.exit_code or 2
    end = usage_error(error.format_message(), context.command_path if context is not None else PROGRAM)
    with Results() as results:
        return finish(results, end, as_json="--json" in arguments)
