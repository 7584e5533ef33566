"""The stores of a contract's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from streamvault.streamstore.store import StreamStore

Open = Callable[[], StreamStore]


class OpenStores:
    """Subclasses define `open_store`; all opened stores share their contents."""

    @pytest.fixture
    def open_store(self) -> Open:
        raise NotImplementedError

    @pytest.fixture
    def stores(self, open_store: Open) -> Iterator[Open]:
        """Opens further handles on the store, as other processes would; they are closed after the test."""
        with ExitStack() as stack:
            yield lambda: stack.enter_context(closing(open_store()))

    @pytest.fixture
    def store(self, stores: Open) -> StreamStore:
        return stores()
