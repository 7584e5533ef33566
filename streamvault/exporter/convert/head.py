"""The head of a converted archive, if the head of the old one has moved."""

from __future__ import annotations

from streamvault.common.errors import Conflict
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.history import History
from streamvault.manifests.archive.listing import Listing
from streamvault.manifests.archive.marks import Decision
from streamvault.streamstore.model import StreamCut


def check_beginning(target: Archive, history: History) -> None:
    """Reject a target archive that ends before the old one begins.

    Raises:
        Conflict: generations between them have expired.
    """
    listing, first = target.listing(), history.first
    newest = listing.newest
    if not listing.is_new and newest + 1 < first:
        raise Conflict(
            f"the target archive ends with generation {newest}, but the source begins with generation {first}",
            where=target.uri,
            todo="Convert to another root.",
        )


def begin_where(target: Archive, history: History, begin: StreamCut | None) -> None:
    """Let a new archive begin with the old one's first generation, by a decision that earlier ones have expired.

    Args:
        target: the new archive.
        history: the old archive.
        begin: the cut at which the old archive's first generation began, if that is recorded.
    """
    before = history.first - 1

    def change(listing: Listing) -> Decision | None:
        is_behind = listing.is_new and listing.dropped < before
        return listing.decision.begin_after(before, begin) if is_behind else None

    target.decide(change)
