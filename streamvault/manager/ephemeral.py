"""Ephemeral streams, which exist while a block of a program runs; deletion of a stream that nobody needs any more.

A tag on the stream names its owner and says after how many seconds without a renewal it has expired. A lease beside it
is the renewal: its holder appends a record every two seconds, which names the owner and the stream. The tag alone
shows nothing, as it can be copied to another stream; a sweep needs both. Renewing the tag itself was rejected: Pravega
rescales a stream with a fixed policy at each update, and a sealed stream takes none.

A deletion that comes late deletes nothing else. First a tag fences the stream: it replaces the configuration that was
looked at, so it fails if anybody has changed the stream since, and whoever finds it leaves the stream alone. Then the
stream is looked at once more, and again when it is sealed and nothing can be written to it any more. Seal and deletion
name its first epoch, so a stream that is created again under its name stays.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Self

from streamvault.common.errors import Conflict, Problem, Usage
from streamvault.importer.plan import fitting_configuration
from streamvault.importer.target import first_segment_id
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream, StreamChanged, StreamExists, StreamSealed
from streamvault.streamstore.lease import PATIENCE_SECONDS, Heartbeat, Lease, LeaseHeld
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamDescription, StreamName
from streamvault.streamstore.own import EPHEMERAL, EPHEMERAL_LEASE, MOST_TAGS, OWN, SWEPT, stream_beside, tag_of
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import OpenStream, parse_stream


def remove_stream(
    store: StreamStore, seen: StreamDescription, check: Callable[[StreamDescription], None] = lambda _: None
) -> None:
    """Fence a stream, check it, seal and delete it. A stream that is gone meanwhile is no error.

    Args:
        store: its store.
        seen: the stream, as it was when it was decided to delete it.
        check: looks at the fenced stream, and at the sealed one, and raises if it must stay.

    Raises:
        StreamChanged: it was configured, or created again, since.
        StreamSealed: it was sealed since.
    """
    with suppress(NoSuchStream, NoSuchScope):
        if not seen.sealed:  # the configuration of a sealed stream cannot change any more
            store.update_stream(seen.name, fenced(seen), was=seen.configuration)
        check(store.describe(seen.name))
        store.seal(seen.name, first=seen.epochs[0])
        check(store.describe(seen.name))
        store.delete(seen.name, first=seen.epochs[0])


def fenced(seen: StreamDescription) -> StreamConfiguration:
    """Return a stream's configuration with the tags of one that is being deleted. It does not make the store scale."""
    fitting = fitting_configuration(seen.configuration, len(seen.tail.offsets))
    others = (tag for tag in seen.configuration.tags if tag not in {OWN, SWEPT})
    return replace(fitting, tags=(OWN, SWEPT, *others)[:MOST_TAGS])


LONGEST_SECONDS = 600.0
"""The longest expiry: a sweep watches for so long."""

ATTEMPTS = 5
"""How often a stream is deleted that is configured meanwhile."""


@dataclass(frozen=True, slots=True)
class EphemeralTag:
    """What the tag on an ephemeral stream says.

    Attributes:
        owner: who made the stream; the work of the lease beside it.
        seconds: how long after its last renewal it has expired.
    """

    owner: str
    seconds: float

    @classmethod
    def of(cls, configuration: StreamConfiguration) -> Self | None:
        """Read it from a stream's tags; None if there is none, or it is not one of ours."""
        owner, _, seconds = tag_of(configuration, EPHEMERAL).partition(":")
        with suppress(ValueError):
            if owner and PATIENCE_SECONDS <= float(seconds) <= LONGEST_SECONDS:
                return cls(owner, float(seconds))
        return None

    def __str__(self) -> str:
        return f"{EPHEMERAL}{self.owner}:{self.seconds:g}"

    def is_owned(self, described: StreamDescription, record: Heartbeat | None) -> bool:
        """Return whether a lease's record is that of this very stream's owner.

        An owner that died before it could name the stream is told by the stream's being empty.
        """
        if record is None or record.work != self.owner:
            return False
        is_empty = len(described.epochs) == 1 and not any(described.tail.offsets.values())
        return record.about == first_segment_id(described) or (not record.about and is_empty)


def ephemeral_lease(name: StreamName) -> StreamName:
    """Return the name of the lease beside an ephemeral stream."""
    return stream_beside(name, EPHEMERAL_LEASE)


@contextmanager
def ephemeral_stream(stream: str, *, segments: int = 1, expires_after: float = 60.0) -> Iterator[str]:
    """Make a stream for a block of code; a context manager. It is sealed and deleted at the block's end.

    While the block runs, the stream is renewed. If the process dies, `sweep_scope` deletes the stream once it has
    expired. A process that is forked in the block does not end the stream. Listings of scopes leave it out; verbs that
    name it take it like any other stream. A copy of it, or a stream that was restored from its archive, is there to
    stay.

    Args:
        stream: the stream's URI; its scope is created if missing.
        segments: number of segments, of equal key ranges.
        expires_after: seconds without a renewal after which the stream has expired, from 12 to 600: how long this
            process may be paused, or cut off from the store.

    Yields:
        The stream's URI.

    Raises:
        StreamExists: a stream has the name; before the block.
        Conflict: the stream was deleted, or created again, while the block ran, or has expired; after the block.
        Usage: ``segments`` or ``expires_after`` is out of range.
    """
    if not PATIENCE_SECONDS <= expires_after <= LONGEST_SECONDS:
        what = f"expires_after must be from {PATIENCE_SECONDS:g} to {LONGEST_SECONDS:g} seconds"
        raise Usage(what, where=f"{expires_after:g}")
    if segments < 1:
        raise Usage("segments must be at least 1", where=str(segments))
    address, name = parse_stream(stream)
    opened, process = OpenStream(address.open(), address, name), os.getpid()
    with ExitStack() as stack:
        stack.callback(opened.store.close)
        tag = EphemeralTag(uuid.uuid4().hex, expires_after)
        lease, described = _make(opened, tag, segments)

        def end() -> None:
            if os.getpid() == process:
                _end(opened, tag, lease, described)
            else:
                stack.pop_all()  # the stream and the connections are those of the process that was forked

        try:
            yield opened.uri
        except BaseException:
            with suppress(Problem):  # what was raised says more; a sweep deletes what is left
                end()
            raise
        end()


def _make(stream: OpenStream, tag: EphemeralTag, segments: int) -> tuple[Lease, StreamDescription]:
    """Take the lease, create the stream, and name it in the lease's record."""
    held = LeaseHeld("another process is creating an ephemeral stream with this name", where=stream.uri)
    if stream.exists():  # before the lease is taken, whose record may be needed to delete what is left of the stream
        raise _exists(stream)
    lease = Lease.take(stream.store, ephemeral_lease(stream.name), tag.owner, held=held)
    try:
        configuration = StreamConfiguration(Scaling(min_segments=segments), tags=(str(tag),))
        stream.store.create_stream_and_scope(stream.name, configuration)
        described = stream.describe()
        lease.finishing(first_segment_id(described))
    except StreamExists:
        lease.release(remove=True)
        raise _exists(stream) from None
    except BaseException:
        lease.release(remove=False)
        raise
    return lease, described


def _exists(stream: OpenStream) -> StreamExists:
    return StreamExists(
        "the stream exists",
        where=stream.uri,
        todo="Choose another name, or run 'streamvault sweep' if it is what a killed program has left.",
    )


def _end(stream: OpenStream, tag: EphemeralTag, lease: Lease, made: StreamDescription) -> None:
    """Delete the stream, then the lease, unless the stream is another one now, or its tag was removed."""
    is_done = False
    try:
        for attempt in range(ATTEMPTS):
            found = stream.find()
            if found is None or found.epochs[0] != made.epochs[0]:
                is_done = True
                raise Conflict("the ephemeral stream was deleted while it was in use", where=stream.uri)
            if EphemeralTag.of(found.configuration) != tag:
                is_done = True
                raise Conflict(
                    "the tag of the ephemeral stream was removed, so it was not deleted",
                    where=stream.uri,
                    todo="Delete it yourself if you do not need it.",
                )
            try:
                remove_stream(stream.store, found)
                is_done = True
                break
            except (StreamChanged, StreamSealed):  # its policies were changed, or it was sealed
                if attempt == ATTEMPTS - 1:
                    raise
        lease.check()
    finally:
        lease.release(remove=is_done)  # a sweep needs it to delete the stream
