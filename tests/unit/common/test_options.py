"""A verb takes its options as keywords, or as they are.

Options of the verbs: as arguments, on a command line, and in the environment.
"""

from __future__ import annotations

import inspect
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import Field

import streamvault
from streamvault import check_archive
from streamvault.cli import main
from streamvault.common.errors import Conflict, Usage
from streamvault.common.options import Options, Rehearsed, Watched, command_line, in_keywords, verb
from streamvault.common.progress import Progress
from streamvault.common.report import Report, TimedReport
from streamvault.exporter.reports import RotateOptions
from streamvault.importer.reports import ImportOptions, RestoreOptions
from streamvault.lake.reports import CatOptions, HandoffOptions
from streamvault.manifests.options import CheckOptions, ShowOptions
from streamvault.requests.queue import RestoreRequest
from streamvault.requests.reports import WorkOptions


class SharedOptions(Options):
    size: Annotated[int, Field(ge=1, description="The size.")] = 7


class SendOptions(SharedOptions, Rehearsed, Watched):
    to: Annotated[str, Field(description="Where to.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport(TimedReport):
    sent: Any


@verb(SendOptions)
def send(what: str, options: SendOptions, progress: Progress) -> SendReport:
    """Send it."""
    return SendReport(sent=(what, options, progress), seconds=9.0 if options.dry_run else 0.0)


@verb(SharedOptions)
def count(first: str, second: str, options: SharedOptions) -> int:
    return len(first + second) * options.size


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalReport(Report):
    total_seconds: float = 0.0


@verb(SharedOptions)
def wait(seconds: float, options: SharedOptions) -> TotalReport:
    time.sleep(seconds)
    return TotalReport()


def test_total_time_is_noted_in_every_report_that_has_it() -> None:
    assert wait(0.01).total_seconds >= 0.01


def test_signature_has_the_options_a_verbs_own_first() -> None:
    assert str(inspect.signature(send)).startswith(
        "(what: str, *, to: str, size: int = 7, dry_run: bool = False, progress: "
    )
    assert (send.__name__, send.__doc__, send.__module__) == ("send", "Send it.", __name__)


def test_options_are_given_as_keywords_or_as_they_are() -> None:
    progress, options = Progress(), SendOptions(to="there", size=2)
    assert send("it", to="there", size=2, progress=progress).sent == ("it", options, progress)
    assert send(what="it", to="there", size=2, progress=progress).sent == ("it", options, progress)
    assert send.with_options("it", options, progress).sent == ("it", options, progress)
    assert isinstance(send("it", to="there").sent[2], Progress)
    assert count("ab", second="c", size=3) == 9


def test_invalid_options_are_wrong_usage_and_unknown_names_are_not_python() -> None:
    with pytest.raises(Usage, match=r"^size must be at least 1: 0"):
        send("it", to="there", size=0)
    for wrong in ({}, {"to": "there", "sice": 1}, {"to": "there", "what": "that"}):
        with pytest.raises(TypeError, match=r"^send\(\) "):
            send("it", **wrong)
    with pytest.raises(TypeError, match=r"'sice'\. Did you mean 'size'"):
        send("it", to="there", sice=1)
    with pytest.raises(TypeError, match=r"'read_data_subset'\. Did you mean 'subset'"):
        check_archive("file:///d/b/c", read_data_subset="10%")
    with pytest.raises(TypeError):
        count("ab", "c", progress=Progress())


def test_report_has_the_time_of_the_call() -> None:
    plain, rehearsed = send("it", to="there"), send("it", to="there", dry_run=True)
    assert plain.seconds == plain.total_seconds
    assert (rehearsed.seconds, rehearsed.total_seconds < 9) == (9.0, True)


VERBS = [getattr(streamvault, name) for name in streamvault.__all__]
OF_COMMANDS = {CatOptions, ShowOptions, WorkOptions}
KINDS = {verb.options_class for verb in VERBS if hasattr(verb, "options_class")} | OF_COMMANDS


@pytest.mark.parametrize("name", streamvault.__all__)
def test_docstring_names_every_argument(name: str) -> None:
    function = getattr(streamvault, name)
    described = (function.__doc__ or "").partition("Args:")[2].partition("Raises:")[0]
    assert set(inspect.signature(function).parameters) <= set(re.findall(r"^ +(\w+): ", described, re.MULTILINE))


def test_options_are_described_and_share_their_meaning_if_they_share_a_name() -> None:
    """One environment variable sets the option of every command that has it."""
    metavars: dict[str, set[str | None]] = {}
    for kind in KINDS:
        for name, field in kind.keyword_fields().items():
            form = command_line(field)
            assert field.description
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
        ({"window": 1024}, r"^window must be at least 16MiB: 1KiB"),
        ({"window": "much"}, r"^window is not valid: 'much' is not a size\. Examples: 64MiB"),
        ({"layout": "pages"}, r"^layout must be 'events' or 'chunks': 'pages'"),
        ({"range_size": 0}, r"^range_size must be at least 1: 0"),
        ({"range_size": "0KiB"}, r"^range_size must be at least 1: 0"),
        ({"range_size": "-1"}, r"^range_size is not valid: '-1' is not a size"),
        ({"range_size": True}, r"^range_size is not valid: .*: True"),
    ],
)
def test_invalid_option_is_wrong_usage(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Usage, match=message):
        streamvault.export_stream("local:///a/b/c", "file:///d", **options)


def test_text_is_no_flag() -> None:
    """A verb uses the argument itself, and "false" is true."""
    false: Any = "false"
    with pytest.raises(Usage, match=r"^truncate_source is not valid: .*: 'false'"):
        streamvault.rotate_stream("local:///a/b/c", "file:///d", truncate_source=false)
    with pytest.raises(Usage, match=r"^repair is not valid: .*: 'false'"):
        streamvault.check_archive("file:///d/b/c", repair=false)


def test_path_is_taken_for_a_text_and_for_the_file_that_has_it(tmp_path: Path) -> None:
    (file := tmp_path / "schema.json").write_text('{"a": "int"}')
    options = HandoffOptions(schema=file, root=tmp_path)
    assert (options.columns_schema, options.root) == ('{"a": "int"}', str(tmp_path))
    with pytest.raises(Usage, match=r"^schema cannot be read: .*nothing"):
        streamvault.write_table("file:///d/b/c", schema=tmp_path / "nothing")


def test_timedelta_is_taken_for_a_time() -> None:
    assert RotateOptions(keep_for=timedelta(days=3)).keep_for == 3 * 86_400


def test_one_text_is_no_list_of_sources() -> None:
    for call in (streamvault.append_streams, streamvault.join_streams):
        with pytest.raises(Usage, match=r"^the sources must be a list of URIs: 'local:///a/b/c'"):
            call("local:///a/b/c", "local:///a/b/d")


def test_report_without_a_file_names_keywords() -> None:
    with pytest.raises(Usage, match=r"Give output=FILE for a page, or svg=FOLDER"):
        streamvault.write_report("file:///d")


@pytest.mark.parametrize("wrong", [None, b"file:///d/b/c", Path("d/b/c"), 5], ids=repr)
def test_address_that_is_no_text_is_wrong_usage(wrong: Any) -> None:
    with pytest.raises(Usage, match="not an archive URI"):
        streamvault.show_archive(wrong)
    with pytest.raises(Usage, match="not a stream's URI"):
        streamvault.export_stream(wrong, "file:///d")
    with pytest.raises(Usage, match=r"^at is not a time"):
        streamvault.import_stream("file:///d/b/c", "local:///a/b/c", at=wrong or 0)


@pytest.mark.parametrize("at", ["2026-01-31T19:00:00+01:00", datetime(2026, 1, 31, 18, tzinfo=UTC)], ids=repr)
def test_time_is_a_text_or_a_datetime(at: str | datetime) -> None:
    assert ImportOptions(at=at).at_time == datetime(2026, 1, 31, 18, tzinfo=UTC)
    assert RotateOptions(until=at).rule.until == datetime(2026, 1, 31, 18, tzinfo=UTC)
    assert (ImportOptions().at_time, RotateOptions().rule.until) == (None, None)


def test_fingerprints_are_any_iterable_of_texts() -> None:
    for some in (["a", "b"], {"a": 1, "b": 2}, (name for name in "ab")):
        assert ImportOptions(fingerprints=some).fingerprints == ("a", "b")
    wrong: Any
    for wrong in ("ab", [1], None, 5):
        with pytest.raises(Usage, match=r"--fingerprint is not valid: .*it must be a list of texts"):
            ImportOptions(fingerprints=wrong)


def test_sizes_times_and_shares_are_texts_as_on_the_command_line() -> None:
    texts: dict[str, Any] = {"range_size": "1.5 GB", "window": "64MiB", "keep_for": "1h30m"}
    options = RotateOptions(**texts)
    assert (options.range_size, options.window, options.keep_for) == (1_500_000_000, 64 * 1024 * 1024, 5400.0)
    share: Any = "10%"
    assert CheckOptions(subset=share).subset == 0.1
    wrong: Any
    for wrong in ("soon", ""):
        with pytest.raises(Usage, match=r"--keep-for is not valid: '.*' is not a duration"):
            RotateOptions(keep_for=wrong)
    twice: Any = "3m 3m"
    assert RotateOptions(keep_for=twice).keep_for == 180
    wrong = "3m"
    with pytest.raises(
        Usage, match=r"^--keep-for is not valid: '3m' is 3 minutes\. Write it twice if that is meant: '3m"
    ):
        RotateOptions(keep_for=wrong)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("--keep-for must be positive", "keep_for must be positive"),
        ("--keep, --keep-for and --until exclude each other", "keep, keep_for and until exclude each other"),
        ("if it is, confirm it with --same-stream.", "if it is, confirm it with same_stream=True."),
        ("--same-stream is not valid", "same_stream is not valid"),
        ("Use --layout chunks, or another --line NAME.", "Use layout='chunks', or another line=NAME."),
        ("Use --window 12MiB.", "Use window 12MiB."),
        (
            "run 'check --read-data --window 1' of it's kin --window",
            "run 'check --read-data --window 1' of it's kin window",
        ),
        ("`export --layout chunks` or --nothing", "`export --layout chunks` or --nothing"),
    ],
)
def test_errors_in_python_name_options_as_keywords(said: str, expected: str) -> None:
    with pytest.raises(Conflict) as caught, in_keywords(RotateOptions):
        raise Conflict(said, where="x", todo=said)
    assert (caught.value.what, caught.value.where, caught.value.todo, caught.value.args) == (
        expected,
        "x",
        expected,
        (expected,),
    )


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
    "delete": {"--yes": "1", "--unfinished": "1"},
    "sweep": {"--older-than": "2h"},
}
"""The options that make a command delete, truncate or seal something, each with a valid value."""


@pytest.mark.parametrize(("verb", "option"), [(verb, option) for verb, some in DESTROYING.items() for option in some])
def test_no_environment_variable_makes_a_command_destroy_anything(
    verb: str, option: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A variable that was set for another command, or forgotten, must not delete, truncate or seal."""
    variable = f"STREAMVAULT_{option.removeprefix('--').replace('-', '_').upper()}"
    archive, stream, scope = ["memory://a/b/c"], ["local:///nowhere/b/c"], ["local:///nowhere/b/"]
    places = {"check": archive, "delete": archive, "promote": stream, "sweep": scope}
    command = [verb, *places.get(verb, [*stream, "memory://a"])]
    monkeypatch.setenv(variable, DESTROYING[verb][option])
    assert main(command) == 2
    assert f"{variable} is set" in (err := capfd.readouterr().err)
    assert f"Give {option} on the command line" in err
    given = [option] if DESTROYING[verb][option] == "1" and option != "--keep" else [option, DESTROYING[verb][option]]
    assert main([*command, *given]) == 5  # nothing is there
    monkeypatch.setenv(variable, "")
    assert main(command) == 5


def test_options_that_destroy_are_these() -> None:
    found = {
        (kind.__name__.removesuffix("Options").lower(), command_line(field).option(name))
        for kind in KINDS
        for name, field in kind.keyword_fields().items()
        if command_line(field).destroys
    }
    assert found == {(verb, option) for verb, some in DESTROYING.items() for option in some}
