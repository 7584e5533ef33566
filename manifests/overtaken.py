"""Telling what has gone with good reason from damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import Conflict, Damaged, Overtaken
from manifests.archive import Archive, History, NoSuchArchive

__all__ = ["check_in_force", "unless_changed"]


def check_in_force(archive: Archive, history: History, first: int, *, doing: str, expired_todo: str = "") -> None:
    """Whoever found something missing asks: are the generations that were read still in force?

    Args:
        archive: where.
        history: what was read.
        first: the first original generation of it that matters.
        doing: what was being done to them, for the message: "restored".
        expired_todo: what to do if they have expired; empty if the same command can go on with what is left.

    Raises:
        Conflict: they have expired, or were merged, meanwhile.
    """
    listing = archive.listing()
    if listing.dropped >= first:
        what = f"generation {first} expired while it was being {doing}"
        if expired_todo:
            raise Conflict(what, where=archive.uri, todo=expired_todo) from None
        todo = "Run the same command again; a hold ('streamvault hold') keeps generations for as long."
        raise Overtaken(what, where=archive.uri, todo=todo) from None
    read = [generation.manifest for generation in history.generations if generation.manifest.generation >= first]
    if not {manifest.span for manifest in read}.issubset(listing.spans):
        raise Overtaken(
            f"generations were merged while they were being {doing}",
            where=archive.uri,
            todo="Run the same command again: it goes on with what they became.",
        ) from None


@contextmanager
def unless_changed(archive: Archive, history: History, first: int, *, doing: str = "handed off") -> Iterator[None]:
    """Say so if what was being read expired or was merged meanwhile: then objects are gone with good reason.

    Args:
        archive: where.
        history: what was read of it.
        first: the first generation that matters.
        doing: what was being done to them, for the message.

    Raises:
        Conflict: it did.
    """
    try:
        yield
    except (Damaged, NoSuchArchive):
        check_in_force(archive, history, first, doing=doing)
        raise
