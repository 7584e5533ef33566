"""The *sweep* command: finds and deletes what killed runs have left in a scope, and notes what sweeps have seen.

For each kind of internal stream it is known what its deletion would lose. A lease that nobody holds loses nothing,
unless its record says that an import was finishing. A ledger is needed as long as its stream is there. The target of an
unfinished import has nothing that the archive has not, if the archive still gives that very import. A replica, or the
target of a copy, may have events that no other stream has any more: they always stay. Each is deleted so that a late
call harms nothing.

Nothing in a leftover says how old it is: heartbeats have no time, and another machine's clock may be wrong. So each
sweep notes in a ledger what it sees, and a later one finds out how long nothing has changed. The times are those of
sweeps' own clocks. A clock that jumps makes the grace of `--older-than` shorter or longer; that a leftover may be
deleted at all is shown otherwise.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from streamvault.common.at_once import each_of
from streamvault.common.errors import Conflict, Damaged, Problem, Usage
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.units import duration_text
from streamvault.concat.room import give_back
from streamvault.importer.fill import FillTask, TargetSegment, compare_all
from streamvault.importer.from_archive import generation_of
from streamvault.importer.import_ import Planner
from streamvault.importer.plan import RestorePlan, plan_restore
from streamvault.importer.reports import ImportOptions
from streamvault.importer.target import Unfinished, first_segment_id, has_data, lease_stream, marked_import, origin_tag
from streamvault.manager.ephemeral import EphemeralTag, ephemeral_lease, remove_stream
from streamvault.manager.manager import LEASES, role_of
from streamvault.manager.reports import StreamRole, SweepEntry, SweepOptions, SweepReport
from streamvault.manifests.archive import Archive
from streamvault.objectstore.bulk import WINDOW_BYTES
from streamvault.objectstore.store import ObjectStoreError
from streamvault.replication.copy import COPY
from streamvault.streamstore.errors import InvalidName, NoSuchScope, NoSuchStream
from streamvault.streamstore.lease import Heartbeat, Lease, LeaseHeld, is_dead, last_heartbeat, watch_silence
from streamvault.streamstore.ledger import Ledger, LedgerConflict
from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.own import (
    APPEND_LEDGER,
    CONSUMER_LEASE,
    EPHEMERAL,
    FROM,
    LONGEST_TAG,
    SOURCE_SEAL,
    SPARK_LEDGER,
    SWEEP_NOTES,
    TARGET_LEDGER,
    TARGET_PROBE,
    UNFINISHED,
    ScaleNote,
    is_listed,
    is_own,
    stream_beside,
    tag_of,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import OpenStream, StoreAddress, parse_scope

BY_HAND = "Repeat its command to finish it; delete it yourself only if its events are elsewhere, too."


class MayBeOnlyCopy(Conflict):
    """An unfinished target may have events that nothing else has any more."""


def check_restorable(stream: OpenStream, described: StreamDescription, *, read: bool) -> None:
    """Check that the archive from which an unfinished target is restored still gives that very import.

    The import's name is a digest of what was archived and of what is restored of it, so the same name says the same
    content. The target is compared with it as before each run of the import; with ``read``, all that it holds is.

    Args:
        stream: the target.
        described: the target, as it is now; it may have been sealed by a sweep.
        read: read the target's bytes and the archive's.

    Raises:
        MayBeOnlyCopy: it does not, or this cannot be found out.
        Conflict: something else has changed the target.
    """
    begun = marked_import(described)
    origin = tag_of(described.configuration, FROM).partition(":")[2]
    if generation_of(begun) is None:
        raise MayBeOnlyCopy(
            "an unfinished copy may have events that its source has lost", where=stream.uri, todo=BY_HAND
        )
    if not origin or origin_tag(stream.name, origin) not in described.configuration.tags:
        raise MayBeOnlyCopy("nothing shows from which archive it was restored", where=stream.uri, todo=BY_HAND)
    try:
        plan = _plan(origin, begun)
    except Problem as problem:
        raise _unreadable(stream, problem) from None
    unfinished = Unfinished.find(stream)
    if plan is None or unfinished is None:
        what = f"its archive {origin} no longer has exactly what is restored"
        raise MayBeOnlyCopy(what, where=stream.uri, todo=BY_HAND)
    segments = replace(unfinished, described=replace(unfinished.described, sealed=False)).check(plan)
    if not read:
        return
    live = {segments[old]: planned for old, planned in plan.segments.items() if segments.get(old) in unfinished.ends}
    try:
        for info in stream.store.segment_info(stream.name, list(live)):
            target, planned = TargetSegment(stream.address, stream.name, info.segment), live[info.segment]
            task = FillTask(target, WINDOW_BYTES, planned.head, planned.spans, content=plan.content)
            compare_all(stream.store, task, info.start_offset, info.write_offset)
    except (Damaged, ObjectStoreError) as problem:
        raise _unreadable(stream, problem) from None


def _unreadable(stream: OpenStream, problem: Problem) -> MayBeOnlyCopy:
    what = f"its archive cannot be read ({problem.what})"
    return MayBeOnlyCopy(what, where=stream.uri, todo=BY_HAND)


def _plan(origin: str, begun: str) -> RestorePlan | None:
    """Plan an import of an archive as it was begun; None if the archive does not give it any more."""
    archive = Archive.open(origin)
    archive.check_open(archive.listing())
    selection = Planner(archive, ImportOptions(), Progress()).select(generation_of(begun))
    options = selection.begun_with(begun, ImportOptions())
    return None if options is None else plan_restore(selection.content(options), options)


Removal = Callable[[], None]
"""Deletes a leftover; raises a `Problem` if it must stay after all."""

ABOUT = "of:"
"""Prefix of the tag on a ledger; the stream that it is about follows."""


class MustStay(Conflict):
    """A stream is no leftover, or nothing shows that it is one."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The leftovers of a scope.

    Attributes:
        streams: returns a stream of the scope by its name.
        list_names: lists the names of all streams of the scope, as they are now.
        subjects: lease → the stream beside which it is, of the streams that there were when the sweep began.
        gone: streams that a dry run would have deleted.
    """

    streams: Callable[[StreamName], OpenStream]
    list_names: Callable[[], Iterator[StreamName]]
    subjects: Mapping[StreamName, StreamName]
    gone: set[StreamName] = field(default_factory=set)

    def ephemeral(self, described: StreamDescription) -> Removal:
        """Examine an ephemeral stream: it is deleted once its owner has not renewed it for as long as its tag says.

        Raises:
            MustStay: it is in use, or nothing shows whose it is.
        """
        stream, tag = self.streams(described.name), EphemeralTag.of(described.configuration)
        lease_name = ephemeral_lease(described.name)
        record = last_heartbeat(stream.store, lease_name)
        if tag is None or not tag.is_owned(described, record):
            raise MustStay("its tag is not that of the owner of this stream", where=stream.uri)

        def remove() -> None:
            if record is None or not is_dead(record):
                watch_silence(stream.store, lease_name, tag.seconds, held=_held(stream))
            with self._holding(stream, lease_name) as lease:
                found = stream.describe()
                if EphemeralTag.of(found.configuration) != tag or not tag.is_owned(found, lease.former):
                    raise MustStay("it is another stream now", where=stream.uri)
                lease.confirm()
                remove_stream(stream.store, found)

        return remove

    def lease(self, described: StreamDescription) -> Removal:
        """Examine a lease: it is deleted if nobody holds it, and nothing needs its record.

        Raises:
            MustStay: its stream needs it, or it is no lease.
        """
        stream = self.streams(described.name)
        _check_small(stream, described)
        self._check_lease(stream, last_heartbeat(stream.store, described.name), self.subjects.get(described.name))

        def remove() -> None:
            with self._holding(stream, described.name) as lease:
                # the stream may have been made since, by a run that has died, too
                names = self.list_names() if lease.former is not None and lease.former.finishing else iter(())
                beside = (name for name in names if described.name in _leases(name))
                subject = next(beside, self.subjects.get(described.name))
                self._check_lease(stream, lease.former, subject)

        return remove

    def _check_lease(self, stream: OpenStream, record: Heartbeat | None, subject: StreamName | None) -> None:
        segment = stream.describe()
        if record is None and not segment.sealed and any(segment.tail.offsets.values()):
            raise MustStay("its last record is not that of a lease", where=stream.uri)
        if subject is None or stream.name == stream_beside(subject, CONSUMER_LEASE):
            return
        found = self._find(subject)
        if found is None:
            return
        if stream.name == ephemeral_lease(subject):
            if EphemeralTag.of(found.configuration) is not None:
                raise MustStay(f"it shows who owns {subject}", where=stream.uri)
        elif is_own(found.configuration):
            raise MustStay(f"it belongs to {subject}, which is kept", where=stream.uri)
        elif record is not None and record.finishing and record.about in ("", first_segment_id(found)):
            raise MustStay(f"the last step of {subject} is missing; repeat its command", where=stream.uri)

    def ledger(self, described: StreamDescription) -> Removal:
        """Examine a ledger: it is deleted if the stream that it is about is gone.

        Raises:
            MustStay: the stream is there, or it is no ledger.
        """
        stream = self.streams(described.name)
        _check_small(stream, described)
        ledger, about = self._open_ledger(stream, described)
        self._check_ledger(stream, about)

        def remove() -> None:
            # of a target: its lease keeps away whoever would use this ledger for a new target of that name
            holding = self._holding(self.streams(about), lease_stream(about)) if _is(described, TARGET_LEDGER) else None
            if holding is None:
                self._check_ledger(stream, about)
                ledger.retire()
                return
            with holding as lease:
                self._check_ledger(stream, about)
                lease.confirm()
                ledger.retire()

        return remove

    def _open_ledger(self, stream: OpenStream, described: StreamDescription) -> tuple[Ledger, StreamName]:
        """Read a ledger; return it with the stream that it is about, which tag, name and record show."""
        about = _about(described)
        record: dict[str, Any] | None = None
        if about is not None:
            ledger = Ledger(stream.store, described.name, about)
            record = ledger.newest(create=False)
        also = str((record or {}).get("app", "")) if _is(described, SPARK_LEDGER) else ""
        if about is None or not (
            _is(described, SOURCE_SEAL)
            # that of an append that was refused has no record
            or (_is(described, APPEND_LEDGER) and (record is None or "stage" in record))
            or (_is(described, TARGET_LEDGER) and described.name == stream_beside(about, TARGET_LEDGER))
            or (also and described.name == stream_beside(about, SPARK_LEDGER, also))
        ):
            raise MustStay("nothing shows which stream it belongs to", where=stream.uri)
        return ledger, about

    def _check_ledger(self, stream: OpenStream, about: StreamName) -> None:
        """Check that the stream is gone. A stream that is created again has another ledger of who sealed it."""
        found = self._find(about)
        if found is None:
            return
        is_seal = stream.name.stream.startswith(SOURCE_SEAL)
        if not is_seal or stream.name == stream_beside(about, SOURCE_SEAL, first_segment_id(found)):
            raise MustStay(f"it belongs to {about}, which still exists", where=stream.uri)

    def target(self, described: StreamDescription) -> Removal:
        """Examine an unfinished target: it is deleted if it is empty, or if its archive has all that it holds.

        Raises:
            MustStay: it may have events that nothing else has.
        """
        stream = self.streams(described.name)
        self._check_target(described)

        def remove() -> None:
            with self._holding(stream, lease_stream(described.name)) as lease:
                found = stream.describe()
                if found.epochs[0] != described.epochs[0] or not tag_of(found.configuration, UNFINISHED):
                    raise MustStay("it is another stream now", where=stream.uri)
                self._check_target(found, read=True)
                lease.confirm()

                def check(fenced: StreamDescription) -> None:
                    lease.confirm()
                    self._check_target(fenced, read=fenced.tail != found.tail)

                remove_stream(stream.store, found, check)

        return remove

    def _check_target(self, described: StreamDescription, *, read: bool = False) -> None:
        work = marked_import(described)
        if generation_of(work) is None and not work.startswith(COPY):
            # only an import or a copy is not finished once its target is fenced
            raise MustStay("its run may still be active; repeat its command", where=str(described.name))
        if has_data(described):
            check_restorable(self.streams(described.name), described, read=read)

    def probe(self, described: StreamDescription) -> Removal:
        """Examine a stream on which policies were tried: it is empty, and a cut-over makes another one.

        Raises:
            MustStay: it is no such stream.
        """
        stream = self.streams(described.name)
        if not _is(described, TARGET_PROBE) or has_data(described):
            raise MustStay("it is not known what it is", where=stream.uri)
        return lambda: remove_stream(stream.store, described)

    def _find(self, name: StreamName) -> StreamDescription | None:
        return None if name in self.gone else self.streams(name).find()

    @contextmanager
    def _holding(self, stream: OpenStream, name: StreamName) -> Iterator[Lease]:
        """Hold a lease as whoever looks after what its dead holder has left; delete it if the block succeeds."""
        lease = Lease.take(stream.store, name, None, held=_held(stream))
        try:
            yield lease
        except BaseException:
            lease.release(remove=lease.former is None)
            raise
        lease.release(remove=True)


def subjects_of(names: Iterator[StreamName], own: set[StreamName]) -> dict[StreamName, StreamName]:
    """Return lease → the stream beside which it is, for the leases among a scope's internal streams."""
    return {lease: name for name in names for lease in _leases(name) if lease in own}


def _leases(name: StreamName) -> tuple[StreamName, ...]:
    return tuple(stream_beside(name, prefix) for prefix in LEASES)


def _held(stream: OpenStream) -> LeaseHeld:
    return LeaseHeld("it is in use", where=stream.uri)


def _is(described: StreamDescription, prefix: str) -> bool:
    return described.name.stream.startswith(prefix)


def _about(described: StreamDescription) -> StreamName | None:
    """The stream that a ledger's tag names, of the same scope; None if it names none."""
    with suppress(InvalidName):
        tag = tag_of(described.configuration, ABOUT)
        if len(ABOUT + tag) >= LONGEST_TAG:
            return None  # the end of a long name may be missing
        about = StreamName.parse(tag)
        return about if about.scope == described.name.scope else None
    return None


def _check_small(stream: OpenStream, described: StreamDescription) -> None:
    if len(described.epochs) != 1 or len(described.epochs[0].segments) != 1:
        raise MustStay("it has the name of a lease or a ledger, but is neither", where=stream.uri)


MOST = 4000
"""How many leftovers are noted; others wait until some of these are gone."""


class SweepNotes:
    """The notes of a scope.

    Args:
        store: its store.
        scope: the scope.
        writable: whether this sweep notes what it sees; a dry run only reads.

    Raises:
        LedgerNameTaken: another stream has the name of the notes.
    """

    def __init__(self, store: StreamStore, scope: str, *, writable: bool) -> None:
        self.name = StreamName(scope, SWEEP_NOTES)
        self._ledger = Ledger(store, self.name, self.name)
        self._writable = writable
        known = (self._ledger.newest(create=False) or {}).get("seen", {})
        self._known: dict[str, tuple[str, float]] = {name: (state, since) for name, (state, since) in known.items()}
        self._seen: dict[str, tuple[str, float]] = {}

    def unchanged_seconds(self, *seen: StreamDescription) -> float:
        """Note streams that belong together; return for how long sweeps have seen them like this (seconds)."""
        now, name, state = time.time(), seen[0].name.stream, _state(seen)
        known, since = self._known.get(name, ("", now))
        if known != state or since > now:
            since = now
        if len(self._seen) < MOST:
            self._seen[name] = (state, since)
        return now - since

    def save(self, kept: set[StreamName]) -> None:
        """Replace the notes by what this sweep has seen and not deleted. Those of another sweep hold."""
        seen = {name: noted for name, noted in self._seen.items() if StreamName(self.name.scope, name) in kept}
        if not self._writable or (seen and seen == self._known):
            return
        with suppress(LedgerConflict):
            if seen:
                self._ledger.newest()
                self._ledger.record({"seen": seen})
            else:
                self._ledger.retire()


def _state(seen: tuple[StreamDescription, ...]) -> str:
    """A digest of what changes if anybody works on streams."""
    state = [
        [str(one.name), [str(each) for each in one.tail.offsets.items()], sorted(one.configuration.tags), one.sealed]
        for one in seen
    ]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:20]


NEVER: frozenset[StreamRole] = frozenset({"stream", "queue", "tombstone"})
"""What no sweep looks at: users' streams, queues, and what `move` leaves for readers to find."""


@verb(SweepOptions)
def sweep_scope(scope: str, options: SweepOptions) -> SweepReport:
    """Delete what killed runs have left in a scope, as far as nothing can be lost with it.

    Deleted are ephemeral streams that have expired; leases that nobody holds and nothing needs; ledgers of streams that
    are gone; and unfinished targets of imports, if they are empty or if their archive still has all that they hold.
    Users' streams, queues, replicas and unfinished copies with data are never deleted. A stream that was scaled for an
    append that was killed gets its key ranges and its policy back.

    Args:
        scope: the scope, ``pravega://HOST:PORT/SCOPE/`` or ``local:///FOLDER/SCOPE/``.
        older_than: delete leases, ledgers and targets only if sweeps have found them unchanged for so long (seconds);
            0: at once. Ephemeral streams have an expiry of their own.
        dry_run: delete and note nothing; report what would be deleted.

    Raises:
        Usage: the URI is that of a store.
        NoSuchScope: the scope does not exist.
    """
    address, name = parse_scope(scope)
    if not name:
        raise Usage("a sweep is of one scope", where=scope, todo="Name it: the same URI followed by /SCOPE/.")
    with address.open() as store:
        sweep = _Sweep(store, address, name, options)
        scaled, warnings = sweep.give_back()
        return SweepReport(
            scope=f"{address.uri}/{name}/",
            leftovers=sweep.run(),
            scaled=scaled,
            warnings=warnings,
            dry_run=options.dry_run,
        )


class _Sweep:
    def __init__(self, store: StreamStore, address: StoreAddress, scope: str, options: SweepOptions) -> None:
        self._store = store
        self._options = options
        self._open: Callable[[StreamName], OpenStream] = partial(OpenStream, store, address)
        self._list = partial(store.list_streams, scope, own=True)
        found = [one for one in each_of(lambda name: self._open(name).find(), self._list()) if one is not None]
        own = {one.name for one in found if not is_listed(one.configuration)}
        self._scaled = [one.name for one in found if ScaleNote.of(one.configuration) is not None]
        self._notes = SweepNotes(store, scope, writable=not options.dry_run)
        self._own = sorted(own - {self._notes.name})
        self._leftovers = Leftovers(self._open, self._list, subjects_of(self._list(), own))

    def give_back(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Give streams what they had before an append scaled them that was killed; return their URIs, and warnings."""
        given, warnings = [], []
        for stream in map(self._open, self._scaled):
            try:
                warning = "" if self._options.dry_run else give_back(stream)
            except LeaseHeld:
                continue
            except Problem as problem:
                warnings.append(f"{stream.uri} was not restored to its state before an append: {problem.what}")
                continue
            given.append(stream.uri)
            warnings += [f"{stream.uri}: {warning}"] if warning else []
        return tuple(given), tuple(warnings)

    def run(self) -> tuple[SweepEntry, ...]:
        # targets take their leases along, and a ledger is deleted under its target's lease; so leases come last
        targets: tuple[StreamRole, ...] = ("ephemeral", "unfinished", "replica", "swept")
        passes: tuple[tuple[StreamRole, ...], ...] = (targets, ("ledger",), ())
        done: dict[StreamName, SweepEntry] = {}
        for roles in passes:
            swept = each_of(partial(self._sweep, roles), [one for one in self._own if one not in done])
            done |= {name: entry for name, entry in swept if entry is not None}
            if self._options.dry_run:
                self._leftovers.gone.update(name for name, entry in done.items() if entry.swept)
        self._notes.save({name for name, entry in done.items() if not entry.swept})
        return tuple(entry for _, entry in sorted(done.items()))

    def _sweep(self, roles: tuple[StreamRole, ...], name: StreamName) -> tuple[StreamName, SweepEntry | None]:
        """Sweep a stream if it has one of the roles; all roles if none is given."""
        try:
            described = self._store.describe(name)
        except (NoSuchStream, NoSuchScope):
            return name, None
        role = role_of(described)
        if role in NEVER or (roles and role not in roles):
            return name, None
        entry = partial(SweepEntry, stream=self._open(name).uri, role=role)
        try:
            removal = self._examine(role, described)
            self._check_age(role, described)
            if not self._options.dry_run:
                removal()
        except (NoSuchStream, NoSuchScope):
            return name, None  # somebody else has deleted it
        except Problem as problem:
            return name, entry(swept=False, reason=problem.what)
        return name, entry(swept=True)

    def _examine(self, role: StreamRole, described: StreamDescription) -> Removal:
        leftovers = self._leftovers
        if role == "swept":
            role = "ephemeral" if tag_of(described.configuration, EPHEMERAL) else "unfinished"
        if role == "unfinished" and not tag_of(described.configuration, UNFINISHED):
            return leftovers.probe(described)
        if role == "replica":
            raise MustStay("a replica may have events that its source has lost; promote it, or delete it yourself")
        examine = {
            "ephemeral": leftovers.ephemeral,
            "unfinished": leftovers.target,
            "lease": leftovers.lease,
            "ledger": leftovers.ledger,
            "internal": leftovers.probe,
        }
        return examine[role](described)

    def _check_age(self, role: StreamRole, described: StreamDescription) -> None:
        if role in {"ephemeral", "swept"}:
            return  # has an expiry of its own, or was old enough before
        lease = self._open(lease_stream(described.name)).find() if role == "unfinished" else None
        unchanged = self._notes.unchanged_seconds(described, *([lease] if lease is not None else []))
        if unchanged < self._options.older_than:
            left = duration_text(float(round(self._options.older_than - unchanged)))
            raise MustStay(f"another sweep may delete it in {left} or later, unless it changes")
