"""What Streamvault does in a scope now: who holds leases, what waits in queues, how far replicas are. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeVar

from streamvault.common.at_once import each_of
from streamvault.common.errors import Problem
from streamvault.inspect.reports import LeaseStatus, QueueStatus, ReplicaStatus
from streamvault.manager.manager import role_of
from streamvault.manager.sweep import subjects_of
from streamvault.replication.replica import Replica
from streamvault.requests.show import show_queue
from streamvault.sources.source import bytes_after
from streamvault.sources.sources import open_source
from streamvault.streamstore.lease import PATIENCE_SECONDS, find_beating, is_dead, last_heartbeat
from streamvault.streamstore.model import StreamCut, StreamDescription, StreamName
from streamvault.streamstore.own import (
    APPEND_LEASE,
    CONSUMER_LEASE,
    EPHEMERAL_LEASE,
    FAILED_SUFFIX,
    REPLICA_OF,
    TARGET_LEASE,
    is_listed,
    stream_beside,
    tag_of,
)
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import OpenStream, StoreAddress

PURPOSES = {
    TARGET_LEASE: "import or mirror",
    CONSUMER_LEASE: "queue",
    EPHEMERAL_LEASE: "ephemeral stream",
    APPEND_LEASE: "append",
}
"""Prefix of a lease's name → what its holder does."""

R = TypeVar("R")


class Servers:
    """Servers; one that has not answered is not asked again, as each call would wait for it for half a minute."""

    def __init__(self) -> None:
        self._silent: dict[str, Problem] = {}

    def ask(self, server: str, question: Callable[[], R]) -> R:
        """Ask a server something.

        Args:
            server: its URI.
            question: asks it, and returns the answer.

        Raises:
            Problem: as the question; also if the server has not answered another one.
        """
        if server in self._silent:
            raise copy(self._silent[server])
        try:
            return question()
        except Problem as problem:
            if problem.transient:
                self._silent[server] = problem
            raise


@dataclass
class ScopeState:
    """A scope at one moment.

    Attributes:
        names: all streams that are asked for, of every kind.
        problem: why its leases cannot be read; empty if they can.
        streams: its users' streams that are there to stay.
        unreadable: the streams of which it cannot be told what they are → why.
        leases: the leases that are held, also by a process that is dead.
        queues: the queues, each with that of its failed requests.
        replicas: the replicas, also those that were promoted.
    """

    names: list[StreamName] = field(default_factory=list)
    problem: str = ""
    streams: list[OpenStream] = field(default_factory=list)
    unreadable: dict[StreamName, Problem] = field(default_factory=dict)
    leases: list[LeaseStatus] = field(default_factory=list)
    queues: list[QueueStatus] = field(default_factory=list)
    replicas: list[ReplicaStatus] = field(default_factory=list)


def look_at_scope(
    store: StreamStore,
    address: StoreAddress,
    scope: str,
    servers: Servers,
    matches: Callable[[str], bool] | None = None,
) -> ScopeState:
    """Look at the streams of a scope.

    Args:
        store: the store.
        address: its address.
        scope: the scope's name.
        servers: those that were asked so far.
        matches: whether a stream is asked for, given its name: only these, and the leases beside them; None for all.

    Raises:
        NoSuchScope: the scope does not exist.
        Problem: it cannot be listed. What cannot be read in it has its `problem`.
    """
    every = servers.ask(store.uri, lambda: list(store.list_streams(scope, own=True)))
    names = [name for name in every if matches is None or matches(name.stream)]
    subjects = subjects_of(iter(names), set(every))

    def find(name: StreamName) -> StreamDescription | Problem | None:
        try:
            return servers.ask(store.uri, OpenStream(store, address, name).find)
        except Problem as problem:
            return problem

    looked_at = list(dict.fromkeys([*names, *subjects]))
    found = dict(zip(looked_at, each_of(find, looked_at), strict=True))
    described = {name: one for name, one in found.items() if isinstance(one, StreamDescription)}
    roles = {name: role_of(one) for name, one in described.items()}
    wanted = [described[name] for name in names if name in described]
    state = ScopeState(
        names, streams=[OpenStream(store, address, one.name) for one in wanted if is_listed(one.configuration)]
    )
    state.unreadable = {name: one for name in names if isinstance(one := found[name], Problem)}
    leases = [name for name, role in roles.items() if role == "lease" and (matches is None or name in subjects)]
    try:
        state.leases.extend(servers.ask(store.uri, lambda: list(_leases(store, leases, subjects))))
    except Problem as problem:
        state.problem = f"the leases cannot be read: {problem}"
    queues = [one.name for one in wanted if roles[one.name] == "queue" and not one.name.stream.endswith(FAILED_SUFFIX)]
    workers = {one.lease: one.host for one in state.leases if one.alive}
    state.queues.extend(each_of(lambda name: _queue(store, name, workers, servers), queues))
    replicas = [one for one in wanted if roles[one.name] == "replica" or tag_of(one.configuration, REPLICA_OF)]
    state.replicas.extend(each_of(lambda one: _replica(OpenStream(store, address, one.name), one, servers), replicas))
    return state


def _leases(
    store: StreamStore, names: list[StreamName], subjects: dict[StreamName, StreamName]
) -> Iterator[LeaseStatus]:
    """Yield the leases that are held; a silent one is watched for as long as another process would watch it."""
    found = dict(zip(names, each_of(lambda name: last_heartbeat(store, name), names), strict=True))
    held = {name: record for name, record in found.items() if record is not None}
    beating = find_beating(store, [name for name in held if not is_dead(held[name])], PATIENCE_SECONDS)
    for name, record in held.items():
        if is_dead(record) or name in beating:
            subject = subjects.get(name)
            yield LeaseStatus(
                lease=f"{store.uri}/{name}",
                stream=f"{store.uri}/{subject}" if subject else "",
                purpose=next((what for prefix, what in PURPOSES.items() if name.stream.startswith(prefix)), ""),
                host=record.host.partition(" ")[0],
                pid=record.pid,
                alive=beating.get(name, False),
            )


def _queue(store: StreamStore, name: StreamName, workers: dict[str, str], servers: Servers) -> QueueStatus:
    uri = f"{store.uri}/{name}"
    worker = workers.get(f"{store.uri}/{stream_beside(name, CONSUMER_LEASE)}", "")
    try:
        found = servers.ask(store.uri, lambda: show_queue(uri))
    except Problem as problem:
        return QueueStatus(queue=uri, is_readable=False, worker=worker, problem=str(problem))
    return QueueStatus(
        queue=uri,
        waiting=found.waiting,
        failed=found.failed,
        outstanding_bytes=found.outstanding_bytes,
        failed_bytes=found.failed_bytes,
        oldest_age=found.first_waiting[0].age_seconds if found.first_waiting else None,
        worker=worker,
        problem=f"there are foreign bytes at {found.foreign[0].offset}" if found.foreign else "",
    )


def _replica(stream: OpenStream, described: StreamDescription, servers: Servers) -> ReplicaStatus:
    if source := tag_of(described.configuration, REPLICA_OF):
        return ReplicaStatus(replica=stream.uri, source=source, state="promoted")
    try:
        record = servers.ask(stream.store.uri, Replica(stream).read)
    except Problem as problem:
        return ReplicaStatus(replica=stream.uri, problem=str(problem))
    if record is None:
        return ReplicaStatus(replica=stream.uri, problem="its ledger is gone")
    found = ReplicaStatus(
        replica=stream.uri,
        source=record.source,
        state="promoting" if record.is_promoting else "replica",
        reached=record.taken_text,
    )
    if record.is_promoting:  # it gets nothing any more
        return found

    def lag() -> int:
        with ExitStack() as stack:
            look = open_source(record.source, stack).look()
            return bytes_after(look, StreamCut.from_json(record.tail or record.head, look.described.name))

    try:
        return replace(found, lag_bytes=servers.ask(record.source.rsplit("/", 2)[0], lag))
    except Problem as problem:
        return replace(found, problem=f"the source cannot be read, so the lag is unknown: {problem}")
