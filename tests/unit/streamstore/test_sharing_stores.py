"""A cluster's store is opened once for all that run side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault.streamstore.pravega.controller import Controller
from streamvault.streamstore.pravega.store import PravegaStore
from streamvault.streamstore.uri import parse_stream, sharing_stores


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
