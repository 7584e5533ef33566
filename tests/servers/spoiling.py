"""A gateway before an S3 server that damages bodies on their way, as bad memory between the two would."""

from __future__ import annotations

import http.client
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

from tests.servers.certificates import Certificates

HOST = "127.0.0.1"


class SpoilingGateway:
    """Forwards requests from a loopback port of its own to a server without TLS. A context manager.

    Args:
        target: the server's URL.
        certificates: for ``127.0.0.1``, if the gateway is to speak TLS.

    Attributes:
        endpoint: the gateway's URL.
        spoil: of how many of the next bodies one bit is flipped on the way to the server.
        statuses: what the server answered to each PUT.
    """

    def __init__(self, target: str, certificates: Certificates | None = None) -> None:
        self.spoil = 0
        self.statuses: list[int] = []
        gateway, address = self, urlsplit(target).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                body = bytearray(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                if body and gateway.spoil:
                    gateway.spoil -= 1
                    body[-1] ^= 1
                server = http.client.HTTPConnection(address, timeout=30)
                server.request(self.command, self.path, bytes(body), dict(self.headers))
                answer = server.getresponse()
                content = answer.read()
                if self.command == "PUT":
                    gateway.statuses.append(answer.status)
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                server.close()

            do_GET = do_HEAD = do_PUT = do_POST = forward  # noqa: N815  (as the base class looks for them)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (as the base class has it)
                pass

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self.endpoint = f"http://{HOST}:{self._server.server_port}"
        if certificates is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificates.certificate, certificates.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.endpoint = f"https://{HOST}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="spoiling-gateway", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
