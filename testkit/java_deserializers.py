"""Events as the libraries of Pravega's Java serializers write and read them, to compare a table's rows with."""

from __future__ import annotations

import base64
import json
import math
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamvault.lake.decoding import decoded_columns
from streamvault.lake.registry import columns_of
from streamvault.lake.reports import ERROR
from streamvault.lake.table import TableOptions, arrow_type
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup
from testkit.schema_histories import request
from testkit.servers.availability import Unavailable
from testkit.servers.java import find_java
from testkit.servers.process import run_tool
from testkit.servers.schema_registry import QUIET, schema_registry_jars

PROGRAM = Path(__file__).parent / "java" / "registry" / "Judge.java"
FORMATS = {"avro": "Avro", "protobuf": "Protobuf", "json": "Json"}
TYPES = {"avro": "n.Event", "protobuf": "Event", "json": "Event"}


class Beyond(Exception):
    """No column holds the value: a date of another year, a decimal of more digits, a value of another type of JSON."""


@dataclass(frozen=True)
class History:
    """Schemas, the newest last, and events of them.

    Attributes:
        kind: avro, protobuf or json.
        schemas: the schemas.
        events: each with ``schema``, ``data``, ``value``, and ``fields``: those that can be read if not all can.
    """

    kind: str
    schemas: Sequence[bytes]
    events: Sequence[dict[str, Any]]

    @property
    def group(self) -> SchemaGroup:
        """What a registry would have of it; an encoding for each schema."""
        entries = []
        for number, schema in enumerate(self.schemas):
            is_of = {"format": FORMATS[self.kind], "type": TYPES[self.kind], "data": base64.b64encode(schema).decode()}
            entries.append(SchemaEntry(encoding=number, version=number, codec="", **is_of))
        return SchemaGroup(group="g", entries=tuple(entries))

    @property
    def payloads(self) -> list[bytes]:
        """The events, without the registry's header unless its serializers wrote them."""
        return [base64.b64decode(one["data"]) for one in self.events]

    def rows(self) -> tuple[list[dict[str, Any]], dict[str, pa.DataType]]:
        """What the product makes of the events, and the types of its columns."""
        columns, readers, *_ = columns_of(self.group)
        begun = {"scope": "s", "stream": "t", "table": "t", "kind": "parquet", "target_size": 1, "group": "g"}
        options = TableOptions(**begun, decode="registry", framing="pravega", columns=columns, avro=readers)
        framed = (b"\x01" + struct.pack(">i", one["schema"]) for one in self.events)
        payloads = [header + payload for header, payload in zip(framed, self.payloads, strict=True)]
        made = pa.table(decoded_columns(options, pa.array(payloads, pa.binary()), self.group))
        kinds = {one.field: arrow_type(one.type) for one in columns}
        return [{name: shown(kinds.get(name), value) for name, value in row.items()} for row in made.to_pylist()], kinds

    def differences(self, rows: Sequence[dict[str, Any]], kinds: dict[str, pa.DataType]) -> Iterator[str]:
        """Each field of each row that is not what Java has read, or of which Java has read none."""
        newest = json.loads(self.schemas[-1]) if self.kind == "avro" else {"fields": []}
        types = {field["name"]: field["type"] for field in newest["fields"]}
        named: dict[str, Any] = {}
        _collect(newest, named)
        for number, (event, row) in enumerate(zip(self.events, rows, strict=True)):
            whole = event["value"]
            known = event["fields"] if whole is None else whole
            reason = row[ERROR]
            if whole is None and reason is None and not known.keys() >= kinds.keys():
                yield f"event {number}: Java does not read all, and no reason is given"
            for name, kind in kinds.items():
                try:
                    expected = of_java(kind, known[name], types.get(name), named) if name in known else None
                    is_beyond = False
                except Beyond:
                    expected, is_beyond = None, True
                if row[name] != expected or (is_beyond and reason is None):
                    yield f"event {number}, {name} {kind}: {row[name]!r} and not {expected!r} ({reason})"
                if whole is not None and reason is not None and f"{name}:" in reason and not is_beyond:
                    yield f"event {number}, {name}: {reason}"


class JavaDeserializers:
    """The running program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def history(self, kind: str, seed: int, fields: int = 0, **registry: str) -> History:
        """A random history and its events; with `registry` (URL) and `group`, written by the registry's serializers."""
        schemas, asked = request(kind, seed, fields)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**asked, **registry}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the Java program has ended at {kind} {seed}"
        return History(kind, schemas, json.loads(line))


@contextmanager
def java_deserializers(folder: Path) -> Iterator[JavaDeserializers]:
    """Compile the program in an empty folder, and run it.

    Raises:
        Unavailable: the Java here has no compiler, or the libraries can't be fetched.
    """
    java, jars = str(find_java()), ":".join(map(str, schema_registry_jars().glob("*.jar")))
    (folder / "logback.xml").write_text(QUIET)
    if "jdk.compiler" not in run_tool([java, "--list-modules"], timeout=60):
        raise Unavailable("the Java here has no compiler, which the deserializers' program needs")
    compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn"]
    run_tool([*compiler, "-cp", jars, "-d", str(folder), str(PROGRAM)], timeout=120)
    command = [java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{folder}:{jars}", "Judge"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, encoding="utf-8", stderr=subprocess.DEVNULL, **pipes) as process:
        yield JavaDeserializers(process)
        assert process.stdin is not None
        process.stdin.close()


def _collect(schema: Any, named: dict[str, Any]) -> None:
    """Note the named types of an Avro schema."""
    if isinstance(schema, list):
        for one in schema:
            _collect(one, named)
    elif isinstance(schema, dict):
        named |= {schema["name"]: schema} if "name" in schema else {}
        inner = [field["type"] for field in schema.get("fields", ())]
        for one in (*inner, schema.get("items"), schema.get("values")):
            _collect(one, named)


def shown(kind: pa.DataType | None, value: Any) -> Any:  # noqa: PLR0911  (one for each kind of type)
    """A value of a column, as Java's are written."""
    if value is None or kind is None:
        return value
    if pa.types.is_floating(kind):
        size = kind.bit_width // 8
        return struct.pack({4: ">f", 8: ">d"}[size], math.nan if math.isnan(value) else value).hex()
    if pa.types.is_list(kind):
        return [shown(kind.value_type, one) for one in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return {_key(key): shown(kind.item_type, one) for key, one in pairs}
    if pa.types.is_struct(kind):
        return {member.name: shown(member.type, value[member.name]) for member in kind}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def of_trino(kind: pa.DataType, value: Any) -> Any:  # noqa: PLR0911  (one for each kind of type)
    """A value of a column, as Trino's answers have it, as Java's are written."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [of_trino(kind.value_type, one) for one in value]
    if pa.types.is_map(kind):
        return {key: of_trino(kind.item_type, one) for key, one in value.items()}
    if pa.types.is_struct(kind):
        return {member.name: of_trino(member.type, one) for member, one in zip(kind, value, strict=True)}
    if pa.types.is_floating(kind):
        return shown(kind, float(value))
    if pa.types.is_timestamp(kind):
        return shown(kind, datetime.fromisoformat(value))
    if pa.types.is_date(kind):
        return shown(kind, date.fromisoformat(value))
    return Decimal(value) if pa.types.is_decimal(kind) else value


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def of_java(kind: pa.DataType, value: Any, schema: Any, named: dict[str, Any]) -> Any:
    """A value that Java has read, in the unit of the column.

    Args:
        kind: the column's type.
        value: the value.
        schema: its type in Avro; None for other formats.
        named: the named types of Avro.

    Raises:
        Beyond: as it says.
    """
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        real = [one for one in schema if one != "null"]
        if len(real) == 1:
            return of_java(kind, value, real[0], named)
        names = [one if isinstance(one, str) else one.get("name", one["type"]) for one in real]
        schema = {"fields": [{"name": name, "type": one} for name, one in zip(names, real, strict=True)]}
    about: dict[str, Any] = schema if isinstance(schema, dict) else {}
    if value is None:
        return None
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        if not isinstance(value, list | dict) or pa.types.is_list(kind) != isinstance(value, list):
            raise Beyond
        if isinstance(value, list):
            return [of_java(kind.value_type, one, about.get("items"), named) for one in value]
        return {key: of_java(kind.item_type, one, about.get("values"), named) for key, one in value.items()}
    if pa.types.is_struct(kind):
        if not isinstance(value, dict) or "bits" in value:
            raise Beyond
        inner = {field["name"]: field["type"] for field in about.get("fields", ())}
        return {m.name: of_java(m.type, value.get(m.name), inner.get(m.name), named) for m in kind}
    return _plain(kind, value, about)


def _plain(kind: pa.DataType, value: Any, about: dict[str, Any]) -> Any:  # noqa: C901  (one for each kind of type)
    if pa.types.is_decimal(kind):
        digits = value if isinstance(value, int) else int.from_bytes(base64.b64decode(value), "big", signed=True)
        if len(str(abs(digits))) > kind.precision:
            raise Beyond
        return Decimal(digits).scaleb(-kind.scale)
    if pa.types.is_temporal(kind):
        per_day = 1 if pa.types.is_date(kind) else 86_400_000_000
        value = value * 1000 if "millis" in about["logicalType"] else value
        if not -719_162 * per_day <= value < 2_932_897 * per_day:
            raise Beyond
    if pa.types.is_floating(kind):
        if isinstance(value, dict) and "bits" in value:
            return value["bits"]
        if type(value) is not int:
            raise Beyond
        return shown(kind, float(value))
    if isinstance(value, str) and "\ufffd" in value:  # of bytes that are no text
        raise Beyond
    if about:
        return value
    fits = {pa.bool_(): bool, pa.int64(): int, pa.int32(): int}.get(kind, str)
    if type(value) is not fits:
        raise Beyond
    return value
