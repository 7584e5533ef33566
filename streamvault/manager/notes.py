"""What sweeps have seen of a scope's leftovers, and since when they have not changed.

Nothing in a leftover says how old it is: heartbeats have no time, and another machine's clock may be wrong. So each
sweep notes in a ledger what it sees, and a later one finds out how long nothing has changed. The times are those of
sweeps' own clocks. A clock that jumps makes the grace of `--older-than` shorter or longer; that a leftover may be
deleted at all is shown otherwise.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress

from streamvault.streamstore.model import StreamDescription, StreamName
from streamvault.streamstore.own import SWEEP_NOTES
from streamvault.streamstore.services.ledger import Ledger, LedgerConflict
from streamvault.streamstore.store import StreamStore

MOST = 4000
"""How many leftovers are noted; others wait until some of these are gone."""


class SweepNotes:
    """The notes of a scope.

    Args:
        store: its store.
        scope: the scope.
        writable: whether this sweep notes what it sees; a dry run only reads.

    Raises:
        LedgerNameTaken: another stream has the name of the notes.
    """

    def __init__(self, store: StreamStore, scope: str, *, writable: bool) -> None:
        self.name = StreamName(scope, SWEEP_NOTES)
        self._ledger = Ledger(store, self.name, self.name)
        self._writable = writable
        known = (self._ledger.newest(create=False) or {}).get("seen", {})
        self._known: dict[str, tuple[str, float]] = {name: (state, since) for name, (state, since) in known.items()}
        self._seen: dict[str, tuple[str, float]] = {}

    def unchanged_seconds(self, *seen: StreamDescription) -> float:
        """Note streams that belong together; return for how long sweeps have seen them like this (seconds)."""
        now, name, state = time.time(), seen[0].name.stream, _state(seen)
        known, since = self._known.get(name, ("", now))
        if known != state or since > now:
            since = now
        if len(self._seen) < MOST:
            self._seen[name] = (state, since)
        return now - since

    def save(self, kept: set[StreamName]) -> None:
        """Replace the notes by what this sweep has seen and not deleted. Those of another sweep hold."""
        seen = {name: noted for name, noted in self._seen.items() if StreamName(self.name.scope, name) in kept}
        if not self._writable or (seen and seen == self._known):
            return
        with suppress(LedgerConflict):
            if seen:
                self._ledger.newest()
                self._ledger.record({"seen": seen})
            else:
                self._ledger.retire()


def _state(seen: tuple[StreamDescription, ...]) -> str:
    """A digest of what changes if anybody works on streams."""
    state = [
        [str(one.name), [str(each) for each in one.tail.offsets.items()], sorted(one.configuration.tags), one.sealed]
        for one in seen
    ]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:20]
