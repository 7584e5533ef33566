"""Decide which generations expire, and which must stay and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamvault.common.times import moment_text, now_utc
from streamvault.layouts.layout import open_layout
from streamvault.layouts.object_keys import checked_key, manifest_key, ranges_key
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.listing import Listing, manifest_lost
from streamvault.manifests.archive.marks import Decision
from streamvault.manifests.format.field_types import segment_key
from streamvault.manifests.format.manifest import Manifest
from streamvault.objectstore.locks import Lock, ObjectLocks
from streamvault.reading.comparing import check_expiring
from streamvault.rotation.options import RotateOptions
from streamvault.rotation.reports import StoppedReport
from streamvault.streamstore.uri import StoreAddress


@dataclass(frozen=True, slots=True)
class Expiry:
    """The generations that expire.

    Attributes:
        manifests: their manifests, oldest first.
        stopped: the generation that must stay although the options let it expire; None if there is none.
    """

    manifests: tuple[Manifest, ...] = ()
    stopped: StoppedReport | None = None


def plan_expiry(
    archive: Archive,
    listing: Listing,
    options: RotateOptions,
    *,
    made: int | None = None,
    coming: int = 0,
) -> Expiry:
    """Return the generations that expire now: from the head up to the first that stays, is held or is locked.

    A wrong clock must not let everything expire, so ages count back from now, but at most from the time at which the
    newest manifest was written by the store's clock. A store that has none but this machine's (a folder) cannot tell a
    wrong clock; there they count from the newest generation before this run, and a long time without a generation is
    left out. A later ``--until`` is rejected.

    Args:
        archive: the archive.
        listing: its generations in force.
        options: which generations expire: by number, age or time; none if there is no such option.
        made: the generation that this run has published, if any; its time comes from this machine's clock, so it cannot
            confirm that clock.
        coming: number of generations with data that will be published before (dry run).
    """
    rule = options.rule
    spans = () if rule.is_empty else listing.spans[: max(rule.stays_from(archive, listing.spans, coming), 0)]
    if not spans:
        return Expiry()
    archive.check_merged(listing)
    if rule.keep is not None:  # those that are counted, and those that expire
        archive.check_contiguous(listing)
    now = now_utc()
    newest = rule.latest(archive, listing.spans, (), made)
    if rule.until is not None and rule.until > newest:
        reason = f"--until, which is later than the newest generation ({moment_text(newest)})"
        return Expiry((), StoppedReport(generation=spans[0].last, reason=reason))
    gone: list[Manifest] = []
    locks: ObjectLocks | None = None
    for index, span in enumerate(spans):
        manifest = archive.read_manifest(span)
        if not rule.lets(manifest.created, now):
            break
        if not rule.lets(manifest.created, min(now, newest)):
            reason = (
                f"its age, counted from {moment_text(newest)}: the clock may be wrong; if not, use --until or --keep"
            )
            return Expiry(tuple(gone), StoppedReport(generation=manifest.generation, reason=reason))
        if manifest.generation in listing.holds:
            return Expiry(tuple(gone), _held(listing, manifest.generation))
        if index == 0:
            locks = archive.root.open_locks()
        lock = None if locks is None else _lock_of(archive, manifest, locks)
        if lock is not None:
            locked_until = "" if lock.until is None else moment_text(lock.until)
            stopped = StoppedReport(
                generation=manifest.generation, reason=f"{lock.reason} of {lock.key}", until=locked_until
            )
            return Expiry(tuple(gone), stopped)
        gone.append(manifest)
    return Expiry(tuple(gone))


def expire(archive: Archive, options: RotateOptions, source: StoreAddress, *, made: int | None = None) -> Expiry:
    """Let generations expire: from now on no reader sees them. Nothing is deleted yet. Arguments as `plan_expiry`.

    If a hold or a merge takes the decision's number first, the expiry is planned again.

    Raises:
        StillHeld: the source, at ``source``, has what they call gaps; see `check_expiring`.
    """
    found = Expiry()

    def change(listing: Listing) -> Decision | None:
        nonlocal found
        if listing.missing is not None:
            raise manifest_lost(listing, archive.uri)
        if found.manifests and listing.dropped >= found.manifests[-1].generation:
            return None  # decided already
        found = plan_expiry(archive, listing, options, made=made)
        gone = found.manifests
        if gone:
            check_expiring(archive.uri, gone, source, archive.stream)
        return listing.decision.expire(gone[-1].generation, gone[0].from_) if gone else None

    archive.decide(change)
    return found


def _held(listing: Listing, generation: int) -> StoppedReport:
    names = listing.holds[generation]
    reason = f"{'hold' if len(names) == 1 else 'holds'} {', '.join(names)}"
    return StoppedReport(generation=generation, reason=reason)


def _lock_of(archive: Archive, manifest: Manifest, locks: ObjectLocks) -> Lock | None:
    """Return a lock on any of a generation's objects; those written last, and so locked longest, are checked first."""
    records = (archive.prefix + key(manifest.span) for key in (manifest_key, ranges_key, checked_key))
    return next(filter(None, map(locks.lock_of, records)), None) or locks.first_lock(_data(archive, manifest))


def _data(archive: Archive, manifest: Manifest) -> Iterator[str]:
    layout = open_layout(manifest.layout)
    for entry in manifest.segments:
        segment = segment_key(entry.name)
        for found in layout.between(archive.place, segment, entry.start, entry.end):
            yield found.key
