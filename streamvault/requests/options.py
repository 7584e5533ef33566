"""Options of *work*."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from streamvault.common.options import DURATION, CommandLine, Options


class WorkOptions(Options):
    """Options of *work*."""

    idle: Annotated[
        float | None,
        Field(ge=0, description="Stop after this long without new requests, e.g. 60s."),
        DURATION.named("--idle"),
    ] = None
    lasting: Annotated[
        float | None, Field(ge=0, description="Start no request after this long, e.g. 1h."), DURATION.named("--for")
    ] = None
    wait: Annotated[
        float,
        Field(ge=0, description="How long to wait for another worker of the queue to end."),
        CommandLine(name="--wait", metavar="TIME", parse=DURATION.parse, text=DURATION.text, environment=False),
    ] = 0.0
    tries: Annotated[
        int | None,
        Field(ge=1, description="Stop after N attempts if a store does not answer."),
        CommandLine(metavar="N"),
    ] = None
