"""The *check* command; reading back what has not been read back yet, and how far an archive has been."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TypeVar

from streamvault.common.errors import Damaged, Failed
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.units import count_text
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import GenerationSpan, Place
from streamvault.layouts.layout import LAYOUTS
from streamvault.layouts.packed_ranges import Kept
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.damage import Lost
from streamvault.manifests.decisions import check_mark, mark_checked
from streamvault.manifests.deleting import below_head, remove_strays, tasks_of
from streamvault.manifests.history import Generation, History, by_segment
from streamvault.manifests.listing import Listing, check_decisions, manifest_lost
from streamvault.manifests.manifest import Manifest, SchemaGroup, Totals
from streamvault.manifests.merging import extra_chunks, merges_under_way, state_of
from streamvault.manifests.noted_blocks import (
    check_noted_size,
    lacks_block_checksums,
    note_blocks,
    with_noted_blocks,
)
from streamvault.manifests.options import CheckOptions
from streamvault.manifests.plan import Plan, current_plan
from streamvault.manifests.verbs.check_ranges import (
    CheckResult,
    RangesTask,
    StraysTask,
    check_ranges,
    find_strays,
    foreign_keys,
    foreign_records,
    keys_of,
    range_tasks,
    strays_tasks,
)
from streamvault.manifests.verbs.reports import CheckReport, damage_reports
from streamvault.objectstore.store import ObjectStoreError
from streamvault.runner.opening import open_runner
from streamvault.runner.runner import Runner
from streamvault.streamstore.framing import filler_text
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.own import filled_places

MAX_FINDINGS = 1000
MAX_STRAYS = 100
MAX_NAMED = 10
"""Foreign objects that a note names."""
MAX_FILLED = 20
"""Places with filler that a note names."""

T = TypeVar("T")


@verb(CheckOptions)
def check_archive(archive: str, options: CheckOptions, progress: Progress) -> CheckReport:
    """Check that an archive is complete and matches its manifests.

    By default, the key and size of every object are compared with the manifests, in this process. Strays are counted;
    readers never mistake them for events. A damaged archive yields a report that is not `ok`, not an error.

    If all data are read and match, the generations are recorded as read back, as by `rotate_stream`, which then does
    not read them again. Nothing else is written, and credentials that may not write get a note.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        read_data: also read every range and compare its digest.
        subset: read only this share of the ranges, above 0 and up to 1; overrides `read_data`.
        stored_checksums: also compare the checksum that the store keeps of each chunk with the index, by one request
            without a body for each; objects without a checksum in both are counted as not compared.
        seed: chooses the sample; None for a random one, which the report contains.
        generation: check only the ranges of this generation, and do not look for strays; None for all.
        fingerprints: SHA-256 of manifests, hexadecimal; if any are given, that of the newest generation (or of the one
            checked) must be among them, and each must be that of a generation.
        repair: delete the strays that the published indexes prove to belong to no range, if nothing is damaged.
        master: a Spark master, or ``"inline"``; used only to read data.
        progress: receives the progress.

    Raises:
        NoSuchArchive: there is no archive, or no such generation.
        Damaged: a manifest is not valid, or has a different fingerprint.
        Problem: the archive cannot be read.
    """
    began = time.monotonic()
    share = options.subset if options.subset is not None else float(options.read_data)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    source = Archive.open(archive)
    plan_scope = partial(
        _plan_scope, source, options.generation, share=share, seed=seed, checksums=options.stored_checksums
    )
    scope = plan_scope()
    scope.history.check_fingerprints(options.fingerprints, source.uri)
    with open_runner(options.master if share else "inline", [check_ranges]) as runner:
        found, notes = _compare(runner, scope, source, progress, reads=bool(share))
        while found.found and state_of(source) != scope.state:
            # generations have expired or were merged during the check, which explains missing and additional objects:
            # check again
            scope = plan_scope()
            found, notes = _compare(runner, scope, source, progress, reads=bool(share))
        marked, unmarked = _mark(source, scope.history, found) if share == 1 and not found.found else ((), ())
        removed = _repair(runner, scope.history, source) if options.repair and not found.found and found.stray else 0
        start_seconds = runner.start_seconds
    progress.end()
    damage = damage_reports(scope.history, found.findings[:MAX_FINDINGS])
    intact = _last_intact(scope.history, found.findings) if options.generation is None else 0
    return CheckReport(
        archive=source.uri,
        generations=tuple(each.manifest.generation for each in scope.history.generations),
        ok=not found.found,
        ranges=sum(each.row_count for each in scope.history.generations),
        ranges_read=found.read,
        checksums_compared=found.compared if options.stored_checksums else None,
        checksums_not_kept=found.not_kept,
        checksums_not_indexed=found.not_indexed,
        events=scope.history.events,
        bytes=scope.history.bytes,
        findings=tuple(map(str, damage)),
        damage=damage,
        intact_generation=intact,
        restore=_restoring(source.uri, intact) if damage and options.generation is None else "",
        more_findings=found.found - len(damage),
        strays=found.stray,
        marked=marked,
        stray_keys=found.strays[:MAX_STRAYS],
        removed=removed,
        fingerprints={each.manifest.generation: each.fingerprint for each in scope.history.generations},
        unfinished_generation=scope.unfinished,
        notes=(*notes, *unmarked, *_not_compared(found), *_filled(scope.history)),
        seed=seed if options.subset is not None else None,
        seconds=round(time.monotonic() - began - start_seconds, 3),
    )


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a check covers.

    Attributes:
        history: the generations.
        ranges: the tasks that check ranges.
        notes: what the check leaves out.
        state: the generations in force and being merged when this was planned.
        strays: the tasks that look for strays.
        layouts: the layouts whose folders are searched for foreign keys.
        newest: the newest generation when this was planned; 0 if an export during the check does not matter.
        unfinished: the generation whose export is not finished; 0 if there is none.
    """

    history: History
    ranges: Sequence[RangesTask]
    notes: tuple[str, ...]
    state: object
    strays: Sequence[StraysTask] = ()
    layouts: Sequence[str] = ()
    newest: int = 0
    unfinished: int = 0


def _plan_scope(source: Archive, generation: int | None, *, share: float, seed: int, checksums: bool) -> _Scope:
    state = state_of(source)
    under_way = merges_under_way(source)
    listing = source.listing()
    unfinished, plan_notes = None, tuple[str, ...]()
    if generation is None:
        unfinished, plan_notes = _find_plan(source, listing.newest + 1)
    if listing.is_new and not listing.dropped and unfinished is not None:
        what = "generation 1 is unfinished, and there is no other"
        raise NoSuchArchive(what, where=source.uri, todo="Run its export again, which resumes it.")
    # of each generation before the next is loaded, as the checksums of blocks take most of the memory
    kept: Kept = "compared" if share else "none"
    if checksums:
        kept = "all" if share else "objects"
    load = partial(_load, source, listing, kept)
    history = source.history(load=load) if generation is None else History([source.load(generation, load)])
    if generation is None and history.generation != listing.newest:
        unfinished, plan_notes = _find_plan(source, history.generation + 1)
    extra = source.stable(lambda now: list(extra_chunks(source, now, under_way)))
    blocks = share == 1 and _can_record(history)
    ranges = range_tasks(history, source.address, extra, share=share, seed=seed, checksums=checksums, blocks=blocks)
    if generation is not None:
        note = f"only generation {history.generation} was checked; strays were not searched for"
        return _Scope(history, ranges, (note,), state)
    check_decisions(source.place, listing)
    source.check_merged(listing)
    notes = [*plan_notes, *_wrong_totals(history), *_other_schemas(history)]
    notes += _bad_marks(source, history) if share else ()
    notes += _foreign(source.place)
    if unfinished is not None:
        notes.append(f"generation {unfinished.generation} is unfinished; its objects were not checked")
    if extra:
        notes.append("generations are being merged; replaced chunks and chunks not in use yet were not checked")
    if listing.unfinished:
        notes.append(f"generations up to {listing.dropped} have expired; their remaining objects were not checked")
    return _Scope(
        history,
        ranges,
        tuple(notes),
        state,
        strays=strays_tasks(
            history,
            source.address,
            extra,
            unfinished=unfinished,
            below=below_head(history.generations[0].manifest),
        ),
        layouts=tuple(LAYOUTS),
        newest=0 if unfinished is not None or plan_notes else history.generation,
        unfinished=0 if unfinished is None else unfinished.generation,
    )


def _find_plan(source: Archive, generation: int) -> tuple[Plan | None, tuple[str, ...]]:
    """Return the plan of a generation that is not published, and a note if it cannot be read: that is no damage."""
    try:
        return current_plan(source.place, GenerationSpan.of(generation))[0], ()
    except Damaged as damaged:
        note = f"the plan of generation {generation}, which is not published, cannot be read; delete it: {damaged}"
        return None, (note,)


def _wrong_totals(history: History) -> Iterator[str]:
    """Yield a note for each generation that counts otherwise what precedes it: what `ls` says is wrong then."""
    held = [one.manifest for one in history.generations]
    expected = [Totals() if held[0].first == 1 else held[0].before, *(before.through for before in held[:-1])]
    for before, after in zip(expected, held, strict=True):
        if None not in {after.before, before} and after.before != before:
            yield f"{after.span} has wrong totals of the generations before it, which 'ls' and 'status' show"


def _other_schemas(history: History) -> Iterator[str]:
    """Yield a note if generations have noted different schemas, which no run does: their events cannot be decoded."""
    try:
        SchemaGroup.union(one.manifest.schemas for one in history.generations)
    except ValueError as error:
        yield f"generations have recorded different schemas, so their events cannot be decoded together: {error}"


def _bad_marks(source: Archive, history: History) -> Iterator[str]:
    """Yield a note for each mark that does not count as reading back."""
    listing = source.listing()
    for each in history.generations:
        if each.manifest.span in listing.spans and each.manifest.generation in listing.checked:
            try:
                check_mark(source.store, each.manifest, each.fingerprint)
            except Damaged as damaged:
                yield f"{each.manifest.span} does not count as read back: {damaged.what} ({damaged.where})"


def _foreign(place: Place) -> Iterator[str]:
    """Yield a note on objects in the archive's folder that are none of an archive's, apart from strays."""
    found: list[str] = []
    count = 0
    for key in foreign_records(place):
        count += 1
        found += [key] if count <= MAX_NAMED else []
    if count:
        more = f" and {count - len(found):,} more" if count > len(found) else ""
        yield f"{count_text(count, 'object')} in the archive's folder belonging to no archive: {', '.join(found)}{more}"


def _compare(
    runner: Runner, scope: _Scope, source: Archive, progress: Progress, *, reads: bool
) -> tuple[CheckResult, tuple[str, ...]]:
    """Return the sum of all tasks' results, and what the check leaves out."""
    progress.begin("reading" if reads else "checking", scope.history.bytes)
    results = run_checks(runner, check_ranges, scope.ranges, progress)
    extra = run_checks(runner, find_strays, scope.strays, progress)
    extra += [foreign_keys(source.place, layout, scope.strays) for layout in scope.layouts]
    notes = scope.notes
    if scope.newest and _went_on(source, scope.newest):
        notes += ("an export ran during the check, so strays were not searched for; run the check again",)
        extra = []
    return CheckResult.sum_of([*results, *extra]), notes


def _mark(source: Archive, history: History, found: CheckResult) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Mark the generations in force as read back, so that a rotation does not read them again; note what was found.

    Returns:
        The generations that had no mark and have one now, and a note if the others could not be marked, or on the
        checksums of blocks.
    """
    marked: list[int] = []
    listing = source.listing()
    for each in history.generations:
        span = each.manifest.span
        if span not in listing.spans or span.last in listing.checked:
            continue
        try:
            mark_checked(source.store, each)
        except ObjectStoreError as error:
            return tuple(marked), (f"{span} cannot be recorded as read back, so a rotation reads it again: {error}",)
        marked.append(span.last)
    return tuple(marked), _note_blocks(source, history, listing, found)


def _load(source: Archive, listing: Listing, kept: Kept, span: GenerationSpan) -> Generation:
    """Load a generation, with the checksums of blocks that were noted of it, and keep some of all checksums."""
    is_noted = span in listing.spans and span.last in listing.noted
    if kept != "compared" and not is_noted:
        return source.load_span(span, kept)
    if kept == "compared" and not lacks_block_checksums(each := source.load_span(span, kept)):
        return each
    each = source.load_span(span)
    if is_noted:
        each = with_noted_blocks(source.place, each)
    if kept == "all" or (kept == "compared" and lacks_block_checksums(each)):
        return each  # its own are recorded together with those that are found
    return each.keeping(kept)


def _can_record(history: History) -> bool:
    """Whether the checksums of blocks that some generations lack can be recorded; else they are not collected."""
    try:
        for each in filter(lacks_block_checksums, history.generations):
            check_noted_size(each)
    except Failed:
        return False
    return True


def _note_blocks(source: Archive, history: History, listing: Listing, found: CheckResult) -> tuple[str, ...]:
    """Note the checksums of blocks of the generations in force that have none; return a note on that, or none."""
    noted: list[str] = []
    lacking = list(filter(lacks_block_checksums, history.generations))
    try:
        for each in lacking:
            span = each.manifest.span
            check_noted_size(each)
        for each in lacking:
            span = each.manifest.span
            if span in listing.spans:
                note_blocks(source.place, each, found.blocks)
                noted.append(str(span))
    except (ObjectStoreError, Failed) as error:
        return (f"the checksums of blocks of {span} cannot be recorded: {error}",)
    return (f"the checksums of blocks were recorded for {', '.join(noted)}",) if noted else ()


def _not_compared(found: CheckResult) -> tuple[str, ...]:
    """Return what a comparison of checksums leaves out, as one note or none."""
    left = found.not_kept + found.not_indexed
    if not left:
        return ()
    objects = count_text(left, "object")
    if found.not_kept == left and not found.compared:
        return (f"the store keeps no checksums: {objects} not compared; --read-data compares their bytes",)
    why = " and ".join(
        text
        for text, count in (
            (f"for {found.not_kept:,} of them, the store keeps no checksum", found.not_kept),
            (
                f"for {found.not_indexed:,} of them, the index has no checksum of the kind that the store keeps",
                found.not_indexed,
            ),
        )
        if count
    )
    return (f"{objects} not compared, such as {found.not_compared}: {why}",)


def _filled(history: History) -> tuple[str, ...]:
    """Return what the archive has of filler that an import has put in place of lost data, as one note or none."""
    places, more = filled_places(history.description.configuration)
    if not places and not more:
        return ()
    content = history.generations[-1].manifest.content
    texts = [
        f"{place.segment.in_stream(history.stream)} bytes {place.start} to {place.end} ("
        f"{filler_text(place.end - place.start, content)})"
        for place in places[:MAX_FILLED]
    ]
    more += len(places) - len(texts)
    texts += [count_text(more, "more place")] if more else []
    return (f"an import has put zeros in place of lost data: {', '.join(texts)}",)


def _repair(runner: Runner, history: History, source: Archive) -> int:
    """Delete what the indexes prove to be off their chains; return the number of deleted objects.

    Generations that expire or are merged meanwhile are skipped, since some of their objects are already deleted.
    """

    def repair(listing: Listing) -> int:
        source.check_merged(listing)
        extra = by_segment(extra_chunks(source, listing, merges_under_way(source)))
        held = [one for one in history.generations if one.manifest.span in listing.spans]
        tasks = tasks_of(held, source.address, lambda segment: keys_of(extra.get(segment, ())))
        return sum(removed for _, removed in runner.run(remove_strays, list(tasks)))

    return source.stable(repair)


def run_checks(
    runner: Runner, function: Callable[[T], CheckResult], tasks: Sequence[T], progress: Progress
) -> list[CheckResult]:
    """Run tasks; return their results in the order of the tasks, those in which nothing was found as one."""
    found: dict[int, CheckResult] = {}
    plain = CheckResult()
    for index, result in runner.run(function, tasks, progress=progress):
        progress.advance(result.events, result.bytes)
        if result.is_plain:
            plain = CheckResult.sum_of([plain, result])
        else:
            found[index] = result
    return [plain, *(found[index] for index in sorted(found))]


def _went_on(source: Archive, generation: int) -> bool:
    """Check whether an export has published or begun a generation since the check began."""
    newest = source.listing().newest
    begun, _ = current_plan(source.place, GenerationSpan.of(newest + 1))
    return newest != generation or begun is not None


def _last_intact(history: History, found: Iterable[Lost]) -> int:
    """Return the newest original generation before the first damage; 0 if there is none."""
    lowest: dict[SegmentId, int] = {}  # a segment's generations are in the order of its offsets
    for lost in found:
        lowest[lost.segment] = min(lost.start, lowest.get(lost.segment, lost.start))
    damaged = min((history.holder(*place)[0] for place in lowest.items()), default=history.generation + 1)
    return damaged - 1 if damaged > history.first else 0


def _restoring(archive: str, intact: int) -> str:
    """Return the command that restores what is intact: up to a generation, or else all but the damaged ranges."""
    rest = f"--generation {intact}" if intact else "--skip-damaged"
    return f"streamvault import {shlex.quote(archive)} STREAM {rest}"


def read_back(
    archive: Archive,
    runner_of: Callable[[], Runner],
    progress: Progress,
    only: Container[int] | None = None,
    seen: set[tuple[str, ArchivedRange]] | None = None,
) -> dict[int, int]:
    """Read the data of each generation that has no mark, oldest first, and mark it.

    Args:
        archive: the archive.
        runner_of: opens the runner of tasks; called only if there is something to read.
        progress: receives the progress.
        only: numbers of the generations to read; None for all.
        seen: gets the ranges that were read, with their layout. None if nobody asks: then memory grows with the ranges
            of one generation.

    Returns:
        Number of each generation that was read → how many ranges that were.

    Raises:
        Damaged: data differ from what was archived, or a manifest is missing. Later generations are not read.
    """
    listing = archive.listing()
    if listing.missing is not None:
        raise manifest_lost(listing, archive.uri)
    wanted = (number for number in listing.unchecked if only is None or number in only)
    done: dict[int, int] = {}
    for number in wanted:
        read = partial(_read_one, archive, runner_of, progress, number)
        # not listed again each time: what has expired or was merged meanwhile fails, or its mark has no effect
        listing, one = archive.stable(read, listing)
        if one is not None:
            done[number] = one.row_count
            if seen is not None:
                seen.update((one.layout, row) for row in one.all_rows())
    return done


def last_checked(archive: Archive) -> Manifest | None:
    """Return the last generation up to which all generations have been read back; None if the first has not.

    Raises:
        Damaged: its mark is of a different manifest.
    """

    def read(listing: Listing) -> Manifest | None:
        checked = list(takewhile(lambda span: span.last in listing.checked, listing.spans))
        if not checked:
            return None
        manifest, fingerprint = archive.read_fingerprinted(checked[-1])
        check_mark(archive.store, manifest, fingerprint)
        return manifest

    return archive.stable(read)


def _read_one(
    archive: Archive,
    runner_of: Callable[[], Runner],
    progress: Progress,
    number: int,
    listing: Listing,
) -> tuple[Listing, Generation | None]:
    """Read one generation back, mark it and return it; None if it has expired or was merged with others meanwhile."""
    span = listing.holder(number)
    if span is None or span.last != number:
        return listing, None
    generation = archive.load_span(span)
    tasks = range_tasks(History([generation]), archive.address, (), share=1.0, seed=0)
    progress.begin(f"reading back generation {number}", generation.manifest.bytes)
    total = CheckResult.sum_of(run_checks(runner_of(), check_ranges, tasks, progress) if tasks else [])
    if total.found:
        more = f" (and {total.found - 1} more findings)" if total.found > 1 else ""
        (first,) = damage_reports(History([generation]), total.findings[:1])
        raise Damaged(
            f"generation {number} differs from what was archived; nothing was expired or truncated",
            where=f"{archive.uri}: {first}{more}",
            todo="Run 'streamvault check --read-data' on the archive.",
        )
    mark_checked(archive.store, generation)
    return listing, generation
