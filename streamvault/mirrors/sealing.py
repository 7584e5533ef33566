"""Seals a source for a cut-over. A ledger beside it says so, so that the seal is not taken for its user's."""

from __future__ import annotations

from contextlib import suppress

from streamvault.importer.ownership import first_segment_id
from streamvault.reading.source import Source
from streamvault.reading.stream_source import StreamSource
from streamvault.streamstore.errors import AccessDenied
from streamvault.streamstore.model import StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import SOURCE_SEAL, stream_beside
from streamvault.streamstore.services.ledger import Ledger, LedgerConflict

SEALING = "sealing"
"""Whether a cut-over seals the source, in the records of the ledger beside it."""


def seal_source(stream: OpenStream, described: StreamDescription) -> None:
    """Seal a stream for a cut-over, if it still is the one described, and say beside it that it was a cut-over.

    Raises:
        AccessDenied: the store refuses the seal, or the ledger that says who seals. The stream is open then.
        StreamChanged: it was deleted and created again.
    """
    ledger = _ledger(stream, first_segment_id(described))
    if not described.sealed:
        _note_seal(ledger)
    try:
        stream.store.seal(stream.name, first=described.epochs[0])
    except AccessDenied:
        with suppress(LedgerConflict):  # of another cut-over, which may seal it
            ledger.record({SEALING: False})  # who seals it later is its user
        raise


def is_sealed_by_user(source: Source, described: StreamDescription) -> bool:
    """Return whether a source is sealed, and not by a cut-over."""
    if not described.sealed or not isinstance(source, StreamSource):
        return described.sealed
    known = _ledger(source.stream, first_segment_id(described)).newest(create=False)
    return known is None or not known[SEALING]


def forget_seal(stream: OpenStream, first: str) -> None:
    """Delete the ledger that says who sealed a stream, once the stream is deleted.

    Args:
        stream: the stream.
        first: which stream of this name it was (`importer.ownership.first_segment_id`).
    """
    ledger = _ledger(stream, first)
    ledger.newest(create=False)
    ledger.delete()


def _ledger(stream: OpenStream, first: str) -> Ledger:
    """The ledger of who seals the stream; a stream that is created again has another one."""
    return Ledger(stream.store, stream_beside(stream.name, SOURCE_SEAL, first), stream.name)


def _note_seal(ledger: Ledger) -> None:
    """Record that a cut-over seals a source; each one has a record of its own, which only it takes back."""
    while True:
        ledger.newest()
        with suppress(LedgerConflict):  # another cut-over was quicker
            return ledger.record({SEALING: True})
