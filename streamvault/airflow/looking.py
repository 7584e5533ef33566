"""What sensors and their triggers look for: a new generation of an archive, or new bytes in a stream."""

from __future__ import annotations

from typing import Any

from streamvault.airflow.aws import root_address
from streamvault.airflow.pravega import PravegaHook
from streamvault.airflow.triggers import GenerationTrigger, Look, StreamBytesTrigger
from streamvault.common.errors import Usage
from streamvault.common.sizes import parse_size
from streamvault.common.times import moment_text, parse_moment
from streamvault.manifests.archive.archive import Archive
from streamvault.report.status import unarchived_bytes
from streamvault.streamstore.arithmetic.cut_option import Cut, parse_cut
from streamvault.streamstore.arithmetic.cuts import later_of, live_between, live_ends
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.open_stream import OpenStream


def generation_look(asked: GenerationTrigger) -> Look:
    """Return what looks for a generation.

    Raises:
        Problem: an argument or the connection is not valid.
    """
    place = open_archive(asked.archive, asked.aws_conn_id)
    earliest = parse_moment(asked.since, "since") if asked.since else None
    try:
        after = int(asked.after or 0)
    except ValueError:
        raise Usage(f"after: {asked.after!r} is not the number of a generation") from None

    def look() -> dict[str, Any] | None:
        newest = place.newest()
        if newest is None or newest.generation <= after or (earliest is not None and newest.created < earliest):
            return None
        return {
            "archive": place.uri,
            "generation": newest.generation,
            "created": moment_text(newest.created),
            "events": newest.events,
            "bytes": newest.bytes,
        }

    return look


def bytes_look(asked: StreamBytesTrigger) -> Look:
    """Return what looks for bytes.

    Raises:
        Problem, AirflowFailException: an argument or a connection is not valid.
    """
    if asked.archive and asked.cut:
        raise Usage("archive and cut are mutually exclusive: bytes after one of them count")
    try:
        least = parse_size(str(asked.min_bytes))
    except ValueError as error:
        raise Usage(f"min_bytes: {error}") from None
    address, name = PravegaHook(asked.pravega_conn_id).address(asked.stream)
    place = open_archive(asked.archive, asked.aws_conn_id) if asked.archive else None

    def look() -> dict[str, Any] | None:
        newest = None if place is None else place.newest()
        with address.open() as store:
            opened = OpenStream(store, address, name)
            count = _bytes_since(opened, asked.cut or None) if newest is None else unarchived_bytes(opened, newest)
        return {"stream": opened.uri, "bytes": count} if count >= least else None

    return look


def open_archive(uri: str, aws_conn_id: str | None) -> Archive:
    """Open an archive; one on S3 is reached by a connection, see `streamvault.airflow.aws.root_address`."""
    root, scope, stream = root_address(uri, aws_conn_id).split()
    return Archive(root, StreamName(scope, stream))


def _bytes_since(stream: OpenStream, cut: Cut | None) -> int:
    """Return how many bytes of a stream can be read after a cut; None: all."""
    described = stream.describe()
    start = parse_cut(cut, stream.name, live_ends(stream.store, stream.name))
    start = described.head if start is None else later_of(described, start, described.head)
    parts = live_between(stream.store, described, start, described.tail)
    return sum(end - begin for begin, end in parts.values())
