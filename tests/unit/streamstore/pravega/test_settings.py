"""The address of a Pravega cluster, the login, the lifetimes of tokens.

Whether a controller's port answers, with TLS or without.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from streamvault.streamstore.errors import InvalidName, StreamStoreError
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.pravega import PravegaSettings
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega.calls import ControllerCalls
from streamvault.streamstore.pravega.connection import reach
from streamvault.streamstore.pravega.segments import DEFAULT_LIFETIME, DelegationTokens, lifetime
from testkit.servers.certificates import make_certificates

STREAM = StreamName("scope", "stream")


@pytest.mark.parametrize(
    ("uri", "host", "port", "tls", "again"),
    [
        ("pravega://127.0.0.1:9091", "127.0.0.1", 9091, False, "pravega://127.0.0.1:9091"),
        (
            "pravega://controller.example.com",
            "controller.example.com",
            9090,
            False,
            "pravega://controller.example.com:9090",
        ),
        ("pravega+tls://host:443/", "host", 443, True, "pravega+tls://host:443"),
        ("pravega://[::1]:9090", "[::1]", 9090, False, "pravega://[::1]:9090"),
    ],
)
def test_uri_is_parsed(uri: str, host: str, port: int, tls: bool, again: str) -> None:
    settings = PravegaSettings.from_environment(uri, {})
    assert (settings.host, settings.port, settings.tls) == (host, port, tls)
    assert settings.uri == again
    assert settings.verify_hostname


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "pravega:/host",
        "tcp://h:1",
        "pravega://",
        "pravega://h:0",
        "pravega://h:65536",
        "pravega://h:1/scope",
        "pravega://a b:1",
    ],
)
def test_invalid_uri_is_refused(uri: str) -> None:
    with pytest.raises(InvalidName, match="pravega://HOST:PORT"):
        PravegaSettings.from_environment(uri, {})


@pytest.mark.parametrize(
    ("text", "verify"), [("true", True), ("", True), ("1", True), ("False", False), ("0", False), (" no ", False)]
)
def test_login_and_tls_are_taken_from_the_environment(text: str, verify: bool) -> None:
    environment = {
        "PRAVEGA_USERNAME": "ann",
        "PRAVEGA_PASSWORD": "secret",
        "PRAVEGA_CA_FILE": "/ca.pem",
        "PRAVEGA_TLS_VERIFY_HOSTNAME": text,
    }
    settings = PravegaSettings.from_environment("pravega+tls://h:1", environment)
    assert (settings.username, settings.password, settings.ca_file, settings.verify_hostname) == (
        "ann",
        "secret",
        "/ca.pem",
        verify,
    )


def test_pickled_settings_keep_the_password_and_hide_it() -> None:
    settings = PravegaSettings("h", 1, username="ann", password="secret")
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "secret" not in repr(settings) + settings.uri


def test_missing_ca_file_is_named() -> None:
    settings = PravegaSettings("h", 1, tls=True, ca_file="/does/not/exist.pem")
    for use in (settings.tls_context, settings.ca_certificates):
        with pytest.raises(StreamStoreError, match=r"/does/not/exist.pem.*PRAVEGA_CA_FILE"):
            use()


def token_of(issued: int, expires: int) -> str:
    body = base64.urlsafe_b64encode(json.dumps({"sub": "segmentstoreresource", "iat": issued, "exp": expires}).encode())
    return f"header.{body.decode().rstrip('=')}.signature"


@pytest.mark.parametrize(
    ("token", "seconds"),
    [
        (token_of(1_000_000, 1_000_600), 600),
        (token_of(5, 65), 60),
        (token_of(10, 5), 0),
        ("", DEFAULT_LIFETIME),
        ("no token", DEFAULT_LIFETIME),
        ("a.b.c", DEFAULT_LIFETIME),
        ("a.bnVsbA.c", DEFAULT_LIFETIME),
    ],
)
def test_lifetime_is_read_from_the_token(token: str, seconds: float) -> None:
    assert lifetime(token) == seconds


def test_token_is_kept_renewed_in_time_and_forgotten_when_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = 0.0, []

    def ask(stream: StreamName, write: bool) -> str:
        asked.append((stream, write))
        return token_of(len(asked), len(asked) + 600)

    monkeypatch.setattr("streamvault.streamstore.pravega.segments.time.monotonic", lambda: now)
    tokens = DelegationTokens(ask)
    first = tokens.get(STREAM, write=False)
    now = 479.0
    assert tokens.get(STREAM, write=False) == first
    assert tokens.get(STREAM, write=True) != first
    assert asked == [(STREAM, False), (STREAM, True)]
    now = 481.0
    second = tokens.get(STREAM, write=False)
    assert second != first
    tokens.forget(STREAM, first)
    assert tokens.get(STREAM, write=False) == second
    tokens.forget(STREAM, second)
    assert tokens.get(STREAM, write=False) not in (first, second)
    assert len(asked) == 4


@contextmanager
def served(folder: Path, *, tls: bool) -> Iterator[int]:
    """The port of a gRPC server."""
    server = grpc.server(ThreadPoolExecutor(1))
    if tls:
        files = make_certificates(folder)
        pair = (files.key.read_bytes(), files.certificate.read_bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None)


@pytest.mark.parametrize("tls", [True, False])
def test_tls_and_plain_are_told_apart(tmp_path: Path, *, tls: bool) -> None:
    with served(tmp_path, tls=tls) as port:
        assert reach(PravegaSettings("127.0.0.1", port, tls=tls), 30).endswith("with TLS" if tls else "without TLS")
        with pytest.raises(StreamStoreError) as told:
            reach(PravegaSettings("127.0.0.1", port, tls=not tls), 30)
    assert told.value.todo == f"Write {'pravega+tls' if tls else 'pravega'}:// in the URI."


@pytest.mark.parametrize("tls", [True, False])
def test_a_call_that_speaks_the_wrong_protocol_says_so_at_once(tmp_path: Path, *, tls: bool) -> None:
    with served(tmp_path, tls=tls) as port:
        calls = ControllerCalls(PravegaSettings("127.0.0.1", port, tls=not tls, timeout=3600))
        with pytest.raises(StreamStoreError) as told:
            calls.call("createScope", pb.ScopeInfo(scope="plant"))
        calls.close()
    assert told.value.todo == f"Write {'pravega+tls' if tls else 'pravega'}:// in the URI."
