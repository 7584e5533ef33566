"""Several small chunks made one, by one task. Apart from what plans and publishes it, so that tasks load little."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from exporter.archived_range import proved_blocks
from layouts.keys import GenerationSpan
from layouts.layout import open_layout
from layouts.place import Place
from manifests.merging import Join
from manifests.model import Compression
from manifests.rows import FinishedRange, Piece, leave_row
from objectstore.uri import RootAddress
from streamstore.splitting import EventBlock

__all__ = ["JoinTask", "join_ranges"]


@dataclass(frozen=True, slots=True)
class JoinTask:
    """All that a task needs to make one chunk of several.

    Attributes:
        root: the archive's. prefix: the archive below it. storage_class: of the new object; empty for the bucket's own.
        join: the ranges. compression: of old and new chunks.
        generation, first: the merged generation.
        window: bytes to hold in memory at most, of what is read.
    """

    root: RootAddress
    prefix: str
    storage_class: str
    join: Join
    compression: Compression
    span: GenerationSpan
    window: int


def join_ranges(task: JoinTask) -> Piece:
    """Make one chunk of several. Doing it twice, or in two places at once, writes the same object.

    Raises:
        Damaged: the bytes of one are not what its manifest says; nothing is written.
    """
    join, store = task.join, task.root.open()
    digest = hashlib.sha256()

    def blocks() -> Iterator[EventBlock]:
        for row in join.rows:
            for block in proved_blocks(Place(store, task.prefix), "chunks", row, task.window):
                digest.update(block.data)
                yield block

    data = replace(task.root, storage_class=task.storage_class).open()
    place = Place(data, task.prefix)
    written = open_layout("chunks", task.compression).write_run(place, join.segment, blocks(), task.window)
    piece = Piece(start=join.start, end=join.end, events=join.events, digest=digest.hexdigest(), frames=written.frames)
    row = FinishedRange(start=join.start, end=join.end, pieces=(piece,))
    left = leave_row(store, task.prefix, task.span, join.segment, row)
    return left.pieces[0]
