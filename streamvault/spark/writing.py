"""The options of writing to a stream, and what may be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import BinaryType, StringType, StructType

from common.errors import Usage
from streamstore.errors import TransactionsNotOffered
from streamstore.model import StreamName
from streamstore.uri import StoreAddress
from streamvault.spark.options import Options, stream_of

__all__ = ["Writing", "write_options"]

_OPTIONS = ("path", "controller", "scope", "stream", "lease", "txnAppId", "txnVersion")
_LEASE_SECONDS = 600
"""What Pravega allows at most, unless it is told otherwise."""

EVENT, ROUTING_KEY = "event", "routing_key"


@dataclass(frozen=True, slots=True)
class Writing:
    """What the options of a write say.

    Attributes:
        address, stream: where to.
        lease: seconds for which a transaction lives without being pinged.
        app, version: name the write, so that the same one again writes nothing; empty and None if it has no name. A
            streaming query names its own.
        event, routing_key: the columns' places; None if there is no routing key.
    """

    address: StoreAddress
    stream: StreamName
    lease: int
    app: str
    version: int | None
    event: int
    routing_key: int | None


def write_options(given: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool = False) -> Writing:
    """The options of a write.

    Raises:
        Usage: one cannot be meant, or the columns are not those of events; says which.
    """
    options = Options("pravega", given, _OPTIONS)
    address, stream = stream_of(options)
    if address.scheme == "local":
        raise TransactionsNotOffered("the embedded store has no transactions", where=str(stream), todo="Use a Pravega.")
    if overwrite:
        raise Usage("events cannot be overwritten", where=str(stream), todo="Use mode append.")
    app, version = options.text("txnAppId"), options.number("txnVersion")
    if streaming and version is not None:
        raise options.wrong("txnVersion", "a streaming query numbers its batches itself")
    if not streaming and (app is None) != (version is None):
        raise options.wrong("txnVersion" if version is None else "txnAppId", "it is missing", "They go together.")
    event, key = _columns(schema)
    return Writing(address, stream, options.number("lease", least=10) or _LEASE_SECONDS, app or "", version, event, key)


def _columns(schema: StructType) -> tuple[int, int | None]:
    names = schema.fieldNames()
    others = [name for name in names if name not in {EVENT, ROUTING_KEY}]
    if EVENT not in names or others:
        what = f"there is no column {EVENT}" if EVENT not in names else "there is a column that no event has"
        todo = f"Select {EVENT} (binary or string) and, if you like, {ROUTING_KEY} (string)."
        raise Usage(what, where=", ".join(others or names), todo=todo)
    event = names.index(EVENT)
    key = names.index(ROUTING_KEY) if ROUTING_KEY in names else None
    if not isinstance(schema[event].dataType, BinaryType | StringType):
        raise Usage(f"the column {EVENT} is neither binary nor string", where=schema[event].dataType.simpleString())
    if key is not None and not isinstance(schema[key].dataType, StringType):
        raise Usage(f"the column {ROUTING_KEY} is no string", where=schema[key].dataType.simpleString())
    return event, key
