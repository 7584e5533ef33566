"""Distinguishes data that were deleted because they expired or were merged from damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamvault.common.errors import Conflict, Damaged, Overtaken
from streamvault.manifests.archive.archive import Archive, NoSuchArchive
from streamvault.manifests.archive.history import History


def check_in_force(archive: Archive, history: History, first: int, *, doing: str, expired_todo: str = "") -> None:
    """Check, after data were found missing, that the generations read are still in force.

    Args:
        archive: the archive.
        history: the generations that were read.
        first: the first original generation that matters.
        doing: what was being done to them, for the message: "restored".
        expired_todo: what to do if they have expired; empty if the same command can continue with the rest.

    Raises:
        Conflict: they have expired or were merged meanwhile.
    """
    listing = archive.listing()
    if listing.dropped >= first:
        what = f"generation {first} expired while it was being {doing}"
        if expired_todo:
            raise Conflict(what, where=archive.uri, todo=expired_todo) from None
        todo = "Run the same command again; a hold ('streamvault hold') keeps generations from expiring."
        raise Overtaken(what, where=archive.uri, todo=todo) from None
    read = [generation.manifest for generation in history.generations if generation.manifest.generation >= first]
    if not {manifest.span for manifest in read}.issubset(listing.spans):
        raise Overtaken(
            f"generations were merged while they were being {doing}",
            where=archive.uri,
            todo="Run the same command again: it continues with the merged generation.",
        ) from None


@contextmanager
def unless_changed(archive: Archive, history: History, first: int, *, doing: str = "handed off") -> Iterator[None]:
    """Raise `Conflict` in place of damage if the generations being read expired or were merged meanwhile.

    Arguments as for `check_in_force`.
    """
    try:
        yield
    except (Damaged, NoSuchArchive):
        check_in_force(archive, history, first, doing=doing)
        raise
