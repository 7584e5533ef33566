"""Options and reports of *append* and *join*, and the report of *copy*."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from streamvault.common.options import Rehearsed
from streamvault.common.report import CarriedGroup
from streamvault.importer.reports import FilledStreamReport, NewStreamReport
from streamvault.layouts.layout import WINDOW
from streamvault.manifests.options import Window
from streamvault.runner.opening import Distributed
from streamvault.streamstore.cuts import ToCut


class JoinOptions(Distributed, Rehearsed):
    """Options of *join*; *append* has them, too."""

    distinct: Annotated[
        bool,
        Field(description="Skip a segment that has the length and SHA-256 of an earlier source's segment."),
    ] = False
    window: Window = WINDOW


class AppendOptions(JoinOptions):
    """Options of *append*."""

    own_segments: Annotated[
        bool,
        Field(description="Append as new segments, added by a scale of TARGET and sealed immediately."),
    ] = False
    to_cut: ToCut = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceReport:
    """Where consecutive bytes of a source's segment are in the target.

    Attributes:
        source: URI of the source.
        segment: full name of the source's segment.
        start: offset of the first byte there.
        end: offset after the last one.
        target_segment: full name of the target's segment; empty in a dry run.
        offset: offset of the first byte in it; the lowest possible one if it is not `exact`.
        exact: whether `offset` is exact. It is not if somebody else wrote to the segment around the commit.
        digest: SHA-256 of the bytes, hexadecimal; empty if they were appended by an earlier run, and in a dry run.
    """

    source: str
    segment: str
    start: int
    end: int
    target_segment: str = ""
    offset: int = 0
    exact: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StitchReport(FilledStreamReport):
    """Result of appending streams and archives to a stream, or of joining them into a new one.

    Attributes:
        sources: URIs of the sources, in the order in which they were appended.
        stream: URI of the stream that they were appended to, or that was made.
        resumed: True if an unfinished run was resumed.
        unchanged: True if the sources had nothing that was not appended before, or were joined into this stream before.
        bytes: bytes that became readable, with event headers.
        moved_bytes: bytes that this run wrote.
        segments: number of open segments that the stream has now, or would have.
        merged_segments: full names of the stream's segments that were joined with their neighbours first, or would be.
        commit_seconds: how long the commit took; 0 if an earlier run made it.
        places: where the bytes are, in the order of the sources.
        left_out: the segments that were left out because another source's segment has the same bytes: full names, each
            with its source.
    """

    sources: tuple[str, ...]
    merged_segments: tuple[str, ...] = ()
    commit_seconds: float = 0.0
    places: tuple[PlaceReport, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport(NewStreamReport):
    """Result of copying a stream.

    Attributes:
        source: URI of the source.
        read_back: True if every byte was read back and compared, or would be.
        behind_bytes: if `unchanged`, bytes that the source has now and the copy does not have. What the source has
            truncated is not counted, nor are segments whose shift can no longer be told.
        head: the copy's head, in the source's segments and offsets.
        tail: the copy's tail, likewise.
        truncated: True if the copy begins later than asked, as the source was truncated.
        reader_groups: the reader groups that read the source, if they were asked for.
        places: of a copy of ranges, where the bytes are.
    """

    source: str
    read_back: bool = False
    behind_bytes: int = 0
    head: Mapping[str, int] = field(default_factory=dict)
    tail: Mapping[str, int] = field(default_factory=dict)
    truncated: bool = False
    reader_groups: tuple[CarriedGroup, ...] = ()
    places: tuple[PlaceReport, ...] = ()
