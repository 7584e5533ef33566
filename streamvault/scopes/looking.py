"""Looks at parts of scopes: the streams, their archives, and what Streamvault does there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from streamvault.common.at_once import each_of
from streamvault.common.errors import Absent, Conflict, Damaged, Failed, Problem, Usage
from streamvault.common.options import PublicVerb
from streamvault.inspect.reports import (
    ArchiveStatus,
    PlaceStatus,
    QueueStatus,
    ReplicaStatus,
    StatusReport,
    StreamStatus,
)
from streamvault.inspect.status import status_of, unarchived_bytes
from streamvault.inspect.streams import ScopeState, Servers, look_at_scope
from streamvault.manifests.archive import Archive
from streamvault.manifests.listing import Listing
from streamvault.manifests.manifest import GapEntry, Manifest
from streamvault.manifests.verbs.overview import Overview, overview_of
from streamvault.manifests.verbs.show import NoSuchPlace, find_archives
from streamvault.objectstore.uri import RootAddress
from streamvault.scopes.declared import DeclaredCalls, has_key
from streamvault.scopes.entries import load_declared
from streamvault.scopes.uri import ScopePattern
from streamvault.sources.archive_comparison import bytes_before, check_gaps, held_below
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamCut
from streamvault.streamstore.uri import OpenStream, parse_stream

Matches = Callable[[str], bool]
R = TypeVar("R")


@dataclass
class WatchedStreams:
    """Streams of a scope that are archived in one root, or replicas.

    Attributes:
        scope: the scope's URI, without a slash at its end.
        root: the root; empty if it is not known.
        matches: whether a stream is one of them, given its name; None if all are.
        target: whether the streams are targets, whose cluster may have a login of its own.
        names: the streams' names, if each is named; empty for a pattern.
    """

    scope: str
    root: str = ""
    matches: Matches | None = None
    target: bool = False
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, patterns: list[ScopePattern], root: str, *, target: bool = False) -> WatchedStreams:
        """Return the streams that patterns of one scope match; all are names, or none is."""
        names = frozenset(one.pattern for one in patterns if one.is_name)
        matches: Matches | None = (
            names.__contains__ if names else lambda name: any(one.matches(name) for one in patterns)
        )
        if any(not one.pattern for one in patterns):
            matches = None
        return cls(patterns[0].scope, root, matches, target, names)


def scoped_status(parts: list[WatchedStreams], report: StatusReport, now: datetime) -> StatusReport:
    """Add to a report what there is in parts of scopes.

    Raises:
        Problem: there is one part, and its root does not exist, or its scope cannot be read and it has no archives.
    """
    servers, found = Servers(), [_Found() for _ in parts]
    for part, one in zip(parts, found, strict=True):
        one.look(part, servers, now)
    archives = {(one.archive, one.table): one for each in found for one in each.archives}
    if len(found) == 1:
        found[0].check()
    places = [place for each in found for place in each.places]
    return replace(
        report,
        statuses=tuple(archives.values()),
        live_streams=_once(found, lambda one: one.streams, lambda one: one.stream),
        leases=_once(found, lambda one: one.state.leases, lambda one: one.lease),
        queues=_once(found, lambda one: one.state.queues, lambda one: one.queue),
        replicas=_once(found, lambda one: one.state.replicas, lambda one: one.replica),
        # of a place that is looked at several times, a problem counts
        watched_places=tuple({one.place: one for one in sorted(places, key=lambda one: one.problem)}.values()),
    )


def _once(found: list[_Found], rows: Callable[[_Found], list[R]], uri: Callable[[R], str]) -> tuple[R, ...]:
    """Return the rows of all parts, each URI once."""
    return tuple({uri(row): row for one in found for row in rows(one)}.values())


class _Found:
    """What there is in a part of a scope.

    Attributes:
        state: of the scope.
        streams: the streams with what is known of their archives; also those that are named and not there.
        archives: the archives and tables.
        overviews: what was read of the archives, by their streams.
        places: the scope and the root.
        unreadable: why the scope cannot be read; None if it can.
        no_archives: why the root cannot be read; None if it can, or if there is none.
    """

    def __init__(self) -> None:
        self.state = ScopeState()
        self.streams: list[StreamStatus] = []
        self.archives: list[ArchiveStatus] = []
        self.overviews: dict[str, Overview] = {}
        self.places: list[PlaceStatus] = []
        self.unreadable: Problem | None = None
        self.no_archives: Problem | None = None

    def check(self) -> None:
        """Raise what leaves nothing to be shown, or is probably a mistake in the address."""
        if isinstance(self.no_archives, Absent):
            raise self.no_archives
        if self.unreadable and not self.archives:
            raise self.unreadable

    def look(self, part: WatchedStreams, servers: Servers, now: datetime) -> None:
        """Look at a part."""
        address, name = parse_stream(f"{part.scope}/x", target=part.target)
        with ExitStack() as stack:
            try:
                store = stack.enter_context(address.open())
                self.state = look_at_scope(store, address, name.scope, servers, part.matches)
            except Problem as problem:
                self.unreadable = problem
            self.places.append(PlaceStatus(place=part.scope, problem=str(self.unreadable or self.state.problem)))
            if part.root:
                try:
                    found = servers.ask(part.root, lambda: list(_archives(part, name.scope)))
                    self.archives = [status_of(one, now) for one in found]
                    self.overviews = {one.summary.stream_name: one for one in found if not one.summary.table}
                except Problem as problem:
                    self.no_archives = problem
                self.places.append(PlaceStatus(place=part.root, problem=str(self.no_archives or "")))
            if not part.target:
                self._add_streams(part, servers)
        self._add_missing(part)

    def _add_streams(self, part: WatchedStreams, servers: Servers) -> None:
        """Add the streams that are there."""
        by_name = self._by_name()

        def look(stream: OpenStream) -> StreamStatus | None:
            archive = by_name.get(stream.name.stream)
            known = self._archived(stream.uri, archive, part.root)
            if not part.root or self.no_archives or (archive is not None and archive.problem):
                return known
            try:
                overview = self.overviews.get(str(stream.name))
                recorded = servers.ask(part.root, partial(_recorded, overview))
                return servers.ask(stream.store.uri, partial(_compared, known, stream, recorded))
            except (NoSuchStream, NoSuchScope):  # it was deleted meanwhile
                return None
            except Problem as problem:
                return replace(known, problem=str(problem))

        self.streams += (one for one in each_of(look, self.state.streams) if one is not None)
        for name, problem in self.state.unreadable.items():
            known = self._archived(f"{part.scope}/{name.stream}", by_name.get(name.stream), part.root)
            self.streams.append(replace(known, problem=str(problem)))

    def _by_name(self) -> dict[str, ArchiveStatus]:
        return {one.stream_name.partition("/")[2]: one for one in self.archives if not one.table}

    def _add_missing(self, part: WatchedStreams) -> None:
        """Add what is named or archived, and is not there, or of which that is not known."""
        archived = self._by_name()
        names = part.names | archived.keys() if self.unreadable else part.names - archived.keys()
        problem = str(self.unreadable or "no such stream")
        for name in sorted(names - {one.stream for one in self.state.names}):
            uri = f"{part.scope}/{name}"
            if part.target:
                self.state.replicas.append(ReplicaStatus(replica=uri, problem=problem))
            elif part.root:
                known = self._archived(uri, archived.get(name), part.root)
                self.streams.append(replace(known, problem=problem))
            elif self.unreadable:  # a queue need not be there
                self.state.queues.append(QueueStatus(queue=uri, is_readable=False, problem=problem))

    def _archived(self, uri: str, archive: ArchiveStatus | None, root: str) -> StreamStatus:
        """Return what the archive says of a stream."""
        if archive is None:
            known = bool(root) and not self.no_archives
            return StreamStatus(stream=uri, is_archived=False if known else None, problem=str(self.no_archives or ""))
        known = bool(archive.generation) or not archive.problem
        return StreamStatus(
            stream=uri, archive=archive.archive, is_archived=bool(archive.generation) if known else None
        )


def _archives(part: WatchedStreams, scope: str) -> Iterator[Overview]:
    """Yield the archives of a part's streams, with their tables."""
    root = RootAddress.parse(part.root).resolve()
    found: list[Overview] = []
    try:
        found = list(find_archives(root.below(scope).uri, part.matches))
    except NoSuchPlace:  # nothing was archived yet
        next(root.open().list(""), None)  # raises if there is no such root: it may hold archives when it is back
    for one in found:
        its_scope, _, name = one.summary.stream_name.partition("/")
        if its_scope == scope and (part.matches is None or part.matches(name)):
            yield one


@dataclass(frozen=True)
class _Recorded:
    """What an archive has of its stream: its generations in force, where they begin, and their gaps."""

    archive: Archive
    listing: Listing
    newest: Manifest
    head: StreamCut
    gaps: Mapping[int, Sequence[GapEntry]]


def _recorded(overview: Overview | None) -> _Recorded | None:
    """Read what an overview leaves out; None if no generation is in force.

    Raises:
        Problem: a manifest cannot be read.
    """
    if overview is None or overview.archive is None or overview.newest is None or overview.listing is None:
        return None
    manifests = overview.manifests()
    try:
        head = next(manifests)
        held = chain((head,), manifests) if overview.summary.gap_bytes else ()
        gaps = {one.generation: one.gaps for one in held}
        return _Recorded(overview.archive, overview.listing, overview.newest, head.from_, gaps)
    except (Absent, Damaged):
        now = overview_of(overview.archive)
        if now is None or now.listing is None or now.listing == overview.listing:
            raise
        return _recorded(now)  # generations have expired meanwhile


def _compared(known: StreamStatus, stream: OpenStream, recorded: _Recorded | None) -> StreamStatus:
    """Return a stream's status with what its archive lacks of it.

    Raises:
        Problem: the stream or the archive cannot be read, or they do not belong together.
    """
    if recorded is None:
        return replace(known, unarchived=unarchived_bytes(stream, None))
    described, newest, listing, head = stream.describe(), recorded.newest, recorded.listing, recorded.head
    try:
        count = unarchived_bytes(stream, newest, described)
        if recorded.gaps:
            held = held_below(described, stream.store, newest.to)
            check_gaps(described, stream.store, held, recorded.gaps, recorded.archive.uri)
        before = bytes_before(described, stream.store, head, listing.begin(head))
        return replace(known, unarchived=count, before_archive=before)
    except (Conflict, Failed):
        now = _recorded(overview_of(recorded.archive))
        if now is None or now.listing == listing:
            raise
        return _compared(known, stream, now)  # it may have been archived and truncated meanwhile


def declared_parts(file: str) -> list[WatchedStreams]:
    """Return the streams that a file declares.

    Raises:
        Usage: the file is not valid; the message has the line.
    """
    verb, calls = _calls(file)
    found: dict[tuple[str, str, bool, bool], list[ScopePattern]] = {}
    for call in calls.given():
        given = dict(zip(verb.argument_names, map(str, call.arguments), strict=True))
        there = [(given["stream"], given.get("root", ""), "source" in given)]
        there += [(str(queue), "", False)] if (queue := getattr(call.options, "queue", None)) else []
        for uri, root, is_target in there:
            pattern = ScopePattern.parse(uri)
            found.setdefault((pattern.scope, root, is_target, pattern.is_name), []).append(pattern)
    return [WatchedStreams.of(patterns, root, target=target) for (_, root, target, _), patterns in found.items()]


def _calls(file: str) -> tuple[PublicVerb, DeclaredCalls]:
    """Return the verb that a file is for, and its calls: `replicate` if the file names no root."""
    from streamvault.exporter.follow import follow_stream  # noqa: PLC0415
    from streamvault.exporter.rotate import rotate_stream  # noqa: PLC0415
    from streamvault.replication.replicate import replicate_stream  # noqa: PLC0415  (these import the engines)

    said, _ = load_declared(file)
    verbs: list[Any] = [rotate_stream, follow_stream] if has_key(said, "root") else [replicate_stream]
    first, *others = verbs
    try:
        return first, DeclaredCalls(first, file, first.options_class())
    except Usage:
        for other in others:
            with suppress(Usage):
                return other, DeclaredCalls(other, file, other.options_class())
        raise
