"""The appender with a segment store that loses connections, and with a concurrent writer."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamvault.streamstore.errors import (
    AccessDenied,
    OffsetConflict,
    SegmentSealed,
    StreamStoreError,
    StreamStoreUnavailable,
    WireError,
)
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.appender import PravegaAppender
from streamvault.streamstore.pravega.segments import SegmentName
from streamvault.streamstore.pravega.wire import WireCommand
from testkit.pravega_script import NAME, SEGMENT, STREAM, Client, Hook, ScriptedStore, instead_of, wait_for

BLOCKS = [bytes([number]) * (50 + number) for number in range(40)]
WHOLE = b"".join(BLOCKS)


def appender(store: ScriptedStore, *, in_flight: int = 4) -> PravegaAppender:
    return PravegaAppender(store.stores, SegmentName(STREAM, SEGMENT), in_flight=in_flight)


def fill(store: ScriptedStore) -> int:
    with appender(store) as opened:
        for block in BLOCKS:
            opened.append(block)
        return opened.flush()


def appending(
    act: Callable[[ScriptedStore, Client, Any], object],
    when: Callable[[ScriptedStore, Client, Any], bool] = lambda *_: True,
) -> Hook:
    return instead_of(wire.ConditionalBlockEnd, act, when)


def is_seventh(_store: ScriptedStore, _client: Client, command: wire.ConditionalBlockEnd) -> bool:
    return command.data == BLOCKS[7]


def append_foreign_bytes(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
    """A hook: another writer is faster than the seventh block."""
    if isinstance(command, wire.ConditionalBlockEnd) and is_seventh(store, client, command):
        store.segment.data += b"" if b"foreign" in store.segment.data else b"foreign"
    return False


def test_blocks_in_flight_are_bounded_and_acknowledgements_cumulative() -> None:
    held: list[tuple[Client, wire.ConditionalBlockEnd]] = []

    with ScriptedStore(appending(lambda _, client, command: held.append((client, command)))) as store:
        opened = appender(store, in_flight=3)
        for block in BLOCKS[:3]:
            opened.append(block)
        fourth = threading.Thread(target=opened.append, args=(BLOCKS[3],))
        fourth.start()
        assert wait_for(lambda: len(held) >= 3)
        fourth.join(0.3)
        assert fourth.is_alive()
        with store.lock:
            assert len(held) == 3
            for client, command in held[:2]:
                store.append(client, command, acknowledge=False)
            # one acknowledgement for all three
            store.append(*held[2])
        fourth.join()
        assert opened.acknowledged == len(b"".join(BLOCKS[:3]))
        assert opened.offset == len(b"".join(BLOCKS[:4]))
        opened.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_lost_connections_lose_and_repeat_no_bytes(seed: int) -> None:
    """Before a block, after it was stored but not acknowledged, and while blocks of the old connection arrive."""
    rng = random.Random(seed)
    late: list[tuple[Client, wire.ConditionalBlockEnd]] = []

    def lose(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        if isinstance(command, wire.ConditionalBlockEnd) and rng.random() < 0.15:
            fate = rng.choice(["before", "after", "late"])
            if fate == "after":
                store.append(client, command, acknowledge=False)
            if fate == "late":
                late.append((client, command))
            client.hang_up()
            return True
        if isinstance(command, wire.ConditionalBlockEnd) and late and late[0][0] is client:
            # later requests on the lost connection wait as well
            late.append((client, command))
            return True
        if late and rng.random() < 0.4:
            # the block of a lost connection is stored before the new connection's first request
            for held in late:
                store.append(*held)
            late.clear()
        return False

    with ScriptedStore(lose) as store:
        assert fill(store) == len(WHOLE)
        assert store.segment.data == WHOLE


def test_foreign_append_is_a_conflict_with_the_write_offset() -> None:
    with ScriptedStore(append_foreign_bytes) as store:
        with pytest.raises(OffsetConflict, match="another writer") as raised:
            fill(store)
        held = b"".join(BLOCKS[:7]) + b"foreign"
        assert store.segment.data == held
        assert raised.value.write_offset == len(held)


@pytest.mark.parametrize("landed", [True, False])
def test_foreign_append_during_a_lost_connection_tells_whether_the_block_landed(landed: bool) -> None:
    def lose(store: ScriptedStore, client: Client, command: wire.ConditionalBlockEnd) -> None:
        if landed:
            store.append(client, command, acknowledge=False)
        client.hang_up()
        store.segment.data += b"foreign"

    with ScriptedStore(appending(lose)) as store:
        opened = appender(store, in_flight=1)
        opened.append(BLOCKS[0])
        with pytest.raises(OffsetConflict) as raised:
            opened.flush()
        assert opened.acknowledged == (len(BLOCKS[0]) if landed else 0)
        assert raised.value.write_offset == len(store.segment.data)
        opened.close()


def test_foreign_block_of_the_same_length_is_a_conflict() -> None:
    """The rejected block's successor fits behind the foreign one and is stored; its number alone would look right."""

    def swap(store: ScriptedStore, client: Client, command: wire.ConditionalBlockEnd) -> None:
        store.segment.data += b"?" * len(BLOCKS[7])
        client.send(wire.ConditionalCheckFailed(command.writer_id, command.event_number, command.request_id))
        block, start = BLOCKS[8], len(store.segment.data)
        store.segment.data += block
        store.segment.last_numbers[command.writer_id] = start + len(block)

    once = appending(swap, lambda *asked: is_seventh(*asked) and b"?" not in asked[0].segment.data)
    with ScriptedStore(once) as store:
        with pytest.raises(OffsetConflict, match="between"):
            fill(store)
        assert b"?" in store.segment.data


@pytest.mark.parametrize(("fault", "kind"), [("foreign", OffsetConflict), ("lost", StreamStoreUnavailable)])
def test_appender_writes_nothing_after_an_error(fault: str, kind: type[StreamStoreError]) -> None:
    """After a lost server it is unknown whether the block was stored; this appender must not append it again."""
    gone = True

    def fail(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        if not gone or not isinstance(command, wire.ConditionalBlockEnd):
            return False
        if fault == "lost":
            client.hang_up()
        elif not store.segment.data:
            store.segment.data += b"foreign"
        return fault == "lost"

    with ScriptedStore(fail, timeout=0.4 if fault == "lost" else 30.0) as store:
        opened = appender(store)
        opened.append(BLOCKS[0])
        with pytest.raises(kind):
            opened.flush()
        gone = False
        for use in (lambda: opened.append(BLOCKS[0]), opened.flush):
            with pytest.raises(kind):
                use()
        opened.close()
        assert store.segment.data == (b"foreign" if fault == "foreign" else b"")


def test_wrong_host_asks_the_controller_again() -> None:
    moved = appending(
        lambda _, client, command: client.send(wire.WrongHost(command.request_id, NAME, "", "")),
        lambda store, client, _: client.number == 0 and len(store.segment.data) > 200,
    )
    with ScriptedStore(moved) as store:
        assert fill(store) == len(WHOLE)
        assert store.segment.data == WHOLE
        assert store.endpoints_asked == 2


def test_expired_token_is_renewed_once() -> None:
    def refuse(expired: Callable[[str], bool]) -> Hook:
        return instead_of(
            wire.SetupAppend,
            lambda _, client, command: client.send(wire.AuthTokenCheckFailed(command.request_id, "", 1)),
            lambda *asked: expired(asked[2].token),
        )

    with ScriptedStore(refuse(lambda token: token == "token-1"), username="ann") as store:
        assert fill(store) == len(WHOLE)
        assert store.tokens_asked == 2
    with ScriptedStore(refuse(lambda _: True), username="ann") as store, pytest.raises(AccessDenied):
        appender(store)


def test_segment_sealed_between_blocks_holds_those_before() -> None:
    def seal(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        store.segment.sealed = len(store.segment.data) > 500
        return False

    with ScriptedStore(seal) as store:
        with pytest.raises(SegmentSealed, match=NAME):
            fill(store)
        assert WHOLE.startswith(store.segment.data)


def test_closed_appender_refuses_use() -> None:
    with ScriptedStore() as store:
        opened = appender(store)
        opened.close()
        for use in (lambda: opened.append(b"x"), opened.flush):
            with pytest.raises(StreamStoreError, match="closed"):
                use()


def test_error_in_the_with_block_drops_unacknowledged_blocks() -> None:
    with ScriptedStore() as store:
        opened = appender(store)
        with suppress(KeyError), opened:
            opened.append(BLOCKS[0])
            raise KeyError
        with pytest.raises(StreamStoreError):
            opened.flush()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("fate", ["silent", "hangs up", "refuses"])
def test_lost_server_is_unavailable_in_bounded_time(fate: str) -> None:
    def lost(store: ScriptedStore, client: Client, command: WireCommand) -> bool:
        if len(store.segment.data) < 500 or isinstance(command, wire.Hello):
            return False
        if fate == "hangs up":
            client.hang_up()
        if fate == "refuses":
            if not isinstance(command, wire.ConditionalBlockEnd):
                return False
            client.send(wire.ConditionalCheckFailed(command.writer_id, command.event_number, command.request_id))
        return True

    with ScriptedStore(lost, timeout=0.6) as store, pytest.raises(StreamStoreUnavailable, match=r"127\.0\.0\.1"):
        fill(store)


def test_acknowledgement_of_an_unsent_block_is_refused() -> None:
    wrong = appending(
        lambda _, client, command: client.send(wire.DataAppended(command.writer_id, 1, 0, command.request_id, 1))
    )
    with ScriptedStore(wrong) as store, pytest.raises(WireError, match="acknowledgement of 1"):
        fill(store)
