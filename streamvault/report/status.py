"""The *status* command."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

from streamvault.common.errors import Problem
from streamvault.common.times import moment_text, now_utc
from streamvault.common.verb import verb
from streamvault.layouts.object_keys import GenerationSpan
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.plan import Plan, current_plan
from streamvault.manifests.archive.rows import count_rows
from streamvault.manifests.verbs.reports import ArchiveSummary
from streamvault.manifests.verbs.show import list_archives
from streamvault.objectstore.uri import RootAddress
from streamvault.reading.spans import count_spans
from streamvault.report.files import replace_file
from streamvault.report.metrics import metrics_text
from streamvault.report.options import StatusOptions
from streamvault.report.reports import ArchiveStatus, StatusReport


@verb(StatusOptions)
def show_status(root: str, options: StatusOptions) -> StatusReport:
    """Return how old and how complete the archives and tables below a root are.

    Reads what `list_archives` does; of an unfinished generation also its plan, and the listing of its rows.

    Args:
        root: a root, a folder above roots, or one archive: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
        metrics: a file for the same figures as metrics, in the text format of Prometheus, which is replaced; None for
            none.

    Raises:
        NoSuchPlace: the folder does not exist or is empty.
        Failed: the file cannot be written.
        Problem: the folder cannot be read. An unreadable archive below it is returned with its `problem`.
    """
    found = list_archives(root)
    now = now_utc()
    statuses = tuple(_status(summary, now) for summary in found)
    report = StatusReport(
        root=RootAddress.parse(root).resolve().uri,
        seen=moment_text(now),
        statuses=statuses,
        metrics_file=str(options.metrics or ""),
        warnings=tuple(f"{one.archive}: {one.problem}" for one in statuses if one.problem),
    )
    if options.metrics is not None:
        replace_file(options.metrics, metrics_text(report))
    return report


def _status(summary: ArchiveSummary, now: datetime) -> ArchiveStatus:
    known = {each.name: getattr(summary, each.name) for each in fields(summary)}
    if summary.created:
        # two machines' clocks may differ
        known["newest_age"] = max(0.0, (now - datetime.fromisoformat(summary.created)).total_seconds())
    if summary.unfinished_generation:
        try:
            known |= _progress(Archive.open(summary.archive), GenerationSpan.of(summary.unfinished_generation))
        except Problem as problem:
            known["problem"] = summary.problem or str(problem)
    return ArchiveStatus(**known)


def _progress(archive: Archive, span: GenerationSpan) -> dict[str, int]:
    plan, attempt = current_plan(archive.place, span)
    if plan is None:  # it was published meanwhile
        return {"unfinished_generation": 0}
    planned = _spans(plan)
    # a range whose start was guessed wrong has a row of its own
    done = min(count_rows(archive.place, span, attempt=attempt), planned)
    return {"spans_planned": planned, "spans_done": done}


def _spans(plan: Plan) -> int:
    """Return how many spans a plan has; none begin in its gaps, which are at the segments' starts."""
    starts: dict[str, int] = {}
    for gap in plan.gaps:
        starts[gap.segment] = max(starts.get(gap.segment, 0), gap.end)
    return sum(count_spans(max(one.start, starts.get(one.name, 0)), one.end, plan.range_size) for one in plan.segments)
