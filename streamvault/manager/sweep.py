"""The *sweep* command: deletes what killed runs have left in a scope."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from streamvault.common.at_once import each_of
from streamvault.common.errors import Problem, Usage
from streamvault.common.times import duration_text
from streamvault.common.verb import verb
from streamvault.importer.ownership import lease_stream
from streamvault.joining.room import give_back
from streamvault.manager.leftovers import Leftovers, MustStay, Removal, subjects_of
from streamvault.manager.notes import SweepNotes
from streamvault.manager.options import SweepOptions
from streamvault.manager.reports import StreamRole, SweepEntry, SweepReport
from streamvault.manager.roles import role_of
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import EPHEMERAL, UNFINISHED, is_listed, tag_of
from streamvault.streamstore.scale_note import ScaleNote
from streamvault.streamstore.services.lease import LeaseHeld
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress, parse_scope

NEVER: frozenset[StreamRole] = frozenset({"stream", "queue", "tombstone"})
"""What no sweep looks at: users' streams, queues, and what `move` leaves for readers to find."""


@verb(SweepOptions)
def sweep_scope(scope: str, options: SweepOptions) -> SweepReport:
    """Delete what killed runs have left in a scope, as far as nothing can be lost with it.

    Deleted are ephemeral streams that have expired; leases that nobody holds and nothing needs; ledgers of streams that
    are gone; and unfinished targets of imports, if they are empty or if their archive still has all that they hold.
    Users' streams, queues, replicas and unfinished copies with data are never deleted. A stream that was scaled for an
    append that was killed gets its key ranges and its policy back.

    Args:
        scope: the scope, ``pravega://HOST:PORT/SCOPE/`` or ``local:///FOLDER/SCOPE/``.
        older_than: delete leases, ledgers and targets only if sweeps have found them unchanged for so long (seconds);
            0: at once. Ephemeral streams have an expiry of their own.
        dry_run: delete and note nothing; report what would be deleted.

    Raises:
        Usage: the URI is that of a store.
        NoSuchScope: the scope does not exist.
    """
    address, name = parse_scope(scope)
    if not name:
        raise Usage("a sweep is of one scope", where=scope, todo="Name it: the same URI followed by /SCOPE/.")
    with address.open() as store:
        sweep = _Sweep(store, address, name, options)
        scaled, warnings = sweep.give_back()
        return SweepReport(
            scope=f"{address.uri}/{name}/",
            leftovers=sweep.run(),
            scaled=scaled,
            warnings=warnings,
            dry_run=options.dry_run,
        )


class _Sweep:
    def __init__(self, store: StreamStore, address: StoreAddress, scope: str, options: SweepOptions) -> None:
        self._store = store
        self._options = options
        self._open: Callable[[StreamName], OpenStream] = partial(OpenStream, store, address)
        self._list = partial(store.list_streams, scope, own=True)
        found = [one for one in each_of(lambda name: self._open(name).find(), self._list()) if one is not None]
        own = {one.name for one in found if not is_listed(one.configuration)}
        self._scaled = [one.name for one in found if ScaleNote.of(one.configuration) is not None]
        self._notes = SweepNotes(store, scope, writable=not options.dry_run)
        self._own = sorted(own - {self._notes.name})
        self._leftovers = Leftovers(self._open, self._list, subjects_of(self._list(), own))

    def give_back(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Give streams what they had before an append scaled them that was killed; return their URIs, and warnings."""
        given, warnings = [], []
        for stream in map(self._open, self._scaled):
            try:
                warning = "" if self._options.dry_run else give_back(stream)
            except LeaseHeld:
                continue
            except Problem as problem:
                warnings.append(f"{stream.uri} does not get back what it had before an append: {problem.what}")
                continue
            given.append(stream.uri)
            warnings += [f"{stream.uri}: {warning}"] if warning else []
        return tuple(given), tuple(warnings)

    def run(self) -> tuple[SweepEntry, ...]:
        # targets take their leases along, and a ledger is deleted under its target's lease; so leases come last
        targets: tuple[StreamRole, ...] = ("ephemeral", "unfinished", "replica", "swept")
        passes: tuple[tuple[StreamRole, ...], ...] = (targets, ("ledger",), ())
        done: dict[StreamName, SweepEntry] = {}
        for roles in passes:
            swept = each_of(partial(self._sweep, roles), [one for one in self._own if one not in done])
            done |= {name: entry for name, entry in swept if entry is not None}
            if self._options.dry_run:
                self._leftovers.gone.update(name for name, entry in done.items() if entry.swept)
        self._notes.save({name for name, entry in done.items() if not entry.swept})
        return tuple(entry for _, entry in sorted(done.items()))

    def _sweep(self, roles: tuple[StreamRole, ...], name: StreamName) -> tuple[StreamName, SweepEntry | None]:
        """Sweep a stream if it has one of the roles; all roles if none is given."""
        try:
            described = self._store.describe(name)
        except (NoSuchStream, NoSuchScope):
            return name, None
        role = role_of(described)
        if role in NEVER or (roles and role not in roles):
            return name, None
        entry = partial(SweepEntry, stream=self._open(name).uri, role=role)
        try:
            removal = self._examine(role, described)
            self._check_age(role, described)
            if not self._options.dry_run:
                removal()
        except (NoSuchStream, NoSuchScope):
            return name, None  # somebody else has deleted it
        except Problem as problem:
            return name, entry(swept=False, reason=problem.what)
        return name, entry(swept=True)

    def _examine(self, role: StreamRole, described: StreamDescription) -> Removal:
        leftovers = self._leftovers
        if role == "swept":
            role = "ephemeral" if tag_of(described.configuration, EPHEMERAL) else "unfinished"
        if role == "unfinished" and not tag_of(described.configuration, UNFINISHED):
            return leftovers.probe(described)
        if role == "replica":
            raise MustStay("a replica may have events that its source has lost; promote it, or delete it yourself")
        examine = {
            "ephemeral": leftovers.ephemeral,
            "unfinished": leftovers.target,
            "lease": leftovers.lease,
            "ledger": leftovers.ledger,
            "internal": leftovers.probe,
        }
        return examine[role](described)

    def _check_age(self, role: StreamRole, described: StreamDescription) -> None:
        if role in {"ephemeral", "swept"}:
            return  # has an expiry of its own, or was old enough before
        lease = self._open(lease_stream(described.name)).find() if role == "unfinished" else None
        unchanged = self._notes.unchanged_seconds(described, *([lease] if lease is not None else []))
        if unchanged < self._options.older_than:
            left = duration_text(float(round(self._options.older_than - unchanged)))
            raise MustStay(f"another sweep may delete it, in {left} or later, if it does not change")
