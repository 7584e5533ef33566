"""Options of *sweep*."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamvault.common.options import DURATION, Rehearsed


class SweepOptions(Rehearsed):
    """Options of *sweep*."""

    older_than: Annotated[
        float,
        Field(
            ge=0,
            description="Delete what sweeps have found unchanged for this long: 1d, 1h, 15m or 30s; 0s at once.",
        ),
        DURATION.destroying(),
    ] = 3600.0
