"""Which generations may go, which may not yet and why, and dropping them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from common.times import moment_text
from layouts.keys import checked_key, manifest_key, ranges_key
from layouts.layout import open_layout
from manifests.archive import Archive
from manifests.listing import Listing
from manifests.marks import Decision
from manifests.model import Manifest, now_utc, segment_key

if TYPE_CHECKING:
    from objectstore.s3.locks import Lock, ObjectLocks  # which import botocore

__all__ = ["Expiry", "Policy", "StoppedAt", "expire", "plan_expiry"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Which generations are to go: the oldest but for some number, or those whose tail was taken by a moment.

    Attributes:
        keep: how many with events stay. keep_for: seconds for which they stay. until: the moment. All None: nothing
            expires.
    """

    keep: int | None = None
    keep_for: float | None = None
    until: datetime | None = None

    @property
    def is_none(self) -> bool:
        """Whether nothing is to go."""
        return self.keep is None and self.keep_for is None and self.until is None

    def expires(self, created: datetime, now: datetime) -> bool:
        """Whether a generation is to go whose tail was taken at a moment; `now` is what ages count back from."""
        if self.keep is not None:
            return True
        until = self.until if self.keep_for is None else now - timedelta(seconds=self.keep_for)
        return until is not None and created <= until


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

    manifests: tuple[Manifest, ...] = ()
    stopped: StoppedAt | None = None


def plan_expiry(
    archive: Archive,
    listing: Listing,
    policy: Policy,
    locks_of: Callable[[], ObjectLocks | None],
    *,
    made: int | None = None,
    coming: int = 0,
) -> Expiry:
    """Which generations expire now: from the head on, until one is to stay, is held or is locked.

    No more goes than the time of the newest generation allows: ages count from there if this machine's clock is ahead
    of it, and a moment that is later is refused. For a clock that is wrong would let everything expire.

    Args:
        archive: where.
        listing: what is in force.
        policy: what is to go.
        locks_of: asks whether the bucket has object lock; called only if something is to go.
        made: the generation that this run has made, if it has; its time is this machine's, so that it proves nothing.
        coming: generations with events that will be published before (for a rehearsal).
    """
    spans = listing.spans[: _stays_from(archive, listing, policy.keep or 1, coming)]
    if policy.is_none or not spans:
        return Expiry()
    now = now_utc()
    newest = archive.read_manifest(listing.spans[-2 if listing.newest == made else -1]).created
    if policy.until is not None and policy.until > newest:
        reason = f"--until, which is later than the newest generation ({moment_text(newest)})"
        return Expiry((), StoppedAt(spans[0].last, reason))
    gone: list[Manifest] = []
    locks: ObjectLocks | None = None
    for index, span in enumerate(spans):
        manifest = archive.read_manifest(span)
        if not policy.expires(manifest.created, now):
            break
        if not policy.expires(manifest.created, min(now, newest)):
            reason = f"its age, which counts from the newest generation before this run ({moment_text(newest)})"
            return Expiry(tuple(gone), StoppedAt(manifest.generation, reason))
        if manifest.generation in listing.holds:
            return Expiry(tuple(gone), _held(listing, manifest.generation))
        if index == 0:
            locks = locks_of()
        lock = None if locks is None else _lock_of(archive, manifest, locks)
        if lock is not None:
            until = "" if lock.until is None else moment_text(lock.until)
            return Expiry(tuple(gone), StoppedAt(manifest.generation, f"{lock.reason} of {lock.key}", until))
        gone.append(manifest)
    return Expiry(tuple(gone))


def _stays_from(archive: Archive, listing: Listing, keep: int, coming: int) -> int:
    """Where in the list those begin that stay, so that so many original generations with events do."""
    kept, last = coming, len(listing.spans)
    if coming and kept >= keep:
        return last
    for index in range(last - 1, 0, -1):
        manifest = archive.read_manifest(listing.spans[index])
        kept += sum(one.events > 0 for one in manifest.replaces or (manifest,))
        if kept >= keep:
            return index
    return 0


def expire(
    archive: Archive, policy: Policy, locks_of: Callable[[], ObjectLocks | None], *, made: int | None = None
) -> Expiry:
    """Decide what expires: in this moment it is gone for every reader. Nothing is deleted yet.

    What comes in between, a hold or a merge, makes the decision's number somebody else's, and all is looked at again.
    """
    found = Expiry()

    def change(listing: Listing) -> Decision | None:
        nonlocal found
        if found.manifests and listing.dropped >= found.manifests[-1].generation:
            return None  # it is decided
        found = plan_expiry(archive, listing, policy, locks_of, made=made)
        return listing.decision.expire(found.manifests[-1].generation) if found.manifests else None

    archive.decide(change)
    return found


def _held(listing: Listing, generation: int) -> StoppedAt:
    names = listing.holds[generation]
    return StoppedAt(generation, f"{'hold' if len(names) == 1 else 'holds'} {', '.join(names)}")


def _lock_of(archive: Archive, manifest: Manifest, locks: ObjectLocks) -> Lock | None:
    """A lock on any of a generation's objects; first on what was written last, which is locked the longest."""
    records = (archive.prefix + key(manifest.span) for key in (manifest_key, ranges_key, checked_key))
    return next(filter(None, map(locks.lock_of, records)), None) or locks.first_lock(_data(archive, manifest))


def _data(archive: Archive, manifest: Manifest) -> Iterator[str]:
    layout = open_layout(manifest.layout)
    for entry in manifest.segments:
        segment = segment_key(entry.name)
        for found in layout.between(archive.place, segment, entry.start, entry.end):
            yield found.key
