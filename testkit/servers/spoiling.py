"""A gateway before an S3 server that damages bodies on their way, or demands create-only writes of every client."""

from __future__ import annotations

import http.client
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit

from testkit.servers.certificates import Certificates

HOST = "127.0.0.1"
DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class SpoilingGateway:
    """Forwards requests from a loopback port of its own to a server without TLS. A context manager.

    Args:
        target: the server's URL.
        certificates: for ``127.0.0.1``, if the gateway is to speak TLS.

    Attributes:
        endpoint: the gateway's URL.
        spoil: of how many of the next bodies one bit is flipped on the way to the server.
        statuses: what the server answered to each PUT.
        create_only: below which path it rejects, as S3 does with a policy on ``s3:if-none-match``, what would create an
            object without that condition; empty for none. Parts of an upload create none.
        rejected: what was rejected.
    """

    def __init__(self, target: str, certificates: Certificates | None = None) -> None:
        self.spoil = 0
        self.statuses: list[int] = []
        self.create_only = ""
        self.rejected: list[str] = []
        gateway, address = self, urlsplit(target).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                body = bytearray(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                if gateway.rejects(self.command, self.path, self.headers.get("If-None-Match")):
                    gateway.rejected.append(f"{self.command} {self.path}")
                    self.send_response_only(403, "Forbidden")
                    self.send_header("Content-Length", str(len(DENIED)))
                    self.end_headers()
                    self.wfile.write(DENIED)
                    return
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

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815  (as the base class looks for them)

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

    def rejects(self, command: str, path: str, condition: str | None) -> bool:
        """Whether a request would create an object without the condition."""
        place, _, query = path.partition("?")
        asks = parse_qs(query, keep_blank_values=True)
        creates = (command == "PUT" and "partNumber" not in asks) or (command == "POST" and "uploadId" in asks)
        below = bool(self.create_only) and place.startswith(self.create_only)
        return creates and below and condition != "*"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
