"""Prints the report of a command that ran for the streams of a scope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from streamvault.cli.lines import time_text
from streamvault.cli.output import Results
from streamvault.common.errors import Problem
from streamvault.common.sizes import count_text
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


def show_scope(results: Results, report: ScopeReport[Any], show: Callable[[Results, Any], None]) -> None:
    """Print a line for each stream, and what was left out.

    Args:
        results: standard output.
        report: what was done.
        show: prints the report of one stream; its first line is used.
    """
    for each in report.outcomes:
        results.line(f"{_name(each.stream)}: {_outcome(each, show)}")
    for omitted in islice(report.omitted, MAX_OMITTED):
        results.line(f"{_name(omitted.stream)}: left out: {omitted.reason}")
    if len(report.omitted) > MAX_OMITTED:
        results.line(f"left out: {len(report.omitted) - MAX_OMITTED:,} more streams (--json lists all)")
    if report.key_value_tables:
        tables = count_text(len(report.key_value_tables), "key-value table")
        results.line(f"not carried: {tables} ({_listed(map(_name, report.key_value_tables))})")
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
