"""Creates, lists and deletes scopes, and streams in them."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from streamvault.streamstore.errors import (
    InvalidName,
    ScopeNotEmpty,
    StreamExists,
    StreamStoreError,
    StreamStoreUnavailable,
)
from streamvault.streamstore.local.files import locked, make_folder, replace_file, sync_folder, system_errors
from streamvault.streamstore.local.folder import StreamFolder, check_first, scope_errors
from streamvault.streamstore.local.record import StreamRecord, save_record
from streamvault.streamstore.model import Epoch, KeyRange, SegmentId, StreamConfiguration, StreamCut, StreamName

DRAFT = ".new-"
REMAINS = ".deleted-"


def scope_names(root: Path) -> Iterator[str]:
    """Every scope, sorted; none if the store's folder is not there."""
    try:
        with system_errors(root):
            entries = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return
    yield from (name for name in entries if _is_name(name))


def stream_names(root: Path, scope: str) -> Iterator[StreamName]:
    """Every stream of a scope, sorted.

    Raises:
        NoSuchScope: the scope does not exist.
    """
    _check_name(scope)
    with scope_errors(root, scope):
        entries = sorted(entry.name for entry in (root / scope).iterdir())
    for name in entries:
        if _is_name(name) and StreamFolder(root, StreamName(scope, name)).exists():
            yield StreamName(scope, name)


def create_scope(root: Path, scope: str) -> bool:
    """Create a scope, and the store's folder if missing; return False if it already existed."""
    _check_name(scope)
    try:
        with system_errors(root / scope):
            return make_folder(root / scope)
    except FileNotFoundError as error:  # a file system on which no folder can be made
        why = error.strerror
        raise StreamStoreUnavailable(f"the store's folder cannot be used ({why})", where=str(root / scope)) from None


def delete_scope(root: Path, scope: str) -> None:
    """Delete an empty scope.

    Raises:
        ScopeNotEmpty: it has streams or unknown files.
        NoSuchScope: it does not exist.
    """
    _check_name(scope)
    remains = root / f"{REMAINS}{secrets.token_hex(8)}"
    with scope_errors(root, scope), locked(root / scope):
        if any(not _is_own(entry.name) for entry in (root / scope).iterdir()):
            raise ScopeNotEmpty(
                "the scope is not empty", where=f"local://{root}/{scope}", todo="Delete its streams first."
            )
        (root / scope).rename(remains)
        sync_folder(root)
    _sweep(root)


def create_stream(folder: StreamFolder, configuration: StreamConfiguration) -> None:
    """Create a stream with segments of equal width.

    Raises:
        StreamExists: the stream exists.
        NoSuchScope: its scope does not exist.
    """
    count = configuration.scaling.min_segments
    if count < 1:
        raise ValueError(f"a stream needs at least one segment, not {count}")
    scope = folder.path.parent
    with scope_errors(folder.root, folder.stream.scope), locked(scope):
        if folder.path.exists():
            raise StreamExists("the stream exists", where=f"local://{folder.root}/{folder.stream}")
        _sweep(scope)
        first = _numbers(folder).get(folder.stream.stream, 0)
        segments = {SegmentId(0, first + i): held for i, held in enumerate(_equal_ranges(count))}
        head = StreamCut(folder.stream, dict.fromkeys(segments, 0))
        draft = scope / f"{DRAFT}{secrets.token_hex(8)}"
        draft.mkdir()
        save_record(draft, StreamRecord(folder.stream, configuration, (Epoch(0, segments),), head))
        draft.rename(folder.path)
        sync_folder(scope)


def delete_stream(folder: StreamFolder, first: Epoch | None = None) -> None:
    """Delete a stream with its data; a later stream of this name continues its segment numbers.

    Raises:
        NoSuchStream: the stream does not exist.
        NoSuchScope: the scope does not exist.
        StreamChanged: the stream has another first epoch.
    """
    scope = folder.path.parent
    with scope_errors(folder.root, folder.stream.scope), locked(scope):
        with folder.locked() as record:
            check_first(record, first)
            numbers = _numbers(folder)
            numbers[folder.stream.stream] = max(segment.number for segment in record.current.segments) + 1
            path = _numbers_path(folder)
            make_folder(path.parent)
            replace_file(path, json.dumps(numbers, indent=1, sort_keys=True).encode() + b"\n")
            folder.path.rename(scope / f"{REMAINS}{secrets.token_hex(8)}")
            sync_folder(scope)
        _sweep(scope)


def _equal_ranges(count: int) -> Iterator[KeyRange]:
    """As Pravega cuts the key space; of 49, the last one ends an ulp below 1.0."""
    width = 1.0 / count
    return (KeyRange(i * width, (i + 1) * width) for i in range(count))


def _numbers_path(folder: StreamFolder) -> Path:
    """The file of a scope's deleted streams. It outlasts the scope: Pravega's numbers do."""
    return folder.root / ".numbers" / folder.stream.scope


def _numbers(folder: StreamFolder) -> dict[str, int]:
    """Return the first segment number for each deleted stream of the scope."""
    path = _numbers_path(folder)
    try:
        return {str(name): int(number) for name, number in json.loads(path.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError):
        raise StreamStoreError("the numbers of deleted streams are damaged", where=str(path)) from None


def _sweep(folder: Path) -> None:
    """Remove what a kill left of streams or scopes that were made or deleted."""
    for entry in folder.iterdir():
        if _is_own(entry.name):
            shutil.rmtree(entry, ignore_errors=True)


def _is_own(name: str) -> bool:
    return name.startswith((DRAFT, REMAINS))


def _is_name(name: str) -> bool:
    try:
        StreamName(name, name)
    except InvalidName:
        return False
    return True


def _check_name(scope: str) -> None:
    StreamName(scope, "stream")
