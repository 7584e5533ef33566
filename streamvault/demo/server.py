"""An S3 server in a process of its own, and the environment that directs all S3 clients to it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from streamvault.common.errors import Failed
from streamvault.common.processes import python_command, start_python

HOST = "127.0.0.1"

_FOREIGN = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_ENDPOINT_URL_S3")
"""Settings of the user's account, which must not interfere."""


@contextmanager
def s3_server() -> Iterator[str]:
    """Run moto on a free port of 127.0.0.1 and yield its URL. It keeps its data in memory.

    Raises:
        Failed: moto is not installed, or did not start.
    """
    if find_spec("moto") is None or find_spec("werkzeug") is None:
        todo = "Run: pip install 'streamvault[demo]'"
        raise Failed("the demo's S3 server is not installed", where="moto", todo=todo)
    command = python_command("-c", f"from {__name__} import serve; serve()")
    # in this process the server would compete with the tasks' threads for Python's lock
    with start_python(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            if not port:
                raise Failed("the demo's S3 server did not start")
            yield f"http://{HOST}:{port}"
        finally:
            process.kill()


def serve() -> None:
    """Serve S3 with moto, print the port, and end with the process that started this one, which holds its input."""
    # moto's own server spends a third of its time finding the service of each request
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app  # noqa: PLC0415  (an extra)
    from werkzeug.serving import make_server  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(HOST, 0, create_backend_app("s3"), threaded=False, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, name="moto", daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


@contextmanager
def environment(endpoint: str) -> Iterator[None]:
    """Direct all S3 clients of this process and its children to ``endpoint``; undone at the end."""
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
    }
    before = dict(os.environ)
    for name in _FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(settings)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
