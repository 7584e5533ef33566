"""Options of *append* and *join*."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamvault.common.options import Rehearsed
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.options import Window
from streamvault.sparkrun.options import Distributed
from streamvault.streamstore.arithmetic.cut_option import ToCut


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
