"""Rows are removed before their plan: a kill in between leaves a plan, by which the next run finds them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamvault.layouts.keys import GenerationSpan, plan_key
from streamvault.layouts.place import Place
from streamvault.manifests.archive.plan import create_plan, remove_work
from streamvault.manifests.archive.rows import leave_row
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from tests.archives import LEFT
from tests.unit.plans import PREFIX, plan_of, row


@pytest.fixture
def store(unique_name: str) -> ObjectStore:
    return RootAddress.parse(f"memory://{unique_name}").open()


def test_plan_is_removed_last(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    span = GenerationSpan.of(1)
    create_plan(Place(store, PREFIX), plan_of(end=500))
    leave_row(Place(store, PREFIX), span, LEFT, row(0, (0, 10)))
    deleted: list[str] = []
    delete = store.delete

    def noted(keys: Sequence[str]) -> None:
        deleted.extend(keys)
        delete(keys)

    monkeypatch.setattr(store, "delete", noted)
    remove_work(Place(store, PREFIX), span)
    assert len(deleted) > 1
    assert deleted[-1] == PREFIX + plan_key(span)
