"""What an import restores: the generations of an archive, or the part of them between two cuts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import get_args

from streamvault.common.progress import Progress
from streamvault.common.report import GapReport
from streamvault.importer.plan import Content, RestorePlan
from streamvault.importer.reports import Numbers, Offsets, RestoreOptions
from streamvault.manifests.damage import ArchivedPart, Lost, Remains, find_remains
from streamvault.manifests.history import parts_by_segment
from streamvault.runner.opening import open_runner
from streamvault.sources.sources import ArchiveState
from streamvault.streamstore.model import Retention, SegmentId, StreamCut


@dataclass(frozen=True, slots=True)
class Selection:
    """What is restored of an archive.

    Attributes:
        source: the archive, with its generations to restore.
        parts: the parts of ranges between the cuts (see `select_parts`).
        from_cut: begin at this cut; None for the archive's head.
        to_cut: end at this cut; None for the archive's tail.
        lost: what is left out of the ranges because it is damaged; it becomes gaps.
    """

    source: ArchiveState
    parts: Sequence[ArchivedPart]
    from_cut: StreamCut | None = None
    to_cut: StreamCut | None = None
    lost: Sequence[Lost] = ()

    def content(self, options: RestoreOptions) -> Content:
        """Return what the target gets; `RestoreOptions.retention` does not change what it is and how it is named."""
        history, described = self.source.history, self.source.described
        if options.retention == "off":
            described = replace(described, configuration=replace(described.configuration, retention=Retention()))
        tail = self.to_cut or history.tail
        return Content(
            described=described,
            generation=history.generation,
            head=self.from_cut or history.head,
            tail=tail,
            parts=parts_by_segment(self.parts),
            bases={},
            sealed=described.sealed and tail == history.tail,
            import_id=self.import_id(options),
            ends={hole.segment: hole.end for hole in self.lost},
            check_gap=self._check_gap,
            kind=self.source.content,
            origin="" if self.source.archive.table else self.source.archive.uri,
        )

    def import_id(self, options: RestoreOptions) -> str:
        """Return the name of the import, see `RestorePlan`; an unfinished one can be resumed with either retention."""
        history = self.source.history
        head, tail = self.from_cut or history.head, self.to_cut or history.tail
        content = [str(history.stream), history.generation, history.content_digest]
        content += [head.to_json(), tail.to_json(), options.offsets, options.numbers]
        if self.lost:
            content.append([(hole.segment.value, hole.start, hole.end) for hole in self.lost])
        return f"{history.generation}.{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]}"

    def begun_with(self, import_id: str, options: RestoreOptions) -> RestoreOptions | None:
        """Return the options with which an import of this was begun; None if it is another one's name.

        Args:
            import_id: its name.
            options: all but `offsets` and `numbers`.
        """
        for offsets, numbers in product(get_args(Offsets), get_args(Numbers)):
            other = options.model_copy(update={"offsets": offsets, "numbers": numbers})
            if self.import_id(other) == import_id:
                return other
        return None

    def gaps(self, plan: RestorePlan) -> tuple[GapReport, ...]:
        """Return the gaps of the restored segments: those that the manifests declare, and what is damaged."""
        declared = (
            GapReport(segment=gap.segment, start=gap.start, end=gap.end, reason=gap.reason)
            for generation in self.source.history.generations
            for gap in generation.manifest.gaps
            if gap.id in plan.segments
        )
        name = self.source.history.stream
        damaged = (
            GapReport(segment=one.segment.in_stream(name), start=one.start, end=one.end, reason=f"damaged: {one.what}")
            for one in self.lost
        )
        return (*declared, *damaged)

    def without_damaged(self, master: str, progress: Progress) -> Selection:
        """Read all selected ranges and compare their digests; return what is left of them, and what is lost.

        The result depends only on the archive, so a repeated import skips the same bytes and can be resumed.

        Raises:
            Conflict: the ranges were not damaged, but expired or were merged meanwhile.
        """
        selected = self.parts
        progress.begin("checking", sum(part.row.end - part.row.start for part in selected))
        found: dict[int, Remains] = {}
        with open_runner(master, [find_remains]) as runner:
            for index, remains in runner.run(find_remains, selected, progress=progress):
                row = selected[index].row
                progress.advance(row.events, row.end - row.start)
                if remains is not None:
                    found[index] = remains
        if found:
            self.source.check_in_force("restored", expired_todo="Import again.")
        left: list[ArchivedPart] = []
        lost: list[Lost] = []
        for index, part in enumerate(selected):
            if index not in found:
                left.append(part)
                continue
            for row in found[index].rows:
                start, end = max(part.start, row.start), min(part.end, row.end)
                if start < end:
                    left.append(replace(part, row=row, start=start, end=end))
            for hole in found[index].lost:
                start, end = max(part.start, hole.start), min(part.end, hole.end)
                if start < end:
                    is_whole = (start, end) == (hole.start, hole.end)
                    lost.append(replace(hole, start=start, end=end, events=hole.events if is_whole else None))
        return replace(self, parts=left, lost=tuple(lost))

    def lost_of(self, segment: SegmentId) -> Iterator[tuple[int, int]]:
        """Yield what is lost of a segment: first offset and end (bytes)."""
        yield from ((hole.start, hole.end) for hole in self.lost if hole.segment == segment)

    def _check_gap(self, segment: SegmentId, start: int, end: int) -> None:
        self.source.check_gap(segment, start, end, also=self.lost_of(segment))


def generation_of(import_id: str) -> int | None:
    """Return the generation in the name of an import of an archive; None if it is not such a name."""
    number = import_id.partition(".")[0]
    return int(number) if number.isdecimal() else None
