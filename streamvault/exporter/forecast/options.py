"""Options of *plan*."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamvault.common.options import SIZE, CommandLine, Options
from streamvault.layouts.layout import LayoutName
from streamvault.manifests.options import CompressOption, RangeSize
from streamvault.streamstore.model import ContentKind

MOST_SEGMENTS = 1_000_000
MOST = 10**18
_NUMBER = CommandLine(metavar="N", environment=False)


class PlanOptions(Options):
    """Options of *plan*."""

    segments: Annotated[
        int | None,
        Field(ge=1, le=MOST_SEGMENTS, description="Number of segments of a stream that need not exist."),
        _NUMBER,
    ] = None
    bytes: Annotated[
        int | None,
        Field(ge=0, le=MOST, description="Its size, event headers included, e.g. 1PB."),
        CommandLine(metavar="SIZE", parse=SIZE.parse, text=SIZE.text, environment=False),
    ] = None
    events: Annotated[
        int | None, Field(ge=0, le=MOST, description="Its number of events; 0 for a byte stream."), _NUMBER
    ] = None
    content: Annotated[ContentKind | None, Field(description="What the stream holds. Default: events.")] = None
    layout: Annotated[
        LayoutName | None, Field(description="The archive's layout. Default: events; chunks for bytes.")
    ] = None
    compress: CompressOption = None
    range_size: RangeSize = None
    exports: Annotated[
        int, Field(ge=1, le=1_000_000, description="Number of exports in which the bytes are archived."), _NUMBER
    ] = 1
    cores: Annotated[int, Field(ge=1, description="Cores that run tasks."), _NUMBER] = 16
    network: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False, description="Their network's bandwidth in Gbit/s."),
        CommandLine(metavar="GBIT"),
    ] = 10.0
    prices: Annotated[
        str,
        Field(description="A file of prices instead of S3's list prices (US East)."),
        CommandLine(metavar="FILE", environment=False),
    ] = ""
