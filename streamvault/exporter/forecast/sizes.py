"""Sizes of a generation's manifest and index, and the memory of the process that exports it.

Manifest and index are encoded for a sample, by the code that writes them; what follows the sample grows in proportion.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise

from streamvault.common.times import now_utc
from streamvault.layouts.frames import FRAME_BYTES
from streamvault.layouts.layout import Layout
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.manifests.format.entries import Configuration, EpochEntry, SegmentEntry, Witness
from streamvault.manifests.format.manifest import Manifest
from streamvault.manifests.verbs.costs import Part
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId, StreamConfiguration, StreamCut, StreamName

SAMPLE_SEGMENTS = 97
"""A prime, so that key ranges have as many digits as most have."""
SAMPLE_ROWS = 10_000
"""Rows of an index that are encoded together."""

SAMPLE_FRAMES = 16

DRIVER_BYTES = 200 * 2**20
"""Memory of a command with few ranges."""

DRIVER_BYTES_A_RANGE = 2_200
"""Memory of the process that exports, for each range: its task, its row, its entry of the index."""

_DIGEST = "0" * 64
_CHECKSUM = f"{'A' * 11}="
_WITNESS_BYTES = 2**20


def manifest_bytes(stream: StreamName, segments: int, part: Part) -> int:
    """Return the size of a manifest with so many segments, each of which has a part."""

    def size_of(count: int) -> int:
        return len(_manifest(stream, range(segments - count, segments), part).encode())

    return _extrapolated(size_of, segments, SAMPLE_SEGMENTS)


def index_bytes(stream: StreamName, ranges: int, part: Part, layout: Layout, *, compressed: bool) -> int:
    """Return the size of an index with so many ranges, of segments that each have a part."""
    from streamvault.manifests.format.ranges import encode_ranges  # noqa: PLC0415  (imports pyarrow)

    checksum = "" if layout.one_object_per_event else _CHECKSUM
    each, size = max(part.ranges, 1), max(part.bytes // max(part.ranges, 1), 1)

    def encoded(frames: int) -> int:
        held = (FRAME_BYTES,) * frames

        def size_of(count: int) -> int:
            begins = ((SegmentId(0, n // each), n % each * size) for n in range(count))
            rows = (ArchivedRange(s, at, at + size, 1, _DIGEST, held, crc64nvme=checksum) for s, at in begins)
            return len(encode_ranges(stream, rows))

        return _extrapolated(size_of, ranges, SAMPLE_ROWS)

    plain = encoded(0)
    if not compressed:
        return plain
    frames = -(-size // FRAME_BYTES)
    sample = min(frames, SAMPLE_FRAMES)
    return plain + (encoded(sample) - plain) * frames // sample


def driver_bytes(ranges: int, index: int) -> int:
    """Return the memory of a process that exports so many ranges; their index is encoded in memory."""
    return DRIVER_BYTES + ranges * DRIVER_BYTES_A_RANGE + index


def _extrapolated(size_of: Callable[[int], int], count: int, sample: int) -> int:
    """Return the size of so many entries; of many, from the sizes of one and two samples."""
    if count <= 2 * sample:
        return size_of(count)
    one, two = size_of(sample), size_of(2 * sample)
    return one + (two - one) * (count - sample) // sample


def _manifest(stream: StreamName, numbers: range, part: Part) -> Manifest:
    count = len(numbers)
    edges = [n / count for n in range(count + 1)]
    ids = [SegmentId(0, number) for number in numbers]
    epoch = Epoch(0, {one: KeyRange(low, high) for one, (low, high) in zip(ids, pairwise(edges), strict=True)})
    held = min(_WITNESS_BYTES, part.bytes)
    names = [one.in_stream(stream) for one in ids]
    return Manifest(
        format=1,
        generation=1,
        created=now_utc(),
        scope=stream.scope,
        stream=stream.stream,
        layout="chunks",
        configuration=Configuration.of(StreamConfiguration()),
        epochs=(EpochEntry.of(epoch),),
        from_=StreamCut(stream, dict.fromkeys(ids, 0)),
        to=StreamCut(stream, dict.fromkeys(ids, part.bytes)),
        witness=tuple(
            Witness(segment=name, offset=part.bytes - held, length=held, digest=_DIGEST)
            for name in islice(names, count if held else 0)
        ),
        segments=tuple(
            SegmentEntry(
                name=name, start=0, end=part.bytes, sealed=False, events=part.events, bytes=part.bytes, digest=_DIGEST
            )
            for name in names
        ),
        gaps=(),
        events=part.events * count,
        bytes=part.bytes * count,
        range_size=1,
        sealed=False,
    )
