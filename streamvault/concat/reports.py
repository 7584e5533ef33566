"""Options and reports of *append* and *join*."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from streamvault.common.options import Rehearsed
from streamvault.common.report import RunReport
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.options import Window
from streamvault.runner.opening import Distributed
from streamvault.streamstore.cuts import ToCut


class StitchOptions(Distributed, Rehearsed):
    """How parts of streams are put together."""

    distinct: Annotated[
        bool,
        Field(description="Skip a segment that has the length and SHA-256 of an earlier source's segment."),
    ] = False
    window: Window = WINDOW


class JoinOptions(StitchOptions):
    """Options of *join*."""


class AppendOptions(StitchOptions):
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
class StitchReport(RunReport):
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
    stream: str
    resumed: bool = False
    unchanged: bool = False
    bytes: int = 0
    moved_bytes: int = 0
    segments: int = 0
    merged_segments: tuple[str, ...] = ()
    commit_seconds: float = 0.0
    places: tuple[PlaceReport, ...] = ()
    left_out: tuple[str, ...] = ()
