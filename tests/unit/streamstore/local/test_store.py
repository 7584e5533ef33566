"""The embedded store beyond the common contract: its files, other processes, damage, a full disk."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streamvault.streamstore.errors import (
    AccessDenied,
    InvalidName,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    ScaleRefused,
    ScopeNotEmpty,
    SegmentTooShort,
    SegmentTruncated,
    StoreBusy,
    StoreFull,
    StreamStoreError,
)
from streamvault.streamstore.framing import frame
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.segment_files import write_state
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName

MIB = 1024 * 1024
FIRST = SegmentId(0, 0)
NAME = StreamName("scope", "stream")
WHOLE = [KeyRange(0.0, 1.0)]

forked = multiprocessing.get_context("fork")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[LocalStore]:
    with LocalStore(root) as opened:
        opened.create_scope("scope")
        opened.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=1)))
        yield opened


@pytest.fixture
def folder(root: Path, store: LocalStore) -> Path:
    return root / "scope" / "stream"


def append(store: LocalStore, data: bytes, segment: SegmentId = FIRST) -> int:
    with store.appender(NAME, segment) as appender:
        for at in range(0, len(data), 4 * MIB):
            appender.append(data[at : at + 4 * MIB])
        return appender.flush()


def read(store: LocalStore, start: int, end: int, segment: SegmentId = FIRST) -> bytes:
    return b"".join(bytes(block) for block in store.read(NAME, segment, start, end))


def in_child(action: Callable[[], Any]) -> Any:
    """The result of something that a forked process does; EOFError if it fails, and the child says why."""

    def run(sender: Any) -> None:
        with sender:
            sender.send(action())

    receiver, sender = forked.Pipe(duplex=False)
    process = forked.Process(target=run, args=(sender,))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        process.join()


# The folder


def test_segment_data_is_raw_and_state_is_json(store: LocalStore, folder: Path) -> None:
    data = frame(b"first") + frame(b"second")
    append(store, data)
    assert sorted(path.name for path in folder.iterdir()) == ["0.#epoch.0.data", "0.#epoch.0.state", "stream.json"]
    assert (folder / "0.#epoch.0.data").read_bytes() == data
    assert '"write": 27' in (folder / "0.#epoch.0.state").read_text()
    record = json.loads((folder / "stream.json").read_text())
    assert record["epochs"] == [{"epoch": 0, "seals": [], "opens": {"0.#epoch.0": [0.0, 1.0]}}]


def test_relative_folder_is_refused() -> None:
    with pytest.raises(InvalidName, match="must be absolute: 'some/folder'"):
        LocalStore("some/folder")


def test_reading_creates_no_files(root: Path) -> None:
    with LocalStore(root) as store:
        assert list(store.list_scopes()) == []
        assert not store.exists(NAME)
        with pytest.raises(NoSuchScope, match=r"no such scope: local:///.*/store/scope"):
            store.create_stream(NAME, StreamConfiguration())
    assert not root.exists()


@pytest.mark.parametrize("place", ["file", "/proc/streams"])
def test_folder_that_cannot_be_used_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("not a store")
    with LocalStore(tmp_path / place) as store:
        said = "a file is in the place of" if place == "file" else "cannot be used"
        with pytest.raises(StreamStoreError, match=f"{said} .*{place}/scope"):
            store.create_scope("scope")
        for look in (lambda: store.describe(NAME), lambda: list(store.list_scopes())):
            if place == "file":
                with pytest.raises(StreamStoreError, match=said):
                    look()


@pytest.mark.parametrize("scope", ["", ".", "..", "../x", "a/b", ".hidden", "_internal", "a\0b", "x" * 256])
def test_names_do_not_lead_out_of_the_folder(root: Path, store: LocalStore, scope: str) -> None:
    for action in (store.create_scope, store.delete_scope, lambda name: list(store.list_streams(name))):
        with pytest.raises(InvalidName):
            action(scope)
    assert [path.name for path in root.parent.iterdir()] == ["store"]


def test_names_may_be_as_long_as_pravega_allows(store: LocalStore) -> None:
    name = StreamName("s" * 255, "t" * 255)
    for _ in range(2):
        store.create_scope(name.scope)
        store.create_stream(name, StreamConfiguration())
        with store.appender(name, min(store.describe(name).tail.offsets)) as appender:
            appender.append(frame(b"event"))
        store.delete(name)
        store.delete_scope(name.scope)


def test_foreign_folders_are_left_alone(store: LocalStore, root: Path) -> None:
    (root / "scope" / "notes").mkdir()
    (root / "documents").mkdir()
    (root / "documents" / "letter.txt").write_text("dear")
    (root / "readme.txt").write_text("a file")
    assert list(store.list_scopes()) == ["documents", "scope"]
    assert list(store.list_streams("scope")) == [NAME]
    with pytest.raises(ScopeNotEmpty):
        store.delete_scope("documents")
    assert (root / "documents" / "letter.txt").read_text() == "dear"


def test_files_of_a_killed_process_are_removed(store: LocalStore, root: Path, folder: Path) -> None:
    remains = [root / "scope" / ".new-1", root / "scope" / ".deleted-2", root / ".deleted-3"]
    for path in remains:
        path.mkdir()
        (path / "0.#epoch.0.data").write_bytes(b"x")
    (folder / ".draft-4").write_bytes(b"x")
    assert list(store.list_streams("scope")) == [NAME]
    append(store, frame(b"event"))
    store.truncate(StreamCut(NAME, {FIRST: 13}))
    store.delete(NAME)
    store.delete_scope("scope")
    assert [path.name for path in root.iterdir()] == [".numbers"]


# Disk space


def blocks_used(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_truncation_frees_disk_space(store: LocalStore, folder: Path, tmp_path: Path) -> None:
    data = os.urandom(8 * MIB)
    append(store, data)
    store.truncate_segment(NAME, FIRST, 7 * MIB)
    assert blocks_used(folder / "0.#epoch.0.data") < 2 * MIB
    assert read(store, 7 * MIB, 8 * MIB) == data[7 * MIB :]
    store.truncate(StreamCut(NAME, {FIRST: 7 * MIB + 500_000}))
    assert read(store, 7 * MIB + 500_000, 8 * MIB) == data[7 * MIB + 500_000 :]
    epoch = store.scale(NAME, [FIRST], WHOLE)
    append(store, frame(b"event"), *epoch.segments)
    store.truncate(StreamCut(NAME, dict.fromkeys(epoch.segments, 0)))
    assert sorted(path.name for path in folder.iterdir()) == ["1.#epoch.1.data", "1.#epoch.1.state", "stream.json"]


def test_full_disk_refuses_changes_and_loses_nothing_acknowledged(store: LocalStore, folder: Path) -> None:
    """The limit on a file's size simulates a full disk: the kernel fails in the middle of a block."""
    block = frame(bytes(700_000))

    def limit_files(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def until_full() -> tuple[int, int, int]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit_files(5_000_000)
        appender = store.appender(NAME, FIRST)
        with suppress(StoreFull):
            while True:
                appender.append(block)
                appender.flush()
        size = (folder / "0.#epoch.0.data").stat().st_size
        limit_files(100)
        before = store.describe(NAME)
        for change in (
            lambda: store.scale(NAME, [FIRST], WHOLE),
            lambda: store.update_stream(NAME, StreamConfiguration(tags=("new",))),
            lambda: store.create_stream(StreamName("scope", "other"), StreamConfiguration()),
        ):
            with pytest.raises(StoreFull):
                change()
        assert store.describe(NAME) == before
        assert not store.exists(StreamName("scope", "other"))
        acknowledged = appender.acknowledged
        limit_files(resource.RLIM_INFINITY)
        appender.append(block)  # there is space again: the same appender continues
        appender.flush()
        store.scale(NAME, [FIRST], WHOLE)
        return acknowledged, size, appender.acknowledged

    acknowledged, size, after = in_child(until_full)
    assert acknowledged == size == 7 * len(block)
    assert after == 8 * len(block)
    assert read(store, 0, after) == 8 * block


@pytest.fixture
def unwritable(store: LocalStore, root: Path) -> Iterator[None]:
    """The store's folder is readable by all and writable by none; its parent folders can be traversed."""
    append(store, frame(b"event"))
    above = [path for path in root.parents if path.stat().st_mode & 0o055 != 0o055]
    modes = {path: path.stat().st_mode for path in (*above, root, *root.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode | 0o055 if path in above else mode & ~0o222 | (0o555 if path.is_dir() else 0o444))
    yield
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.mark.usefixtures("unwritable")
def test_read_only_folder_is_named(store: LocalStore) -> None:
    def as_nobody() -> list[str]:
        if os.geteuid() == 0:
            os.setuid(65534)  # root is denied nothing
        seen = []
        for action in (
            lambda: store.appender(NAME, FIRST),
            lambda: store.scale(NAME, [FIRST], WHOLE),
            lambda: store.create_scope("other"),
            lambda: store.create_stream(StreamName("scope", "other"), StreamConfiguration()),
            lambda: store.delete(NAME),
        ):
            try:
                action()
                seen.append("allowed")
            except AccessDenied as error:
                seen.append(str(error))
        seen.append(read(store, 0, 13).decode("latin-1"))
        return seen

    *refused, content = in_child(as_nobody)
    assert all("access to the store denied" in message for message in refused), refused
    assert content == frame(b"event").decode("latin-1")


# Damage


def test_torn_tail_is_not_read_and_is_cut_off(store: LocalStore, folder: Path) -> None:
    whole = frame(b"whole")
    append(store, whole)
    with (folder / "0.#epoch.0.data").open("ab") as file:
        file.write(frame(b"never acknowledged")[:17])
    assert store.describe(NAME).tail.offsets == {FIRST: 13}
    with pytest.raises(SegmentTooShort, match="ends at 13"):
        read(store, 0, 14)
    append(store, frame(b"next"))
    assert read(store, 0, 25) == whole + frame(b"next")
    assert (folder / "0.#epoch.0.data").stat().st_size == 25


@pytest.mark.parametrize("damage", [b"\0" * 4096, b'{"start": 0, "write": 99', b"\xff" * 100])
def test_torn_state_leaves_the_one_before(store: LocalStore, folder: Path, damage: bytes) -> None:
    with store.appender(NAME, FIRST) as appender:
        for payload in (b"1", b"2", b"3"):
            appender.append(frame(payload))
            appender.flush()
    state = folder / "0.#epoch.0.state"
    content = state.read_bytes()
    newest = max((0, 4096), key=lambda at: json.loads(content[at : at + 4096])["sequence"])
    state.write_bytes(content[:newest] + damage + content[newest + len(damage) :])
    assert store.segment_info(NAME, [FIRST])[0].write_offset == 18
    append(store, frame(b"4"))
    assert read(store, 0, 27) == frame(b"1") + frame(b"2") + frame(b"4")


def test_damage_is_named_in_one_line(store: LocalStore, folder: Path) -> None:
    append(store, frame(b"event"))
    for name, content, message in (
        ("0.#epoch.0.data", b"short", "file ends at 5 instead of 13"),
        ("0.#epoch.0.state", b"nothing", "state file is damaged"),
        ("stream.json", b"{", "record is damaged"),
        ("stream.json", b'{"format": 3}', "format 3, but this version supports 1 and 2"),
        ("stream.json", b'{"format": 1}', "record is damaged"),
        ("stream.json", b"[]", "record is damaged"),
    ):
        path = folder / name
        good = path.read_bytes()
        path.write_bytes(content)
        with LocalStore(folder.parent.parent) as fresh:
            for action in (lambda fresh=fresh: read(fresh, 0, 13), lambda fresh=fresh: fresh.appender(NAME, FIRST)):
                with pytest.raises(StreamStoreError, match=message) as caught:
                    action()
                assert "\n" not in str(caught.value)
        path.write_bytes(good)
    assert read(store, 0, 13) == frame(b"event")


def test_folder_of_a_scope_is_no_store(store: LocalStore, folder: Path) -> None:
    with LocalStore(folder.parent) as scope, pytest.raises(InvalidName, match=rf"write {scope.uri}/, with a slash"):
        list(scope.list_scopes())
    assert list(store.list_scopes()) == ["scope"]


def test_removed_segment_file_is_named(store: LocalStore, folder: Path) -> None:
    append(store, frame(b"event"))
    (folder / "0.#epoch.0.data").unlink()
    for use in (lambda: read(store, 0, 13), lambda: store.appender(NAME, FIRST)):
        with pytest.raises(StreamStoreError, match=r"0\.#epoch\.0\.data"):
            use()


def interrupted_before(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def interrupted_after(path: Path, **state: int) -> None:
    write_state(path, **state)
    raise KeyboardInterrupt


@pytest.mark.parametrize(("interrupted", "kept"), [(interrupted_before, b""), (interrupted_after, frame(b"event"))])
def test_interrupted_append_leaves_a_usable_segment(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, interrupted: Callable[..., None], kept: bytes
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("streamvault.streamstore.local.store.write_state", interrupted)
        with pytest.raises(KeyboardInterrupt):
            append(store, frame(b"event"))
    append(store, frame(b"next"))
    assert read(store, 0, len(kept) + 12) == kept + frame(b"next")


# Other processes and threads


def test_segment_of_another_process_is_busy_until_it_is_killed(store: LocalStore) -> None:
    def hold(ready: Any) -> None:
        appender = store.appender(NAME, FIRST)
        appender.append(frame(b"unflushed"))
        ready.send(None)
        time.sleep(60)

    receiver, sender = forked.Pipe(duplex=False)
    process = forked.Process(target=hold, args=(sender,))
    process.start()
    receiver.recv()
    with pytest.raises(StoreBusy, match=r"another process appends to the segment: scope/stream/0\.#epoch\.0") as caught:
        store.appender(NAME, FIRST)
    assert caught.value.exit_code == 4
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with store.appender(NAME, FIRST) as appender:
        assert appender.offset == 0


def test_closing_the_store_frees_its_segments(store: LocalStore, root: Path) -> None:
    other = LocalStore(root)
    appender = other.appender(NAME, FIRST)
    other.close()
    with pytest.raises(ValueError, match="closed"):
        appender.append(frame(b"late"))
    append(store, frame(b"event"))


def test_closing_waits_for_what_is_being_acknowledged(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = store.appender(NAME, FIRST)
    closing = threading.Thread(target=appender.close)
    busy: list[bool] = []

    def write_late(path: Path, **state: int) -> None:
        closing.start()
        closing.join(0.2)
        busy.append(closing.is_alive())
        write_state(path, **state)

    monkeypatch.setattr("streamvault.streamstore.local.store.write_state", write_late)
    appender.append(frame(b"event"))
    assert appender.flush() == 13
    closing.join()
    assert busy == [True]
    assert store.appender(NAME, FIRST).offset == 13


def test_forked_copy_does_not_keep_the_segment(store: LocalStore) -> None:
    appender = store.appender(NAME, FIRST)
    process = forked.Process(target=time.sleep, args=(60,))
    process.start()
    try:
        appender.close()
        append(store, frame(b"event"))
    finally:
        process.kill()
        process.join()


def test_concurrent_scales_are_serialized(store: LocalStore, root: Path) -> None:
    def scale_often() -> int:
        own, done = LocalStore(root), 0
        for _ in range(25):
            current = list(own.describe(NAME).epochs[-1].segments)
            try:
                own.scale(NAME, current, WHOLE)
                done += 1
            except ScaleRefused:
                continue
        return done

    with ThreadPoolExecutor(4) as pool:
        done = sum(pool.map(lambda _: in_child(scale_often), range(4)))
    epochs = store.describe(NAME).epochs
    assert [list(epoch.segments) for epoch in epochs] == [[SegmentId(n, n)] for n in range(done + 1)]


def test_reader_never_sees_truncated_bytes(store: LocalStore, root: Path) -> None:
    size = 24 * MIB
    data = os.urandom(size)
    append(store, data)
    stop = threading.Event()

    def truncate() -> None:
        for offset in range(MIB // 2, size, MIB // 2):
            store.truncate_segment(NAME, FIRST, offset)
        stop.set()

    with ThreadPoolExecutor(1) as pool:
        truncating = pool.submit(truncate)
        reads = 0
        while not stop.is_set():
            at = LocalStore(root).segment_info(NAME, [FIRST])[0].start_offset
            with suppress(SegmentTruncated):
                for block in LocalStore(root).read(NAME, FIRST, at, size):
                    assert block == data[at : at + len(block)]
                    at += len(block)
            reads += 1
        truncating.result()
    assert reads > 1


def test_reader_during_changes_sees_one_state_or_another(store: LocalStore, root: Path) -> None:
    stop = threading.Event()

    def change() -> None:
        for _ in range(30):
            segment = min(store.describe(NAME).tail.offsets)
            append(store, frame(b"event"), segment)
            (after,) = store.scale(NAME, [segment], WHOLE).segments
            append(store, frame(b"event"), after)
            store.truncate(StreamCut(NAME, {after: 13}))
            store.delete(NAME)
            store.create_stream(NAME, StreamConfiguration())
        stop.set()

    def look() -> None:
        own = LocalStore(root)
        while not stop.is_set():
            try:
                described = own.describe(NAME)
                (head, at), (tail, end) = *described.head.offsets.items(), *described.tail.offsets.items()
                assert head in described.epochs[0].segments or at == 13
                assert tail in described.epochs[-1].segments
                assert end in {0, 13}
                assert own.segment_info(NAME, [tail])[0].write_offset in {0, 13}
            except (NoSuchStream, NoSuchSegment):
                continue

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(change), pool.submit(look), pool.submit(look)]:
            done.result()
