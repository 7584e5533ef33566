"""Options for writing to a stream, and validation of the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import BinaryType, StringType, StructType

from streamvault.common.errors import Usage
from streamvault.spark.options import SourceOptions, stream_of
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import StoreAddress

_OPTIONS = ("path", "controller", "scope", "stream", "lease", "txnAppId", "txnVersion")
_LEASE_SECONDS = 600
"""Pravega's default maximum."""

EVENT, ROUTING_KEY = "event", "routing_key"


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
        event: index of the column with events.
        routing_key: index of the column with routing keys; None if there is none.
    """

    address: StoreAddress
    stream: StreamName
    lease: int
    app: str
    version: int | None
    event: int
    routing_key: int | None


def write_options(given: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool = False) -> Writing:
    """Parse the options of a write.

    Raises:
        Usage: an option is not valid, or the columns are not those of events.
    """
    options = SourceOptions("pravega", given, _OPTIONS)
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
    event, key = _columns(schema)
    return Writing(address, stream, options.number("lease", least=10) or _LEASE_SECONDS, app or "", version, event, key)


def _columns(schema: StructType) -> tuple[int, int | None]:
    names = schema.fieldNames()
    others = [name for name in names if name not in {EVENT, ROUTING_KEY}]
    if EVENT not in names or others:
        what = f"the column {EVENT} is missing" if EVENT not in names else "unknown column"
        todo = f"Select {EVENT} (binary or string) and, optionally, {ROUTING_KEY} (string)."
        raise Usage(what, where=", ".join(others or names), todo=todo)
    event = names.index(EVENT)
    key = names.index(ROUTING_KEY) if ROUTING_KEY in names else None
    if not isinstance(schema[event].dataType, BinaryType | StringType):
        raise Usage(f"the column {EVENT} is neither binary nor string", where=schema[event].dataType.simpleString())
    if key is not None and not isinstance(schema[key].dataType, StringType):
        raise Usage(f"the column {ROUTING_KEY} is not a string", where=schema[key].dataType.simpleString())
    return event, key
