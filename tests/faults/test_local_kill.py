"""Writers to the embedded store are killed repeatedly: acknowledged data is there, and nothing is torn.

Each writer goes on where the one before was killed. It appends blocks whose bytes follow from segment and offset alone,
scales, truncates, and says each step that it was told is done.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import frame
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName

NAME = StreamName("scope", "stream")
KILLS = 16
WRITERS = 2
STEPS_A_SEGMENT = 12


def blocks_of(segment: SegmentId) -> Iterator[bytes]:
    """The blocks of a segment, one after the other; the same for each writer."""
    rng = random.Random(segment.value)
    while True:
        block = b"".join(frame(rng.randbytes(rng.choice([0, 5, 300, 20_000]))) for _ in range(rng.randrange(1, 30)))
        if block:
            yield block


def content_of(segment: SegmentId, end: int) -> tuple[bytes, bool]:
    """The first bytes of a segment, and whether a block ends there."""
    content = bytearray()
    for block in blocks_of(segment):
        if len(content) >= end:
            return bytes(content[:end]), len(content) == end
        content += block
    raise AssertionError


def write(store: LocalStore, writer: int) -> Iterator[dict[str, Any]]:
    """Fill this writer's half of the key space, endlessly; yields what was acknowledged."""
    low, high = writer / WRITERS, (writer + 1) / WRITERS
    while True:
        current = store.describe(NAME).epochs[-1].segments
        (segment,) = (s for s, held in current.items() if (held.low, held.high) == (low, high))
        with store.appender(NAME, segment) as appender:
            at = 0
            for step, block in enumerate(blocks_of(segment)):
                at += len(block)
                if at <= appender.offset:
                    continue
                appender.append(block)
                if step % 3 == 0:
                    yield {"segment": str(segment), "safe": appender.flush()}
                if step >= STEPS_A_SEGMENT:
                    break
        yield {"segment": str(segment), "safe": store.segment_info(NAME, [segment])[0].write_offset}
        epoch = store.scale(NAME, [segment], [KeyRange(low, high)])
        yield {"epoch": epoch.number}
        if epoch.number % 4 == writer:
            head = StreamCut(NAME, dict.fromkeys(store.describe(NAME).epochs[-1].segments, 0))
            store.truncate(head)
            yield {"head": {str(s): offset for s, offset in head.offsets.items()}}


def main(root: Path, writer: int) -> None:
    with LocalStore(root) as store:
        for said in write(store, writer):
            print(json.dumps(said), flush=True)


def check(root: Path, safe: dict[SegmentId, int], epochs: int) -> None:
    """All acknowledged data is there, and all data is complete."""
    with LocalStore(root) as store:
        described = store.describe(NAME)
        assert len(described.epochs) > epochs
        assert [epoch.number for epoch in described.epochs] == list(range(len(described.epochs)))
        head = max(segment.epoch for segment in described.head.offsets)
        for segment in described.ranges():
            if segment.epoch < head and segment not in described.head.offsets:
                continue  # truncated away, or about to be
            info = store.segment_info(NAME, [segment])[0]
            assert info.write_offset >= safe.get(segment, 0), f"{segment} lost bytes that were acknowledged"
            expected, whole = content_of(segment, info.write_offset)
            assert whole, f"{segment} ends inside a block"
            digest, splitter = hashlib.sha256(), EventSplitter(info.start_offset)
            for block in store.read(NAME, segment, info.start_offset, info.write_offset):
                digest.update(block)
                for _ in splitter.events(block):
                    pass
            splitter.finish()
            assert digest.digest() == hashlib.sha256(expected[info.start_offset :]).digest()


def test_killed_writers_lose_and_split_no_event(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    root, rng = tmp_path / "store", random.Random(time.time_ns())
    kills = max(KILLS, 4 * int(request.config.getoption("kills", default=0)))
    with LocalStore(root) as store:
        store.create_scope("scope")
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=WRITERS)))
    safe: dict[SegmentId, int] = {}
    epochs = 0
    command = [sys.executable, "-m", "tests.faults.test_local_kill", str(root)]
    for _ in range(kills // WRITERS):
        writers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE) for n in range(WRITERS)]
        for writer in writers:
            assert writer.stdout is not None
            with selectors.DefaultSelector() as begun:
                begun.register(writer.stdout, selectors.EVENT_READ)
                assert begun.select(60), "the writer says nothing"
        time.sleep(rng.uniform(0.0, 0.15))
        for writer in writers:
            assert writer.poll() is None, "the writer failed"
            os.kill(writer.pid, signal.SIGKILL)
        for writer in writers:
            assert writer.stdout is not None
            for line in writer.stdout.read().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    said = json.loads(line)
                    epochs = max(epochs, said.get("epoch", 0))
                    if "safe" in said:
                        safe[SegmentId.parse(said["segment"])] = said["safe"]
            writer.stdout.close()
            writer.wait()
        check(root, safe, epochs)
    assert epochs > 1
    assert sum(safe.values()) > 1_000_000


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
