"""Plans of a table's generations, and the origin of their events: an archive or a stream.

The archive's generations may be merged during a handoff, or between a killed run and the next one; a stream grows. Rows
that queries have seen must never disappear, so the first run decides what follows a generation, down to the ranges.
Then all runs write the same files, whatever they find at the origin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Literal

from pydantic import Field

from streamvault.common.errors import Damaged
from streamvault.common.neighbours import grouped, holes
from streamvault.common.progress import Progress
from streamvault.lake.table import Decoding, OriginKind, TableOptions
from streamvault.lake.task import EventSource, TableRange
from streamvault.layouts.archived_range import ArchivedRange, segment_digest
from streamvault.layouts.keys import table_end_key, table_plan_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.files import Count, File, Offset, SegmentName, decide_file, decode, find_file, segment_key
from streamvault.manifests.history import by_segment, with_rows
from streamvault.manifests.manifest import GapEntry, Manifest, SchemaGroup
from streamvault.runner.runner import Runner
from streamvault.sources.reader import TRUNCATED
from streamvault.streamstore.model import SegmentId, StreamName


class TablePlan(File):
    """Plan of the generation that follows another one in a table.

    Attributes:
        after: the table's generation before it; 0 if the table begins with this one.
        manifest: its manifest; events and digests of partly included segments are not known yet.
        ranges: full segment name → start and end of each of its ranges, in order.
        events: total number of events; None if it is known only after reading.
        decoding: how its events become columns; None if that has not changed since the table was begun.
        file_id: with what the names of its files end; empty but in plans of earlier releases, of Iceberg tables
            without a folder of their own.
    """

    format: Literal[1, 2] = 1
    after: Annotated[int, Field(ge=0, le=0x7FFFFFFF)]
    manifest: Manifest
    ranges: Mapping[SegmentName, tuple[tuple[Offset, Offset], ...]]
    events: Count | None
    decoding: Decoding | None = None
    file_id: Annotated[str, Field(pattern="^([0-9a-f]{32})?$")] = ""

    def options(self, begun: TableOptions) -> TableOptions:
        """Return the table's options for the generation's files, given those that the table was begun with."""
        if self.decoding is None:
            return begun
        return begun.model_copy(update={name: getattr(self.decoding, name) for name in Decoding.model_fields})

    def decoded_as(self, options: TableOptions) -> TablePlan:
        """Return the plan with a decoding."""
        found = Decoding(columns=options.columns, avro=options.avro, reader=options.reader)
        return self.model_copy(update={"decoding": found})

    @property
    def generation(self) -> int:
        """Its number, that of its last original generation."""
        return self.manifest.generation

    @property
    def first(self) -> int:
        """Its first original generation."""
        return self.manifest.first

    def planned(self) -> Iterator[TableRange]:
        """Yield its ranges, without parts, in the stream's order: by epoch, number and offset."""
        for name in sorted(self.ranges, key=segment_key):
            for start, end in self.ranges[name]:
                yield TableRange(segment_key(name), start, end)


class PlanEnd(File):
    """Outcome of a plan: created once, before the generation is published, so that all runs publish the same.

    Attributes:
        after: as in the plan.
        given_up: whether it was given up because it can never be finished; its generation stays empty, and the next
            plan begins where this one did.
    """

    format: Literal[1] = 1
    after: Annotated[int, Field(ge=0, le=0x7FFFFFFF)]
    given_up: bool


def find_plan(table: Archive, after: int) -> TablePlan | None:
    """Return the plan of a table's generation that follows another; None if there is none.

    Raises:
        Damaged: the file is not a plan of this table.
    """
    key = table.prefix + table_plan_key(after)
    plan = find_file(TablePlan, table.store, key)
    return None if plan is None else _checked(plan, table, after)


def _checked(plan: TablePlan, table: Archive, after: int) -> TablePlan:
    key = table.prefix + table_plan_key(after)
    if plan.after != after or plan.manifest.name != table.stream or (after and plan.first != after + 1):
        what = f"the plan is of another table ({plan.manifest.name}, after {plan.after})"
        raise Damaged(what, where=table.place.at(key))
    return plan


def fix_plan(table: Archive, plan: TablePlan) -> TablePlan:
    """Write a plan, create-only; return the plan in force.

    Raises:
        Damaged: the existing plan cannot be read.
    """
    key = table.prefix + table_plan_key(plan.after)
    return _checked(decide_file(table.store, key, plan)[0], table, plan.after)


def published_plan(table: Archive, manifest: Manifest) -> TablePlan:
    """Return the plan of a published generation.

    Raises:
        Damaged: the plan is missing or cannot be read.
    """
    for after in dict.fromkeys((manifest.first - 1, 0)):  # a table may begin after expired generations
        plan = find_plan(table, after)
        if plan is not None and plan.generation == manifest.generation:
            return plan
    where = f"{table.store.uri}/{table.prefix}"
    raise Damaged(f"the plan of generation {manifest.generation} is missing", where=where)


def options_after(table: Archive, begun: TableOptions, last: Manifest | None) -> TableOptions:
    """Return a table's options, with the columns that one of its generations has.

    Args:
        table: the table.
        begun: the options that it was begun with.
        last: the generation; None for those that it was begun with.

    Raises:
        Damaged: the generation's plan is missing or cannot be read.
    """
    return begun if last is None or begun.decode == "none" else published_plan(table, last).options(begun)


def is_given_up(table: Archive, after: int) -> bool:
    """Check whether the plan that follows a generation was given up.

    Raises:
        Damaged: the file that says so is not valid.
    """
    end = find_file(PlanEnd, table.store, table.prefix + table_end_key(after))
    return end is not None and end.given_up


def end_plan(table: Archive, after: int, *, given_up: bool) -> bool:
    """Decide a plan's outcome, create-only; return whether the first run to decide gave it up.

    Raises:
        Damaged: the existing decision cannot be read.
    """
    key = table.prefix + table_end_key(after)
    return decide_file(table.store, key, PlanEnd(after=after, given_up=given_up))[0].given_up


def files_of(ranges: Iterable[TableRange], target_size: int) -> Iterator[tuple[TableRange, ...]]:
    """Group ranges into files: whole ranges, in order, at least one and at most ``target_size`` segment bytes.

    So files depend only on the plan and the target size, and each holds consecutive ranges.
    """
    return grouped(ranges, lambda one: one.end - one.start, target_size)


def empty_generation(plan: TablePlan, before: Manifest | None) -> Manifest:
    """Return the manifest of a plan that was given up, which ends where it begins.

    Args:
        plan: the plan.
        before: the generation before it; None if the table begins with it.
    """
    start = plan.manifest.from_
    entries = tuple(
        entry.model_copy(update={"end": entry.start, "events": 0, "bytes": 0, "digest": segment_digest(())})
        for entry in plan.manifest.segments
        if segment_key(entry.name) in start.offsets
    )
    witness = () if before is None else before.witness
    found = {"to": start, "witness": witness, "segments": entries, "gaps": (), "events": 0, "bytes": 0}
    return plan.manifest.model_copy(update=found)


def is_empty(manifest: Manifest) -> bool:
    """Return whether a generation ends where it begins, so that it has no files."""
    return manifest.from_ == manifest.to


def finished(plan: TablePlan, rows: Sequence[ArchivedRange], where: str) -> Manifest:
    """Return the manifest of a generation whose files are written.

    Args:
        plan: its plan.
        rows: the files' ranges, in order; planned bytes that they lack become gaps.
        where: the table's name for messages.

    Raises:
        Damaged: there are more or fewer events than the plan says.
    """
    held = by_segment(rows)
    gaps = [gap for name in plan.ranges for gap in _holes(name, plan.ranges[name], held.get(segment_key(name), ()))]
    manifest = with_rows(plan.manifest, rows, plan.events, where)
    manifest = manifest.model_copy(update={"gaps": (*manifest.gaps, *gaps)})
    return decode(Manifest, manifest.encode(), where)  # never publish what readers would reject


def _holes(name: str, ranges: Sequence[tuple[int, int]], rows: Sequence[ArchivedRange]) -> Iterator[GapEntry]:
    """Yield the planned bytes of a segment that no row has."""
    for start, end in ranges:
        for low, high in holes(start, end, ((row.start, row.end) for row in rows if start <= row.start < end)):
            yield GapEntry(segment=name, start=low, end=high, reason=TRUNCATED)


class Origin(ABC):
    """Drafts a table's next generation. `lake.plan` then records the plan, which holds for all runs.

    Attributes:
        kind: archive or stream.
        stream: the stream whose events these are.
        uri: URI of the archive or the stream.
        source: what tasks read from.
    """

    kind: OriginKind

    def __init__(self, stream: StreamName, uri: str, source: EventSource) -> None:
        self.stream = stream
        self.uri = uri
        self.source = source

    @property
    def has_nothing_yet(self) -> bool:
        """Whether there is nothing yet for a new table."""
        return False

    @property
    def noted_schemas(self) -> Sequence[SchemaGroup | None]:
        """The encodings that the origin's generations have noted, oldest first."""
        return ()

    @property
    def raw_segments(self) -> Sequence[SegmentId]:
        """The segments that have objects of layout ``events``."""
        return ()

    @abstractmethod
    def draft(self, last: Manifest | None, options: TableOptions, where: str) -> TablePlan | None:
        """Plan the table's next generation without reading its events; None if the table is up to date.

        Args:
            last: the table's newest generation; None if it has none.
            options: the table's options.
            where: the table's name for messages.

        Raises:
            Conflict: the table is of another origin, or the next events are gone.
        """

    def prove(
        self,
        draft: TablePlan,
        runner: Runner,  # noqa: ARG002
        progress: Progress,  # noqa: ARG002
        *,
        all_of_it: bool = False,  # noqa: ARG002
    ) -> TablePlan:
        """Return the plan with ranges that are proved to begin and end at event boundaries; here all are already.

        Args:
            draft: a draft of this origin.
            runner: where tasks run.
            progress: receives the progress.
            all_of_it: also read ranges with known boundaries, to prove that they contain only events.

        Raises:
            NotEvents, InvalidCut: the stream contains other data than events, or ends inside an event.
        """
        return draft

    @abstractmethod
    def check(self, plan: TablePlan, where: str) -> None:
        """Check that this run can carry out a plan, its own or another run's.

        Raises:
            Conflict: it cannot.
        """

    def ranges(self, plan: TablePlan) -> Iterator[TableRange]:
        """Yield a planned generation's ranges in the stream's order: by epoch, number and offset."""
        return plan.planned()

    def events(self, plan: TablePlan) -> int:
        """Return the number of events of a plan; an estimate if they were not counted yet."""
        return plan.events or 0

    @abstractmethod
    def sample(self, plan: TablePlan | None = None) -> Iterator[bytes]:
        """Yield sample payloads from places spread over a plan's ranges, or over all; none if there are no events."""

    def unless_archive_changed(self, first: int = 0) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context in which the origin is read.

        Args:
            first: the first generation that matters; 0 for all.

        Raises:
            Overtaken: on leaving it, in place of `Damaged`, if an archive's generations expired or were merged
                meanwhile. What a stream loses meanwhile is a gap.
        """
        return nullcontext()
