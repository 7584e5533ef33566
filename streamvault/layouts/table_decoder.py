"""The process that decodes tables' files for `isolated`."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa

from streamvault.common.errors import shortage
from streamvault.layouts.isolated import BATCH, DONE, ERROR, FACTS, READ, SHORT, RemoteFile, receive, send
from streamvault.layouts.layout import StoredRange
from streamvault.layouts.table_rows import COLUMNS, RANGES, open_file, rows_in
from streamvault.streamstore.model import SegmentId


def serve() -> None:
    """Answer questions until there are no more."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write there
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            _, content = receive(requests)
            question = json.loads(content)
            try:
                _answer(question, _Asked(requests, answers, question["size"]), answers)
            except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError) as error:
                if isinstance(error, BrokenPipeError):
                    raise
                short = shortage(error)
                text = f"{type(error).__name__} {error}" if short else f"{error}"
                send(answers, SHORT if short else ERROR, " ".join(text.split())[:200].encode())
            else:
                send(answers, DONE)


def _answer(question: dict[str, Any], file: io.RawIOBase, answers: IO[bytes]) -> None:
    with open_file(file) as parquet:
        if missing := set(COLUMNS) - set(parquet.schema_arrow.names):
            raise KeyError(f"the file has no column {min(missing)}")
        ranges = (parquet.metadata.metadata or {}).get(RANGES, b"")
        if question["stored"] is None:
            beyond = ""
            try:
                parquet.metadata.to_dict()  # with the columns' statistics, which Iceberg's library reads
            except OverflowError as error:
                beyond = str(error)
            facts = {"beyond": beyond, "ranges": ranges.decode(errors="replace"), "rows": parquet.metadata.num_rows}
            send(answers, FACTS, json.dumps(facts).encode())
            return
        segment, *bounds = question["stored"]
        stored = StoredRange(SegmentId.parse(segment), *bounds)
        start, end, batch_rows = question["part"]
        rows = rows_in(parquet, stored, start, end, batch_rows)
        send(answers, FACTS, json.dumps({"holds": rows is not None}).encode())
        for batch in rows or ():
            send(answers, BATCH, _encoded(batch))
            if end == start + 1:
                return  # one event was asked for


def _encoded(batch: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


class _Asked(RemoteFile):
    """A file that another process reads."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes], size: int) -> None:
        super().__init__(size)
        self._requests, self._answers = requests, answers

    def read_at(self, start: int, end: int) -> bytes:
        send(self._answers, READ, json.dumps([start, end]).encode())
        return receive(self._requests)[1]
