"""Looks at parts of scopes: the streams, their archives, and what Streamvault does there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from streamvault.common.errors import Problem, Usage
from streamvault.common.verb import PublicVerb
from streamvault.manager.listing import each_of
from streamvault.manager.status import ScopeState, look_at_scope
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.verbs.reports import ArchiveSummary
from streamvault.manifests.verbs.show import NoSuchPlace, list_archives
from streamvault.objectstore.uri import RootAddress
from streamvault.report.reports import ArchiveStatus, StatusReport, StreamStatus
from streamvault.report.status import status_of, unarchived_bytes
from streamvault.scopes.calls import StreamCalls
from streamvault.scopes.toml import load_declared
from streamvault.scopes.uri import ScopePattern
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.uri import parse_stream

Matches = Callable[[str], bool]


@dataclass
class WatchedStreams:
    """Streams of a scope that are archived in one root, or replicas.

    Attributes:
        scope: the scope's URI, without a slash at its end.
        root: the root; empty if it is not known.
        matches: whether a stream is one of them, given its name; None if all are.
        target: whether the streams are targets, whose cluster may have a login of its own.
        only: the name, if it is one stream.
    """

    scope: str
    root: str = ""
    matches: Matches | None = None
    target: bool = False
    only: str = ""

    @classmethod
    def of(cls, place: str, root: str) -> WatchedStreams:
        """Return the streams of a scope, those that match a pattern, or one, given the URI.

        Raises:
            Usage: there is a ``*`` elsewhere than in the last part.
        """
        pattern = ScopePattern.parse(place)
        only = "" if "*" in pattern.pattern else pattern.pattern
        return cls(pattern.scope, root, pattern.matches if pattern.pattern else None, only=only)


def scoped_status(parts: list[WatchedStreams], report: StatusReport, now: datetime) -> StatusReport:
    """Add to a report what there is in parts of scopes."""
    archives: dict[tuple[str, str], ArchiveStatus] = {}
    streams: dict[str, StreamStatus] = {}
    state = ScopeState()
    for part in parts:
        address, name = parse_stream(f"{part.scope}/x", target=part.target)
        with address.open() as store:
            found = look_at_scope(store, address, name.scope, part.matches)
            kept = list(_archives(part, name.scope, now))
            archives |= {(one.archive, one.table): one for one in kept}
            if not part.target:
                streams |= {one.stream: one for one in _streams(found.streams, kept, part.root)}
        state.leases += found.leases
        state.queues += found.queues
        state.replicas += found.replicas
    return replace(
        report,
        statuses=tuple(archives.values()),
        live_streams=tuple(streams.values()),
        leases=tuple({one.lease: one for one in state.leases}.values()),
        queues=tuple({one.queue: one for one in state.queues}.values()),
        replicas=tuple({one.replica: one for one in state.replicas}.values()),
    )


def _archives(part: WatchedStreams, scope: str, now: datetime) -> Iterator[ArchiveStatus]:
    """Yield the archives of a part's streams, with their tables."""
    if not part.root:
        return
    root = RootAddress.parse(part.root).resolve()
    found: list[ArchiveSummary] = []
    try:
        found = list_archives(root.below(f"{scope}/{part.only}".rstrip("/")).uri)
    except NoSuchPlace:  # nothing was archived yet
        next(root.open().list(""), None)  # raises if there is no such root: it may hold archives when it is back
    for one in found:
        its_scope, _, name = one.stream_name.partition("/")
        if its_scope == scope and (part.matches is None or part.matches(name)):
            yield status_of(one, now)


def _streams(streams: list[OpenStream], archives: list[ArchiveStatus], root: str) -> Iterator[StreamStatus]:
    by_name = {one.stream_name: one for one in archives if not one.table}
    found = each_of(lambda one: _stream(one, by_name.get(str(one.name)), root), streams)
    return (one for one in found if one is not None)


def _stream(stream: OpenStream, archive: ArchiveStatus | None, root: str) -> StreamStatus | None:
    """Return the status of a stream; None if it was deleted meanwhile."""
    known = StreamStatus(stream=stream.uri, archive=archive.archive if archive else "")
    if not root or (archive is not None and archive.problem):
        return known
    try:
        newest = Archive.open(archive.archive).manifest() if archive is not None and archive.generation else None
        return replace(known, unarchived=unarchived_bytes(stream, newest))
    except (NoSuchStream, NoSuchScope):
        return None
    except Problem as problem:
        return replace(known, problem=str(problem))


def declared_parts(file: str) -> list[WatchedStreams]:
    """Return the streams that a file declares.

    Raises:
        Usage: the file is not valid; the message has the line.
    """
    verb, calls = _calls(file)
    found: dict[tuple[str, str, bool], set[str]] = {}
    for name in calls.look(first=True).names:
        arguments, options = calls.call(name)
        given = dict(zip(verb.argument_names, map(str, arguments), strict=True))
        there = [(given["stream"], given.get("root", ""), "source" in given)]
        there += [(str(queue), "", False)] if (queue := getattr(options, "queue", None)) else []
        for uri, root, is_target in there:
            scope, _, stream = uri.rpartition("/")
            found.setdefault((scope, root, is_target), set()).add(stream)
    return [WatchedStreams(scope, root, names.__contains__, target) for (scope, root, target), names in found.items()]


def _calls(file: str) -> tuple[PublicVerb, StreamCalls]:
    """Return the verb that a file is for, and its calls: `replicate` if the file names no root."""
    from streamvault.mirrors.replicate import replicate_stream  # noqa: PLC0415  (these import the engines)
    from streamvault.rotation.follow import follow_stream  # noqa: PLC0415
    from streamvault.rotation.rotate import rotate_stream  # noqa: PLC0415
    from streamvault.scopes.declared import DeclaredCalls  # noqa: PLC0415

    said, _ = load_declared(file)
    entries = said.get("streams")
    tables = [said, *(entries if isinstance(entries, list) else [])]
    has_root = any(isinstance(table, Mapping) and "root" in table for table in tables)
    verbs: list[Any] = [rotate_stream, follow_stream] if has_root else [replicate_stream]
    first, *others = verbs
    try:
        return first, DeclaredCalls(first, file, first.options_class())
    except Usage:
        for other in others:
            with suppress(Usage):
                return other, DeclaredCalls(other, file, other.options_class())
        raise
