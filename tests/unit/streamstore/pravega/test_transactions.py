"""What becomes of a transaction when the controller does not do as it is asked."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from streamvault.streamstore.model import StreamName
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega.store import PravegaTransactions
from streamvault.streamstore.store import Transaction, TransactionState

TRANSACTION = Transaction(StreamName("scope", "stream"), UUID(int=1), {})


class FailingController:
    """Fails to begin with a commit that it is asked for the first time, and takes one look to finish it."""

    def __init__(self) -> None:
        self.commits = 0
        self._states = iter(["COMMITTING", "COMMITTED"])

    def ask(self, stream: StreamName, method: str, request: Any) -> Any:
        assert (stream, request.txnId.lowBits) == (TRANSACTION.stream, 1)
        if method == "commitTransaction":
            self.commits += 1
            return pb.TxnStatus(status="FAILURE" if self.commits == 1 else "SUCCESS")
        state = "OPEN" if self.commits == 1 else next(self._states)
        return pb.TxnState(state=state)


def test_commit_is_asked_for_again_while_the_transaction_is_open() -> None:
    controller, stores = cast("Any", FailingController()), cast("Any", None)
    assert PravegaTransactions(controller, stores).commit(TRANSACTION) is TransactionState.COMMITTED
    assert controller.commits == 2
