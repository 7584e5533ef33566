"""Report of *handoff*."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamvault.common.report import Cost, GapReport, RunReport


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReport(RunReport):
    """Result of a handoff.

    Attributes:
        archive: URI of the archive; empty if the table is made from a stream.
        table: ``DATABASE.NAME``.
        location: URI of the table's folder.
        format: iceberg or parquet.
        stream: URI of the stream; empty if the table is made from an archive.
        columns: the table's columns.
        generations: the table's generations.
        added: the generations that this run added.
        registered: the generations that this run registered in the catalog.
        raw_segments: number of partitions that this run added to the table over raw events.
        events: events of the added generations; an estimate in a dry run on a stream.
        bytes: segment bytes of the added generations, with event headers.
        gaps: bytes of the stream that were truncated before the handoff.
        moved_bytes: segment bytes that this run wrote; an earlier run wrote the others.
        files: number of files of the added generations.
        file_bytes: size of these files.
        undecoded: events written by this run that could not be decoded, or not all of their values; the column `_error`
            says why.
        undecoded_share: their share of the events that this run wrote, from 0 to 1.
        cost: the estimated cost, in a dry run.
        unchanged: whether there was nothing to do.
    """

    archive: str
    table: str
    location: str
    format: str
    stream: str = ""
    columns: tuple[str, ...] = ()
    generations: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    registered: tuple[int, ...] = ()
    raw_segments: int = 0
    events: int = 0
    bytes: int = 0
    gaps: tuple[GapReport, ...] = ()
    moved_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    undecoded: int = 0
    undecoded_share: float = 0.0
    cost: Cost | None = None
    unchanged: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unchanged", not (self.added or self.registered or self.raw_segments))
