"""Counts the requests that are made to object stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streamvault.manifests.verbs.costs import Requests
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from tests.metered import MeteredStore


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Requests]]:
    """The requests that are made in the block, once it is over."""
    meters: list[MeteredStore] = []
    really = RootAddress.open

    def metered(self: RootAddress, **options: Any) -> ObjectStore:
        meters.append(MeteredStore(really(self, **options)))
        return meters[-1]

    found: list[Requests] = []
    with monkeypatch.context() as patched:
        patched.setattr(RootAddress, "open", metered)
        yield found
    made = [one.meter for one in meters]
    found.append(
        Requests(
            sum(one.puts for one in made),
            sum(one.lists for one in made),
            sum(one.gets + one.sizes for one in made),
        )
    )
