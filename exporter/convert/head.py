"""Where a converted archive begins, if the head of the old one has moved."""

from __future__ import annotations

from common.errors import Conflict
from manifests.archive import Archive, History
from manifests.listing import Listing
from manifests.marks import Decision

__all__ = ["begin_where", "check_beginning"]


def check_beginning(target: Archive, history: History) -> None:
    """Refuse to go on with an archive that ends before the old one begins.

    Raises:
        Conflict: it does.
    """
    newest, first = target.listing().newest, history.first
    if newest and newest + 1 < first:
        raise Conflict(
            f"the archive there ends with generation {newest}, and the old one has only those from {first} on",
            where=target.uri,
            todo="Convert to another root.",
        )


def begin_where(target: Archive, history: History) -> None:
    """Let a new archive begin with the old one's first generation: say that those before have expired."""
    before = history.first - 1

    def change(listing: Listing) -> Decision | None:
        return listing.decision.expire(before).sweep(before) if before and not listing.newest else None

    target.decide(change)
