"""Finds out whether a server speaks TLS."""

from __future__ import annotations

import socket
import ssl

_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
"""OpenSSL's words for bytes that are no TLS record."""


def speaks_tls(plain: socket.socket) -> bool:
    """Return whether the server of a new connection answers a TLS handshake; any certificate will do.

    Raises:
        TimeoutError: it does not answer within the socket's timeout.
        OSError: the connection failed otherwise.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        context.wrap_socket(plain).close()
    except (ssl.SSLEOFError, ConnectionError):  # what it was sent meant nothing to it
        return False
    except ssl.SSLError as error:
        return (error.reason or "") not in _NOT_TLS
    return True
