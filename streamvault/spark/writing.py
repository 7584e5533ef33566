"""Options for writing to a stream, and validation of the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import BinaryType, StringType, StructType

from streamvault.common.errors import Usage
from streamvault.spark.options import FIXED, SourceOptions, stream_of
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import StoreAddress

_OPTIONS = ("path", "controller", "scope", "stream", "lease", "transaction_timeout_ms", "txnAppId", "txnVersion")
_FIXED = {
    **FIXED,
    "exactly_once": ("true", "a write is always one transaction", "Give true."),
    "read_after_write_consistency": ("true", "a write ends when its events can be read", "Give true."),
    "transaction_status_poll_interval_ms": ("", "the interval is not configurable", "Omit the option."),
}
_LEASE_SECONDS = 600
"""Pravega's default maximum."""

PAYLOADS, ROUTING_KEY = ("payload", "event"), "routing_key"
"""Names of the columns; of the former one of both, the second of which is that of Pravega's own connector."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Parsed options of a write.

    Attributes:
        address: address of the stream's store.
        stream: the stream.
        lease: how long a transaction stays open without a ping (seconds).
        app: name of the writer; with `version` it names the write, so that a repetition writes nothing. Empty if the
            write has no name; a streaming query has a default.
        version: version of the write; None if the write has no name.
        payload: index of the column with payloads.
        routing_key: index of the column with routing keys; None if there is none.
    """

    address: StoreAddress
    stream: StreamName
    lease: int
    app: str
    version: int | None
    payload: int
    routing_key: int | None


def write_options(given: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool = False) -> Writing:
    """Parse the options of a write.

    Raises:
        Usage: an option is not valid, or the columns are not those of events.
    """
    options = SourceOptions("pravega", given, _OPTIONS, _FIXED)
    address, stream = stream_of(options)
    if overwrite:
        raise Usage("events cannot be overwritten", where=str(stream), todo="Use mode append.")
    app, version = options.text("txnAppId"), options.number("txnVersion")
    if streaming and version is not None:
        raise options.wrong("txnVersion", "a streaming query numbers its own batches")
    if not streaming and (app is None) != (version is None):
        raise options.wrong(
            "txnVersion" if version is None else "txnAppId",
            "the option is missing",
            "Give txnAppId and txnVersion together.",
        )
    payload, key = _columns(schema)
    return Writing(address, stream, _lease(options), app or "", version, payload, key)


def _lease(options: SourceOptions) -> int:
    options.text("lease", "transaction_timeout_ms")  # only one of them
    millis = options.number("transaction_timeout_ms", least=10_000)
    return -(-millis // 1000) if millis else options.number("lease", least=10) or _LEASE_SECONDS


def _columns(schema: StructType) -> tuple[int, int | None]:
    names = schema.fieldNames()
    payloads = [name for name in names if name in PAYLOADS]
    others = [name for name in names if name not in {*PAYLOADS, ROUTING_KEY}]
    if len(payloads) != 1 or others:
        what = "unknown column" if payloads else f"the column {PAYLOADS[0]} is missing"
        if len(payloads) > 1:
            what, others = "the payload is given twice", payloads
        todo = f"Select {PAYLOADS[0]} (binary or string) and, optionally, {ROUTING_KEY} (string)."
        raise Usage(what, where=", ".join(others or names), todo=todo)
    (name,) = payloads
    payload = names.index(name)
    key = names.index(ROUTING_KEY) if ROUTING_KEY in names else None
    if not isinstance(schema[payload].dataType, BinaryType | StringType):
        raise Usage(f"the column {name} is neither binary nor string", where=schema[payload].dataType.simpleString())
    if key is not None and not isinstance(schema[key].dataType, StringType):
        raise Usage(f"the column {ROUTING_KEY} is not a string", where=schema[key].dataType.simpleString())
    return payload, key
