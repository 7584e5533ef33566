"""Options of *request-restore* and *work*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import Field

from streamvault.common.options import DURATION, CommandLine, Options, Rehearsed
from streamvault.importer.options import RestoreOptions
from streamvault.requests.reports import FinishedRequest
from streamvault.sparkrun.options import Distributed


class RequestOptions(RestoreOptions, Rehearsed):
    """Options of *request-restore*."""

    queue: Annotated[
        str,
        Field(description="The queue, as a stream's URI; created if it does not exist."),
        CommandLine(metavar="QUEUE"),
    ]
    dry_run: Annotated[bool, Field(description="Only check the arguments; queue nothing.")] = False


class SkipOptions(Options):
    """Options of *queue skip*."""

    failed: Annotated[
        bool, Field(description="The bytes are among the failed requests."), CommandLine(environment=False)
    ] = False


class WorkOptions(Distributed):
    """Options of *work*."""

    measured: ClassVar = True

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


class WorkArguments(WorkOptions):
    """Keyword arguments of `work_queue`, some of which no command line can give."""

    finished: Annotated[Callable[[FinishedRequest], None], Field(description="Receives each finished request.")] = (
        lambda _: None
    )
