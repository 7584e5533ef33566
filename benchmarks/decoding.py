"""Payloads as columns by the schemas of a registry, beside the formats' libraries alone: no servers."""

from __future__ import annotations

import argparse
import io
import json
import time
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.json
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.measuring import Arm, Measured, interleave, ratio, spread
from benchmarks.results import Results, spread_text, table
from streamvault.lake.registry import RegisteredPayloads, columns_of
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup

HELP = "payloads as columns by a registry's schemas, beside fastavro, Protobuf and pyarrow alone; needs no server"
HEADER = b"\x01" + bytes(4)
BATCH = 20_000
NAMES = ("id", "customer", "country", "amount", "paid", "text")
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": name, "type": kind}
        for name, kind in zip(NAMES, ("long", "string", "string", "double", "boolean", "string"), strict=True)
    ],
}
JSON = {
    "properties": {
        name: {"type": kind}
        for name, kind in zip(NAMES, ("integer", "string", "string", "number", "boolean", "string"), strict=True)
    }
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks decoding``."""
    parser.add_argument("--events", type=int, default=200_000, help="how many of each format (200000)")
    parser.add_argument("--repeats", type=int, default=3, help="of everything, interleaved (default 3)")
    parser.add_argument("--quick", action="store_true", help="1,000 events, one repeat: whether it runs, not how fast")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add the table."""
    if arguments.quick:
        arguments.events, arguments.repeats = 1_000, 1
    rows = []
    for name, (schema, written, alone) in _formats().items():
        payloads = [written(_values(number)) for number in range(arguments.events)]
        entry = SchemaEntry(encoding=0, type="Order", format=name, version=0, data=b64encode(schema).decode(), codec="")
        group = SchemaGroup(group="orders", entries=(entry,))
        columns, readers, *_ = columns_of(group)
        parser = RegisteredPayloads(columns, readers, group)
        found = interleave(
            [
                Arm(f"{name}: the library alone", partial(_timed, payloads, alone)),
                Arm(
                    f"{name}: streamvault", partial(_timed, [HEADER + one for one in payloads], partial(_parse, parser))
                ),
            ],
            arguments.repeats,
            lambda: None,
        )
        library, ours = found
        for arm in found:
            speeds = [spread([figure(one) for one in found[arm]]) for figure in _FIGURES]
            times = "1" if arm == library else spread_text(ratio(found, ours, library), 2)
            rows.append((arm, times, spread_text(speeds[0], 0), spread_text(speeds[1], 0)))
    title = f"{arguments.events:,} payloads of {len(NAMES)} fields, one core"
    results.add(title, table((title, "of the library's speed", "events/s", "MB/s"), rows), {})


_FIGURES: tuple[Callable[[Measured], float], ...] = (
    lambda one: one.events_per_second,
    lambda one: one.megabytes_per_second,
)


def _values(number: int) -> tuple[Any, ...]:
    text = f"{number * 2654435761 % 2**64:x}" * 8
    return number, f"customer{number % 977}", "CH", number / 8, number % 2 == 0, text


def _timed(payloads: list[bytes], parse: Callable[[list[bytes]], object], _: int) -> Measured:
    began, used = time.perf_counter(), time.process_time()
    for at in range(0, len(payloads), BATCH):
        parse(payloads[at : at + BATCH])
    seconds = time.perf_counter() - began
    return Measured(len(payloads), sum(map(len, payloads)), seconds, time.process_time() - used)


def _parse(parser: RegisteredPayloads, payloads: list[bytes]) -> None:
    if parser.parse(pa.array(payloads, pa.binary())).reasons.null_count != len(payloads):
        raise RuntimeError("payloads were not decoded")


def _formats() -> dict[str, tuple[bytes, Callable[[Any], bytes], Callable[[list[bytes]], object]]]:
    """Return, of each format, its schema, what writes values, and what reads payloads with the library alone."""
    parsed = fastavro.parse_schema(AVRO)

    def write_avro(values: Any) -> bytes:
        target = io.BytesIO()
        fastavro.schemaless_writer(target, parsed, dict(zip(NAMES, values, strict=True)))
        return target.getvalue()

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    message, field = file.message_type.add(name="Order"), descriptor_pb2.FieldDescriptorProto
    kinds = (
        field.TYPE_INT64,
        field.TYPE_STRING,
        field.TYPE_STRING,
        field.TYPE_DOUBLE,
        field.TYPE_BOOL,
        field.TYPE_STRING,
    )
    for number, (name, kind) in enumerate(zip(NAMES, kinds, strict=True), 1):
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    order: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))
    return {
        "Avro": (
            json.dumps(AVRO).encode(),
            write_avro,
            lambda some: [fastavro.schemaless_reader(io.BytesIO(one), parsed, None) for one in some],
        ),
        "Protobuf": (
            descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(),
            lambda values: order(**dict(zip(NAMES, values, strict=True))).SerializeToString(),
            lambda some: [[getattr(one, name) for name in NAMES] for one in map(order.FromString, some)],
        ),
        "Json": (
            json.dumps(JSON).encode(),
            lambda values: json.dumps(dict(zip(NAMES, values, strict=True))).encode(),
            lambda some: pyarrow.json.read_json(
                pa.BufferReader(b"\n".join(some)), pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 24)
            ),
        ),
    }
