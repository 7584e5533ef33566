"""Servers: several are asked at once; whether one speaks TLS; whether logins are sent to executors with their tasks."""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from streamvault.common.errors import Usage

VARIABLE = "STREAMVAULT_SEND_LOGINS"
"""Environment variable: with ``no``, executors have logins of their own, in their environment."""


def are_sent() -> bool:
    """Return whether addresses for tasks contain the logins that this process has.

    Raises:
        Usage: ``STREAMVAULT_SEND_LOGINS`` is neither yes nor no.
    """
    given = os.environ.get(VARIABLE, "") or "yes"
    if given not in {"yes", "no"}:
        raise Usage(f"{VARIABLE} is neither yes nor no", where=repr(given))
    return given == "yes"


AT_ONCE = 8
"""How many things are asked for at once."""

S = TypeVar("S")
R = TypeVar("R")


def each_of(function: Callable[[S], R], specs: Iterable[S]) -> Iterator[R]:
    """Call a function for each value, `AT_ONCE` of them at the same time; yield the results in order."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="each") as pool:
        begun: deque[Future[R]] = deque()
        try:
            for spec in specs:
                begun.append(pool.submit(function, spec))
                if len(begun) == 2 * AT_ONCE:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for one in begun:
                one.cancel()


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
