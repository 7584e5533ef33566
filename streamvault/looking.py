"""The verbs *ls* and *show*, and the latter's timeline."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from manifests.archive import Archive
from manifests.listing import Listing
from manifests.marks import find_checked
from manifests.model import Manifest
from objectstore.uri import RootAddress
from problems import Damaged, Problem
from streamstore.errors import InvalidName
from streamstore.model import StreamName
from streamvault.reports import ArchiveSummary, Timeline, TimelineEntry
from streamvault.times import moment_text

__all__ = ["list_archives", "open_archive", "show_archive", "show_timeline"]


def list_archives(root: str) -> list[ArchiveSummary]:
    """Every archive below a root, sorted by scope and stream.

    Args:
        root: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.

    Raises:
        Problem: the root cannot be read. An archive that cannot be read is listed with its `problem`.
    """
    store = RootAddress.parse(root).open()
    found = []
    for scope in store.folders(""):
        for stream in store.folders(f"{scope}/"):
            try:
                archive = Archive(store, StreamName(scope, stream))
            except InvalidName:
                continue  # a foreign folder
            summary = _summary(archive)
            if summary is not None:
                found.append(summary)
    return found


def show_archive(archive: str, *, generation: int | None = None) -> Manifest:
    """A generation's manifest.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        generation: its number; None for the newest.

    Raises:
        NoSuchArchive: there is none, or not that generation. Damaged: the manifest is not valid.
    """
    return open_archive(archive).manifest(generation)


def show_timeline(archive: str) -> Timeline:
    """The generations that have not expired, with their times, cuts, holds and checks.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.

    Raises:
        NoSuchArchive: there is none. Damaged: a manifest or mark is missing or not valid.
    """
    source = open_archive(archive)
    source.manifest()  # says so if there is no archive
    return source.stable(partial(_timeline, source))


def _timeline(source: Archive, listing: Listing) -> Timeline:
    if listing.missing is not None:
        raise Damaged(f"the manifest of generation {listing.missing} is missing", where=source.uri)
    return Timeline(
        archive=source.uri,
        stream=str(source.stream),
        expired=listing.dropped,
        generations=tuple(_entry(source, listing, *name) for name in listing.names),
    )


def _entry(source: Archive, listing: Listing, number: int, first: int) -> TimelineEntry:
    manifest = source.read_manifest(number, first)
    mark = find_checked(source.store, source.stream, number, first) if number in listing.checked else None
    return TimelineEntry(
        generation=number,
        first=first,
        created=moment_text(manifest.created),
        start=manifest.from_.to_json(),
        end=manifest.to.to_json(),
        layout=manifest.layout,
        events=manifest.events,
        bytes=manifest.bytes,
        holds=listing.holds.get(number, ()),
        checked="" if mark is None else moment_text(mark.created),
    )


def open_archive(uri: str) -> Archive:
    """The archive at ``ROOT/SCOPE/STREAM``."""
    address, scope, stream = RootAddress.parse(uri).split()
    return Archive(address.open(), StreamName(scope, stream))


def _summary(archive: Archive) -> ArchiveSummary | None:
    listing = archive.listing()
    if not listing.newest:
        return None
    numbers = listing.generations
    summary = ArchiveSummary(
        archive=archive.uri,
        stream=str(archive.stream),
        generations=len(numbers),
        first_generation=listing.first_of(numbers[0]) if numbers else 0,
        generation=listing.newest,
    )
    try:
        manifests = archive.stable(partial(_manifests, archive))
    except Problem as problem:
        return replace(summary, problem=str(problem))
    return replace(
        summary,
        generations=len(manifests),
        first_generation=manifests[0].first,
        generation=manifests[-1].generation,
        created=str(manifests[-1].document()["created"]),
        events=sum(manifest.events for manifest in manifests),
        bytes=sum(manifest.bytes for manifest in manifests),
        layout=manifests[-1].layout,
    )


def _manifests(archive: Archive, listing: Listing) -> list[Manifest]:
    if not listing.generations:
        raise Damaged(f"the manifest of generation {listing.missing} is missing", where=archive.uri)
    return [archive.read_manifest(*name) for name in listing.names]
