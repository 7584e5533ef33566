"""The verbs *hold* and *release*: keeping a generation, and all after it, from expiring."""

from __future__ import annotations

import getpass
import re

from common.errors import Conflict, Failed, Usage
from manifests.archive import Archive
from manifests.listing import Listing
from manifests.marks import Decision, Hold
from manifests.options import LONGEST_WHY, HoldOptions
from manifests.reports import HoldReport

__all__ = ["NoSuchHold", "check_name", "hold_archive", "put_hold", "release_archive"]


class NoSuchHold(Failed):
    """No generation has a hold of this name."""


def hold_archive(
    archive: str, name: str, *, generation: int | None = None, why: str = "", dry_run: bool = False
) -> HoldReport:
    """Put a hold on a generation: neither it nor any after it expires until the hold is released.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        name: letters, digits and hyphens, 64 at most. A generation may have several holds.
        generation: which; None for the newest.
        why: a text for whoever meets it, up to 1,000 characters.
        dry_run: only say what would be done.

    Raises:
        NoSuchArchive: there is no such generation, or it has expired. Usage: not a name, too long a text.
        Conflict: it expired in this moment.
    """
    check_name(name)
    HoldOptions(generation=generation, why=why)
    source = Archive.open(archive)
    number = source.manifest(generation).generation
    unchanged = name in source.listing().holds.get(number, ())
    if not dry_run:
        unchanged = not put_hold(source, name, number, why=why)
    return HoldReport(archive=source.uri, name=name, generations=(number,), unchanged=unchanged, dry_run=dry_run)


def release_archive(archive: str, name: str, *, generation: int | None = None, dry_run: bool = False) -> HoldReport:
    """Take a hold off again.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        name: of the hold.
        generation: from which; None for every generation that has it.
        dry_run: only say what would be done.

    Raises:
        NoSuchHold: none has it.
    """
    check_name(name)
    source = Archive.open(archive)
    wanted = source.manifest(generation).generation  # says so if there is none
    found: tuple[int, ...] = ()

    def change(listing: Listing) -> Decision | None:
        nonlocal found
        held = [
            span
            for span in listing.spans
            if name in listing.holds.get(span.last, ()) and (generation is None or span.last == wanted)
        ]
        found = found or tuple(span.last for span in held)
        # what was merged may have been held before
        decision = listing.decision
        for span in held:
            decision = decision.release(name, span.generations)
        return decision if held and not dry_run else None

    source.decide(change)
    if not found:
        where = source.uri if generation is None else f"{source.uri}, generation {generation}"
        raise NoSuchHold(f"no hold of the name {name}", where=where, todo="'streamvault timeline' lists them.")
    return HoldReport(archive=source.uri, name=name, generations=found, dry_run=dry_run)


def put_hold(archive: Archive, name: str, generation: int, *, why: str) -> bool:
    """Put a hold on a generation in force; False if it was there.

    Raises:
        Conflict: the generation has expired. Then there is no hold: either the hold was decided first, or the expiry.
    """

    def change(listing: Listing) -> Decision | None:
        holder = listing.holder(generation)
        if holder is None:
            raise Conflict("the generation has expired meanwhile", where=f"{archive.uri}, generation {generation}")
        if name in listing.holds.get(holder.last, ()):
            return None
        return listing.decision.hold(Hold(generation=generation, name=name, who=_user(), why=why))

    return archive.decide(change)[1]


def check_name(name: str) -> None:
    """Raise `Usage` unless a hold can have this name."""
    if not re.fullmatch("[A-Za-z0-9-]{1,64}", name):
        raise Usage("a hold's name has 1 to 64 letters, digits and hyphens", where=repr(name))


def _user() -> str:
    try:
        return getpass.getuser()[:LONGEST_WHY]
    except (KeyError, OSError):
        return ""  # a container's user may have no name
