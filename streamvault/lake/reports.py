"""Options and report of *handoff*; options of *ddl* and *cat*."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from streamvault.common.options import SIZE, CommandLine, Options, Rehearsed, load_file
from streamvault.common.report import Cost, GapReport, RunReport
from streamvault.layouts.layout import WINDOW
from streamvault.manifests.options import SMALLEST_RANGE, LargestEvent, Window
from streamvault.runner.opening import Distributed
from streamvault.streamstore.cuts import FromCut, ToCut
from streamvault.streamstore.model import LARGEST_EVENT_BYTES

TableFormat = Literal["iceberg", "parquet"]
Decode = Literal["none", "json", "csv", "avro", "protobuf", "registry"]
Framing = Literal["none", "pravega", "confluent", "avro"]
Engine = Literal["athena", "trino", "hive", "spark", "duckdb"]
ColumnChange = Literal["add", "keep"]

ERROR = "_error"
"""The column that says what of an event could not be decoded."""


def load_schema(name: str, option: str) -> str:
    """Read a schema's file; a descriptor set of Protobuf, which is not a text, becomes base64.

    Raises:
        Usage: it cannot be read.
    """
    return load_file(name, option, kind=_as_text)


def _as_text(content: bytes) -> str:
    # each field of a descriptor has its type and its label as numbers, which no text has
    return b64encode(content).decode() if min(content, default=32) < ord("\t") else content.decode()


class DdlOptions(Options):
    """Which table, and what it is made of: the options of *ddl*, and some of those of *handoff*."""

    table: Annotated[
        str | None,
        Field(description="The table's name, in place of one made from scope and stream."),
        CommandLine(metavar="[DATABASE.]NAME", environment=False),
    ] = None
    format: Annotated[
        TableFormat | None,
        Field(description="Format of a new table. [default: iceberg]"),
        CommandLine(environment=False),
    ] = None
    decode: Annotated[Decode | None, Field(description="Decode the payloads, and turn their fields into columns.")] = (
        None
    )
    framing: Annotated[
        Framing | None, Field(description="The serializer whose header precedes the record in each payload.")
    ] = None
    columns_schema: Annotated[str | None, CommandLine(metavar="FILE", load=load_schema)] = Field(
        None,
        alias="schema",
        description='The columns: JSON {"field": "type"}, or an Avro or Protobuf schema. [default: from a sample]',
    )
    message: Annotated[
        str | None,
        Field(description="The payloads' message in a Protobuf schema. [default: its first]"),
        CommandLine(metavar="PACKAGE.NAME", environment=False),
    ] = None
    event_time: Annotated[
        str | None,
        Field(description="Add a column event_time from this field; the unit of numbers is s, ms, us or ns."),
        CommandLine(metavar="FIELD[:UNIT]"),
    ] = None
    raw: Annotated[bool, Field(description="Also register a table over the objects of layout events.")] = False
    root: Annotated[
        str | None, Field(description="Where the table is stored, if not in the archive."), CommandLine(metavar="ROOT")
    ] = None


class RegistryOptions(Options):
    """Where the schemas of events are."""

    registry: Annotated[
        str | None,
        Field(description="Pravega's Schema Registry. [default: what the archive has recorded]"),
        CommandLine(metavar="http://[USER:PASSWORD@]HOST:PORT"),
    ] = None
    group: Annotated[
        str | None,
        Field(description="The events' group in the registry. [default: the stream's name]"),
        CommandLine(metavar="[NAMESPACE/]GROUP"),
    ] = None


class HandoffOptions(DdlOptions, RegistryOptions, Distributed, Rehearsed):
    """Options of *handoff*."""

    scoped: ClassVar = {"source": "stream or archive"}

    catalog: Annotated[
        str | None,
        Field(description="glue, rest:URI, sql:URI or a name in PyIceberg's configuration."),
        CommandLine(metavar="CATALOG"),
    ] = None
    projection: Annotated[
        bool, Field(description="Parquet in Glue: use partition projection instead of partitions.")
    ] = False
    columns: Annotated[
        ColumnChange | None,
        Field(description="Whether a table gets columns for new fields of --schema or the registry. [default: add]"),
        CommandLine(environment=False),  # another command has an option of this name
    ] = None
    target_size: Annotated[
        int | None,
        Field(
            ge=SMALLEST_RANGE, description="How much of the stream goes into one file of a new table. [default: 256MiB]"
        ),
        SIZE,
    ] = None
    window: Window = WINDOW
    largest_event: LargestEvent = LARGEST_EVENT_BYTES


class CatOptions(RegistryOptions):
    """Which events *cat* writes, and how they are decoded."""

    from_cut: FromCut = None
    to_cut: ToCut = None
    generation: Annotated[
        int | None,
        Field(ge=1, description="Write the events up to this generation instead of the newest."),
        CommandLine(metavar="G"),
    ] = None
    unverified: Annotated[
        bool,
        Field(description="Write events as they are read; a range read in full is verified only after its last event."),
    ] = False
    decode: Annotated[
        Literal["registry"] | None,
        Field(
            description="Decode the payloads with the schemas in Pravega's Schema Registry; requires jsonl or --json."
        ),
        CommandLine(environment=False),  # another command has an option of this name
    ] = None
    limit: Annotated[
        int | None, Field(ge=0, description="Write at most this many events."), CommandLine(metavar="N")
    ] = None


class ReadOptions(CatOptions):
    """Options of `read_archive`, some of which no command line has."""

    columns: Annotated[Sequence[str] | None, Field(description="Which columns to compute; all if not given.")] = None
    window: Annotated[int, Field(description="Maximum data to buffer in memory (bytes)."), SIZE] = WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReport(RunReport):
    """Result of a handoff.

    Attributes:
        archive: URI of the archive; empty if the table is made from a stream.
        table: ``DATABASE.NAME``.
        location: URI of the table's folder.
        format: iceberg or parquet.
        stream: URI of the stream; empty if the table is made from an archive.
        columns: the table's columns.
        generations: the table's generations.
        added: the generations that this run added.
        registered: the generations that this run registered in the catalog.
        raw_segments: number of partitions that this run added to the table over raw events.
        events: events of the added generations; an estimate in a dry run on a stream.
        bytes: segment bytes of the added generations, with event headers.
        gaps: bytes of the stream that were truncated before the handoff.
        moved_bytes: segment bytes that this run wrote; an earlier run wrote the others.
        files: number of files of the added generations.
        file_bytes: size of these files.
        undecoded: events written by this run that could not be decoded, or not all of their values; the column `_error`
            says why.
        undecoded_share: their share of the events that this run wrote, from 0 to 1.
        proposed: field → type of new fields of JSON that a sample has and the table no columns for; see ``columns``.
        cost: the estimated cost, in a dry run.
        unchanged: whether there was nothing to do.
    """

    archive: str
    table: str
    location: str
    format: str
    stream: str = ""
    columns: tuple[str, ...] = ()
    generations: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    registered: tuple[int, ...] = ()
    raw_segments: int = 0
    events: int = 0
    bytes: int = 0
    gaps: tuple[GapReport, ...] = ()
    moved_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    undecoded: int = 0
    undecoded_share: float = 0.0
    proposed: Mapping[str, str] = field(default_factory=dict)
    cost: Cost | None = None
    unchanged: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unchanged", not (self.added or self.registered or self.raw_segments))
