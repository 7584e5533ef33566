"""Lines that the results of several commands have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from streamvault.cli.output import Results
from streamvault.common.report import CarriedGroup, Cost, TimedReport
from streamvault.common.units import bytes_text, count_text, seconds_text, size_text
from streamvault.scopes.reports import ScopeReport, StreamOutcome

if TYPE_CHECKING:
    from streamvault.exporter.reports import ConvertReport, ExportReport

R = TypeVar("R")

MAX_RENUMBERED = 20
"""How many renumbered segments are printed."""


def time_text(report: TimedReport) -> str:
    """Return how long a command took."""
    return f"{seconds_text(report.seconds)} (total {seconds_text(report.total_seconds)})"


def earlier_text(report: Any, done: str) -> str:
    """Return how many of a report's bytes an earlier run has moved; empty for none, and in a dry run.

    Args:
        report: has ``bytes``, ``moved_bytes`` and ``dry_run``.
        done: what was done with them, such as ``copied``.
    """
    earlier = 0 if report.dry_run else report.bytes - report.moved_bytes
    return f"{bytes_text(earlier)} {done} by an earlier run" if earlier > 0 else ""


def exact_text(size: int) -> str:
    """Return a size in bytes, and in a larger unit if it has one: ``2,048 (2.0 KiB)``."""
    return f"{size:,} ({bytes_text(size)})" if size >= 1024 else str(size)


def price_text(usd: float, about: str) -> str:
    """Return a price in dollars; ``about`` is what stands before one that is estimated."""
    return f"{about}{usd:,.2f}" if usd >= 0.01 else "under 0.01"


def print_table(
    results: Results, columns: Mapping[str, Callable[[R], str]], rows: Sequence[R], figures: Container[str] = ()
) -> None:
    """Print the columns of a table that have something in them.

    Args:
        results: standard output.
        columns: header → what the cell of a row says.
        rows: the rows.
        figures: the headers of the columns of figures.
    """
    cells = {name: [cell(row) for row in rows] for name, cell in columns.items()}
    if shown := {name: column for name, column in cells.items() if any(column)}:
        results.table({name: name in figures for name in shown}, list(zip(*shown.values(), strict=True)))


def cost_fields(cost: Cost | None) -> dict[str, str]:
    """Return the lines about a plan's cost; empty if there is no plan."""
    if cost is None:
        return {}
    about = "about " if cost.objects_estimated else ""
    price = price_text(cost.usd, about)
    return {
        "objects": f"{about}{cost.objects:,}",
        "requests": f"{about}{cost.puts:,} PUT, {cost.lists:,} LIST, {cost.gets:,} GET",
        "list price": f"{price} USD for the requests (S3 Standard, us-east-1)",
    }


def plan_fields(report: ExportReport | ConvertReport) -> dict[str, str]:
    """Return the lines about the unfinished run that an export or a conversion resumes or gives up."""
    return {
        "resumes": _options_text(report.resumes) if report.dry_run else "",
        "gives up" if report.dry_run else "gave up": _options_text(report.gave_up),
    }


def _options_text(options: dict[str, Any] | None) -> str:
    if options is None:
        return ""
    size = size_text(options["range_size"])
    kept = ", ".join(f"{name} {options[name]}" for name in ("content", "layout", "compress"))
    return f"an unfinished run with {kept}, range size {size}"


def print_groups(results: Results, groups: Sequence[CarriedGroup]) -> None:
    """Print what became of reader groups, a line for each; the position of one that is still to be created."""
    for one in groups:
        results.line(f"reader group {one.name}: {one.outcome}{f' ({one.reason})' if one.reason else ''}")
        if one.outcome == "left out" and one.position is not None:
            results.line(f"  continues at {json.dumps(one.position)}")


def print_new_places(results: Results, renumbered: Mapping[str, str], shifts: Mapping[str, int] | None = None) -> None:
    """Print which segments have other numbers than the source's, at most a few, and which have other offsets."""
    for old, new in islice(renumbered.items(), MAX_RENUMBERED):
        results.line(f"renumbered: {old} of the source is {new}")
    if len(renumbered) > MAX_RENUMBERED:
        results.line(f"renumbered: {len(renumbered) - MAX_RENUMBERED:,} more segments (--json lists all)")
    for segment, size in (shifts or {}).items():
        results.line(f"shifted: every offset of {segment} is {size:,} lower than in the source")


MAX_OMITTED = 20
"""How many streams that were left out are printed."""


class _Lines(Results):
    """Takes what a command prints, instead of printing it."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def write(self, text: str) -> None:
        """Keep the text."""
        self.text += text


@dataclass(frozen=True)
class _Planned:
    """What a dry run says that would be moved, and what S3 charges for it; as text, on one line.

    Attributes:
        events, bytes: how many.
        usd: list price of the requests; None if there are none.
        about: whether it is estimated.
    """

    events: int = 0
    bytes: int = 0
    usd: float | None = None
    about: bool = False

    @classmethod
    def of(cls, report: Any) -> _Planned:
        """Return what the report of one stream says; of a rotation, its export does."""
        report = getattr(report, "export", report)
        cost: Cost | None = getattr(report, "cost", None)
        size = getattr(report, "bytes", 0) or getattr(report, "behind_bytes", 0)
        if not size or getattr(report, "unchanged", False):
            return cls()
        return cls(
            getattr(report, "events", 0),
            size,
            None if cost is None else cost.usd,
            getattr(report, "events_estimated", False) or (cost is not None and cost.objects_estimated),
        )

    def __bool__(self) -> bool:
        return bool(self.bytes)

    def __add__(self, other: _Planned) -> _Planned:
        prices = [each.usd for each in (self, other) if each.usd is not None]
        return _Planned(
            self.events + other.events,
            self.bytes + other.bytes,
            sum(prices) if prices else None,
            self.about or other.about,
        )

    def __str__(self) -> str:
        if not self:
            return ""
        about = "about " if self.about else ""
        events = f"{about}{count_text(self.events, 'event')}" if self.events else ""
        cost = "" if self.usd is None else f"{price_text(self.usd, about)} USD for requests"
        return ", ".join(filter(None, (events, bytes_text(self.bytes), cost)))


def show_scope(results: Results, report: ScopeReport[Any], show: Callable[[Results, Any], None]) -> None:
    """Print a line for each stream, and what was left out.

    Args:
        results: standard output.
        report: what was done.
        show: prints the report of one stream; its first line is used.
    """
    total = _Planned()
    for each in report.outcomes:
        planned = _Planned.of(each.result) if report.dry_run and each.result is not None else _Planned()
        total += planned
        results.line(f"{_name(each.stream)}: {_outcome(each, show)}{planned and f'; {planned}'}")
    for omitted in islice(report.omitted, MAX_OMITTED):
        results.line(f"{_name(omitted.stream)}: left out: {omitted.reason}")
    if len(report.omitted) > MAX_OMITTED:
        results.line(f"left out: {len(report.omitted) - MAX_OMITTED:,} more streams (--json lists all)")
    if report.key_value_tables:
        tables = count_text(len(report.key_value_tables), "key-value table")
        results.line(f"not migrated: {tables} ({_listed(map(_name, report.key_value_tables))})")
    if total:
        results.line(f"in all: {total}")
    counts = Counter(each.status for each in report.outcomes)
    results.line(f"{report.scope}: {', '.join(f'{counts[one]:,} {one}' for one in counts)}; {time_text(report)}")


def _outcome(outcome: StreamOutcome[Any], show: Callable[[Results, Any], None]) -> str:
    if outcome.failure is not None:
        return f"FAILED (exit code {outcome.exit_code}): {outcome.failure}"
    if outcome.result is None:
        return "deleted meanwhile"
    lines = _Lines()
    show(lines, outcome.result)
    return lines.text.partition("\n")[0]


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:MAX_OMITTED]) + (", …" if len(found) > MAX_OMITTED else "")
