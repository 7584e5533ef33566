"""Makes the archives in `spec/vectors`, and what a reader must say of them: `python -m testkit.vectors [FOLDER]`.

Each is small and has one feature. `vectors.json` has, for each, the verdict, the generations in force, events, bytes,
and the SHA-256 of each segment's archived bytes in order. `injured.json` has the same archives with a few edits. They
are made anew by each call, with other times in them: a change of anything else there is a change of the format.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from streamvault import (
    check_archive,
    convert_archive,
    delete_archive,
    export_stream,
    hold_archive,
    release_archive,
    rotate_stream,
)
from streamvault.common.errors import Damaged
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests import index
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.damage import ArchivedPart, read_verified
from streamvault.manifests.decisions import Decision
from streamvault.manifests.listing import Listing
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import StreamCut
from testkit.injured_vectors import injure
from testkit.small_archives import NAME, Vault, clear, merge, publish_with
from testkit.streams import make_byte_stream, payloads

MIB = 1024 * 1024


class Making(Vault):
    """A stream and its archive in a folder."""

    def more(self, seed: int, count: int = 6) -> None:
        self.add(*payloads(count, seed, largest=600))

    def generations(self, count: int, layout: LayoutName = "chunks", compress: Compression = "") -> None:
        """Archive the stream as it is, and as it is after more events."""
        for number in range(count):
            if number:
                self.more(number)
            self.export(layout, compress)


def _events(vault: Making) -> None:
    vault.make(40, 600)
    vault.generations(2, "events")


def _chunks(vault: Making) -> None:
    vault.make(60, 600)
    vault.generations(2)


def _zstd(vault: Making) -> None:
    vault.make(60, 600)
    vault.generations(2, "chunks", "zstd")


def _blocks(vault: Making) -> None:
    """Ranges of several blocks, the last of them short, and an event that is a range of its own."""
    vault.create(2)
    vault.add(b"small", bytes(MIB), b"x" * (2 * MIB), b"", bytes(8 * MIB + 1), b"last")
    export_stream(vault.uri(), vault.root, layout="chunks", compress="zstd", master="inline")


def _empty_events(vault: Making) -> None:
    vault.create(3)
    vault.add(b"", b"", b"")
    vault.export("events")
    vault.more(3)
    vault.export("chunks")


def _nothing(vault: Making) -> None:
    """A stream without an event."""
    vault.create(2)
    vault.export("events")


def _byte_stream(vault: Making) -> None:
    with vault.store as store:
        make_byte_stream(store, NAME)
    export_stream(vault.uri(), vault.root, content="bytes", range_size=4096, compress="zstd", master="inline")


def _sealed(vault: Making) -> None:
    vault.make(30, 200)
    vault.seal()
    vault.export("chunks")


def _limited(vault: Making) -> None:
    """Less than all of a stream that was sealed: its segment is sealed, and the generation is not."""
    vault.create(1)
    vault.more(1)
    upto = StreamCut(NAME, vault.tail()).to_json()
    vault.more(2)
    vault.seal()
    export_stream(vault.uri(), vault.root, layout="events", to_cut=upto, master="inline")


def _gap(vault: Making) -> None:
    """Events that were truncated before they could be archived."""
    vault.create(1)
    vault.more(1)
    vault.export("events")
    vault.more(2, 20)
    start = vault.tail()
    vault.more(3)
    (segment,) = start
    vault.truncate(start[segment])
    vault.more(4)
    vault.export("chunks", same_stream=True)


def _strays(vault: Making) -> None:
    """Objects that belong to no range, and keys that are none of an archive's."""
    _events(vault)
    folder = Path(vault.root.removeprefix("file://"), str(NAME))
    keys = sorted(path for path in folder.glob("events/*/*"))
    first = keys[0]
    (first.parent / f"{first.name[:-10]}0000000008").write_bytes(b"")
    (first.parent / f"{int(first.name[:19]) + 1:019d}-0000000012").write_bytes(b"bits")
    (folder / "events" / "readme.txt").write_bytes(b"not of the archive")
    (first.parent / f"{first.name}#1").write_bytes(b"being written")


def _merged(vault: Making) -> None:
    """Generations 1 to 3 merged, 4 alone; what was replaced is still there."""
    vault.create(2)
    vault.more(0)
    vault.generations(4)
    merge(vault, 1, 3)


def _merged_cleared(vault: Making) -> None:
    """Merged in two steps, and what was replaced is deleted."""
    _merged(vault)
    merge(vault, 1, 4)
    clear(vault)


def _undecided(vault: Making) -> None:
    """A merged generation that no decision names."""
    _merged(vault)
    for path in Path(vault.root.removeprefix("file://"), str(NAME), "_manifest", "decisions").iterdir():
        path.unlink()


def _expired(vault: Making) -> None:
    vault.create(2)
    vault.more(0)
    vault.generations(3, "events")
    vault.more(9)
    rotate_stream(vault.uri(), vault.root, keep=2, layout="events", range_size=4096, master="inline")


def _held(vault: Making) -> None:
    _chunks(vault)
    hold_archive(vault.archive, "audit-2026", generation=1, why="a reason")
    hold_archive(vault.archive, "other")
    release_archive(vault.archive, "other")


def _line(vault: Making) -> None:
    vault.create(1)
    vault.more(1)
    export_stream(vault.uri(), vault.root, layout="events", line="daily", master="inline")


def _converted(vault: Making) -> None:
    """An archive without its first generation, in another layout."""
    _expired(vault)
    convert_archive(vault.archive, f"{vault.root}/converted", layout="chunks", compress="zstd", master="inline")
    shutil.rmtree(Path(vault.root.removeprefix("file://"), NAME.scope))


def _deletion_begun(vault: Making) -> None:
    _chunks(vault)

    def begin(listing: Listing) -> Decision:
        return listing.decision.delete("begun")

    Archive(RootAddress.parse(vault.root), NAME).decide(begin, deleting=True)


def _deleted(vault: Making) -> None:
    _chunks(vault)
    delete_archive(vault.archive, yes=True)


def _schemas(vault: Making) -> None:
    """Events of a schema registry: the manifest has what decodes them."""
    vault.create(1)
    vault.add(b"\x01\x00\x00\x00\x00\x0ahello")
    schema = base64.b64encode(b'{"type": "string"}').decode()
    entry = SchemaEntry(type="word", format="Avro", version=0, data=schema, encoding=0, codec="")
    publish_with(vault, schemas=SchemaGroup(group="words", entries=(entry,)))


def _noted(vault: Making) -> None:
    """Checksums of blocks that a check has noted, as the index of an earlier release has none."""
    vault.create(1)
    vault.add(bytes(2 * MIB), b"rest")
    with patch.object(index, "MAX_WITH_BLOCKS", 0):
        export_stream(vault.uri(), vault.root, layout="chunks", compress="zstd", master="inline")
    check_archive(vault.archive, read_data=True, master="inline")


def _checked(vault: Making) -> None:
    _chunks(vault)
    check_archive(vault.archive, read_data=True, master="inline")


def _reader_groups(vault: Making) -> None:
    vault.create(1)
    vault.more(1)
    publish_with(vault, reader_groups=())


VECTORS: Mapping[str, tuple[Callable[[Making], None], str]] = {
    "events": (_events, ""),
    "chunks": (_chunks, ""),
    "zstd": (_zstd, ""),
    "blocks": (_blocks, ""),
    "empty-events": (_empty_events, ""),
    "no-events": (_nothing, ""),
    "byte-stream": (_byte_stream, ""),
    "sealed": (_sealed, ""),
    "limited": (_limited, ""),
    "gap": (_gap, ""),
    "strays": (_strays, ""),
    "merged": (_merged, ""),
    "merged-cleared": (_merged_cleared, ""),
    "merge-undecided": (_undecided, ""),
    "expired": (_expired, ""),
    "held": (_held, ""),
    "line": (_line, "_line-daily/"),
    "converted": (_converted, "converted/"),
    "deletion-begun": (_deletion_begun, ""),
    "deleted": (_deleted, ""),
    "schemas": (_schemas, ""),
    "noted-checksums": (_noted, ""),
    "checked": (_checked, ""),
    "reader-groups": (_reader_groups, ""),
}
"""Name → what makes it, and where it is below its root."""


def verdict(archive: Path) -> str:
    """Return what `streamvault check --read-data` says of an archive in a folder, as a verdict of the specification."""
    try:
        report = check_archive(f"file://{archive}", read_data=True, master="inline")
    except NoSuchArchive:
        return "absent"
    except Damaged as error:
        return "reject" if "newer release" in error.todo else "damage"
    return "intact" if report.ok else "damage"


def expected(archive: Archive) -> dict[str, Any]:
    """Return what a reader must find in an intact archive."""
    try:
        history = archive.history()
    except NoSuchArchive:
        return {"verdict": "absent"}
    segments: dict[str, dict[str, Any]] = {}
    for segment in history.segments():
        digest, size, count = hashlib.sha256(), 0, 0
        for layout, row in history.ranges(segment):
            for block in read_verified(ArchivedPart.all_of(archive.address, layout, row)):
                digest.update(block)
            size, count = size + row.end - row.start, count + row.events
        segments[str(segment)] = {"bytes": size, "events": count, "sha256": digest.hexdigest()}
    return {
        "verdict": "intact",
        "generations": [[one.manifest.first, one.manifest.generation] for one in history.generations],
        "events": history.events,
        "bytes": history.bytes,
        "segments": segments,
    }


def make(folder: Path) -> None:
    """Make all vectors in a folder, which is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    found, archives = [], dict[str, Path]()
    for name, (build, below) in VECTORS.items():
        root = folder / name
        root.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as streams:
            vault = Making(Path(streams), f"file://{root}")
            build(vault)
        archive = Archive(RootAddress.parse(f"file://{root}/{below}".rstrip("/")), NAME)
        archives[name] = root / below / str(NAME)
        found.append({"name": name, "archive": f"{name}/{below}{NAME}", **expected(archive)})
    (folder / "vectors.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "injured.json").write_text(json.dumps(injure(archives), indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1] if sys.argv[1:] else "spec/vectors").absolute())
