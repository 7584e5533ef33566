"""Options for reading a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from streamvault.spark.options import SourceOptions, stream_of
from streamvault.streamstore.model import StreamCut, StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress

_OPTIONS = (
    "path", "controller", "scope", "stream", "from", "to", "startingOffsets", "endingOffsets", "failOnDataLoss",
    "boundaries", "rangeSize", "columns", "maxBytesPerTrigger",
)  # fmt: skip
_RANGE_SIZE = 64 * 1024 * 1024
_MIN_RANGE_SIZE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """Parsed options of a read.

    Attributes:
        address: address of the stream's store.
        stream: the stream.
        from_cut: a cut, ``earliest`` or ``latest``.
        to_cut: a cut, ``earliest`` or ``latest``.
        fail_on_data_loss: whether the query fails if events were truncated.
        boundaries: how segments are split: ``segment`` (not at all), ``walked`` or ``guessed``.
        range_size: size of the parts of a segment (bytes).
        max_bytes: maximum size of a micro-batch; None for no limit.
        columns: the requested columns; None for all.
    """

    address: StoreAddress
    stream: StreamName
    from_cut: StreamCut | str
    to_cut: StreamCut | str
    fail_on_data_loss: bool
    boundaries: str
    range_size: int
    max_bytes: int | None
    columns: list[str] | None

    @contextmanager
    def look(self) -> Iterator[tuple[StreamStore, StreamDescription]]:
        """Lend the store, with the stream as it is now."""
        with self.address.lend() as store:
            yield store, store.describe(self.stream)


def read_options(given: Mapping[str, str], *, streaming: bool = False) -> Reading:
    """Parse the options of a read.

    Raises:
        Usage, InvalidCut, InvalidName: an option is not valid.
    """
    options = SourceOptions("pravega", given, _OPTIONS)
    address, stream = stream_of(options)
    range_size = options.size("rangeSize") or _RANGE_SIZE
    if range_size < _MIN_RANGE_SIZE:
        raise options.wrong("rangeSize", f"the range size must be at least {_MIN_RANGE_SIZE} bytes")
    max_bytes = options.size("maxBytesPerTrigger")
    if max_bytes == 0:
        raise options.wrong("maxBytesPerTrigger", "the limit must be positive")
    return Reading(
        address,
        stream,
        options.cut(stream, "from", "startingOffsets", default="latest" if streaming else "earliest"),
        options.cut(stream, "to", "endingOffsets", default="latest"),
        options.flag("failOnDataLoss", default=True),
        options.choice("boundaries", ("segment", "walked", "guessed")),
        range_size,
        max_bytes,
        options.words("columns"),
    )
