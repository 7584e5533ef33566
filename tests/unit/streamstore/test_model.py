"""The values of a stream, and stream URIs: text forms, their order, invalid ones; no login is shown."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.common.errors import Problem
from streamvault.streamstore import errors, uri
from streamvault.streamstore.cuts import load_cut
from streamvault.streamstore.errors import InvalidCut, InvalidName, OffsetConflict, SegmentTruncated
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import (
    SEGMENT_END,
    Epoch,
    Epochs,
    EventPointer,
    KeyRange,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.pravega.controller import Controller
from streamvault.streamstore.pravega.store import PravegaStore
from streamvault.streamstore.uri import (
    StoreAddress,
    is_same_store,
    is_stream,
    lend,
    parse_scope,
    parse_stream,
    sharing_stores,
)

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
PARTS = st.builds(str.__add__, st.sampled_from(LETTERS), st.text(LETTERS + ".-", max_size=254))
NAMES = st.builds(StreamName, PARTS, PARTS)
INT31 = st.integers(0, 2**31 - 1)
SEGMENTS = st.builds(SegmentId, INT31, INT31)
POINTERS = st.builds(EventPointer, NAMES, SEGMENTS, st.integers(0, 2**63 - 1), st.integers(8, 2**31 - 1))
JAVA_CUT = "H4sIAAAAAAAA/zOwKs7IL9DPL0pJLSq2MtIx0DG0MgaSBla6hjqGRsYmOpYIAAAdNCA4LQAAAA=="
"""What the Java client 0.13.0 has printed."""


def java_cut(plain: str) -> str:
    return base64.b64encode(gzip.compress(plain.encode(), mtime=0)).decode()


@given(NAMES)
def test_stream_name_round_trips(name: StreamName) -> None:
    assert StreamName.parse(str(name)) == name


@pytest.mark.parametrize("part", ["", ".", "..", ".a", "-a", "_a", "a_b", "a/b", "a b", "ä", "a\n", "a\0", "a" * 256])
def test_invalid_part_of_a_name_is_refused(part: str) -> None:
    for scope, stream in ((part, "stream"), ("scope", part)):
        with pytest.raises(InvalidName):
            StreamName(scope, stream)


@pytest.mark.parametrize("text", ["", "scope", "scope/", "/stream", "a/b/c"])
def test_invalid_stream_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        StreamName.parse(text)


@given(SEGMENTS)
def test_segment_round_trips(segment: SegmentId) -> None:
    assert SegmentId.parse(str(segment)) == segment
    assert SegmentId.of(segment.value) == segment


@given(SEGMENTS, SEGMENTS)
def test_segments_are_ordered_by_epoch_and_then_number(a: SegmentId, b: SegmentId) -> None:
    assert (a < b) == (a.value < b.value) == ((a.epoch, a.number) < (b.epoch, b.number))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.#epoch.",
        ".#epoch.1",
        "01.#epoch.1",
        "1.#epoch.01",
        "-1.#epoch.0",
        "2147483648.#epoch.0",
        "1.#epoch.1\n",
        "1.epoch.1",
        "\u0661.#epoch.1",
    ],
)
def test_invalid_segment_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        SegmentId.parse(text)


@given(POINTERS)
def test_pointer_round_trips(pointer: EventPointer) -> None:
    assert EventPointer.parse(str(pointer)) == pointer


def test_pointer_is_written_as_by_the_java_client() -> None:
    pointer = EventPointer(StreamName("scope", "stream"), SegmentId(2, 5), offset=1234, length=108)
    assert str(pointer) == "scope/stream/5.#epoch.2:1234-108"


@given(POINTERS, POINTERS)
def test_pointers_of_a_stream_are_in_the_streams_order(a: EventPointer, b: EventPointer) -> None:
    b = EventPointer(a.stream, b.segment, b.offset, b.length)
    assert (a < b) == ((a.segment, a.offset, a.length) < (b.segment, b.offset, b.length))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "scope/stream/0.#epoch.0",
        "scope/stream/0.#epoch.0:1",
        "scope/stream/0.#epoch.0:1-7",
        "scope/stream/0.#epoch.0:-1-8",
        "scope/stream/0.#epoch.0:01-8",
        "scope/stream/0.#epoch.0:1-08",
        "scope/stream/0.#epoch.0:1-8 ",
        "scope/stream/0.#epoch.0:9223372036854775808-8",
        "scope/stream/0.#epoch.0:0-2147483648",
        "stream/0.#epoch.0:1-8",
        "a/b/c/0.#epoch.0:1-8",
    ],
)
def test_invalid_pointer_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        EventPointer.parse(text)


@given(NAMES, st.dictionaries(SEGMENTS, st.integers(0, 2**63 - 1), min_size=1, max_size=5))
def test_cut_round_trips(name: StreamName, offsets: dict[SegmentId, int]) -> None:
    cut = StreamCut(name, offsets)
    assert StreamCut.from_json(cut.to_json()) == StreamCut.from_json(json.dumps(cut.to_json()), name) == cut
    assert StreamCut.from_json(MappingProxyType(cut.to_json())) == cut
    assert list(cut.offsets) == sorted(offsets)
    assert hash(cut) == hash(StreamCut(name, dict(reversed(offsets.items()))))
    assert pickle.loads(pickle.dumps(cut)) == cut


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "at least one entry"),
        ("{}", "at least one entry"),
        ("null", "at least one entry"),
        ('{"0.#epoch.0": 1}', "is not a segment name"),
        ('{"a/b/0.#epoch.x": 1}', "is not a segment name"),
        ('{"a/b/0.#epoch.0": -1}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": 1.5}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": true}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": "1"}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": 9223372036854775808}', "not a non-negative integer"),
        ('{"a/b/0.#epoch.0": 0, "a/c/1.#epoch.0": 0}', "segment of another stream"),
        (JAVA_CUT[:-8], "not a whole stream cut of the Java client"),
        (JAVA_CUT[:-8] + "????????", "not a whole stream cut of the Java client"),
        (java_cut("1:a/b:0:0:0"), "not a whole stream cut of the Java client"),
        (java_cut("0:a/b:0:0"), "not a whole stream cut of the Java client"),
        (java_cut("0:a/b:0,1:0,0:1"), "not a whole stream cut of the Java client"),
        (java_cut("0:a/b:-1:0:0"), "not a whole stream cut of the Java client"),
        (java_cut("0:a/b:" + "0" * 2**25), "not a whole stream cut of the Java client"),
        (java_cut("0:a:0:0:0"), "is not a segment name"),
        (java_cut("0:a/b:0:0:-1"), "not a non-negative integer"),
    ],
)
def test_invalid_cut_is_refused(value: str, message: str) -> None:
    with pytest.raises(InvalidCut, match=message) as caught:
        StreamCut.from_json(value)
    assert caught.value.exit_code == 2
    with pytest.raises(InvalidCut):
        StreamCut.from_json(value, StreamName("other", "stream"))


def test_cut_of_the_java_client_is_read() -> None:
    cut = {"shop/orders/0.#epoch.0": 1234, "shop/orders/1.#epoch.0": 99999999999, "shop/orders/2.#epoch.3": -1}
    assert StreamCut.from_json(f"{JAVA_CUT}\n", ends=True).to_json() == cut
    assert load_cut(JAVA_CUT, "--from") == cut
    with pytest.raises(InvalidCut, match="segment of another stream"):
        StreamCut.from_json(JAVA_CUT, StreamName("shop", "other"), ends=True)


def test_end_of_a_segment_is_an_offset_only_where_it_is_asked_for() -> None:
    cut = {"a/b/0.#epoch.0": SEGMENT_END}
    assert StreamCut.from_json(cut, ends=True).to_json() == cut
    with pytest.raises(InvalidCut, match="not a non-negative integer"):
        StreamCut.from_json({"a/b/0.#epoch.0": SEGMENT_END - 1}, ends=True)


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (0.6, 0.5), (-0.1, 0.5), (0.5, 1.1), (float("nan"), 1.0)])
def test_invalid_key_range_is_refused(low: float, high: float) -> None:
    with pytest.raises(InvalidName):
        KeyRange(low, high)


def test_ranges_overlap_where_a_key_falls_into_both() -> None:
    assert KeyRange(0.0, 0.5).overlaps(KeyRange(0.4, 0.6))
    assert not KeyRange(0.0, 0.5).overlaps(KeyRange(0.5, 0.6))


def test_description_knows_the_epoch_of_a_segment() -> None:
    a, b, c = SegmentId(0, 0), SegmentId(0, 1), SegmentId(1, 2)
    left, right = KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)
    name = StreamName("scope", "stream")
    epochs = Epochs([Epoch(0, {b: right, a: left}), Epoch(1, {b: right, c: left})])
    assert list(epochs[1].segments) == [c, b]  # in order of the key ranges
    cut = StreamCut(name, {a: 0, b: 0})
    described = StreamDescription(name, StreamConfiguration(), epochs, cut, cut, sealed=False)
    assert described.ranges() == {a: left, b: right, c: left}
    assert list(described.ranges()) == [a, b, c]
    assert described.epochs.lives == ((a, left, 0, 0), (b, right, 0, 1), (c, left, 1, 1))


def test_tags_are_a_set() -> None:
    assert StreamConfiguration(tags=("b", "a", "b")) == StreamConfiguration(tags=("a", "b"))


@pytest.mark.parametrize("kind", [one for one in vars(errors).values() if isinstance(one, type)])
def test_errors_can_be_pickled(kind: type[Problem]) -> None:
    error = pickle.loads(pickle.dumps(kind("what", where="where", todo="What to do.")))
    assert type(error) is kind
    assert str(error) == "what: where. What to do."


def test_pickled_errors_keep_their_fields() -> None:
    assert pickle.loads(pickle.dumps(SegmentTruncated("x", start_offset=7))).start_offset == 7
    assert pickle.loads(pickle.dumps(OffsetConflict("x", write_offset=9))).write_offset == 9


@pytest.mark.parametrize(
    ("uri", "scheme", "location"),
    [
        ("pravega://127.0.0.1:9090/scope/stream", "pravega", "127.0.0.1:9090"),
        ("pravega://controller.example.org:1/scope/stream", "pravega", "controller.example.org:1"),
        ("pravega://[::1]:9090/scope/stream", "pravega", "[::1]:9090"),
        ("pravega+tls://host:65535/scope/stream", "pravega+tls", "host:65535"),
        ("local:///data/scope/stream", "local", "/data"),
        ("local:///deep/er folder/ü%20#?/scope/stream", "local", "/deep/er folder/ü%20#?"),
    ],
)
def test_uri_names_a_store_and_a_stream(uri: str, scheme: str, location: str) -> None:
    address, stream = parse_stream(uri)
    assert (address.scheme, address.location, stream) == (scheme, location, StreamName("scope", "stream"))
    assert f"{address.uri}/{stream}" == uri
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "",
            "Write pravega://HOST:PORT/SCOPE/STREAM or pravega+tls://HOST:PORT/SCOPE/STREAM or local:///FOLDER/SCOPE/STREAM.",
        ),
        ("scope/stream", "not a stream's URI: 'scope/stream'"),
        ("kafka://host:1/scope/stream", "not a stream's URI: 'kafka://host:1/scope/stream'"),
        ("pravega:/host:1/scope/stream", "not a stream's URI"),
        ("pravega://host/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://host:/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://:9090/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://host:port/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://a/b:9090/scope/stream", "(HOST:PORT is missing or malformed)"),
        ("pravega://host:0/scope/stream", "(the port is out of range)"),
        ("pravega://host:65536/scope/stream", "(the port is out of range)"),
        ("pravega://host:9090/scope", "Write pravega://HOST:PORT/SCOPE/STREAM."),
        ("pravega://host:9090", "(SCOPE/STREAM is missing)"),
        ("pravega://host:9090/scope/stream/", "(SCOPE/STREAM is missing)"),
        ("pravega+tls://host:9090//stream", "(SCOPE/STREAM is missing)"),
        (
            "local://data/scope/stream",
            "(the folder is not absolute): 'local://data/scope/stream'. Write local:///FOLDER/",
        ),
        ("local:///scope/stream", "(the folder is missing)"),
        ("local:///../scope/stream", "'..' part"),
        ("local:///data/../x/scope/stream", "'..' part"),
        ("local:///data//scope/stream", "an empty"),
        ("local:///da\nta/scope/stream", "a control character"),
        ("local:///data/scope/str_eam", "invalid stream name: 'str_eam'"),
        ("local:///data/../stream", "invalid scope name: '..'"),
    ],
)
def test_invalid_uri_is_refused_in_one_line_with_the_right_form(uri: str, message: str) -> None:
    with pytest.raises(InvalidName) as caught:
        parse_stream(uri)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_host_and_port_have_one_spelling() -> None:
    address, _ = parse_stream("pravega://Controller.Example.ORG:09090/Scope/stream")
    assert address.uri == "pravega://controller.example.org:9090"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("pravega://HOST.invalid:9090", "pravega://host.invalid:09090", True),
        ("pravega://host.invalid:9090", "pravega+tls://host.invalid:9090", True),
        ("pravega://localhost:9090", "pravega://127.0.0.1:9090", True),
        ("pravega://[0:0:0:0:0:0:0:1]:9090", "pravega://[::1]:9090", True),
        ("pravega://host.invalid:9090", "pravega://host.invalid:9091", False),
        ("pravega://one.invalid:9090", "pravega://two.invalid:9090", False),
        ("local:///data", "local:///data", True),
        ("local:///data", "local:///other", False),
        ("local:///data", "pravega://127.0.0.1:9090", False),
    ],
)
def test_same_store_is_known_by_other_names(one: str, other: str, *, same: bool) -> None:
    first, second = (parse_stream(f"{uri}/scope/stream")[0] for uri in (one, other))
    assert is_same_store(first, second) == is_same_store(second, first) == same


def test_link_to_a_folder_is_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "streams")
    assert is_same_store(*(parse_stream(f"local://{tmp_path}/{name}/a/b")[0] for name in ("streams", "link")))


def test_login_in_a_uri_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidName, match="PRAVEGA_PASSWORD") as caught:
        parse_stream("pravega://user:pa/ss:word@host:9090/scope/stream")
    assert "word" not in str(caught.value).replace("PRAVEGA_PASSWORD", "")
    assert "user:" not in str(caught.value)


def test_pickled_address_keeps_the_login_and_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_USERNAME", "somebody")
    monkeypatch.setenv("PRAVEGA_PASSWORD", "hidden-word")
    address, _ = parse_stream("pravega://host:9090/scope/stream")
    monkeypatch.delenv("PRAVEGA_PASSWORD")
    there: StoreAddress = pickle.loads(pickle.dumps(address))
    assert there.settings.password == "hidden-word"
    for text in (repr(there), str(there), there.uri):
        assert "hidden-word" not in text
        assert "somebody" not in text


def test_address_opens_its_store(tmp_path: Path) -> None:
    address, stream = parse_stream(f"local://{tmp_path}/store/scope/stream")
    with address.open() as store:
        assert store.uri == address.uri
        assert not store.exists(stream)
    assert not (tmp_path / "store").exists()  # checking creates nothing


@pytest.mark.parametrize(
    ("uri", "why"),
    [("pravega://host:1/scope", "/ is missing at its end"), ("pravega://host/scope/", "HOST:PORT is missing")],
)
def test_scope_that_is_none_says_why(uri: str, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        parse_scope(uri)


def test_scheme_may_be_upper_case() -> None:
    assert parse_stream("PRAVEGA://Host:1/Scope/stream") == parse_stream("pravega://host:1/Scope/stream")
    assert parse_scope("Local:///Data/scope/") == parse_scope("local:///Data/scope/")
    assert is_stream("LOCAL:///x/scope/stream")


WAIT = 30.0


class Store(LocalStore):
    """Reports when it is closed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.closed = threading.Event()

    def close(self) -> None:
        super().close()
        self.closed.set()


class Opener:
    """Opens stores and remembers them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[Store] = []

    def __call__(self) -> Store:
        self.opened.append(Store(self.folder))
        return self.opened[-1]


@pytest.fixture
def opener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    monkeypatch.setattr(uri, "KEEP_SECONDS", WAIT)
    yield Opener(tmp_path)
    for kept in list(uri._kept.values()):
        if kept.closing is not None:
            kept.closing.cancel()
    uri._kept.clear()


def test_concurrent_users_share_the_store(opener: Opener) -> None:
    with lend("a", opener) as outer:
        with lend("a", opener) as inner:
            assert inner is outer
        assert uri._kept[os.getpid(), "a"].closing is None, "somebody still has it"
    assert uri._kept[os.getpid(), "a"].closing is not None


def test_idle_store_is_closed(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uri, "KEEP_SECONDS", 0.01)
    with lend("a", opener):
        pass
    assert opener.opened[0].closed.wait(WAIT)
    with lend("a", opener) as another:
        assert another is opener.opened[1]
    assert opener.opened[1].closed.wait(WAIT)


def test_store_taken_while_it_is_being_closed_stays_open(opener: Opener) -> None:
    with lend("a", opener) as store:
        pass
    kept = uri._kept[os.getpid(), "a"]
    timer = kept.closing
    assert timer is not None
    with lend("a", opener):
        # the timer had already fired when it was cancelled
        timer.function(*timer.args, **timer.kwargs)
        assert not opener.opened[0].closed.is_set()
    with lend("a", opener) as again:
        assert again is store


def test_failing_user_returns_the_store_and_a_failed_opening_leaves_none(opener: Opener) -> None:
    def fail() -> Store:
        raise OSError("no such place")

    with pytest.raises(OSError, match="no such place"), lend("a", fail):
        pass
    with pytest.raises(ValueError, match="the user's"), lend("a", opener):
        raise ValueError("the user's")
    with lend("a", opener) as again, lend("b", opener) as other:
        assert again is opener.opened[0]
        assert again is not other
    assert uri._kept[os.getpid(), "a"].users == 0
    assert not opener.opened[0].closed.is_set()


def test_forked_process_opens_its_own_store(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    with lend("a", opener) as here:
        real = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: real + 1)
        with lend("a", opener) as there:
            assert there is not here
        assert not opener.opened[0].closed.is_set()


def test_many_threads_open_the_store_once(opener: Opener) -> None:
    together = threading.Barrier(8)

    def use(_: int) -> int:
        together.wait(WAIT)
        for _ in range(50):
            with lend("a", opener) as store:
                assert store is opener.opened[0]
                assert not opener.opened[0].closed.is_set()
        return 50

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(use, range(8))) == 400
    assert len(opener.opened) == 1
    assert uri._kept[os.getpid(), "a"].users == 0


def controller_of(uri: str) -> Controller:
    with parse_stream(uri)[0].open() as store:
        assert isinstance(store, PravegaStore)
        return store._controller


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Controller]:
    found: list[Controller] = []

    def close(controller: Controller) -> None:
        found.append(controller)

    monkeypatch.setattr(Controller, "close", close)
    return found


def test_a_store_is_shared_and_closed_at_the_end(closed: list[Controller]) -> None:
    one, other = "pravega://one:9090/a/b", "pravega://other:9090/a/b"
    with sharing_stores():
        found = [controller_of(one), controller_of(one.replace("/b", "/c")), controller_of(other)]
        with sharing_stores():
            found.append(controller_of(one))
        assert closed == []
    assert found[0] is found[1] is found[3]
    assert found[2] is not found[0]
    assert closed == [found[0], found[2]]
    assert controller_of(one) is not found[0]
    assert len(closed) == 3


def test_a_store_that_is_still_used_is_closed_by_its_last_user(closed: list[Controller]) -> None:
    address, _ = parse_stream("pravega://one:9090/a/b")
    with sharing_stores():
        first, second = address.open(), address.open()
        first.close()
        first.close()  # counts once
    assert closed == []
    second.close()
    assert len(closed) == 1


def test_a_store_lent_to_a_task_outlives_the_sharing(closed: list[Controller]) -> None:
    address, _ = parse_stream("pravega://lent:9090/a/b")
    with sharing_stores(), address.lend():
        pass
    assert len(closed) == 1
    with address.lend() as store:
        assert isinstance(store, PravegaStore)
        assert store._controller not in closed


def test_a_folders_store_is_not_shared(tmp_path: Path) -> None:
    address, _ = parse_stream(f"local://{tmp_path}/a/b")
    with sharing_stores(), address.open() as one, address.open() as other:
        assert one is not other
        assert "close" not in vars(one)
