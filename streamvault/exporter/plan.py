"""The plan of the next generation: head and tail, each segment's bytes between them, and the gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from streamvault.common.errors import Conflict, Overtaken, Usage
from streamvault.common.units import now_utc, size_text
from streamvault.exporter.reports import ExportOptions
from streamvault.layouts.keys import GenerationSpan
from streamvault.layouts.layout import LayoutName, layout_of, open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import Configuration, GapEntry, Manifest, PlannedSegment, SchemaGroup
from streamvault.manifests.options import RANGE_SIZE
from streamvault.manifests.plan import (
    Plan,
    create_plan,
    current_plan,
    end_plan,
    ended_plans,
    find_plan,
    has_ended,
    remove_work,
)
from streamvault.sources.archive_comparison import check_continues
from streamvault.sources.identity import check_gone, check_same_stream, replaced, take_witness
from streamvault.sources.reader_groups import SourceGroup, source_groups
from streamvault.sources.schemas import NoSuchGroup, RegistryFailed, RegistryGroup
from streamvault.streamstore.cuts import is_before, live_ends, parse_cut, sealed_ends, segments_between, validate_cut
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import ContentKind, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.own import describe_source
from streamvault.streamstore.store import StreamStore


def with_ends(options: ExportOptions, store: StreamStore, stream: StreamName) -> ExportOptions:
    """Return the options with the ends of segments in their cuts in place of `SEGMENT_END`.

    Raises:
        InvalidCut: a cut is not one of the stream; or a segment is not sealed, or its end is not known.
    """
    end_of = live_ends(store, stream)
    given = {"from_cut": options.from_cut, "to_cut": options.to_cut}
    cuts = {name: parse_cut(cut, stream, end_of) for name, cut in given.items()}
    return options.model_copy(update={name: cut and cut.to_json() for name, cut in cuts.items()})


def cuts_of(options: ExportOptions, stream: StreamName) -> tuple[StreamCut | None, StreamCut | None]:
    """Return the cuts at which a generation is to begin and to end; None for the stream's head and tail.

    Raises:
        InvalidCut: a cut is not one of the stream, or has a `SEGMENT_END` that was not replaced.
    """
    start, end = (
        None if cut is None else StreamCut.from_json(cut, stream) for cut in (options.from_cut, options.to_cut)
    )
    return start, end


def stored_as(options: ExportOptions, newest: Manifest | None) -> tuple[ContentKind, LayoutName]:
    """Return content and layout of the generation after an archive's newest one, if there is one.

    Raises:
        Usage: the archive has another content, or the layout cannot hold it, or does not support the compression.
    """
    content = options.content or (newest.content if newest else "events")
    if newest is not None and content != newest.content:
        raise Usage(
            f"the archive holds {newest.content}, not {content}",
            where=f"{newest.name}, generation {newest.generation}",
            todo=f"Omit --content, or export below another root with --content {content}.",
        )
    layout = layout_of(content, options.layout)
    open_layout(layout, options.compress or "")
    return content, layout


def check_same_options(plan: Plan, options: ExportOptions, where: str) -> None:
    """Check that the options that were given are those of an unfinished plan.

    Raises:
        Usage: they are not; the message has the plan's.
    """
    if differ := list(_differences(plan, options)):
        todo = "Omit these options to resume it, or abandon it with --restart ('export' and 'rotate')."
        raise other_options_error(differ, f"{where}, generation {plan.generation}", todo)


def has_other_defaults(plan: Plan, options: ExportOptions, newest: Manifest | None) -> bool:
    """Return whether an option that was not given has another value in an unfinished plan than by default."""
    ignored = {"content": plan.content, "from_cut": None, "to_cut": None}
    return any(_differences(plan, _with_defaults(options.model_copy(update=ignored), newest)))


def has_other_options(
    plan: Plan, options: ExportOptions, described: StreamDescription, newest: Manifest | None
) -> bool:
    """Return whether a plan differs from the one that a new run with these options would make, defaults included.

    So a run that is repeated with ``--restart`` resumes what it has itself begun.
    """
    if any(_differences(plan, _with_defaults(options, newest))):
        return True
    # the head may have moved since the plan was made, but a plan that begins after it was made with --from
    return newest is None and options.from_cut is None and not is_before(described, plan.from_, described.head)


def compressed_alike(options: ExportOptions, ended: Plan, newest: Manifest | None) -> ExportOptions:
    """Return the options of a plan that follows one that was given up.

    Chunks have the same names, compressed or not, and those of the earlier plan's runs are there.
    """
    _, layout = stored_as(options, newest)
    return options.model_copy(update={"compress": ended.compression}) if ended.layout == layout else options


def check_can_restart(
    plan: Plan,
    options: ExportOptions,
    newest: Manifest | None,
    where: str,
    *,
    todo: str = "Omit --compress for this generation, or begin another archive with --line.",
) -> None:
    """Check that a plan that is given up can be followed by one that has these options.

    Raises:
        Usage: another compression was given, but chunks of the plan's runs have the names.
    """
    if options.compress not in {None, compressed_alike(options, plan, newest).compress}:
        raise Usage(
            f"the unfinished run has written chunks with --compress {plan.compression or 'none'}, and other chunks "
            "cannot take their names",
            where=f"{where}, generation {plan.generation}",
            todo=todo,
        )


def describe_options(plan: Plan | None) -> dict[str, Any] | None:
    """Return the options of an unfinished plan, for a report; None if there is no plan."""
    if plan is None:
        return None
    return {
        "content": plan.content,
        "layout": plan.layout,
        "compress": plan.compression or "none",
        "range_size": plan.range_size,
        "from": plan.from_.to_json(),
        "to": plan.to.to_json(),
        "reader_groups": plan.reader_groups is not None,
    }


def other_options_error(differences: list[str], where: str, todo: str) -> Usage:
    """Return the error for options that are not those of an unfinished run."""
    return Usage(f"an unfinished run has other options: {', '.join(differences)}", where=where, todo=todo)


def _with_defaults(options: ExportOptions, newest: Manifest | None) -> ExportOptions:
    """Return the options with their defaults after an archive's newest generation, but for the cuts."""
    content, layout = stored_as(options, newest)
    compress, range_size = options.compress or "", options.range_size or RANGE_SIZE
    return options.model_copy(
        update={"content": content, "layout": layout, "compress": compress, "range_size": range_size}
    )


def _differences(plan: Plan, options: ExportOptions) -> Iterator[str]:
    """Yield the plan's value of each option that was given and differs."""
    start, end = cuts_of(options, plan.name)
    given: list[tuple[str, Any, Any]] = [
        ("--content", options.content, plan.content),
        ("--layout", options.layout, plan.layout),
        ("--compress", options.compress, plan.compression),
        ("--range-size", options.range_size, plan.range_size),
        ("--from", start, plan.from_),
        ("--to", end, plan.to),
    ]
    for option, value, planned in given:
        if value is not None and value != planned:
            yield f"{option} {_text(planned)}"
    if options.reader_groups and plan.reader_groups is None:
        yield "no --reader-groups"
    if options.schemas and options.schema_group and plan.schemas is None:  # else there may have been no group
        yield "no --schemas"
    if options.schemas and plan.schemas and plan.schemas.group != (options.schema_group or plan.stream):
        yield f"--schema-group {plan.schemas.group}"


def _text(value: Any) -> str:
    if isinstance(value, StreamCut):
        return str(value.to_json())
    return size_text(value) if isinstance(value, int) else value or "none"


GIVEN_UP = "given up with --restart"
TRUNCATED_BEFORE = "truncated at the source before this generation began"


@dataclass(frozen=True, slots=True)
class PlannedGeneration:
    """The plan to work on.

    Attributes:
        plan: the plan; None if the newest generation already has everything, or of a conversion, a part of it.
        newest: the newest generation's manifest, if there is one; None for a conversion.
        attempt: number of the plan, see `layouts.keys.work_folder`.
        resumed: whether an earlier or concurrent run created the plan.
        gave_up: the plan of the unfinished run that this one has given up; None if there was none.
        fingerprint: that of the newest generation, if there is nothing new.
    """

    plan: Plan | None
    newest: Manifest | None
    attempt: int = 1
    resumed: bool = False
    gave_up: Plan | None = None
    fingerprint: str = ""

    def described(self) -> dict[str, Any]:
        """Return the options of the plans that were resumed and given up, as reports have them."""
        resumes = describe_options(self.plan if self.resumed else None)
        return {"resumes": resumes, "gave_up": describe_options(self.gave_up)}


def settle_plan(
    archive: Archive, store: StreamStore, options: ExportOptions, registry: RegistryGroup | None = None
) -> PlannedGeneration:
    """Return the plan of the unfinished generation, or create the next one, create-only.

    Args:
        archive: the archive.
        store: the stream's store.
        options: the options; `SEGMENT_END` in their cuts was replaced.
        registry: the group whose schemas are noted with a new plan; None for none.

    Raises:
        InvalidCut, Usage: a cut is not valid, or the archive has another content, or the unfinished plan other options.
        Conflict: the stream is not the one archived or planned, or is not a user's stream; or a plan cannot be given
            up, as all of it is archived.
    """
    return settle(archive, lambda: draft_plan(archive, store, options, registry))


def settle(archive: Archive, draft: Callable[[], PlannedGeneration]) -> PlannedGeneration:
    """Do what a draft says, until it says that there is a plan to work on, or nothing to do.

    Args:
        archive: the archive.
        draft: says what to do next, as `draft_plan` does; it is called again when another run was first.

    Raises:
        Conflict: a plan cannot be given up, as all of it is archived.
    """
    gave_up: Plan | None = None
    while True:
        drafted = draft()
        plan, attempt = drafted.plan, drafted.attempt
        if drafted.resumed:
            return replace(drafted, gave_up=gave_up)
        if drafted.gave_up is not None:
            if _give_up(archive, drafted.gave_up, attempt):
                gave_up = drafted.gave_up
            continue
        if plan is None:
            return replace(drafted, gave_up=gave_up)
        plan, created = create_plan(archive.place, plan, attempt)
        if not created:
            continue  # another run was first; its plan may have ended meanwhile
        listing = archive.listing()
        archive.check_open(listing)
        # An index without a manifest is of this plan only if the plan has ended: another run publishes it right now.
        lost = plan.span in listing.orphans or (
            plan.span in listing.begun and not has_ended(archive.place, plan.span, attempt)
        )
        if plan.first > listing.newest and not lost:
            return PlannedGeneration(plan, drafted.newest, attempt, gave_up=gave_up)
        # Another run has published this generation meanwhile and deleted its plan, so this plan is too late.
        remove_work(archive.place, plan.span)


def draft_plan(
    archive: Archive, store: StreamStore, options: ExportOptions, registry: RegistryGroup | None = None
) -> PlannedGeneration:
    """Return what `settle_plan` would do next, given its arguments, and write nothing.

    Returns:
        The unfinished plan (`PlannedGeneration.resumed`), or a draft of the next one. If `gave_up` is set, the draft
        comes after that plan was given up, and `attempt` is the number of the plan to give up.

    Raises:
        Problem: as for `settle_plan`.
    """
    newest, fingerprint = archive.newest_fingerprinted()
    generation = newest.generation + 1 if newest else 1
    span = GenerationSpan.of(generation)
    found, attempt = current_plan(archive.place, span)
    groups = None
    if options.reader_groups and (found is None or options.restart):
        # before the tail, so that what they have read is archived
        groups = source_groups(store, archive.stream, truncated=True)
    described = describe_source(store, archive.stream)
    for ended in ended_plans(archive.place, span, attempt):
        check_same_stream(described, store, ended)
        options = compressed_alike(options, ended, newest)
    if found is not None:
        check_same_stream(described, store, found)
        if not options.restart:
            check_same_options(found, options, archive.uri)
        if not (options.restart and has_other_options(found, options, described, newest)):
            return PlannedGeneration(found, newest, attempt, resumed=True)
        check_can_restart(found, options, newest, archive.uri)
        options = compressed_alike(options, found, newest)
    try:
        plan = make_plan(described, store, newest, options, archive, Beside(groups, registry))
    except Conflict:
        if archive.listing().newest < generation:
            raise
        # Another run has published the generation meanwhile, and may have truncated the source to its end.
        return draft_plan(archive, store, options, registry)
    return PlannedGeneration(plan, newest, attempt, gave_up=found, fingerprint=fingerprint)


def _give_up(archive: Archive, plan: Plan, attempt: int) -> bool:
    """Record that a plan was given up; return False if its generation was published meanwhile.

    Raises:
        Conflict: everything was archived by its run, so it will be published.
    """
    place, span = archive.place, plan.span
    # A conversion of an earlier state of this program has written its index without a record of the end.
    begun = span in archive.listing().begun and not has_ended(place, span, attempt)
    ended = "" if begun and find_plan(place, span) else end_plan(place, span, attempt, GIVEN_UP)
    if plan.first <= archive.listing().newest:
        if find_plan(place, span) is None:
            remove_work(place, span)  # only the record that was just written is there
        return False
    if not ended:
        raise Conflict(
            "the unfinished run cannot be abandoned: it has archived everything, and only its manifest may be missing",
            where=f"{archive.uri}, generation {plan.generation}",
            todo="To publish it, run again with its options, and without --restart.",
        )
    return True


def record_end(archive: Archive, plan: Plan, attempt: int, reason: str = "") -> None:
    """Record how a plan ended, before its index is written; `reason` as for `manifests.plan.end_plan`.

    Raises:
        Conflict: everything is archived, but another run has given the plan up.
    """
    given_up = end_plan(archive.place, plan.span, attempt, reason)
    if given_up and not reason:
        where = f"{archive.uri}, generation {plan.generation}"
        raise Overtaken(f"another run has abandoned this generation's plan ({given_up})", where=where)


class Beside(NamedTuple):
    """What a plan notes beside the stream.

    Attributes:
        groups: the reader groups, seen before the stream was described; None for none.
        registry: the group whose schemas are noted; it is asked if there is something new, else once in a run. None for
            none.
    """

    groups: Sequence[SourceGroup] | None = None
    registry: RegistryGroup | None = None


def make_plan(
    described: StreamDescription,
    store: StreamStore,
    newest: Manifest | None,
    options: ExportOptions,
    archive: Archive | None = None,
    beside: Beside | None = None,
) -> Plan | None:
    """Return the plan that follows the newest generation; None if there is nothing new.

    Args:
        described: the stream's current state.
        store: the stream's store.
        newest: the manifest of the newest generation; None if this is the first.
        options: the options; `SEGMENT_END` in their cuts was replaced.
        archive: the archive, with whose data the stream is compared where the witness has nothing; None for a table.
        beside: what is noted beside the stream; None for nothing.

    Raises:
        InvalidCut, Usage: a cut is not valid, or the archive has another content, or the registry has no group of the
            name that was given.
        Conflict: the stream is not the one of the newest generation, or is not known to be; or the registry has other
            schemas than it has noted.
        RegistryFailed: the registry cannot be asked, and something is new, or none of its schemas are noted.
    """
    content, layout = stored_as(options, newest)
    from_cut, to_cut = cuts_of(options, described.name)
    to = to_cut or described.tail
    if to_cut is not None:
        _check_cut(described, store, to_cut)
    configuration = Configuration.of(described.configuration)
    sealed = described.sealed and to == described.tail
    groups, registry = beside or Beside()
    noted = None if groups is None else tuple(group.entry(described) for group in groups)
    metadata = (described.epochs, configuration, sealed)
    is_new = newest is None or (to, *metadata) != (newest.to, newest.epochs, newest.configuration, newest.sealed)
    is_new = is_new or (newest is not None and noted is not None and noted != newest.reader_groups)
    known = None if newest is None else newest.schemas
    schemas = _schemas(registry, known, options, is_new=is_new)
    is_new = is_new or schemas != known
    # Before the check for the same stream: if another stream replaces it in between, one of the two does not match.
    witness = tuple(take_witness(store, to)) if is_new else ()
    start = _start(described, store, newest, from_cut)
    if archive is not None and newest is not None:
        check_continues(described, store, archive, newest, same_stream=options.same_stream)
    elif newest is not None:
        check_same_stream(described, store, newest)
    if not is_new:
        return None
    segments, gaps = _segments(described, store, start, to)
    return Plan(
        generation=newest.generation + 1 if newest else 1,
        created=now_utc(),
        scope=described.name.scope,
        stream=described.name.stream,
        layout=layout,
        compression=options.compress or "",
        content=content,
        range_size=options.range_size or RANGE_SIZE,
        configuration=configuration,
        epochs=described.epochs,
        from_=start,
        to=to,
        segments=tuple(segments),
        gaps=tuple(gaps),
        sealed=sealed,
        source=store.uri,
        witness=witness,
        reader_groups=noted,
        schemas=schemas,
        line=None if archive is None else archive.line,
    )


def _schemas(
    registry: RegistryGroup | None, known: SchemaGroup | None, options: ExportOptions, *, is_new: bool
) -> SchemaGroup | None:
    """Return the schemas that a plan notes: what is known, and what the registry has by now.

    Without anything new, it is asked once in a run: the newest generation may be of a run without a registry.
    """
    if registry is None or (registry.asked and not is_new):
        return known
    registry.problem = ""
    try:
        found = registry.noted(known)  # after the tail was taken, so that all that the events use is there
    except NoSuchGroup as error:
        if options.schema_group:
            raise
        registry.problem = str(error)  # the writers of a new stream create its group, perhaps later
    except RegistryFailed as error:
        if is_new or known is None:
            raise
        registry.problem = str(error)
    else:
        is_same = known is not None and (found.entries, found.unused) == (known.entries, known.unused)
        return found if is_new or not is_same else known
    return known


def _start(
    described: StreamDescription, store: StreamStore, newest: Manifest | None, from_cut: StreamCut | None
) -> StreamCut:
    """Return the cut at which the generation begins: the end of the previous one; for the first, the user's choice."""
    if newest is None:
        if from_cut is not None:
            _check_cut(described, store, from_cut)
        return from_cut or described.head
    if from_cut not in {None, newest.to}:
        raise Usage(
            "--from is not where the archive ends",
            where=f"{described.name}, generation {newest.generation}",
            todo="Omit it: a generation starts where the previous one ended.",
        )
    return newest.to


def _check_cut(described: StreamDescription, store: StreamStore, cut: StreamCut) -> None:
    """Reject a cut that is not valid, also one beyond the end of a sealed segment."""
    validate_cut(described, cut)
    for info in store.segment_info(described.name, list(cut.offsets)):
        if cut.offsets[info.segment] > info.write_offset:
            raise InvalidCut(
                f"the stream cut lies beyond the segment's end ({info.write_offset})",
                where=f"offset {cut.offsets[info.segment]} of {info.segment.in_stream(described.name)}",
            )


def _segments(
    described: StreamDescription, store: StreamStore, start: StreamCut, to: StreamCut
) -> tuple[list[PlannedSegment], list[GapEntry]]:
    """Return the segments between the cuts, and the gaps: what the source no longer has of them."""
    between = segments_between(described, start, to)
    readable = segments_between(described, described.head, to)
    whole = [segment for segment, (_, end) in between.items() if end is None]
    ends = sealed_ends(store, described.name, whole)
    current = described.epochs[-1].segments
    segments, gaps = [], []
    for segment, (low, planned_end) in between.items():
        end = planned_end if planned_end is not None else ends.get(segment, low)
        if end < low:
            raise replaced(store, described.name, segment)
        first = min(max(low, readable[segment][0]), end) if segment in readable else end
        name = segment.in_stream(described.name)
        is_sealed = described.sealed or segment not in current
        segments.append(PlannedSegment(name=name, start=low, end=end, sealed=is_sealed))
        if planned_end is None and segment not in ends and segment in readable:
            check_gone(store, described.name, segment)
        if first > low or (planned_end is None and segment not in ends):
            gaps.append(GapEntry(segment=name, start=low, end=first, reason=TRUNCATED_BEFORE))
    return segments, gaps
