"""What injures the archives in `spec/vectors`, and the verdict that a reader must reach."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamvault.manifests.files import seal


class Injuries:
    """The injured archives: vectors, and edits of their files.

    An edit is ``[what, key, argument]``: ``delete``; ``flip`` the lowest bit of the byte at an offset; ``truncate`` to
    a size; ``put`` the bytes in base64, in place of what is there.
    """

    def __init__(self, archives: Mapping[str, Path]) -> None:
        self._archives = archives
        self.made: list[dict[str, Any]] = []

    def add(self, name: str, of: str, verdict: str, *edits: Sequence[Any]) -> None:
        self.made.append({"name": name, "of": of, "verdict": verdict, "edits": [list(edit) for edit in edits]})

    def data(self, of: str, key: str) -> bytes:
        return (self._archives[of] / key).read_bytes()

    def keys(self, of: str, pattern: str) -> list[str]:
        archive = self._archives[of]
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


def injure(archives: Mapping[str, Path]) -> list[dict[str, Any]]:
    """Return the injured archives, given the vectors: name → folder of the archive."""
    made = Injuries(archives)
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
        ("a time without an offset", "damage", ('Z",\n "scope"', '",\n "scope"')),
        ("a time in lower case", "damage", ('Z",\n "scope"', 'z",\n "scope"')),
        ("a time of a year long ago", "damage", ('"created": "2', '"created": "1')),
        ("another format with a fraction", "reject", ('"format": 2,', '"format": 2.5,')),
        ("the format with a fraction", "damage", ('"format": 2,', '"format": 2.0,')),
        ("the format with an exponent", "damage", ('"format": 2,', '"format": 2e0,')),
        ("the format as text", "damage", ('"format": 2,', '"format": "2",')),
        ("the format as a boolean", "damage", ('"format": 2,', '"format": true,')),
        ("an integer beyond 63 bits", "damage", ('"range_size": 4096', '"range_size": 9223372036854775808')),
        ("no number in an unknown member", "damage", ('"format": 2,', '"format": 2,\n "note": NaN,')),
        ("half of a surrogate pair", "damage", ('"format": 2,', '"format": 2,\n "note": "\\ud800",')),
        ("no features", "intact", ('"format": 2,', '"format": 2,\n "features": [],')),
        ("a name of another program for a member", "damage", (' "from": {', ' "from_": {')),
        ("null for the line", "damage", ('"line": ""', '"line": null')),
        ("null for totals", "damage", ('"format": 2,', '"format": 2,\n "before": null,')),
        ("null for schemas", "damage", ('"format": 2,', '"format": 2,\n "schemas": null,')),
        ("null for reader groups", "damage", ('"format": 2,', '"format": 2,\n "reader_groups": null,')),
        ("no line", "intact", (' "line": "",\n', "")),
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
    for name in ("configuration", "compression", "source", "tool", "gaps"):
        changed(f"no {name}", "damage", lambda one, gone=name: one.pop(gone))
    changed("a cut as text", "damage", lambda one: one.update({"from": json.dumps(one["from"])}))
    changed("a tag that is no text", "damage", lambda one: one["configuration"].update(tags=[1]))
    changed("a member that readers do not use", "damage", lambda one: one["configuration"].update(rollover_bytes=-1))
    changed("an optional member of the configuration", "intact", lambda one: one["configuration"].pop("rollover_bytes"))
    changed("a cut without some keys", "damage", lambda one: one["to"].popitem())
    changed("a source that is too long", "damage", lambda one: one.update(source="x" * 4097))
    text = made.data("sealed", FIRST)
    for name, verdict, high in (("a little below 1", "intact", 1 - 2**-53), ("below 1", "damage", 1 - 1e-11)):
        document = json.loads(text)
        del document["sha256"]
        document["epochs"][3] = f"0.2>6:{high!r}"
        made.add(f"epochs, the highest keys end {name}", "sealed", verdict, put(FIRST, seal(document)))


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
    others = [["delete", key] for key in made.keys("held", "_manifest/decisions/*")[:-1]]
    for name in ("format", "created", "dropped", "swept", "merged", "holds"):
        left = {key: value for key, value in document.items() if key != name}
        made.add(f"held, no {name}", "held", "damage", put(last, seal(left)), *others)
    for name in ("who", "why", "created"):
        left = [{key: value for key, value in one.items() if key != name} for one in document["holds"]]
        made.add(
            f"held, a hold without {name}", "held", "damage", put(last, seal({**document, "holds": left})), *others
        )
    for name, verdict, change in (
        ("of an earlier release", "intact", {"who", "begin", "dropped_created", "empty", "released", "deletion"}),
        ("more has expired than there can be", "damage", {"dropped": 2**31 - 1}),
        ("empty as a number", "damage", {"empty": 0}),
        ("nobody", "damage", {"who": None}),
        ("a time of expiry without an offset", "damage", {"dropped_created": "2026-01-02T03:04:05"}),
    ):
        given = {key: value for key, value in document.items() if key not in change}
        given |= change if isinstance(change, dict) else {}
        made.add(f"held, {name}", "held", verdict, put(last, seal(given)), *others)
    decided = made.keys("merged", "_manifest/decisions/*")[-1]
    for name, verdict, *changes in (
        ("without a grace", "damage", ('"grace": 0.0\n', '"grace_": 0.0\n')),
        ("with an infinite grace", "damage", ('"grace": 0.0\n', '"grace": Infinity\n')),
        ("with a whole grace", "intact", ('"grace": 0.0\n', '"grace": 0\n')),
    ):
        made.add(f"merged, {name}", "merged", verdict, made.member("merged", decided, *changes))
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
    for name in ("format", "created", "tool"):
        left = json.loads(made.data("noted-checksums", noted))
        left = {key: value for key, value in left.items() if key not in {name, "sha256"}}
        made.add(f"noted checksums, no {name}", "noted-checksums", "damage", put(noted, seal(left)))
    made.add("noted checksums, missing", "noted-checksums", "intact", ["delete", noted])


@contextmanager
def injured(folder: Path, vector: Mapping[str, Any], edits: Sequence[Sequence[Any]]) -> Iterator[Path]:
    """A copy of a vector with edits, as the folder of its archive."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder / vector["name"], Path(copy, vector["name"]))
        edit(archive := Path(copy, vector["archive"]), edits)
        yield archive
