"""Pravega connections: stream URIs, and the environment variables with a command's login."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.options import flag
from streamvault.common.errors import Problem

if TYPE_CHECKING:
    from streamvault.streamstore.model import StreamName
    from streamvault.streamstore.uri import StoreAddress

DEFAULT_PORT = 9090
_EXTRA = ("scope", "tls", "ca_file", "verify_hostname")
_LOGIN = "PRAVEGA_"
_TARGET = "PRAVEGA_TARGET_"
_VARIABLES = ("USERNAME", "PASSWORD", "CA_FILE", "TLS_VERIFY_HOSTNAME")


def own_target_login(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the target's login of an environment, for one in which ``PRAVEGA_USERNAME`` etc. are to be replaced.

    A variable of the target that is not set would otherwise take the replaced value: another cluster's password.
    """
    return {
        f"{_TARGET}{name}": environment.get(f"{_TARGET}{name}", environment.get(f"{_LOGIN}{name}", ""))
        for name in _VARIABLES
    }


class PravegaHook(BaseHook):
    """A connection of type ``pravega``.

    Fields: host and port of the controller (default 9090); login and password (empty for a cluster without
    authentication); in extra, ``scope`` (of streams given without one), ``tls``, ``ca_file`` (PEM, on the workers) and
    ``verify_hostname`` (default true).

    Args:
        pravega_conn_id: id of the connection.
    """

    conn_name_attr = "pravega_conn_id"
    default_conn_name = "pravega_default"
    conn_type = "pravega"
    hook_name = "Pravega"

    def __init__(self, pravega_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.pravega_conn_id = pravega_conn_id

    @cached_property
    def _connection(self) -> Any:
        connection = self.get_connection(self.pravega_conn_id)
        unknown = sorted(set(connection.extra_dejson) - set(_EXTRA))
        if not connection.host or unknown:
            wrong = f"its extra has {', '.join(unknown)}" if unknown else "it has no host"
            raise AirflowFailException(
                f"connection {self.pravega_conn_id!r} is not a valid Pravega connection: {wrong}. "
                f"Give the controller's host, and in extra only {', '.join(_EXTRA)}."
            )
        return connection

    @property
    def _scope(self) -> str:
        return str(self._connection.extra_dejson.get("scope") or "")

    @property
    def uri(self) -> str:
        """The cluster's URI, ``pravega://HOST:PORT`` or ``pravega+tls://HOST:PORT``, without the login."""
        host, port = self._connection.host, self._connection.port or DEFAULT_PORT
        return f"pravega{'+tls' if self._flag('tls', default=False) else ''}://{host}:{port}"

    def stream_uri(self, stream: str) -> str:
        """Return the URI of a stream of this cluster.

        Args:
            stream: ``SCOPE/STREAM``, or ``STREAM`` if the connection has a scope; for a scope ``SCOPE/``, and a
                pattern in place of ``STREAM`` for several streams.

        Raises:
            AirflowFailException: ``stream`` is neither.
        """
        scope, slash, name = stream.rpartition("/")
        scope = scope if slash else self._scope
        if not scope or not stream or "/" in scope:
            raise AirflowFailException(
                f"not a stream: {stream!r}. Write SCOPE/STREAM, or STREAM if connection {self.pravega_conn_id!r} "
                "has a scope in its extra."
            )
        return f"{self.uri}/{scope}/{name}"

    def environment(self, *, target: bool = False) -> dict[str, str]:
        """Return the variables that `streamstore.pravega.settings` reads; one without a value is empty.

        The result contains the password: use it only as a process's environment, never in a rendered field or a log
        line.

        Args:
            target: whether this is the cluster of a command's target (``PRAVEGA_TARGET_USERNAME`` and so on).
        """
        values = (
            self._connection.login or "",
            self._connection.password or "",
            str(self._connection.extra_dejson.get("ca_file") or ""),
            "" if self._flag("verify_hostname", default=True) else "false",
        )
        prefix = _TARGET if target else _LOGIN
        return {f"{prefix}{name}": value for name, value in zip(_VARIABLES, values, strict=True)}

    def list_streams(self, scope: str) -> list[str]:
        """Return the names of a scope's streams, sorted, without internal ones; of the connection's scope if empty.

        Raises:
            Problem: the streams cannot be listed.
        """
        with self.get_conn() as store:
            return [name.stream for name in store.list_streams(scope or self._scope)]

    def get_conn(self) -> Any:
        """Open the cluster as a `streamstore.store.StreamStore`; close it after use."""
        from streamvault.streamstore.pravega import PravegaSettings, PravegaStore  # noqa: PLC0415  (gRPC: not where DAGs are parsed)

        return PravegaStore(PravegaSettings.from_environment(self.uri, self.environment()))

    def address(self, stream: str) -> tuple[StoreAddress, StreamName]:
        """Return the store of a stream, and the stream: of this cluster by its name, or any by its URI.

        A URI is accessed with the process's own login.

        Raises:
            Problem, AirflowFailException: the name or the URI is not valid.
        """
        from streamvault.streamstore.uri import parse_stream  # noqa: PLC0415  (not where DAGs are parsed)

        if "://" in stream:
            return parse_stream(stream)
        from streamvault.streamstore.pravega import PravegaSettings  # noqa: PLC0415

        address, name = parse_stream(self.stream_uri(stream))
        return replace(address, settings=PravegaSettings.from_environment(self.uri, self.environment())), name

    def test_connection(self) -> tuple[bool, str]:
        """Ask for the scopes: whether that worked, and what to show."""
        try:
            with self.get_conn() as store:
                count = sum(1 for _ in store.list_scopes())
        except (Problem, AirflowFailException) as error:
            return False, str(error)
        return True, f"{self.uri} has {count} scopes"

    def _flag(self, name: str, *, default: bool) -> bool:
        value = self._connection.extra_dejson.get(name)
        return default if value in {None, ""} else flag(f"{name} of connection {self.pravega_conn_id!r}", value)
