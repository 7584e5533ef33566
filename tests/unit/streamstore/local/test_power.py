"""The embedded store and power losses: at any time the disk has the state before a change or the one after it.

A disk that loses whatever was not synced is modelled by noting what each sync makes durable: a file's bytes, a folder's
names. The other extreme, a disk that keeps all that was written, is what a kill leaves. Both are looked at before and
after each sync that the store makes.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from streamvault.streamstore.framing import frame
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.store import Transaction
from tests.contract.transactions import write

NAME = StreamName("scope", "stream")
LEFT, RIGHT = SegmentId(0, 0), SegmentId(0, 1)
TWO = StreamConfiguration(scaling=Scaling(min_segments=2))
ONE = StreamConfiguration(tags=("one",))


class Disk:
    """A folder, and those of its contents that would survive a power loss now."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._top = folder.stat().st_ino
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self._kept: list[int] = []
        self.on_sync: Callable[[], None] = lambda: None
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._sync_with(getattr(os, name)))

    def _sync_with(self, really: Callable[[int], None]) -> Callable[[int], None]:
        def sync(handle: int) -> None:
            self.on_sync()
            really(handle)
            self._note(handle)
            self.on_sync()

        return sync

    def _note(self, handle: int) -> None:
        self._kept.append(os.dup(handle))  # so that the inode number of a removed file is not reused
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            entries = os.scandir(handle)
            self._names[found.st_ino] = {e.name: (e.stat(follow_symlinks=False).st_ino, e.is_dir()) for e in entries}
        else:
            self._contents[found.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def lose_power(self, target: Path) -> None:
        """Create a folder with the contents that would survive."""
        self._restore(self._top, target)

    def _restore(self, number: int, target: Path) -> None:
        target.mkdir()
        for name, (child, is_folder) in self._names.get(number, {}).items():
            if is_folder:
                self._restore(child, target / name)
            else:
                (target / name).write_bytes(self._contents.get(child, b""))

    def kill(self, target: Path) -> None:
        """Create a folder with everything that was written."""
        shutil.copytree(self.folder, target)

    def close(self) -> None:
        for handle in self._kept:
            os.close(handle)


def observe(folder: Path) -> Any:
    """Everything observable of a store, and the number with which a stream created now would begin."""
    seen: dict[str, Any] = {}
    with LocalStore(folder / "store") as store:
        for scope in list(store.list_scopes()):
            seen[scope] = "scope"
            for name in store.list_streams(scope):
                described = store.describe(name)
                if not described.sealed:
                    for segment in described.tail.offsets:
                        store.appender(name, segment).close()  # removes what was not acknowledged
                seen[str(name)] = described
                live = [segment for segment in described.ranges() if segment >= min(described.head.offsets)]
                for info in store.segment_info(name, live):
                    blocks = store.read(name, info.segment, info.start_offset, info.write_offset)
                    seen[info.segment.in_stream(name)] = (info, b"".join(map(bytes, blocks)))
        if not store.exists(NAME):
            store.create_scope(NAME.scope)
            store.create_stream(NAME, ONE)
            seen["first number"] = min(store.describe(NAME).tail.offsets).number
    return seen


def append(store: LocalStore, segment: SegmentId, payload: bytes) -> None:
    with store.appender(NAME, segment) as appender:
        appender.append(frame(payload))
        appender.append(frame(payload * 2))


begun: list[Transaction] = []


def begin(store: LocalStore, *segments: SegmentId) -> Transaction:
    begun.append(store.transactions().begin(NAME, 600))
    write(store, begun[-1], {segment: [b"of a transaction" * 50, b"x"] for segment in segments})
    return begun[-1]


def half(low: float, high: float) -> list[KeyRange]:
    return [KeyRange(low, (low + high) / 2), KeyRange((low + high) / 2, high)]


CHANGES: list[tuple[str, Callable[[LocalStore], object]]] = [
    ("create scope", lambda store: store.create_scope("scope")),
    ("create stream", lambda store: store.create_stream(NAME, TWO)),
    ("append", lambda store: append(store, LEFT, b"first" * 100)),
    ("append again", lambda store: append(store, LEFT, b"second" * 1000)),
    ("append elsewhere", lambda store: append(store, RIGHT, b"third")),
    ("commit", lambda store: store.transactions().commit(begin(store, LEFT, RIGHT))),
    ("scale", lambda store: store.scale(NAME, [LEFT], half(0.0, 0.5))),
    ("append to a new one", lambda store: append(store, SegmentId(1, 2), b"fourth" * 300)),
    ("update", lambda store: store.update_stream(NAME, ONE)),
    ("truncate a segment", lambda store: store.truncate_segment(NAME, RIGHT, 13)),
    ("truncate in the old epoch", lambda store: store.truncate(StreamCut(NAME, {LEFT: 508, RIGHT: 13}))),
    ("truncate", lambda store: store.truncate(StreamCut(NAME, {SegmentId(1, 2): 0, SegmentId(1, 3): 0, RIGHT: 13}))),
    ("seal", lambda store: store.seal(NAME)),
    ("delete", lambda store: store.delete(NAME)),
    ("create again", lambda store: store.create_stream(NAME, ONE)),
    ("append once more", lambda store: append(store, SegmentId(0, 4), b"fifth")),
    ("begin and append", lambda store: (begin(store, SegmentId(0, 4)), append(store, SegmentId(0, 4), b"sixth"))),
    ("scale again", lambda store: store.scale(NAME, [SegmentId(0, 4)], half(0.0, 1.0))),
    ("commit that rolls", lambda store: store.transactions().commit(begun[-1])),
    ("delete again", lambda store: store.delete(NAME)),
    ("delete scope", lambda store: store.delete_scope("scope")),
]


def test_power_loss_leaves_the_state_before_or_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    numbers = count()
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(tmp_path / "disk", patch)

        def images() -> list[Any]:
            note, disk.on_sync = disk.on_sync, lambda: None
            seen = []
            for make in (disk.lose_power, disk.kill):
                target = tmp_path / f"image-{next(numbers)}"
                make(target)
                seen.append(observe(target))
                shutil.rmtree(target)
            disk.on_sync = note
            return seen

        between: list[Any] = []
        before = images()
        assert before[0] == before[1]
        with LocalStore(tmp_path / "disk" / "store") as store:
            for what, change in CHANGES:
                between.clear()
                disk.on_sync = lambda: between.extend(images())
                change(store)
                disk.on_sync = lambda: None
                lost, killed = images()
                assert lost == killed, f"{what}: not all of it is on disk"
                assert lost != before[0], what
                assert all(seen in (before[0], lost) for seen in between), f"{what}: a state in between can be seen"
                assert between, what
                before = [lost, killed]
        disk.close()
