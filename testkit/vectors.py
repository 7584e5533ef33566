"""Makes the archives in `spec/vectors`, and what a reader must say of them: `python -m testkit.vectors [FOLDER]`.

Each is small and has one feature. `vectors.json` has, for each, the verdict, the generations in force, events, bytes,
and the SHA-256 of each segment's archived bytes in order. `injured.json` has the same archives with a few edits. They
are made anew by each call, with other times in them: a change of anything else there is a change of the format.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

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
from streamvault.manifests.files import seal
from streamvault.manifests.listing import Listing
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup
from streamvault.objectstore.uri import RootAddress
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
    entry = SchemaEntry(type="word", format="Avro", version=0, data=schema, encoding=0)
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


class Injuries:
    """The injured archives: vectors, and edits of their files.

    An edit is ``[what, key, argument]``: ``delete``; ``flip`` the lowest bit of the byte at an offset; ``truncate`` to
    a size; ``put`` the bytes in base64, in place of what is there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.made: list[dict[str, Any]] = []

    def add(self, name: str, of: str, verdict: str, *edits: Sequence[Any]) -> None:
        self.made.append({"name": name, "of": of, "verdict": verdict, "edits": [list(edit) for edit in edits]})

    def data(self, of: str, key: str) -> bytes:
        return (self._folder / of / VECTORS[of][1] / str(NAME) / key).read_bytes()

    def keys(self, of: str, pattern: str) -> list[str]:
        archive = self._folder / of / VECTORS[of][1] / str(NAME)
        return sorted(str(path.relative_to(archive)) for path in archive.glob(pattern) if path.is_file())

    def member(self, of: str, key: str, *changes: tuple[str, str]) -> list[Any]:
        """Replace a text in a JSON file, once, and its digest."""
        text = self.data(of, key).decode()
        for old, new in changes:
            assert old in text, (of, key, old)
            text = text.replace(old, new, 1)
        return put(key, resealed(text.encode()))

    def index(self, of: str, generation: int, change: Callable[[pa.Table], pa.Table]) -> list[list[Any]]:
        """Change a generation's index, and its manifest with it."""
        key, manifest = (f"_manifest/{generation:010d}.{kind}" for kind in ("ranges.parquet", "json"))
        sink, file = io.BytesIO(), pq.ParquetFile(io.BytesIO(self.data(of, key)))
        held = {name: text for name, text in file.metadata.metadata.items() if name.startswith(b"streamvault")}
        table = change(file.read().replace_schema_metadata(held))
        with pq.ParquetWriter(
            sink, table.schema.remove_metadata(), compression="none", use_dictionary=["segment"]
        ) as out:
            out.write_table(table.replace_schema_metadata(None))
            out.add_key_value_metadata(table.schema.metadata)
        document = json.loads(self.data(of, manifest))
        document["index"] = {"bytes": len(sink.getvalue()), "digest": hashlib.sha256(sink.getvalue()).hexdigest()}
        del document["sha256"]
        return [put(key, sink.getvalue()), put(manifest, seal(document))]


def put(key: str, data: bytes) -> list[Any]:
    return ["put", key, base64.b64encode(data).decode()]


def resealed(data: bytes) -> bytes:
    """Return a JSON file with its digest computed anew."""
    before, seal_, rest = data.rpartition(b' "sha256": "')
    digest = hashlib.sha256(before + seal_ + b"0" * 64 + rest[64:]).hexdigest().encode()
    return before + seal_ + digest + rest[64:]


def edit(archive: Path, edits: Sequence[Sequence[Any]]) -> None:
    """Injure an archive in a folder."""
    for what, key, *argument in edits:
        path = archive / key
        if what == "delete":
            path.unlink()
        elif what == "put":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(argument[0]))
        elif what == "truncate":
            path.write_bytes(path.read_bytes()[: argument[0]])
        else:
            data = bytearray(path.read_bytes())
            data[argument[0]] ^= 1
            path.write_bytes(data)


def random_edits(archive: Path, seed: int) -> list[list[Any]]:
    """Return one to three random edits of files that have an effect.

    Not of what merging has left: a check may call that damaged, and readers do not look at it.
    """
    rng, edits = random.Random(seed), list[list[Any]]()
    left = set() if not list(archive.glob("_manifest/*-*.json")) else {f"{number:010d}" for number in (1, 2, 3)}
    decided = (archive / "_manifest" / "decisions").is_dir()
    keys = sorted(str(path.relative_to(archive)) for path in archive.rglob("*") if path.is_file())
    keys = [key for key in keys if key.split("/")[1].partition(".")[0] not in left]
    keys = [key for key in keys if decided or "-" not in key.partition("_manifest/")[2]]
    for _ in range(min(rng.choice([1, 1, 2, 3]), len(keys))):
        key = keys.pop(rng.randrange(len(keys)))
        size = (archive / key).stat().st_size
        match rng.choice(["delete", "put", "flip" if size else "delete", "truncate" if size else "put"]):
            case "delete":
                edits.append(["delete", key])
            case "put":
                edits.append(put(key, (archive / rng.choice([key, *keys])).read_bytes()))
            case what:
                edits.append([what, key, rng.randrange(size)])
    return edits


FIRST, SECOND, DECISION = (
    "_manifest/0000000001.json",
    "_manifest/0000000002.json",
    "_manifest/decisions/000000000{}.json",
)
INDEX = "_manifest/0000000001.ranges.parquet"


def injure(folder: Path) -> list[dict[str, Any]]:
    """Return the injured archives."""
    made = Injuries(folder)
    _injure_data(made)
    _injure_manifests(made)
    _injure_indexes(made)
    _injure_decisions(made)
    return made.made


def _injure_data(made: Injuries) -> None:
    for of, pattern in {
        "events": "events/*/*",
        "chunks": "chunks/*/*",
        "zstd": "chunks/*/*",
        "byte-stream": "chunks/*/*",
    }.items():
        key = max(made.keys(of, pattern), key=lambda one: len(made.data(of, one)))
        made.add(f"{of}, an object is missing", of, "damage", ["delete", key])
        made.add(f"{of}, an object is shorter", of, "damage", ["truncate", key, len(made.data(of, key)) - 1])
        made.add(f"{of}, an object is longer", of, "damage", put(key, made.data(of, key) + b"x"))
        made.add(f"{of}, a bit is flipped", of, "damage", ["flip", key, len(made.data(of, key)) // 2])
        made.add(f"{of}, an object is empty", of, "damage", ["truncate", key, 0])
    key = made.keys("events", "events/*/*")[-1]
    folder, _, name = key.rpartition("/")
    offset, length = map(int, name.split("-"))
    made.add("events, a stray inside an event", "events", "intact", put(f"{folder}/{offset + 1:019d}-0000000009", b"x"))
    made.add(
        "events, a stray behind the last", "events", "intact", put(f"{folder}/{offset + length:019d}-0000000009", b"x")
    )
    made.add("events, a shorter rival", "events", "intact", put(f"{folder}/{offset:019d}-0000000008", b""))
    halves = [
        put(f"{folder}/{offset:019d}-0000000009", b"x"),
        put(f"{folder}/{offset + 9:019d}-{length - 9:010d}", bytes(length - 17)),
    ]
    made.add("events, another chain to the end", "events", "intact", *halves)
    made.add("events, only another chain to the end", "events", "damage", ["delete", key], *halves)
    made.add("chunks, a foreign object", "chunks", "intact", put("chunks/readme", b"x"), put("_other/file", b"x"))
    chunk = made.keys("chunks", "chunks/*/*")[-1]
    made.add("chunks, a stray at the start of a range", "chunks", "intact", put(f"{chunk[:-19]}{1:019d}", b"x"))
    made.add("chunks, a file being written", "chunks", "intact", put(f"{chunk}#7", b"x"))


def _injure_manifests(made: Injuries) -> None:
    of = "chunks"
    text = made.data(of, FIRST)
    made.add("manifest, a bit is flipped", of, "damage", ["flip", SECOND, 700])
    made.add("manifest, truncated", of, "damage", ["truncate", FIRST, len(text) - 20])
    made.add("manifest, empty", of, "damage", ["truncate", FIRST, 0])
    made.add("manifest, reformatted", of, "damage", put(FIRST, json.dumps(json.loads(text)).encode()))
    made.add("manifest, the first is missing", of, "damage", ["delete", FIRST])
    made.add("manifest, the newest is missing", "checked", "damage", ["delete", SECOND])
    made.add("manifest, the newest is missing, no mark", of, "damage", ["delete", SECOND])
    made.add(
        "manifest, the newest and its index are missing",
        of,
        "intact",
        ["delete", SECOND],
        ["delete", INDEX.replace("1", "2")],
    )
    made.add("manifest, that of another generation", of, "damage", put(SECOND, text))
    made.add(
        "manifest, that of another stream",
        of,
        "damage",
        made.member(of, SECOND, ('"stream": "stream"', '"stream": "other"')),
    )
    made.add(
        "manifest, of another line",
        "line",
        "damage",
        made.member("line", FIRST, ('"line": "daily"', '"line": "weekly"')),
    )
    for name, verdict, *changes in (
        ("a newer format", "reject", ('"format": 2,', '"format": 99,')),
        (
            "a feature that nobody knows",
            "reject",
            ('"format": 2,', '"format": 2,\n "features": [\n  "unheard-of"\n ],'),
        ),
        (
            "a newer format, and a member less",
            "reject",
            ('"format": 2,', '"format": 99,'),
            (' "range_size": 4096,\n', ""),
        ),
        (
            "a feature that nobody knows, and a member less",
            "reject",
            ('"format": 2,', '"format": 2,\n "features": [\n  "unheard-of"\n ],'),
            (' "range_size": 4096,\n', ""),
        ),
        ("a member that nobody knows", "intact", ('"format": 2,', '"format": 2,\n "note": "x",')),
        ("a name twice", "damage", ('"format": 2,', '"format": 2,\n "format": 2,')),
        ("an integer with a fraction", "damage", ('"generation": 2,', '"generation": 2.0,')),
        ("an integer as text", "damage", ('"generation": 2,', '"generation": "2",')),
        ("a negative offset", "damage", ('"start": ', '"start": -')),
        ("a member is missing", "damage", (' "range_size": 4096,\n', "")),
        ("a kind of scaling that is none", "damage", ('"kind": "fixed"', '"kind": "other"')),
        ("a time with an offset", "intact", ('Z",\n "scope"', '+00:00",\n "scope"')),
        ("a time that is none", "damage", ('"created": "2', '"created": "x')),
        ("begins elsewhere", "damage", ('"from": {', '"from": {\n  "scope/stream/9.#epoch.9": 0,')),
        ("a digest in capitals", "damage", ('"digest": "', '"digest": "A')),
    ):
        made.add(f"manifest, {name}", of, verdict, made.member(of, SECOND, *changes))
    document = json.loads(made.data(of, SECOND))
    del document["sha256"]

    def changed(name: str, verdict: str, change: Callable[[dict[str, Any]], object]) -> None:
        copy = json.loads(json.dumps(document))
        change(copy)
        made.add(f"manifest, {name}", of, verdict, put(SECOND, seal(copy)))

    changed("another total of events", "damage", lambda one: one.update(events=one["events"] + 1))
    changed("a segment is left out", "damage", lambda one: one["segments"].pop())
    changed("two segments in another order", "damage", lambda one: one["segments"].reverse())
    changed("a segment that is open is sealed", "damage", lambda one: one["segments"][-1].update(sealed=True))
    changed("an epoch is left out", "damage", lambda one: one["epochs"].pop())
    third, half = (
        document["epochs"][1].removeprefix("0.0>3:").partition(",")[0],
        document["epochs"][2].partition(":")[2],
    )
    for name, verdict, number, said in (
        ("no text", "damage", 1, 17),
        ("without an arrow", "damage", 1, "0.0"),
        ("seals a segment that is not open", "damage", 1, f"0.9>3:{third},4"),
        ("seals a segment twice", "damage", 1, f"0.0,0.0>3:{third},4"),
        ("seals a segment without its epoch", "damage", 1, f"0>3:{third},4"),
        ("opens a segment twice", "damage", 1, f"0.0>4:{third},4"),
        ("opens a segment anew", "damage", 1, f"0.0>0.0:{third},4"),
        ("opens a segment of a later epoch", "damage", 1, f"0.0>2.3:{third},4"),
        ("keys of a neighbour", "damage", 3, "1.3>6:0.9"),
        ("keys that nothing opened holds", "damage", 3, "0.2>6:0.9"),
        ("keys that end where they begin", "damage", 1, "0.0>3:0.0,4"),
        ("keys beyond 1", "damage", 3, "0.2>6:1.5"),
        ("a number with zeros before it", "damage", 1, f"0.0>03:{third},4"),
        ("a key with a sign", "damage", 1, f"0.0>3:+{third},4"),
        ("a number that is too large", "damage", 1, f"0.0>2147483648:{third},4"),
        ("white space", "damage", 1, f"0.0>3:{third}, 4"),
        ("an end that could be left out", "intact", 3, "0.2>6:1.0"),
        ("an end that is a whole number", "intact", 3, "0.2>6:1"),
        ("sealed segments in another order", "intact", 2, f"0.1,1.4>5:{half}"),
    ):
        changed(f"epochs, {name}", verdict, lambda one, at=number, to=said: one["epochs"].__setitem__(at, to))
    changed(
        "a gap outside",
        "damage",
        lambda one: one["gaps"].append(
            {"segment": one["segments"][0]["name"], "start": 0, "end": 2**40, "reason": "x"}
        ),
    )
    changed(
        "an empty gap",
        "intact",
        lambda one: one["gaps"].append(
            {
                "segment": one["segments"][0]["name"],
                "start": one["segments"][0]["start"],
                "end": one["segments"][0]["start"],
                "reason": "x",
            }
        ),
    )
    changed("the digest of a segment", "damage", lambda one: one["segments"][0].update(digest="0" * 64))
    changed(
        "does not begin where the first ended", "damage", lambda one: one.update({"from": json.loads(text)["from"]})
    )
    changed("no index", "damage", lambda one: one.pop("index"))
    changed("a layout that is none", "damage", lambda one: one.update(layout="other"))
    changed("a compression that is none", "damage", lambda one: one.update(compression="gzip"))
    changed("other content", "damage", lambda one: one.update(content="bytes"))
    changed("a witness that does not end at the cut", "damage", lambda one: one["witness"][0].update(offset=0))
    changed("no configuration", "damage", lambda one: one.pop("configuration"))


def _injure_indexes(made: Injuries) -> None:
    for of in ("chunks", "zstd"):
        made.add(f"index of {of}, missing", of, "damage", ["delete", INDEX])
        made.add(f"index of {of}, a bit is flipped", of, "damage", ["flip", INDEX, 40])
        made.add(f"index of {of}, truncated", of, "damage", ["truncate", INDEX, 100])
        made.add(
            f"index of {of}, that of another generation",
            of,
            "damage",
            put(INDEX, made.data(of, INDEX.replace("1", "2"))),
        )

    def with_column(name: str, change: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
        def apply(table: pa.Table) -> pa.Table:
            at = table.schema.get_field_index(name)
            field = table.schema.field(at)
            return table.set_column(at, field, pa.array(change(table.column(name).to_pylist()), field.type))

        return apply

    def with_metadata(key: str, value: Callable[[bytes], bytes]) -> Callable[[pa.Table], pa.Table]:
        def apply(table: pa.Table) -> pa.Table:
            held, name = dict(table.schema.metadata or {}), f"streamvault.{key}".encode()
            return table.replace_schema_metadata({**held, name: value(held.get(name, b""))})

        return apply

    for name, of, verdict, change in (
        ("written anew", "chunks", "intact", lambda table: table),
        ("a row is missing", "chunks", "damage", lambda table: table.slice(1)),
        ("a row twice", "chunks", "damage", lambda table: pa.concat_tables([table.slice(0, 1), table])),
        ("rows in another order", "chunks", "damage", lambda table: table.take(list(reversed(range(len(table)))))),
        ("one more column", "chunks", "damage", lambda table: table.append_column("x", table.column("start"))),
        ("a column is missing", "chunks", "damage", lambda table: table.drop_columns(["events"])),
        ("another digest", "chunks", "damage", with_column("digest", lambda x: [*x[:-1], "0" * 64])),
        ("another segment", "chunks", "damage", with_column("segment", lambda x: ["a/b/0.#epoch.0", *x[1:]])),
        ("an end before its start", "chunks", "damage", with_column("end", lambda x: [0, *x[1:]])),
        ("more events than fit", "chunks", "damage", with_column("events", lambda x: [10**6, *x[1:]])),
        ("frames of another size", "zstd", "damage", with_column("frames", lambda x: [[y[0] + 1, *y[1:]] for y in x])),
        ("too few frames", "blocks", "damage", with_column("frames", lambda x: [one[:-1] or one for one in x])),
        ("a digest of another algorithm", "chunks", "reject", with_metadata("digest", lambda _: b"blake3")),
        ("metadata that nobody knows", "chunks", "intact", with_metadata("unheard-of", lambda _: b"x")),
        ("no valid checksum of an object", "chunks", "damage", with_metadata("crc64nvme.0", lambda x: b"x" * len(x))),
        ("checksums of objects for more rows", "chunks", "damage", with_metadata("crc64nvme.0", lambda x: x + x)),
        ("checksums of blocks for more rows", "chunks", "damage", with_metadata("blocks.0", lambda x: x + x)),
        ("unknown checksums of blocks", "chunks", "intact", with_metadata("blocks.0", lambda x: b"." * len(x))),
        ("unknown checksums of objects", "chunks", "intact", with_metadata("crc64nvme.0", lambda x: b"." * len(x))),
        ("another checksum of a block", "blocks", "damage", with_metadata("blocks.0", lambda x: b"AAAA" + x[4:])),
    ):  # fmt: skip
        made.add(f"index, {name}", of, verdict, *made.index(of, 1, change))


def _injure_decisions(made: Injuries) -> None:
    merged = "_manifest/0000000003-0000000001.json"
    made.add("merged, its manifest is missing", "merged", "damage", ["delete", merged])
    made.add(
        "merged, its manifest is missing, and the originals are not there",
        "merged-cleared",
        "damage",
        ["delete", made.keys("merged-cleared", "_manifest/*-*.json")[-1]],
    )
    made.add("merged, the one after it is missing", "merged", "damage", ["delete", "_manifest/0000000004.json"])
    made.add("merge without a decision, its manifest is injured", "merge-undecided", "intact", ["flip", merged, 300])
    newest = DECISION.format(2)
    made.add("expired, the newest decision is injured", "expired", "damage", ["flip", newest, 60])
    made.add("expired, the manifest of an expired generation came late", "expired", "intact", put(FIRST, b"late"))
    made.add("expired, a superseded decision is injured", "expired", "damage", ["flip", DECISION.format(1), 60])
    made.add(
        "expired, everything was deleted but the decisions",
        "expired",
        "damage",
        *(["delete", key] for key in made.keys("expired", "_manifest/*.*")),
    )
    made.add(
        "expired, comes back",
        "expired",
        "damage",
        made.member("expired", newest, ('"dropped": 2', '"dropped": 1'), ('"swept": 2', '"swept": 1')),
    )
    made.add(
        "expired, of another archive",
        "expired",
        "damage",
        made.member("expired", newest, ('"stream": "stream"', '"stream": "other"')),
    )
    made.add(
        "expired, a newer format", "expired", "reject", made.member("expired", newest, ('"format": 1', '"format": 99'))
    )
    made.add(
        "expired, a number that no archive reaches",
        "expired",
        "damage",
        put(
            "_manifest/decisions/1000000001.json",
            resealed(made.data("expired", newest).replace(b'"number": 2', b'"number": 1000000001')),
        ),
    )
    last = made.keys("held", "_manifest/decisions/*")[-1]
    document = json.loads(made.data("held", last))
    del document["sha256"]
    made.add("held, the hold is left out", "held", "damage", put(last, seal({**document, "holds": []})))
    made.add(
        "held, on a generation that is not there",
        "held",
        "damage",
        put(last, seal({**document, "holds": [{**one, "generation": 7} for one in document["holds"]]})),
    )
    following = {**document, "number": document["number"] + 1, "released": []}
    after = f"_manifest/decisions/{following['number']:010d}.json"
    made.add(
        "held, deleted",
        "held",
        "damage",
        put(after, seal({**following, "format": 2, "deletion": "decided", "holds": []})),
    )
    made.add(
        "held, a number is missing",
        "held",
        "damage",
        put(
            f"_manifest/decisions/{following['number'] + 1:010d}.json",
            seal({**following, "number": following["number"] + 1}),
        ),
    )
    made.add(
        "checked, a mark of another manifest",
        "checked",
        "intact",
        put(
            "_manifest/0000000001.checked.json",
            resealed(
                made.data("checked", "_manifest/0000000001.checked.json").replace(b'"digest": "', b'"digest": "0')[:-1]
            ),
        ),
    )
    made.add(
        "a mark of a generation after the newest",
        "chunks",
        "damage",
        put("_manifest/0000000003.checked.json", made.data("checked", "_manifest/0000000002.checked.json")),
    )
    made.add(
        "a note of a truncation after the newest",
        "chunks",
        "damage",
        put("_manifest/truncations/0000000003.json", b"x"),
    )
    made.add(
        "an index after the newest, being published",
        "chunks",
        "intact",
        put("_manifest/0000000003.ranges.parquet", b"x"),
        put("_work/0000000003/plan.json", b"x"),
    )
    made.add(
        "an index after the newest, without a plan",
        "chunks",
        "damage",
        put("_manifest/0000000003.ranges.parquet", b"x"),
    )
    noted = "_manifest/0000000001.blocks.json"
    made.add("noted checksums, injured", "noted-checksums", "damage", ["flip", noted, 60])
    made.add(
        "noted checksums, of another manifest",
        "noted-checksums",
        "damage",
        made.member("noted-checksums", noted, ('"digest": "', '"digest": "0')),
    )
    made.add("noted checksums, missing", "noted-checksums", "intact", ["delete", noted])


def verdict(archive: Path) -> str:
    """Return what `streamvault check --read-data` says of an archive in a folder, as a verdict of the specification."""
    try:
        report = check_archive(f"file://{archive}", read_data=True, master="inline")
    except NoSuchArchive:
        return "absent"
    except Damaged as error:
        return "reject" if "newer release" in error.todo else "damage"
    return "intact" if report.ok else "damage"


@contextmanager
def injured(folder: Path, vector: Mapping[str, Any], edits: Sequence[Sequence[Any]]) -> Iterator[Path]:
    """A copy of a vector with edits, as the folder of its archive."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder / vector["name"], Path(copy, vector["name"]))
        edit(archive := Path(copy, vector["archive"]), edits)
        yield archive


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
    found = []
    for name, (build, below) in VECTORS.items():
        root = folder / name
        root.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as streams:
            vault = Making(Path(streams), f"file://{root}")
            build(vault)
        archive = Archive(RootAddress.parse(f"file://{root}/{below}".rstrip("/")), NAME)
        found.append({"name": name, "archive": f"{name}/{below}{NAME}", **expected(archive)})
    (folder / "vectors.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "injured.json").write_text(json.dumps(injure(folder), indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1] if sys.argv[1:] else "spec/vectors").absolute())
