"""The arguments and options that commands share, and how their texts are read."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from common.errors import Usage
from common.sizes import parse_percent, parse_size

__all__ = [
    "Again",
    "ArchiveArgument",
    "At",
    "Compress",
    "CompressOption",
    "DryRun",
    "Every",
    "FillerLimit",
    "Fingerprints",
    "Follow",
    "FromCut",
    "FromLayout",
    "FromLayoutOption",
    "FromTable",
    "Generation",
    "Grace",
    "HoldName",
    "Idle",
    "Json",
    "Keep",
    "KeepFor",
    "Lasting",
    "Layout",
    "LayoutOption",
    "LogLevel",
    "LogLevelOption",
    "Master",
    "Offsets",
    "OffsetsOption",
    "QueueArgument",
    "RangeSize",
    "ReadBack",
    "Retention",
    "RetentionOption",
    "RetryFor",
    "RootArgument",
    "Share",
    "StorageClass",
    "StreamArgument",
    "TableSource",
    "Target",
    "TargetSize",
    "ToCut",
    "Until",
    "WaitForWarm",
    "Window",
    "parse_span",
    "read_cut",
]


class LogLevel(StrEnum):
    """From which level on log lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Layout(StrEnum):
    """How an archive holds its data."""

    EVENTS = "events"
    CHUNKS = "chunks"


class FromLayout(StrEnum):
    """What is restored instead of the archive's own objects."""

    TABLE = "table"


class Compress(StrEnum):
    """How chunks are compressed."""

    NONE = "none"
    ZSTD = "zstd"


class Retention(StrEnum):
    """Whether a restored stream gets the archived retention policy."""

    KEEP = "keep"
    OFF = "off"


class Offsets(StrEnum):
    """Where a restored segment starts whose beginning the archive does not have."""

    KEEP = "keep"
    SHIFT = "shift"


def read_cut(text: str | None, option: str) -> dict[str, int] | None:
    """A stream cut from a file's name or from JSON on the command line.

    Args:
        text: what the user wrote; None if the option was not given.
        option: the option's name, for the message.

    Returns:
        Full segment name → offset (bytes).

    Raises:
        Usage: the file cannot be read, or it is no stream cut.
    """
    if text is None:
        return None
    from streamstore.errors import InvalidCut
    from streamstore.model import StreamCut

    source = text
    if not text.lstrip().startswith(("{", "[", '"')):
        try:
            source = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            todo = "Give a file's name or the cut itself as JSON."
            raise Usage(f"{option} cannot be read", where=f"{text}: {reason}", todo=todo) from None
    try:
        return StreamCut.from_json(source).to_json()
    except InvalidCut as error:
        raise InvalidCut(error.what, where=f"{option}: {error.where or text}", todo=error.todo) from None


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _share(text: str) -> float:
    try:
        return parse_percent(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def parse_span(text: str) -> float:
    """A span of time on the command line, in seconds."""
    from common.times import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


StreamArgument = Annotated[
    str,
    typer.Argument(
        metavar="STREAM",
        help="pravega://HOST:PORT/SCOPE/STREAM, pravega+tls://… or local:///FOLDER/SCOPE/STREAM.",
        show_default=False,
    ),
]
QueueArgument = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="A queue of requests, written as a stream's URI.", show_default=False),
]
RootArgument = Annotated[
    str,
    typer.Argument(metavar="ROOT", help="s3://BUCKET/PREFIX or file:///FOLDER.", show_default=False),
]
ArchiveArgument = Annotated[
    str,
    typer.Argument(metavar="ARCHIVE", help="ROOT/SCOPE/STREAM, as `export` and `ls` print it.", show_default=False),
]
TableSource = Annotated[
    str,
    typer.Argument(
        metavar="ARCHIVE|STREAM",
        help="An archive, ROOT/SCOPE/STREAM; or a stream, pravega://HOST:PORT/SCOPE/STREAM, with --root.",
        show_default=False,
    ),
]
FromCut = Annotated[
    str | None,
    typer.Option("--from", metavar="CUT", help="Start at this stream cut: a file's name, or JSON.", show_default=False),
]
ToCut = Annotated[
    str | None,
    typer.Option("--to", metavar="CUT", help="Stop at this stream cut: a file's name, or JSON.", show_default=False),
]
LayoutOption = Annotated[
    Layout, typer.Option("--layout", help="One object for each event, or one for each range of a segment.")
]
RangeSize = Annotated[
    int,
    typer.Option(
        "--range-size", metavar="SIZE", parser=_size, help="How much of a segment is one task, for a new archive."
    ),
]
CompressOption = Annotated[
    Compress, typer.Option("--compress", help="Compress chunks; digests stay those of the segment's bytes.")
]
Window = Annotated[
    int,
    typer.Option("--window", metavar="SIZE", parser=_size, help="The most that a task holds of what is on its way."),
]
LargestEvent = Annotated[
    int,
    typer.Option(
        "--largest-event",
        metavar="SIZE",
        parser=_size,
        help="The largest event to accept; clients write more than 8MiB only if large events are enabled for them.",
    ),
]
FromLayoutOption = Annotated[
    FromLayout | None,
    typer.Option("--layout", help="Restore from the files of a table that `handoff` made.", show_default=False),
]
FromTable = Annotated[
    str | None, typer.Option("--table", metavar="NAME", help="Which table, if there are several.", show_default=False)
]
TargetSize = Annotated[
    int | None,
    typer.Option(
        "--target-size",
        metavar="SIZE",
        parser=_size,
        help="How much of the stream makes a file of a new table. [default: 256MiB]",
        show_default=False,
    ),
]
ReadBack = Annotated[
    bool, typer.Option("--read-back", help="Read back and compare also what this run itself has appended.")
]
Again = Annotated[
    bool,
    typer.Option(
        "--again", help="A stream that was restored from this archive already is read back and verified, not refused."
    ),
]
WaitForWarm = Annotated[
    bool, typer.Option("--wait-for-warm", help="Wait for objects that S3 is bringing back from an archive class.")
]
Generation = Annotated[
    int | None,
    typer.Option("--generation", metavar="G", min=1, help="This generation instead of the newest.", show_default=False),
]
Fingerprints = Annotated[
    list[str] | None,
    typer.Option(
        "--fingerprint",
        metavar="HEX",
        help="Refuse an archive whose newest manifest has another SHA-256, as export and show print it. May be given"
        " again for earlier generations.",
        show_default=False,
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Restore up to the last generation whose tail was taken by then, e.g. 2026-01-31T18:00:00Z.",
        show_default=False,
    ),
]
Keep = Annotated[
    int | None,
    typer.Option(
        "--keep",
        metavar="N",
        min=1,
        help="Let all generations but the N newest with events expire.",
        show_default=False,
    ),
]
KeepFor = Annotated[
    float | None,
    typer.Option(
        "--keep-for",
        metavar="TIME",
        parser=parse_span,
        help="Let generations expire that are older than the newest by this: 90d, 2w, 36h, 15m or 30s.",
        show_default=False,
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Let generations expire that were taken by then, e.g. 2026-01-31T18:00:00Z.",
        show_default=False,
    ),
]
Target = Annotated[
    int,
    typer.Option("--target", metavar="SIZE", parser=_size, help="How large merged generations may become."),
]
Grace = Annotated[
    float,
    typer.Option(
        "--grace",
        metavar="TIME",
        parser=parse_span,
        help="How long replaced objects stay for whoever is reading them: 10m at least.",
    ),
]
Follow = Annotated[
    bool,
    typer.Option("--follow", help="Go on: whenever there is something new, archive it; merge small generations."),
]
Idle = Annotated[
    float | None,
    typer.Option(
        "--idle",
        metavar="TIME",
        parser=parse_span,
        help="With --follow: end when nothing new came for so long.",
        show_default=False,
    ),
]
Lasting = Annotated[
    float | None,
    typer.Option(
        "--for", metavar="TIME", parser=parse_span, help="With --follow: end after so long.", show_default=False
    ),
]
Every = Annotated[
    float | None,
    typer.Option(
        "--every",
        metavar="TIME",
        parser=parse_span,
        help="With --follow: from one look at the stream to the next (10s).",
        show_default=False,
    ),
]
RetryFor = Annotated[
    float | None,
    typer.Option(
        "--retry-for",
        metavar="TIME",
        parser=parse_span,
        help="With --follow: how long a server that went away is tried again (10m).",
        show_default=False,
    ),
]
StorageClass = Annotated[
    str,
    typer.Option(
        "--storage-class",
        metavar="CLASS",
        help="Put the data's objects into this S3 storage class, e.g. STANDARD_IA.",
        show_default=False,
    ),
]
HoldName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The hold's name: letters, digits and hyphens.", show_default=False),
]
RetentionOption = Annotated[
    Retention,
    typer.Option(
        "--retention",
        help="Give the stream the archived retention policy, by which the store may soon delete from it; or none.",
    ),
]
OffsetsOption = Annotated[
    Offsets,
    typer.Option(
        "--offsets",
        help="Segments whose beginning was truncated: keep their offsets, filling up to them, or shift them down to 0.",
    ),
]
FillerLimit = Annotated[
    int,
    typer.Option("--filler-limit", metavar="SIZE", parser=_size, help="The most filler that one segment may take."),
]
Share = Annotated[
    float | None,
    typer.Option(
        "--read-data-subset",
        metavar="PERCENT",
        parser=_share,
        help="Read this share of the ranges, chosen at random, e.g. 10%.",
        show_default=False,
    ),
]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="The Spark master that the work runs on.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Write nothing; say what would be moved and what S3 would charge.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", help="Log lines on standard error from this level on.")
]
