"""Small streams in an embedded store, archived in memory: for tests of the verbs without servers and Spark."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, export_stream
from streamvault.common.progress import Progress
from streamvault.common.units import now_utc
from streamvault.exporter import compact as compacting
from streamvault.exporter.compact import Compacted
from streamvault.exporter.reports import CompactOptions, ExportReport
from streamvault.layouts.keys import GenerationSpan, chunk_key
from streamvault.layouts.layout import Compression, LayoutName, open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.history import with_rows
from streamvault.manifests.manifest import GapEntry
from streamvault.manifests.merging import delete_replaced
from streamvault.manifests.verbs.check import read_back
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectStore, crc64nvme
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.inline import InlineRunner
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import (
    EventPointer,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from testkit.streams import append_events, bytes_of, digest_of, events_of, make_stream, shape_of

NAME = StreamName("scope", "stream")
KINDS: tuple[tuple[LayoutName, Compression], ...] = (("events", ""), ("chunks", ""), ("chunks", "zstd"))
RANGE_SIZE = 4 * 1024


def a_root() -> str:
    return f"memory://{uuid.uuid4().hex}"


class LocalStreams:
    """What is looked up in an embedded store, or changed there, by one call each."""

    @property
    def store(self) -> LocalStore:
        raise NotImplementedError

    @property
    def described(self) -> StreamDescription:
        """The stream as it is now."""
        return self.describe()

    def describe(self, name: StreamName = NAME) -> StreamDescription:
        with self.store as store:
            return store.describe(name)

    def configuration(self, name: StreamName = NAME) -> StreamConfiguration:
        return self.describe(name).configuration

    def tail(self, name: StreamName = NAME) -> dict[SegmentId, int]:
        return dict(self.describe(name).tail.offsets)

    def exists(self, name: StreamName = NAME) -> bool:
        with self.store as store:
            return store.exists(name)

    def listed(self, scope: str = NAME.scope, *, own: bool = False) -> list[StreamName]:
        with self.store as store:
            return list(store.list_streams(scope, own=own))

    def create_stream(self, name: StreamName, configuration: StreamConfiguration) -> None:
        with self.store as store:
            store.create_stream(name, configuration)

    def update_stream(self, name: StreamName, configuration: StreamConfiguration) -> None:
        with self.store as store:
            store.update_stream(name, configuration)

    def write(self, name: StreamName, segment: SegmentId, payloads: Sequence[bytes]) -> None:
        with self.store as store:
            append_events(store, name, segment, payloads)

    def seal(self, name: StreamName = NAME) -> None:
        with self.store as store:
            store.seal(name)

    def delete(self, name: StreamName = NAME) -> None:
        with self.store as store:
            store.delete(name)

    def events(self, name: StreamName = NAME) -> list[tuple[EventPointer, bytes]]:
        with self.store as store:
            return list(events_of(store, name))

    def payloads(self, name: StreamName = NAME) -> list[bytes]:
        return [payload for _, payload in self.events(name)]

    def digest(self, name: StreamName = NAME) -> tuple[int, str]:
        with self.store as store:
            return digest_of(store, name)

    def shape(self, name: StreamName = NAME) -> dict[str, object]:
        with self.store as store:
            return shape_of(store, name)

    def bytes_of(self, name: StreamName = NAME) -> dict[str, tuple[int, bytes]]:
        with self.store as store:
            return bytes_of(store, name)


@dataclass(frozen=True)
class Vault(LocalStreams):
    """A stream and its archive."""

    folder: Path
    root: str = field(default_factory=a_root)

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "streams")

    def uri(self, stream: StreamName = NAME) -> str:
        return f"local://{self.folder}/streams/{stream}"

    @property
    def archive(self) -> str:
        return f"{self.root}/{NAME}"

    def make(self, events: int = 300, largest: int = 30_000) -> None:
        with self.store as store:
            make_stream(store, NAME, events=events, largest=largest)

    def create(self, segments: int = 1) -> None:
        """Create the stream, empty."""
        with self.store as store:
            store.create_stream_and_scope(NAME, StreamConfiguration(scaling=Scaling(min_segments=segments)))

    def truncate(self, offset: int | StreamCut) -> None:
        """Truncate the stream, or its only segment at an offset."""
        cut = StreamCut(NAME, {SegmentId(0, 0): offset}) if isinstance(offset, int) else offset
        with self.store as store:
            store.truncate(cut)

    def add(self, *payloads: bytes) -> None:
        """Append the same events to every open segment."""
        with self.store as store:
            for segment in sorted(store.describe(NAME).tail.offsets):
                append_events(store, NAME, segment, payloads)

    def export(
        self,
        layout: LayoutName = "events",
        compress: Compression = "",
        *,
        same_stream: bool = False,
        progress: Progress | None = None,
    ) -> ExportReport:
        return export_stream(
            self.uri(),
            self.root,
            layout=layout,
            compress=compress,
            range_size=RANGE_SIZE,
            same_stream=same_stream,
            master="inline[2]",
            progress=progress,
        )


def a_vault(
    *first: bytes,
    segments: int = 1,
    events: int | None = None,
    largest: int = 30_000,
    exports: Sequence[tuple[LayoutName, Compression]] = (),
    between: Sequence[bytes | Sequence[bytes]] = (),
    on_disk: bool = False,
) -> Any:
    """A fixture that makes a stream and its archive.

    Args:
        first: the first events of each segment of a stream that is never scaled.
        segments: how many it has.
        events: make a stream that was scaled and truncated instead, with so many events.
        largest: its largest event (bytes).
        exports: layout and compression of each generation.
        between: what is appended to each open segment before each generation but the first, and then behind the last.
        on_disk: whether the archive is in a folder, not in memory.
    """

    @pytest.fixture
    def vault(tmp_path: Path) -> Vault:
        made = Vault(tmp_path, f"file://{tmp_path}/vault") if on_disk else Vault(tmp_path)
        if on_disk:
            (tmp_path / "vault").mkdir()
        if events is None:
            made.create(segments)
            made.add(*first)
        else:
            made.make(events, largest)
        for export, more in zip_longest(exports, between):
            if export:
                made.export(*export)
            if more:
                made.add(*([more] if isinstance(more, bytes) else more))
        return made

    return vault


def objects_of(root: str) -> ObjectStore:
    return RootAddress.parse(root).open()


def archive_of(root: str) -> Archive:
    return Archive(RootAddress.parse(root), NAME)


def is_sound(root: str) -> bool:
    """Check all of an archive's data."""
    report = check_archive(f"{root}/{NAME}", read_data=True, master="inline[2]")
    assert report.ok, report.findings
    return True


def contents(root: str) -> dict[str, bytes]:
    store = objects_of(root)
    return {entry.key: store.get(entry.key) for entry in store.list("")}


def data_keys(root: str) -> list[str]:
    return [key for key in contents(root) if "/_" not in key]


def segments_of(root: str) -> dict[tuple[int, str], bytes]:
    """The archived bytes of each range: (its start, its segment) → bytes."""
    archive = archive_of(root)
    return {
        (row.start, str(segment)): b"".join(
            bytes(block) for block in open_layout(layout).read_range(archive.place, row, row.start, row.end)
        )
        for segment in archive.history().segments()
        for layout, row in archive.history().ranges(segment)
    }


def forge(root: str, key: str, at: int) -> None:
    """Change nine bytes of an object so that its CRC64NVME is the same: by a multiple of the checksum's polynomial."""
    data = bytearray(objects_of(root).get(key))
    for place, byte in enumerate((1 | 0x9A6C9329AC4BC9B5 << 1).to_bytes(9, "little"), at):
        data[place] ^= byte
    assert crc64nvme(data) == crc64nvme(objects_of(root).get(key))
    replace_object(root, key, bytes(data))


def replace_object(root: str, key: str, data: bytes | None) -> None:
    """Change an object, or delete it."""
    store = objects_of(root)
    store.delete([key])
    if data is not None:
        store.put(key, data)


def merge(vault: Vault, first: int, last: int, *, grace: float = 0.0) -> Compacted:
    """Merge generations into one, with a grace that may be shorter than a user's."""
    options = CompactOptions().model_copy(update={"grace": grace})
    span = GenerationSpan(first, last)
    return compacting.compact_generations(archive_of(vault.root), span, options, lambda: InlineRunner(1), Progress())


def forge_gaps(honest: Archive, forged: Archive) -> None:
    """Publish the first generation of an archive in another one, by puts alone: but for the last range, all is gaps."""
    generation = honest.load(1)
    kept = [rows[-1] for rows in generation.rows.values()]
    gaps = tuple(
        GapEntry(segment=row.segment.in_stream(honest.stream), start=entry.start, end=row.start, reason="truncated")
        for row in kept
        for entry in generation.manifest.segments
        if entry.id == row.segment
    )
    for row in kept:
        key = chunk_key(row.segment, row.start, row.end - row.start)
        forged.store.put(forged.prefix + key, honest.store.get(honest.prefix + key, row.end - row.start))
    manifest = generation.manifest.model_copy(update={"gaps": gaps, "index": None})
    assert forged.commit(with_rows(manifest, kept, None, ""), kept)


def publish_with(vault: Vault, **members: Any) -> None:
    """Archive the stream in a folder, in one generation whose manifest has more members."""
    with tempfile.TemporaryDirectory() as folder:
        export_stream(vault.uri(), f"file://{folder}", layout="events", master="inline")
        honest = Archive(RootAddress.parse(f"file://{folder}"), NAME).load(1)
        shutil.copytree(f"{folder}/{NAME}/events", Path(vault.root.removeprefix("file://"), str(NAME), "events"))
    archive = Archive(RootAddress.parse(vault.root), NAME)
    manifest = honest.manifest.model_copy(update={"index": None, **members})
    assert archive.commit(manifest, [row for rows in honest.rows.values() for row in rows])


def before_a_decision(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object], *, part: str = "/decisions/"
) -> None:
    """Run something while the next decision is being written, or another object that has a part in its key."""
    put = ObstoreStore.put

    def late(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        if part in key:
            monkeypatch.setattr(ObstoreStore, "put", put)
            happens()
        put(self, key, data)

    monkeypatch.setattr(ObstoreStore, "put", late)


def clear(vault: Vault) -> int:
    """Read back the merged generation and delete the replaced objects, as if the grace period were over."""
    archive = archive_of(vault.root)
    read_back(archive, lambda: InlineRunner(1), Progress())
    deleted, waiting = delete_replaced(archive, now=now_utc() + timedelta(hours=2))
    assert not waiting
    return deleted.objects
