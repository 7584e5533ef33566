"""Reads and validates the list of streams to replicate, and converts it to operator arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from airflow.sdk.exceptions import AirflowFailException
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streamvault.airflow.declared import Declared, is_duration, read_declared
from streamvault.airflow.flags import Flag
from streamvault.airflow.pravega import PravegaHook

Duration = Annotated[str, AfterValidator(is_duration)]


class Options(Declared):
    """Options of a replication, as for `ReplicateStreamOperator`; an entry's own override those of the list."""

    offsets: Literal["keep", "shift"] | None = None
    filler_limit: str | None = None
    numbers: Literal["keep", "map"] | None = None
    window: str | None = None
    keep_head: Flag | None = None
    retry_for: Duration | None = None
    most_lag: Duration | None = None
    pravega_conn_id: str | None = None
    target_conn_id: str | None = None
    aws_conn_id: str | None = None


class Entry(Options):
    """A pair of streams, or all streams of a scope.

    Attributes:
        source: the stream to replicate: ``SCOPE/STREAM``, ``STREAM`` in the connection's scope, a URI, or an archive.
        stream: the replica: ``SCOPE/STREAM``, ``STREAM`` or a URI; None: a name as the source's.
        scope: a scope of the source's cluster.
        target_scope: scope of the replicas, which have the names of their sources; None: `scope`.
    """

    source: str | None = None
    stream: str | None = None
    scope: str | None = None
    target_scope: str | None = None

    @model_validator(mode="after")
    def _source_or_scope(self) -> Self:
        if (self.source is None) == (self.scope is None):
            raise ValueError("give either source or scope")
        if self.source is None and self.stream is not None:
            raise ValueError("stream requires source; for a scope, give target_scope")
        if self.scope is None and self.target_scope is not None:
            raise ValueError("target_scope requires scope; for a source, give stream")
        if self.source is not None and "://" in self.source and self.stream is None:
            raise ValueError("stream is missing: the source is a URI")
        return self


def _by_name(value: Any) -> Any:
    return {"source": value} if isinstance(value, str) else value


class Replications(Options):
    """The list: ``{"target_conn_id": "standby", "streams": ["shop/orders", {"scope": "billing"}]}``."""

    streams: Annotated[tuple[Annotated[Entry, BeforeValidator(_by_name)], ...], Field(min_length=1)]

    def arguments(self, list_streams: Callable[[str, str], list[str]]) -> list[dict[str, Any]]:
        """Return the operator's arguments for each pair.

        Args:
            list_streams: (scope, connection) → names of the scope's streams.

        Raises:
            AirflowFailException: two pairs have the same replica, or a pair has the same stream twice.
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for entry in self.streams:
            chosen = {**self.given(Options), **entry.given(Options)}
            connection = str(chosen.get("pravega_conn_id") or PravegaHook.default_conn_name)
            target = str(chosen.get("target_conn_id") or connection)
            for source, stream in _pairs(entry, connection, list_streams).items():
                if source == stream and (connection == target or "://" in source):
                    raise AirflowFailException(
                        f"replication of {source}: source and replica are the same stream. Give target_conn_id, or "
                        "another name."
                    )
                key = ("" if "://" in stream else target, stream)
                if key in found:
                    raise AirflowFailException(f"replication of {source}: its replica {stream} is listed twice")
                found[key] = {"source": source, "stream": stream, **chosen}
        return list(found.values())


def _pairs(entry: Entry, connection: str, list_streams: Callable[[str, str], list[str]]) -> Mapping[str, str]:
    """Return source → replica."""
    if entry.source is not None:
        return {entry.source: entry.stream or entry.source}
    scope = str(entry.scope)
    return {f"{scope}/{name}": f"{entry.target_scope or scope}/{name}" for name in list_streams(scope, connection)}


def read_replications(declared: Any, file: str | None = None) -> Replications:
    """Read the list from a value, or from a JSON file on the worker.

    Raises:
        AirflowFailException: there is no list, or it is not valid; the message says where.
    """
    todo = "Set the variable streamvault_standby, the parameter standby, or STREAMVAULT_STANDBY_FILE."
    return read_declared(Replications, "replications", declared, file, todo=todo)
