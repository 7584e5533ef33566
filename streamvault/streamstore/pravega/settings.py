"""Address and login of a Pravega cluster, as plain values for sending to other processes."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from streamvault.common import logins
from streamvault.common.servers import speaks_tls
from streamvault.streamstore.errors import AccessDenied, InvalidName, StreamStoreError, StreamStoreUnavailable

DEFAULT_PORT = 9090

CA_FILE = "PRAVEGA_CA_FILE (for a second cluster, PRAVEGA_TARGET_CA_FILE)"

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
