"""The *export* command."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.report import GapReport
from streamvault.common.units import moment_text
from streamvault.exporter.plan import (
    PlannedGeneration,
    draft_plan,
    has_other_defaults,
    settle_plan,
    stored_as,
    with_ends,
)
from streamvault.exporter.reports import ExportOptions, ExportReport
from streamvault.exporter.run import ExportRun, clean_up_again, export_range
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import GenerationSpan, line_folder
from streamvault.layouts.layout import check_window, layout_of, open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import load_index_code
from streamvault.manifests.options import RANGE_SIZE, ArchivingOptions
from streamvault.manifests.plan import Plan
from streamvault.manifests.verbs.costs import cost_of_export, ranges_of
from streamvault.objectstore.probe import fit_server
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.opening import open_runner
from streamvault.runner.runner import Runner
from streamvault.sources.archive_comparison import StillHeld, bytes_before, check_gaps, held_below, never_archived
from streamvault.sources.reader import estimate_parts
from streamvault.sources.reader_groups import reported_groups
from streamvault.sources.schemas import RegistryGroup, needless_group
from streamvault.streamstore.model import StreamCut, StreamName
from streamvault.streamstore.own import describe_source
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress, parse_stream


@verb(ExportOptions)
def export_stream(stream: str, root: str, options: ExportOptions, progress: Progress) -> ExportReport:
    """Archive a stream, or what has been added since the newest generation, as the next generation.

    Head and tail are fixed when the run starts. An unfinished generation is resumed with its plan, no matter which run
    began it; an option that is given and differs from that plan is an error. If the newest generation already has
    everything, nothing is written.

    Args:
        stream: ``pravega://HOST:PORT/SCOPE/STREAM``, ``pravega+tls://…`` or ``local:///FOLDER/SCOPE/STREAM``.
        root: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
        from_cut: the stream cut at which to begin, as JSON text or ``{"scope/stream/N.#epoch.E": offset}``; None for
            the stream's head, or the end of the archive.
        to_cut: the stream cut at which to end; None for the stream's tail.
        content: ``"bytes"`` archives a byte stream, whose segments hold no events; None for the archive's content, or
            ``"events"`` if there is no archive yet.
        layout: ``"events"``: one object per event; ``"chunks"``: one per range. None for ``"events"``, or for
            ``"chunks"`` if the content is bytes.
        compress: ``"zstd"`` compresses chunks; their digests remain those of the segment's bytes. None for the default,
            ``""``: none.
        range_size: size of ranges (bytes); None for the default, 64 MiB.
        window: maximum data a task buffers in memory (bytes); for chunks, at least `range_size`.
        largest_event: maximum payload of an event (bytes). Clients write events of more than 8 MiB only if large
            events are enabled.
        storage_class: S3 storage class of the data objects, such as ``"STANDARD_IA"``; empty for the bucket's default.
        reader_groups: also note in the generation where the reader groups are that are in the stream's scope and read
            the stream; `import_stream` creates them. What they have read is in the generation. If only they have moved
            on, there is a new generation, without bytes.
        schemas: URL of a Pravega Schema Registry: also note in the generation what the encodings' ids before its events
            stand for, so that `write_table` needs no registry. If only they have changed, there is a new generation.
        schema_group: the events' group there, ``[NAMESPACE/]GROUP``; None for the stream's name.
        same_stream: confirm that it is the archived stream, if nothing of it can be compared with the archive.
        line: name of a line of generations: an archive of its own, below ``ROOT/_line-NAME``, as for a stream that was
            restored under its own name; empty for the stream's first archive.
        restart: give up an unfinished generation that was begun with other options, defaults included, and begin it
            anew. A run that still works on it ends with a `Conflict`.
        master: a Spark master, or ``"inline"`` to run without Spark.
        dry_run: report what would be done, and its cost in S3, without writing.
        progress: receives the progress.

    Raises:
        Problem: with the exit code of the command line.
    """
    return export_next(
        Export.of(stream, root, options),
        lambda: open_runner(options.master, [export_range]),
        progress,
        dry_run=options.dry_run,
    )


@dataclass(frozen=True, slots=True)
class Export:
    """What to export, to where and how, parsed and validated.

    Attributes:
        source: the stream's store.
        name: the stream.
        root: the archive's root; of a line, the line's.
        options: as given by the user.
        registry: the group whose schemas are recorded; None for none.
    """

    source: StoreAddress
    name: StreamName
    root: RootAddress
    options: ExportOptions
    registry: RegistryGroup | None

    @classmethod
    def of(cls, stream: str, root: str, options: ArchivingOptions) -> Self:
        """Parse and validate the arguments of `export_stream`.

        Raises:
            Usage: an argument is not valid.
            Problem: the root's bucket cannot be reached.
        """
        source, name = parse_stream(stream)
        exporting = options.shared_with(ExportOptions)
        for cut in (exporting.from_cut, exporting.to_cut):
            if cut is not None:
                StreamCut.from_json(cut, name, ends=True)  # only checked: what its ends are, the store knows
        address = RootAddress.parse(root).resolve()
        if options.line:
            address = address.below(line_folder(options.line))
        # without either, the archive's content decides, which is not read yet: see `stored_as`
        is_told = options.content is not None or options.layout is not None
        layout = open_layout(
            layout_of(options.content or "events", options.layout), (options.compress or "") if is_told else ""
        )
        check_window(options.window, layout.min_window(options.range_size or RANGE_SIZE))
        address = address.with_data_class(options.storage_class)
        registry = RegistryGroup(options.schemas, options.schema_group or name.stream) if options.schemas else None
        return cls(source, name, address, exporting, registry)

    def archive(self) -> Archive:
        """Open the archive."""
        return Archive(self.root, self.name)


def export_next(
    export: Export,
    runner_of: Callable[[], AbstractContextManager[Runner]],
    progress: Progress,
    *,
    dry_run: bool,
    seen: set[ArchivedRange] | None = None,
) -> ExportReport:
    """Export like `export_stream`, with a given runner.

    Args:
        export: what to export.
        runner_of: opens the runner of tasks; called only if there is something to move.
        progress: receives the progress.
        dry_run: report what would be done without writing.
        seen: as for `ExportRun`; also gets what a call reads that fails. None if nobody asks.
    """
    began = time.monotonic()
    load_index_code()
    archive = export.archive()
    with export.source.open() as store:
        options = with_ends(export.options, store, export.name)
        if dry_run:
            return _rehearse(archive, store, options, began, export.registry)
        plan_began = time.monotonic()
        planned = settle_plan(archive, store, options, export.registry)
        if export.registry is not None and not planned.resumed:
            export.registry.asked = not export.registry.problem
        warnings = _warnings(archive, store, options, planned, export.registry)
        if planned.newest is None and not planned.resumed:
            warnings += fit_server(archive.store, archive.prefix)
        progress.warn_all(warnings)
        _check_window(planned, options)
        if planned.plan is None:
            return _unchanged(archive, planned, progress, began, warnings)
        opening = time.monotonic()
        with runner_of() as runner:
            start_seconds = time.monotonic() - opening  # in this call; when following, the runner is already open
            reads = set() if seen is None else seen
            run = ExportRun(archive, export.source, planned.plan, planned.attempt, options, reads)
            published = run.run(runner, progress)
            seconds = published.committed - plan_began - start_seconds
    manifest, ranges = published.generation.manifest, published.generation.rows.values()
    gaps = tuple(GapReport(segment=g.segment, start=g.start, end=g.end, reason=g.reason) for g in manifest.gaps)
    for gap in gaps:
        warnings.append(f"gap: {gap.segment} bytes {gap.start} to {gap.end}: {gap.reason}")
        progress.warn(warnings[-1])
    return ExportReport(
        archive=archive.uri,
        generation=manifest.generation,
        created=moment_text(manifest.created),
        resumed=planned.resumed,
        **planned.described(),
        events=manifest.events,
        bytes=manifest.bytes,
        moved_bytes=published.moved_bytes,
        ranges=sum(map(len, ranges)),
        fingerprint=published.generation.fingerprint,
        gaps=gaps,
        reader_groups=reported_groups(manifest.reader_groups),
        warnings=tuple(warnings),
        seconds=round(seconds, 3),
        total_seconds=round(time.monotonic() - began, 3),
    )


def _check_window(planned: PlannedGeneration, options: ExportOptions) -> None:
    """Check that a range fits into the window; also if there is nothing new, as the next run may have something."""
    plan = planned.plan
    layout = stored_as(options, planned.newest)[1] if plan is None else plan.layout
    size = (options.range_size or RANGE_SIZE) if plan is None else plan.range_size
    check_window(options.window, open_layout(layout).min_window(size))


def _warnings(
    archive: Archive,
    store: StreamStore,
    options: ExportOptions,
    planned: PlannedGeneration,
    registry: RegistryGroup | None,
) -> list[str]:
    """Return the warnings that are known before anything is moved."""
    return [
        *_other_defaults(planned, options),
        *needless_group(options.schemas, options.schema_group),
        *_unknown_groups(planned.plan),
        *_without_schemas(planned, registry),
        *_not_archived(archive, store, planned),
    ]


def _other_defaults(planned: PlannedGeneration, options: ExportOptions) -> list[str]:
    plan = planned.plan
    if plan is None or not has_other_defaults(plan, options, planned.newest):
        return []
    layout = f"{plan.layout} ({plan.compression})" if plan.compression else plan.layout
    begun = f"content {plan.content}, layout {layout}, range size {plan.range_size}, its own cuts"
    return [f"resuming generation {plan.generation} with its original options ({begun}); run again to archive the rest"]


def _unknown_groups(plan: Plan | None) -> Iterator[str]:
    """Yield a warning for each reader group whose position is not noted."""
    for one in (plan and plan.reader_groups) or ():
        if one.position is None:
            yield f"the position of the reader group {one.name} is not recorded: {one.problem}"


def _without_schemas(planned: PlannedGeneration, registry: RegistryGroup | None) -> Iterator[str]:
    """Yield a warning if new schemas of the archive's group are not recorded."""
    if registry is not None and registry.problem:
        yield f"new schemas were not looked for: {registry.problem}"
    if registry is not None and planned.resumed and planned.plan is not None and planned.plan.schemas is None:
        yield "the unfinished generation records no schemas; run again to record them"
    is_made = planned.plan is not None and not planned.resumed
    if is_made and registry is None and planned.newest is not None and planned.newest.schemas is not None:
        yield "new schemas are not recorded without --schemas URL"


def _not_archived(archive: Archive, store: StreamStore, planned: PlannedGeneration) -> Iterator[str]:
    """Yield a warning if the stream still has bytes of the newest generation's gaps, or from before the archive begins.

    The latter only while the archive has one generation, so that the warning does not recur after ``--from``. `status`
    and truncations always report such bytes.
    """
    newest = planned.newest
    if newest is None or (newest.first > 1 and not newest.gaps):
        return
    described = describe_source(store, archive.stream)
    if newest.first == 1 and (before := bytes_before(described, store, newest.from_, newest.from_)):
        yield str(never_archived(before, f"{store.uri}/{archive.stream}"))
    if newest.gaps:
        try:
            held = held_below(described, store, newest.to)
            check_gaps(described, store, held, {newest.generation: newest.gaps}, archive.uri)
        except StillHeld as held:
            yield str(held)


def _unchanged(
    archive: Archive, planned: PlannedGeneration, progress: Progress, began: float, warnings: list[str]
) -> ExportReport:
    if planned.newest is None:
        raise RuntimeError("a first generation always has a plan")
    # clean up after a run that was killed between publication and cleanup
    clean_up_again(archive, GenerationSpan.of(planned.newest.generation), progress)
    seconds = round(time.monotonic() - began, 3)
    return ExportReport(
        archive=archive.uri,
        generation=planned.newest.generation,
        created=moment_text(planned.newest.created),
        unchanged=True,
        **planned.described(),
        fingerprint=planned.fingerprint,
        reader_groups=reported_groups(planned.newest.reader_groups),
        warnings=tuple(warnings),
        seconds=seconds,
        total_seconds=seconds,
    )


def _rehearse(
    archive: Archive, store: StreamStore, options: ExportOptions, began: float, registry: RegistryGroup | None
) -> ExportReport:
    drafted = draft_plan(archive, store, options, registry)
    _check_window(drafted, options)
    plan, newest = drafted.plan, drafted.newest
    found, exact = estimate_parts(store, plan, options.largest_event) if plan else ({}, True)
    parts = list(found.values())
    generation = plan or newest
    seconds = round(time.monotonic() - began, 3)
    return ExportReport(
        archive=archive.uri,
        generation=generation.generation if generation else 0,
        unchanged=plan is None,
        resumed=drafted.resumed,
        **drafted.described(),
        events=sum(part.events for part in parts),
        events_estimated=not exact,
        fingerprint="" if plan else drafted.fingerprint,
        bytes=plan.bytes if plan else 0,
        ranges=ranges_of(parts),
        reader_groups=reported_groups(generation.reader_groups) if generation else (),
        warnings=tuple(_warnings(archive, store, options, drafted, registry)),
        seconds=seconds,
        total_seconds=seconds,
        dry_run=True,
        cost=cost_of_export(open_layout(plan.layout), parts, generation=plan.generation, exact=exact) if plan else None,
    )
