"""Stream URIs: parsing, invalid ones, and that logins are never shown.

Open stores that tasks share: opened once, closed when unused for a while, never shared across a fork.

A cluster's store is opened once for all that run side by side.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamvault.streamstore import uri
from streamvault.streamstore.errors import InvalidName
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamName
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
