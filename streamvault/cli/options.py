"""Arguments and options of the commands: common ones, and those made from the verbs' options classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, get_type_hints

import typer

from streamvault.cli.output import Results, check_log_file
from streamvault.cli.progress import LINE_SECONDS
from streamvault.cli.running import Command, LogLevel, command_error, finish
from streamvault.cli.start import without_collector
from streamvault.common.errors import Problem, Usage
from streamvault.common.options import CommandLine, Options, command_line, expanded, keyword_parameter, variable_of
from streamvault.common.units import duration_text, parse_duration


def option(name: str, help_text: str, *, short: str = "", environment: bool = True, **others: Any) -> Any:
    """Declare a command-line option.

    Args:
        name: the option's name, with dashes.
        short: a second name of one letter, with its dash; empty for none.
        help_text: text for ``--help``.
        environment: whether ``STREAMVAULT_<NAME>`` also sets it.
        others: other arguments of `typer.Option`.
    """
    variable = variable_of(name) if environment else None
    return typer.Option(
        name,
        *([short] if short else []),
        help=help_text,
        envvar=variable,
        show_envvar=False,
        callback=_not_empty,
        **others,
    )


def argument(metavar: str, help_text: str, **others: Any) -> Any:
    """Declare an argument of a command line; ``others`` are arguments of `typer.Argument`."""
    return typer.Argument(metavar=metavar, help=help_text, show_default=False, **others)


def parsing(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser for `option`; the message of a ValueError becomes that of the error."""

    def parser(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parser


def parse_place(text: str) -> tuple[str, int]:
    """Parse ``PORT`` or ``HOST:PORT``; without a host, only this machine can ask.

    Raises:
        ValueError: it is neither.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ValueError(f"{text!r} is not PORT or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def folder_as_uri(text: Any) -> Any:
    """Return a folder's path as a URI: what a command records or queues means the same in any working directory.

    A slash at the end stays: it may name a scope. Of a list, each text is converted; None, "" and other texts stay.
    """
    if isinstance(text, list):
        return [folder_as_uri(one) for one in text]
    if not text or not f"{text}/".startswith(("/", "./", "../", "~/")):
        return text
    from streamvault.objectstore.uri import folder_uri

    return folder_uri(os.path.abspath(os.path.expanduser(text)) + "/" * (text[-1] == "/"))  # noqa: PTH100, PTH111


def _not_empty(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """Reject an empty text: a script's variable without a value must not turn off a hold, a queue or a fingerprint."""
    source = context.get_parameter_source(parameter.name or "")
    if (value == "" or (isinstance(value, list) and "" in value)) and source and source.name == "COMMANDLINE":
        raise typer.BadParameter("it is empty; omit the option, or give it a value")
    return value


_STREAM = "pravega://HOST:PORT/SCOPE/STREAM, pravega+tls://… or local:///FOLDER/SCOPE/STREAM"

_SCOPE = "With / or a quoted pattern in place of the last name: all matching streams of the scope."
_TARGET = "The stream to create, or the scope if a scope is given."

SourceArgument = Annotated[str, argument("SOURCE", f"The stream to read: {_STREAM}. {_SCOPE}")]
StreamArgument = Annotated[str, argument("STREAM", f"The stream to archive: {_STREAM}. {_SCOPE}")]
NewStreamArgument = Annotated[str, argument("STREAM", f"{_TARGET} {_STREAM}.")]
TargetArgument = Annotated[
    str, argument("TARGET", f"{_TARGET} If it is in another cluster, set PRAVEGA_TARGET_USERNAME and so on.")
]
StoreArgument = Annotated[
    str,
    argument(
        "CLUSTER|SCOPE/", "pravega://HOST:PORT or local:///FOLDER, or a scope of it: the same followed by /SCOPE/."
    ),
]
ScopeArgument = Annotated[str, argument("SCOPE/", "pravega://HOST:PORT/SCOPE/ or local:///FOLDER/SCOPE/.")]
QueueArgument = Annotated[str, argument("QUEUE", "A queue of requests, as a stream's URI.")]
RootArgument = Annotated[
    str, argument("ROOT", "s3://BUCKET/PREFIX, or a folder's path or URI.", callback=folder_as_uri)
]
ArchiveArgument = Annotated[
    str, argument("ARCHIVE", "ROOT/SCOPE/STREAM, as `export` and `ls` print it.", callback=folder_as_uri)
]
TableSource = Annotated[
    str,
    argument(
        "ARCHIVE|STREAM",
        "An archive, ROOT/SCOPE/STREAM; or a stream, pravega://HOST:PORT/SCOPE/STREAM, with --root.",
        callback=folder_as_uri,
    ),
]
HoldName = Annotated[str, argument("NAME", "The hold's name: letters, digits and hyphens.")]


_EVERY = duration_text(LINE_SECONDS)


def command_of(  # noqa: PLR0913  (a parameter is an option)
    *,
    # not from the environment: what it declares may delete, truncate or seal
    config: Annotated[
        str | None,
        option(
            "--config",
            "A TOML file that declares streams and options.",
            environment=False,
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    metrics_port: Annotated[
        Any,
        option(
            "--metrics-port",
            "Serve Prometheus metrics at this address while the command runs; without HOST, only on this machine.",
            metavar="[HOST:]PORT",
            parser=parsing(parse_place),
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, option("--json", "Print one JSON object on standard output.")] = False,
    progress_every: Annotated[
        Any,
        option(
            "--progress-every",
            "How often to print progress where there are no progress bars; 0 disables progress and bars.",
            metavar="TIME",
            parser=parsing(lambda text: 0.0 if text == "0" else parse_duration(text)),
        ),
    ] = _EVERY,
    verbose: Annotated[
        int,
        option(
            "--verbose",
            "Write log lines to stderr; -vv: all.",
            short="-v",
            environment=False,
            count=True,
            show_default=False,
            metavar="",
        ),
    ] = 0,
    quiet: Annotated[bool, option("--quiet", "Write nothing but the result and errors.", short="-q")] = False,
    log_level: Annotated[
        LogLevel, option("--log-level", "Write log lines of this level and above to stderr.")
    ] = LogLevel.WARNING,
    log_file: Annotated[
        str | None, option("--log-file", "Append log lines to this file, too.", metavar="FILE", show_default=False)
    ] = None,
) -> Command:
    """Return a command; the parameters are the options that every command has, or several have.

    Raises:
        Usage: ``-q`` and ``-v``.
        Failed: the log file cannot be written.
    """
    file = None if log_file is None else str(expanded(log_file))
    if file is not None:
        check_log_file(file)
    if quiet and verbose:
        raise Usage("--quiet and --verbose are mutually exclusive", todo="Give one of them.")
    order = list(LogLevel)
    level = [log_level, min(log_level, LogLevel.INFO, key=order.index), LogLevel.DEBUG][min(verbose, 2)]
    if quiet and level is LogLevel.WARNING:
        level = LogLevel.ERROR
    return Command(as_json, level, config, file, progress_every, quiet, metrics_port)


_RUNNING = signature(command_of, eval_str=True).parameters

_OF_SOME = ("config", "metrics_port")
"""The options of `command_of` that only some commands have."""


def as_command(function: Callable[..., None]) -> Callable[..., int]:
    """Convert a function to a command: expand each parameter that is an options class to that class's options.

    Args:
        function: takes typer arguments and options, options classes, and `Command`.

    Returns:
        A function whose signature has every option as a parameter. It prints an error if an option is not valid, and
        returns the exit code.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, type[Options]] = {}
    for name, parameter in signature(function).parameters.items():
        kind = hints[name]
        if kind is Command:
            parameters += [each for keyword, each in _RUNNING.items() if keyword not in _OF_SOME]
        elif isinstance(kind, type) and issubclass(kind, Options):
            groups[name] = kind
            parameters += _option_parameters(kind)
            parameters += [_RUNNING["config"]] if kind.scoped else []
            parameters += [_RUNNING["metrics_port"]] if kind.measured else []
        else:
            parameters.append(parameter.replace(annotation=kind))

    @wraps(function)
    def run(**given: Any) -> int:
        as_json = given["as_json"]
        try:
            command = command_of(**{keyword: given.pop(keyword) for keyword in _RUNNING if keyword in given})
            options = {name: _read(kind, given) for name, kind in groups.items()}
        except Problem as problem:
            with Results() as results:
                return finish(results, command_error(problem, resumable=False), as_json=as_json)
        with command.started(), command.importing as importing:
            importing.enter_context(without_collector())
            function(**given, **options, command=command)
        return command.exit_code

    vars(run)["__signature__"] = Signature(parameters, return_annotation=int)
    run.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": int}
    return run


def _option_parameters(kind: type[Options]) -> Iterator[Parameter]:
    for keyword, declared in kind.own_first():
        form = command_line(declared)
        default = Parameter.empty if declared.is_required() else declared.default
        described = option(
            form.option(keyword),
            declared.description or "",
            short=form.short,
            environment=form.environment,
            metavar=form.metavar,
            parser=None if form.parse is None else parsing(form.parse),
            show_default=default is not Parameter.empty and bool(form.choices or default not in {None, "", ()}),
        )
        yield keyword_parameter(
            keyword, Annotated[_type(declared.annotation, form), described], _default(default, form)
        )


def _type(annotation: Any, form: CommandLine) -> Any:
    if form.pair:
        return list[str] | None  # `take_pairs` lets each be two
    if form.load is not None:
        return str | None
    if form.choices:
        return Literal[tuple(form.choices)]
    return list[str] | None if annotation == Iterable[str] else annotation


def _default(default: Any, form: CommandLine) -> Any:
    """Return a default in the form that typer expects: text if the option has its own parser or choices."""
    if default is None or default is Parameter.empty:
        return default
    if form.choices:
        return next(text for text, value in form.choices.items() if value == default)
    if form.parse is not None:
        return form.text(default)
    return None if default == () else default


def _read(kind: type[Options], given: dict[str, Any]) -> Options:
    """Create an options class from the given options, and remove those."""
    values = {}
    for keyword, declared in kind.keyword_fields().items():
        value = given.pop(keyword)
        form = command_line(declared)
        if form.destroys and value == declared.default and os.environ.get(form.variable(keyword)):
            raise Usage(
                f"{form.variable(keyword)} is set, but variables cannot make a command delete, truncate or seal",
                todo=f"Give {form.option(keyword)} on the command line, or unset the variable.",
            )
        if value is None:
            continue
        if form.pair:
            value = tuple(tuple(form.value(text, form.option(keyword)) for text in pair) for pair in value)
        elif form.parse is None:  # else typer has converted it
            value = form.value(value, form.option(keyword))
        values[keyword] = value
    return kind(**values)


def take_pairs(function: Callable[..., None], command: Any) -> None:
    """Let the options of a command that are pairs take two texts each, which typer has no type for.

    Args:
        function: the command, before `as_command`.
        command: what typer makes of it.
    """
    kinds = [kind for kind in get_type_hints(function).values() if isinstance(kind, type) and issubclass(kind, Options)]
    pairs = {k for kind in kinds for k, declared in kind.own_first() if command_line(declared).pair}
    for parameter in command.params:
        if parameter.name in pairs:
            parameter.nargs = 2
            parameter.get_runtime_param = _Pairs


class _Pairs:
    """Takes the texts of a typer option as they are."""

    def coerce(self, value: Any, **_: Any) -> Any:
        return () if value is None else value
