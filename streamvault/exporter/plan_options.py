"""The options of a plan, and how those of a run differ from those of an unfinished one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from streamvault.common.errors import Usage
from streamvault.common.sizes import size_text
from streamvault.layouts.extent import Compression
from streamvault.layouts.layout import LayoutName, layout_of
from streamvault.manifests.archive.plan import Plan
from streamvault.manifests.format.model import Manifest
from streamvault.manifests.options import RANGE_SIZE
from streamvault.streamstore.arithmetic.cuts import is_before
from streamvault.streamstore.model import ContentKind, StreamCut, StreamDescription


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of a plan.

    Attributes:
        from_cut: the cut at which the first generation begins; None for the stream's head.
        to_cut: the cut at which this generation ends; None for the stream's tail.
        layout: the layout of the data; None for the content's own.
        compression: the compression of chunks; None for none.
        range_size: size of ranges (bytes); None for `RANGE_SIZE`.
        content: what the stream's segments hold; None for the archive's, or events.
        same_stream: whether the user confirms that it is the archived stream if nothing can be compared.
    """

    from_cut: StreamCut | None = None
    to_cut: StreamCut | None = None
    layout: LayoutName | None = None
    compression: Compression | None = None
    range_size: int | None = None
    content: ContentKind | None = None
    same_stream: bool = False

    def stored(self, newest: Manifest | None) -> tuple[ContentKind, LayoutName]:
        """Return content and layout of the generation after an archive's newest one, if there is one.

        Raises:
            Usage: the archive has another content, or the layout cannot hold it.
        """
        content = self.content or (newest.content if newest else "events")
        if newest is not None and content != newest.content:
            raise Usage(
                f"the archive holds {newest.content}, not {content}",
                where=f"{newest.name}, generation {newest.generation}",
                todo=f"Omit --content, or export below another root with --content {content}.",
            )
        return content, layout_of(content, self.layout)

    def resolved(self, newest: Manifest | None) -> PlanOptions:
        """Return the options with their defaults after an archive's newest generation, but for the cuts.

        Raises:
            Usage: as for `stored`.
        """
        content, layout = self.stored(newest)
        return replace(
            self,
            content=content,
            layout=layout,
            compression=self.compression or "",
            range_size=self.range_size or RANGE_SIZE,
        )


def check_same_options(plan: Plan, wanted: PlanOptions, where: str) -> None:
    """Check that the options that were given are those of an unfinished plan.

    Raises:
        Usage: they are not; the message has the plan's.
    """
    if differ := list(_differences(plan, wanted)):
        todo = "Omit these options to resume it, or give it up: 'export' and 'rotate' have --restart."
        raise other_options_error(differ, f"{where}, generation {plan.generation}", todo)


def has_other_options(plan: Plan, wanted: PlanOptions, described: StreamDescription, newest: Manifest | None) -> bool:
    """Return whether a plan differs from the one that a new run with these options would make, defaults included.

    So a run that is repeated with ``--restart`` resumes what it has itself begun.
    """
    if any(_differences(plan, wanted.resolved(newest))):
        return True
    # the head may have moved since the plan was made, but a plan that begins after it was made with --from
    return newest is None and wanted.from_cut is None and not is_before(described, plan.from_, described.head)


def compressed_alike(wanted: PlanOptions, ended: Plan, newest: Manifest | None) -> PlanOptions:
    """Return the options of a plan that follows one that was given up.

    Chunks have the same names, compressed or not, and those of the earlier plan's runs are there.
    """
    _, layout = wanted.stored(newest)
    return replace(wanted, compression=ended.compression) if ended.layout == layout else wanted


def check_can_restart(
    plan: Plan,
    wanted: PlanOptions,
    newest: Manifest | None,
    where: str,
    *,
    todo: str = "Omit --compress for this generation, or begin another archive with --line.",
) -> None:
    """Check that a plan that is given up for other options can be followed by one that has them.

    Args:
        plan: the plan to give up.
        wanted: the options.
        newest: the newest generation's manifest, if there is one.
        where: the archive's name in messages.
        todo: what to do otherwise, for the message.

    Raises:
        Usage: another compression was given, but chunks of the plan's runs have the names.
    """
    if wanted.compression not in {None, compressed_alike(wanted, plan, newest).compression}:
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
    }


def other_options_error(differences: list[str], where: str, todo: str) -> Usage:
    """Return the error for options that are not those of an unfinished run."""
    return Usage(f"an unfinished run has other options: {', '.join(differences)}", where=where, todo=todo)


def _differences(plan: Plan, wanted: PlanOptions) -> Iterator[str]:
    """Yield the plan's value of each option that was given and differs."""
    given: list[tuple[str, Any, Any]] = [
        ("--content", wanted.content, plan.content),
        ("--layout", wanted.layout, plan.layout),
        ("--compress", wanted.compression, plan.compression),
        ("--range-size", wanted.range_size, plan.range_size),
        ("--from", wanted.from_cut, plan.from_),
        ("--to", wanted.to_cut, plan.to),
    ]
    for option, value, planned in given:
        if value is not None and value != planned:
            yield f"{option} {_text(planned)}"


def _text(value: Any) -> str:
    if isinstance(value, StreamCut):
        return str(value.to_json())
    return size_text(value) if isinstance(value, int) else value or "none"
