"""Which generations may go, which may not yet and why, and dropping them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from manifests.archive import Archive
from manifests.listing import Listing
from manifests.marks import Dropped, find_dropped
from manifests.model import Manifest, now_utc, segment_key
from objectstore.errors import AlreadyExists
from objectstore.keys import checked_key, dropped_key, manifest_key, ranges_key
from objectstore.layouts import open_layout
from problems import Usage
from streamvault.times import moment_text, parse_moment
from streamvault.version import TOOL

if TYPE_CHECKING:
    from objectstore.locks import Lock, ObjectLocks  # which import botocore

__all__ = ["Expiry", "Policy", "StoppedAt", "drop", "plan_expiry"]

LONGEST = 1000 * 365 * 86400
"""Seconds; no generation is older."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which generations are to go: the oldest but for some number, or those whose tail was taken by a moment.

    Attributes:
        keep: how many stay. until: the moment. Both None: nothing expires.
    """

    keep: int | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, keep: int | None, keep_for: float | None, until: datetime | str | None) -> Policy:
        """Read what the user asked for.

        Raises:
            Usage: it cannot be meant, or is more than one of the three.
        """
        if sum(given is not None for given in (keep, keep_for, until)) > 1:
            raise Usage("--keep, --keep-for and --until are three ways to say what stays", todo="Give one of them.")
        if keep is not None and keep < 1:
            raise Usage("the newest generation never expires, so one is kept at least", where=f"--keep {keep}")
        if keep_for is not None:
            if not 0 <= keep_for <= LONGEST:
                raise Usage("no such time to keep something for", where=f"--keep-for {keep_for:g} s")
            return cls(until=now_utc() - timedelta(seconds=keep_for))
        return cls(keep, None if until is None else parse_moment(until, "--until"))

    def expires(self, newer: int, created: datetime) -> bool:
        """Whether a generation is to go.

        Args:
            newer: how many generations come after it.
            created: when its tail was taken.
        """
        if newer < 1:
            return False
        if self.keep is not None:
            return newer >= self.keep
        return self.until is not None and created <= self.until


@dataclass(frozen=True, slots=True)
class StoppedAt:
    """The generation that is to go, but has to stay, and with it all after it.

    Attributes:
        generation: its number. reason: a hold's name, or what S3 says. until: RFC 3339; empty if nobody knows.
    """

    generation: int
    reason: str
    until: str = ""


@dataclass(frozen=True, slots=True)
class Expiry:
    """What goes.

    Attributes:
        manifests: of the generations that go, oldest first. stopped: why not more of them.
    """

    manifests: tuple[Manifest, ...]
    stopped: StoppedAt | None = None


def plan_expiry(
    archive: Archive,
    listing: Listing,
    policy: Policy,
    locks_of: Callable[[], ObjectLocks | None],
    *,
    coming: int = 0,
) -> Expiry:
    """Which generations expire now: from the head on, until one is to stay, is held or is locked.

    Args:
        archive: where.
        listing: what is in force.
        policy: what is to go.
        locks_of: asks whether the bucket has object lock; called only if something is to go.
        coming: generations that will be published before (for a rehearsal).
    """
    gone: list[Manifest] = []
    names = listing.names
    locks: ObjectLocks | None = None
    for index, (number, first) in enumerate(names):
        newer = listing.newest - number + coming
        if newer < 1:
            break
        manifest = archive.read_manifest(number, first)
        if not policy.expires(newer, manifest.created):
            break
        if number in listing.holds:
            return Expiry(tuple(gone), _held(listing, number))
        if index == 0:
            locks = locks_of()
        lock = None if locks is None else _lock_of(archive, manifest, locks)
        if lock is not None:
            until = "" if lock.until is None else moment_text(lock.until)
            return Expiry(tuple(gone), StoppedAt(number, f"{lock.reason} of {lock.key}", until))
        gone.append(manifest)
    return Expiry(tuple(gone))


def drop(archive: Archive, expiry: Expiry) -> tuple[Dropped | None, Expiry]:
    """Put the dropped mark: in this moment the generations are gone for every reader. Nothing is deleted yet.

    Returns:
        The mark that holds, None if nothing was dropped; and what that was, for a hold may have come in between, or
        another run may have dropped some of it.
    """
    listing = archive.listing()  # since the last one, locks may have been looked at for long
    force = set(listing.names)
    manifests: list[Manifest] = []
    stopped = expiry.stopped
    for manifest in expiry.manifests:
        if manifest.generation <= listing.dropped:
            continue
        if (manifest.generation, manifest.first) not in force:
            break  # what was merged meanwhile is not dropped in part: the next rotation looks at it as a whole
        if manifest.generation in listing.holds:
            stopped = _held(listing, manifest.generation)
            break
        manifests.append(manifest)
    if not manifests:
        return None, Expiry((), stopped)
    mark = Dropped.of(manifests, tool=TOOL)
    with suppress(AlreadyExists):
        archive.store.put(archive.prefix + dropped_key(mark.generation), mark.encode())
    return find_dropped(archive.store, archive.stream, mark.generation), Expiry(tuple(manifests), stopped)


def _held(listing: Listing, generation: int) -> StoppedAt:
    names = listing.holds[generation]
    return StoppedAt(generation, f"{'hold' if len(names) == 1 else 'holds'} {', '.join(names)}")


def _lock_of(archive: Archive, manifest: Manifest, locks: ObjectLocks) -> Lock | None:
    """A lock on any of a generation's objects; first on what was written last, which is locked the longest."""
    records = (
        archive.prefix + key(manifest.generation, manifest.first) for key in (manifest_key, ranges_key, checked_key)
    )
    return next(filter(None, map(locks.lock_of, records)), None) or locks.first_lock(_data(archive, manifest))


def _data(archive: Archive, manifest: Manifest) -> Iterator[str]:
    layout = open_layout(manifest.layout)
    for entry in manifest.segments:
        segment = segment_key(entry.name)
        place = (archive.store, archive.prefix, segment.epoch, segment.number)
        for found in layout.between(*place, entry.start, entry.end):
            yield found.key
