"""Hostile files: what an archive, a table, a queue or a stream's record has in them that no honest program wrote."""

from __future__ import annotations

import hashlib
import io
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from streamvault.streamstore.queue import encode_entry

_SEAL = b' "sha256": "'
DEEP = 100_000

VALUES: dict[str, bytes] = {
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "open lists": b"[" * DEEP,
    "long number": b"9" * 1_000_000,
    "1e400": b"1e400",
    "-1e99999": b"-1e99999",
    "NaN": b"NaN",
    "long text": b'"' + b"x" * (48 << 20) + b'"',
    "many values": b"[" + b"[]," * (12 << 20) + b"1]",
    "many members": b"{" + b",".join(b'"%d":0' % number for number in range(2_000_000)) + b"}",
    "surrogate": b'"\\ud800"',
    "zero": b'"\\u0000/../../x"',
    "not UTF-8": b'"\xff\xfe"',
}
"""What stands in a place of a JSON file."""
_WHOLE: dict[str, bytes] = {
    "nothing": b"",
    "null": b"null",
    "list": b"[{}]",
    "UTF-16": '{"format": 1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"format": 1}',
    "zeros": bytes(1 << 20),
}


def resealed(data: bytes) -> bytes:
    """Give a file the digest that fits it."""
    before, found, rest = data.rpartition(_SEAL)
    digest = hashlib.sha256(before + found + b"0" * 64 + rest[64:]).hexdigest().encode()
    return before + found + digest + rest[64:] if found else data


def json_of(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """A JSON file with something hostile in it; its digest fits."""
    kind = rng.choice((*VALUES, *VALUES, *_WHOLE, "huge", "duplicate", "duplicate"))
    if kind in _WHOLE:
        return _WHOLE[kind], kind
    if kind == "huge":
        return data.replace(b"{", b"{" + b" " * (65 << 20), 1), kind
    names = [line.split(b'"')[1] for line in data.splitlines() if line.startswith(b' "') and b'"sha256"' not in line]
    name = rng.choice(names or [b"x"])
    if kind == "duplicate":
        return resealed(data.replace(b"{", b'{\n "%s": 7,' % name, 1)), f"{kind} {name.decode()}"
    at = data.find(b'"%s": ' % name)
    if at < 0 or rng.random() < 0.5:  # a field that is not known
        return resealed(data.replace(b"{", b'{\n "more": %s,' % VALUES[kind], 1)), f"{kind} in another field"
    end = data.find(b"\n", at)
    comma = b"," if data[end - 1 : end] == b"," else b""
    changed = data[:at] + b'"%s": ' % name + VALUES[kind] + comma + data[end:]
    return resealed(changed), f"{kind} in {name.decode()}"


def parquet_of(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """A Parquet file that has, or says that it has, far more than its size suggests."""
    kind = rng.choice(("dictionary", "rows", "groups", "metadata", "claims", "claims", "footer"))
    sink = io.BytesIO()
    table = pq.read_table(io.BytesIO(data))
    first = table.slice(0, 1)
    if kind == "dictionary":  # a value of a MiB, 10,000 times
        often = pa.table({name: _often(first[name], 10_000) for name in first.column_names})
        pq.write_table(often.replace_schema_metadata(table.schema.metadata), sink, store_schema=False)
    elif kind == "rows":
        with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
            many = pa.concat_tables([first] * 200_000).combine_chunks()
            for _ in range(10):
                writer.write_table(many)
    elif kind == "groups":
        with pq.ParquetWriter(sink, table.schema) as writer:
            for _ in range(3_000):
                writer.write_table(first)
    elif kind == "metadata":
        noted = {**(table.schema.metadata or {}), b"more": b"x" * (6 << 20), b"": b"["}
        pq.write_table(table.replace_schema_metadata(noted), sink)
    elif kind == "footer":
        return data[:-8] + struct.pack("<I", rng.choice((0, 2**31 - 1, 2**32 - 1, len(data)))) + b"PAR1", kind
    else:
        return _claiming(rng, data), kind
    return sink.getvalue(), kind


def _often(column: pa.ChunkedArray, times: int) -> pa.Array:
    kind = column.type
    value = column[0].as_py()
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        value = b"x" * (1 << 20) if pa.types.is_binary(kind) else "x" * (1 << 20)
        indices = pa.array([0] * times, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array([value], kind))
    return pa.array([value] * times, kind)


def _claiming(rng: random.Random, data: bytes) -> bytes:
    """A number in the footer or in a page's header becomes large: rows, values, sizes, offsets are such numbers."""
    size = int.from_bytes(data[-8:-4], "little")
    body, footer = bytearray(data[: -8 - size]), bytearray(data[-8 - size : -8])
    for _ in range(rng.randrange(1, 4)):
        part = footer if rng.random() < 0.8 or not body else body
        at = rng.randrange(len(part))
        part[at : at + 1] = rng.choice(
            (b"\x80\xa8\xd6\xb9\x07", b"\xff" * 9 + b"\x01", b"\xfe\xff\xff\xff\x0f", b"\x00")
        )
    return bytes(body + footer) + len(footer).to_bytes(4, "little") + b"PAR1"


def data_of(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """A data object that decompresses to gigabytes, says that it does, or is another's."""
    kind = rng.choice(("bomb", "frames", "claim", "long", "header", "window"))
    if kind == "bomb":
        return zstandard.compress(bytes(256 << 20)) * 8, kind
    if kind == "frames":
        return zstandard.compress(bytes(1 << 20)) * (len(data) // 60 + 1), kind
    if kind == "claim":
        return zstandard.FRAME_HEADER + b"\xc0" + (2**40).to_bytes(8, "little") + data, kind
    if kind == "window":  # a frame that asks for a window of gigabytes
        return zstandard.FRAME_HEADER + b"\x00\xf8" + data, kind
    if kind == "long":
        return data + bytes(8 << 20), kind
    return struct.pack(">ii", 0, rng.choice((2**31 - 1, -1, -(2**31), 0))) + data[8:], kind


def entry_of(rng: random.Random) -> tuple[bytes, str]:
    """An entry of a queue."""
    kind = rng.choice((*VALUES, "name", "key"))
    if kind == "name":
        content = b'{"kind":"restore","version":1,"root":"file:///%2e%2e/etc","archive":"../x","target":"local:///"}'
    elif kind == "key":
        content = b'{"kind":"delete","version":1,"root":"file:///","archive":"a/b","generation":1,"generation":2}'
    else:
        value = VALUES[kind][:450_000]
        content = rng.choice((value, b'{"kind":"restore","version":1,"more":%s,"root":%s}' % (value, value)))
    return encode_entry(content), kind


Kind = Callable[[random.Random, bytes], tuple[bytes, str]]


def hostile_file(rng: random.Random, root: Path) -> str:
    """Make one of an archive's or its tables' files hostile; returns what was done."""
    chosen: dict[str, list[tuple[Path, Kind]]] = {}
    for path in sorted(one for one in root.rglob("*") if one.is_file() and ".iceberg" not in str(one)):
        make = json_of if path.suffix == ".json" else parquet_of if path.suffix == ".parquet" else data_of
        folder = path.parent.name if make is json_of else ""
        chosen.setdefault(f"{make.__name__} {folder} {path.name.lstrip('0123456789')}", []).append((path, make))
    path, make = rng.choice(chosen[rng.choice(sorted(chosen))])
    data, what = make(rng, path.read_bytes())
    path.chmod(0o600)
    path.write_bytes(data)
    return f"{path.relative_to(root)}: {what}"
