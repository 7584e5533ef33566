"""Open stores that tasks share: opened once, closed when unused for a while, never shared across a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamvault.streamstore import uri
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.uri import lend

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
