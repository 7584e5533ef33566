"""Reader groups of the Java client go on in another stream where they were: none skipped, none repeated too early."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest

from streamvault import copy_stream, translate
from streamvault.cli import main
from streamvault.common.errors import Problem
from streamvault.streamstore.model import KeyRange, Scaling, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.store import StreamStore
from tests.integration.conftest import Site
from tests.servers.java_client import JavaClient
from tests.streams import append_events, events_of

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

    def lose(self) -> None:
        """Forget what a killed reader has read since its last checkpoint: the group reads it again."""
        del self.events[self.sure :]

    def add(self, lines: Sequence[str]) -> None:
        for line in lines:
            if line.startswith(("checkpoint ", "done close:")):
                self.sure = len(self.events)
            elif not line.startswith("done "):
                self.events.append(line.rpartition(" ")[2])


@dataclass
class Group:
    """A group of Java readers on a stream."""

    java: JavaClient
    site: Site
    stream: StreamName
    reading: Reading = field(default_factory=Reading)

    def run(self, *steps: str) -> None:
        self.reading.add(self.java.run("ReaderGroups", self.site.server, self.stream, GROUP, *steps))


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


def count_after(store: StreamStore, cut: StreamCut) -> int:
    """How many events a stream has after a cut that names no segment beyond the first ones."""
    begins = [(pointer.segment, pointer.offset) for pointer, _ in events_of(store, cut.stream)]
    return sum(segment > max(cut.offsets) or offset >= cut.offsets[segment] for segment, offset in begins)


def check(before: Reading, after: Reading, texts: Sequence[str]) -> None:
    """Nothing is skipped, nothing that was sure is repeated, and each reading has nothing twice."""
    assert set(before.events) | set(after.events) == set(texts)
    assert set(after.events).isdisjoint(before.events[: before.sure])
    assert len(after.events) == len(set(after.events))


def test_a_killed_readers_group_goes_on_in_a_copy(
    here: Site, java_client: JavaClient, scope_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """One segment is read to its end, and its successor waits for the other one."""
    source, copied = StreamName(scope_name, "source"), StreamName(f"{scope_name}-2", "copy")
    texts = make(here.store, source)
    group, goes_on = Group(java_client, here, source), Group(java_client, here, copied)
    group.run("create", "checkpoints:r1:3", "read:r1:5", "halt")
    assert group.reading.sure
    copy = ["copy", here.uri(source), here.uri(copied), "--reader-groups", "--master", "inline"]
    assert main(copy) == 0
    assert f"reader group {GROUP}: created" in capfd.readouterr().out
    assert main(["translate", here.uri(source), here.uri(copied), "--reader-group", GROUP]) == 0
    cut = StreamCut.from_json(capfd.readouterr().out)
    assert [segment.epoch for segment in cut.offsets] == [1, 1]
    assert main([*copy, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["reader_groups"] == [{"name": GROUP, "outcome": "present", "position": cut.to_json(), "reason": ""}]
    goes_on.run("create", f"read:r2:{count_after(here.store, cut)}", "delete")
    check(group.reading, goes_on.reading, texts)


def test_a_group_goes_on_in_a_promoted_replica(
    here: Site, java_client: JavaClient, scope_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The source is gone; what was read after the last round is read again."""
    source, replica = StreamName(scope_name, "source"), StreamName(f"{scope_name}-2", "replica")
    texts = make(here.store, source, waiting=False, long=80)
    group, goes_on = Group(java_client, here, source), Group(java_client, here, replica)
    group.run("create", "read:r1:20", "close:r1")
    uris = [here.uri(source), here.uri(replica)]
    assert main(["replicate", *uris, "--reader-groups", "--master", "inline"]) == 0
    here.store.delete(source)
    capfd.readouterr()
    assert main(["promote", here.uri(replica), "--reader-groups", "--json"]) == 0
    (carried,) = json.loads(capfd.readouterr().out)["reader_groups"]
    assert carried["outcome"] == "created"
    goes_on.run("create", f"read:r2:{len(texts) - 20}", "delete")
    check(group.reading, goes_on.reading, texts)


@pytest.mark.parametrize("turns", [2, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_killed_readers_go_on_after_a_move(
    here: Site, there: Site, java_client: JavaClient, scope_name: str, capfd: pytest.CaptureFixture[str], turns: int
) -> None:
    """To another cluster; each turn a reader is killed, and the group goes on at the reader's last checkpoint."""
    source, target = StreamName(scope_name, "source"), StreamName(f"{scope_name}-2", "target")
    texts = make(here.store, source, long=150 * turns)
    group, goes_on = Group(java_client, here, source), Group(java_client, there, target)
    group.run("create")
    for turn in range(turns):
        offline = [f"offline:r{turn - 1}"] if turn else []
        group.run(*offline, f"checkpoints:r{turn}:2", f"read:r{turn}:7", "halt")
        group.reading.lose()
    assert main(["move", here.uri(source), there.uri(target), "--reader-groups", "--master", "inline", "--json"]) == 0
    (carried,) = json.loads(capfd.readouterr().out)["reader_groups"]
    assert (carried["name"], carried["outcome"]) == (GROUP, "created")
    left = count_after(there.store, StreamCut.from_json(carried["position"]))
    goes_on.run("create", f"read:r:{left}", "delete")
    check(group.reading, goes_on.reading, texts)


def test_a_group_that_is_there_is_left_as_it_is(here: Site, java_client: JavaClient, scope_name: str) -> None:
    source = StreamName(scope_name, "source")
    texts = make(here.store, source, waiting=False)
    group = Group(java_client, here, source)
    group.run("create", "read:r1:20", "close:r1")
    groups = here.store.reader_groups()
    found = groups.find(scope_name, GROUP)
    assert found is not None
    other = replace(found, id=uuid4())
    assert groups.create(other, here.store.describe(source).tail) == found
    group.run("create", f"read:r2:{len(texts) - 20}")
    assert sorted(group.reading.events) == sorted(texts)


@pytest.mark.parametrize(
    ("name", "what"),
    [("nobody", "no such reader group"), (GROUP, f"the reader group {GROUP} does not read the stream")],
)
def test_groups_that_do_not_read_the_stream(
    here: Site, java_client: JavaClient, scope_name: str, name: str, what: str
) -> None:
    source, other = StreamName(scope_name, "source"), StreamName(scope_name, "other")
    make(here.store, source, waiting=False)
    copy_stream(here.uri(source), here.uri(other), master="inline")
    Group(java_client, here, source).run("create")
    with pytest.raises(Problem, match=what) as raised:
        translate(here.uri(other), here.uri(source), reader_groups=[name])
    assert raised.value.exit_code == 2
    begun = translate(here.uri(source), here.uri(other), reader_groups=[GROUP]).positions[0]
    assert begun.new == StreamCut(other, here.store.describe(other).head.offsets).to_json()
    assert begun.reader_group == GROUP
