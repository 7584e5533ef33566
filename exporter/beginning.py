"""Where a converted archive begins, if the head of the old one has moved."""

from __future__ import annotations

from contextlib import suppress

from manifests.archive import Archive, History
from manifests.marks import Deleted, Dropped
from objectstore.errors import AlreadyExists
from objectstore.keys import deleted_key, dropped_key
from problems import Conflict

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
    first = history.generations[0].manifest
    before = history.first - 1
    if not before or target.listing().newest:
        return
    dropped = Dropped(scope=first.scope, stream=first.stream, generation=before, first=1, stretches=())
    deleted = Deleted(scope=first.scope, stream=first.stream, generation=before, objects=0)
    for key, mark in ((deleted_key(before), deleted), (dropped_key(before), dropped)):
        with suppress(AlreadyExists):
            target.store.put(target.prefix + key, mark.encode())
