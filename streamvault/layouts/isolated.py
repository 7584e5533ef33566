"""Decode tables' Parquet files in a process of its own, as the library may end its process over damaged ones.

The decoding process has no access to any store: it asks for the bytes it needs, and this one reads them. So a crash is
an error like any other. A process serves one file after the other, and is replaced after a crash.

A message is a byte that says what it is, the size of its content (8 bytes, big-endian), and the content.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import struct
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import IO, Any, cast

import pyarrow as pa

READ, BATCH, FACTS, DONE, ERROR = b"R", b"B", b"F", b"D", b"E"

_HEAD = struct.Struct(">cQ")


class NotDecodable(OSError):
    """The file cannot be decoded: the library rejects it, or ended its process."""


class RemoteFile(io.RawIOBase):
    """A seekable file of ``size`` bytes, of which a part is fetched at each read."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._at = 0

    @abstractmethod
    def read_at(self, start: int, end: int) -> bytes:
        """Fetch the bytes ``[start, end)``, which are not empty and not beyond the end."""

    def readable(self) -> bool:
        """See the base class."""
        return True

    def seekable(self) -> bool:
        """See the base class."""
        return True

    def tell(self) -> int:
        """See the base class."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See the base class."""
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if at < 0:
            raise OSError("a position before the file")
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes at the current position; all that follow if it is negative."""
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        data = self.read_at(self._at, end) if self._at < end else b""
        self._at += len(data)
        return data


def send(stream: IO[bytes], kind: bytes, content: bytes | memoryview = b"") -> None:
    """Send a message."""
    stream.write(_HEAD.pack(kind, len(content)))
    stream.write(content)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[bytes, bytes]:
    """Receive a message.

    Raises:
        EOFError: the other process has ended.
    """
    kind, size = _HEAD.unpack(_exactly(stream, _HEAD.size))
    return kind, _exactly(stream, size)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def decoded(file: io.RawIOBase, question: dict[str, Any]) -> Iterator[pa.RecordBatch | dict[str, Any]]:
    """Decode a file; yield its record batches, and facts about it as JSON values, in the order of the answer.

    Args:
        file: the file; its own errors are raised as they are.
        question: what to decode; see `table_decoder`.

    Raises:
        NotDecodable: it cannot be decoded.
    """
    process = _take()
    is_done = False
    try:
        requests, answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        try:
            send(requests, FACTS, json.dumps({**question, "size": file.seek(0, os.SEEK_END)}).encode())
            while True:
                kind, content = receive(answers)
                if kind == READ:
                    start, end = json.loads(content)
                    file.seek(start)
                    send(requests, READ, file.read(end - start))
                elif kind == BATCH:
                    yield from pa.ipc.open_stream(content)
                elif kind == FACTS:
                    yield json.loads(content)
                else:
                    is_done = True
                    if kind == ERROR:
                        raise NotDecodable(content.decode(errors="replace"))
                    return
        except (EOFError, BrokenPipeError):
            code = process.wait()
            raise NotDecodable(f"the Parquet library ended its process over it (status {code})") from None
    finally:
        if is_done:
            _give_back(process)
        else:
            _end(process)


Process = subprocess.Popen[bytes]
_lock = Lock()
_idle: list[tuple[int, Process]] = []
"""Processes that wait for a file, each with the id of the process that started it."""


def _take() -> Process:
    with _lock:
        while _idle:
            owner, process = _idle.pop()
            if owner == os.getpid() and process.poll() is None:  # else a fork's, or it was killed while it waited
                return process
    return subprocess.Popen(
        [sys.executable, "-c", "from streamvault.layouts.table_decoder import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what the library says when it crashes
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _give_back(process: Process) -> None:
    with _lock:
        _idle.append((os.getpid(), process))


def _end(process: Process) -> None:
    process.kill()
    with suppress(OSError):
        process.communicate()


@atexit.register
def _end_all() -> None:
    while _idle:
        owner, process = _idle.pop()
        if owner == os.getpid():
            _end(process)
