"""moto's S3 server, in this process: the one that every machine has, as it is a Python package."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from typing import ParamSpec, TypeVar
from unittest.mock import patch

from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from testkit.servers.s3 import HOST, S3Server

P = ParamSpec("P")
T = TypeVar("T")
# moto's handlers of the requests that may say If-None-Match: it looks for the key, and stores the object later
CREATES = ("put_object", "_key_response_post")
# of each request, moto lists its folder and tries hundreds of patterns to find the service, the same for the same host
_find_service = cache(DomainDispatcherApplication.get_backend_for_host)


def _one_at_a_time(handler: Callable[P, T], lock: AbstractContextManager[bool]) -> Callable[P, T]:
    """The handler, by one thread at a time: S3 creates an object once, and moto's threads do not."""

    @wraps(handler)
    def locked(*args: P.args, **kwargs: P.kwargs) -> T:
        with lock:
            return handler(*args, **kwargs)

    return locked


@contextmanager
def moto_server() -> Iterator[S3Server]:
    """An empty moto server on a free port, stopped at the end. All of one process share what is stored in them."""
    # it logs every request
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    lock = threading.RLock()
    one_at_a_time = {name: _one_at_a_time(getattr(S3Response, name), lock) for name in CREATES}
    server = ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        with (
            patch.multiple(S3Response, **one_at_a_time),
            patch.object(DomainDispatcherApplication, "get_backend_for_host", _find_service),
        ):
            yield S3Server(
                name="moto", endpoint=f"http://{HOST}:{port}", access_key="test-access", secret_key="test-secret-key"
            )
    finally:
        server.stop()
