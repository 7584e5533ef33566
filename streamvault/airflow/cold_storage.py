"""Finds objects in cold storage that a restore needs, and asks S3 to restore them, with a connection's client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from streamvault.airflow.aws import aws_environment
from streamvault.airflow.environment import environment
from streamvault.common.times import parse_moment
from streamvault.importer.planner import generation_at
from streamvault.layouts.layout import open_layout
from streamvault.layouts.object_keys import MANIFESTS
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.options import WarmOptions
from streamvault.manifests.verbs.cold import NeededPart, joined_parts, needed_parts
from streamvault.objectstore.s3.cold import BucketColdStorage
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import SegmentId, StreamName

_LAST = "\x7f"
"""Sorts after every key: keys are printable ASCII."""


class Position(NamedTuple):
    """Progress of a check: the number of the current part (from 0), and the last key seen there."""

    number: int
    key: str


START = Position(0, "")


class ColdObject(NamedTuple):
    """An object that cannot be read now (its key below the root), and the position from which to resume the check."""

    key: str
    before: Position


def parts_to_warm(
    archive: str, aws_conn_id: str | None, *, generation: int | None = None, at: str = ""
) -> list[NeededPart]:
    """Return the parts that a restore reads. The manifests must be readable.

    Args:
        archive: ``s3://…/SCOPE/STREAM``.
        aws_conn_id: id of the connection of type ``aws``.
        generation: the last generation to restore; None for the newest.
        at: restore up to the last generation whose tail was taken by this time, RFC 3339; empty for the newest.

    Raises:
        NoSuchArchive: there is no archive, or no such generation.
        Problem: the manifests cannot be read.
    """
    root, scope, stream = RootAddress.parse(archive).split()
    with environment(aws_environment(aws_conn_id)):
        source = Archive(root, StreamName(scope, stream))
        history = source.history(generation_at(source, parse_moment(at, "at")) if at else generation)
        # sort a segment's parts of all generations next to each other, so that they are joined
        parts = sorted(needed_parts(history), key=lambda one: (one.layout, one.segment, one.start))
        return list(joined_parts(parts))


def next_cold(client: Any, archive: str, parts: list[NeededPart] | None, since: Position = START) -> ColdObject | None:
    """Return the first object that cannot be read now; None if all can.

    Args:
        client: boto3 client for S3.
        archive: ``s3://…/SCOPE/STREAM``.
        parts: the parts to be read; None for the archive's manifests.
        since: objects up to this position were readable before, and are not checked again.

    Raises:
        ObjectStoreError: the bucket cannot be listed.
    """
    storage, spans = _spans(client, archive, parts)
    for number, (folder, after, stop) in enumerate(spans):
        if number < since.number:
            continue
        before = Position(number, since.key if number == since.number else "")
        for one in storage.objects(folder, before.key or after, stop):
            if one.warmth != "readable":
                return ColdObject(one.key, before)
            before = Position(number, one.key)
    return None


def request_cold(client: Any, archive: str, parts: list[NeededPart] | None, options: WarmOptions) -> int:
    """Ask S3 to restore every object that cannot be read; return the number of new requests.

    Args:
        client: boto3 client for S3.
        archive: ``s3://…/SCOPE/STREAM``.
        parts: as for `next_cold`.
        options: how to restore them.

    Raises:
        ObjectStoreError: the bucket cannot be listed, or access is denied.
    """
    storage, spans = _spans(client, archive, parts)
    cold = (one for span in spans for one in storage.objects(*span) if one.warmth == "cold")
    return storage.ask(cold, options.days, options.tier)


def _spans(
    client: Any, archive: str, parts: list[NeededPart] | None
) -> tuple[BucketColdStorage, Iterator[tuple[str, str, str]]]:
    """Return the spans of the root's listing to check: folder, the key to start after, and the last key."""
    root, scope, stream = RootAddress.parse(archive).split()
    prefix = f"{scope}/{stream}/"
    storage = BucketColdStorage(root, client)
    if parts is None:
        folder = prefix + MANIFESTS
        return storage, iter([(folder, folder, folder + _LAST)])
    return storage, (
        open_layout(one.layout).span(prefix, SegmentId.of(one.segment), one.start, one.end) for one in parts
    )
