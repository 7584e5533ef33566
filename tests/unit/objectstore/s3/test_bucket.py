"""Every object is sent with its SHA-256, which the server verifies."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from streamvault.objectstore.s3.access import S3Access, StaticKeys
from streamvault.objectstore.uri import RootAddress

LARGE = b"x" * (2 * 1024 * 1024)


@pytest.fixture
def puts() -> Iterator[tuple[str, list[tuple[str, bytes, str | None]]]]:
    """A server's endpoint, and the path, body and SHA-256 header of each PUT that it received."""
    seen: list[tuple[str, bytes, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, body, self.headers["x-amz-checksum-sha256"]))
            self.send_response(200)
            self.send_header("ETag", '"e"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (as the base class has it)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


@pytest.mark.parametrize("storage_class", ["", "STANDARD_IA"])
def test_every_put_carries_a_sha256_checksum(
    puts: tuple[str, list[tuple[str, bytes, str | None]]], storage_class: str
) -> None:
    endpoint, seen = puts
    access = S3Access(endpoint, "us-east-1", virtual_host=False, keys=StaticKeys("key", "secret"))
    store = RootAddress("s3", "bucket", "vault", access, storage_class).open_data()
    bodies = (b"", b"small", LARGE)
    for number, body in enumerate(bodies):
        store.put(f"a/{number}", memoryview(body))
    assert seen == [
        (f"/bucket/vault/a/{number}", body, base64.b64encode(hashlib.sha256(body).digest()).decode())
        for number, body in enumerate(bodies)
    ]
