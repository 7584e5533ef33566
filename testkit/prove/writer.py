"""A process that appends numbered events of many keys to a stream at a constant rate, through scales and outages.

It logs what was acknowledged, several times a second, and ends when the stream is sealed, or at SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from streamvault.streamstore.errors import OffsetConflict, SegmentSealed, StreamStoreError, StreamStoreUnavailable
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.routing import SegmentRouter, key_position
from streamvault.streamstore.store import SegmentAppender, StreamStore
from streamvault.streamstore.uri import parse_stream

KEYS = 200
TICK = 0.05
"""Seconds between batches, each of which has one block for each segment."""
LOGGED = 0.25
"""Seconds between lines of the log."""
MOST = 1000
"""Events of a batch: after an outage the writer catches up, but not all at once."""
HEADER = 8
AGAIN = 0.2
"""Seconds before a block is tried again."""


@dataclass(frozen=True)
class Load:
    """What a writer writes.

    Attributes:
        rate: events per second. size: bytes of an event's payload.
        phase: seconds for which only the lower half of the key space is written to, then only the upper half, then all
            of it. seed: of the keys' order.
    """

    rate: float = 2000
    size: int = 1024
    phase: float = 10
    seed: int = 7

    @property
    def stored(self) -> int:
        """Bytes that an event takes in a segment."""
        return self.size + HEADER


@dataclass
class _Block:
    segment: SegmentId
    start: int
    data: bytes
    keys: Counter[str]

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclass
class _Writer:
    store: StreamStore
    name: StreamName
    load: Load
    log: TextIO
    written: dict[str, int]
    stopped: threading.Event

    def __post_init__(self) -> None:
        self._random = random.Random(self.load.seed)
        self._appenders: dict[SegmentId, SegmentAppender] = {}
        keys = list(self.written)
        halves = [[key for key in keys if (key_position(key) < 0.5) is low] for low in (True, False)]
        self._phases = [*halves, keys]
        self._router = SegmentRouter({})
        self._is_outdated = False  # whether a segment of the router is sealed
        self._logged = 0.0

    def run(self) -> str:
        """Write until the stream is sealed or this is told to stop; return which."""
        is_open = self._route()
        self._tell()
        began, done = time.monotonic(), 0
        while is_open and not self.stopped.is_set():
            elapsed = time.monotonic() - began
            count = min(int(elapsed * self.load.rate) - done, MOST)
            if count > 0:
                keys = self._phases[int(elapsed / self.load.phase) % len(self._phases)]
                written, is_open = self._write(self._random.choices(keys, k=count))
                done += written
            self._tell()
            if count < MOST:
                self.stopped.wait(TICK)
        self._tell(always=True)
        for appender in self._appenders.values():
            appender.close()
        return "stopped" if is_open else "sealed"

    def _tell(self, *, always: bool = False) -> None:
        now = time.time()
        if always or now - self._logged >= LOGGED:
            self._logged = now
            self.log.write(json.dumps([now, *self.written.values()]) + "\n")
            self.log.flush()

    def _route(self) -> bool:
        """Look which segments are open; False if none will be any more."""
        while True:
            try:
                described = self.store.describe(self.name)
                break
            except StreamStoreUnavailable:
                if self.stopped.wait(AGAIN):
                    return True
        self._router = SegmentRouter(described.epochs[-1].segments)
        self._is_outdated = False
        for segment in self._appenders.keys() - {*self._router.segments}:
            self._drop(segment)
        return not described.sealed

    def _write(self, keys: list[str]) -> tuple[int, bool]:
        """Append an event of each key; return how many were written, and whether the stream is open."""
        batches: dict[SegmentId, list[str]] = {}
        for key in keys:
            batches.setdefault(self._router.segments[self._router.index_of(key)], []).append(key)
        sent = [block for segment, mine in batches.items() if (block := self._send(segment, mine)) is not None]
        written = 0
        for block in sent:
            if self._is_written(block):
                written += block.keys.total()
                for key, count in block.keys.items():
                    self.written[key] += count
        return written, not self._is_outdated or self._route()

    def _send(self, segment: SegmentId, keys: list[str]) -> _Block | None:
        """Send a block and do not wait; None if the segment is sealed."""
        data, counted = bytearray(), Counter[str]()
        for key in keys:
            text = f"{key} {self.written[key] + counted[key]} "
            data += frame(text.encode().ljust(self.load.size, b"."))
            counted[key] += 1
        appender = self._appender(segment)
        if appender is None:
            return None
        block = _Block(segment, appender.offset, bytes(data), counted)
        try:
            appender.append(block.data)
        except StreamStoreError:
            self._drop(segment)  # the block is in doubt
        return block

    def _appender(self, segment: SegmentId) -> SegmentAppender | None:
        """The segment's open appender; None if the segment is sealed."""
        while segment not in self._appenders:
            try:
                self._appenders[segment] = self.store.appender(self.name, segment)
            except SegmentSealed:
                self._is_outdated = True
                return None
            except StreamStoreUnavailable:
                if self.stopped.wait(AGAIN):
                    return None
        return self._appenders[segment]

    def _is_written(self, block: _Block) -> bool:
        """Wait until a block that was sent is in the segment, or is known never to be."""
        if block.segment in self._appenders:
            try:
                self._appenders[block.segment].flush()
            except StreamStoreError:
                self._drop(block.segment)
            else:
                return True
        while not self.stopped.is_set():
            try:
                # a late copy of the block may still be on its way, so no other block takes its place
                with self.store.appender(self.name, block.segment) as appender:
                    if appender.offset < block.end:
                        appender.append(block.data)
            except SegmentSealed:
                self._is_outdated = True
                return self.store.segment_info(self.name, [block.segment])[0].write_offset >= block.end
            except OffsetConflict:
                continue
            except StreamStoreUnavailable:
                self.stopped.wait(AGAIN)
            else:
                return True
        return False

    def _drop(self, segment: SegmentId) -> None:
        self._appenders.pop(segment).close()


@dataclass(frozen=True)
class Sample:
    """What was acknowledged at a time: seconds since 1970, key → how many events."""

    time: float
    written: Mapping[str, int]


class WriterProcess:
    """A running writer."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, keys: list[str]) -> None:
        self._process, self._log, self._keys = process, log, keys

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def samples(self) -> list[Sample]:
        """What it has logged, oldest first."""
        lines = self._log.read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [Sample(at, dict(zip(self._keys, counts, strict=True))) for at, *counts in found]

    def ended(self, limit: float = 120.0) -> str:
        """Wait until it has ended; return why: ``sealed`` or ``stopped``."""
        out, err = self._process.communicate(timeout=limit)
        if self._process.returncode != 0:
            raise RuntimeError(f"the writer failed with {self._process.returncode}: {err.decode()[-2000:]}")
        return out.decode().strip()

    def stop(self) -> Sample:
        """End it and return what was acknowledged."""
        self._process.send_signal(signal.SIGTERM)
        self.ended()
        return self.samples()[-1]

    def kill(self) -> None:
        """End it as a crash would."""
        if self.running:
            self._process.kill()
        self._process.wait()


@contextmanager
def writing(uri: str, folder: Path, load: Load, *, after: Mapping[str, int] | None = None) -> Iterator[WriterProcess]:
    """A writer that runs in the background, from when it has found its stream.

    Args:
        uri: the stream. folder: for its log. load: what to write.
        after: key → how many events there are already.
    """
    start = dict(after) if after is not None else {f"key-{number}": 0 for number in range(KEYS)}
    log = folder / f"written-{time.monotonic_ns()}"
    log.touch()
    settings = {"uri": uri, "log": str(log), "after": start, **vars(load)}
    process = subprocess.Popen(
        [sys.executable, "-m", "testkit.prove.writer", json.dumps(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    writer = WriterProcess(process, log, list(start))
    try:
        while writer.running and not log.stat().st_size:
            time.sleep(TICK)
        yield writer
    finally:
        writer.kill()


def numbers_of(payload: bytes) -> tuple[str, int]:
    """Return an event's key and number."""
    key, number, _ = payload.split(b" ", 2)
    return key.decode(), int(number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", type=json.loads)
    settings = parser.parse_args().settings
    uri, log, after = (settings.pop(name) for name in ("uri", "log", "after"))
    address, name = parse_stream(uri)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with address.open() as store, Path(log).open("a") as file:
        writer = _Writer(store, name, Load(**settings), file, after, stopped)
        print(writer.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
