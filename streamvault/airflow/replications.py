"""The list of streams to replicate, and the operator's arguments that follow from it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streamvault.airflow.lists import ListStreams, SparkOptions, StreamList, stands_for_streams
from streamvault.airflow.pravega import PravegaHook
from streamvault.common.times import parse_duration
from streamvault.mirrors.options import ReplicateOptions
from streamvault.scopes.entries import with_options


def _duration(text: str) -> str:
    parse_duration(text)
    return text


@with_options(ReplicateOptions, omitted=("follow", "every", "idle", "lasting"))
class ReplicationOptions(SparkOptions):
    """Options of a replication, as for `ReplicateStreamOperator`; an entry's own override those of the list."""

    most_lag: Annotated[str, AfterValidator(_duration)] | None = None
    pravega_conn_id: str | None = None
    target_conn_id: str | None = None
    aws_conn_id: str | None = None


class ReplicationEntry(ReplicationOptions):
    """A pair of streams, or all streams of a scope.

    Attributes:
        source: the stream to replicate: ``SCOPE/STREAM``, ``STREAM`` in the connection's scope, a URI, or an archive;
            with ``SCOPE/`` all streams of a scope, with a ``*`` those that match.
        stream: the replica: ``SCOPE/STREAM``, ``STREAM`` or a URI; of several, ``SCOPE/``; None: the source's name.
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
        if self.source is not None and self.stream is not None:
            several = stands_for_streams(self.source)
            if several != stands_for_streams(self.stream) or "*" in self.stream:
                raise ValueError(
                    f"stream must be {'a scope, with / at its end' if several else 'a stream'}, as the source"
                )
        return self


def _by_name(value: Any) -> Any:
    return {"source": value} if isinstance(value, str) else value


class Replications(ReplicationOptions, StreamList):
    """The list: ``{"target_conn_id": "standby", "streams": ["shop/orders", {"scope": "billing"}]}``."""

    parameter: ClassVar = "standby"
    what: ClassVar = "replications"
    example: ClassVar = {"target_conn_id": "pravega_standby", "streams": ["shop/orders", {"scope": "billing"}]}

    streams: Annotated[tuple[Annotated[ReplicationEntry, BeforeValidator(_by_name)], ...], Field(min_length=1)]

    def arguments(self, list_streams: ListStreams) -> list[dict[str, Any]]:
        """Return the operator's arguments for each pair.

        Args:
            list_streams: (scope, connection) → names of the scope's streams.

        Raises:
            AirflowFailException: two pairs have the same replica, a pair has the same stream twice, or nothing matches
                a pattern.
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for number, entry in enumerate(self.streams):
            chosen = {**self.given(ReplicationOptions), **entry.given(ReplicationOptions)}
            connection = str(chosen.get("pravega_conn_id") or PravegaHook.default_conn_name)
            target = str(chosen.get("target_conn_id") or connection)
            scope = f"{entry.scope}/" if entry.source is None else entry.source
            to = entry.stream or (f"{entry.target_scope}/" if entry.target_scope else scope)
            for source in self.members(number, scope, connection, list_streams):
                stream = source if to == scope else to
                if stream.endswith("/"):
                    stream += source.rpartition("/")[2]
                if source == stream and (connection == target or "://" in source):
                    raise self.problem(
                        number,
                        f"replication of {source}: source and replica are the same stream. Give target_conn_id, or "
                        "another name.",
                    )
                key = ("" if "://" in stream else target, stream)
                if key in found:
                    raise self.problem(number, f"replication of {source}: its replica {stream} is listed twice")
                found[key] = {"source": source, "stream": stream, **chosen}
        return list(found.values())
