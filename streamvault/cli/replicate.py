"""`streamvault replicate`, `streamvault promote` and `streamvault translate`."""

from __future__ import annotations

import json
from typing import Annotated

from streamvault.cli.lines import exact_text, print_groups, print_new_places, time_text
from streamvault.cli.options import TargetArgument, argument, folder_as_uri, option
from streamvault.cli.output import Results
from streamvault.cli.running import Command
from streamvault.common.errors import Usage
from streamvault.common.units import bytes_text, count_text, exact_moment_text, seconds_text
from streamvault.replication.reports import (
    PromoteOptions,
    PromoteReport,
    ReplicateOptions,
    ReplicateReport,
    TranslateReport,
)

_ENDED = {
    "caught up": "caught up with",
    "idle": "no new events in",
    "time": "the time limit was reached; source",
    "sealed": "complete: the end was reached of the sealed",
}


def replicate(
    source: Annotated[
        str,
        argument("SOURCE", "The stream, or the archive ROOT/SCOPE/STREAM, to replicate.", callback=folder_as_uri),
    ],
    stream: TargetArgument,
    options: ReplicateOptions,
    *,
    command: Command,
) -> None:
    """Keep a replica of a stream or an archive up to date.

    The replica can be read at any time; `promote` turns it into an ordinary stream. --dry-run shows how far behind it
    is.
    """
    from streamvault.replication.replicate import replicate_stream

    command.call(replicate_stream, source, stream, options, show=_show, resumable=True)


def _show(results: Results, report: ReplicateReport) -> None:
    if report.dry_run:
        is_new = report.behind_seconds is None
        age = "" if report.behind_seconds is None else f", {seconds_text(report.behind_seconds)}"
        state = "no replica yet: would replicate {} to {}" if is_new else "{1} is a replica of {0}"
        results.line(state.format(report.source, report.stream))
        results.fields({"behind": f"{bytes_text(report.behind_bytes)}{age}"})
        return
    results.line(f"replicated to {report.stream}: {_ENDED[report.ended or 'caught up']} {report.source}")
    results.fields(
        {
            "rounds": f"{report.rounds:,} with something new",
            "bytes": exact_text(report.moved_bytes),
            "retries": report.retries and count_text(report.retries, "retry", "retries"),
            "lag": report.rounds
            and f"{seconds_text(report.lag_seconds)}, at most {seconds_text(report.most_lag_seconds)}",
            "time": time_text(report),
        }
    )
    print_groups(results, report.reader_groups)
    print_new_places(results, report.renumbered)


def promote(
    stream: Annotated[str, argument("REPLICA", "The replica that `replicate` created.")],
    options: PromoteOptions,
    *,
    command: Command,
) -> None:
    """Turn a replica into an ordinary stream.

    Without --seal-source, the replica is promoted as it is; its source may be gone. With it, nothing written to the
    source is lost.
    """
    from streamvault.replication.promote import promote_replica

    command.call(promote_replica, stream, options, show=_show_promote, resumable=True)


def _show_promote(results: Results, report: PromoteReport) -> None:
    of = f" (a replica of {report.source})" if report.source else ""
    if report.unchanged:
        results.line(f"already promoted: {report.stream}{of}")
    else:
        results.line(f"{'would promote' if report.dry_run else 'promoted'} {report.stream}{of}")
    complete = report.source_sealed and not report.dry_run
    results.fields(
        {
            "source": complete and "sealed; the stream has all of it",
            "as of": ""
            if complete or report.unchanged
            else exact_moment_text(report.tail_time) or "no round has ever finished",
            "last round": complete and bytes_text(report.moved_bytes),
            "cut-over": complete and seconds_text(report.cutover_seconds),
            "sealed": report.sealed and "yes, as the source was",
            "time": seconds_text(report.total_seconds),
        }
    )
    print_groups(results, report.reader_groups)
    print_new_places(results, report.renumbered)


def translate(
    source: Annotated[
        str,
        argument(
            "SOURCE",
            "The archive (ROOT/SCOPE/STREAM) or the stream (its URI) that the positions belong to.",
            callback=folder_as_uri,
        ),
    ],
    stream: Annotated[
        str,
        argument("TARGET", "The restored stream. If it is in another cluster, set PRAVEGA_TARGET_USERNAME and so on."),
    ],
    positions: Annotated[
        list[str] | None,
        argument("CUT|POINTER", "Stream cuts as JSON, event pointers, or names of files that contain one."),
    ] = None,
    *,
    reader_group: Annotated[
        list[str] | None,
        option("--reader-group", "Translate the position of this reader group of SOURCE. Repeatable.", metavar="NAME"),
    ] = None,
    command: Command,
) -> None:
    """Translate cuts and pointers for a restored stream.

    The positions of reader groups are translated, too. The output has a line for each cut or pointer, in the same
    order; those of reader groups follow.
    """
    from streamvault.replication.translate import translate as translate_positions
    from streamvault.streamstore.cuts import load_position

    given = [load_position(one, "CUT") for one in positions or ()]
    if not given and not reader_group:
        raise Usage("no position is given", todo="Give cuts or pointers, or a reader group's name with --reader-group.")
    command.call(translate_positions, source, stream, given, reader_group or (), show=_show_translate)


def _show_translate(results: Results, report: TranslateReport) -> None:
    for position in report.positions:
        results.line(position.new if isinstance(position.new, str) else json.dumps(position.new))
