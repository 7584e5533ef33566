"""A server that speaks TLS, addressed by ``http://``."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from streamvault.common.errors import Problem
from streamvault.objectstore.store import ObjectStore, ObjectStoreUnavailable
from streamvault.objectstore.uri import RootAddress
from testkit.servers.certificates import make_certificates

ASKS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("a"),
    "size": lambda store: store.size("a"),
    "list": lambda store: list(store.list("a/")),
    "put": lambda store: store.put("a", b"x"),
}
HANDSHAKE = b"\x16"
SAYS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


@pytest.fixture(params=[SAYS, b""], ids=["it says so", "it hangs up"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    """A server that speaks TLS, and what it answers to other clients."""
    files = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    def serve() -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as client, suppress(OSError):
                    if client.recv(1, socket.MSG_PEEK) == HANDSHAKE:
                        context.wrap_socket(client, server_side=True).close()
                    else:
                        client.recv(10_000)
                        client.sendall(request.param)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def store(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return RootAddress.parse("s3://bucket/root").resolve().open(retry_seconds=0)


@pytest.mark.parametrize("ask", ASKS)
def test_a_server_that_speaks_tls_is_named(store: ObjectStore, ask: str) -> None:
    with pytest.raises(
        Problem, match=r"^the server speaks TLS: s3://bucket at http://.*\. Use https:// in AWS_"
    ) as told:
        ASKS[ask](store)
    assert not isinstance(told.value, ObjectStoreUnavailable)  # which would be tried again
