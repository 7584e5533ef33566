"""Parts of the server that need no client: blocks and their checksums, the budget of memory, groups, tokens."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from streamvault.common.errors import Damaged, Failed
from streamvault.layouts.layout import open_layout
from streamvault.manifests.damage import ArchivedPart, DigestMismatch
from streamvault.objectstore.store import OutOfSpace
from streamvault.serving import blocks
from streamvault.serving.access import EXPIRED, INVALID, Access
from streamvault.serving.archived import ServedArchive
from streamvault.serving.blocks import KnownRange, compared_block, learn
from streamvault.serving.cache import ENTRY_BYTES, LEAST_CACHE, BlockCache
from streamvault.serving.connection import ClientConnection
from streamvault.serving.root import groups_in_memory
from streamvault.streamstore.errors import NoSuchSegment
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.pravega import wire
from testkit.small_archives import (
    NAME,
    Vault,
    a_vault,
    archive_of,
    data_keys,
    forge,
    forge_gaps,
    objects_of,
    replace_object,
)

ONE = UUID(int=1)
GROUP = StreamName("shop", "app")
vault = a_vault(*(bytes([n]) * (n % 50) for n in range(200)))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("layouts.archived_range", "manifests.damage"):
        monkeypatch.setattr(f"streamvault.{module}.BLOCK_BYTES", 128)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 512)
    monkeypatch.setattr("streamvault.serving.archived.BLOCK_BYTES", 512)


def parts_of(vault: Vault) -> list[ArchivedPart]:
    archive = archive_of(vault.root)
    return [ArchivedPart.all_of(archive.address, *one) for one in archive.history().ranges(SegmentId(0, 0))]


def part_of(vault: Vault) -> ArchivedPart:
    return parts_of(vault)[0]


def read(served: ServedArchive, offset: int) -> memoryview:
    return asyncio.run(served.read_block(served.now, SegmentId(0, 0), offset, asyncio.Semaphore()))


@pytest.mark.parametrize(("layout", "compress"), [("events", ""), ("chunks", ""), ("chunks", "zstd")])
def test_blocks_are_the_bytes_of_the_range(vault: Vault, layout: Any, compress: Any) -> None:
    vault.export(layout, compress)
    part = part_of(vault)
    held = vault.bytes_of()["0.#epoch.0"][1][part.start : part.end]
    learned = learn(part, lambda _: True, 2)
    count = blocks.blocks_of(part.row)
    assert count > 5
    assert sorted(learned.blocks) == list(range(2, count))
    assert all(learned.blocks[n] == held[512 * n : 512 * (n + 1)] for n in learned.blocks)
    assert not learn(part, lambda _: False).blocks
    for known in [learned.known] if layout == "events" else [learned.known, KnownRange(part)]:
        assert b"".join(compared_block(known, n) for n in range(count)) == held


@pytest.mark.parametrize(("layout", "compress"), [("events", ""), ("chunks", ""), ("chunks", "zstd")])
def test_a_block_that_was_changed_after_its_range_was_compared_is_noticed(
    vault: Vault, layout: Any, compress: Any
) -> None:
    vault.export(layout, compress)
    part = part_of(vault)
    learned = learn(part, lambda _: False).known
    key = sorted(data_keys(vault.root))[3 if layout == "events" else 0]
    data = bytearray(objects_of(vault.root).get(key))
    data[len(data) // 2] ^= 1
    replace_object(vault.root, key, bytes(data))
    for known in [learned] if layout == "events" else [learned, KnownRange(part)]:
        wrong = 0
        for number in range(blocks.blocks_of(part.row)):
            try:
                compared_block(known, number)
            except Damaged:
                wrong += 1
        assert wrong
    with pytest.raises(Damaged):
        learn(part, lambda _: True)


def test_a_forged_block_of_a_range_that_was_compared_whole_is_noticed(vault: Vault) -> None:
    vault.export("chunks")
    part = part_of(vault)
    known = learn(part, lambda _: False).known
    held = compared_block(known, 2)
    forge(vault.root, data_keys(vault.root)[0], 3 * 512 - 9)
    assert compared_block(KnownRange(part), 2) != held
    with pytest.raises(DigestMismatch):
        compared_block(known, 2)


def test_only_the_objects_of_a_block_are_listed(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.export("events")
    part = part_of(vault)
    known, last = learn(part, lambda _: False).known, blocks.blocks_of(part.row) - 1
    kind, spans = type(open_layout("events")), list[tuple[int, int]]()
    between = kind.between

    def noted(self: Any, place: Any, segment: Any, start: int, end: int) -> Any:
        spans.append((start, end))
        return between(self, place, segment, start, end)

    monkeypatch.setattr(kind, "between", noted)
    compared_block(known, last)
    assert spans == [(spans[0][0], part.end)]
    assert part.start < spans[0][0] <= part.start + 512 * last


def test_a_range_of_events_is_listed_once_for_all_its_blocks(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault.export("events")
    held, parts = vault.bytes_of()["0.#epoch.0"][1], parts_of(vault)
    kind, listed = type(objects_of(vault.root)), list[str]()
    listing = kind.list

    def noted(self: Any, prefix: str, after: str = "") -> Any:
        listed.append(prefix)
        return listing(self, prefix, after)

    cache = BlockCache(LEAST_CACHE)
    served = ServedArchive(vault.archive, cache)
    monkeypatch.setattr(kind, "list", noted)
    starts = set[int]()
    for _ in range(2):
        at = 0
        while at < len(held):
            data = read(served, at)
            assert data == held[at : at + len(data)]
            part = next(one for one in parts if one.start <= at < one.end)
            cache.drop(served._key(part, (at - part.start) // 512))
            starts.add(part.start)
            at += len(data)
    assert len(listed) == len(starts)
    cache.close()


def test_a_range_that_has_not_its_digest_gives_its_memory_back(vault: Vault) -> None:
    vault.export("chunks")
    forge(vault.root, data_keys(vault.root)[0], 5 * 512)
    cache = BlockCache(LEAST_CACHE)
    served = ServedArchive(vault.archive, cache, whole=True)
    with pytest.raises(Damaged):
        read(served, 0)
    assert cache._bytes == sum(one.nbytes + ENTRY_BYTES for one in cache._held.values())
    cache.close()


def test_what_replaces_a_block_gives_its_memory_back() -> None:
    cache = BlockCache(LEAST_CACHE)
    for _ in range(3):
        assert cache.take(1000)
        cache.put("key", memoryview(bytes(1000)))
    assert cache._bytes == 1000 + ENTRY_BYTES
    cache.drop("key")
    assert (cache._bytes, cache.held("key")) == (0, None)
    cache.close()


def test_many_small_blocks_are_within_the_limit_with_what_the_cache_needs_for_each() -> None:
    cache = BlockCache(LEAST_CACHE)
    most = cache.limit // (100 + ENTRY_BYTES)
    for number in range(most + 10):
        assert cache.take(100)
        cache.put(number, memoryview(bytes(100)))
    assert [number for number in range(most + 10) if cache.has(number)] == list(range(10, most + 10))
    assert cache.used <= cache.limit
    cache.close()


def test_what_is_dear_is_given_up_last_and_takes_an_eighth_at_most() -> None:
    cache = BlockCache(LEAST_CACHE)
    size, most = (1 << 20) - ENTRY_BYTES, cache.limit // 8 // (1 << 20)
    for number in range(most + 2):
        assert cache.take(size)
        cache.put(("costly", number), memoryview(bytes(size)), costly=True)
    assert [number for number in range(most + 2) if cache.held(("costly", number))] == list(range(2, most + 2))
    assert cache.used == most << 20
    for number in range(cache.limit // size + 5):  # blocks take memory from blocks
        assert cache.take(size)
        cache.put(number, memoryview(bytes(size)))
    assert all(cache.held(("costly", number)) for number in range(2, most + 2))
    assert cache.take(cache.limit - (1 << 20))  # and what waits for memory gets all
    assert not any(cache.held(("costly", number)) for number in range(2, most + 1))
    cache.drop(("costly", most + 1))
    assert cache.used == cache.limit - (1 << 20)
    cache.close()


@pytest.mark.parametrize("layout", ["events", "chunks"])
def test_a_range_is_read_whole_once_however_many_blocks_are_read_meanwhile(vault: Vault, layout: Any) -> None:
    vault.export(layout)
    cache = BlockCache(LEAST_CACHE)
    served = ServedArchive(vault.archive, cache, whole=True)
    for _ in range(3):
        assert read(served, 0)
        for number in range(2 * cache.limit // (4 << 20)):
            assert cache.take(4 << 20)
            cache.put(number, memoryview(bytes(4 << 20)))
    assert served.learned == 1
    cache.close()


def test_memory_is_taken_from_others_and_never_beyond_the_limit() -> None:
    cache = BlockCache(LEAST_CACHE)
    size = 4 << 20
    room = cache.limit // size
    for number in range(room):
        assert cache.take(size)
        cache.put(number, memoryview(bytes(size)))
    assert cache.take(size)
    assert not cache.has(0)
    for _ in range(room - 1):
        assert cache.take(size)
    assert not cache.take(size)
    cache.give_back(size)
    assert cache.take(size)
    cache.close()


def test_a_block_is_fetched_once_for_all_who_wait_for_it() -> None:
    cache, fetched, go = BlockCache(LEAST_CACHE), list[int](), threading.Event()

    def fetch() -> memoryview:
        go.wait(10)
        fetched.append(1)
        return memoryview(b"block")

    waiting = [cache.begin("key", fetch) for _ in range(5)]
    go.set()
    assert [one.result(10) for one in waiting] == [b"block"] * 5
    assert cache.begin("key", fetch).result(0) == b"block"
    assert len(fetched) == 1

    def fail() -> memoryview:
        raise DigestMismatch("wrong")

    for _ in range(2):  # a failure is not kept
        with pytest.raises(DigestMismatch):
            cache.begin("other", fail).result(10)
    cache.close()


def test_a_gap_is_an_error_and_no_truncation(vault: Vault, tmp_path: Any) -> None:
    vault.export("chunks")
    forged = Vault(tmp_path)
    forge_gaps(archive_of(vault.root), archive_of(forged.root))
    cache = BlockCache(LEAST_CACHE)
    served = ServedArchive(forged.archive, cache)
    with pytest.raises(Failed, match="the archive has a gap from 0 to"):
        read(served, 0)
    with pytest.raises(NoSuchSegment):
        served.now.info(SegmentId(3, 3))
    cache.close()


def test_an_archive_that_cannot_be_read_any_more_is_in_the_log_once(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vault.export("chunks")
    cache = BlockCache(LEAST_CACHE)
    served = ServedArchive(vault.archive, cache)

    def fails(*, failed: bool) -> None:
        raise Failed("the archive was deleted")

    monkeypatch.setattr(served, "_look", fails)
    assert not any(served.refresh() for _ in range(3))
    assert [one.getMessage() for one in caplog.records] == ["the archive was deleted"]
    cache.close()


def test_a_look_says_what_a_reader_has_found_first(vault: Vault) -> None:
    vault.export("chunks")
    cache = BlockCache(LEAST_CACHE)
    served = ServedArchive(vault.archive, cache)
    assert not served.refresh()
    with vault.store as store, store.appender(NAME, SegmentId(0, 0)) as appender:
        appender.append(b"\0\0\0\0\0\0\0\1x")
        appender.flush()
    vault.export("chunks")
    assert served.renewed()
    assert [served.refresh() for _ in range(2)] == [True, False]
    cache.close()


@pytest.mark.parametrize("configuration", [b"", b"c" * 500])
def test_new_groups_take_memory_however_small_they_are(configuration: bytes) -> None:
    groups = groups_in_memory(100_000)

    def create_many() -> None:
        for number in range(1000):
            groups.create(StreamName("shop", f"app{number}"), configuration)

    with pytest.raises(OutOfSpace):
        create_many()


def test_groups_in_memory_are_bounded_and_those_deleted_make_room() -> None:
    groups = groups_in_memory(600_000)
    group = groups.create(GROUP, b"a")
    state = group.state
    assert state.append(ONE, 1, bytes(80_000), None)
    with pytest.raises(OutOfSpace, match="too much memory"):
        state.append(ONE, 2, bytes(250_000), None)
    for number in range(2, 3000):  # a client compacts its state
        state.append(ONE, number, b"x" * 50, None)
        assert state.truncate(state.info().write_offset - 50)
    with pytest.raises(OutOfSpace):
        groups.create(StreamName("shop", "large"), bytes(300_000))
    for _ in range(50):
        assert groups.delete(GROUP, group)
        group = groups.create(GROUP, bytes(200_000))


def test_tokens_hold_for_their_time_and_only_for_the_login() -> None:
    access, later, other = Access("user:a"), Access("user:a", -10), Access("user:b")
    assert access.refusal(access.token()) is None
    assert Access("user:a").refusal(access.token()) is None  # of another server with the same login
    assert access.refusal(later.token()) == EXPIRED
    for token in ("", "a.b.c", other.token(), access.token() + "x", access.token().replace(".", "..", 1)):
        assert access.refusal(token) == INVALID
    assert access.is_known({"authorization": "Basic dXNlcjph"})
    assert not access.is_known({"authorization": "Basic dXNlcjpi"})
    assert not access.is_known({})
    assert Access().is_known({})
    assert (Access().token(), Access().refusal("anything")) == ("", None)


def test_a_read_that_waits_to_be_sent_keeps_no_block() -> None:
    """Also if the lock is free at that moment, as who has waited for it before was only just woken."""
    reads = list[int]()

    async def scene() -> None:
        came = asyncio.Event()

        async def read(_name: str, offset: int, length: int) -> memoryview:
            reads.append(offset)
            await came.wait()
            return memoryview(bytes(length))

        writer = Mock(transport=Mock(**{"is_closing.return_value": False, "get_write_buffer_size.return_value": 0}))
        cache = Mock(answer_bytes=lambda size: size)
        client = ClientConnection(Mock(read=read, cache=cache, sent=0), Mock(), writer)
        async with client._to_send():
            reading = asyncio.create_task(client._answer_read(wire.ReadSegment("s/a/0.#epoch.0", 5, 9, "", 1), 100))
            other = asyncio.create_task(client._send(b"another answer"))
            await asyncio.sleep(0)
            came.set()
        await asyncio.gather(reading, other)

    asyncio.run(scene())
    assert reads == [5, 5]
