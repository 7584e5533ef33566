"""Parts of a stream that are put together in a new one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streamvault import copy_stream
from streamvault.cli import main
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import StreamCut, StreamName
from tests.commands.joining.keyed import Keyed

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


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([(2, 1)], "a range ends before it begins: offset .* of scope/one/[01].#epoch.0"),
        ([(3, 4), (0, 1)], "the ranges overlap, or are not in the stream's order: offset .* of scope/one/"),
        ([(0, 2), (1, 3)], "the ranges overlap, or are not in the stream's order: offset .* of scope/one/"),
    ],
)
def test_ranges_out_of_order_are_rejected(
    keyed: Keyed, cuts: list[Cut], ranges: list[tuple[int, int]], message: str
) -> None:
    given = [(cuts[begin], cuts[end]) for begin, end in ranges]
    with pytest.raises(InvalidCut) as caught:
        copy_stream(keyed.uri("one"), keyed.uri("some"), ranges=given, master="inline")
    assert re.search(message, str(caught.value))
    with keyed.store as store:
        assert not store.exists(StreamName("scope", "some"))


def test_cut_inside_an_event_is_rejected(keyed: Keyed, cuts: list[Cut]) -> None:
    inside = {name: offset + 3 for name, offset in cuts[1].items()}
    with pytest.raises(InvalidCut, match="inside an event"):
        copy_stream(keyed.uri("one"), keyed.uri("some"), ranges=[(cuts[0], inside)], master="inline")


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
    assert main([*command, "--from", json.dumps(cuts[0])]) == 2
    assert "--from is not possible with --range" in capfd.readouterr().err
    assert main([*command[:3], "--range", json.dumps(cuts[0])]) == 2
    assert "--range" in capfd.readouterr().err
