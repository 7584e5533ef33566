"""Find the damaged ranges of an archive, and leave them out of what an import restores."""

from __future__ import annotations

from dataclasses import replace

from streamvault.common.progress import Progress
from streamvault.importer.from_archive import Selection
from streamvault.manifests.archive.changed import check_in_force
from streamvault.manifests.archive.damage import Lost, Remains, find_remains
from streamvault.manifests.archive.range_bytes import RangeBytes
from streamvault.manifests.archive.selection import RangePart
from streamvault.sparkrun.opening import open_runner


def without_damaged(selection: Selection, master: str, progress: Progress) -> Selection:
    """Read all selected ranges and compare their digests; return what is left of them, and what is lost.

    The result depends only on the archive, so a repeated import skips the same bytes and can be resumed.

    Raises:
        Conflict: the ranges were not damaged, but expired or were merged meanwhile.
    """
    archive, history, selected = selection.archive, selection.history, selection.parts
    progress.begin("checking", sum(part.row.end - part.row.start for part in selected))
    found: dict[int, Remains] = {}
    with open_runner(master, [find_remains]) as runner:
        origins = [RangeBytes(archive.address, part.layout, part.row) for part in selected]
        for index, remains in runner.run(find_remains, origins):
            row = selected[index].row
            progress.advance(row.events, row.end - row.start)
            if remains is not None:
                found[index] = remains
    if found:
        check_in_force(archive, history, history.first, doing="restored", expired_todo="Import again.")
    left: list[RangePart] = []
    lost: list[Lost] = []
    for index, part in enumerate(selected):
        if index not in found:
            left.append(part)
            continue
        for row in found[index].rows:
            start, end = max(part.start, row.start), min(part.end, row.end)
            if start < end:
                left.append(RangePart(row, part.layout, start, end))
        for hole in found[index].lost:
            start, end = max(part.start, hole.start), min(part.end, hole.end)
            if start < end:
                is_whole = (start, end) == (hole.start, hole.end)
                lost.append(replace(hole, start=start, end=end, events=hole.events if is_whole else None))
    return replace(selection, parts=left, lost=tuple(lost))
