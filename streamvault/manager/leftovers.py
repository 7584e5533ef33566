"""Which internal streams of a scope are leftovers, and how each is deleted so that a late call harms nothing.

For each kind it is known what its deletion would lose. A lease that nobody holds loses nothing, unless its record says
that an import was finishing. A ledger is needed as long as its stream is there. The target of an unfinished import has
nothing that the archive has not, if the archive still gives that very import. A replica, or the target of a copy, may
have events that no other stream has any more: they always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from streamvault.common.errors import Conflict
from streamvault.importer.from_archive import generation_of
from streamvault.importer.ownership import first_segment_id, lease_stream, marked_import
from streamvault.importer.target import has_data
from streamvault.manager.ephemeral import EphemeralTag, ephemeral_lease
from streamvault.manager.removal import remove_stream
from streamvault.manager.restored import check_restorable
from streamvault.manager.roles import LEASES
from streamvault.mirrors.copying import COPY
from streamvault.streamstore.errors import InvalidName
from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import (
    APPEND_LEDGER,
    CONSUMER_LEASE,
    LONGEST_TAG,
    SOURCE_SEAL,
    SPARK_LEDGER,
    TARGET_LEDGER,
    TARGET_PROBE,
    UNFINISHED,
    is_own,
    stream_beside,
    tag_of,
)
from streamvault.streamstore.services.lease import Heartbeat, Lease, LeaseHeld, is_dead, last_heartbeat, watch_silence
from streamvault.streamstore.services.ledger import Ledger

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
                raise MustStay(f"it shows whose {subject} is", where=stream.uri)
        elif is_own(found.configuration):
            raise MustStay(f"it belongs to {subject}, which stays", where=stream.uri)
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
            raise MustStay("nothing shows which stream it is about", where=stream.uri)
        return ledger, about

    def _check_ledger(self, stream: OpenStream, about: StreamName) -> None:
        """Check that the stream is gone. A stream that is created again has another ledger of who sealed it."""
        found = self._find(about)
        if found is None:
            return
        is_seal = stream.name.stream.startswith(SOURCE_SEAL)
        if not is_seal or stream.name == stream_beside(about, SOURCE_SEAL, first_segment_id(found)):
            raise MustStay(f"it is about {about}, which is still there", where=stream.uri)

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
        raise MustStay("it has the name of a lease or a ledger, and is none", where=stream.uri)
