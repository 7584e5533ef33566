"""Replicas of a stream under a steady writer, between two real Pravegas: a cut-over, and a source that is lost.

The source is scaled and truncated, its segment store and the replication are killed, at random moments. Then the
replica is promoted and compared, key by key, with what was acknowledged to the writer.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from streamvault.streamstore.errors import ScaleRefused
from streamvault.streamstore.model import (
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.commands import Command, run, started
from testkit.prove.servers import Tried, Wrong, try_kind
from testkit.prove.writer import Load, Sample, numbers_of, writing
from testkit.servers.availability import Unavailable
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_cluster import PravegaCluster
from testkit.streams import events_of

MIB = 1024 * 1024
LONG = 300.0
"""Seconds of writing from which on Pravega's own auto-scaler and retention have the time to do their work."""
AUTO_SCALED = Scaling(ScaleKind.BY_KBYTES, target=100, factor=3, min_segments=2)
RETAINED = 100 * MIB
EAGER = {
    "autoScale.cooldown.time.seconds": "0",
    "autoScale.mute.time.seconds": "5",
    # a segment that nobody has written to for so long may be merged
    "autoScale.cache.expiry.seconds": "40",
    "autoScale.cache.cleanUp.interval.seconds": "10",
}
LIMIT = 600.0
LAST = ("--master", "inline", "--json")
POLL = 0.1


@dataclass(frozen=True)
class Course:
    """How a try goes.

    Attributes:
        seconds: how long the source is written to. kills: of the replication in that time. restarts: of the source's
            segment store. rate: events of 1 KiB per second.
    """

    seconds: float = 20.0
    kills: int = 2
    restarts: int = 1
    rate: float = 2000.0

    @property
    def is_long(self) -> bool:
        """Whether Pravega itself scales and truncates; in a short course this program does."""
        return self.seconds >= LONG

    def load(self, rng: random.Random) -> Load:
        """What the writer writes."""
        return Load(rate=self.rate, phase=self.seconds / 3.5, seed=rng.randrange(2**32))


@dataclass
class Clusters:
    """A source's Pravega whose segment store can be killed, and a target's.

    Attributes:
        figures: what the tries have measured, a line each.
    """

    source: PravegaCluster
    target: PravegaServer
    figures: list[str] = field(default_factory=list)


class Pair:
    """A stream on the source's Pravega and its replica on the target's. A context manager."""

    def __init__(self, source: PravegaCluster, target: PravegaServer, course: Course) -> None:
        self.name = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "orders")
        self.source, self.target = f"{source.uri}/{self.name}", f"{target.uri}/{self.name}"
        self._open = ExitStack()
        self.source_store = self._store(self.source)
        self.target_store = self._store(self.target)
        self.folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="streamvault-proof-")))
        self.source_store.create_scope(self.name.scope)
        configuration = StreamConfiguration(scaling=Scaling(min_segments=2))
        if course.is_long:
            configuration = replace(
                configuration, scaling=AUTO_SCALED, retention=Retention(RetentionKind.SIZE, minimum=RETAINED)
            )
        self.source_store.create_stream(self.name, configuration)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def replicate(self) -> tuple[str, ...]:
        return ("replicate", self.source, self.target, "--follow", *LAST)

    def lag(self) -> dict[str, Any]:
        """What the replication reports of how far it is behind."""
        return run("replicate", self.source, self.target, "--dry-run", *LAST, environment=os.environ).report

    def promote(self, *options: str) -> dict[str, Any]:
        ended = run("promote", self.target, *options, *LAST, environment=os.environ, limit=LIMIT)
        if ended.code != 0:
            raise Wrong("other", f"promote failed with {ended.code}: {ended.out}{ended.err[-600:]}")
        return ended.report

    def _store(self, uri: str) -> StreamStore:
        return self._open.enter_context(parse_stream(uri)[0].open())


class Replicating:
    """A replication that is killed and started again. A context manager.

    Attributes:
        kills: how often it was killed.
    """

    def __init__(self, pair: Pair, rng: random.Random) -> None:
        self._pair, self._rng = pair, rng
        self._stack = ExitStack()
        self.kills = 0
        self._running = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> Command:
        return self._stack.enter_context(started(*self._pair.replicate, environment=os.environ))

    def kill(self, *, again: bool = True) -> None:
        """Kill it; start it ``again`` after a moment."""
        if not self._running.running:
            ended = self._running.ended()
            raise Wrong("other", f"the replication ended with {ended.code}: {ended.out}{ended.err[-600:]}")
        self._running.send(signal.SIGKILL)
        self._running.ended()
        self.kills += 1
        if again:
            time.sleep(2 * self._rng.random())
            self._running = self._start()

    def ended(self) -> dict[str, Any]:
        """Wait for its end; its report."""
        ended = self._running.ended(LIMIT)
        if ended.code != 0:
            raise Wrong("other", f"the replication failed with {ended.code}: {ended.out}{ended.err[-600:]}")
        return ended.report


class Disturbing(threading.Thread):
    """Does things to the source at random moments.

    Attributes:
        error: what ended it early. done: how often each was done.
    """

    def __init__(self, pair: Pair, course: Course, rng: random.Random, restart: Callable[[], None] | None) -> None:
        super().__init__(daemon=True)
        self._pair, self._rng = pair, rng
        moments = [(course.seconds * (0.1 + 0.85 * rng.random()), "scale") for _ in range(int(course.seconds / 4))]
        moments += [(course.seconds * (number + 1) / 5, "truncate") for number in range(5)]
        if course.is_long:
            moments = []
        if restart is not None:
            share = 1 / max(1, course.restarts)
            for number in range(course.restarts):
                moments.append((course.seconds * (0.1 + 0.8 * share * (number + rng.random())), "restart"))
        self._moments = sorted(moments)
        self._restart = restart
        self._tails: list[StreamCut] = []
        self.error: BaseException | None = None
        self.done: dict[str, int] = defaultdict(int)

    def run(self) -> None:
        began = time.monotonic()
        try:
            for moment, what in self._moments:
                time.sleep(max(0.0, began + moment - time.monotonic()))
                {"scale": self._scale, "truncate": self._truncate, "restart": self._start_again}[what]()
                self.done[what] += 1
        except BaseException as error:  # noqa: BLE001  (whoever waits for the thread raises it)
            self.error = error

    def finish(self) -> None:
        """Wait until all is done."""
        self.join(LIMIT)
        if self.error is not None:
            raise self.error

    def _start_again(self) -> None:
        assert self._restart is not None
        self._restart()

    def _scale(self) -> None:
        """Split a segment, merge two, or seal one for another with the same range."""
        store, name = self._pair.source_store, self._pair.name
        held = sorted(store.describe(name).epochs[-1].segments.items(), key=lambda item: item[1].low)
        place, how = self._rng.randrange(len(held)), self._rng.random()
        low, high = held[place][1].low, held[place][1].high
        with suppress(ScaleRefused):
            if how < 0.4 and len(held) < 8:
                middle = low + (high - low) * (0.2 + 0.6 * self._rng.random())
                store.scale(name, [held[place][0]], [KeyRange(low, middle), KeyRange(middle, high)])
            elif how < 0.8 and place + 1 < len(held):
                pair = [held[place][0], held[place + 1][0]]
                store.scale(name, pair, [KeyRange(low, held[place + 1][1].high)])
            else:
                store.scale(name, [held[place][0]], [KeyRange(low, high)])

    def _truncate(self) -> None:
        """Truncate at the tail before the last one, as retention does."""
        store, name = self._pair.source_store, self._pair.name
        if len(self._tails) > 1:
            store.truncate(self._tails[-2])
        self._tails.append(store.describe(name).tail)


def writers_move(clusters: Clusters, course: Course, rng: random.Random) -> None:
    """Replicate a stream that is written to, scaled, truncated and killed; promote; go on in the replica."""

    def restart() -> None:
        clusters.source.kill_segment_store()
        time.sleep(5 * rng.random())
        clusters.source.start_segment_store()

    with Pair(clusters.source, clusters.target, course) as pair, ExitStack() as stack:
        load = course.load(rng)
        kills = sorted(course.seconds * (0.05 + 0.9 * rng.random()) for _ in range(course.kills))
        disturbing = Disturbing(pair, course, random.Random(rng.random()), restart if course.restarts else None)
        writer = stack.enter_context(writing(pair.source, pair.folder, load))
        replicating = stack.enter_context(Replicating(pair, rng))
        began = time.monotonic()
        disturbing.start()
        for moment in kills:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            replicating.kill()
        disturbing.finish()
        time.sleep(max(0.0, began + course.seconds - time.monotonic()))
        if not writer.running:
            raise Wrong("other", f"the writer has ended: {writer.ended()}")
        promoted = pair.promote("--seal-source")
        if writer.ended() != "sealed":
            raise Wrong("other", "the writer did not find its stream sealed")
        followed = replicating.ended()
        samples = writer.samples()
        at_source = numbers_by_key(pair.source_store, pair.name)
        is_whole(at_source, samples[-1].written, since=None, where="source")
        with writing(pair.target, pair.folder, load, after=samples[-1].written) as second:
            time.sleep(min(30.0, course.seconds / 4))
            last = second.stop()
        is_whole(
            numbers_by_key(pair.target_store, pair.name),
            last.written,
            since=oldest(at_source, samples[-1].written),
            where="target",
        )
        described = pair.source_store.describe(pair.name)
        clusters.figures.append(
            f"{total(last):,} events, {rate_of(samples):,.0f}/s at the source; {replicating.kills} kills, "
            f"{disturbing.done['restart']} restarts, {scales(described)}, head {head(at_source):,} events on; cut-over "
            f"{promoted['cutover_seconds']} s; lag of the last replication {followed['most_lag_seconds']} s at most"
        )


def source_lost(clusters: Clusters, course: Course, rng: random.Random) -> None:
    """The source's servers are killed for good while it is written to and replicated; promote; go on in the replica."""
    with (
        PravegaCluster() as source,
        Pair(source, clusters.target, replace(course, seconds=min(course.seconds, LONG - 1))) as pair,
        ExitStack() as stack,
    ):
        load = course.load(rng)
        disturbing = Disturbing(pair, replace(course, restarts=0, seconds=min(course.seconds, 60)), rng, None)
        writer = stack.enter_context(writing(pair.source, pair.folder, load))
        replicating = stack.enter_context(Replicating(pair, rng))
        began = time.monotonic()
        disturbing.start()
        disturbing.finish()
        time.sleep(max(0.0, began + course.seconds - time.monotonic()))
        asked = time.time()
        lag = pair.lag()
        time.sleep(2 * rng.random())
        source.kill()
        samples = writer.samples()
        writer.kill()
        time.sleep(2 * rng.random())
        replicating.kill(again=False)
        promoted = pair.promote()
        written = samples[-1].written
        found = numbers_by_key(pair.target_store, pair.name)
        is_whole(found, written, since=None, where="replica", may_end=True)
        has = {key: found[key][-1] + 1 if key in found else 0 for key in written}
        lost = sum(max(0, count - has[key]) for key, count in written.items())
        allowed = lag["behind_bytes"] + load.stored * (total(samples[-1]) - total(at(samples, asked)))
        if lost * load.stored > allowed:
            raise Wrong("lost", f"{lost} events, but the lag was {lag['behind_bytes']} bytes: {allowed} might be lost")
        for what, moment in (
            ("as of", datetime.fromisoformat(promoted["tail_time"]).timestamp()),
            # counted back from a moment after `asked` that is not known: the command takes time to start and to end
            ("lag", asked - lag["behind_seconds"]),
        ):
            before = at(samples, moment).written
            short = {key: count - has[key] for key, count in before.items() if has[key] < count}
            if short:
                raise Wrong("lost", f"{sum(short.values())} events of before the {what} time of the replica")
        with writing(pair.target, pair.folder, load, after=has) as second:
            time.sleep(min(10.0, course.seconds / 4))
            last = second.stop()
        is_whole(numbers_by_key(pair.target_store, pair.name), last.written, since=oldest(found, has), where="target")
        clusters.figures.append(
            f"{total(samples[-1]):,} events, {rate_of(samples):,.0f}/s; {lost:,} lost with the source; "
            f"reported before: {lag['behind_bytes']:,} bytes, {lag['behind_seconds']} s behind"
        )


def numbers_by_key(store: StreamStore, name: StreamName) -> dict[str, list[int]]:
    """Key → the numbers of its events that can be read, in the stream's order."""
    found: dict[str, list[int]] = defaultdict(list)
    for _, payload in events_of(store, name):
        key, number = numbers_of(payload)
        found[key].append(number)
    return dict(found)


def is_whole(
    found: Mapping[str, list[int]],
    written: Mapping[str, int],
    *,
    since: Mapping[str, int] | None,
    where: str,
    may_end: bool = False,
) -> None:
    """Check that each key's events are there once and in order; only the oldest may be missing, as truncated.

    Args:
        found: key → numbers. written: key → how many were acknowledged.
        since: key → the oldest number that must be there; None: any may be truncated.
        where: for messages. may_end: whether the newest may be missing too.

    Raises:
        Wrong: lost, doubled or out of order.
    """
    for key, count in written.items():
        numbers = found.get(key, [])
        first = numbers[0] if numbers else None
        if since is not None and since[key] < count and (first is None or first > since[key]):
            raise Wrong("lost", f"{where}: {key} begins with {first}, not with {since[key]}")
        for one, following in pairwise(numbers):
            if following != one + 1:
                how = "lost" if following > one else "doubled"
                raise Wrong(how, f"{where}: {key} has {following} after {one}")
        if numbers and numbers[-1] != count - 1 and not may_end:
            how = "lost" if numbers[-1] < count else "doubled"
            raise Wrong(how, f"{where}: {key} ends with {numbers[-1]}, {count} were acknowledged")


def oldest(found: Mapping[str, list[int]], written: Mapping[str, int]) -> dict[str, int]:
    """Key → the number of its first event that can be read, or of the next one that will be written."""
    return {key: found[key][0] if key in found else count for key, count in written.items()}


def total(sample: Sample) -> int:
    return sum(sample.written.values())


def at(samples: list[Sample], moment: float) -> Sample:
    """What was acknowledged at a moment, as far as the log tells."""
    return next((sample for sample in reversed(samples) if sample.time <= moment), samples[0])


def rate_of(samples: list[Sample]) -> float:
    return (total(samples[-1]) - total(samples[0])) / (samples[-1].time - samples[0].time)


def scales(described: StreamDescription) -> str:
    counts = [len(epoch.segments) for epoch in described.epochs]
    more = sum(after > before for before, after in pairwise(counts))
    fewer = sum(after < before for before, after in pairwise(counts))
    return f"{len(counts) - 1} scales ({more} to more segments, {fewer} to fewer; {max(counts)} at most)"


def head(found: Mapping[str, list[int]]) -> int:
    """How many events were truncated."""
    return sum(numbers[0] for numbers in found.values())


Kind = Callable[[Clusters, Course, random.Random], None]
KINDS: dict[str, Kind] = {"writers move to a replica": writers_move, "source lost under a writer": source_lost}


@contextmanager
def clusters_of(course: Course) -> Iterator[Clusters]:
    retention = 1 if course.is_long else 30
    with PravegaCluster(retention_minutes=retention, properties=EAGER) as source, PravegaServer() as target:
        yield Clusters(source, target)


def try_replicas(
    runs: int, seed: int, course: Course, seconds: float = 1e9, kinds: Mapping[str, Kind] = KINDS
) -> Tried:
    """Run each kind so often, while there is time; `Tried.absent` has what could not be tested and why."""
    tried, until = Tried(), time.monotonic() + seconds
    try:
        with clusters_of(course) as clusters:
            for number in range(runs):
                for name, kind in kinds.items():
                    if time.monotonic() < until:
                        told = len(clusters.figures)
                        called = f"{name}, {course.seconds:.0f} s"
                        try_kind(called, partial(kind, clusters, course), f"{seed} {name} {number}", tried)
                        for line in clusters.figures[told:]:
                            print(f"  {line}", file=sys.stderr, flush=True)
    except Unavailable as error:
        tried.absent["replicas"] = str(error)
    return tried
