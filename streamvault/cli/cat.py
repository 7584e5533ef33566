"""`streamvault cat`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from streamvault.cli.options import ArchiveArgument, option
from streamvault.cli.output import Results
from streamvault.cli.running import Running, run
from streamvault.common.progress import Progress
from streamvault.lake.options import CatOptions

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 1024
"""Number of events converted to text at a time."""


class Format(StrEnum):
    """How events are written."""

    RAW = "raw"
    JSONL = "jsonl"
    HEX = "hex"


def cat(
    archive: ArchiveArgument,
    options: CatOptions,
    *,
    limit: Annotated[
        int | None, option("--limit", "Write at most this many events.", metavar="N", min=0, show_default=False)
    ] = None,
    form: Annotated[
        Format,
        option(
            "--format",
            "raw: unchanged payloads without separators. jsonl: a line of JSON for each event, its payload "
            "as 'text' if it is UTF-8, else as 'base64'. hex: a line of hexadecimal digits for each payload.",
            environment=False,
        ),
    ] = Format.RAW,
    running: Running,
) -> int:
    """Write an archive's events to standard output.

    They are in the stream's order. With --json, one object whose list 'events' has the objects of --format jsonl.
    """

    def work(_: Progress) -> Iterator[bytes]:
        from streamvault.lake.read import read_archive

        rows = running.as_json or form is Format.JSONL
        batches = read_archive(
            archive,
            **options.keywords(),
            columns=["pointer", "epoch", "segment", "offset", "length", "payload"] if rows else ["payload"],
        )
        pieces = _first(batches, limit)
        if running.as_json:
            return _as_one_object(archive, pieces)
        return map(_as_lines if rows else _WRITERS[form], pieces)

    return run(work, show=_write, document=lambda _: {}, running=running, piecewise=True)


def _write(results: Results, pieces: Iterator[bytes]) -> None:
    for piece in pieces:
        results.raw(piece)


def _first(batches: pa.RecordBatchReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first events, a few at a time."""
    left = limit
    for batch in batches:
        for low in range(0, batch.num_rows, ROWS_AT_ONCE):
            if left is not None and left <= 0:
                return
            piece = batch.slice(low, ROWS_AT_ONCE if left is None else min(ROWS_AT_ONCE, left))
            if left is not None:
                left -= piece.num_rows
            yield piece


def _as_lines(batch: pa.RecordBatch) -> bytes:
    return b"".join(line + b"\n" for line in map(_line, batch.to_pylist()))


def _as_one_object(archive: str, pieces: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    yield b'{"archive": ' + json.dumps(archive).encode() + b', "events": ['
    comma = b""
    for batch in pieces:
        yield comma + b", ".join(map(_line, batch.to_pylist()))
        comma = b", "
    yield b"]}\n"


def _line(row: dict[str, Any]) -> bytes:
    payload: bytes = row.pop("payload")
    try:
        row["text"] = payload.decode()
    except UnicodeDecodeError:
        row["base64"] = base64.b64encode(payload).decode()
    return json.dumps(row, ensure_ascii=False).encode()


def _raw(batch: pa.RecordBatch) -> bytes:
    return b"".join(batch.column(0).to_pylist())


def _hex(batch: pa.RecordBatch) -> bytes:
    return b"".join(payload.hex().encode() + b"\n" for payload in batch.column(0).to_pylist())


_WRITERS = {Format.RAW: _raw, Format.HEX: _hex}
