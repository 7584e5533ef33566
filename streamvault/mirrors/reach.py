"""How far a replica has come: the cut of its source up to which it has the source's bytes."""

from __future__ import annotations

import json

from streamvault.common.errors import Failed, Overtaken
from streamvault.importer.options import Offsets
from streamvault.importer.unfinished import Unfinished
from streamvault.mirrors.replica import Replica
from streamvault.reading.source import Source, bytes_after
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.arithmetic.counterparts import counterparts
from streamvault.streamstore.arithmetic.cuts import later_of
from streamvault.streamstore.model import StreamCut, StreamDescription


class Reach:
    """How far a replica has come.

    Args:
        source: the source.
        replica: the replica; its record, if it has one, says where it began.
        offsets: whether its offsets are the source's, or count from where it began.
    """

    def __init__(self, source: Source, replica: Replica, offsets: Offsets) -> None:
        self._source = source
        self._replica = replica
        self._offsets = offsets

    def beginning(self, described: StreamDescription) -> StreamCut:
        """Return the cut of the source at which the replica began, or begins: a source's head.

        Args:
            described: the source.
        """
        record = self._replica.record
        return described.head if record is None else StreamCut.from_json(record.head, self._source.name)

    def cut(self, described: StreamDescription, unfinished: Unfinished | None) -> StreamCut:
        """Return the cut of the source up to which the replica has its bytes.

        Args:
            described: the source.
            unfinished: the replica; None if there is none.
        """
        beginning = self.beginning(described)
        if unfinished is None:
            return beginning
        copied = unfinished.described
        reached = self.cut_of(copied, copied.tail, described)
        return beginning if reached is None else later_of(described, reached, beginning)

    def cut_of(self, copied: StreamDescription, cut: StreamCut, described: StreamDescription) -> StreamCut | None:
        """Return the source's cut that corresponds to a replica's; None if a segment has no counterpart.

        Args:
            copied: the replica.
            cut: a cut of it.
            described: the source.
        """
        segments = counterparts(described.epochs, copied.epochs)
        names = {} if segments is None else {new: old for old, new in segments.items()}
        if not names.keys() >= cut.offsets.keys():
            return None
        record = self._replica.record
        bases = StreamCut.from_json(record.head, self._source.name).offsets if record is not None else {}
        shifted = bases if self._offsets == "shift" else {}
        reached = {names[s]: offset + shifted.get(names[s], 0) for s, offset in cut.offsets.items()}
        return StreamCut(self._source.name, reached)

    def behind(self) -> int:
        """Return how many bytes the source has that the replica does not have."""
        while True:
            unfinished = Unfinished.find(self._replica.stream)
            look = self._source.look()
            try:
                return bytes_after(look, self.cut(look.described, unfinished))
            except (SourceTruncated, Overtaken):
                continue

    def check_complete(self) -> None:
        """Check that the replica ends where its source ends.

        Raises:
            Failed: it does not.
        """
        described = self._source.look().described
        copied = self._replica.stream.describe()
        if len(described.epochs) != len(copied.epochs) or self.cut_of(copied, copied.tail, described) != described.tail:
            raise Failed(
                "the replica does not end where its source ends",
                where=f"{self._replica.uri}: {json.dumps(copied.tail.to_json())}",
                todo="Run the same command again.",
            )
