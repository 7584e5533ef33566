"""Reads back archived data that have not been read back yet, and finds how far an archive has been read back."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from itertools import takewhile

from streamvault.common.errors import Damaged
from streamvault.common.progress import Progress
from streamvault.manifests.archive.archive import Archive, NoSuchArchive
from streamvault.manifests.archive.history import History
from streamvault.manifests.archive.listing import Listing, manifest_lost
from streamvault.manifests.archive.marks import check_mark, mark_checked
from streamvault.manifests.archive.replaced import extra_chunks, merges_under_way, state_of
from streamvault.manifests.format.manifest import Manifest
from streamvault.manifests.verbs.check import run_checks
from streamvault.manifests.verbs.check_ranges import CheckResult, check_ranges, range_tasks
from streamvault.sparkrun.runner import Runner


def read_back(
    archive: Archive,
    runner_of: Callable[[], Runner],
    progress: Progress,
    only: Container[int] | None = None,
) -> tuple[list[int], int]:
    """Read the data of each generation that has no mark, oldest first, and mark it.

    Args:
        archive: the archive.
        runner_of: opens the runner of tasks; called only if there is something to read.
        progress: receives the progress.
        only: numbers of the generations to read; None for all.

    Returns:
        The generations read, and the number of ranges read.

    Raises:
        Damaged: data differ from what was archived, or a manifest is missing. Later generations are not read.
    """
    listing = archive.listing()
    if listing.missing is not None:
        raise manifest_lost(listing, archive.uri)
    read: list[int] = []
    ranges = 0
    for number in listing.unchecked:
        if only is not None and number not in only:
            continue
        count = archive.stable(partial(_read_one, archive, runner_of, progress, number))
        if count is not None:
            read.append(number)
            ranges += count
    return read, ranges


def last_checked(archive: Archive) -> Manifest | None:
    """Return the last generation up to which all generations have been read back; None if the first has not.

    Raises:
        Damaged: its mark is of a different manifest.
    """
    return archive.stable(partial(_last_checked, archive))


def _last_checked(archive: Archive, listing: Listing) -> Manifest | None:
    checked = list(takewhile(lambda span: span.last in listing.checked, listing.spans))
    if not checked:
        return None
    manifest, fingerprint = archive.read_fingerprinted(checked[-1])
    check_mark(archive.store, manifest, fingerprint)
    return manifest


def check_kept(
    archive: Archive,
    runner_of: Callable[[], Runner],
    progress: Progress,
    *,
    upto: int,
    is_gone: Callable[[Manifest], bool],
    read: Container[int],
) -> None:
    """Check what a source would lose by its truncation and this run has not read back.

    A mark may be old, or have been copied without the data. So each must be of the manifest that is there, and every
    object is looked for by a listing; a generation that has no mark, since it was merged meanwhile, is read back.

    Args:
        archive: the archive.
        runner_of: as for `read_back`.
        progress: receives the progress.
        upto: the generation to whose end the source is to be truncated.
        is_gone: tells whether the source has nothing any more of a generation, nor of those before it.
        read: numbers of the generations that this run has read back.

    Raises:
        Damaged: an object is missing or has the wrong size, or a mark is of a different manifest.
    """

    def check(listing: Listing) -> None:
        for span in reversed(archive.in_force(listing)):
            is_marked = span.last in listing.checked
            if span.first > upto or (is_marked and span.last in read):
                continue
            if is_gone(archive.read_manifest(span)):
                return
            share = 0.0 if is_marked else 1.0
            if _read_one(archive, runner_of, progress, span.last, listing, share=share) is None:
                raise NoSuchArchive(f"generation {span.last} was merged with others or has expired", where=archive.uri)

    archive.stable(check)


def _read_one(
    archive: Archive,
    runner_of: Callable[[], Runner],
    progress: Progress,
    number: int,
    listing: Listing,
    *,
    share: float = 1.0,
) -> int | None:
    """Read one generation back and mark it; return its number of ranges.

    With a share of 0, it has a mark, and its objects are only looked for. Returns None if it has expired or was merged
    with others meanwhile.
    """
    span = listing.holder(number)
    if span is None or span.last != number:
        return None
    state = state_of(archive)
    extra = list(extra_chunks(archive, listing, merges_under_way(archive)))
    generation = archive.load_span(span)
    if not share:
        check_mark(archive.store, generation.manifest, generation.fingerprint)
    tasks = range_tasks(History([generation]), archive.address, extra, share=share, seed=0)
    doing = "reading back" if share else "looking for the objects of"
    progress.begin(f"{doing} generation {number}", generation.manifest.bytes)
    total = CheckResult.sum_of(run_checks(runner_of(), check_ranges, tasks, progress) if tasks else [])
    if total.found and state_of(archive) != state:  # generations were merged or expired meanwhile: try again
        return _read_one(archive, runner_of, progress, number, archive.listing(), share=share)
    if total.found:
        more = f" (and {total.found - 1} more findings)" if total.found > 1 else ""
        raise Damaged(
            f"generation {number} differs from what was archived; nothing was expired or truncated",
            where=f"{archive.uri}: {total.findings[0]}{more}",
            todo="Run 'streamvault check --read-data' on the archive.",
        )
    if share:
        mark_checked(archive.store, generation)
    return total.read
