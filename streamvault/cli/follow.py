"""`--follow` of `streamvault export` and `streamvault rotate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common.errors import Usage
from common.progress import Progress
from common.sizes import bytes_text, count_text, seconds_text
from rotation.reports import FollowReport
from streamvault.cli.options import LogLevel
from streamvault.cli.output import Results
from streamvault.cli.running import run, whole_command

__all__ = ["check_follow", "follow"]

_ENDED = {
    "idle": "nothing new came",
    "time": "the time was over",
    "sealed": "the stream is sealed and archived whole",
}


def check_follow(follow: bool, times: dict[str, float | None], others: dict[str, Any]) -> None:
    """Refuse options that go only with, or not with, ``--follow``.

    Raises:
        Usage: one was given.
    """
    given = [name for name, value in (others if follow else times).items() if _is_given(value)]
    if given and follow:
        raise Usage(f"{given[0]} does not go with --follow", todo="Leave one of them out.")
    if given:
        raise Usage(f"{given[0]} goes with --follow only", todo="Add --follow, or leave it out.")


def _is_given(value: Any) -> bool:
    return value is not None and value is not False and value != ""


def follow(work: Callable[[Progress], FollowReport], *, as_json: bool, log_level: LogLevel) -> int:
    """Follow a stream and print what that did."""
    return run(
        lambda progress: whole_command(work(progress)),
        show=_show,
        document=FollowReport.to_json,
        as_json=as_json,
        log_level=log_level,
        resumable=True,
    )


def _show(results: Results, report: FollowReport) -> None:
    results.line(f"followed the stream to generation {report.generation} of {report.archive}: {_ENDED[report.ended]}")
    results.fields(
        {
            "generations": f"{report.made:,} made, in {count_text(report.rounds, 'round')}",
            "events": f"{report.events:,}",
            "bytes": f"{report.bytes:,} ({bytes_text(report.bytes)})",
            "tried again": count_text(report.retries, "time") if report.retries else "",
            "merged": f"{count_text(report.merges, 'time')}, {bytes_text(report.moved_bytes)} written again"
            if report.merges
            else "",
            "archive has": count_text(report.pieces, "piece"),
            "expired": count_text(report.expired, "generation") if report.expired else "",
            "deleted": count_text(report.objects_deleted, "object") if report.objects_deleted else "",
            "truncated": "the stream, up to the end of what is archived and was read back"
            if report.cut is not None
            else "",
            "seconds": f"{seconds_text(report.seconds)} of {seconds_text(report.total_seconds)} in all",
        }
    )
