"""The reader with a segment store that answers late, short, out of order, for another segment, or not at all."""

from __future__ import annotations

import base64
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamvault.streamstore.errors import (
    AccessDenied,
    NoSuchSegment,
    SegmentTruncated,
    StreamStoreUnavailable,
    WireError,
)
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.connection import Endpoint
from streamvault.streamstore.pravega.reader import BlockReader
from streamvault.streamstore.pravega.segments import DEFAULT_LIFETIME, SegmentName, lifetime
from streamvault.streamstore.pravega.wire import WireCommand, encode
from testkit.pravega_script import NAME, SEGMENT, STREAM, Client, Hook, ScriptedStore, instead_of, wait_for

DATA = random.Random(5).randbytes(10_000)
PART = 512


def script(hook: Hook | None = None, **options: object) -> ScriptedStore:
    store = ScriptedStore(hook, **options)  # type: ignore[arg-type]
    store.segment.data += DATA
    return store


def reader(store: ScriptedStore, start: int = 0, end: int = len(DATA), *, in_flight: int = 4) -> BlockReader:
    return BlockReader(store.stores, SegmentName(STREAM, SEGMENT), start, end, part_bytes=PART, in_flight=in_flight)


def read(store: ScriptedStore, start: int = 0, end: int = len(DATA)) -> bytes:
    return b"".join(bytes(block) for block in reader(store, start, end).blocks())


def reading(
    act: Callable[[ScriptedStore, Client, Any], object],
    when: Callable[[ScriptedStore, Client, Any], bool] = lambda *_: True,
) -> Hook:
    return instead_of(wire.ReadSegment, act, when)


def refuse_token(_store: ScriptedStore, client: Client, command: wire.ReadSegment) -> None:
    """The refusal of a read names its offset, not its request."""
    client.send(wire.AuthTokenCheckFailed(command.offset, "", 1))


def requests(store: ScriptedStore) -> list[wire.ReadSegment]:
    return [command for command in store.asked if isinstance(command, wire.ReadSegment)]


def test_short_answers_are_asked_for_again() -> None:
    rng = random.Random(1)
    short = reading(lambda store, client, command: client.send(store.read(command, most=rng.choice([1, 7, 511, PART]))))
    with script(short) as store:
        assert read(store, 5, 9000) == DATA[5:9000]
        assert len(requests(store)) > 18
        assert all(command.offset + command.length <= 9000 for command in requests(store))


def test_answers_are_put_back_in_order() -> None:
    rng = random.Random(2)
    held: list[tuple[Client, wire.ReadSegment]] = []
    swapped = 0

    def answer_in_any_order(store: ScriptedStore, over: threading.Event) -> None:
        nonlocal swapped
        while not over.wait(0.005):
            with store.lock:
                if not swapped and len(held) < 4:
                    continue  # the first answers wait for all that are asked for at once
                asked = [command.offset for _, command in held]
                rng.shuffle(held) if swapped else held.reverse()
                swapped += asked != [command.offset for _, command in held]
                for client, command in held:
                    client.send(store.read(command, most=rng.choice([PART, PART, 99])))
                held.clear()

    over = threading.Event()
    with script(reading(lambda _, client, command: held.append((client, command)))) as store:
        answers = threading.Thread(target=answer_in_any_order, args=(store, over))
        answers.start()
        try:
            assert read(store) == DATA
        finally:
            over.set()
            answers.join()
        assert len(store.clients) == 1
    assert swapped


def test_memory_is_bounded_by_the_requests_under_way() -> None:
    with script() as store:
        blocks = reader(store, in_flight=3).blocks()
        for asked in (3, 4):
            next(blocks)
            assert wait_for(lambda asked=asked: len(requests(store)) >= asked)
            assert [command.offset for command in requests(store)] == [number * PART for number in range(asked)]
        blocks.close()  # type: ignore[attr-defined]  # a generator
        assert wait_for(lambda: store.clients[0].gone)
        assert len(requests(store)) == 4


def test_finished_reader_returns_its_connection() -> None:
    with script() as store:
        for _ in range(3):
            assert read(store, 0, 700) == DATA[:700]
        assert len(store.clients) == 1


def test_reader_closed_early_leaves_no_stale_answers() -> None:
    with script() as store:
        blocks = reader(store).blocks()
        next(blocks)
        blocks.close()  # type: ignore[attr-defined]  # a generator
        assert not any(store.stores.pool._idle.values())
        assert read(store) == DATA


def test_lost_idle_connection_is_not_used_again() -> None:
    with script() as store:
        pool, endpoint = store.stores.pool, store.endpoint(STREAM, SEGMENT)
        one, other = pool.take(endpoint), pool.take(endpoint)
        pool.give(one)
        pool.give(other)
        assert pool.take(endpoint) is other
        pool.give(other)
        # the newest connection is used first: one was closed, the other has an unexpected reply
        store.clients[1].hang_up()
        store.clients[0].send(wire.SegmentTruncated(1, NAME))
        assert wait_for(lambda: not one.is_idle() and not other.is_idle())
        third = pool.take(endpoint)
        assert third not in (one, other)
        pool.close()
        third.close()


def test_lost_connections_are_taken_up_where_the_last_block_ended() -> None:
    rng = random.Random(3)

    def cut(store: ScriptedStore, client: Client, command: wire.ReadSegment) -> None:
        if rng.random() < 0.5:
            # in the middle of an answer
            client.send_raw(encode(store.read(command))[: rng.randrange(1, 500)])
        client.hang_up()

    with script(reading(cut, lambda *_: rng.random() < 0.2)) as store:
        assert read(store) == DATA
        assert len(store.clients) > 3


def test_wrong_host_asks_the_controller_again() -> None:
    moved = reading(
        lambda _, client, command: client.send(wire.WrongHost(command.request_id, NAME, "", "")),
        lambda _, client, command: client.number == 0 and command.offset > 3000,
    )
    with script(moved) as store:
        assert read(store) == DATA
        assert store.endpoints_asked == 2


def test_expired_token_is_renewed_though_its_refusal_names_the_offset() -> None:
    expired = reading(refuse_token, lambda *asked: asked[2].offset > 3000 and asked[2].token == "token-1")
    with script(expired, username="ann") as store:
        assert read(store) == DATA
        assert store.tokens_asked == 2


def test_refused_new_token_is_access_denied() -> None:
    with script(reading(refuse_token), username="ann") as store, pytest.raises(AccessDenied, match="scope/stream"):
        read(store)


def test_truncation_during_a_read_keeps_the_blocks_before() -> None:
    def truncate(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        if isinstance(command, wire.ReadSegment) and command.offset == 4 * PART:
            store.segment.start = 6 * PART + 3
        return False

    found: list[bytes] = []
    with script(truncate) as store:
        blocks = reader(store).blocks()
        with pytest.raises(SegmentTruncated) as raised:
            found.extend(map(bytes, blocks))
        assert b"".join(found) == DATA[: 4 * PART]
        assert raised.value.start_offset == 6 * PART + 3


def test_segment_deleted_during_a_read_is_missing() -> None:
    gone = reading(
        lambda _, client, command: client.send(wire.NoSuchSegment(command.request_id, NAME, "", command.offset)),
        lambda *asked: asked[2].offset >= 4 * PART,
    )
    with script(gone) as store, pytest.raises(NoSuchSegment, match=NAME):
        read(store)


@pytest.mark.timeout(60)
def test_silent_server_is_unavailable_in_bounded_time() -> None:
    def silent(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        return isinstance(command, wire.ReadSegment | wire.KeepAlive)

    with script(silent, timeout=0.6) as store:
        with pytest.raises(StreamStoreUnavailable, match=rf"127\.0\.0\.1:{store.port}"):
            read(store)
        assert any(isinstance(command, wire.KeepAlive) for command in store.asked)


def test_slow_server_that_keeps_alive_is_waited_for() -> None:
    late: list[tuple[Client, wire.ReadSegment]] = []

    def slow(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        if isinstance(command, wire.ReadSegment):
            late.append((client, command))
            return True
        if isinstance(command, wire.KeepAlive):
            client.send(command)
            if sum(isinstance(one, wire.KeepAlive) for one in store.asked) == 6:
                for asker, read in late:
                    asker.send(store.read(read))
            return True
        return False

    with script(slow, timeout=1.5) as store:
        assert read(store, 0, 1500) == DATA[:1500]
        assert len(store.clients) == 1


@pytest.mark.timeout(60)
def test_server_that_only_says_that_it_is_alive_is_given_up() -> None:
    def alive(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        if isinstance(command, wire.ReadSegment):
            while not given_up.wait(0.01):
                client.send(wire.KeepAlive())
        return isinstance(command, wire.ReadSegment)

    given_up = threading.Event()
    with script(alive, timeout=0.3) as store:
        with pytest.raises(StreamStoreUnavailable):
            read(store)
        given_up.set()


@pytest.mark.parametrize("host", ["", "a\0b", "x" * 300, "a..b"])
def test_address_that_is_none_is_unavailable(host: str) -> None:
    with script(timeout=0.2) as store:
        store.endpoint = lambda *_: Endpoint(host, 70_000)  # type: ignore[method-assign]
        with pytest.raises(StreamStoreUnavailable):
            read(store)


@pytest.mark.parametrize(
    "claims", [b"[" * 100_000, b'{"exp":1e400,"iat":1e400}', b'{"exp":%s,"iat":1}' % (b"9" * 4000)]
)
def test_token_with_hostile_claims_is_renewed_as_one_without(claims: bytes) -> None:
    assert lifetime(f"a.{base64.urlsafe_b64encode(claims).decode()}.c") in {0.0, DEFAULT_LIFETIME}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (wire.SegmentRead("other/stream/0.#epoch.0", 0, False, False, b"abc", 2), "unexpected reply .*other/stream"),
        (wire.SegmentRead(NAME, 77, False, False, b"abc", 2), "unexpected reply .*3 bytes at 77"),
        (wire.SegmentRead(NAME, 0, False, False, b"abc", 999), "another request's id"),
        (wire.SegmentRead(NAME, 0, False, False, b"x" * (PART + 1), 2), "unexpected reply .*513 bytes at 0"),
        (wire.SegmentTruncated(4711, NAME), "unexpected reply .*SegmentTruncated"),
    ],
)
def test_unrequested_answer_is_refused(answer: WireCommand, says: str) -> None:
    wrong = reading(lambda _, client, __: client.send(answer))
    with script(wrong) as store, pytest.raises(WireError, match=says):
        read(store)


@pytest.mark.parametrize(
    ("kind", "raw", "says"),
    [
        (wire.ReadSegment, bytes.fromhex("00001267 00000000"), "type 4711"),
        (WireCommand, b"HTTP/1.1 400 Bad Request\r\n\r\n", "a frame of .* bytes"),
    ],
)
def test_unknown_command_or_protocol_is_refused(kind: type[WireCommand], raw: bytes, says: str) -> None:
    other = instead_of(kind, lambda _, client, __: client.send_raw(raw))
    with script(other) as store, pytest.raises(WireError, match=says):
        read(store)
