"""A description composed of answers from different moments.

What becomes of a transaction when the controller does not do as it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from streamvault.streamstore.errors import RequestFailed, WireError
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamName,
)
from streamvault.streamstore.pravega import PravegaSettings, PravegaStore
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega.controller import StreamState
from streamvault.streamstore.pravega.store import FIRST_EPOCHS, PravegaTransactions
from streamvault.streamstore.store import Transaction, TransactionState

NAME = StreamName("scope", "stream")
ALL = KeyRange(0.0, 1.0)
EPOCHS = [Epoch(number, {SegmentId(number, number): ALL}) for number in range(7)]


def stream_state(*, head: int, current: int | None, epochs: int) -> StreamState:
    """An answer in which head and open segment are those of an epoch; None: the stream is sealed."""
    cut = StreamCut(NAME, dict.fromkeys(EPOCHS[head].segments, 0))
    opened = {} if current is None else EPOCHS[current].segments
    return StreamState(StreamConfiguration(), cut, opened, EPOCHS[: min(epochs, FIRST_EPOCHS)])


class Answers:
    """A controller that returns the states of a list, the last one repeatedly; and the segments' offsets."""

    def __init__(self, *states: StreamState, epochs: int) -> None:
        self.states = list(states)
        self.epochs_there = epochs

    def query_state(self, _: StreamName, epochs: int) -> StreamState:
        assert epochs == FIRST_EPOCHS
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def epochs(self, _: StreamName, numbers: Sequence[int]) -> list[Epoch]:
        return [EPOCHS[number] for number in numbers if number < self.epochs_there]

    def infos(self, _: StreamName, segments: Sequence[SegmentId]) -> list[SegmentInfo]:
        return [SegmentInfo(segment, start_offset=0, write_offset=8, sealed=False) for segment in segments]


def described(answers: Any) -> tuple[int, int]:
    """The number of the last epoch, and of the head's."""
    store = PravegaStore(PravegaSettings("host"))
    store._controller = store._stores = answers
    found = store.describe(NAME)
    (head,) = found.head.offsets
    assert list(found.tail.offsets) == list(EPOCHS[found.epochs[-1].number].segments)
    return found.epochs[-1].number, head.epoch


@pytest.mark.parametrize("epochs", [1, 3, 4, 5, 7])
def test_every_epoch_is_asked_for(epochs: int) -> None:
    assert described(Answers(stream_state(head=0, current=epochs - 1, epochs=epochs), epochs=epochs)) == (epochs - 1, 0)
    assert described(Answers(stream_state(head=0, current=None, epochs=epochs), epochs=epochs)) == (epochs - 1, 0)


def test_prepared_epoch_is_left_out() -> None:
    assert described(Answers(stream_state(head=0, current=1, epochs=3), epochs=3)) == (1, 0)


def test_head_beyond_the_open_segments_is_asked_for_again() -> None:
    late = stream_state(head=2, current=1, epochs=3)
    assert described(Answers(late, stream_state(head=2, current=2, epochs=3), epochs=3)) == (2, 2)


def test_open_segments_of_a_newer_epoch_are_asked_for_again() -> None:
    early = stream_state(head=0, current=2, epochs=2)
    assert described(Answers(early, stream_state(head=0, current=2, epochs=3), epochs=3)) == (2, 0)


def test_answers_that_never_agree_fail_the_request() -> None:
    with pytest.raises(RequestFailed, match="changes too fast"):
        described(Answers(stream_state(head=2, current=1, epochs=3), epochs=3))


def test_epochs_that_do_not_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Answers):
        def epochs(self, _: StreamName, numbers: Sequence[int]) -> list[Epoch]:
            return [Epoch(number, {SegmentId(number, number): ALL}) for number in numbers if number < 1000]

    monkeypatch.setattr("streamvault.streamstore.model.MOST_SEGMENTS", 100)
    with pytest.raises(WireError, match="more than 100 segments or epochs"):
        described(Endless(stream_state(head=0, current=3, epochs=4), epochs=0))


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
