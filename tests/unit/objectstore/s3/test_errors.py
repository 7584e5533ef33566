"""Exceptions of boto3: transient ones are distinguished from permanent ones.

A server that speaks TLS, addressed by ``http://``.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    SSLError,
)

from streamvault.common.errors import Problem
from streamvault.objectstore.s3.aws import named_errors
from streamvault.objectstore.store import (
    AccessDenied,
    NoSuchBucket,
    NoSuchObject,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    ServerBusy,
)
from streamvault.objectstore.uri import RootAddress
from testkit.servers.certificates import make_certificates

WHERE = "s3://vault/key"


def said(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "HeadObject")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (said("SlowDown", 503), ServerBusy),
        (said("503", 503), ServerBusy),
        (said("InternalError", 500), ServerBusy),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), ObjectStoreUnavailable),
        (ConnectTimeoutError(endpoint_url="http://127.0.0.1:1"), ObjectStoreUnavailable),
        (SSLError(endpoint_url="https://127.0.0.1:1", error="certificate"), ObjectStoreError),
        (NoCredentialsError(), ObjectStoreError),
        (said("ExpiredToken", 400), AccessDenied),
        (said("403", 403), AccessDenied),
        (said("NoSuchBucket", 404), NoSuchBucket),
        (said("404", 404), NoSuchObject),
        (said("NotImplemented", 501), ObjectStoreError),
    ],
)
def test_boto_errors_become_named_errors(error: ClientError | BotoCoreError, kind: type[ObjectStoreError]) -> None:
    with pytest.raises(ObjectStoreError) as raised, named_errors("inspect", WHERE):
        raise error
    assert type(raised.value) is kind
    assert raised.value.where == WHERE


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
