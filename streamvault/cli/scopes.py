"""Prints the report of a command that ran for the streams of a scope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from streamvault.cli.lines import price_text, time_text
from streamvault.cli.output import Results
from streamvault.common.errors import Problem
from streamvault.common.report import Cost
from streamvault.common.sizes import bytes_text, count_text
from streamvault.scopes.reports import ScopeReport, StreamOutcome

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
        why = Problem(outcome.failure.what, where=outcome.failure.where, todo=outcome.failure.todo)
        return f"FAILED (exit code {outcome.exit_code}): {why}"
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
