"""An HTTP server whose answers a test writes byte by byte, as those of an S3 bucket."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

from streamvault.objectstore.s3.access import S3Access, StaticKeys
from streamvault.objectstore.uri import RootAddress


def bucket_at(endpoint: str, prefix: str = "") -> RootAddress:
    """The bucket of a server that only a test speaks to."""
    access = S3Access(endpoint, "us-east-1", virtual_host=False, keys=StaticKeys("key", "secret"))
    return RootAddress("s3", "bucket", prefix, access)


class RawHttpServer:
    """Serves each connection in a thread, as `respond` of a subclass says.

    Attributes:
        bucket: its address. connections: how many were made.
    """

    def __init__(self) -> None:
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bucket = bucket_at(f"http://127.0.0.1:{self._listener.getsockname()[1]}")
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts, which closing does not
        self._listener.close()

    def respond(self, connection: socket.socket, request: bytearray) -> None:
        """Answer a request, of which the head and perhaps more has come.

        Raises:
            EOFError: the connection is to be closed.
        """
        raise NotImplementedError

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError):
            while True:
                request = bytearray()
                while b"\r\n\r\n" not in request:
                    more = connection.recv(65536)
                    if not more:
                        return
                    request += more
                self.respond(connection, request)
