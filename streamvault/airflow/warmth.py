"""Whether what a restore reads on S3 can be read now, and asking S3 for what cannot: by a connection's client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from common.times import parse_moment
from importer.import_ import generation_at
from layouts.keys import MANIFESTS
from layouts.layout import open_layout
from manifests.archive import Archive
from manifests.cold import joined, stored_ranges
from objectstore.s3.cold import ColdStorage
from objectstore.s3.tiers import Tier
from objectstore.uri import RootAddress
from streamstore.model import SegmentId, StreamName
from streamvault.airflow.aws import aws_environment
from streamvault.airflow.environment import environment

__all__ = ["START", "NextCold", "Position", "Stretch", "ask_back", "needed_stretches", "next_cold"]

_LAST = "\x7f"
"""Sorts behind every key: keys are plain ASCII."""


class Stretch(NamedTuple):
    """Bytes `start` to `end` of a segment (its creation epoch and number), in a layout. Plain, as it is serialized."""

    layout: str
    epoch: int
    number: int
    start: int
    end: int


class Position(NamedTuple):
    """How far a look has come: the stretch it is in, and the last key that was seen there."""

    stretch: int
    key: str


START = Position(0, "")


class NextCold(NamedTuple):
    """An object that cannot be read now (its key below the root), and where to look on from."""

    key: str
    before: Position


def needed_stretches(archive: str, aws_conn_id: str, *, generation: int | None = None, at: str = "") -> list[Stretch]:
    """What a restore reads besides the manifests, which have to be readable.

    Args:
        archive: ``s3://…/SCOPE/STREAM``.
        aws_conn_id: the connection of type ``aws``.
        generation: up to this one; None for the newest.
        at: up to the last generation that was taken by this time, RFC 3339; empty for the newest.

    Raises:
        NoSuchArchive: there is none, or not that generation. Problem: the manifests cannot be read.
    """
    root, scope, stream = RootAddress.parse(archive).split()
    with environment(aws_environment(aws_conn_id)):
        source = Archive(root.open(), StreamName(scope, stream))
        history = source.history(generation_at(source, parse_moment(at, "at")) if at else generation)
        # a segment's ranges of all generations side by side, so that they are one stretch
        ranges = sorted(stored_ranges(history), key=lambda one: (one.layout, one.segment, one.start))
    return [Stretch(one.layout, one.segment.epoch, one.segment.number, one.start, one.end) for one in joined(ranges)]


def next_cold(client: Any, archive: str, stretches: list[Stretch] | None, since: Position = START) -> NextCold | None:
    """The first object that cannot be read now; None if all can.

    Args:
        client: boto3's for S3.
        archive: ``s3://…/SCOPE/STREAM``.
        stretches: what is needed; None for the archive's manifests.
        since: what comes up to here was readable before, and is not asked for again.

    Raises:
        ObjectStoreError: the bucket cannot be looked at.
    """
    storage, spans = _spans(client, archive, stretches)
    for number, (folder, after, stop) in enumerate(spans):
        if number < since.stretch:
            continue
        before = Position(number, since.key if number == since.stretch else "")
        for one in storage.objects(folder, before.key or after, stop):
            if one.warmth != "readable":
                return NextCold(one.key, before)
            before = Position(number, one.key)
    return None


def ask_back(client: Any, archive: str, stretches: list[Stretch] | None, *, days: int, tier: Tier) -> int:
    """Ask S3 to bring back every object that cannot be read; how many it has been asked for now.

    Args:
        client: boto3's for S3.
        archive: ``s3://…/SCOPE/STREAM``.
        stretches: as for `next_cold`.
        days: for how long they stay readable.
        tier: ``Bulk``, ``Standard`` or ``Expedited``.

    Raises:
        ObjectStoreError: the bucket cannot be looked at, or asking is not allowed.
    """
    storage, spans = _spans(client, archive, stretches)
    return storage.ask((one for span in spans for one in storage.objects(*span) if one.warmth == "cold"), days, tier)


def _spans(
    client: Any, archive: str, stretches: list[Stretch] | None
) -> tuple[ColdStorage, Iterator[tuple[str, str, str]]]:
    """Where in the listing of the root to look: folders, and the keys between which."""
    root, scope, stream = RootAddress.parse(archive).split()
    prefix = f"{scope}/{stream}/"
    storage = ColdStorage(root, client)
    if stretches is None:
        folder = prefix + MANIFESTS
        return storage, iter([(folder, folder, folder + _LAST)])
    return storage, (
        open_layout(one.layout).span(prefix, SegmentId(one.epoch, one.number), one.start, one.end) for one in stretches
    )
