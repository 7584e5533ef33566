"""Keeps a transaction open by pings: its events may arrive slowly, and a store aborts what nobody holds."""

from __future__ import annotations

import threading
from typing import Self

from streamvault.common.errors import Problem
from streamvault.streamstore.transactions import Transaction, Transactions


class Pinger:
    """Keeps a transaction open while it is being filled; a context manager.

    Args:
        transactions: the transaction's store.
        transaction: the transaction, which is open.
        lease: how long it stays open after a ping (seconds).
    """

    def __init__(self, transactions: Transactions, transaction: Transaction, lease: float) -> None:
        self._transactions = transactions
        self._transaction = transaction
        self._lease = lease
        self._done = threading.Event()
        self._failure: Problem | None = None
        self._thread = threading.Thread(target=self._ping, name="transaction", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def check(self) -> None:
        """Raise the error of a failed ping, if any."""
        if self._failure is not None:
            raise self._failure

    def _ping(self) -> None:
        while not self._done.wait(self._lease / 3):
            try:
                self._transactions.ping(self._transaction, self._lease)
            except Problem as problem:
                self._failure = problem
                return
