"""Our client with a real Pravega, beyond the common contract, including errors."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest

from streamvault.streamstore.errors import (
    AccessDenied,
    StreamStoreError,
    StreamStoreUnavailable,
)
from streamvault.streamstore.model import (
    KeyRange,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamName,
)
from streamvault.streamstore.pravega import PravegaSettings, PravegaStore
from streamvault.streamstore.pravega.appender import PravegaAppender
from streamvault.streamstore.pravega.reader import BlockReader
from streamvault.streamstore.pravega.segments import SegmentName
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_security import ADMIN, Account
from testkit.servers.proxy import FaultProxy
from testkit.streams import frame

pytestmark = [pytest.mark.pravega, pytest.mark.timeout(300)]

MIB = 1024 * 1024
FIRST = SegmentId(0, 0)
READER = Account("reader", "test-reader-password", "prn::*,READ")


def settings_of(server: PravegaServer, **changes: object) -> PravegaSettings:
    return replace(PravegaSettings.from_environment(server.uri, {}), **changes)  # type: ignore[arg-type]


def fixed(segments: int, **more: object) -> StreamConfiguration:
    return StreamConfiguration(scaling=Scaling(min_segments=segments), **more)  # type: ignore[arg-type]


def new_stream(store: PravegaStore, segments: int = 1) -> StreamName:
    stream = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "stream")
    store.create_scope(stream.scope)
    store.create_stream(stream, fixed(segments))
    return stream


def blocks_of(total: int, seed: int, largest: int = MIB) -> list[bytes]:
    """Complete random events in blocks of up to 1 MiB."""
    rng = random.Random(seed)
    blocks = []
    while total > 0:
        blocks.append(
            b"".join(frame(rng.randbytes(rng.choice([0, 1, 100, 1000]))) for _ in range(rng.randrange(1, 50)))
        )
        if rng.random() < 0.3:
            blocks.append(frame(rng.randbytes(rng.randrange(1, largest - 8))))
        total -= len(blocks[-1])
    return blocks


def read(store: PravegaStore, stream: StreamName, segment: SegmentId = FIRST) -> bytes:
    info = store.segment_info(stream, [segment])[0]
    return b"".join(bytes(block) for block in store.read(stream, segment, info.start_offset, info.write_offset))


@pytest.fixture
def store(pravega: PravegaServer) -> Iterator[PravegaStore]:
    with PravegaStore(settings_of(pravega)) as opened:
        yield opened


# streams and scopes


@pytest.mark.late
def test_all_pages_of_scopes_are_listed(store: PravegaStore) -> None:
    """The controller returns 1,000 at a time. The scopes are not deleted: the server is temporary."""
    prefix = f"page-{uuid.uuid4().hex[:8]}-"
    names = [f"{prefix}{number:04}" for number in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(store.create_scope, names))
    found = list(store.list_scopes())
    assert [name for name in found if name.startswith(prefix)] == names
    assert found == sorted(found)
    assert not any(name.startswith("_") for name in found)


def test_stream_with_many_segments_is_read(store: PravegaStore) -> None:
    stream = new_stream(store)
    count = 2000
    edges = [number / count for number in range(count + 1)]
    epoch = store.scale(stream, [FIRST], [KeyRange(low, high) for low, high in pairwise(edges)])
    assert len(epoch.segments) == count
    described = store.describe(stream)
    infos = store.segment_info(stream, list(epoch.segments))
    assert set(described.tail.offsets) == set(epoch.segments)
    assert [info.segment for info in infos] == list(epoch.segments)


# scales


def test_concurrent_scales_are_serialized(pravega: PravegaServer, store: PravegaStore) -> None:
    stream = new_stream(store, 8)
    segments = store.describe(stream).epochs[0].segments

    def split(segment: SegmentId) -> set[KeyRange]:
        held = segments[segment]
        middle = (held.low + held.high) / 2
        halves = [KeyRange(held.low, middle), KeyRange(middle, held.high)]
        with PravegaStore(settings_of(pravega)) as mine:
            epoch = mine.scale(stream, [segment], halves)
        assert set(halves) <= set(epoch.segments.values())
        assert segment not in epoch.segments
        return {epoch.number}

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for found in pool.map(split, list(segments)[:4]) for number in found]
    assert sorted(numbers) == [1, 2, 3, 4]
    described = store.describe(stream)
    assert [len(epoch.segments) for epoch in described.epochs] == [8, 9, 10, 11, 12]


def test_fixed_policy_with_another_number_scales_the_stream(store: PravegaStore) -> None:
    """A behaviour of the controller that matters for changing tags: see `PravegaStore.update_stream`."""
    stream = new_stream(store, 1)
    store.scale(stream, [FIRST], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])
    store.update_stream(stream, fixed(1, tags=("only-a-tag",)))
    assert [len(epoch.segments) for epoch in store.describe(stream).epochs] == [1, 2, 1]
    by_rate = StreamConfiguration(Scaling(ScaleKind.BY_EVENTS, 1_000_000, 2, 1))
    store.update_stream(stream, by_rate)
    store.scale(stream, [SegmentId(2, 3)], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])
    store.update_stream(stream, replace(by_rate, tags=("only-a-tag",)))
    assert [len(epoch.segments) for epoch in store.describe(stream).epochs] == [1, 2, 1, 2]


# data


def test_events_of_the_public_python_client_are_read(pravega: PravegaServer, store: PravegaStore) -> None:
    pravega_client = pytest.importorskip("pravega_client", reason="the PyPI client has a wheel for CPython 3.11 only")
    stream = new_stream(store)
    manager = pravega_client.StreamManager(f"tcp://127.0.0.1:{pravega.controller_port}")
    writer = manager.create_writer(stream.scope, stream.stream)
    payloads = [b"", b"a", b"\x00" * 100, os.urandom(3 * MIB), os.urandom(8 * MIB - 8)]
    for payload in payloads:
        writer.write_event_bytes(payload)
    writer.flush()
    assert read(store, stream) == b"".join(map(frame, payloads))


# errors


@pytest.fixture(scope="module")
def proxied(pravega: PravegaServer) -> Iterator[tuple[PravegaServer, FaultProxy]]:
    """A server whose segment store can be reached only through a proxy; required where the plain server is."""
    del pravega
    with (
        FaultProxy() as proxy,
        PravegaServer(properties={"pravegaservice.service.published.port": str(proxy.port)}) as server,
    ):
        proxy.target_port = server.segment_store_port
        yield server, proxy


@pytest.fixture
def faulty(proxied: tuple[PravegaServer, FaultProxy]) -> Iterator[tuple[PravegaStore, FaultProxy]]:
    server, proxy = proxied
    with PravegaStore(settings_of(server, timeout=6.0)) as opened:
        yield opened, proxy
    proxy.accept()
    proxy.resume()


@pytest.mark.parametrize("seed", [0, *(pytest.param(more, marks=pytest.mark.long) for more in (1, 2))])
def test_appends_over_cut_connections_write_exact_bytes(faulty: tuple[PravegaStore, FaultProxy], seed: int) -> None:
    store, proxy = faulty
    stream = new_stream(store)
    blocks = blocks_of(30 * MIB, seed)
    rng = random.Random(seed)
    # before half of the bytes are through, whatever the machine's speed
    moments = sorted(rng.randrange(15 * MIB) for _ in range(6))
    start, over = proxy.bytes_to_server, threading.Event()
    cuts = []

    def cut() -> None:
        for moment in moments:
            while not over.is_set() and (proxy.bytes_to_server - start < moment or not proxy.cut()):
                time.sleep(0.001)
            cuts.append(proxy.bytes_to_server - start)

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        with store.appender(stream, FIRST) as appender:
            for block in blocks:
                appender.append(block)
            assert appender.flush() == sum(map(len, blocks))
            assert len(cuts) == len(moments)
    finally:
        over.set()
        cutter.join()
    assert read(store, stream) == b"".join(blocks)


def test_lost_acknowledgements_write_no_block_twice(faulty: tuple[PravegaStore, FaultProxy]) -> None:
    """The connection is cut after so many bytes to the client: blocks are stored, but acknowledgements are lost."""
    store, proxy = faulty
    stream = new_stream(store)
    blocks = blocks_of(4 * MIB, 77)
    before = proxy.connections
    with store.appender(stream, FIRST) as appender:
        for number, block in enumerate(blocks):
            if number % 7 == 0:
                proxy.cut_after(1 + number % 90)
            appender.append(block)
        appender.flush()
    assert proxy.connections - before > 5
    assert read(store, stream) == b"".join(blocks)


@pytest.mark.parametrize("seed", [0, *(pytest.param(more, marks=pytest.mark.long) for more in (1, 2))])
def test_reads_over_cut_connections_are_resumed(faulty: tuple[PravegaStore, FaultProxy], seed: int) -> None:
    store, proxy = faulty
    stream = new_stream(store)
    blocks = blocks_of(30 * MIB, seed)
    with store.appender(stream, FIRST) as appender:
        for block in blocks:
            appender.append(block)
    rng = random.Random(seed)
    found, before = bytearray(), proxy.connections
    for block in store.read(stream, FIRST, 0, sum(map(len, blocks))):
        found += block
        if rng.random() < 0.5:
            proxy.cut_after(rng.randrange(1, 3 * MIB))
    assert found == b"".join(blocks)
    assert proxy.connections - before > 3


@pytest.mark.parametrize("fault", ["refused", "silent"])
def test_missing_segment_store_is_unavailable_in_bounded_time(
    faulty: tuple[PravegaStore, FaultProxy], fault: str
) -> None:
    store, proxy = faulty
    stream = new_stream(store)
    with store.appender(stream, FIRST) as appender:
        for _ in range(20):
            appender.append(bytes(MIB))
    blocks = store.read(stream, FIRST, 0, 20 * MIB)
    appender = store.appender(stream, FIRST)
    next(blocks)
    if fault == "silent":
        proxy.silence()
    else:
        proxy.refuse()
        proxy.cut()

    def fails(use: Callable[[], object]) -> None:
        with pytest.raises(StreamStoreUnavailable, match=rf"127\.0\.0\.1:{proxy.port}\. Tried for \d+ s") as raised:
            use()
        assert "\n" not in str(raised.value)

    uses: list[Callable[[], object]] = [
        lambda: list(blocks),
        lambda: write_and_flush(appender),
        lambda: store.segment_info(stream, [FIRST]),
    ]
    with ThreadPoolExecutor(len(uses)) as pool:
        list(pool.map(fails, uses))
    proxy.resume()
    proxy.accept()
    assert store.segment_info(stream, [FIRST])[0].write_offset >= 20 * MIB


def write_and_flush(appender: object) -> None:
    assert isinstance(appender, PravegaAppender)
    try:
        for _ in range(10):
            appender.append(bytes(MIB))
        appender.flush()
    finally:
        appender.close()


def test_pause_shorter_than_the_timeout_is_waited_out(faulty: tuple[PravegaStore, FaultProxy]) -> None:
    store, proxy = faulty
    stream = new_stream(store)
    with store.appender(stream, FIRST) as appender:
        appender.append(frame(b"before"))
        appender.flush()
        proxy.refuse()
        proxy.cut()
        timer = threading.Timer(2.0, proxy.accept)
        timer.start()
        appender.append(frame(b"after"))
        appender.flush()
    assert read(store, stream) == frame(b"before") + frame(b"after")


@pytest.mark.parametrize("doing", ["append", pytest.param("read", marks=pytest.mark.long)])
def test_killed_server_is_unavailable_in_bounded_time(pravega: PravegaServer, doing: str) -> None:
    del pravega
    with PravegaServer() as server, PravegaStore(settings_of(server, timeout=4.0)) as store:
        stream = new_stream(store)
        appender = store.appender(stream, FIRST)
        for _ in range(30):
            appender.append(bytes(MIB))
        appender.flush()
        blocks = store.read(stream, FIRST, 0, 30 * MIB)
        next(blocks)
        threading.Timer(0.3, server.kill).start()

        def work() -> None:
            while True:
                if doing == "append":
                    appender.append(bytes(MIB))
                else:
                    for _ in store.read(stream, FIRST, 0, 30 * MIB):
                        time.sleep(0.01)

        with pytest.raises(StreamStoreUnavailable, match=r"127\.0\.0\.1:\d+\. Tried for"):
            work()
        with pytest.raises(StreamStoreUnavailable, match=rf"controller.*127\.0\.0\.1:{server.controller_port}"):
            store.describe(stream)
        appender.close()


# TLS, passwords, tokens


@pytest.fixture(scope="module")
def secured(pravega: PravegaServer) -> Iterator[PravegaServer]:
    del pravega
    with PravegaServer(tls=True, accounts=(ADMIN, READER)) as server:
        yield server


def login(server: PravegaServer, account: Account, **changes: object) -> PravegaSettings:
    assert server.certificates is not None
    environment = {
        "PRAVEGA_USERNAME": account.user,
        "PRAVEGA_PASSWORD": account.password,
        "PRAVEGA_CA_FILE": str(server.certificates.authority),
    }
    return replace(PravegaSettings.from_environment(server.uri, environment), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [pytest.param({}, marks=pytest.mark.long), {"host": "127.0.0.2", "verify_hostname": False}]
)
def test_tls_and_password_are_accepted(secured: PravegaServer, changes: dict[str, object]) -> None:
    """The second time under a name that is not in the certificate."""
    blocks = blocks_of(20 * MIB, 3)
    with PravegaStore(login(secured, ADMIN, **changes)) as store:
        stream = new_stream(store, 2)
        with store.appender(stream, FIRST) as appender:
            for block in blocks:
                appender.append(block)
        assert read(store, stream) == b"".join(blocks)
        store.scale(stream, [SegmentId(0, 1)], [KeyRange(0.5, 0.75), KeyRange(0.75, 1.0)])
        store.truncate_segment(stream, FIRST, 100)
        store.truncate(StreamCut(stream, {FIRST: 200, SegmentId(0, 1): 0}))
        store.seal(stream)
        assert store.describe(stream).sealed
        store.delete(stream)


def test_read_only_user_can_read_and_not_write(secured: PravegaServer) -> None:
    with PravegaStore(login(secured, ADMIN)) as store:
        stream = new_stream(store)
        with store.appender(stream, FIRST) as appender:
            appender.append(frame(b"secret"))
    with PravegaStore(login(secured, READER)) as store:
        assert read(store, stream) == frame(b"secret")
        assert store.exists(stream)
        assert stream in list(store.list_streams(stream.scope))
        # Pravega's permissions: only users that may write can read the epochs
        with pytest.raises(AccessDenied, match=r"reader.*READ_UPDATE"):
            store.describe(stream)
        uses: list[Callable[[], object]] = [
            lambda: store.appender(stream, FIRST),
            lambda: store.truncate_segment(stream, FIRST, 5),
            lambda: store.truncate(StreamCut(stream, {FIRST: 5})),
            lambda: store.create_scope("mine"),
            lambda: store.create_stream(StreamName(stream.scope, "mine"), fixed(1)),
            lambda: store.scale(stream, [FIRST], [KeyRange(0.0, 1.0)]),
            lambda: store.seal(stream),
            lambda: store.delete(stream),
        ]
        for use in uses:
            with pytest.raises(AccessDenied, match="reader"):
                use()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"password": "wrong"}, "PRAVEGA_PASSWORD"),
        ({"username": "nobody"}, "PRAVEGA_USERNAME"),
        ({"username": "", "password": ""}, "PRAVEGA_USERNAME"),
        ({"ca_file": ""}, "PRAVEGA_CA_FILE"),
        ({"ca_file": "", "verify_hostname": False}, "PRAVEGA_CA_FILE"),
        ({"host": "127.0.0.2"}, "PRAVEGA_TLS_VERIFY_HOSTNAME"),
    ],
)
def test_wrong_logins_and_unknown_authorities_fail_at_once(
    secured: PravegaServer, changes: dict[str, object], says: str
) -> None:
    ever = {"timeout": 3600.0}  # who tries again does not end before the test's time is over
    with (
        PravegaStore(login(secured, ADMIN, **{**ever, **changes})) as store,
        pytest.raises(AccessDenied, match=says) as raised,
    ):
        store.exists(StreamName("any", "stream"))
    assert "\n" not in str(raised.value)
    assert "test-admin-password" not in str(raised.value)


def test_mixed_plain_and_tls_are_told(secured: PravegaServer, pravega: PravegaServer) -> None:
    for settings, what in (
        (login(secured, ADMIN, tls=False, timeout=3.0), "the server speaks TLS"),
        (login(secured, ADMIN, port=pravega.controller_port, timeout=3.0), "the server does not speak TLS"),
    ):
        with PravegaStore(settings) as store, pytest.raises(StreamStoreError, match=what):
            store.exists(StreamName("any", "stream"))


def signed_token(stream: StreamName, seconds: int, key: bytes = b"secret") -> str:
    """Tokens as the controller issues them, with a chosen lifetime: the standalone server's key is known."""

    def part(value: dict[str, object]) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    now = int(time.time())
    claims: dict[str, object] = {
        "sub": "segmentstoreresource",
        "aud": "segmentstore",
        "iat": now,
        "exp": now + seconds,
        f"prn::/scope:{stream.scope}/stream:{stream.stream}": "READ_UPDATE",
    }
    body = part({"alg": "HS512"}) + b"." + part(claims)
    signature = hmac.new(key, body, hashlib.sha512).digest()
    return (body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def test_expired_tokens_are_renewed(secured: PravegaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with PravegaStore(login(secured, ADMIN)) as store:
        stream = new_stream(store)
        asked: list[bool] = []

        def short_lived(name: StreamName, *, write: bool) -> str:
            asked.append(write)
            return signed_token(name, 2)

        monkeypatch.setattr(store._controller, "delegation_token", short_lived)
        blocks = blocks_of(12 * MIB, 4)
        with store.appender(stream, FIRST) as appender:
            for number, block in enumerate(blocks):
                appender.append(block)
                if number in (3, 6):
                    # the server closes the connection of a writer whose token has expired
                    time.sleep(3)
        assert asked.count(True) >= 3
        found = bytearray()
        reader = BlockReader(
            store._stores, SegmentName(stream, FIRST), 0, sum(map(len, blocks)), part_bytes=MIB, in_flight=2
        )
        for number, block in enumerate(reader.blocks()):
            found += block
            if number in (2, 5):
                time.sleep(3)
        assert found == b"".join(blocks)
        assert asked.count(False) >= 3


def test_token_expired_before_renewal_is_requested_again(
    secured: PravegaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's clock may be ahead: the client considers its token valid, and the server rejects it."""
    with PravegaStore(login(secured, ADMIN)) as store:
        stream = new_stream(store)
        with store.appender(stream, FIRST) as appender:
            appender.append(frame(b"x"))
        real = store._controller.delegation_token
        given: list[str] = []

        def stale_once(name: StreamName, *, write: bool) -> str:
            given.append(real(name, write=write) if given else signed_token(name, -60))
            return given[-1]

        monkeypatch.setattr(store._controller, "delegation_token", stale_once)
        for use in (
            lambda: store.segment_info(stream, [FIRST]),
            lambda: read(store, stream),
            lambda: store.appender(stream, FIRST).close(),
        ):
            given.clear()
            store._stores.tokens._tokens.clear()
            use()
            assert len(given) >= 2

        monkeypatch.setattr(store._controller, "delegation_token", lambda name, **_: signed_token(name, 60, b"other"))
        store._stores.tokens._tokens.clear()
        with pytest.raises(AccessDenied, match="token"):
            store.segment_info(stream, [FIRST])
