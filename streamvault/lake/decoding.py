"""Decode payloads into typed columns. A payload that cannot be decoded is kept; an error column says why.

A batch is decoded as a whole; only if that fails, it is split until the invalid events are found.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from streamvault.lake.avro import AvroPayloads
from streamvault.lake.column_types import arrow_type
from streamvault.lake.csv_payloads import CsvPayloads
from streamvault.lake.json_payloads import JsonPayloads
from streamvault.lake.options import ERROR, EVENT_TIME, TableColumn, TableOptions
from streamvault.lake.payloads import NotDecoded, PayloadParser, as_time

__all__ = ["decoded_columns", "parser_of", "time_field"]

MAX_TEXT = 300
"""Maximum characters of a recorded error."""


@lru_cache(maxsize=8)
def parser_of(options: TableOptions) -> PayloadParser | None:
    """Return the parser of the table's payloads; None if they are not decoded.

    Raises:
        Usage: the schema is not valid, or the library for it is not installed.
    """
    if options.decode == "json":
        return JsonPayloads(options.columns)
    if options.decode == "csv":
        return CsvPayloads(options.columns)
    if options.decode == "avro":
        return AvroPayloads(options.avro, options.columns)
    return None


def decoded_columns(options: TableOptions, payloads: pa.Array) -> dict[str, pa.Array]:
    """Return the columns decoded from payloads: the event time, the fields, and the error column.

    Raises:
        Usage: as `parser_of`.
    """
    parser = parser_of(options)
    if parser is None:
        return {}
    names = [column.column for column in options.columns]

    def attempt(some: pa.Array) -> pa.Table:
        columns = dict(zip(names, parser.parse(some), strict=True))
        if options.event_time:
            try:
                columns[EVENT_TIME] = as_time(_field(options, columns), options.event_time_unit)
            except NotDecoded as error:
                raise NotDecoded(f"{options.event_time}: {error}") from None
        return pa.table({**columns, ERROR: pa.nulls(len(some), pa.string())})

    empty = {name: arrow_type(column.type) for name, column in zip(names, options.columns, strict=True)}
    if options.event_time:
        empty[EVENT_TIME] = pa.timestamp("us")
    table = _decode(attempt, parser, payloads, empty).combine_chunks()
    return {name: _whole(table[name]) for name in table.column_names}


def _decode(
    attempt: Callable[[pa.Array], pa.Table], parser: PayloadParser, payloads: pa.Array, empty: dict[str, pa.DataType]
) -> pa.Table:
    with suppress(NotDecoded):
        return attempt(payloads)
    reasons = parser.suspects(payloads)  # also for a single payload, so that its reason does not depend on the batch
    if not any(reasons):
        return _halved(attempt, payloads, empty)
    wrong = pa.array([reason is not None for reason in reasons])
    good = _halved(attempt, payloads.filter(pc.invert(wrong)), empty)
    bad = _failed([reason for reason in reasons if reason is not None], empty)
    # restore the events' order: the index of each in the good ones followed by the bad ones
    places, next_good, next_bad = [], 0, len(good)
    for reason in reasons:
        places.append(next_good if reason is None else next_bad)
        next_good, next_bad = next_good + (reason is None), next_bad + (reason is not None)
    return pa.concat_tables([good, bad.select(good.column_names)]).take(pa.array(places, pa.int64()))


def _halved(attempt: Callable[[pa.Array], pa.Table], payloads: pa.Array, empty: dict[str, pa.DataType]) -> pa.Table:
    """Decode the whole batch; if that fails, decode each half by itself, down to the invalid events."""
    try:
        if len(payloads):
            return attempt(payloads)
    except NotDecoded as error:
        if len(payloads) == 1:
            return _failed([str(error)], empty)
        middle = len(payloads) // 2
        halves = [_halved(attempt, half, empty) for half in (payloads[:middle], payloads[middle:])]
        return pa.concat_tables([halves[0], halves[1].select(halves[0].column_names)])
    return _failed([], empty)


def _failed(reasons: list[str], empty: dict[str, pa.DataType]) -> pa.Table:
    columns = {name: pa.nulls(len(reasons), kind) for name, kind in empty.items()}
    texts = [" ".join(reason.split())[:MAX_TEXT] for reason in reasons]
    return pa.table({**columns, ERROR: pa.array(texts, pa.string())})


def _field(options: TableOptions, columns: dict[str, pa.Array]) -> pa.Array:
    """Return the values of the event time's field: a column, or a member of a struct (with dots)."""
    column, path = time_field(options.columns, options.event_time)
    found = columns[column.column]
    for name in path:
        found = pc.struct_field(found, name)
    return found


def time_field(columns: tuple[TableColumn, ...], wanted: str) -> tuple[TableColumn, list[str]]:
    """Return the column of a field, and the path from there to the field.

    Raises:
        KeyError: there is no such field.
    """
    for column in columns:
        if column.field == wanted:
            return column, []
    first, _, rest = wanted.partition(".")
    column = next((column for column in columns if column.field == first), None)  # type: ignore[assignment]
    if column is None or not rest:
        raise KeyError(wanted)
    kind, path = arrow_type(column.type), rest.split(".")
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            raise KeyError(wanted)
        kind = kind.field(name).type
    return column, path


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
