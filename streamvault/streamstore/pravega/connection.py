"""Connections to segment stores: they exchange frames, tell a slow server from a lost one, and wait to be reused.

A cluster's address and login (`PravegaSettings`) are plain values, which can be sent to other processes.
"""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from streamvault.common import logins
from streamvault.common.tls import speaks_tls
from streamvault.streamstore.errors import (
    AccessDenied,
    InvalidName,
    StreamStoreError,
    StreamStoreUnavailable,
    WireError,
)
from streamvault.streamstore.pravega import wire
from streamvault.streamstore.pravega.wire import HEADER, MAX_PAYLOAD_BYTES, WireCommand, decode, encode

DEFAULT_PORT = 9090

CA_FILE = "PRAVEGA_CA_FILE (for a second cluster, PRAVEGA_TARGET_CA_FILE; in Spark, the option caFile)"

_URI = re.compile(
    r"(?P<scheme>pravega|pravega\+tls)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.\-]+)(:(?P<port>[0-9]{1,5}))?/?\Z"
)


@dataclass(frozen=True, slots=True)
class PravegaSettings:
    """A Pravega cluster's controller and how to log in.

    Attributes:
        host: the controller's name or address.
        port: the controller's gRPC port.
        tls: whether controller and segment stores speak TLS.
        username: empty if the cluster asks for no login.
        password: its password; never shown. None: each process takes it from its own environment.
        ca_file: PEM file of CA certificates; empty for the system's.
        verify_hostname: whether a certificate must name the host. Its signature is always verified.
        timeout: how long (seconds) a server may be silent, and how long to retry without progress.
    """

    host: str
    port: int = DEFAULT_PORT
    tls: bool = False
    username: str = ""
    password: str | None = field(default="", repr=False)
    ca_file: str = ""
    verify_hostname: bool = True
    timeout: float = 30.0

    @property
    def uri(self) -> str:
        """``pravega://HOST:PORT`` or ``pravega+tls://HOST:PORT``, without the login."""
        return f"pravega{'+tls' if self.tls else ''}://{self.address}"

    @property
    def address(self) -> str:
        """``HOST:PORT`` of the controller."""
        return f"{self.host}:{self.port}"

    @classmethod
    def from_environment(cls, uri: str, environment: Mapping[str, str] | None = None, *, target: bool = False) -> Self:
        """The settings for a URI, with the login from the environment.

        Args:
            uri: ``pravega://HOST[:PORT]`` or ``pravega+tls://HOST[:PORT]``; the port is 9090 if it is left out.
            environment: None takes this process's. ``PRAVEGA_USERNAME``, ``PRAVEGA_PASSWORD``, ``PRAVEGA_CA_FILE`` and
                ``PRAVEGA_TLS_VERIFY_HOSTNAME`` (true unless it is 0, no, off or false) are read.
            target: whether this is the second cluster of a command; ``PRAVEGA_TARGET_USERNAME`` and so on are read
                first.

        Raises:
            InvalidName: not such a URI.
        """
        match = _URI.match(uri)
        port = int(match["port"] or DEFAULT_PORT) if match else 0
        if not match or not 0 < port < 65536:
            raise InvalidName(
                "not a Pravega URI", where=repr(uri), todo="Write pravega://HOST:PORT or pravega+tls://HOST:PORT."
            )
        values = os.environ if environment is None else environment

        def value(name: str, default: str = "") -> str:
            set_for_both = values.get(f"PRAVEGA_{name}", default)
            return values.get(f"PRAVEGA_TARGET_{name}", set_for_both) if target else set_for_both

        verify = value("TLS_VERIFY_HOSTNAME", "true").strip().lower()
        return cls(
            host=match["host"],
            port=port,
            tls=match["scheme"] == "pravega+tls",
            username=value("USERNAME"),
            password=value("PASSWORD") if logins.are_sent() else None,
            ca_file=value("CA_FILE"),
            verify_hostname=verify not in {"0", "no", "off", "false"},
        )

    def login(self) -> str:
        """Return ``USER:PASSWORD``.

        Raises:
            AccessDenied: the password was not sent, and this process's environment has none for the user.
        """
        if self.password is not None:
            return f"{self.username}:{self.password}"
        for cluster in ("PRAVEGA", "PRAVEGA_TARGET"):
            user = os.environ.get(f"{cluster}_USERNAME") or os.environ.get("PRAVEGA_USERNAME")
            password = os.environ.get(f"{cluster}_PASSWORD")
            if user == self.username and password is not None:
                return f"{user}:{password}"
        raise AccessDenied(
            "no password in the environment",
            where=f"user {self.username}",
            todo=f"Set PRAVEGA_USERNAME and PRAVEGA_PASSWORD for the executors, or leave {logins.VARIABLE} unset.",
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context for segment store connections; None without TLS.

        Raises:
            StreamStoreError: the CA file can't be read or holds no certificate.
        """
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise self._bad_ca_file(error) from None
        context.check_hostname = self.verify_hostname
        return context

    def ca_certificates(self) -> bytes | None:
        """The bytes of the CA file; None for the system's own authorities.

        Raises:
            StreamStoreError: the CA file can't be read.
        """
        if not self.ca_file:
            return None
        try:
            return Path(self.ca_file).read_bytes()
        except OSError as error:
            raise self._bad_ca_file(error) from None

    def _bad_ca_file(self, error: Exception) -> StreamStoreError:
        why = getattr(error, "strerror", None) or str(error)
        return StreamStoreError(
            f"cannot load the CA certificates ({why})",
            where=self.ca_file,
            todo=f"Set {CA_FILE} to a readable PEM file.",
        )


def not_trusted(whose: str, why: str, where: str) -> AccessDenied:
    """The error for a server whose certificate does not pass; ``whose`` reads "the controller's", for example."""
    return AccessDenied(
        f"{whose} certificate is not trusted ({why})",
        where=where,
        todo=f"Set {CA_FILE} to the certificate of its CA; "
        "to accept another host name, set PRAVEGA_TLS_VERIFY_HOSTNAME=false.",
    )


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
        raise StreamStoreUnavailable("there is no host with this name", where=where, todo=todo) from None
    try:
        with socket.create_connection((host, settings.port), timeout=seconds) as plain:
            secure = speaks_tls(plain)
    except TimeoutError:
        todo = (
            "Check that it is the controller's gRPC port, that Pravega is running, and that no firewall is in the way."
        )
        raise StreamStoreUnavailable(f"no answer within {seconds:g} s", where=where, todo=todo) from None
    except OSError as error:
        todo = "Check that Pravega is running there; the controller's gRPC port is 9090 by default."
        what = f"cannot connect ({error.strerror or error})"
        raise StreamStoreUnavailable(what, where=where, todo=todo) from None
    if secure != settings.tls:
        what = "the server speaks TLS" if secure else "the server does not speak TLS"
        todo = f"Write {'pravega+tls' if secure else 'pravega'}:// in the URI."
        raise StreamStoreError(what, where=settings.uri, todo=todo)
    return f"{where} ({found[0][4][0]}) answers {'with' if secure else 'without'} TLS"


IDLE_PER_ENDPOINT = 4

PROBES = 3
"""Keep-alives sent to a silent server before it is considered lost."""

ANSWER_LIMIT = 4.0
"""A live server that does not answer a request is considered lost after this many times the timeout."""


class ConnectionLost(Exception):
    """The connection broke, was refused, or the server fell silent."""


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """A segment store's address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Connection:
    """A connection on which both sides have said hello. Used by one thread at a time.

    Args:
        endpoint: the segment store.
        tls: what secures the connection; None for plain TCP.
        timeout: seconds of silence after which the server counts as lost.

    Raises:
        ConnectionLost: the connection could not be made.
        AccessDenied: the server's certificate is not trusted.
        WireError: the server is not a segment store of a supported version.
    """

    def __init__(self, endpoint: Endpoint, *, tls: ssl.SSLContext | None = None, timeout: float = 30.0) -> None:
        self.endpoint = endpoint
        self._timeout = timeout
        self._header = memoryview(bytearray(HEADER.size))
        self._last_request = 0
        self._asked_at = time.monotonic()
        self._socket = _connect(endpoint, tls, timeout)
        try:
            self._socket.settimeout(timeout / PROBES)
            self._greet()
        except BaseException:
            self.close()
            raise

    def request_id(self) -> int:
        """A number that no other request on this connection has."""
        self._last_request += 1
        return self._last_request

    def send(self, *buffers: bytes | bytearray | memoryview) -> None:
        """Send buffers one after the other, without joining them.

        Raises:
            ConnectionLost: it broke, or the server stopped taking data.
        """
        self._asked_at = time.monotonic()
        left = [view for view in (memoryview(buffer).cast("B") for buffer in buffers) if view.nbytes]
        refused = 0
        while left:
            try:
                sent = self._send_some(left)
            except TimeoutError:
                refused += 1
                if refused >= PROBES:
                    raise ConnectionLost(f"the server accepted no data for {self._timeout:.0f} s") from None
                continue
            except OSError as error:
                raise ConnectionLost(_reason(error)) from None
            refused = 0
            while left and sent >= left[0].nbytes:
                sent -= left.pop(0).nbytes
            if sent:
                left[0] = left[0][sent:]

    def receive(self) -> WireCommand:
        """The next command, whole. Signs of life are left out.

        Raises:
            ConnectionLost: it broke, or the server fell silent.
            WireError: a frame that is not known here.
        """
        return self.receive_payload(*self.receive_header())

    def receive_header(self) -> tuple[int, int]:
        """Code and payload length (bytes) of the next command; its payload must be received next."""
        while True:
            self.receive_into(self._header)
            code, length = HEADER.unpack(self._header)
            if not 0 <= length <= MAX_PAYLOAD_BYTES:
                raise WireError(f"a frame of {length} bytes (type {code})", where=str(self.endpoint))
            if code != wire.KeepAlive.code:
                return code, length
            self.receive_bytes(length)
            self._bear(0)

    def receive_payload(self, code: int, length: int) -> WireCommand:
        """The command whose header was received."""
        return decode(code, self.receive_bytes(length))

    def receive_bytes(self, length: int) -> bytearray:
        """The next bytes of the payload."""
        payload = bytearray(length)
        self.receive_into(memoryview(payload))
        return payload

    def receive_into(self, view: memoryview) -> None:
        """Fill a buffer with the next bytes of the payload."""
        at, size, silent = 0, view.nbytes, 0
        while at < size:
            try:
                count = self._socket.recv_into(view[at:])
            except TimeoutError:
                silent += 1
                self._bear(silent)
                continue
            except OSError as error:
                raise ConnectionLost(_reason(error)) from None
            if count == 0:
                raise ConnectionLost("the server closed the connection")
            at += count
            silent = 0

    def is_idle(self) -> bool:
        """Return whether it is open with nothing to read, so that the next reply belongs to the next request."""
        try:
            readable, _, _ = select.select([self._socket], [], [], 0)
        except (OSError, ValueError):
            return False
        return not readable

    def close(self) -> None:
        """Close it. Does not raise; may be called twice, and from another thread to end a wait."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._socket.close()

    def _greet(self) -> None:
        self.send(encode(wire.Hello(wire.WIRE_VERSION, wire.OLDEST_WIRE_VERSION)))
        hello = self.receive()
        if not isinstance(hello, wire.Hello) or hello.low > wire.WIRE_VERSION:
            raise WireError("the server is not a segment store of a supported version", where=str(self.endpoint))

    def _send_some(self, views: list[memoryview]) -> int:
        if isinstance(self._socket, ssl.SSLSocket):
            return self._socket.send(views[0])
        return self._socket.sendmsg(views)

    def _bear(self, silent: int) -> None:
        """Send a keep-alive to a silent server, or give up: also one that is not silent, but does not answer either."""
        if silent >= PROBES:
            raise ConnectionLost(f"no reply to keep-alives for {self._timeout:.0f} s")
        waited = time.monotonic() - self._asked_at
        if waited > ANSWER_LIMIT * self._timeout:
            raise ConnectionLost(f"no answer for {waited:.0f} s")
        if not silent:
            return
        try:
            self._socket.send(encode(wire.KeepAlive()))
        except OSError as error:
            raise ConnectionLost(_reason(error)) from None


class ConnectionPool:
    """Hands out connections (`Connection`), each to one user at a time. May be used from several threads."""

    def __init__(self, *, tls: ssl.SSLContext | None, timeout: float) -> None:
        self._tls = tls
        self._timeout = timeout
        self._lock = threading.Lock()
        self._idle: defaultdict[Endpoint, list[Connection]] = defaultdict(list)
        self._closed = False

    def take(self, endpoint: Endpoint, *, fresh: bool = False) -> Connection:
        """A connection for the caller alone, to be given back or closed; a ``fresh`` one if its state will be changed.

        Raises:
            ConnectionLost: the segment store can't be reached now.
        """
        while not fresh:
            with self._lock:
                waiting = self._idle[endpoint]
                connection = waiting.pop() if waiting else None
            if connection is None:
                break
            if connection.is_idle():
                return connection
            connection.close()
        if self._closed:
            raise StreamStoreError("the stream store is closed")
        return Connection(endpoint, tls=self._tls, timeout=self._timeout)

    def give(self, connection: Connection) -> None:
        """Take back a connection on which no answer is outstanding."""
        with self._lock:
            waiting = self._idle[connection.endpoint]
            if not self._closed and len(waiting) < IDLE_PER_ENDPOINT:
                waiting.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections; those in use are closed by their users."""
        with self._lock:
            self._closed = True
            connections = [connection for waiting in self._idle.values() for connection in waiting]
            self._idle.clear()
        for connection in connections:
            connection.close()


def _connect(endpoint: Endpoint, tls: ssl.SSLContext | None, timeout: float) -> socket.socket:
    try:
        with ExitStack() as stack:
            address = (endpoint.host, endpoint.port)
            plain = stack.enter_context(socket.create_connection(address, timeout=timeout / PROBES))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connected = plain if tls is None else tls.wrap_socket(plain, server_hostname=endpoint.host)
            stack.pop_all()
            return connected
    except ssl.SSLCertVerificationError as error:
        raise not_trusted("a segment store's", error.verify_message, str(endpoint)) from None
    except (OSError, OverflowError, ValueError) as error:  # the latter two: the controller's address is none
        raise ConnectionLost(_reason(error)) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
