"""Producers and consumers of a durable queue are killed again and again: nothing is lost, the order is kept, and what
is handed out twice is the last batch that was handled and not noted.

`--kills 10` puts 100,000 entries in and kills ten times.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from streamvault.streamstore.queue import (
    MAX_ENTRY_BYTES,
    OVERHEAD_BYTES,
    Consumer,
    Producer,
    QueueEntry,
    QueueSegment,
    encode_entry,
)
from streamvault.streamstore.uri import parse_stream
from testkit.servers.pravega import PravegaServer

KILLS, ENTRIES = 3, 1_500
MANY_KILLS, MANY_ENTRIES = 10, 100_000
LARGEST_PUT = 100
HANDLING_SECONDS = 0.005
"""The pause of a handler after it has recorded its entries: a good moment for a kill."""
LIMIT = MAX_ENTRY_BYTES + OVERHEAD_BYTES
LINE = re.compile(r"(\d+) (\d+) (\d+) (\d+)\Z")


def produce(uri: str, life: int, count: int) -> None:
    """Add numbered entries in batches; print after each put how many are stored."""
    address, name = parse_stream(uri)
    rng, done = random.Random(life), 0
    with address.open() as store:
        producer = Producer(QueueSegment.open(store, name), limit=LIMIT, wait_seconds=200)
        while done < count:
            size = min(rng.randrange(1, LARGEST_PUT + 1), count - done)
            contents = [b"%d %d %s" % (life, number, b"." * rng.randrange(60)) for number in range(done, done + size)]
            producer._attempts(producer._append, b"".join(map(encode_entry, contents)))
            done += size
            print(done, flush=True)


def consume(uri: str, log: Path) -> None:
    """Record the entries received, until killed."""
    address, name = parse_stream(uri)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def handler(batch: Sequence[QueueEntry]) -> None:
        lines = [b"%d %d %s %s" % (e.offset, e.end, *e.content.split()[:2]) for e in batch]
        peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
        os.write(handle, b"\n".join([*lines, b"batch %d\n" % peak]))
        time.sleep(HANDLING_SECONDS)

    with (
        address.open() as store,
        Consumer(QueueSegment.open(store, name), wait_seconds=60, batch_entries=64) as consumer,
    ):
        os.write(handle, b"\nrun\n")
        consumer.run(handler)


@dataclass
class Run:
    """The records of one consumer: batches of (offset, end, life, number)."""

    batches: list[list[tuple[int, int, int, int]]] = field(default_factory=list)
    peak_kib: int = 0


def runs_of(log: Path) -> list[Run]:
    runs: list[Run] = []
    batch: list[tuple[int, int, int, int]] = []
    for line in log.read_text().splitlines():
        if line == "run":
            runs.append(Run())
            batch = []
        elif line.startswith("batch"):
            runs[-1].batches.append(batch)
            runs[-1].peak_kib = int(line.split()[1])
            batch = []
        elif match := LINE.match(line):
            offset, end, life, number = map(int, match.groups())
            batch.append((offset, end, life, number))
    return [run for run in runs if run.batches]


class Child:
    """A producer or a consumer in a process of its own."""

    def __init__(self, *arguments: str, output: Path | None = None) -> None:
        self.output = output
        command = [sys.executable, "-m", "tests.faults.test_kill_queue", *arguments]
        with (output or Path(os.devnull)).open("wb") as out:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out)

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Ground:
    """One queue, its producer and its consumer."""

    def __init__(self, uri: str, folder: Path, entries: int) -> None:
        self.uri = uri
        self.log = folder / "log"
        self._folder = folder
        self._entries = entries
        self._lives: list[Path] = []
        self.start_producer()
        self.start_consumer()

    def safe(self) -> list[int]:
        """How many entries each producer was told are stored."""
        lines = [path.read_text().split("\n")[:-1] for path in self._lives]
        return [int(said[-1]) if said else 0 for said in lines]

    def handled(self) -> int:
        return self.log.read_bytes().count(b"\n") if self.log.exists() else 0

    def start_producer(self) -> None:
        left, output = self._entries - sum(self.safe()), self._folder / f"life-{len(self._lives)}"
        self.producer = Child("produce", self.uri, str(len(self._lives)), str(left), output=output)
        self._lives.append(output)

    def start_consumer(self) -> None:
        self.consumer = Child("consume", self.uri, str(self.log))


@contextmanager
def started(uri: str, folder: Path, entries: int) -> Iterator[Ground]:
    ground = Ground(uri, folder, entries)
    try:
        yield ground
    finally:
        ground.producer.kill()
        ground.consumer.kill()


def wait_for(ground: Ground, happened: Callable[[], bool], limit: float = 240.0) -> None:
    deadline = time.monotonic() + limit
    while not happened():
        assert ground.consumer.code is None, "the consumer ended"
        assert ground.producer.code in {None, 0}, "the producer failed"
        assert time.monotonic() < deadline, "it stands still"
        time.sleep(0.005)


def check(runs: list[Run], safe: list[int], end: int) -> int:
    """None lost, order kept; returns how many were delivered twice."""
    seen: dict[int, tuple[int, int, int]] = {}
    repeated, may_begin = 0, {0}
    for run in runs:
        flat = [entry for batch in run.batches for entry in batch]
        assert flat[0][0] in may_begin, "it begins where the last batch was noted, or the one before"
        assert all(one[1] == other[0] for one, other in pairwise(flat)), "in order, without a hole"
        may_begin = {run.batches[-1][0][0], flat[-1][1]}
        for offset, *what in flat:
            repeated += offset in seen
            assert seen.setdefault(offset, tuple(what)) == tuple(what)  # type: ignore[arg-type, comparison-overlap]
    ordered = [seen[offset] for offset in sorted(seen)]
    assert ordered[-1][0] == end, "all that was put in was handed out"
    found: dict[int, list[int]] = {}
    for _, life, number in ordered:
        assert not found or life >= max(found), "one producer after the other"
        found.setdefault(life, []).append(number)
    for life, count in enumerate(safe):
        numbers = found.get(life, [])
        assert numbers == list(range(len(numbers))), "each once, in order"
        assert count <= len(numbers) <= count + LARGEST_PUT, "what was said to be safe, and at most the put under way"
    return repeated


def shake(uri: str, folder: Path, kills: int, entries: int, seed: int) -> None:
    rng, began = random.Random(seed), time.monotonic()
    address, name = parse_stream(uri)
    with address.open() as store:
        queue = QueueSegment.create(store, name)
        with started(uri, folder, entries) as ground:
            for number in range(kills):
                moment = entries * (number + rng.random()) / (kills + 1)
                wait_for(ground, lambda moment=moment: ground.handled() >= moment)
                time.sleep(rng.uniform(0, 0.01))
                who = ("consumer", "producer", "both")[number % 3]
                if who != "producer":
                    ground.consumer.kill()
                if who != "consumer":
                    ground.producer.kill()
                    ground.start_producer()
                if who != "producer":
                    ground.start_consumer()
            wait_for(ground, lambda: ground.producer.code == 0)
            wait_for(ground, lambda: not queue.outstanding())
        runs, safe = runs_of(ground.log), ground.safe()
        end = queue.info().write_offset
    assert sum(safe) == entries
    repeated = check(runs, safe, end)
    assert len(runs) > 1
    seconds, peaks = time.monotonic() - began, [run.peak_kib // 1024 for run in runs]
    print(
        f"{entries} entries, {kills} kills, {len(safe)} producers, {len(runs)} consumers: none lost, "
        f"{repeated} handed out twice, {seconds:.0f} s, consumers' peaks {peaks} MiB"
    )


def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    asked = int(request.config.getoption("kills", default=0))
    return (asked, MANY_ENTRIES) if asked >= MANY_KILLS else (KILLS, ENTRIES)


@pytest.mark.timeout(900)
def test_killed_consumers_of_an_embedded_queue_lose_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    shake(f"local://{tmp_path}/store/scope/queue", tmp_path, *size(request), seed)


@pytest.mark.pravega
@pytest.mark.timeout(900)
def test_killed_consumers_of_a_pravega_queue_lose_nothing(
    pravega: PravegaServer, scope_name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    shake(f"{pravega.uri}/{scope_name}/queue", tmp_path, *size(request), seed)


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        produce(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        consume(sys.argv[2], Path(sys.argv[3]))
