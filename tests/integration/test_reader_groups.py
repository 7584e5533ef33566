"""Reader groups of the Java client go on in another stream where they were: none skipped, none repeated too early."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from streamvault import replicate_stream, translate
from streamvault.cli import main
from streamvault.common.errors import Problem
from streamvault.sources.reader_groups import look_at_group
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.model import KeyRange, Scaling, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.store import GroupPosition, StreamStore
from testkit.servers.java_client import JavaClient
from testkit.streams import append_events, events_of
from tests.integration.conftest import Site

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(300)]
GROUP = "app"


@dataclass
class Reading:
    """What readers of a group have read, one after the other.

    Attributes:
        events: the texts, in the order read.
        sure: how many of them are before a checkpoint, or before a reader left.
    """

    events: list[str] = field(default_factory=list)
    sure: int = 0

    def add(self, lines: Sequence[str]) -> None:
        """Add what a program has printed; if it was killed, what was read since the last checkpoint does not count."""
        for line in lines:
            if line.startswith(("checkpoint ", "done close:")):
                self.sure = len(self.events)
            elif not line.startswith("done "):
                self.events.append(line.rpartition(" ")[2])
        if lines[-1].startswith("done close:"):
            return
        del self.events[self.sure :]


@dataclass
class Group:
    """A group of Java readers on a stream, whose program is killed unless its last step closes the reader."""

    java: JavaClient
    site: Site
    stream: StreamName
    reading: Reading = field(default_factory=Reading)

    def run(self, *steps: str) -> None:
        self.reading.add(self.java.run("ReaderGroups", self.site.server, self.stream, GROUP, *steps))

    def read_on(self, *steps: str) -> None:
        """Read everything from the group's position on."""
        groups = self.site.store.reader_groups()
        group = groups.find(self.stream.scope, GROUP)
        assert group is not None
        position = groups.position(group, self.stream)
        assert position is not None
        described = self.site.store.describe(self.stream)
        between = segments_between(described, StreamCut(self.stream, position.offsets), described.tail)
        left = sum(
            between[pointer.segment][0] <= pointer.offset
            for pointer, _ in events_of(self.site.store, self.stream)
            if pointer.segment in between
        )
        self.run(*steps, f"read:last:{left}", "close:last")

    def moved(self, stream: StreamName, site: Site | None = None) -> Group:
        """The same group on another stream."""
        return replace(self, stream=stream, site=site or self.site)


def make(store: StreamStore, name: StreamName, *, waiting: bool = True, long: int = 300) -> list[str]:
    """A stream of two segments, one short, merged into a third if `waiting`; return the texts of its events."""
    store.create_scope(name.scope)
    store.create_stream(name, StreamConfiguration(Scaling(min_segments=1)))
    store.scale(name, list(store.describe(name).tail.offsets), [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])
    first, second = store.describe(name).tail.offsets
    texts = {first: [f"short-{n}" for n in range(3)], second: [f"long-{n}" for n in range(long)]}
    for segment, held in texts.items():
        append_events(store, name, segment, [text.encode() for text in held])
    if waiting:
        store.scale(name, [first, second], [KeyRange(0.0, 1.0)])
        (merged,) = store.describe(name).tail.offsets
        texts[merged] = [f"merged-{n}" for n in range(20)]
        append_events(store, name, merged, [text.encode() for text in texts[merged]])
    return [text for held in texts.values() for text in held]


def grow(store: StreamStore, name: StreamName, turn: int) -> list[str]:
    """Split a stream's newest segment in two, and append events to all; return their texts."""
    ranges = store.describe(name).epochs[-1].segments
    held = ranges[newest := max(ranges)]
    middle = (held.low + held.high) / 2
    store.scale(name, [newest], [KeyRange(held.low, middle), KeyRange(middle, held.high)])
    texts = {s: [f"turn-{turn}-{s.number}-{n}" for n in range(30)] for s in store.describe(name).tail.offsets}
    for segment, added in texts.items():
        append_events(store, name, segment, [text.encode() for text in added])
    return [text for added in texts.values() for text in added]


def use_name(store: StreamStore, name: StreamName) -> None:
    """Let the next stream of this name get other segment numbers than a first one gets."""
    store.create_stream_and_scope(name, StreamConfiguration(Scaling(min_segments=2)))
    store.delete(name)


def carried(printed: str) -> dict[str, Any]:
    """What a report says of the only group."""
    (one,) = json.loads(printed)["reader_groups"]
    assert one["name"] == GROUP
    return dict(one)


def test_a_killed_readers_group_goes_on_in_a_copy(
    here: Site, java_client: JavaClient, scope_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """One segment is read to its end, and its successor waits for the other one."""
    source, copied = StreamName(scope_name, "source"), StreamName(f"{scope_name}-2", "copy")
    texts = make(here.store, source)
    group = Group(java_client, here, source)
    group.run("create", "checkpoints:r1:3", "read:r1:5", "halt")
    assert group.reading.events
    copy = ["copy", here.uri(source), here.uri(copied), "--reader-groups", "--master", "inline"]
    assert main(copy) == 0
    assert f"reader group {GROUP}: created" in capfd.readouterr().out
    assert main(["translate", here.uri(source), here.uri(copied), "--reader-group", GROUP]) == 0
    cut = StreamCut.from_json(capfd.readouterr().out)
    assert [segment.epoch for segment in cut.offsets] == [1, 1]
    assert main([*copy, "--json"]) == 0
    again = {"name": GROUP, "outcome": "present", "position": cut.to_json(), "reason": ""}
    assert carried(capfd.readouterr().out) == again
    group.moved(copied).read_on("create")
    assert sorted(group.reading.events) == sorted(texts)


def test_a_group_goes_on_in_a_restored_stream(
    here: Site, java_client: JavaClient, scope_name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The source is gone. Under its own name, segments get other numbers, and its old group is deleted before."""
    source = StreamName(scope_name, "source")
    texts = make(here.store, source)
    group = Group(java_client, here, source)
    group.run("create", "checkpoints:r1:3", "read:r1:5", "halt")
    root = f"file://{tmp_path}/vault"
    assert main(["export", here.uri(source), root, "--reader-groups", "--master", "inline"]) == 0
    here.store.delete(source)
    group.run("delete")
    capfd.readouterr()
    command = ["import", f"{root}/{source}", here.uri(source), "--reader-groups", "--master", "inline", "--json"]
    assert main([*command, "--numbers", "map"]) == 0
    printed = capfd.readouterr().out
    assert carried(printed)["outcome"] == "created"
    assert json.loads(printed)["renumbered"]
    group.moved(source).read_on("create")
    assert sorted(group.reading.events) == sorted(texts)


@pytest.mark.parametrize("cut_over", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_group_goes_on_after_a_replication_that_followed(
    here: Site, java_client: JavaClient, scope_name: str, capfd: pytest.CaptureFixture[str], cut_over: bool
) -> None:
    """The replication gives way to a promotion that seals the source, or ends, and then the source is lost."""
    source, replica = StreamName(scope_name, "source"), StreamName(f"{scope_name}-2", "replica")
    use_name(here.store, replica)
    texts = make(here.store, source)
    group = Group(java_client, here, source)
    promote = ["promote", here.uri(replica), "--reader-groups", "--master", "inline", "--json"]

    def wait_until_recorded(wanted: Callable[[Any], bool]) -> None:
        while True:
            code, printed = main([*promote, "--dry-run"]), capfd.readouterr().out
            if code == 0 and any(wanted(one["position"]) for one in json.loads(printed)["reader_groups"]):
                return
            with suppress(TimeoutError):
                pytest.fail(f"it ended: {following.result(timeout=0.5)}")

    group.run("create", "read:r1:1", "halt")
    with ThreadPoolExecutor(1) as pool:
        options: dict[str, Any] = {"follow": True, "reader_groups": True, "master": "inline"}
        following = pool.submit(replicate_stream, here.uri(source), here.uri(replica), **options)
        wait_until_recorded(lambda held: held is not None)
        group.run("offline:r1", "checkpoints:r2:3", "read:r2:5", "halt")
        (position,) = translate(here.uri(source), here.uri(replica), reader_groups=[GROUP]).positions
        wait_until_recorded(lambda held: held == position.new)
        if cut_over:
            assert main([*promote, "--seal-source"]) == 0
        else:
            here.store.seal(source)
        assert following.result(timeout=60).ended == "sealed"
    if not cut_over:
        here.store.delete(source)
        assert main(promote) == 0
    created = carried(capfd.readouterr().out)
    assert (created["outcome"], created["position"]) == ("created", position.new)
    group.moved(replica).read_on("create")
    assert sorted(group.reading.events) == sorted(texts)


@pytest.mark.parametrize(
    ("kills", "moves"), [(2, 1), pytest.param(5, 10, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_killed_readers_go_on_after_moves(
    here: Site,
    there: Site,
    java_client: JavaClient,
    scope_name: str,
    capfd: pytest.CaptureFixture[str],
    kills: int,
    moves: int,
) -> None:
    """Each killed reader's successor goes on at the last checkpoint, and so does the group in the moved stream.

    There, the segments have other numbers.
    """
    group = Group(java_client, here, StreamName(f"{scope_name}-0", "orders"))
    texts = make(here.store, group.stream, long=200 * kills * moves)
    for move in range(moves):
        for kill in range(kills):
            before = [f"offline:r{kill - 1}"] if kill else ["create"]
            group.run(*before, f"checkpoints:r{kill}:2", f"read:r{kill}:7", "halt")
        if move:
            texts += grow(here.store, group.stream, move)
        target, site = StreamName(f"{scope_name}-{move + 1}", "orders"), there if moves == 1 else here
        use_name(site.store, target)
        command = ["move", group.site.uri(group.stream), site.uri(target), "--reader-groups", "--master", "inline"]
        assert main([*command, "--json"]) == 0
        assert carried(capfd.readouterr().out)["outcome"] == "created"
        group = group.moved(target, site)
    group.read_on("create")
    assert sorted(group.reading.events) == sorted(texts)


def test_a_group_that_nobody_has_read_with(here: Site, java_client: JavaClient, scope_name: str) -> None:
    """It is at the stream's head, reads no other stream, and is not moved by one of its name."""
    source, other = StreamName(scope_name, "source"), StreamName(scope_name, "other")
    make(here.store, source, waiting=False)
    make(here.store, other, waiting=False)
    Group(java_client, here, source).run("create")
    groups, described = here.store.reader_groups(), here.store.describe(source)
    assert look_at_group(here.store, source, GROUP) == described.head
    for name, what in (("nobody", "no such reader group"), (GROUP, f"reader group {GROUP} does not read the stream")):
        with pytest.raises(Problem, match=what) as raised:
            translate(here.uri(other), here.uri(source), reader_groups=[name])
        assert raised.value.exit_code == 2
    found = groups.find(scope_name, GROUP)
    assert found is not None
    assert groups.create(replace(found, id=uuid4()), described.tail) == found
    assert groups.position(found, source) == GroupPosition(source, described.head.offsets)


def test_a_group_that_has_read_a_sealed_stream_is_at_its_end(
    here: Site, java_client: JavaClient, scope_name: str
) -> None:
    """The client forgets segments that have no successors."""
    source = StreamName(scope_name, "source")
    texts = make(here.store, source, waiting=False, long=20)
    here.store.seal(source)
    Group(java_client, here, source).run("create", f"read:r:{len(texts)}", "checkpoints:r:2", "close:r")
    groups = here.store.reader_groups()
    found = groups.find(scope_name, GROUP)
    assert found is not None
    assert groups.position(found, source) == GroupPosition(source, {})
    assert look_at_group(here.store, source, GROUP) == here.store.describe(source).tail
