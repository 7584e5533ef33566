"""Options and report of *import*; requests and copies share some of the options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Damaged, Usage
from streamvault.common.options import SIZE, TIME, CommandLine, Options, Rehearsed, moment
from streamvault.common.report import CarriedGroup, Cost, GapReport, RunReport
from streamvault.common.units import parse_moment
from streamvault.layouts.layout import WINDOW
from streamvault.manifests.options import Fingerprints, Window
from streamvault.manifests.verbs.reports import DamageReport
from streamvault.runner.opening import Distributed
from streamvault.streamstore.cuts import FromCut, ToCut
from streamvault.streamstore.model import SegmentId

Numbers = Literal["keep", "map"]
Offsets = Literal["keep", "shift"]
KeptRetention = Literal["keep", "off"]

FILLER_LIMIT = 1024**3


NumbersOption = Annotated[
    Numbers,
    Field(
        description="What to do if the store will not assign the source's segment numbers again (for example under a "
        "reused name): fail, or use other numbers."
    ),
]


class TargetOptions(Options):
    """How a stream becomes a new stream."""

    offsets: Annotated[
        Offsets,
        Field(
            description="Segments whose beginning was truncated: keep their offsets (with filler), or start them at 0."
        ),
    ] = "keep"
    filler_limit: Annotated[int, Field(ge=0, description="Maximum filler per segment."), SIZE] = FILLER_LIMIT
    numbers: NumbersOption = "keep"
    window: Window = WINDOW


class PartOptions(TargetOptions):
    """Which part of a stream becomes a new stream, and how."""

    from_cut: FromCut = None
    to_cut: ToCut = None
    read_back: Annotated[
        bool, Field(description="Also read back and compare the data that this run itself appended.")
    ] = False


class RestoreOptions(PartOptions):
    """Which part of an archive is restored, and how: what a request in a queue holds too."""

    generation: Annotated[
        int | None,
        Field(ge=1, description="Restore up to this generation instead of the newest."),
        CommandLine(metavar="G"),
    ] = None
    at: Annotated[
        str | datetime | None,
        moment("--at"),
        Field(
            description="Restore up to the newest generation taken at or before this time, e.g. 2026-01-31T18:00:00Z."
        ),
        TIME,
    ] = None
    retention: Annotated[
        KeptRetention,
        Field(
            description="Whether the new stream gets the archived retention policy, which may delete events "
            "immediately."
        ),
    ] = "keep"

    @property
    def at_time(self) -> datetime | None:
        """The time `at`, in UTC."""
        return None if self.at is None else parse_moment(self.at, "--at")

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if self.at is not None and self.generation is not None:
            raise Usage("--at and --generation are mutually exclusive", todo="Give only one of them.")
        return self


class ImportOptions(RestoreOptions, Distributed, Rehearsed):
    """Options of *import*."""

    scoped: ClassVar = {"archive": "archive", "stream": "target"}

    fingerprints: Fingerprints = ()
    layout: Annotated[
        Literal["table"] | None,
        Field(description="Restore from the files of a table that `handoff` wrote."),
        CommandLine(environment=False),
    ] = None
    table: Annotated[
        str | None, Field(description="Name of the table, if there are several."), CommandLine(metavar="NAME")
    ] = None
    reader_groups: Annotated[
        bool,
        Field(description="Also create the reader groups that 'export --reader-groups' recorded, at those positions."),
    ] = False
    schemas: Annotated[
        str | None,
        Field(description="Also register the schemas that 'export --schemas' recorded, in a Pravega Schema Registry."),
        CommandLine(metavar="http://[USER:PASSWORD@]HOST:PORT", environment=False),  # export has it for another reason
    ] = None
    schema_group: Annotated[
        str | None,
        Field(description="The group to register them in. [default: that of the archive]"),
        CommandLine(metavar="[NAMESPACE/]GROUP", environment=False),
    ] = None
    wait_for_warm: Annotated[
        bool, Field(description="Wait for objects that S3 is restoring from an archive class.")
    ] = False
    again: Annotated[
        bool,
        Field(description="Read back and verify a stream that was already restored from this archive."),
    ] = False
    skip_damaged: Annotated[
        bool,
        Field(description="Skip damaged ranges; exit with 3 if any were skipped."),
        CommandLine(environment=False),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedBoundary:
    """A key-range boundary that had to move so that the store numbers the segments as in the source.

    Attributes:
        epoch: the first epoch that has the boundary.
        source_position: its position in the source.
        target_position: its position in the target.
        ulps: the distance in units in the last place of a double.
    """

    epoch: int
    source_position: float
    target_position: float
    ulps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledStreamReport(RunReport):
    """Result of a verb that fills a stream from its sources.

    Attributes:
        stream: URI of the stream.
        resumed: True if an unfinished run was resumed.
        unchanged: True if an earlier run had finished it.
        bytes: bytes in the new stream, with event headers, without filler.
        moved_bytes: bytes that this run appended, without filler.
        segments: number of segments of the new stream.
    """

    stream: str
    resumed: bool = False
    unchanged: bool = False
    bytes: int = 0
    moved_bytes: int = 0
    segments: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStreamReport(FilledStreamReport):
    """Result of a verb that makes a stream from a source.

    Attributes:
        stream: URI of the new stream.
        epochs: number of epochs of the new stream.
        offsets: "keep" or "shift".
        shifts: segment name → by how many bytes its offsets are lower than in the source.
        renumbered: segment in the source → in the new stream, of those whose numbers differ, e.g. ``0.#epoch.0``.
        moved_boundaries: the key-range boundaries that had to move.
    """

    epochs: int = 0
    offsets: Literal["keep", "shift"] = "keep"
    shifts: Mapping[str, int] = field(default_factory=dict)
    renumbered: Mapping[str, str] = field(default_factory=dict)
    moved_boundaries: tuple[MovedBoundary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(NewStreamReport):
    """Result of an import.

    Attributes:
        archive: URI of the archive.
        generation: the newest restored generation.
        created: when the tail of that generation was taken, RFC 3339.
        at: the requested time, RFC 3339; empty if none was given.
        seconds_before: how long before `at` the tail was taken.
        verified: True if every range was compared with the archive, or would be.
        events: events in the restored stream.
        reader_groups: the reader groups that the generation has noted, if they were asked for.
        encodings: ids of the archive's events in the Schema Registry, if their schemas were to be registered.
        encodings_registered: how many of these ids the registry did not have.
        gaps: bytes that the archive does not have.
        filled: where the restored stream has filler in their place, in its offsets and the archive's segments; `reason`
            says what that is. An archive of the stream has this, too: in its tags, and in the notes of a check.
        findings: one line for each damaged part of the archive that was left out, with ``skip_damaged``.
        damage: the same, with their fields.
        cost: the estimated cost, in a dry run.
    """

    archive: str
    generation: int
    created: str = ""
    at: str = ""
    seconds_before: float | None = None
    verified: bool = False
    events: int = 0
    reader_groups: tuple[CarriedGroup, ...] = ()
    encodings: int = 0
    encodings_registered: int = 0
    gaps: tuple[GapReport, ...] = ()
    filled: tuple[GapReport, ...] = ()
    findings: tuple[str, ...] = ()
    damage: tuple[DamageReport, ...] = ()
    cost: Cost | None = None

    @property
    def exit_code(self) -> int:
        """See the base class."""
        return Damaged.exit_code if self.findings else 0


def renumbered(segments: Mapping[SegmentId, SegmentId]) -> dict[str, str]:
    """Return the segments that got another number, for a report, given the source's segment → the target's."""
    return {str(old): str(new) for old, new in segments.items() if old != new}
