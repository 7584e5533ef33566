"""Options and report of *serve*."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field

from streamvault.common.options import DURATION, FILE, SIZE, CommandLine, Options
from streamvault.common.report import TimedReport
from streamvault.serving.cache import LEAST_CACHE


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeReport(TimedReport):
    """What is served, when it begins and when it has ended.

    Attributes:
        uri: what readers connect to.
        served: the streams.
        sent_bytes: bytes of segments that were sent.
        ranges_read: ranges that were read whole and compared.
        request_counts: what was asked for → how often.
    """

    uri: str
    served: tuple[str, ...]
    sent_bytes: int = 0
    ranges_read: int = 0
    request_counts: Mapping[str, int] = field(default_factory=dict)


class RunningServer(Protocol):
    """What a server that answers tells of itself."""

    def __call__(self) -> str:
        """Return its metrics in the text format of Prometheus."""

    def status(self) -> dict[str, Any]:
        """Return how it is doing, in types that JSON has."""


class ServeOptions(Options):
    """Options of *serve*."""

    measured: ClassVar = True

    over: Annotated[
        str | None,
        Field(description="Serve exactly one archive together with this stream, its source, as one stream."),
        CommandLine(metavar="STREAM", environment=False),
    ] = None
    state: Annotated[
        str | None,
        Field(
            description="Where to keep the states of reader groups, for several servers to share. Default: in memory."
        ),
        CommandLine(metavar="ROOT"),
    ] = None
    listen: Annotated[
        str,
        Field(description="Where the controller listens; the segment store uses the next port."),
        CommandLine(metavar="[HOST:]PORT"),
    ] = "127.0.0.1:9090"
    advertise: Annotated[
        str, Field(description="The host that readers are told to connect to."), CommandLine(metavar="HOST")
    ] = ""
    cache: Annotated[
        int, Field(ge=LEAST_CACHE, description="Memory for data that is fetched, cached and sent."), SIZE
    ] = 256 * 1024 * 1024
    every: Annotated[
        float,
        Field(gt=0, description="How often to look for new generations."),
        CommandLine(metavar="TIME", parse=DURATION.parse, text=DURATION.text, environment=False),
    ] = 5.0
    generation: Annotated[
        int | None,
        Field(ge=1, description="Serve the stream as it was at this generation."),
        CommandLine(metavar="N", environment=False),
    ] = None
    verify: Annotated[
        Literal["blocks", "sha256"],
        Field(description="With sha256, a range is read whole and compared before its first byte is sent."),
    ] = "blocks"
    lasting: Annotated[float | None, Field(gt=0, description="Stop after this long."), DURATION.named("--for")] = None
    tls_cert: Annotated[Path | None, Field(description="Use TLS with this certificate (PEM)."), FILE] = None
    tls_key: Annotated[Path | None, Field(description="The certificate's key (PEM)."), FILE] = None
    login: Annotated[Path | None, Field(description="A file with the USER:PASSWORD that readers must give."), FILE] = (
        None
    )
    token_lifetime: Annotated[
        float,
        Field(gt=0, description="How long a token for the segment store is valid, with --login."),
        replace(DURATION, environment=False),
    ] = 600.0


class ServeArguments(ServeOptions):
    """Keyword arguments of `serve_archives`, some of which no command line can give."""

    ready: Annotated[Callable[[ServeReport], None], Field(description="Is called when the server answers.")] = (
        lambda _: None
    )
    answering: Annotated[
        Callable[[RunningServer], AbstractContextManager[None]],
        Field(description="Lasts while the server answers; is given what returns its metrics and its status."),
    ] = lambda _: nullcontext()
