"""What a replica repeats: a live stream, or an archive that grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from streamvault.common.times import now_utc
from streamvault.importer.from_archive import Selection
from streamvault.importer.options import RestoreOptions, TargetOptions
from streamvault.importer.ownership import first_segment_id
from streamvault.importer.plan import Content
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.changed import unless_changed
from streamvault.manifests.archive.history import History
from streamvault.manifests.archive.selection import select_parts
from streamvault.mirrors.from_stream import stream_content
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.arithmetic.cuts import later_of, segments_between
from streamvault.streamstore.errors import AccessDenied, NoSuchSegment, SegmentTruncated
from streamvault.streamstore.model import SegmentId, StreamCut, StreamDescription, StreamName
from streamvault.streamstore.open_stream import OpenStream, open_stream
from streamvault.streamstore.own import SOURCE_SEAL, describe_source, stream_beside
from streamvault.streamstore.services.ledger import Ledger, LedgerConflict
from streamvault.streamstore.uri import is_stream

SEALING = "sealing"
"""Whether a cut-over seals the source, in the records of the ledger beside it."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source at one moment.

    Attributes:
        described: the source; its head and tail bound what it has.
        taken: when the tail was taken, or a little before.
    """

    described: StreamDescription
    taken: datetime


class Source(Protocol):
    """A source of replicas.

    Attributes:
        uri: its URI.
        name: the stream.
    """

    uri: str
    name: StreamName

    def look(self) -> SourceState:
        """Describe the source as it is now.

        Raises:
            NoSuchStream, NoSuchArchive: it does not exist.
            OwnStream: it is an internal stream.
        """

    def content(self, look: SourceState, options: TargetOptions, *, import_id: str, first_head: StreamCut) -> Content:
        """Return what a replica must hold.

        Args:
            look: the source.
            options: how it becomes a new stream.
            import_id: see `importer.plan.RestorePlan`.
            first_head: where the replica began, see `Content.bases`.

        Raises:
            SourceTruncated: it was truncated since.
        """

    def sealed_ends(self, segments: Iterable[SegmentId]) -> Mapping[SegmentId, int]:
        """Return the ends (bytes) of sealed segments; those that it no longer has are absent."""

    def is_sealed_by_user(self, described: StreamDescription) -> bool:
        """Return whether the source is sealed, and not by a cut-over.

        Args:
            described: the source.
        """

    def reading(self) -> AbstractContextManager[None]:
        """Return a context in which a content is read.

        Raises:
            Overtaken: on leaving it, in place of `Damaged`, if what was read was replaced or has expired meanwhile.
        """


class StreamSource:
    """A live stream as a `Source`.

    Attributes:
        stream: the stream.
        name: see `Source`.
        uri: see `Source`.
    """

    def __init__(self, stream: OpenStream) -> None:
        self.stream = stream
        self.name = stream.name
        self.uri = stream.uri

    def look(self) -> SourceState:
        """See `Source.look`."""
        taken = now_utc()
        return SourceState(describe_source(self.stream.store, self.name), taken)

    def content(
        self,
        look: SourceState,
        options: TargetOptions,  # noqa: ARG002  (a stream's bytes are the same for all of them)
        *,
        import_id: str,
        first_head: StreamCut,
        from_cut: StreamCut | None = None,
        to_cut: StreamCut | None = None,
    ) -> Content:
        """See `Source.content`; ``from_cut`` and ``to_cut`` are as for `stream_content`."""
        try:
            return stream_content(
                self.stream,
                look.described,
                import_id=import_id,
                first_head=first_head,
                from_cut=from_cut,
                to_cut=to_cut,
            )
        except (NoSuchSegment, SegmentTruncated) as error:
            if describe_source(self.stream.store, self.name).head == look.described.head:
                raise
            raise SourceTruncated(error.what, where=error.where) from None

    def sealed_ends(self, segments: Iterable[SegmentId]) -> Mapping[SegmentId, int]:
        """See `Source.sealed_ends`."""
        asked = list(segments)
        try:
            return {info.segment: info.write_offset for info in self.stream.store.segment_info(self.name, asked)}
        except NoSuchSegment as error:
            raise SourceTruncated(error.what, where=error.where) from None

    def reading(self) -> AbstractContextManager[None]:
        """See `Source.reading`."""
        return nullcontext()

    def seal(self, described: StreamDescription) -> None:
        """Seal the stream for a cut-over, if it still is the one described, and say beside it that it was a cut-over.

        Raises:
            AccessDenied: the store refuses the seal, or the ledger that says who seals. The stream is open then.
            StreamChanged: it was deleted and created again.
        """
        ledger = self._seal_ledger(first_segment_id(described))
        if not described.sealed:
            _note_seal(ledger)
        try:
            self.stream.store.seal(self.name, first=described.epochs[0])
        except AccessDenied:
            with suppress(LedgerConflict):  # of another cut-over, which may seal it
                ledger.record({SEALING: False})  # who seals it later is its user
            raise

    def is_sealed_by_user(self, described: StreamDescription) -> bool:
        """See `Source.is_sealed_by_user`."""
        if not described.sealed:
            return False
        known = self._seal_ledger(first_segment_id(described)).newest(create=False)
        return known is None or not known[SEALING]

    def forget_seal(self, first: str) -> None:
        """Delete the ledger that says who sealed the stream, once the stream is deleted.

        Args:
            first: which stream of this name it was (`importer.ownership.first_segment_id`).
        """
        ledger = self._seal_ledger(first)
        ledger.newest(create=False)
        ledger.delete()

    def _seal_ledger(self, first: str) -> Ledger:
        """The ledger of who seals the stream; a stream that is created again has another one."""
        return Ledger(self.stream.store, stream_beside(self.name, SOURCE_SEAL, first), self.name)


class ArchiveSource:
    """An archive as a `Source`: each new generation is something new.

    Attributes:
        name: see `Source`.
        uri: see `Source`.
    """

    def __init__(self, uri: str) -> None:
        self._archive = Archive.open(uri)
        self.uri = self._archive.uri
        self.name = self._archive.stream
        self._history: History | None = None
        self._spans: object = None

    def look(self) -> SourceState:
        """See `Source.look`; manifests are read only if there is another generation, or one less."""
        history = self._newest()
        return SourceState(history.description, history.newest.created)

    def content(self, look: SourceState, options: TargetOptions, *, import_id: str, first_head: StreamCut) -> Content:  # noqa: ARG002
        """See `Source.content`."""
        history = self._history or self._newest()
        with self.reading():
            selected = Selection(self._archive, history, select_parts(history))
        content = selected.content(RestoreOptions(**options.model_dump(include=set(TargetOptions.model_fields))))
        return replace(content, import_id=import_id, bases=dict(first_head.offsets))

    def sealed_ends(self, segments: Iterable[SegmentId]) -> Mapping[SegmentId, int]:
        """See `Source.sealed_ends`."""
        history = self._history or self._newest()
        with self.reading():
            ends = {segment: history.end(segment) for segment in segments}
        return {segment: end for segment, end in ends.items() if end is not None}

    def is_sealed_by_user(self, described: StreamDescription) -> bool:
        """See `Source.is_sealed_by_user`."""
        return described.sealed

    def reading(self) -> AbstractContextManager[None]:
        """See `Source.reading`."""
        history = self._history or self._newest()
        return unless_changed(self._archive, history, history.first, doing="replicated")

    def _newest(self) -> History:
        spans = self._archive.listing().spans
        if self._history is None or spans != self._spans:
            self._history, self._spans = self._archive.history(), spans
        return self._history


def open_source(uri: str, stack: ExitStack) -> StreamSource | ArchiveSource:
    """Open a source; ``stack`` closes it.

    Raises:
        InvalidName, Usage: the URI is not valid.
    """
    return StreamSource(stack.enter_context(open_stream(uri))) if is_stream(uri) else ArchiveSource(uri)


def _note_seal(ledger: Ledger) -> None:
    """Record that a cut-over seals a source; each one has a record of its own, which only it takes back."""
    while True:
        ledger.newest()
        with suppress(LedgerConflict):  # another cut-over was quicker
            return ledger.record({SEALING: True})


def bytes_between(source: Source, described: StreamDescription, reached: StreamCut) -> int:
    """Return how many bytes a source has after a cut; what it has truncated does not count.

    Raises:
        SourceTruncated: it was truncated since it was described.
    """
    between = segments_between(described, later_of(described, reached, described.head), described.tail)
    ends = source.sealed_ends(segment for segment, (_, end) in between.items() if end is None)
    return sum(max(0, (ends.get(s, low) if end is None else end) - low) for s, (low, end) in between.items())
