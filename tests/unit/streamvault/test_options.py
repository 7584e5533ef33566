"""Every place that repeats a verb's options agrees with the verb's options class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamvault
from streamvault.cli import main
from streamvault.cli.app import load_command
from streamvault.common.errors import Usage
from streamvault.common.options import Options, command_line
from streamvault.exporter.options import ConvertOptions, ExportOptions
from streamvault.importer.options import ImportOptions, RestoreOptions
from streamvault.lake.options import CatOptions, DdlOptions, HandoffOptions
from streamvault.manifests.options import CheckOptions, HoldOptions, ReleaseOptions, WarmOptions
from streamvault.mirrors.options import CopyOptions, MoveOptions, PromoteOptions
from streamvault.requests.model import RestoreRequest
from streamvault.requests.options import WorkOptions
from streamvault.rotation.options import CompactOptions, FollowOptions, RotateOptions

VERBS: dict[str, tuple[Callable[..., Any], type[Options]]] = {
    "export": (streamvault.export_stream, ExportOptions),
    "import": (streamvault.import_stream, ImportOptions),
    "copy": (streamvault.copy_stream, CopyOptions),
    "check": (streamvault.check_archive, CheckOptions),
    "cat": (streamvault.read_archive, CatOptions),
    "convert": (streamvault.convert_archive, ConvertOptions),
    "handoff": (streamvault.write_table, HandoffOptions),
    "ddl": (streamvault.table_ddl, DdlOptions),
    "compact": (streamvault.compact_archive, CompactOptions),
    "rotate": (streamvault.rotate_stream, RotateOptions),
    "follow": (streamvault.follow_stream, FollowOptions),
    "hold": (streamvault.hold_archive, HoldOptions),
    "release": (streamvault.release_archive, ReleaseOptions),
    "request-restore": (streamvault.request_restore, RestoreOptions),
    "work": (streamvault.work_queue, WorkOptions),
    "warm": (streamvault.warm_archive, WarmOptions),
}

COMMON = {"master", "dry_run", "progress"}
"""Arguments of the functions that belong to the run and not to the verb's options."""

RUNNING = {"master", "dry_run", "as_json", "log_level", "help"}
"""Arguments of the commands that belong to the run and not to the verb's options."""

ONLY_IN_THE_FUNCTION = {
    "cat": {"columns", "window"},  # of the record batches, which the command does not return
    "request-restore": {"queue"},  # where the request goes, not what is restored
    "work": {"finished"},  # a callback
}
ONLY_IN_THE_COMMAND = {
    "cat": {"limit", "form"},  # how the command writes events
    "request-restore": {"queue"},
    "work": {"once"},  # as `idle=0`
}


@pytest.mark.parametrize("verb", VERBS)
def test_function_has_the_options_and_their_defaults(verb: str) -> None:
    function, kind = VERBS[verb]
    parameters = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    declared = {
        name: inspect.Parameter.empty if field.is_required() else field.default
        for name, field in kind.keyword_fields().items()
    }
    assert set(parameters) - COMMON - ONLY_IN_THE_FUNCTION.get(verb, set()) == set(declared) - COMMON
    assert {name: parameters[name] for name in declared} == declared


@pytest.mark.parametrize("verb", VERBS)
def test_docstring_names_every_argument(verb: str) -> None:
    function, _ = VERBS[verb]
    described = (function.__doc__ or "").partition("Args:")[2].partition("Raises:")[0]
    assert set(inspect.signature(function).parameters) <= set(re.findall(r"^ +(\w+): ", described, re.MULTILINE))


@pytest.mark.parametrize("verb", VERBS)
def test_command_has_the_options(verb: str) -> None:
    _, kind = VERBS[verb]
    options = {
        str(each.name): each for each in load_command(verb).params if any(text.startswith("-") for text in each.opts)
    }
    declared = kind.keyword_fields()
    assert set(options) - RUNNING - ONLY_IN_THE_COMMAND.get(verb, set()) == set(declared) - RUNNING
    for name, field in declared.items():
        form = command_line(field)
        assert form.option(name) in options[name].opts
        assert field.description
        if form.environment:
            variable = form.option(name).lstrip("-").replace("-", "_").upper()
            assert options[name].envvar == f"STREAMVAULT_{variable}"


def test_commands_whose_options_share_a_name_share_their_meaning() -> None:
    """One environment variable sets the option of every command that has it."""
    metavars: dict[str, set[str | None]] = {}
    for _, kind in VERBS.values():
        for name, field in kind.keyword_fields().items():
            form = command_line(field)
            if form.environment:
                metavars.setdefault(form.option(name), set()).add(form.metavar or str(field.annotation))
    assert {name: kinds for name, kinds in metavars.items() if len(kinds) > 1} == {}


def test_request_in_a_queue_has_the_options_of_a_restore() -> None:
    own = {"kind", "version", "archive", "stream"}
    fields = {name: field.default for name, field in RestoreRequest.model_fields.items() if name not in own}
    assert fields == {name: field.default for name, field in RestoreOptions.keyword_fields().items()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 1024}, r"--window must be at least 16MiB: 1KiB"),
        ({"window": "much"}, r"--window is not valid: .*: 'much'"),
        ({"layout": "pages"}, r"--layout must be 'events' or 'chunks': 'pages'"),
        ({"compress": "zstd"}, r"layout events does not support the compression"),
        ({"range_size": 0}, r"--range-size must be at least 1: 0"),
        ({"range_size": "1"}, r"--range-size is not valid: .*: '1'"),
        ({"range_size": True}, r"--range-size is not valid: .*: True"),
    ],
)
def test_invalid_option_is_wrong_usage(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Usage, match=message):
        streamvault.export_stream("local:///a/b/c", "file:///d", **options)


def test_text_is_no_flag() -> None:
    """A verb uses the argument itself, and "false" is true."""
    false: Any = "false"
    with pytest.raises(Usage, match=r"--truncate-source is not valid: .*: 'false'"):
        streamvault.rotate_stream("local:///a/b/c", "file:///d", truncate_source=false)
    with pytest.raises(Usage, match=r"--repair is not valid: .*: 'false'"):
        streamvault.check_archive("file:///d/b/c", repair=false)


@pytest.mark.parametrize("wrong", [None, b"file:///d/b/c", Path("/d/b/c"), 5], ids=repr)
def test_address_that_is_no_text_is_wrong_usage(wrong: Any) -> None:
    with pytest.raises(Usage, match="not a root URI"):
        streamvault.show_archive(wrong)
    with pytest.raises(Usage, match="not a stream's URI"):
        streamvault.export_stream(wrong, "file:///d")
    with pytest.raises(Usage, match="--at is not a time"):
        streamvault.import_stream("file:///d/b/c", "local:///a/b/c", at=wrong or 0)


def test_integers_of_numpy_are_integers() -> None:
    numbers: Any = np.array([2])
    assert RotateOptions(keep=numbers[0]).keep == 2


def test_environment_sets_an_option(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STREAMVAULT_WINDOW", "1MiB")
    assert main(["export", "local:///a/b/c", "file:///d"]) == 2
    assert "--window must be at least 16MiB: 1MiB" in capfd.readouterr().err


DESTROYING = {
    "rotate": {"--keep": "1", "--keep-for": "1d", "--until": "2026-01-01T00:00:00Z", "--truncate-source": "1"},
    "follow": {"--keep": "1", "--keep-for": "1d", "--truncate-source": "1"},
    "check": {"--repair": "1"},
    "promote": {"--seal-source": "1"},
}
"""The options that make a command delete, truncate or seal something, each with a valid value."""


@pytest.mark.parametrize(("verb", "option"), [(verb, option) for verb, some in DESTROYING.items() for option in some])
def test_no_environment_variable_makes_a_command_destroy_anything(
    verb: str, option: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A variable that was set for another command, or forgotten, must not delete, truncate or seal."""
    variable = f"STREAMVAULT_{option.removeprefix('--').replace('-', '_').upper()}"
    places = {"check": ["memory://a/b/c"], "promote": ["local:///nowhere/b/c"]}
    command = [verb, *places.get(verb, ["local:///nowhere/b/c", "memory://a"])]
    monkeypatch.setenv(variable, DESTROYING[verb][option])
    assert main(command) == 2
    assert f"{variable} is set" in (err := capfd.readouterr().err)
    assert f"Give {option} on the command line" in err
    given = [option] if DESTROYING[verb][option] == "1" and option != "--keep" else [option, DESTROYING[verb][option]]
    assert main([*command, *given]) == 1  # nothing is there
    monkeypatch.setenv(variable, "")
    assert main(command) == 1


def test_options_that_destroy_are_these() -> None:
    kinds = {verb: kind for verb, (_, kind) in VERBS.items()} | {"promote": PromoteOptions, "move": MoveOptions}
    forms = {
        verb: [(command_line(field), name) for name, field in kind.keyword_fields().items()]
        for verb, kind in kinds.items()
    }
    found = {verb: {form.option(name) for form, name in some if form.destroys} for verb, some in forms.items()}
    assert {verb: options for verb, options in found.items() if options} == {
        verb: set(options) for verb, options in DESTROYING.items()
    }
