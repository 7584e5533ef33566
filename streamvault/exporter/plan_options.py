"""How the options of a run become those of its plan, and how they differ from those of an unfinished one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamvault.common.errors import Usage
from streamvault.common.sizes import size_text
from streamvault.exporter.options import ExportOptions
from streamvault.layouts.layout import LayoutName, layout_of, open_layout
from streamvault.manifests.archive.plan import Plan
from streamvault.manifests.format.manifest import Manifest
from streamvault.manifests.options import RANGE_SIZE
from streamvault.streamstore.arithmetic.cut_option import parse_cut
from streamvault.streamstore.arithmetic.cuts import is_before, live_ends
from streamvault.streamstore.model import ContentKind, StreamCut, StreamDescription, StreamName
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
        todo = "Omit these options to resume it, or give it up: 'export' and 'rotate' have --restart."
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
            f"the unfinished run has written chunks with --compress {plan.compression or 'none'}, and no others can "
            "take their names",
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


def _text(value: Any) -> str:
    if isinstance(value, StreamCut):
        return str(value.to_json())
    return size_text(value) if isinstance(value, int) else value or "none"
