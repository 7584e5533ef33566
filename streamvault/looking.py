"""The verbs *ls* and *show*."""

from __future__ import annotations

from manifests.archive import Archive
from manifests.model import Manifest
from objectstore.uri import RootAddress
from problems import Problem
from streamstore.errors import InvalidName
from streamstore.model import StreamName
from streamvault.reports import ArchiveSummary

__all__ = ["list_archives", "show_archive"]


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


def open_archive(uri: str) -> Archive:
    """The archive at ``ROOT/SCOPE/STREAM``."""
    address, scope, stream = RootAddress.parse(uri).split()
    return Archive(address.open(), StreamName(scope, stream))


def _summary(archive: Archive) -> ArchiveSummary | None:
    numbers = archive.generations()
    if not numbers:
        return None
    try:
        manifests = [archive.manifest(number) for number in numbers]
    except Problem as problem:
        return ArchiveSummary(
            archive=archive.uri,
            stream=str(archive.stream),
            generations=len(numbers),
            generation=numbers[-1],
            problem=str(problem),
        )
    return ArchiveSummary(
        archive=archive.uri,
        stream=str(archive.stream),
        generations=len(numbers),
        generation=numbers[-1],
        created=str(manifests[-1].document()["created"]),
        events=sum(manifest.events for manifest in manifests),
        bytes=sum(manifest.bytes for manifest in manifests),
        layout=manifests[-1].layout,
    )
