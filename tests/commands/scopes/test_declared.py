"""Streams and their options, declared in a file."""

from __future__ import annotations

import tomllib

import pytest

from streamvault.cli import main
from streamvault.manifests.archive import Archive
from streamvault.scopes.entries import line_of
from testkit.scenes import NAMES, Scopes
from tests.told import Ran
from tests.unit.lake.test_registry import Group

FILE = """
# what the nightly job archives
root = "{root}"
layout = "chunks"
keep = 2
pravega_conn_id = "only the DAGs use it"

[[streams]]
stream = "{shop}/[!ab]*"

[[streams]]
stream = "{shop}/a"  # kept by its age
layout = "events"
keep_for = "90d"

[[streams]]
stream = "{shop}/b*"
window = "64MiB"
"""


def declare(scopes: Scopes, text: str) -> str:
    file = scopes.folder / "streams.toml"
    text = text.replace("[!ab]*", "c*")
    file.write_text(text.replace("{root}", scopes.root).replace("{shop}", scopes.uri("shop")))
    return str(file)


def test_each_stream_has_its_own_options(scopes: Scopes) -> None:
    file = declare(scopes, FILE)
    code, report = scopes.run("rotate", "--config", file)
    assert code == 0
    assert report["scope"] == file
    assert [each["stream"] for each in report["outcomes"]] == [scopes.uri(f"shop/{name}") for name in "abc"]
    found = {each["stream"][-1]: each["result"]["archive"] for each in report["outcomes"]}
    assert found == {name: f"{scopes.root}/shop/{name}" for name in "abc"}
    layouts = {name: (scopes.folder / "vault/shop" / name / "chunks").exists() for name in "abc"}
    assert layouts == {"a": False, "b": True, "c": True}


def test_the_command_line_says_what_the_file_does_not(scopes: Scopes) -> None:
    text = 'root = "{root}"\nstreams = ["{shop}/a", "{shop}/c"]\n'
    code, report = scopes.run("export", "--config", declare(scopes, text), "--layout", "chunks", "--dry-run")
    assert (code, report["dry_run"], len(report["outcomes"])) == (0, True, 2)
    assert not (scopes.folder / "vault").exists()
    code, report = scopes.run("export", "--config", declare(scopes, text), "--layout", "chunks")
    assert all((scopes.folder / "vault/shop" / name / "chunks").exists() for name in "ac")
    archives = 'streams = ["{root}/shop/a", { archive = "{root}/shop/", subset = "100%" }]'
    code, report = scopes.run("check", "--config", declare(scopes, archives.partition(",")[0] + "]"))
    assert [each["result"]["ranges_read"] for each in report["outcomes"]] == [0]
    archives = 'streams = [{ archive = "{root}/shop/", read_data = "yes" }]'
    code, report = scopes.run("check", "--config", declare(scopes, archives))
    assert [each["result"]["ranges_read"] > 0 for each in report["outcomes"]] == [True, True]


def test_an_entry_may_name_a_schema_registry(scopes: Scopes) -> None:
    entry = '{ stream = "{shop}/b", schemas = "URL", schema_group = "group" }'
    exports = f'root = "{{root}}"\nstreams = ["{{shop}}/a", {entry}]'
    tables = 'streams = [{ source = "{root}/shop/b", decode = "registry", registry = "URL", group = "other" }]'
    with Group(1) as server:
        assert scopes.run("export", "--config", declare(scopes, exports.replace("URL", server.url)))[0] == 0
        code, report = scopes.run("handoff", "--config", declare(scopes, tables.replace("URL", server.url)))
    noted = [Archive.open(f"{scopes.root}/shop/{name}").manifest().schemas for name in "ab"]
    assert [group and group.group for group in noted] == [None, "group"]
    assert code == 4
    assert report["outcomes"][0]["failure"]["where"] == "the schema groups group and other differ"


def test_copies_are_declared_in_pairs(scopes: Scopes) -> None:
    text = """
[[streams]]
source = "{shop}/"
stream = "{shop}2/"

[[streams]]
source = "{shop}/a"
stream = "{shop}3/other"
"""
    code = main(["copy", "--config", declare(scopes, text), "--master", "inline"])
    assert code == 2  # `a` is listed twice
    scopes.make(["x"], scope="shop4")
    code, report = scopes.run("copy", "--config", declare(scopes, text.replace("{shop}/a", "{shop}4/x")))
    assert (code, len(report["outcomes"])) == (0, 7)
    assert scopes.digest("shop3", "other") == scopes.digest("shop4", "x")


def test_a_declared_stream_that_is_not_there_has_failed(scopes: Scopes) -> None:
    file = declare(scopes, 'root = "{root}"\nstreams = ["{shop}/x", "{shop}/a"]')
    code, report = scopes.run("export", "--config", file)
    assert code == 5
    assert {each["stream"][-1]: each["status"] for each in report["outcomes"]} == {"x": "failed", "a": "done"}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('root = "{root}"\nkep = 3\nstreams = ["{shop}/a"]', 2, "unknown key kep: {file}:2. Did you mean keep?"),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\n\n# x\nkeepfor = "1d"', 6, "unknown key keepfor"),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\nkeep_for = "soon"', 4, "keep_for: "),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\nkeep = 0', 4, "keep: "),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\nkeep = 1\nkeep_for = "1d"', 2, "mutually exclusive"),
        ('root = "{root}"\ndry_run = true\nstreams = ["{shop}/a"]', 2, "unknown key dry_run"),
        ('root = "{root}"\nmaster = "inline"\nstreams = ["{shop}/a"]', 2, "unknown key master"),
        ('root = "{root}"\nstop_after = "soon"\nstreams = ["{shop}/a"]', 2, "stop_after: 'soon' is not a duration"),
        ('root = 5\nstreams = ["{shop}/a"]', 1, "root: "),
        ('root = "{root}"\nstreams = []', 2, "streams: "),
        ('root = "{root}"', 1, "no streams are declared: {file}:1. Write a table [[streams]] for each, or streams ="),
        ('root = "{root}"\n[[steams]]\nstream = "{shop}/a"', 2, "unknown key steams: {file}:2. Did you mean streams?"),
        ('root = "{root}"\n[[streams]]\nstrem = "{shop}/a"', 3, "unknown key strem: {file}:3. Did you mean stream?"),
        ('[[streams]]\nstream = "{shop}/a"', 1, "root is missing"),
        ('root = "{root}"\n[[streams]]\nstream = "{shop}/a"\n[[streams]]\nstream = "{shop}/x*"', 4, "nothing matches"),
        ('root = "{root}"\nstreams = [\n"{shop}/a",\n"{shop}/a"]', 2, "the stream is listed twice"),
        ('root = "{root}"\nstreams = ["{root}/a"]', 2, "not a stream's URI"),
        ('root = "{root}"\nstreams = ["{shop}/b b"]', 2, "invalid stream name"),
        ("root = ", 0, "the file is not TOML"),
        (f"x = {'[' * 10_000}", 0, "the file is not TOML"),
        (f"keep = {'9' * 5000}", 0, "the file is not TOML"),
    ],
)
def test_each_error_has_its_line(scopes: Scopes, text: str, line: int, said: str, ran: Ran) -> None:
    file = declare(scopes, text)
    told = ran("rotate", "--config", file, "--master", "inline", code=2).err
    assert said.replace("{file}", file) in told
    assert (f"{file}:{line}" if line else file) in told
    assert not (scopes.folder / "vault").exists()


def test_a_file_takes_the_place_of_the_arguments(scopes: Scopes, ran: Ran) -> None:
    file = declare(scopes, 'root = "{root}"\nstreams = ["{shop}/a"]')
    assert (
        "--config takes the place of the arguments" in ran("export", scopes.uri("shop/b"), "--config", file, code=2).err
    )
    assert main(["export"]) != 0
    assert "Missing argument 'ROOT'" in ran("export", scopes.uri("shop/b"), code=2).err
    assert "--config cannot be read" in ran("export", "--config", f"{file}x", code=2).err


def test_no_variable_names_the_file(scopes: Scopes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMVAULT_CONFIG", declare(scopes, FILE))
    assert main(["rotate"]) != 0
    assert set(scopes.outcomes("export", scopes.uri("shop/"), scopes.root)) == set(NAMES)


def test_lines_of_values() -> None:
    text = 'a = [\n 1,\n 2 ]\n\n# b = 3\nb = """\nb = 4\n"""\n[[s]]\nx = 1\n[[s]]\n\ny.z = 2\n'
    places: dict[tuple[str | int, ...], int] = {
        ("a",): 1,
        ("b",): 6,
        ("s", 0): 9,
        ("s", 0, "x"): 10,
        ("s", 1): 11,
        ("s", 1, "y", "z"): 13,
        ("s", 1, "none"): 11,
        ("none",): 1,
    }
    assert {path: line_of(text, path) for path in places} == places
    text = 'a = 1 # \u2028 is no end of a line\r\nb = """\r\n]\r\n"""\r\nc = { d = [\n{ e = 1 }\n] }'
    assert [line_of(text, (key,)) for key in "abc"] == [1, 2, 5]


def test_the_line_in_a_long_file_is_found_without_reading_it_for_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    really = tomllib.loads
    monkeypatch.setattr("streamvault.scopes.entries.tomllib.loads", lambda text: read.append(len(text)) or really(text))
    tables = "".join(f'[[streams]]\nstream = "local:///a/b/{number}"\n' for number in range(500)) + "unknown = 1\n"
    array = "streams = [\n" + '{ stream = "local:///a/b/c" },\n' * 1000 + "]\nunknown = 1\n"
    for text, path, line in ((tables, ("streams", 499, "unknown"), 1001), (array, ("unknown",), 1003)):
        read.clear()
        assert line_of(text, path) == line
        assert sum(read) < 20 * len(text)
