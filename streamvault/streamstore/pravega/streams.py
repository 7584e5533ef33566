"""Operations on a stream that take several calls: its description, and changes, which take time or may collide.

A description is put together from the controller's answers and the segments' offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from tenacity import stop_after_delay

from streamvault.common.retries import attempts
from streamvault.streamstore.arithmetic.cuts import is_before, validate_cut
from streamvault.streamstore.arithmetic.ranges import check_replaces
from streamvault.streamstore.errors import (
    InvalidCut,
    NoSuchSegment,
    NoSuchStream,
    RequestFailed,
    ScaleRefused,
    StreamChanged,
    StreamNotSealed,
    StreamSealed,
)
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.pravega.controller import Controller
from streamvault.streamstore.pravega.patience import pauses
from streamvault.streamstore.pravega.segments import SegmentStores

FIRST_EPOCHS = 4
"""Epochs that are asked for together with everything else: few streams have more."""

BATCH = 32
"""Epochs that are asked for at once after them."""

ATTEMPTS = 5
"""A scale that is finished between two questions makes the answers disagree; then all is asked again."""

MAKING_SECONDS = 10.0
"""How long to wait for a stream that is being created."""

MAKING_PAUSE = 0.05
"""Seconds between two requests while waiting."""

CHANGE_SECONDS = 60.0
"""How long to retry a change the controller failed to make."""

SCALE_SECONDS = 300.0
"""How long to wait for a scale that the controller has begun; usually it takes 0.1 s."""


def describe(controller: Controller, stores: SegmentStores, stream: StreamName) -> StreamDescription:
    """The stream at one moment; see `StreamStore.describe`."""
    disagreements, deadline = 0, time.monotonic() + MAKING_SECONDS
    while disagreements < ATTEMPTS:
        try:
            description = _describe_once(controller, stores, stream)
        except NoSuchStream:
            # a stream exists before its first epoch does
            if time.monotonic() > deadline or not controller.stream_exists(stream):
                raise
            time.sleep(MAKING_PAUSE)
            continue
        if description is not None:
            return description
        disagreements += 1
    raise RequestFailed(
        "the stream changes too fast to be described", where=f"{stores.settings.uri}/{stream}", todo="Try again."
    )


def _describe_once(controller: Controller, stores: SegmentStores, stream: StreamName) -> StreamDescription | None:
    """The stream, or None if the answers disagree."""
    state = controller.query_state(stream, FIRST_EPOCHS)
    epochs = _all_epochs(controller, stream, state.epochs)
    last = _open_epoch(epochs, state.current)
    if last is None or not state.head.offsets.keys() <= {s for epoch in epochs[: last + 1] for s in epoch.segments}:
        return None
    try:
        infos = stores.infos(stream, list(epochs[last].segments))
    except NoSuchSegment:
        # truncated in the meantime
        return None
    tail = StreamCut(stream, {info.segment: info.write_offset for info in infos})
    return StreamDescription(
        stream, state.configuration, tuple(epochs[: last + 1]), state.head, tail, sealed=not state.current
    )


def _current_epoch(controller: Controller, stream: StreamName) -> Epoch | None:
    """The epoch whose segments are open; None if the stream is sealed."""
    for _ in range(ATTEMPTS):
        current = controller.current_segments(stream)
        if not current:
            return None
        # every epoch has a segment that was made for it
        number = max(segment.epoch for segment in current)
        for epoch in controller.epochs(stream, [number]):
            if epoch.segments == current:
                return epoch
    raise RequestFailed("the current epoch does not match the open segments", where=str(stream), todo="Try again.")


def _all_epochs(controller: Controller, stream: StreamName, first: list[Epoch]) -> list[Epoch]:
    """Return every epoch, including truncated ones and possibly one that a running scale has only prepared."""
    if not first:
        raise controller.missing(stream)
    found, asked = list(first), FIRST_EPOCHS
    while len(found) == asked:
        asked += BATCH
        found += controller.epochs(stream, range(len(found), asked))
    return found


def _open_epoch(epochs: list[Epoch], current: Mapping[SegmentId, KeyRange]) -> int | None:
    """The index of the epoch that is open, or the last one of a sealed stream; None if the answers disagree."""
    if not current:
        return len(epochs) - 1
    return next((epoch.number for epoch in reversed(epochs) if epoch.segments == current), None)


def insist(change: Callable[[], None], *again: type[Exception]) -> None:
    """Make a change, and retry while the controller answers FAILURE: usually another change is in progress.

    Errors of the kinds ``again`` are retried, too.
    """
    attempts(
        lambda error: isinstance(error, (RequestFailed, *again)), stop_after_delay(CHANGE_SECONDS), first=0.1, longest=2
    )(change)


def scale(controller: Controller, stream: StreamName, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> Epoch:
    """Scale and wait until it is finished; see `StreamStore.scale`."""
    before = _open(controller, stream)
    number: int | None = None

    def attempt() -> None:
        nonlocal number
        epoch = _open(controller, stream)
        if epoch.number > before.number and _made_by(epoch, before, seal, ranges):
            # an attempt whose answer was lost
            number = epoch.number
            return
        check_replaces(seal, ranges, epoch.segments)
        number = controller.start_scale(stream, seal, ranges) + 1

    try:
        insist(attempt)
    except ScaleRefused:
        epoch = _open(controller, stream)
        if not _made_by(epoch, before, seal, ranges):
            raise
        number = epoch.number
    assert number is not None  # noqa: S101  (an attempt without an error sets it)
    for _ in pauses(SCALE_SECONDS):
        if controller.is_scaled(stream, number - 1):
            break
    else:
        raise RequestFailed(
            f"the scale is not finished after {SCALE_SECONDS:.0f} s", where=str(stream), todo="Check again later."
        )
    found = controller.epochs(stream, [number])
    if not found:
        raise RequestFailed("the scale is finished, but its epoch does not exist", where=str(stream))
    return found[0]


def truncate(controller: Controller, stores: SegmentStores, cut: StreamCut) -> None:
    """Move the head; see `StreamStore.truncate`.

    The controller itself accepts offsets beyond the tail and moves the head there, so they are rejected here.
    """
    description = describe(controller, stores, cut.stream)
    if is_before(description, cut, description.head):
        return
    validate_cut(description, cut)
    for segment, info in stores.infos_if_there(cut.stream, list(cut.offsets)).items():
        if info is None or cut.offsets[segment] > info.write_offset:
            end = "is gone" if info is None else f"ends at {info.write_offset}"
            raise InvalidCut(
                f"the cut's offset {cut.offsets[segment]} lies beyond the segment, which {end}",
                where=segment.in_stream(cut.stream),
            )
    insist(lambda: controller.truncate_stream(cut))


def update(
    controller: Controller, stream: StreamName, configuration: StreamConfiguration, was: StreamConfiguration | None
) -> None:
    """Replace policies and tags; see `StreamStore.update_stream`.

    The controller cannot compare-and-set, so the configuration is read right before each attempt.
    """

    def attempt() -> None:
        now = None if was is None else controller.configuration(stream)
        if now is not None and now != was:
            if now == configuration:
                return  # an attempt whose answer was lost
            raise StreamChanged(
                "the stream's configuration was changed concurrently",
                where=f"{controller.uri}/{stream}",
                todo="Run it again.",
            )
        controller.update_stream(stream, configuration)

    insist(attempt)


def seal(controller: Controller, stream: StreamName, first: Epoch | None) -> None:
    """Seal the stream; see `StreamStore.seal`."""

    def attempt() -> None:
        _check_first(controller, stream, first)
        controller.seal_stream(stream)

    insist(attempt)


def delete(controller: Controller, stream: StreamName, first: Epoch | None) -> None:
    """Seal and delete the current stream, but never one recreated under its name.

    The controller deletes by name, and only sealed streams. So a sealed stream is not sealed again: however late the
    delete call arrives, it fails on a recreated stream, which is not sealed.
    """
    _check_first(controller, stream, first)
    # a recreated stream continues the segment numbers
    begun = [first] if first else controller.epochs(stream, [0])

    def is_gone() -> bool:
        return controller.epochs(stream, [0]) != begun

    sealed = not controller.current_segments(stream)

    def attempt() -> None:
        nonlocal sealed
        if not is_gone():
            if not sealed:
                controller.seal_stream(stream)
            sealed = False  # should it be refused, it is sealed again
            controller.delete_stream(stream, is_gone)

    insist(attempt, StreamNotSealed)


def _check_first(controller: Controller, stream: StreamName, first: Epoch | None) -> None:
    """Raise `StreamChanged` if the stream was made again since its first epoch was seen."""
    if first is not None and (now := controller.epochs(stream, [0])) != [first]:
        if not now:
            raise controller.missing(stream)
        raise StreamChanged("the stream was deleted and recreated", where=f"{controller.uri}/{stream}")


def _open(controller: Controller, stream: StreamName) -> Epoch:
    epoch = _current_epoch(controller, stream)
    if epoch is None:
        raise StreamSealed("the stream is sealed and can't be scaled", where=str(stream))
    return epoch


def _made_by(epoch: Epoch, before: Epoch, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> bool:
    """Return whether an epoch is the result of this scale."""
    new = sorted(held for segment, held in epoch.segments.items() if segment not in before.segments)
    kept = {segment for segment in before.segments if segment not in seal}
    return epoch.number == before.number + 1 and new == sorted(ranges) and kept <= set(epoch.segments)
