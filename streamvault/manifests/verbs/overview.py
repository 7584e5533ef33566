"""One reading of an archive's records, which everything that shows the archive goes by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from streamvault.common.errors import Damaged, Problem
from streamvault.layouts.keys import GenerationSpan
from streamvault.manifests.archive import Archive
from streamvault.manifests.decisions import valid_mark
from streamvault.manifests.listing import Listing, manifest_lost
from streamvault.manifests.manifest import Manifest, Totals
from streamvault.manifests.plan import current_plan
from streamvault.manifests.verbs.reports import ArchiveSummary
from streamvault.objectstore.store import AccessDenied

Gather = Callable[[Archive, Listing, Iterable[Manifest]], Any]
"""Reads the manifests of the generations in force, one at a time, and returns what `Overview.gathered` is to be."""


@dataclass(frozen=True, slots=True)
class Overview:
    """An archive or a table as it was found.

    Attributes:
        archive: the archive or the table; None if it is a folder that cannot be read.
        summary: what `ls` says of it.
        listing: its generations in force; None if they cannot be told, or there are none.
        newest: the newest generation's manifest; None if there is none, or not all can be read.
        gathered: what was made of the manifests; None if nothing was.
    """

    archive: Archive | None
    summary: ArchiveSummary
    listing: Listing | None = None
    newest: Manifest | None = None
    gathered: Any = None

    def manifests(self) -> Iterator[Manifest]:
        """Yield the manifests of the generations in force, oldest first; the newest one is not read again."""
        if self.archive is not None and self.listing is not None and self.newest is not None:
            yield from _manifests(self.archive, self.listing, self.newest)


def overview_of(
    archive: Archive, keys: list[str] | None = None, *, has_plan: bool = False, gather: Gather | None = None
) -> Overview | None:
    """Read the records of an archive or a table; return None if there is none.

    Of the manifests, it reads the newest, and the oldest if others have expired: they have the totals of all. It reads
    each, one at a time, if ``gather`` does, or if an earlier release wrote them.

    Args:
        archive: the archive or the table.
        keys: all keys of its manifests, relative to it, if they were listed.
        has_plan: whether it may have an unfinished generation.
        gather: what else to do with the manifests of an archive.
    """
    summary = summary_of(archive, archive.table)
    try:
        listing = archive.listing(keys)
        if listing.decision.is_deleted:
            is_gone = listing.decision.deletion == "done"
            return None if is_gone else Overview(archive, replace(summary, being_deleted=True))
        summary = replace(summary, being_deleted=bool(listing.decision.deletion))
        plan = current_plan(archive.place, GenerationSpan.of(listing.newest + 1))[0] if has_plan else None
    except (AccessDenied, Damaged) as problem:
        return Overview(archive, replace(summary, problem=str(problem)))
    if plan is not None:
        summary = replace(summary, unfinished_generation=plan.generation)
    if listing.is_new or (archive.table and not listing.spans):
        return Overview(archive, summary) if summary.unfinished_generation else None
    summary = _counted(summary, listing)
    try:
        return archive.stable(lambda now: _read(archive, summary, now, gather), listing)
    except Problem as problem:
        return Overview(archive, replace(summary, problem=str(problem)))


def summary_of(archive: Archive, table: str, problem: Problem | str = "") -> ArchiveSummary:
    """Return what is said of an archive or one of its tables without its records, and why these cannot be read."""
    uri = Archive(archive.root, archive.stream, archive.store).uri
    return ArchiveSummary(archive=uri, table=table, stream_name=str(archive.stream), problem=str(problem))


def _counted(summary: ArchiveSummary, listing: Listing) -> ArchiveSummary:
    return replace(
        summary,
        generations_in_force=len(listing.spans),
        first_generation=listing.spans[0].first if listing.spans else 0,
        generation=listing.newest,
        unchecked_generations=0 if summary.table else len(listing.unchecked),
        held_generations=len(listing.holds),
    )


def _read(archive: Archive, summary: ArchiveSummary, listing: Listing, gather: Gather | None) -> Overview:
    if not listing.spans or listing.missing is not None:
        raise manifest_lost(listing, archive.uri)
    newest, fingerprint = archive.read_fingerprinted(listing.spans[-1])
    gathered = None
    if gather is not None and not archive.table:
        gathered = gather(archive, listing, _manifests(archive, listing, newest))
    summary = _counted(summary, listing)
    is_marked = not archive.table and listing.newest in listing.checked
    bad = is_marked and valid_mark(archive.store, newest, fingerprint) is None
    totals = _totals(archive, listing, newest)
    summary = replace(
        summary,
        unchecked_generations=summary.unchecked_generations + bad,
        created=str(newest.document()["created"]),
        events=totals["events"],
        bytes=totals["bytes"],
        gap_bytes=totals["gap_bytes"],
        layout="table" if archive.table else newest.layout,
    )
    return Overview(archive, summary, listing, newest, gathered)


def _manifests(archive: Archive, listing: Listing, newest: Manifest) -> Iterator[Manifest]:
    yield from map(archive.read_manifest, listing.spans[:-1])
    yield newest


def _totals(archive: Archive, listing: Listing, newest: Manifest) -> Counter[str]:
    """Return the totals of the generations in force: by the newest and the oldest manifest, if those tell them."""
    oldest = listing.spans[0]
    through = newest.through
    before = None
    if through is not None:
        before = Totals() if oldest.first == 1 else archive.read_manifest(oldest).before
    if through is None or before is None:
        found = Counter[str]()
        for manifest in _manifests(archive, listing, newest):
            found.update(manifest.own)
        return found
    found = Counter(dict(through))
    found.subtract(dict(before))
    if min(found.values()) < 0:
        what = f"generation {newest.generation} has lower totals than there were before generation {oldest.first}"
        raise Damaged(what, where=archive.uri, todo="Run 'streamvault check'.")
    return found
