"""The program: its commands, and how a command line that cannot be read ends."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from streamvault.cli import (
    cat,
    check,
    compact,
    convert,
    demo,
    export,
    get,
    handoff,
    hold,
    import_,
    ls,
    queue_,
    release,
    request_restore,
    rotate,
    show,
    warm,
    work,
)
from streamvault.cli.errors import INTERRUPTED, misuse
from streamvault.cli.output import Results, open_standard_streams, tell
from streamvault.cli.running import finish, terminate_as_interrupt

__all__ = ["app", "run_app"]

PROGRAM = "streamvault"

app = typer.Typer(
    name=PROGRAM,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # plain help: rich takes longer to import than the rest of the command line
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from common.version import VERSION

        typer.echo(f"{PROGRAM} {VERSION}")
        raise typer.Exit


@app.callback()
def program(
    _version_wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Archive Pravega streams to S3 and restore them: every event, once, in order, under the same event pointer."""


app.command("export")(export.export)
app.command("import")(import_.import_)
app.command("ls")(ls.ls)
app.command("show")(show.show)
app.command("check")(check.check)
app.command("get")(get.get)
app.command("cat")(cat.cat)
app.command("convert")(convert.convert)
app.command("handoff")(handoff.handoff)
app.command("compact")(compact.compact)
app.command("rotate")(rotate.rotate)
app.command("hold")(hold.hold)
app.command("release")(release.release)
app.command("request-restore")(request_restore.request_restore)
app.command("work")(work.work)
app.command("queue")(queue_.queue)
app.command("warm")(warm.warm)
app.command("demo")(demo.demo)


def run_app(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code; nothing is raised and no traceback shown.

    Args:
        arguments: without the program's name; None takes those of the process.
    """
    if arguments is None:
        arguments = sys.argv[1:]
    open_standard_streams()
    with terminate_as_interrupt():
        try:
            code = typer.main.get_command(app).main(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        except TyperException as error:
            return _misused(error, arguments)
        except (Abort, KeyboardInterrupt):  # before the command itself has begun
            tell(f"{PROGRAM}: interrupted")
            return INTERRUPTED
    return code if isinstance(code, int) else 0


def _misused(error: TyperException, arguments: list[str]) -> int:
    context = getattr(error, "ctx", None)
    if not arguments and context is not None:
        sys.stderr.write(context.get_help() + "\n")
        return error.exit_code or 2
    end = misuse(error.format_message(), context.command_path if context is not None else PROGRAM)
    with Results() as results:
        return finish(results, end, as_json="--json" in arguments)
