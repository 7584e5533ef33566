"""Whatever the names and tags of users' streams are, a sweep touches none of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamvault import sweep_scope
from streamvault.importer.target import origin_tag
from streamvault.manager.ephemeral import EphemeralTag
from streamvault.streamstore.ledger import LedgerNameTaken
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.own import (
    CONSUMER_LEASE,
    EPHEMERAL,
    EPHEMERAL_LEASE,
    FROM,
    OWN,
    SOURCE_SEAL,
    SPARK_LEDGER,
    SWEEP_NOTES,
    SWEPT,
    TARGET_LEASE,
    TARGET_LEDGER,
    TARGET_PROBE,
    UNFINISHED,
    stream_beside,
)
from testkit.small_archives import NAME, Vault
from testkit.streams import append_events
from tests.unit.manager.leftovers import OWNER, TARGET, killed_ephemeral, killed_import

STAGING = "staging"
PREFIXES = (TARGET_LEASE, CONSUMER_LEASE, EPHEMERAL_LEASE, TARGET_LEDGER, SOURCE_SEAL, SPARK_LEDGER, TARGET_PROBE)
SCOPES = itertools.count()


@dataclass(frozen=True)
class Foreign:
    """A user's stream.

    Attributes:
        name: what it is called; ``PREFIX`` and ``NAME`` for what is beside another stream.
        tags: its tags; the numbers of `tags_for`.
        segments: how many it has.
        sealed: whether it is sealed.
    """

    name: tuple[str, ...]
    tags: frozenset[int]
    segments: int
    sealed: bool


NAMES = st.one_of(
    st.tuples(st.sampled_from(("orders", "target", SWEEP_NOTES))),
    st.tuples(st.sampled_from(PREFIXES), st.sampled_from((STAGING, "target", "orders", "none"))),
)
FOREIGN = st.builds(Foreign, NAMES, st.frozensets(st.integers(0, 11)), st.integers(1, 2), st.booleans())


def tags_for(name: StreamName, archive: str, import_tags: Sequence[str]) -> list[str]:
    """Every tag that a sweep looks at, also as it is on leftovers."""
    other = replace(name, stream="orders")
    return [
        OWN,
        SWEPT,
        str(EphemeralTag(OWNER, 12.0)),
        f"{EPHEMERAL}{OWNER}",
        next(tag for tag in import_tags if tag.startswith(UNFINISHED)),
        next(tag for tag in import_tags if tag.startswith(FROM)),
        origin_tag(name, archive),
        f"{UNFINISHED}copy.0123",
        f"of:{replace(name, stream='none')}",
        f"of:{other}",
        "streamvault-queue",
        "mine",
    ]


@pytest.mark.usefixtures("all_dead")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(streams=st.lists(FOREIGN, min_size=1, max_size=4, unique_by=lambda one: one.name))
@example(streams=[Foreign((TARGET_LEASE, "none"), frozenset({0}), 1, sealed=True)])
@example(streams=[Foreign((SWEEP_NOTES,), frozenset({0}), 1, sealed=True)])
@example(streams=[Foreign((SWEEP_NOTES,), frozenset({0}), 1, sealed=False)])
def test_sweep_touches_no_users_stream(vault: Vault, streams: list[Foreign]) -> None:
    scope = f"s{next(SCOPES)}"
    place = replace(NAME, scope=scope)
    killed_ephemeral(vault, replace(place, stream=STAGING))
    with vault.store as store:
        import_tags = _import_tags(vault)
        made = {}
        for foreign in streams:
            if len(foreign.name) == 1:
                name = replace(place, stream=foreign.name[0])
            else:
                name = stream_beside(replace(place, stream=foreign.name[1]), foreign.name[0])
            if store.exists(name):
                continue
            every = tags_for(name, vault.archive, import_tags)
            tags = tuple(every[number] for number in sorted(foreign.tags))
            store.create_stream(name, StreamConfiguration(Scaling(min_segments=foreign.segments), tags=tags))
            for segment in store.describe(name).tail.offsets:
                append_events(store, name, segment, [b"a user's event"])
            if foreign.sealed:
                store.seal(name)
            made[name] = store.describe(name)
        with suppress(LedgerNameTaken):  # one of them has the name of the sweeps' own ledger
            sweep_scope(f"{store.uri}/{scope}/", older_than=0.0)
        assert {name: store.describe(name) for name in made} == made


def _import_tags(vault: Vault) -> tuple[str, ...]:
    with vault.store as store:
        if not store.exists(TARGET):
            killed_import(vault)
        return store.describe(TARGET).configuration.tags
