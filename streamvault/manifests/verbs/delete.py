"""The *delete* command, which deletes an archive for good; *hold*, which keeps generations, and *release*.

An archive's keys are the stream's positions, so what a late deletion removes could be what a new archive has written
there. So an address is never used again: the newest decision says that the archive was deleted, and stays.

What another run publishes meanwhile must not go unseen. So a decision first stops all publications (*begun*). What
the archive then has is compared with what was found before. Only if nothing was added is the deletion decided, by the
next decision; else the first is taken back. A run looks for a deletion once more after it has published, so what it
reports as archived is either seen here, or in force.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from streamvault.common.errors import Conflict, Damaged, Failed, Usage
from streamvault.common.options import verb
from streamvault.common.units import generations_text, moment_text, now_utc
from streamvault.layouts.keys import (
    GenerationSpan,
    is_record,
    parse_decision,
    table_of,
)
from streamvault.layouts.layout import LAYOUTS, open_layout
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.decisions import Decision, Deletion, Hold, user_name
from streamvault.manifests.deleting import LockCheck
from streamvault.manifests.listing import Listing, check_decisions, has_plan, work_spans
from streamvault.manifests.options import DeleteOptions, HoldOptions, ReleaseOptions
from streamvault.manifests.verbs.reports import DeleteReport, HoldReport
from streamvault.objectstore.bulk import delete_all
from streamvault.objectstore.store import Lock, ObjectInfo


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
        hold = Hold(generation=generation, name=name, who=user_name(), why=why, created=now_utc())
        return listing.decision.hold(hold)

    return archive.decide(change)[1]


def check_name(name: str) -> None:
    """Raise `Usage` unless the name is valid for a hold."""
    if not re.fullmatch("[A-Za-z0-9-]{1,64}", name):
        raise Usage("a hold's name must be 1 to 64 letters, digits and hyphens", where=repr(name))


NAMED = 10
"""Foreign objects that are named."""


@verb(DeleteOptions)
def delete_archive(archive: str, options: DeleteOptions) -> DeleteReport:
    """Delete an archive: all generations, and what unfinished runs have left. Nothing brings them back.

    A small file stays, which says that the archive was deleted; its address is never used again. Tables and objects
    that are not the archive's stay, too.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        yes: delete it; without this, only report what would be deleted.
        unfinished: also if an export, a merge or a truncation of the source is not finished. A run that is still
            working ends with a `Conflict`; a truncation that is only paused still comes.

    Raises:
        NoSuchArchive: there is no archive.
        Conflict: a generation has a hold, an object is locked by S3, an export, a merge or a truncation of the source
            is not finished, or a generation was published meanwhile. Nothing was deleted, except if S3 locks an object
            that was not locked before.
    """
    source = Archive.open(archive)
    listing = source.listing()
    check_decisions(source.place, listing)
    found = _Contents.of(source)
    if not (found.objects or listing.decision.deletion):
        raise NoSuchArchive("no archive", where=source.uri, todo="'streamvault ls ROOT' lists the archives.")
    report = DeleteReport(
        archive=source.uri,
        generations=listing.generations,
        unfinished_generations=tuple(span.last for span in _unfinished(source, listing)),
        resumed=listing.decision.deletion in {"begun", "decided"},
        decision=listing.decision.title if listing.decision.deletion else "",
        unchanged=listing.decision.deletion == "done" and not found.objects,
        objects=found.objects,
        bytes=found.bytes,
        tables=tuple(sorted(found.tables)),
        foreign_objects=found.foreign,
        foreign_keys=tuple(source.prefix + key for key in found.foreign_keys),
        dry_run=not options.yes,
    )
    _check(source, listing, options)
    if not listing.decision.is_deleted:
        _check_locks(source)
    if not options.yes:
        return report
    _decide(source, listing.newest, options)
    return replace(report, objects=_delete(source))


@dataclass
class _Contents:
    """What lies below an archive's address."""

    objects: int = 0
    bytes: int = 0
    tables: set[str] = field(default_factory=set)
    foreign: int = 0
    foreign_keys: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, archive: Archive) -> _Contents:
        found = cls()
        for entry in archive.store.list(archive.prefix):
            key = entry.key.removeprefix(archive.prefix)
            if _is_own(key):
                found.objects += 1
                found.bytes += entry.size
            elif table := table_of(key):
                found.tables.add(table)
            elif parse_decision(key) is None:
                found.foreign += 1
                found.foreign_keys += [key] if found.foreign <= NAMED else []
        return found


def _is_own(key: str) -> bool:
    return is_record(key) or any(open_layout(name).keys.parse(key) is not None for name in LAYOUTS)


def _unfinished(archive: Archive, listing: Listing) -> Iterator[GenerationSpan]:
    """Yield the generations that have a plan and are not in force, nor were: they may yet be published."""
    for span in work_spans(archive.place):
        new = span.last > listing.newest or (span.is_merged and span not in listing.spans)
        if new and not listing.decision.is_over(span) and has_plan(archive.place, span):
            yield span


def _check(archive: Archive, listing: Listing, options: DeleteOptions) -> None:
    """Raise `Conflict` if a generation is held, or may yet be published, or the source truncated to its end."""
    if listing.decision.is_deleted:
        return
    for hold in listing.decision.holds:  # also those on a generation whose manifest was lost
        raise Conflict(
            f"generation {hold.generation} has the hold {hold.name}; nothing was deleted",
            where=archive.uri,
            todo=f"'streamvault release {archive.uri} {hold.name}' removes it.",
        )
    if listing.truncations and not options.unfinished:
        raise Conflict(
            "a rotation is about to truncate the source to the end of"
            f" {generations_text(listing.truncations)}, or was interrupted while doing so; nothing was deleted",
            where=archive.uri,
            todo="Let it finish, or run it again; if its process has surely ended, --unfinished deletes the archive.",
        )
    unfinished = [span.last for span in _unfinished(archive, listing)]
    if unfinished and not options.unfinished:
        raise Conflict(
            f"an export or a merge is running or was interrupted ({generations_text(unfinished)}); nothing was deleted",
            where=archive.uri,
            todo="Stop its schedule, and let it finish; or delete what it has written too, with --unfinished.",
        )


def _check_locks(archive: Archive) -> None:
    locks = archive.root.open_locks()
    lock = None if locks is None else locks.first_lock(entry.key for entry in _own(archive))
    if lock is not None:
        raise _locked(archive, lock, "nothing was deleted")


def _decide(archive: Archive, newest: int, options: DeleteOptions) -> None:
    """Decide the deletion, if the archive still has what was found, and nobody can add to it.

    Raises:
        Conflict: it has more, or a hold. Everything is in force again.
    """

    def begin(now: Listing) -> Decision | None:
        _check(archive, now, options)
        return None if now.decision.deletion else now.decision.delete("begun")

    def follow(fence: Decision, deletion: Deletion) -> None:
        # if somebody else has decided, what was seen behind this fence no longer counts
        archive.decide(lambda now: now.decision.delete(deletion) if now.decision == fence else None, deleting=True)

    while True:
        archive.decide(begin, deleting=True)
        fenced = archive.listing()  # what is published later than this is not reported as archived by its run
        if fenced.decision.is_deleted:
            return
        if not fenced.decision.deletion:
            continue  # another deletion has taken back what it had begun
        try:
            _check_unchanged(archive, fenced, newest)
            _check(archive, fenced, options)
        except Conflict:
            follow(fenced.decision, "")
            raise
        follow(fenced.decision, "decided")


def _check_unchanged(archive: Archive, listing: Listing, newest: int) -> None:
    if listing.newest != newest:
        raise Conflict(
            f"generation {listing.newest} was published in the meantime; nothing was deleted",
            where=archive.uri,
            todo="Stop the schedule that archives the stream, and look again.",
        )


def _own(archive: Archive) -> Iterator[ObjectInfo]:
    """Yield the archive's objects, without decisions: manifests first, since keys are listed in byte order."""
    return (entry for entry in archive.store.list(archive.prefix) if _is_own(entry.key.removeprefix(archive.prefix)))


def _delete(archive: Archive) -> int:
    """Delete all objects of an archive whose deletion is decided; return their number.

    Raises:
        Conflict: S3 locks one of them.
    """
    locks = LockCheck(archive.root)
    objects = delete_all(archive.store, locks.until_locked(entry.key for entry in _own(archive)))
    if locks.found is not None:
        raise _locked(archive, locks.found, "what is left stays hidden")
    archive.decide(
        lambda now: now.decision.delete("done") if now.decision.deletion == "decided" else None, deleting=True
    )
    return objects


def _locked(archive: Archive, lock: Lock, rest: str) -> Conflict:
    until = "" if lock.until is None else f" until {moment_text(lock.until)}"
    return Conflict(
        f"S3 keeps an object from being deleted ({lock.reason}{until}); {rest}",
        where=f"{archive.store.uri}/{lock.key}",
        todo="Repeat the command when the lock has ended.",
    )
