"""An embedded store and a root for archives, filled with a test's payloads."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streamvault import check_archive, export_stream, import_stream
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.objectstore.uri import RootAddress
from streamvault.sources.spans import spans_of
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.walking import find_start
from testkit.small_archives import NAME
from testkit.streams import append_events, digest_of, events_of

SEGMENT = SegmentId(0, 0)


def lure(rest: int) -> bytes:
    """A payload that contains the header of an event which covers the next `rest` bytes of the segment as well.

    A guess that starts there comes out at a boundary as true as any, behind events that it has hidden.
    """
    return b"\xff" * 5 + struct.pack(">ii", 0, rest + 3) + b"end"


@dataclass(frozen=True)
class Place:
    """An embedded store and a root for archives, in memory unless `on_disk` (which flushes every object)."""

    folder: Path
    on_disk: bool = False

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "streams")

    def uri(self, stream: str = "stream") -> str:
        return f"local://{self.folder}/streams/scope/{stream}"

    @property
    def root(self) -> str:
        return (
            f"file://{self.folder}/vault" if self.on_disk else f"memory://{self.folder.parent.name}-{self.folder.name}"
        )

    @property
    def archive(self) -> str:
        return f"{self.root}/{NAME}"

    def keys(self, layout: LayoutName = "events") -> list[str]:
        """The archived data, as listed."""
        folder = f"{NAME}/{layout}/"
        return [found.key.removeprefix(folder) for found in RootAddress.parse(self.root).open().list(folder)]

    def fill(self, *segments: list[bytes]) -> None:
        """Create the stream."""
        with self.store as store:
            store.create_scope("scope")
            store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=len(segments))))
            for segment, payloads in zip(sorted(store.describe(NAME).tail.offsets), segments, strict=True):
                append_events(store, NAME, segment, payloads)

    def true_keys(self) -> list[str]:
        with self.store as store:
            return sorted(
                f"{p.segment.epoch:010d}.{p.segment.number:010d}/{p.offset:019d}-{p.length:010d}"
                for p, _ in events_of(store, NAME)
            )

    def true_chunks(self, range_size: int) -> list[str]:
        """Ranges are cut at the first event at or after each multiple of the range size."""
        ranges: dict[tuple[SegmentId, int], tuple[int, int]] = {}
        with self.store as store:
            for p, _ in events_of(store, NAME):
                place = p.segment, p.offset // range_size
                ranges[place] = ranges.get(place, (p.offset, 0))[0], p.offset + p.length
        return sorted(
            f"{segment.epoch:010d}.{segment.number:010d}/{start:019d}-{end - start:019d}"
            for (segment, _), (start, end) in ranges.items()
        )

    def prove(self, range_size: int, layout: LayoutName = "events", compress: Compression = "") -> None:
        """Export, compare with the stream, check, import, compare again."""
        report = export_stream(
            self.uri(), self.root, layout=layout, compress=compress, range_size=range_size, master="inline[2]"
        )
        assert self.keys(layout) == (self.true_keys() if layout == "events" else self.true_chunks(range_size))
        assert report.events == len(self.true_keys())
        check = check_archive(self.archive, read_data=True, master="inline[2]")
        assert check.ok, check.findings
        import_stream(self.archive, self.uri("restored"), master="inline[2]")
        with self.store as store:
            assert digest_of(store, StreamName("scope", "restored")) == digest_of(store, NAME)

    def guesses(self, range_size: int) -> Iterator[tuple[int, int | None]]:
        """For each range but the first, where its task guesses the beginning, and the true beginning."""
        with self.store as store:
            end = store.describe(NAME).tail.offsets[SEGMENT]
            starts = [p.offset for p, _ in events_of(store, NAME) if p.segment == SEGMENT] + [end]
            for span in list(spans_of(0, end, range_size))[1:]:
                true = next(start for start in starts if start >= span.low)
                yield true, find_start(store, NAME, SEGMENT, span.low, end)
