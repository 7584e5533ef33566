"""moto's S3 server, in this process: the one that every machine has, as it is a Python package."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from moto.server import ThreadedMotoServer

from tests.servers.s3 import HOST, S3Server

__all__ = ["moto_server"]


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """An empty moto server on a free port, stopped at the end. All of one process share what is stored in them."""
    # it logs every request
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        yield S3Server(
            name="moto", endpoint=f"http://{HOST}:{port}", access_key="test-access", secret_key="test-secret-key"
        )
    finally:
        server.stop()
