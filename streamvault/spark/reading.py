"""Options for reading a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from streamvault.spark.options import FIXED, SourceOptions, stream_of
from streamvault.streamstore.model import StreamCut, StreamDescription, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress

_START = ("from", "startingOffsets", "start_stream_cut")
_END = ("to", "endingOffsets", "end_stream_cut")
_OPTIONS = (
    "path", "controller", "scope", "stream", *_START, *_END, "failOnDataLoss", "boundaries", "rangeSize",
    "minPartitions", "columns", "maxBytesPerTrigger",
)  # fmt: skip
_FIXED = {
    **FIXED,
    "startingTimestamp": (
        "",
        "Pravega does not keep the time of an event",
        "Give startingOffsets, or read an archive, whose generations have a time.",
    ),
}
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
        min_partitions: about how many parts to make of all segments at least; None to go by the range size alone.
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
    min_partitions: int | None
    max_bytes: int | None
    columns: list[str] | None

    @contextmanager
    def look(self) -> Iterator[tuple[StreamStore, StreamDescription]]:
        """Lend the store, with the stream as it is now."""
        with self.address.lend() as store:
            yield store, store.describe(self.stream)

    def split_size(self, total: int) -> int:
        """Return the size of the parts of segments, if there are so many bytes in all."""
        most = self.range_size if self.min_partitions is None else -(-total // self.min_partitions)
        return max(_MIN_RANGE_SIZE, min(self.range_size, most))


def read_options(given: Mapping[str, str], *, streaming: bool | None = None) -> Reading:
    """Parse the options of a read.

    Args:
        given: the options from Spark.
        streaming: whether it follows the stream; None if that is not known yet.

    Raises:
        Usage, InvalidCut, InvalidName: an option is not valid.
    """
    options = SourceOptions("pravega", given, _OPTIONS, _FIXED)
    address, stream = stream_of(options)
    range_size = options.size("rangeSize") or _RANGE_SIZE
    if range_size < _MIN_RANGE_SIZE:
        raise options.wrong("rangeSize", f"the range size must be at least {_MIN_RANGE_SIZE} bytes")
    max_bytes = options.size("maxBytesPerTrigger")
    if max_bytes == 0:
        raise options.wrong("maxBytesPerTrigger", "the limit must be positive")
    if streaming and (options.text("end_stream_cut") or "").lower() == "latest":
        todo = "Give unbounded, or use Trigger.AvailableNow."
        raise options.wrong("end_stream_cut", "a query that follows a stream does not end at its tail", todo)
    boundaries = options.choice("boundaries", ("segment", "walked", "guessed"))
    min_partitions = options.number("minPartitions", least=1)
    is_split = (
        boundaries == "walked" or (max_bytes and streaming is not False) or (boundaries == "guessed" and not streaming)
    )
    if min_partitions and not is_split:
        others = "boundaries=walked, or maxBytesPerTrigger" if streaming else "boundaries=walked or boundaries=guessed"
        raise options.wrong("minPartitions", "a segment is one partition unless it is split", f"Also give {others}.")
    return Reading(
        address,
        stream,
        options.cut(stream, *_START, default="latest" if streaming else "earliest", unbounded="earliest"),
        options.cut(stream, *_END, default="latest", unbounded="latest"),
        options.flag("failOnDataLoss", default=True),
        boundaries,
        range_size,
        min_partitions,
        max_bytes,
        options.words("columns"),
    )
