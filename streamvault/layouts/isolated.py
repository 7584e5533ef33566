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
import signal
import struct
import subprocess
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import IO, Any, cast

import pyarrow as pa

from streamvault.common.errors import ShortOf, shortage
from streamvault.common.processes import python_command, start_python

READ, BATCH, FACTS, DONE, ERROR, SHORT = b"R", b"B", b"F", b"D", b"E", b"S"

SAID_BYTES = 64 * 1024
"""How much is read of what a process has said."""

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
        ShortOf: this machine is short of something.
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
                    if kind == SHORT:
                        raise shortage(content.decode(errors="replace")) or ShortOf("this machine is short of memory")
                    if kind == ERROR:
                        raise NotDecodable(content.decode(errors="replace"))
                    return
        except (EOFError, BrokenPipeError):
            raise _ended(process) from None
    finally:
        if is_done:
            _give_back(process)
        else:
            _end(process)


def _ended(process: subprocess.Popen[bytes]) -> Exception:
    """Return the error of a process that has ended: a shortage if it says so or was killed from outside."""
    code, said = process.wait(), ""
    if process.stderr is not None:
        process.stderr.seek(0)
        said = process.stderr.read(SAID_BYTES).decode(errors="replace")
    if code in {-signal.SIGKILL, -signal.SIGTERM}:
        return ShortOf(
            f"the process that decodes tables' files was killed (signal {-code})",
            todo="It may have been short of memory. Raise the limit of the container, and run the same command again.",
        )
    return shortage(said) or NotDecodable(f"it crashed the Parquet library's process (status {code})")


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
    said = tempfile.TemporaryFile(prefix="streamvault-")  # noqa: SIM115  (closed with the process)
    process = start_python(
        python_command("-c", "from streamvault.layouts.table_decoder import serve; serve()"),
        path=[entry for entry in sys.path if entry],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
    )
    process.stderr = said
    return process


def _give_back(process: Process) -> None:
    with _lock:
        _idle.append((os.getpid(), process))


def _end(process: Process) -> None:
    process.kill()
    for file in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):
            cast("IO[bytes]", file).close()
    process.wait()


@atexit.register
def _end_all() -> None:
    while _idle:
        owner, process = _idle.pop()
        if owner == os.getpid():
            _end(process)
