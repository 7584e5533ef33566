"""Parts of a stream that are put together in a new one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streamvault import copy_stream
from streamvault.cli import main
from streamvault.streamstore.model import StreamCut, StreamName
from tests.commands.concat.keyed import Keyed

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "copy.md"
Cut = dict[str, int]


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path / "streams")


@pytest.fixture
def cuts(keyed: Keyed) -> list[Cut]:
    """The tails of a stream after its head and after each 20 events, with a scale after 40."""
    found = []
    keyed.make("one", 2)
    for bounds in ([], [], [0.25, 0.5], []):
        found.append(tail(keyed))
        if bounds:
            keyed.scale("one", bounds)
        keyed.write("one", 20)
    return [*found, tail(keyed)]


def tail(keyed: Keyed) -> Cut:
    return {segment.in_stream(StreamName("scope", "one")): offset for segment, offset in keyed.tail("one").items()}


def test_ranges_are_copied_one_behind_the_other(keyed: Keyed, cuts: list[Cut]) -> None:
    ranges = [(cuts[0], cuts[1]), (cuts[2], cuts[3])]
    report = copy_stream(keyed.uri("one"), keyed.uri("some"), ranges=ranges, master="inline[2]")
    assert keyed.by_key("some") == keyed.expected(("one", range(20)), ("one", range(40, 60)))
    assert report.bytes == report.moved_bytes == sum(place.end - place.start for place in report.places)
    assert copy_stream(keyed.uri("one"), keyed.uri("some"), ranges=ranges, master="inline").unchanged
    touching = [(cuts[1], cuts[2]), (cuts[2], cuts[4])]
    copy_stream(keyed.uri("one"), keyed.uri("all"), ranges=touching, master="inline")
    assert keyed.by_key("all") == keyed.expected(("one", range(20, 80)))


def test_what_was_truncated_is_missing(keyed: Keyed, cuts: list[Cut]) -> None:
    with keyed.store as store:
        store.truncate(StreamCut.from_json(cuts[2], StreamName("scope", "one")))
    ranges = [(cuts[0], cuts[1]), (cuts[1], cuts[3])]
    report = copy_stream(keyed.uri("one"), keyed.uri("some"), ranges=ranges, master="inline")
    assert keyed.by_key("some") == keyed.expected(("one", range(40, 60)))
    assert "truncated beyond the beginning of a range" in report.warnings[0]


ORDER = r"the ranges overlap, or are not in the stream's order: offset \d+ of scope/one/\d+\.#epoch\.\d"


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (["--range", "2", "1"], 2, r"a range ends before it begins: offset \d+ of scope/one/[01]\.#epoch\.0"),
        (["--range", "3", "4", "--range", "0", "1"], 2, ORDER),
        (["--range", "0", "2", "--range", "1", "3"], 2, ORDER),
        (["--range", "0", "2", "--range", "0", "2"], 2, ORDER),
        (["--range", "0", "inside"], 2, r"inside an event.*scope/one/[01]\.#epoch\.0"),
        (["--range", "0", "other"], 2, "a stream cut of scope/one names a segment of another stream"),
        (["--range", "0", "absent.json"], 2, r"absent\.json"),
        (["--range", "0", "1", "--from", "0"], 2, "--from is not possible with --range"),
        (["--range", "0", "1", "--method", "events"], 2, "--range"),
        (["--range", "0"], 2, "--range"),
    ],
)
def test_what_cannot_be_copied(
    keyed: Keyed, cuts: list[Cut], capfd: pytest.CaptureFixture[str], given: list[str], code: int, message: str
) -> None:
    texts = {str(number): json.dumps(cut) for number, cut in enumerate(cuts)}
    texts["inside"] = json.dumps({name: offset + 3 for name, offset in cuts[1].items()})
    texts["other"] = json.dumps({"scope/two/0.#epoch.0": 0})
    command = ["copy", keyed.uri("one"), keyed.uri("some"), "--master", "inline"]
    assert main([*command, *(texts.get(one, one) for one in given)]) == code
    error = capfd.readouterr().err
    assert re.search(message, error), error
    with keyed.store as store:
        assert not store.exists(StreamName("scope", "some"))


def test_command_of_the_guide(keyed: Keyed, cuts: list[Cut], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = re.findall(r"```\nstreamvault (copy [^\[]*? --range [^\[]*?)\n```", GUIDE.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    for name, cut in zip("abcd", cuts, strict=False):
        Path(f"{name}.json").write_text(json.dumps(cut))
    streams = keyed.uri("one").rpartition("/")[0]
    assert main(command.replace("pravega://HERE:9090/shop", streams).replace("/orders", "/one").split()) == 0
    assert keyed.by_key("some") == keyed.expected(("one", range(20)), ("one", range(40, 60)))


def test_command_takes_pairs_of_cuts(
    keyed: Keyed, cuts: list[Cut], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.json").write_text(json.dumps(cuts[1]))
    pairs = ["--range", json.dumps(cuts[0]), str(tmp_path / "cut.json")]
    pairs += ["--range", json.dumps(cuts[3]), json.dumps(cuts[4])]
    command = ["copy", keyed.uri("one"), keyed.uri("some"), "--master", "inline", *pairs]
    assert main([*command, "--dry-run"]) == 0
    assert "would copy" in capfd.readouterr().out
    assert main(command) == 0
    assert keyed.by_key("some") == keyed.expected(("one", range(20)), ("one", range(60, 80)))
    assert "-> scope/some/" in capfd.readouterr().out
