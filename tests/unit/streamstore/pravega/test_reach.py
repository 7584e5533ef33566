"""Whether a controller's port answers, with TLS or without."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from streamvault.streamstore.errors import StreamStoreError
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega.calls import ControllerCalls
from streamvault.streamstore.pravega.settings import PravegaSettings, reach
from testkit.servers.certificates import make_certificates


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
