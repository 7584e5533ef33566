"""Whether an endpoint speaks the protocol that its URL says."""

from __future__ import annotations

import socket
from contextlib import suppress
from urllib.parse import urlsplit

from streamvault.common.handshake import speaks_tls
from streamvault.objectstore.errors import ObjectStoreError

REACH_SECONDS = 2.0
"""How long a server may be silent that is asked whether it speaks TLS."""


def check_plain(endpoint: str, bucket: str) -> None:
    """Check that a server is not addressed by ``http://`` although it speaks TLS.

    The opposite is told by the first answer. This is not: some servers say so in a text, others hang up.

    Args:
        endpoint: the server's URL.
        bucket: the bucket's URI.

    Raises:
        ObjectStoreError: it speaks TLS.
    """
    url = urlsplit(endpoint)
    if url.scheme != "http":
        return
    with suppress(OSError), socket.create_connection((url.hostname, url.port or 80), timeout=REACH_SECONDS) as plain:
        if speaks_tls(plain):
            todo = "Use https:// in AWS_ENDPOINT_URL."
            raise ObjectStoreError("the server speaks TLS", where=f"{bucket} at {endpoint}", todo=todo)
