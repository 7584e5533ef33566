"""An S3 server in this process, and the environment that directs all S3 clients to it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from common.errors import Failed
from sparkrun.head_start import VARIABLE as HEAD_START

__all__ = ["environment", "s3_server"]

HOST = "127.0.0.1"

_FOREIGN = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_ENDPOINT_URL_S3")
"""Settings of the user's account, which must not interfere."""


@contextmanager
def s3_server() -> Iterator[str]:
    """Run moto on a free port of 127.0.0.1 and yield its URL; delete all of moto's data in this process at the end.

    Raises:
        Failed: moto is not installed.
    """
    try:
        # moto's own server spends a third of its time finding the service of each request
        from moto.backends import get_backend  # noqa: PLC0415  (an extra: it may be missing)
        from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app  # noqa: PLC0415
        from werkzeug.serving import make_server  # noqa: PLC0415
    except ImportError as error:
        todo = "Run: pip install 'streamvault[demo]'"
        raise Failed("the demo's S3 server is not installed", where=str(error), todo=todo) from None

    requests = logging.getLogger("werkzeug")
    level = requests.level
    requests.setLevel(max(level, logging.ERROR))
    server = make_server(HOST, 0, create_backend_app("s3"), threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, name="moto", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for account in get_backend("s3").values():
            account.reset()
        requests.setLevel(level)


@contextmanager
def environment(endpoint: str) -> Iterator[None]:
    """Direct all S3 clients of this process and its children to ``endpoint``; undone at the end.

    So small a stream would be moved before Spark has started. The demo waits for Spark, to show that it works.
    """
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": HOST,
        "no_proxy": HOST,
        HEAD_START: os.environ.get(HEAD_START, "0"),
    }
    before = {name: os.environ.get(name) for name in (*settings, *_FOREIGN)}
    _set({**settings, **dict.fromkeys(_FOREIGN)})
    try:
        yield
    finally:
        _set(before)


def _set(settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
