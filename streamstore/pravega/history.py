"""A stream's epochs, head and tail, put together from the controller's answers and the segments' offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping

from streamstore.errors import NoSuchSegment, NoSuchStream, RequestFailed
from streamstore.model import Epoch, KeyRange, SegmentId, StreamCut, StreamDescription, StreamName
from streamstore.pravega.controller import Controller
from streamstore.pravega.segments import SegmentStores

__all__ = ["current_epoch", "describe"]

FIRST = 4
"""Epochs that are asked for together with everything else: few streams have more."""

BATCH = 32
"""Epochs that are asked for at once after them."""

ATTEMPTS = 5
"""A scale that is finished between two questions makes the answers disagree; then all is asked again."""

MAKING_SECONDS = 10.0
"""How long to wait for a stream that is being created."""

MAKING_PAUSE = 0.05
"""Seconds between two requests while waiting."""


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
    state = controller.query_state(stream, FIRST)
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


def current_epoch(controller: Controller, stream: StreamName) -> Epoch | None:
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
    found, asked = list(first), FIRST
    while len(found) == asked:
        asked += BATCH
        found += controller.epochs(stream, range(len(found), asked))
    return found


def _open_epoch(epochs: list[Epoch], current: Mapping[SegmentId, KeyRange]) -> int | None:
    """The index of the epoch that is open, or the last one of a sealed stream; None if the answers disagree."""
    if not current:
        return len(epochs) - 1
    return next((epoch.number for epoch in reversed(epochs) if epoch.segments == current), None)
