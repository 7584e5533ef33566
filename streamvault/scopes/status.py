"""The *status* command: of the archives below a root, or of the streams of a scope."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from streamvault.common.errors import Usage
from streamvault.common.options import verb
from streamvault.common.units import moment_text, now_utc
from streamvault.inspect.metrics import metrics_text
from streamvault.inspect.reports import StatusOptions, StatusReport
from streamvault.inspect.status import status_of
from streamvault.inspect.write import replace_file
from streamvault.manifests.verbs.show import find_archives
from streamvault.objectstore.uri import RootAddress
from streamvault.scopes.uri import ScopePattern
from streamvault.sources.archive_comparison import never_archived
from streamvault.streamstore.uri import is_stream, sharing_stores


@verb(StatusOptions)
def show_status(place: str | None, options: StatusOptions) -> StatusReport:
    """Return how old and how complete archives are; of a scope, also what is done there now.

    Of archives it reads what `list_archives` does; of an unfinished generation also its plan, and the listing of its
    rows. Of the streams of a scope it reads how much of each is not archived yet, who holds leases, what waits in
    queues, and how far replicas are. A lease whose holder may be dead is watched for 12 seconds.

    Args:
        place: a root, a folder above roots, or one archive: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``; or a scope, a
            pattern or a stream. None with `config_file`.
        root: of a scope: where its streams are archived; None if they are not.
        config_file: the file that declares the streams, as for `follow_stream`, `rotate_stream` or `replicate_stream`.
        metrics: a file for the same figures as metrics, in the text format of Prometheus, which is replaced; None for
            none.

    Raises:
        NoSuchPlace: the folder does not exist or is empty.
        NoSuchScope: the scope does not exist, and has no archives.
        Usage: the options do not fit together, or the file is not valid.
        Failed: the file cannot be written.
        Problem: the folder cannot be read; or the one scope that is asked for, and it has no archives. Whatever else
            cannot be read is returned with its `problem`.
    """
    now = now_utc()
    report = _report(place, options, now)
    problems: dict[str, list[str]] = {}
    for uri, problem in [
        *((one.stream, str(never_archived(one.before_archive))) for one in report.live_streams if one.before_archive),
        *((one.place, one.problem) for one in report.watched_places),
        *((one.archive, one.problem) for one in report.statuses),
        *((one.stream, one.problem) for one in report.live_streams),
        *((one.queue, one.problem) for one in report.queues),
        *((one.replica, one.problem) for one in report.replicas),
    ]:
        problems.setdefault(problem, []).append(uri)
    problems.pop("", None)
    report = replace(
        report,
        metrics_file=str(options.metrics or ""),
        warnings=tuple(f"{_first(uris)}: {problem}" for problem, uris in problems.items()),
    )
    if options.metrics is not None:
        replace_file(options.metrics, metrics_text(report))
    return report


def _first(uris: list[str]) -> str:
    """Return the first of what has the same problem, and how many others there are."""
    return uris[0] if len(uris) == 1 else f"{uris[0]} and {len(uris) - 1:,} more"


def _report(place: str | None, options: StatusOptions, now: datetime) -> StatusReport:
    seen, file = moment_text(now), options.config_file
    if file is not None and (place is not None or options.root is not None):
        raise Usage("the file declares the streams and the roots", todo="Give only the file, or no file.")
    if file is None and place is None:
        raise Usage("nothing to look at", todo="Give a root, a scope, or a file that declares streams.")
    if place is not None and not is_stream(place):
        if options.root is not None:
            raise Usage(
                "--root applies only to a scope's streams", where=place, todo="Give one root, or a scope and --root."
            )
        root = RootAddress.parse(place).resolve().uri
        return StatusReport(root=root, seen=seen, statuses=tuple(status_of(one, now) for one in find_archives(place)))
    if place is not None and "/" not in place.partition("://")[2]:
        todo = f"Give a scope, {place}/SCOPE/; 'streamvault streams {place}' lists the streams of all scopes."
        raise Usage("a whole cluster has no status", where=place, todo=todo)
    from streamvault.scopes.looking import WatchedStreams, declared_parts, scoped_status  # noqa: PLC0415  (these import engines)

    root = "" if options.root is None else RootAddress.parse(options.root).resolve().uri
    with sharing_stores():
        parts = (
            [WatchedStreams.of([ScopePattern.parse(place)], root)] if place is not None else declared_parts(str(file))
        )
        return scoped_status(parts, StatusReport(root=root, scope=place or str(file), seen=seen), now)
