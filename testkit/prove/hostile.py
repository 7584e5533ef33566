"""Hostile archives: manifests, indexes, objects and keys that an attacker created to do harm.

Whatever they say, a command ends with a `Problem` or well, writes nothing where it should not, and needs no memory to
speak of.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import re
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from streamvault import (
    check_archive,
    convert_archive,
    get_event,
    import_stream,
    list_archives,
    show_archive,
    show_status,
)
from streamvault.common.errors import Problem
from streamvault.inspect.metrics import metrics_text
from streamvault.manifests.files import seal
from streamvault.streamstore.model import StreamName
from testkit.explorer.memory import Bucket
from testkit.explorer.scenes import NAME, scene_of
from testkit.explorer.world import World, in_memory

FOLDER = f"{NAME}/"
COPY = StreamName("copies", "copy")
PLACES = ("events/grown-scaled", "chunks/grown-scaled", "zstd/grown-scaled", "chunks/merged")
VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2**31, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, 1e308, True, None, "", "x", "/etc/passwd"),
    *("../../outside", "scope/stream/../../../x", "scope/stream/0.#epoch.99999999999", "\x1b[2J\n", "a" * 100_000),
    *("scope/other/0.#epoch.0", [], {}, [[]], {"": {}}, [None] * 1000, {"scope/stream/0.#epoch.0": -5}, "0" * 64),
)
KEYS = (
    *("../outside", "/absolute", "scope/stream/../../outside", "scope/stream//events/x", "scope/stream/events/\x00"),
    *("scope/stream/events/0000000000.0000000000/9999999999999999999-9999999999", "scope/stream/_manifest/../x"),
    *("scope/stream/_manifest/9999999999.json", "scope/stream/_manifest/0000000002-0000000009.json", "scope/stream/"),
    *("scope/stream/chunks/0000000000.0000000000/0000000000000000000-9999999999999999999", "scope/\u202egpj.exe/x"),
    *("scope/stream/_manifest/decisions/9999999999.json", "scope/stream/_work/0000000001/plan.json", "..", "a/./b"),
    *(
        "scope/stream/_manifest/0000000099.dropped.json",
        "scope/stream/table/x/_manifest/0000000001.json",
        "\u00fc/\u00fc/x",
    ),
)
MEBIBYTES = 400


@dataclass
class Hostility:
    """The results of hostile archives, by kind.

    Attributes:
        kinds: how many. refused: how many a command refused. broken: what ended with anything but a `Problem`.
        outside: what was written where nothing should be. grown: MiB by which the process grew.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    grown: int = 0


def attack(count: int, seed: int) -> Hostility:
    """Make so many archives hostile, and use them."""
    found = Hostility()
    rng = random.Random(seed)
    attacks: dict[str, Callable[[random.Random, dict[str, bytes]], str]] = {
        "manifest": _manifest,
        "index": _index,
        "key": _key,
        "object": _object,
        "checksums": _blocks,
    }
    scenes = [scene_of(name) for name in PLACES]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        scene = scenes[number % len(scenes)]
        kind = list(attacks)[number // len(scenes) % len(attacks)]
        world = World({"vault": Bucket(dict(scene.world.bucket("vault").objects))})
        objects = world.bucket("vault").objects
        what = f"{number} {scene.name} {kind}: {attacks[kind](rng, objects)}"
        found.kinds[kind] += 1
        laid = dict(objects)
        refused = False
        with in_memory(world):
            found.broken += [f"{what}: status: {text}" for text in _status(world, laid)]
            for name, use in _uses(scene.archive):
                try:
                    use()
                except Problem:
                    refused = True
                except Exception as error:  # noqa: BLE001  (that is what is looked for)
                    found.broken.append(f"{what}: {name}: {type(error).__name__}: {str(error)[:200]}")
        found.refused[kind] += refused
        found.outside += [f"{what}: {text}" for text in _outside(world, laid)]
    found.grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    if found.grown > MEBIBYTES:
        found.broken.append(f"the process grew by {found.grown} MiB")
    return found


def _status(world: World, laid: dict[str, bytes]) -> Iterator[str]:
    """What is wrong with the status of the root: it never fails because of one archive, and writes nothing."""
    try:
        lines = metrics_text(show_status("memory://vault")).splitlines()
    except Exception as error:  # noqa: BLE001  (that is what is looked for)
        yield f"{type(error).__name__}: {str(error)[:200]}"
        return
    yield from (f"no metric: {line!r}" for line in lines if not _METRIC.fullmatch(line))
    if world.bucket("vault").objects != laid:
        yield "it has changed the archive"


_LABEL = r'[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
_METRIC = re.compile(rf"# (?:HELP|TYPE) [a-z_]+ .*|[a-z_]+(?:\{{{_LABEL}(?:,{_LABEL})*\}})? [-+0-9.e]+")


def _uses(archive: str) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "check", lambda: check_archive(archive, read_data=True, master="inline")
    yield "show", lambda: show_archive(archive)
    yield "ls", lambda: list_archives("memory://vault")
    yield "get", lambda: get_event(archive, f"{NAME}/0.#epoch.0:0-13")
    yield "import", lambda: import_stream(archive, f"local:///copies/{COPY}", filler_limit=1 << 20, master="inline")
    yield "convert", lambda: convert_archive(archive, "memory://converted/below", layout="events", master="inline")


_MARK = re.compile(rf"{NAME}/_manifest/[0-9-]+\.(checked|blocks)\.json")


def _outside(world: World, laid: dict[str, bytes]) -> Iterator[str]:
    objects = world.bucket("vault").objects
    marks = {key for key in objects.keys() - laid if _MARK.fullmatch(key)}  # of a check that found no damage
    changed = {key for key in {*laid, *objects} if laid.get(key) != objects.get(key)}
    yield from (f"{key} of the archive changed" for key in changed - marks)
    for place, bucket in world.buckets.items():
        if place == "converted":
            yield from (key for key in bucket.objects if not key.startswith(f"below/{FOLDER}") or ".." in key)
        elif place != "vault":
            yield f"bucket {place}"
    for place, cluster in world.clusters.items():
        if place != "/copies" or not {*cluster.scopes} <= {COPY.scope}:
            yield f"cluster {place}: {list(cluster.scopes)}"


def _manifest(rng: random.Random, objects: dict[str, bytes]) -> str:
    """Change a field anywhere in a manifest; the file gets a valid digest again."""
    key = rng.choice(sorted(key for key in objects if "/_manifest/" in key and key.endswith(".json")))
    document = json.loads(objects[key])
    told = []
    for _ in range(rng.randrange(1, 4)):
        path, place, name = rng.choice(list(_fields(document)))
        value = copy.deepcopy(rng.choice(VALUES))
        kind = rng.random()
        if kind < 0.7:
            place[name] = value
        elif kind < 0.85 and isinstance(place, list):
            place.append(place[name])
        elif isinstance(place, dict):
            del place[name]
        told.append(f"{path} = {str(value)[:30]!r}")
    objects[key] = _sealed(document)
    return f"{key} {', '.join(told)}"


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in list(pairs):
        yield f"{path}/{name}", value, name
        yield from _fields(one, f"{path}/{name}")


def _sealed(document: Any) -> bytes:
    document.pop("sha256", None)
    with suppress(ValueError, TypeError):
        return seal(document)
    return json.dumps(document).encode()


def _any_index(rng: random.Random, objects: dict[str, bytes]) -> str:
    return rng.choice(sorted(key for key in objects if key.endswith(".ranges.parquet") and "table/" not in key))


def _blocks(rng: random.Random, objects: dict[str, bytes]) -> str:
    """Noted checksums of blocks in which a field is changed, beside an index that has none."""
    key = _any_index(rng, objects)
    table = pq.read_table(io.BytesIO(objects[key])).replace_schema_metadata(None)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", use_dictionary=["segment"])
    objects[key] = sink.getvalue()
    _vouch(objects, key, objects[key])
    manifest = objects[key.replace(".ranges.parquet", ".json")]
    document = {name: json.loads(manifest)[name] for name in ("format", "scope", "stream", "generation", "created")}
    document |= {"ranges": ["AAAAAAAAAAA="] * len(table), "digest": hashlib.sha256(manifest).hexdigest()}
    told = ""
    if rng.random() < 0.9:
        told, place, name = rng.choice(list(_fields(document)))
        place[name] = copy.deepcopy(rng.choice(VALUES))
    objects[key.replace(".ranges.parquet", ".blocks.json")] = _sealed(document)
    return f"{key} {told}"


def _index(rng: random.Random, objects: dict[str, bytes]) -> str:
    """An index with other rows or columns, or with far more than its size suggests; its manifest has its digest."""
    key = _any_index(rng, objects)
    table = pq.read_table(io.BytesIO(objects[key]))
    kind = rng.choice(("rows", "value", "columns", "bytes", "order"))
    if kind == "rows":
        table = pa.concat_tables([table] * rng.choice((2, 100, 20_000)))
    elif kind == "value":
        name = rng.choice(("segment", "start", "end", "events", "digest"))
        place, wrong = table.column_names.index(name), list(table[name].to_pylist())
        texts = ("", "../../x", "scope/stream/9.#epoch.9", "x" * 10_000)
        wrong[rng.randrange(len(wrong))] = (
            rng.choice(texts) if isinstance(wrong[0], str) else rng.choice((-1, 0, 2**62, 2**63 - 1, 7))
        )
        table = table.set_column(place, table.schema.field(name), pa.array(wrong, table.schema.field(name).type))
    elif kind == "columns":
        table = table.append_column("more", pa.array([b"x" * 1000] * len(table)))
    elif kind == "order":
        table = table.take(list(reversed(range(len(table)))))
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=rng.choice(("zstd", "none")))
    data = bytearray(sink.getvalue())
    if kind == "bytes":
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    objects[key] = bytes(data)
    _vouch(objects, key, objects[key])
    return f"{key} {kind}"


def _vouch(objects: dict[str, bytes], key: str, data: bytes) -> None:
    """Make the manifest name the current index."""
    manifest = key.replace(".ranges.parquet", ".json")
    document = json.loads(objects[manifest])
    index = document.get("index")
    if isinstance(index, dict):
        for name, value in index.items():
            index[name] = hashlib.sha256(data).hexdigest() if isinstance(value, str) else len(data)
        objects[manifest] = _sealed(document)


def _key(rng: random.Random, objects: dict[str, bytes]) -> str:
    """Objects under names that no archive has."""
    told = []
    for _ in range(rng.randrange(1, 4)):
        key = rng.choice(KEYS)
        objects[key] = rng.choice((b"", b"{}", b"x" * 100, rng.choice(list(objects.values()))))
        told.append(repr(key))
    return ", ".join(told)


def _object(rng: random.Random, objects: dict[str, bytes]) -> str:
    """Data that claims to be, or is, far larger than it should be."""
    key = rng.choice(sorted(key for key in objects if "/events/" in key or "/chunks/" in key))
    kind = rng.choice(("bomb", "claim", "long", "header"))
    if kind == "bomb":
        objects[key] = zstandard.compress(bytes(64 << 20))
    elif kind == "claim":
        objects[key] = zstandard.FRAME_HEADER + b"\xc0" + (2**40).to_bytes(8, "little") + objects[key]
    elif kind == "long":
        objects[key] += bytes(1 << 20)
    else:
        objects[key] = b"\x00\x00\x00\x00\x7f\xff\xff\xff" + objects[key][8:]
    return f"{key} {kind}"
