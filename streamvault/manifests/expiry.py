"""Which generations may expire: the rule of whoever runs a rotation.

Anyone who may create objects in the archive can write a decision that generations have expired. So a decision only
hides them, and a run deletes only what its own rule would let expire (`manifests.deleting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from streamvault.common.units import moment_text, now_utc
from streamvault.layouts.keys import GenerationSpan, manifest_key
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.listing import UNKNOWN_TODO, Listing
from streamvault.manifests.manifest import Manifest
from streamvault.objectstore.store import NoSuchObject

JUMP = timedelta(days=31)
"""Where only this machine's clock tells the time, a longer time without a generation may be a wrong clock."""


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """Which generations may expire; none, if nothing is given. At most one of the three is.

    Attributes:
        keep: all but this many of the newest that have data.
        keep_for: those whose tail was taken longer ago than this (seconds).
        until: those whose tail was taken by this time.
    """

    keep: int | None = None
    keep_for: float | None = None
    until: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing expires."""
        return (self.keep, self.keep_for, self.until) == (None, None, None)

    def lets(self, created: datetime, now: datetime) -> bool:
        """Return whether a generation may expire whose tail was taken at a time; ages count back from ``now``."""
        until = now - timedelta(seconds=self.keep_for) if self.keep_for is not None else self.until
        return self.keep is not None or (until is not None and created <= until)

    def stays_from(self, archive: Archive, spans: Sequence[GenerationSpan], coming: int = 0) -> int:
        """Return the index of the first generation that stays so that `keep` originals with data do; at least one.

        Args:
            archive: the archive.
            spans: generations in force.
            coming: number of generations with data that will be published before (dry run).
        """
        kept, keep = coming, self.keep or 1
        if coming and kept >= keep:
            return len(spans)
        for index in range(len(spans) - 1, -1, -1):
            manifest = archive.read_manifest(spans[index])
            kept += sum(one.bytes > 0 for one in manifest.originals)
            if kept >= keep:
                return index
        return -1

    def latest(
        self, archive: Archive, spans: Sequence[GenerationSpan], expired: Iterable[Manifest], made: int | None
    ) -> datetime:
        """Return the latest time from which ages count back; later ones depend on this machine's clock alone.

        Args:
            archive: the archive.
            spans: the generations in force.
            expired: the manifests of those that are not in force any more, as far as they are there.
            made: see `keeps`.
        """
        try:
            written = archive.store.modified(archive.prefix + manifest_key(spans[-1]))
        except NoSuchObject:  # it was merged with others meanwhile: whoever called looks again
            raise NoSuchArchive(f"no generation {spans[-1].last}", where=archive.uri) from None
        if written is not None:
            return written
        before = spans[:-1] if spans[-1].last == made else spans
        manifests = [*expired, *map(archive.read_manifest, before if self.keep_for is not None else before[-1:])]
        if self.keep_for is None:
            return manifests[-1].created
        longest = max(JUMP, timedelta(seconds=self.keep_for))
        latest: datetime | None = None
        for manifest in manifests:
            for one in manifest.originals:
                if latest is None or latest < one.created <= latest + longest:
                    latest = one.created
        assert latest is not None  # noqa: S101  (there is a generation)
        return latest

    def keeps(self, archive: Archive, listing: Listing, *, made: int | None = None) -> str:
        """Check what has expired by whoever's decision, as far as its manifests are there, which are deleted first.

        Args:
            archive: the archive.
            listing: its generations in force.
            made: the generation that this run has published, if any; its time comes from this machine's clock, so it
                cannot confirm that clock.

        Returns:
            Why this rule would not have let it expire, and what to do; empty if it would, or if nothing has expired.
        """
        if not listing.spans or not listing.expired:
            return ""
        reason = self._reason(archive, listing, made)
        title = f"generations up to {listing.dropped} have expired, according to {listing.decision.title}"
        todo = f"A rotation whose options let them expire deletes their data. {UNKNOWN_TODO}"
        return reason and f"{title}, but their data stay: {reason}. {todo}"

    def _reason(self, archive: Archive, listing: Listing, made: int | None) -> str:
        if self.is_empty:
            return "this run has no --keep, --keep-for or --until"
        if self.stays_from(archive, listing.spans) < 0:
            return f"fewer than {self.keep or 1} with data would be left"
        if self.keep is not None:
            archive.check_contiguous(listing)
            return ""
        expired: list[Manifest] = []
        for span in listing.expired:
            with suppress(NoSuchArchive):  # another run deletes it
                expired.append(archive.read_manifest(span))
        newest, now = self.latest(archive, listing.spans, expired, made), now_utc()
        if self.until is not None and self.until > newest:
            return f"--until is later than the newest generation ({moment_text(newest)})"
        young = next((one for one in expired if not self.lets(one.created, min(now, newest))), None)
        return "" if young is None else f"generation {young.generation} was taken at {moment_text(young.created)}"
