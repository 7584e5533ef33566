"""What an import restores: the generations of an archive, or the part of them between two cuts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from streamvault.common.errors import Damaged
from streamvault.importer.options import RestoreOptions
from streamvault.importer.plan import Content, Part
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.damage import Lost
from streamvault.manifests.archive.history import History
from streamvault.manifests.archive.range_bytes import RangeBytes
from streamvault.manifests.archive.selection import RangePart
from streamvault.streamstore.model import Retention, SegmentId, StreamCut


def archived_content(
    archive: Archive,
    history: History,
    selected: Iterable[RangePart],
    options: RestoreOptions,
    *,
    from_cut: StreamCut | None = None,
    to_cut: StreamCut | None = None,
    lost: Sequence[Lost] = (),
) -> Content:
    """Return what an import restores.

    Args:
        archive: the archive.
        history: its generations to restore.
        selected: the ranges between the cuts (see `select_parts`).
        options: the target's content and name do not depend on `RestoreOptions.retention`, so an unfinished import can
            be resumed with either value.
        from_cut: begin at this cut; None for the archive's head.
        to_cut: end at this cut; None for the archive's tail.
        lost: what is left out of the ranges because it is damaged; it becomes gaps.
    """
    parts: dict[SegmentId, list[Part]] = {}
    for chosen in selected:
        origin = RangeBytes(archive.address, chosen.layout, chosen.row)
        part = Part(origin, chosen.start, chosen.end)
        is_counted = part.whole or chosen.row.content == "bytes"
        parts.setdefault(chosen.segment, []).append(replace(part, events=chosen.row.events) if is_counted else part)

    def check_gap(segment: SegmentId, start: int, end: int) -> None:
        gaps = [*history.gaps(segment), *((hole.start, hole.end) for hole in lost if hole.segment == segment)]
        declared = sum(max(0, min(gap_end, end) - max(gap_start, start)) for gap_start, gap_end in gaps)
        if declared < end - start:
            raise Damaged(
                "the manifests have an undeclared gap",
                where=f"{segment.in_stream(history.stream)} bytes {start} to {end}",
            )

    head, tail = from_cut or history.head, to_cut or history.tail
    described = history.description
    if options.retention == "off":
        described = replace(described, configuration=replace(described.configuration, retention=Retention()))
    return Content(
        described=described,
        generation=history.generation,
        head=head,
        tail=tail,
        parts=parts,
        bases={},
        sealed=described.sealed and tail == history.tail,
        work=_work_name(history, head, tail, options, lost),
        ends={hole.segment: hole.end for hole in lost},
        check_gap=check_gap,
        kind=history.generations[-1].manifest.content,
    )


def generation_of(work: str) -> int | None:
    """Return the generation in an import's name (`RestorePlan.work`); None if it is not such a name."""
    number = work.partition(".")[0]
    return int(number) if number.isdecimal() else None


def _work_name(
    history: History, head: StreamCut, tail: StreamCut, options: RestoreOptions, lost: Sequence[Lost]
) -> str:
    content = [str(history.stream), history.generation, history.content_digest]
    content += [head.to_json(), tail.to_json(), options.offsets]
    if options.numbers != "keep":  # so that imports of earlier releases keep their names
        content.append(options.numbers)
    if lost:
        content.append([(hole.segment.value, hole.start, hole.end) for hole in lost])
    return f"{history.generation}.{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]}"
