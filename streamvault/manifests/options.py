"""Options that several verbs share, and those of *show*, *check*, *warm*, *hold* and *release*."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from streamvault.common.options import DURATION, PERCENT, SIZE, TEXTS, CommandLine, Options, Rehearsed, Watched
from streamvault.common.units import size_text
from streamvault.layouts.keys import line_folder
from streamvault.layouts.layout import MIN_WINDOW, WINDOW, Compression, LayoutName
from streamvault.objectstore.store import InvalidKey, Tier
from streamvault.runner.opening import Distributed
from streamvault.streamstore.model import ANY_EVENT_BYTES, LARGEST_EVENT_BYTES, MAX_EVENT_BYTES, ContentKind

RANGE_SIZE = 64 * 1024 * 1024
SMALLEST_RANGE = int(os.environ.get("STREAMVAULT_SMALLEST_RANGE", "65536"))
"""Bytes. Less is a forgotten unit; the variable is for tests, whose streams are small."""
RETRY_FOR = 600.0
"""Seconds for which a server that does not answer is retried."""
TARGET = 256 * 1024 * 1024
"""Maximum bytes of a merged generation."""
GRACE = 3600.0
"""Seconds for which replaced objects stay."""
MIN_GRACE_SECONDS = 600.0
"""Seconds for which replaced objects stay at least, for readers that have begun to read them."""
LONGEST_GRACE = 10 * 365 * 86400
MAX_WHY_CHARS = 1000
POLL_SECONDS = 300.0
"""S3 takes minutes (Expedited) to days (Bulk)."""

Window = Annotated[
    int,
    Field(ge=MIN_WINDOW, description=f"Maximum data that a task buffers in memory: {size_text(MIN_WINDOW)} or more."),
    SIZE,
]
LargestEvent = Annotated[
    int,
    Field(
        ge=MAX_EVENT_BYTES,
        le=ANY_EVENT_BYTES,
        description="The largest event to accept; clients write more than 8MiB only if large events are enabled for "
        "them.",
    ),
    SIZE,
]
CompressOption = Annotated[
    Compression | None,
    Field(description="Compression of chunks; digests are of the uncompressed bytes. Default: none."),
    CommandLine(choices={"none": "", "zstd": "zstd"}),
]
Restart = Annotated[
    bool,
    Field(description="Abandon an unfinished run and start over; needed to change its options."),
    CommandLine(environment=False),
]
StorageClass = Annotated[
    str,
    Field(description="Store data objects in this S3 storage class, e.g. STANDARD_IA."),
    CommandLine(metavar="CLASS"),
]
Fingerprints = Annotated[
    Iterable[str],
    TEXTS,
    Field(
        description="Reject the archive unless its newest manifest has this SHA-256, as printed by export and show. "
        "Repeat for earlier generations."
    ),
    CommandLine(name="--fingerprint", metavar="HEX"),
]
TargetBytes = Annotated[int, Field(ge=1, description="Maximum size of a merged generation."), SIZE]
Grace = Annotated[
    float,
    Field(
        ge=MIN_GRACE_SECONDS,
        le=LONGEST_GRACE,
        description="How long replaced objects are kept for readers that have started to read them: 10m or more.",
    ),
    DURATION,
]
Every = Annotated[float, Field(gt=0, description="How often to check for new events."), DURATION]


def _line(name: str) -> str:
    if name:
        try:
            line_folder(name)
        except InvalidKey as error:
            raise ValueError(error.what) from None
    return name


RangeSize = Annotated[
    int | None,
    Field(ge=SMALLEST_RANGE, description="Size of the ranges, at least 64KiB. Default: 64MiB."),
    SIZE,
]


class ArchivingOptions(Options):
    """How a stream is archived. None is not the default's value but not given: an unfinished run's then holds."""

    content: Annotated[
        ContentKind | None,
        Field(
            description="What the stream holds: events, or bytes (a byte stream). Default: as in the archive; events "
            "for a new one."
        ),
    ] = None
    layout: Annotated[
        LayoutName | None,
        Field(
            description="One object for each event, or one for each range of a segment. Default: events; chunks for "
            "bytes."
        ),
    ] = None
    compress: CompressOption = None
    range_size: RangeSize = None
    window: Window = WINDOW
    largest_event: LargestEvent = LARGEST_EVENT_BYTES
    storage_class: StorageClass = ""
    same_stream: Annotated[
        bool,
        Field(
            description="Confirm that it is the archived stream. Needed only if nothing in it can be compared with the "
            "archive."
        ),
        CommandLine(environment=False),
    ] = False
    line: Annotated[
        str,
        AfterValidator(_line),
        Field(description="Archive in another line of generations, alongside the stream's first archive."),
        CommandLine(metavar="NAME"),
    ] = ""
    reader_groups: Annotated[
        bool,
        Field(description="Also record the positions of the stream's reader groups, for 'import --reader-groups'."),
    ] = False
    schemas: Annotated[
        str | None,
        Field(description="Also record the schemas of the events, from a Pravega Schema Registry."),
        CommandLine(metavar="http://[USER:PASSWORD@]HOST:PORT"),
    ] = None
    schema_group: Annotated[
        str | None,
        Field(description="The events' group in the registry. [default: the stream's name]"),
        CommandLine(metavar="[NAMESPACE/]GROUP"),
    ] = None


class RoundOptions(Options):
    """When work that is repeated as a stream grows ends, and for how long it is retried."""

    idle: Annotated[float | None, Field(gt=0, description="Stop after this long without new events."), DURATION] = None
    lasting: Annotated[float | None, Field(gt=0, description="Stop after this long."), DURATION.named("--for")] = None
    retry_for: Annotated[
        float, Field(ge=0, description="How long to retry while a server does not answer; 0s: stop at once."), DURATION
    ] = RETRY_FOR


class ShowOptions(Options):
    """Options of *show*."""

    generation: Annotated[
        int | None,
        Field(ge=1, description="Print this generation's manifest instead of the newest one's."),
        CommandLine(metavar="G"),
    ] = None


class GetOptions(Options):
    """Options of *get*."""

    unverified: Annotated[
        bool,
        Field(description="Read only the event, without verifying the digest of its range."),
    ] = False


class CheckOptions(Distributed):
    """Options of *check*."""

    scoped: ClassVar = {"archive": "archive"}

    read_data: Annotated[bool, Field(description="Read all data and compare its digests.")] = False
    subset: Annotated[
        float | None,
        Field(gt=0, le=1, description="Read this share of the ranges, chosen at random, e.g. 10%."),
        PERCENT.named("--read-data-subset"),
    ] = None
    stored_checksums: Annotated[
        bool,
        Field(description="Compare the store's own checksums of chunks with the index; downloads nothing."),
    ] = False
    seed: Annotated[
        int | None,
        Field(description="Choose the same ranges as the check that printed this seed."),
        CommandLine(metavar="SEED"),
    ] = None
    generation: Annotated[
        int | None,
        Field(ge=1, description="Check only this generation, and do not look for strays."),
        CommandLine(metavar="G"),
    ] = None
    fingerprints: Fingerprints = ()
    repair: Annotated[
        bool, Field(description="Delete stray objects, if nothing is damaged."), CommandLine().destroying()
    ] = False


class WarmOptions(Rehearsed, Watched):
    """Options of *warm*."""

    generation: Annotated[
        int | None,
        Field(ge=1, description="Warm what an import up to this generation reads. Default: the newest."),
        CommandLine(metavar="G"),
    ] = None
    days: Annotated[
        int, Field(ge=1, description="How many days the objects stay readable."), CommandLine(metavar="N")
    ] = 7
    tier: Annotated[Tier, Field(description="Retrieval tier: Bulk is the cheapest, Expedited the fastest.")] = (
        "Standard"
    )
    wait: Annotated[bool, Field(description="Wait until everything can be read."), CommandLine(environment=False)] = (
        False
    )
    poll: Annotated[
        float,
        Field(gt=0, description="How often to check while waiting."),
        DURATION,
    ] = POLL_SECONDS


class DeleteOptions(Options):
    """Options of *delete*."""

    yes: Annotated[
        bool,
        Field(description="Delete it; without this option, only print what would be deleted."),
        CommandLine().destroying(),
    ] = False
    unfinished: Annotated[
        bool,
        Field(
            description="Delete even if an export, a merge or a truncation of the source is unfinished. A run that "
            "is still active ends with a conflict; a paused truncation still takes place."
        ),
        CommandLine().destroying(),
    ] = False


class HoldOptions(Rehearsed):
    """Options of *hold*."""

    generation: Annotated[
        int | None,
        Field(ge=1, description="Hold this generation instead of the newest."),
        CommandLine(metavar="G"),
    ] = None
    why: Annotated[
        str,
        Field(max_length=MAX_WHY_CHARS, description="Reason for the hold."),
        CommandLine(metavar="TEXT"),
    ] = ""


class ReleaseOptions(Rehearsed):
    """Options of *release*."""

    generation: Annotated[
        int | None,
        Field(ge=1, description="Release it from this generation only."),
        CommandLine(metavar="G"),
    ] = None
