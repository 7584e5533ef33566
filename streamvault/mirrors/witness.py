"""Whether a source is still the stream that was replicated from it, not one that was made again under its name.

A stream of the same name and first segments may be another one: in a cluster that was rebuilt, numbering begins anew.
So the ledger has a witness of the source, its tail and its head of the newest round, and each round compares the last
bytes of all open segments with the replica's (`ImportRun.check_unfinished`) before it appends to any.
"""

from __future__ import annotations

import hashlib
import json

from streamvault.common.errors import Conflict
from streamvault.importer.options import TargetOptions
from streamvault.mirrors.record import Record
from streamvault.mirrors.replica import REPLICA
from streamvault.mirrors.source import Source
from streamvault.streamstore.arithmetic.cuts import is_before
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import StreamCut, StreamDescription

WITNESS_BYTES = 64 * 1024
"""How many of the last bytes of each open segment a round compares with the source before it appends to any."""


def replica_id(source: Source, described: StreamDescription, options: TargetOptions) -> str:
    """Return a replica's name (`RestorePlan.import_id`): the same for the same source and options.

    A source that was deleted and created again is another one.
    """
    first = [segment.value for segment in described.epochs[0].segments]
    content = [source.uri, str(described.name), first, options.offsets, options.numbers]
    return REPLICA + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def check_same(
    source: Source, described: StreamDescription, options: TargetOptions, record: Record | None, replica: str
) -> None:
    """Check that a source is still the stream that is replicated, as far as its shape shows.

    Its tail and its head only move on, and its history grows.

    Args:
        source: the source.
        described: the source as it is now.
        options: how it becomes a new stream.
        record: the newest record of the replica's ledger; None if there is none.
        replica: the replica's URI, for the message.

    Raises:
        Conflict: it was deleted and created again.
    """
    if record is None:
        return
    if replica_id(source, described, options) != record.work or not _goes_on(described, record):
        raise Conflict(
            "the source was deleted and created again, so it is not the stream that was replicated",
            where=source.uri,
            todo=f"Promote {replica} as it is, or replicate into another stream.",
        )


def _goes_on(described: StreamDescription, record: Record) -> bool:
    """Whether a source can be the one of a record, later."""
    try:
        for before, now in ((record.tail, described.tail), (record.source_head, described.head)):
            if before is not None and not is_before(described, StreamCut.from_json(before, described.name), now):
                return False
    except InvalidCut:  # it never had such segments
        return False
    return True
