"""The *hold* and *release* commands: keep a generation, and all later ones, from expiring."""

from __future__ import annotations

import re
from contextlib import suppress

from streamvault.common.errors import Conflict, Damaged, Failed, Usage
from streamvault.common.options import verb
from streamvault.layouts.keys import GenerationSpan
from streamvault.manifests.archive import Archive
from streamvault.manifests.decisions import Decision, Hold, user_name
from streamvault.manifests.listing import Listing
from streamvault.manifests.options import HoldOptions, ReleaseOptions
from streamvault.manifests.verbs.reports import HoldReport


class NoSuchHold(Failed):
    """No generation has a hold with this name."""


@verb(HoldOptions)
def hold_archive(archive: str, name: str, options: HoldOptions) -> HoldReport:
    """Put a hold on a generation: neither it nor any later one expires until the hold is released.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        name: the hold's name: 1 to 64 letters, digits and hyphens. A generation may have several holds.
        generation: the generation's number; None for the newest.
        why: the reason, for other users; up to 1,000 characters.
        dry_run: report what would be done without doing it.

    Raises:
        NoSuchArchive: there is no such generation, or it has expired.
        Usage: the name is not valid, or the reason is too long.
        Conflict: the generation expired meanwhile.
    """
    check_name(name)
    source = Archive.open(archive)
    number = source.manifest(options.generation).generation
    unchanged = name in source.listing().holds.get(number, ())
    if not options.dry_run:
        unchanged = not put_hold(source, name, number, why=options.why)
    return HoldReport(
        archive=source.uri, name=name, generations=(number,), unchanged=unchanged, dry_run=options.dry_run
    )


@verb(ReleaseOptions)
def release_archive(archive: str, name: str, options: ReleaseOptions) -> HoldReport:
    """Release a hold.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        name: the hold's name.
        generation: the generation's number; None for all generations that have the hold.
        dry_run: report what would be done without doing it.

    Raises:
        NoSuchHold: no generation has the hold.
    """
    check_name(name)
    source = Archive.open(archive)
    number = options.generation
    with suppress(Damaged):  # one that has lost its manifest may be released, so that the archive can be deleted
        number = source.manifest(number).generation  # raises if there is none
    found: tuple[int, ...] = ()

    def change(listing: Listing) -> Decision | None:
        nonlocal found
        decision = listing.decision
        # the originals of a merged generation may have been held before, and one that has lost its manifest, too
        spans = {
            listing.holder(one.generation) or GenerationSpan.of(one.generation)
            for one in decision.holds
            if one.name == name
        }
        held = sorted(span for span in spans if options.generation is None or span.last == number)
        found = found or tuple(span.last for span in held)
        if not held or options.dry_run:
            return None
        return decision.release(name, {number for span in held for number in span.generations})

    source.decide(change)
    if not found:
        where = source.uri if options.generation is None else f"{source.uri}, generation {options.generation}"
        raise NoSuchHold(f"no hold named {name}", where=where, todo="'streamvault timeline' lists the holds.")
    return HoldReport(archive=source.uri, name=name, generations=found, dry_run=options.dry_run)


def put_hold(archive: Archive, name: str, generation: int, *, why: str) -> bool:
    """Put a hold on a generation in force; return False if it already existed.

    Raises:
        Conflict: the generation has expired, and has no hold: of hold and expiry, only the first decision succeeds.
    """

    def change(listing: Listing) -> Decision | None:
        holder = listing.holder(generation)
        if holder is None:
            raise Conflict(
                "the generation has expired in the meantime", where=f"{archive.uri}, generation {generation}"
            )
        if name in listing.holds.get(holder.last, ()):
            return None
        return listing.decision.hold(Hold(generation=generation, name=name, who=user_name(), why=why))

    return archive.decide(change)[1]


def check_name(name: str) -> None:
    """Raise `Usage` unless the name is valid for a hold."""
    if not re.fullmatch("[A-Za-z0-9-]{1,64}", name):
        raise Usage("a hold's name must be 1 to 64 letters, digits and hyphens", where=repr(name))
