"""Whether a replication may write to a target: it is free or the source's replica, and the source still the same.

A stream of the same name and first segments may be another one: in a cluster that was rebuilt, numbering begins anew.
So the ledger has the source's tail and head of the newest round, and each round compares the last bytes of all open
segments with the replica's (`ImportRun.check_unfinished`) before it appends to any.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

from streamvault.common.errors import Conflict, Problem
from streamvault.importer.options import TargetOptions
from streamvault.importer.ownership import marked_import, unfinished_import
from streamvault.importer.target import TargetTaken, target_exists_error
from streamvault.mirrors.record import Record
from streamvault.mirrors.replica import REPLICA, Replica, replica_tag
from streamvault.reading.source import Source
from streamvault.reading.stream_source import StreamSource
from streamvault.streamstore.arithmetic.cuts import is_before
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import StreamCut, StreamDescription
from streamvault.streamstore.own import REPLICA_OF, is_own, tag_of

COMPARED_IN_A_ROUND = 64 * 1024
"""How many of the last bytes of each open segment a round compares with the source before it appends to any."""


def is_promoted(source: Source, replica: Replica) -> bool:
    """Whether a source's replica was promoted, or its promotion has begun; False if it cannot be told."""
    with suppress(Problem):
        if not replica.stream.exists():
            return False
        described = replica.stream.describe()
        if not is_own(described.configuration):
            return tag_of(described.configuration, REPLICA_OF) == replica_tag(source.uri)
        record = replica.read()
        return (
            record is not None
            and (record.work, record.source) == (marked_import(described), source.uri)
            and record.is_promoting
        )
    return False


def check_promoting(replica: Replica) -> None:
    """Check that no promotion of a target was killed, whatever it is a replica of.

    Raises:
        TargetTaken: one was.
    """
    begun = unfinished_import(replica.stream)
    if begun is not None and begun.startswith(REPLICA):
        record = replica.read()
        begins = record is not None and record.work == begun and record.is_promoting
        if begins or not is_own(replica.stream.describe().configuration):
            raise promoting(replica)


def check_target(source: Source, replica: Replica, options: TargetOptions, import_id: str) -> str | None:
    """Check that a target is free, or the replica of this name; return `unfinished_import`.

    Args:
        source: the source.
        replica: the target.
        options: how the source becomes a new stream.
        import_id: the replica's name, see `mirrors.record.Record`.

    Raises:
        TargetTaken: it is neither.
    """
    begun = unfinished_import(replica.stream)
    if begun is None:
        return None
    described = replica.stream.describe()
    if begun == import_id:
        if not is_own(described.configuration):
            raise promoting(replica)
        return begun
    where = replica.uri
    record = replica.read()
    if begun and record is not None and record.work == begun and record.source == source.uri:
        if (record.offsets, record.numbers) != (options.offsets, options.numbers):
            what = f"the replica was begun with --offsets {record.offsets} --numbers {record.numbers}"
            raise TargetTaken(what, where=where, todo="Give these options, or choose another name.")
        raise TargetTaken(
            "the source was deleted and created again, so it is not the stream that was replicated",
            where=source.uri,
            todo=f"Promote {where} as it is, or choose another name.",
        )
    if promoted := tag_of(described.configuration, REPLICA_OF):
        todo = "Choose another name. This stream may have events that no other one has."
        raise TargetTaken(f"the stream is a promoted replica of {promoted}", where=where, todo=todo)
    if not begun and _is_origin(source, replica):
        raise TargetTaken(
            f"the stream is the one that {source.uri} was a replica of",
            where=where,
            todo="Choose another name. It may have events that were never replicated.",
        )
    raise target_exists_error(replica.stream.store, described, begun=begun)


def _is_origin(source: Source, replica: Replica) -> bool:
    """Whether the source is a promoted replica of the target: the old cluster is back."""
    if not isinstance(source, StreamSource):
        return False
    described = source.stream.find()
    return described is not None and tag_of(described.configuration, REPLICA_OF) == replica_tag(replica.uri)


def promoting(replica: Replica) -> TargetTaken:
    """Build the error for a replica whose promotion has begun."""
    todo = "Run the same 'promote' or 'move' again."
    return TargetTaken("a promotion of the replica has not ended", where=replica.uri, todo=todo)


def replica_id(source: Source, described: StreamDescription, options: TargetOptions) -> str:
    """Return a replica's name (`RestorePlan.import_id`)."""
    return mirror_id(REPLICA, source, described, options)


def mirror_id(kind: str, source: Source, described: StreamDescription, options: TargetOptions, *more: Any) -> str:
    """Return a name that is the same for the same source and options; a source that was created again is another one.

    Args:
        kind: what the name begins with.
        source: the source.
        described: the source as it is now.
        options: how it becomes a new stream.
        more: what else is part of the name, as plain values.
    """
    first = [segment.value for segment in described.epochs[0].segments]
    content = [source.uri, str(described.name), first, options.offsets, options.numbers, *more]
    return kind + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


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
