"""Whether anything answers at a controller's address, and whether it speaks TLS. Needs no login."""

from __future__ import annotations

import socket
from contextlib import suppress

from streamvault.common.handshake import speaks_tls
from streamvault.streamstore.errors import StreamStoreError, StreamStoreUnavailable
from streamvault.streamstore.pravega.settings import PravegaSettings


def reach(settings: PravegaSettings, seconds: float) -> str:
    """Connect to the controller's port, and return how it answers.

    Args:
        settings: the controller's address.
        seconds: how long it may be silent.

    Raises:
        StreamStoreUnavailable: the host name does not resolve, nothing listens, or nothing answers.
        StreamStoreError: the server speaks TLS and the URI does not say so, or the other way round.
    """
    where, host = settings.address, settings.host.strip("[]")
    try:
        found = socket.getaddrinfo(host, settings.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        todo = "Check the name of Pravega's controller in the URI."
        raise StreamStoreUnavailable("there is no host of this name", where=where, todo=todo) from None
    try:
        with socket.create_connection((host, settings.port), timeout=seconds) as plain:
            secure = speaks_tls(plain)
    except TimeoutError:
        todo = "Check that it is the controller's gRPC port, that Pravega runs, and firewalls."
        raise StreamStoreUnavailable(f"no answer within {seconds:g} s", where=where, todo=todo) from None
    except OSError as error:
        todo = "Check that Pravega runs there; the controller's gRPC port is 9090 by default."
        what = f"cannot connect ({error.strerror or error})"
        raise StreamStoreUnavailable(what, where=where, todo=todo) from None
    if secure != settings.tls:
        what = "the server speaks TLS" if secure else "the server does not speak TLS"
        todo = f"Write {'pravega+tls' if secure else 'pravega'}:// in the URI."
        raise StreamStoreError(what, where=settings.uri, todo=todo)
    return f"{where} ({found[0][4][0]}) answers {'with' if secure else 'without'} TLS"


def check_tls(settings: PravegaSettings, seconds: float) -> None:
    """Raise `StreamStoreError` as `reach` does; if it does not answer within some seconds, that remains open."""
    with suppress(StreamStoreUnavailable):
        reach(settings, seconds)
