"""`streamvault get` and `streamvault cat`."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from streamvault.cli.options import ArchiveArgument, argument, option
from streamvault.cli.running import Command
from streamvault.common.errors import Usage
from streamvault.common.units import count_text
from streamvault.lake.reports import ERROR, CatOptions, ReadOptions
from streamvault.manifests.options import GetOptions

if TYPE_CHECKING:
    import pyarrow as pa


def get(
    archive: ArchiveArgument,
    pointer: Annotated[
        str, argument("POINTER", "scope/stream/N.#epoch.E:OFFSET-LENGTH, as Pravega's clients print it.")
    ],
    options: GetOptions,
    *,
    command: Command,
) -> None:
    """Write one event's payload to standard output.

    With --json, the payload is in base64.
    """
    from streamvault.manifests.verbs.show import get_event

    payload = command.run(get_event, archive, pointer, options)
    document = {"pointer": pointer, "payload": base64.b64encode(payload).decode()}
    command.write(document, lambda results: results.raw(payload))


ROWS_AT_ONCE = 1024
"""Number of events converted to text at a time."""


def cat(
    archive: ArchiveArgument,
    options: CatOptions,
    *,
    form: Annotated[
        Literal["raw", "jsonl", "hex"],
        option(
            "--format",
            "raw: unchanged payloads without separators; only on a terminal, control characters are escaped. "
            "jsonl: a line of JSON for each event, its payload "
            "as 'text' if it is UTF-8, else as 'base64'. hex: a line of hexadecimal digits for each payload.",
            environment=False,
        ),
    ] = "raw",
    command: Command,
) -> None:
    """Write an archive's events to standard output.

    The events are in the stream's order. With --json, prints one object whose list 'events' contains the objects of
    --format jsonl.
    """
    from streamvault.lake.read import read_archive

    as_json = command.as_json
    is_raw = form != "jsonl" and not as_json
    if is_raw and options.decode:
        raise Usage("--decode requires --format jsonl or --json", todo="Add one of them.")
    given = ReadOptions(**options.keywords(), columns=["payload"] if is_raw else [*_OWN, "payload"])
    events = command.run(read_archive, archive, given)
    command.progress.warn_all(events.warnings)
    batches = _split(iter(events))
    if options.decode:
        batches = _counted(batches, command)
    for piece in _as_one_object(archive, batches) if as_json else map(_WRITERS[form], batches):
        command.results.raw(piece)


def _counted(batches: Iterator[pa.RecordBatch], command: Command) -> Iterator[pa.RecordBatch]:
    """Yield the batches; then warn of events that could not be decoded."""
    undecoded = 0
    for batch in batches:
        undecoded += len(batch) - batch.column(ERROR).null_count
        yield batch
    if undecoded:
        command.progress.warn(f"{count_text(undecoded, 'event')} could not be decoded completely; 'error' says why")


def _split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the events a few at a time."""
    for batch in batches:
        for low in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(low, ROWS_AT_ONCE)


def _as_lines(batch: pa.RecordBatch) -> bytes:
    return b"".join(line + b"\n" for line in _lines(batch))


def _as_one_object(archive: str, pieces: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    yield b'{"archive": ' + json.dumps(archive).encode() + b', "events": ['
    comma = b""
    for batch in pieces:
        yield comma + b", ".join(_lines(batch))
        comma = b", "
    yield b"]}\n"


_OWN = ("pointer", "epoch", "segment", "offset", "length")
"""The columns of an event itself that are written."""


def _lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    return map(_line, batch.to_pylist(maps_as_pydicts="lossy"))


def _line(row: dict[str, Any]) -> bytes:
    """Return an event as JSON: its payload, or its fields; if these are not all of it, both."""
    payload: bytes = row.pop("payload")
    if ERROR in row:
        error = row.pop(ERROR)
        row["fields"] = {name: _plain(row.pop(name)) for name in list(row) if name not in _OWN}
        if error is None:
            return json.dumps(row, ensure_ascii=False).encode()
        row["error"] = error
    try:
        row["text"] = payload.decode()
    except UnicodeDecodeError:
        row["base64"] = base64.b64encode(payload).decode()
    return json.dumps(row, ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: bytes in base64; times, decimals, NaN and infinities as text."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat() + "Z"
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _raw(batch: pa.RecordBatch) -> bytes:
    return b"".join(batch.column(0).to_pylist())


def _hex(batch: pa.RecordBatch) -> bytes:
    return b"".join(payload.hex().encode() + b"\n" for payload in batch.column(0).to_pylist())


_WRITERS = {"raw": _raw, "hex": _hex, "jsonl": _as_lines}
