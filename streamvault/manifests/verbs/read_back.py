"""Reads back archived data that have not been read back yet, and finds how far an archive has been read back."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from itertools import takewhile

from streamvault.common.errors import Damaged
from streamvault.common.progress import Progress
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.manifests.archive import Archive
from streamvault.manifests.decisions import check_mark, mark_checked
from streamvault.manifests.history import Generation, History
from streamvault.manifests.listing import Listing, manifest_lost
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.merging import extra_chunks, merges_under_way, state_of
from streamvault.manifests.verbs.check import run_checks
from streamvault.manifests.verbs.check_ranges import CheckResult, check_ranges, range_tasks
from streamvault.runner.runner import Runner


def read_back(
    archive: Archive,
    runner_of: Callable[[], Runner],
    progress: Progress,
    only: Container[int] | None = None,
    seen: set[tuple[str, ArchivedRange]] | None = None,
) -> dict[int, int]:
    """Read the data of each generation that has no mark, oldest first, and mark it.

    Args:
        archive: the archive.
        runner_of: opens the runner of tasks; called only if there is something to read.
        progress: receives the progress.
        only: numbers of the generations to read; None for all.
        seen: gets the ranges that were read, with their layout. None if nobody asks: then memory grows with the ranges
            of one generation.

    Returns:
        Number of each generation that was read → how many ranges that were.

    Raises:
        Damaged: data differ from what was archived, or a manifest is missing. Later generations are not read.
    """
    listing = archive.listing()
    if listing.missing is not None:
        raise manifest_lost(listing, archive.uri)
    wanted = (number for number in listing.unchecked if only is None or number in only)
    done: dict[int, int] = {}
    for number in wanted:
        one = archive.stable(partial(_read_one, archive, runner_of, progress, number))
        if one is not None:
            done[number] = sum(map(len, one.rows.values()))
            if seen is not None:
                seen.update((one.layout, row) for rows in one.rows.values() for row in rows)
    return done


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


def _read_one(
    archive: Archive,
    runner_of: Callable[[], Runner],
    progress: Progress,
    number: int,
    listing: Listing,
) -> Generation | None:
    """Read one generation back, mark it and return it; None if it has expired or was merged with others meanwhile."""
    span = listing.holder(number)
    if span is None or span.last != number:
        return None
    state = state_of(archive)
    extra = list(extra_chunks(archive, listing, merges_under_way(archive)))
    generation = archive.load_span(span)
    tasks = range_tasks(History([generation]), archive.address, extra, share=1.0, seed=0)
    progress.begin(f"reading back generation {number}", generation.manifest.bytes)
    total = CheckResult.sum_of(run_checks(runner_of(), check_ranges, tasks, progress) if tasks else [])
    if total.found and state_of(archive) != state:  # generations were merged or expired meanwhile: try again
        return _read_one(archive, runner_of, progress, number, archive.listing())
    if total.found:
        more = f" (and {total.found - 1} more findings)" if total.found > 1 else ""
        raise Damaged(
            f"generation {number} differs from what was archived; nothing was expired or truncated",
            where=f"{archive.uri}: {total.findings[0]}{more}",
            todo="Run 'streamvault check --read-data' on the archive.",
        )
    mark_checked(archive.store, generation)
    return generation
