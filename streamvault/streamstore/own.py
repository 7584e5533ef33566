"""Streamvault's internal streams, its notes in the tags of users' streams, and how the two kinds are distinguished.

Leases, ledgers, queues and the targets of unfinished imports carry the tag `OWN`. Only the tag counts, never the name:
a stream that merely has a similar name belongs to its user. An ephemeral stream is its user's: commands that name it
take it like any other, but scopes are listed without it, and its tag is never carried to another stream.

Leases, ledgers and queues append their records to the only segment of a stream that is created with the tag `OWN`. Of
two appends at the same offset one is rejected, so the store decides between writers; and whoever opened the stream
deletes it only if it was not created again.

A stream that is scaled for an append has a note of what it gets back afterwards. While events are appended to a stream
whose key ranges are finer than those of the sources, some of its segments are merged, and its policy lets the store
scale nothing. The note is set together with that policy, before the first scale. So whoever finds it knows the policy
and the key ranges before, even if the append was killed; and to those who only read the stream, it has the policy that
its user has set.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from streamvault.common.errors import Conflict
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream, StreamChanged
from streamvault.streamstore.model import (
    KeyRange,
    Range,
    ScaleKind,
    Scaling,
    SegmentId,
    SegmentInfo,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import SegmentAppender, StreamStore

SCALED = "streamvault-scaled:"
"""Prefix of the tag that has the note."""

MEANWHILE = Scaling.never()
"""The policy of a stream that is scaled for an append."""


@dataclass(frozen=True, slots=True)
class ScaleNote:
    """What a stream gets back.

    Attributes:
        first: which stream it is about, see `importer.target.first_segment_id`.
        former: the epoch that has the key ranges.
        made: the epoch that the newest scale for an append makes; the epochs between are of earlier ones.
        ranges: tells the key ranges of that scale's new segments from others, see `ranges_digest`.
        lease: name of the lease of the append that has set it, in the stream's scope.
        scaling: the policy.
    """

    first: str
    former: int
    made: int
    ranges: str
    lease: str
    scaling: Scaling

    def tag(self) -> str:
        """Return the tag."""
        policy = self.scaling
        fields = (self.first, self.former, self.made, self.ranges, self.lease)
        return SCALED + ",".join(
            map(str, (*fields, policy.kind.value, policy.target, policy.factor, policy.min_segments))
        )

    @classmethod
    def of(cls, configuration: StreamConfiguration) -> ScaleNote | None:
        """Return the note among a stream's tags; None if there is none."""
        return next(filter(None, map(cls.parse, configuration.tags)), None)

    @classmethod
    def parse(cls, tag: str) -> ScaleNote | None:
        """Parse the output of `tag`; None if it is another text."""
        with suppress(ValueError):
            if tag.startswith(SCALED):
                first, former, made, ranges, lease, kind, *numbers = tag.removeprefix(SCALED).split(",")
                target, factor, least = map(int, numbers)
                if not 0 <= int(former) < int(made):
                    raise ValueError
                scaling = Scaling(ScaleKind(kind), target, factor, least)
                return cls(first, int(former), int(made), ranges, lease, scaling)
        return None


def users_configuration(configuration: StreamConfiguration) -> StreamConfiguration:
    """Return the configuration that a stream's user has set: without a note, and with the policy that is in it.

    A policy that the user has set meanwhile is the user's.
    """
    note = ScaleNote.of(configuration)
    if note is None:
        return configuration
    scaling = note.scaling if configuration.scaling == MEANWHILE else configuration.scaling
    return replace(configuration, scaling=scaling, tags=_without_note(configuration))


def noted(configuration: StreamConfiguration, note: ScaleNote) -> StreamConfiguration:
    """Return the configuration of a stream that is scaled for an append."""
    return replace(configuration, scaling=MEANWHILE, tags=(*_without_note(configuration), note.tag()))


def ranges_digest(ranges: Iterable[KeyRange]) -> str:
    """Return a short digest of key ranges, in any order."""
    return hashlib.sha256(repr(sorted((held.low, held.high) for held in ranges)).encode()).hexdigest()[:16]


def _without_note(configuration: StreamConfiguration) -> tuple[str, ...]:
    return tuple(tag for tag in configuration.tags if not tag.startswith(SCALED))


_FILLED = re.compile(r"([0-9]{1,9})\.#epoch\.([0-9]{1,9}):([0-9]{1,19})-([0-9]{1,19})")

LONGEST_TAG = 256
"""Pravega accepts no longer tag (characters)."""

MOST_TAGS = 127
"""Pravega accepts no more tags on a stream."""

OWN = "streamvault-own"
"""The tag on every internal stream, from its creation on."""

UNFINISHED = "streamvault-import:"
"""Prefix of the tag on an unfinished target; the name of the import, copy or replica follows."""

FROM = "streamvault-from:"
"""Prefix of the tag on an unfinished target that says what it is restored from; see `importer.target`."""

COPY_OF = "streamvault-copy-of:"
"""Prefix of the tag on a finished copy; the source's scope and name follow."""

REPLICA_OF = "streamvault-replica-of:"
"""Prefix of the tag on a promoted replica; the source's URI follows."""

RESTORED = "streamvault-restored:"
"""Prefix of the tag on a stream that was restored under its own name and address; the name of the import follows."""

JOIN = "join."
"""Prefix of the name of a join, in the tag of its unfinished target."""

MOVED_TO = "streamvault-moved-to:"
"""Prefix of the tag on the empty sealed stream that a move leaves; the URI of the moved stream follows."""

FILLED = "streamvault-filled:"
"""Prefix of the tags on a restored stream that say which of its bytes are filler in place of a gap: comma-separated
``SEGMENT:START-END``, and ``+N`` for N more places that no tag has room for."""

EPHEMERAL = "streamvault-ephemeral:"
"""Prefix of the tag on an ephemeral stream; its owner and its expiry follow (`manager.ephemeral`)."""

SWEPT = "streamvault-swept"
"""The tag on a stream that a sweep, or its owner, is deleting. It is never removed."""

TARGET_LEASE = "streamvault-import-"
"""Prefix of the name of the lease beside an unfinished target."""

TARGET_LEDGER = "streamvault-copy-"
"""Prefix of the name of the ledger beside a replica, or an unfinished copy that is not made by events."""

TARGET_PROBE = "streamvault-probe-"
"""Prefix of the name of the stream on which the policies of a replica are tried before its source is sealed."""

SOURCE_SEAL = "streamvault-seal-"
"""Prefix of the name of the ledger beside a source that says whether a cut-over seals it."""

CONSUMER_LEASE = "streamvault-consumer-"
"""Prefix of the name of the lease beside a queue."""

EPHEMERAL_LEASE = "streamvault-ephemeral-"
"""Prefix of the name of the lease beside an ephemeral stream."""

SPARK_LEDGER = "spark-writes-"
"""Prefix of the name of the ledger beside a stream that a named Spark writer writes to."""

APPEND_LEDGER = "streamvault-append-"
"""Prefix of the name of the log beside a stream that others were appended to, or that is a copy by events."""

APPEND_LEASE = "streamvault-appending-"
"""Prefix of the name of the lease beside a stream that other streams or archives are being appended to."""

SWEEP_NOTES = "streamvault-sweep"
"""The name of the ledger in each scope of what sweeps have seen there."""

FAILED_SUFFIX = "-failed"
"""Suffix of the name of the queue that holds the failed entries of another one."""


def stream_beside(target: StreamName, prefix: str, *also: str) -> StreamName:
    """Return the name of an internal stream that belongs to another stream, in the same scope.

    Args:
        target: the stream it belongs to.
        prefix: one of the prefixes above.
        also: what else tells it from others of its kind.
    """
    text = "\n".join((str(target), *also))
    return StreamName(target.scope, prefix + hashlib.sha256(text.encode()).hexdigest()[: 24 if also else 20])


class OwnStream(Conflict):
    """The stream is one of Streamvault's internal streams, so commands do not archive, change or write to it."""


def tag_of(configuration: StreamConfiguration, prefix: str) -> str:
    """Return what follows a prefix in a stream's tags; empty if no tag has it."""
    return next((tag.removeprefix(prefix) for tag in configuration.tags if tag.startswith(prefix)), "")


def users_tags(configuration: StreamConfiguration) -> tuple[str, ...]:
    """Return a stream's tags without Streamvault's."""
    ours = (UNFINISHED, FROM, COPY_OF, REPLICA_OF, RESTORED, MOVED_TO, EPHEMERAL, SWEPT, SCALED, FILLED)
    return tuple(tag for tag in configuration.tags if tag != OWN and not tag.startswith(ours))


def filled_tags(places: Iterable[Range], room: int) -> tuple[str, ...]:
    """Return the tags that say where an import has put zeros in place of a gap, at most ``room`` of them."""
    texts = deque(f"{place.segment}:{place.start}-{place.end}" for place in places)
    tags: list[str] = []
    while texts and len(tags) < room:
        tag = FILLED
        more = f",+{len(texts)}" if len(tags) == room - 1 else ""
        while texts and len(tag) + len(texts[0]) + 1 + len(more) <= LONGEST_TAG:
            tag += ("," if tag != FILLED else "") + texts.popleft()
        tags.append(f"{tag},+{len(texts)}" if more and texts else tag)
    return tuple(tags)


def filled_places(configuration: StreamConfiguration) -> tuple[tuple[Range, ...], int]:
    """Return where a stream has filler by its tags, in order, and in how many places more. Other texts are ignored."""
    found, more = set[Range](), 0
    for tag in configuration.tags:
        for text in tag.removeprefix(FILLED).split(",") if tag.startswith(FILLED) else ():
            if match := _FILLED.fullmatch(text):
                found.add(Range(SegmentId(int(match[2]), int(match[1])), int(match[3]), int(match[4])))
            elif text.startswith("+") and text[1:].isdecimal():
                more += int(text[1:])
    return tuple(sorted(found)), more


def is_own(configuration: StreamConfiguration) -> bool:
    """Return whether a stream with this configuration is an internal one."""
    return OWN in configuration.tags


def is_listed(configuration: StreamConfiguration) -> bool:
    """Return whether a stream is listed in its scope by default: a user's stream that is there to stay."""
    return not is_own(configuration) and not tag_of(configuration, EPHEMERAL)


def describe_source(store: StreamStore, stream: StreamName) -> StreamDescription:
    """Describe a stream that a command reads or truncates, with the configuration that its user has set.

    Raises:
        OwnStream: the stream is an internal one.
        NoSuchScope: the scope does not exist.
        NoSuchStream: the stream does not exist.
    """
    described = store.describe(stream)
    check_users(store, described)
    return replace(described, configuration=users_configuration(described.configuration))


def check_users(store: StreamStore, described: StreamDescription) -> None:
    """Check that a stream is a user's, and is still there.

    Raises:
        OwnStream: it is an internal one.
    """
    if moved := tag_of(described.configuration, MOVED_TO):
        raise OwnStream("the stream was moved", where=f"{store.uri}/{described.name}", todo=f"It is {moved} now.")
    if is_own(described.configuration):
        raise own_stream(store, described)


def own_stream(store: StreamStore, described: StreamDescription) -> OwnStream:
    """Build the error for an internal stream; its tags tell which kind of one it is."""
    where = f"{store.uri}/{described.name}"
    if moved := tag_of(described.configuration, MOVED_TO):
        return OwnStream(
            "this name belongs to an empty sealed stream that 'move' has left",
            where=where,
            todo=f"The stream is {moved} now. Delete the empty one to use its name again.",
        )
    if tag_of(described.configuration, UNFINISHED):
        return OwnStream(
            "this is an internal stream of Streamvault (a replica, or an unfinished import or copy)",
            where=where,
            todo="Use the stream that it is made from. Promote a replica, or let the import or copy finish first.",
        )
    return OwnStream(
        "this is an internal stream of Streamvault (a queue, a lease, a ledger, or an unfinished import)",
        where=where,
        todo="Choose another stream, or let the import finish first.",
    )


class OwnSegment:
    """The only segment of an internal stream.

    Attributes:
        store: the stream's store.
        name: the stream.
        segment: its segment; after a deletion, the next stream of this name has another one.
    """

    def __init__(self, store: StreamStore, described: StreamDescription) -> None:
        self.store = store
        self.name = described.name
        self.segment = next(iter(described.tail.offsets))
        self._first = described.epochs[0]

    @property
    def where(self) -> str:
        """The segment's full name, for messages."""
        return f"{self.store.uri}/{self.segment.in_stream(self.name)}"

    def info(self) -> SegmentInfo:
        """Return the segment's current start and write offsets."""
        return self.store.segment_info(self.name, [self.segment])[0]

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes ``[start, end)``; errors as `StreamStore.read`."""
        return self.store.read_bytes(self.name, self.segment, start, end)

    def appender(self) -> SegmentAppender:
        """Open the segment for one record at a time; errors as `StreamStore.appender`."""
        return self.store.appender(self.name, self.segment, in_flight=1)

    def truncate(self, offset: int) -> None:
        """Move the stream's head up to an offset."""
        self.store.truncate(StreamCut(self.name, {self.segment: offset}))

    def delete(self) -> None:
        """Delete the stream that was opened; another one of its name stays."""
        with suppress(NoSuchStream, NoSuchScope, StreamChanged):
            self.store.delete(self.name, first=self._first)
