"""The verbs *hold* and *release*: keeping a generation, and all after it, from expiring."""

from __future__ import annotations

import getpass

from manifests.archive import Archive
from manifests.marks import Hold
from objectstore.bulk import delete_all
from objectstore.errors import AlreadyExists
from objectstore.keys import hold_key
from problems import Conflict, Failed, Usage
from streamvault.looking import open_archive
from streamvault.reports import HoldReport
from streamvault.version import TOOL

__all__ = ["NoSuchHold", "hold_archive", "put_hold", "release_archive"]

LONGEST_WHY = 1000


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
        NoSuchArchive: there is no such generation, or it has expired. InvalidKey, Usage: not a name, too long a text.
    """
    hold_key(1, name)
    if len(why) > LONGEST_WHY:
        raise Usage(f"--why has {LONGEST_WHY} characters at most", where=f"{len(why)} characters")
    source = open_archive(archive)
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
    hold_key(1, name)
    source = open_archive(archive)
    wanted = source.manifest(generation).generation  # says so if there is none
    listing = source.listing()
    found = tuple(
        number
        for number, names in sorted(listing.holds.items())
        if name in names and (generation is None or number == wanted)
    )
    if not found:
        where = source.uri if generation is None else f"{source.uri}, generation {generation}"
        raise NoSuchHold(f"no hold of the name {name}", where=where, todo="'streamvault show --timeline' lists them.")
    if not dry_run:
        # what was merged may have been held before
        held = (n for number in found for n in range(listing.first_of(number), number + 1))
        delete_all(source.store, (source.prefix + hold_key(n, name) for n in held))
    return HoldReport(archive=source.uri, name=name, generations=found, dry_run=dry_run)


def put_hold(archive: Archive, name: str, generation: int, *, why: str) -> bool:
    """Put a hold on a generation in force; False if it was there.

    Raises:
        Conflict: the generation expired in this moment.
    """
    mark = Hold(
        scope=archive.stream.scope,
        stream=archive.stream.stream,
        generation=generation,
        name=name,
        who=_user(),
        why=why,
        tool=TOOL,
    )
    key = archive.prefix + hold_key(generation, name)
    try:
        archive.store.put(key, mark.encode())
    except AlreadyExists:
        return False
    if generation <= archive.listing().dropped:
        archive.store.delete([key])
        raise Conflict("the generation has expired meanwhile", where=f"{archive.uri}, generation {generation}")
    return True


def _user() -> str:
    try:
        return getpass.getuser()[:LONGEST_WHY]
    except (KeyError, OSError):
        return ""  # a container's user may have no name
