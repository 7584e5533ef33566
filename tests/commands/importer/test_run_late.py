"""An import that is paused before any change to its target, while another run of it ends and users use the stream.

The late run may succeed or fail; what the other run and the users left has to stay as it is. It is tried with a lease
that tells the late run that it is late, and with one that does not: nothing may rest on it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamvault import import_stream
from streamvault.common.errors import Conflict, Failed, Problem
from streamvault.importer import run as importing
from streamvault.importer import target as leases
from streamvault.streamstore import lease
from streamvault.streamstore.errors import OffsetConflict, StoreBusy
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import (
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from testkit.scenes import BACK, killed_at_its_end
from testkit.small_archives import NAME, Vault
from testkit.streams import append_events, digest_of

BY_RATE = Scaling(ScaleKind.BY_EVENTS, target=10, factor=2, min_segments=1)
CHANGES = ("create_stream", "delete", "scale", "update_stream", "truncate", "seal")
Users = Callable[[LocalStore], None]


class LostAppender:
    """A lease's appender after another process has taken the lease over."""

    def __init__(self, *, tells: bool) -> None:
        self._tells = tells

    def append(self, _: bytes) -> None:
        if self._tells:
            raise OffsetConflict("another writer appended to the segment")

    def flush(self) -> int:
        return 0

    def close(self) -> None:
        pass


class Pause:
    """Pauses before one of the changes to the target, in the thread that makes it, and lets others run meanwhile."""

    def __init__(self, at: int, others: Callable[[Pause], None]) -> None:
        self.at = at
        self.others = others
        self.seen = 0
        self.leases: list[Lease] = []
        self.left: Any = None

    def lose_lease(self, *, tells: bool) -> None:
        late = self.leases[0]
        late._appender.close()
        late._appender = LostAppender(tells=tells)  # type: ignore[assignment]

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in CHANGES:
            patch.setattr(LocalStore, name, self._stopping(getattr(LocalStore, name)))
        take = leases.take_lease

        def taken(*arguments: Any) -> Lease:
            self.leases.append(take(*arguments))
            return self.leases[-1]

        patch.setattr(leases, "take_lease", taken)

    def _stopping(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(store: LocalStore, what: Any, *arguments: Any, **options: Any) -> Any:
            if BACK in {what, getattr(what, "stream", None)} and self.seen < self.at:
                self.seen += 1
                if self.seen == self.at:
                    self.others(self)
            return real(store, what, *arguments, **options)

        return call


def a_source(store: LocalStore, *, sealed: bool) -> None:
    """Segment numbers from 4 on, fewer segments than at first, and a head inside a segment."""
    store.create_scope(NAME.scope)
    store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=4)))
    store.delete(NAME)
    store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=3), tags=("source",)))
    left, middle, right = sorted(store.describe(NAME).tail.offsets)
    for segment in (left, middle, right):
        append_events(store, NAME, segment, [b"first", b"second" * 20])
    ranges = store.describe(NAME).epochs[0].segments
    store.update_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=2), tags=("source",)))
    epoch = store.scale(NAME, [left, middle], [KeyRange(ranges[left].low, ranges[middle].high)])
    joined = max(epoch.segments)
    append_events(store, NAME, joined, [b"third"])
    split = [KeyRange(0.0, 0.25), KeyRange(0.25, epoch.segments[joined].high)]
    last = store.scale(NAME, [joined], split)
    for segment in last.segments:
        append_events(store, NAME, segment, [b"last"])
    store.truncate(StreamCut(NAME, {left: 13, middle: 0, right: 13}))
    if sealed:
        store.seal(NAME)


def configured(store: LocalStore) -> None:
    """A user writes to the restored stream and sets policies and tags."""
    described = store.describe(BACK)
    if not described.sealed:
        for segment in described.tail.offsets:
            append_events(store, BACK, segment, [b"the user's"])
        mine = replace(described.configuration, tags=("mine",), retention=Retention(RetentionKind.SIZE, 1, 2))
        store.update_stream(BACK, mine)


def made_again(store: LocalStore) -> None:
    """A user deletes the restored stream and creates another one."""
    store.delete(BACK)
    store.create_stream(BACK, StreamConfiguration(scaling=Scaling(min_segments=3), tags=("mine",)))
    for segment in store.describe(BACK).tail.offsets:
        append_events(store, BACK, segment, [b"the user's"])


def state(folder: Path) -> tuple[StreamDescription, tuple[int, str]]:
    with LocalStore(folder) as store:
        return store.describe(BACK), digest_of(store, BACK)


@pytest.mark.parametrize(
    ("users", "sealed", "tells"),
    [
        (configured, False, True),
        (configured, False, False),
        (configured, True, False),
        (made_again, False, False),
        (made_again, True, False),
    ],
)
def test_late_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: Users, sealed: bool, tells: bool
) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 3600.0)
    monkeypatch.setattr(lease, "PATIENCE_SECONDS", 0.02)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.01)
    vault = Vault(tmp_path)
    with vault.store as store:
        a_source(store, sealed=sealed)
    vault.export("chunks")

    def restore(folder: Path) -> None:
        import_stream(vault.archive, f"local://{folder}/{BACK}", master="inline")

    def meanwhile(folder: Path, pause: Pause) -> None:
        pause.lose_lease(tells=tells)
        while True:
            # until the late run's tasks, which are not paused, have released their segments
            with contextlib.suppress(StoreBusy):
                restore(folder)
                break
            time.sleep(0.01)
        with LocalStore(folder) as store:
            users(store)
        pause.left = state(folder)

    # two creations and a deletion, two scales around which the policy changes twice, head, policies, seal
    for at in range(1, 11 + sealed):
        folder = tmp_path / str(at)
        pause = Pause(at, partial(meanwhile, folder))
        with pytest.MonkeyPatch.context() as patch:
            pause.install(patch)
            if at < 10 + sealed:
                with pytest.raises(LeaseHeld) if tells else contextlib.suppress(Problem):
                    restore(folder)
                assert state(folder) == pause.left, f"paused before change {at}"
            else:
                restore(folder)
                assert pause.left is None


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """An archive of a recreated stream, whose scales go below its initial number of segments."""
    vault = Vault(tmp_path)
    with vault.store as store:
        a_source(store, sealed=False)
    vault.export("chunks")
    return vault


def test_import_keeps_the_segment_numbers_of_a_recreated_source(vault: Vault) -> None:
    import_stream(vault.archive, vault.uri(BACK), master="inline")
    source, back = vault.described, vault.describe(BACK)
    assert back.epochs == source.epochs
    assert (back.head.offsets, back.tail.offsets) == (source.head.offsets, source.tail.offsets)


def test_creation_whose_answer_was_lost_is_recognized(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalStore.create_stream

    def answer_lost(store: LocalStore, name: StreamName, configuration: StreamConfiguration) -> None:
        """The request is sent again, as by a client that lost its connection."""
        real(store, name, configuration)
        if name == BACK:
            real(store, name, configuration)

    monkeypatch.setattr(LocalStore, "create_stream", answer_lost)
    report = import_stream(vault.archive, vault.uri(BACK), master="inline")
    assert not report.resumed


def scale_by_rate(vault: Vault) -> None:
    """Give the source a policy by rate, and archive it."""
    described = vault.described
    vault.update_stream(NAME, replace(described.configuration, scaling=BY_RATE))
    vault.add(b"more")
    vault.export("chunks")


def policies_on_the_way(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> set[ScaleKind]:
    """The kinds of policy that the target has while an import fills it; at the end it has the source's."""
    seen = set()
    fill = importing.fill_segment

    def look(task: Any) -> Any:
        seen.add(vault.configuration(BACK).scaling.kind)
        return fill(task)

    monkeypatch.setattr(importing, "fill_segment", look)
    import_stream(vault.archive, vault.uri(BACK), master="inline")
    assert vault.configuration(BACK).scaling == BY_RATE
    return seen


def test_scaling_policy_is_fixed_until_the_import_ends(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    scale_by_rate(vault)
    assert policies_on_the_way(vault, monkeypatch) == {ScaleKind.FIXED}


def test_resumed_import_fixes_the_scaling_policy_again(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    scale_by_rate(vault)
    real = LocalStore.scale

    def killed(*arguments: Any) -> Any:
        real(*arguments)
        raise Failed("stopped for a test")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "scale", killed)
        with pytest.raises(Failed):
            import_stream(vault.archive, vault.uri(BACK), master="inline")
    assert vault.configuration(BACK).scaling.kind is ScaleKind.BY_EVENTS
    assert policies_on_the_way(vault, monkeypatch) == {ScaleKind.FIXED}


def test_configuration_changed_after_a_kill_at_the_end_stays(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed_at_its_end(monkeypatch):
        import_stream(vault.archive, vault.uri(BACK), master="inline")
    with vault.store as store:
        configured(store)
        before = store.describe(BACK)
    assert import_stream(vault.archive, vault.uri(BACK), master="inline").resumed
    assert vault.describe(BACK) == before
    assert vault.listed(own=True) == [BACK, NAME]


def test_target_written_to_before_its_seal_is_not_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault(tmp_path)
    with vault.store as store:
        a_source(store, sealed=True)
    vault.export("chunks")
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "seal", lambda *_, **__: None)
        with killed_at_its_end(monkeypatch):
            import_stream(vault.archive, vault.uri(BACK), master="inline")
    with vault.store as store:
        configured(store)
        before = store.describe(BACK)
    with pytest.raises(Conflict, match="another process wrote to the restored stream before it was sealed"):
        import_stream(vault.archive, vault.uri(BACK), master="inline")
    assert vault.describe(BACK) == before


def test_target_deleted_after_a_kill_at_the_end_is_a_conflict(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed_at_its_end(monkeypatch):
        import_stream(vault.archive, vault.uri(BACK), master="inline")
    vault.delete(BACK)
    with pytest.raises(Conflict, match="the name was used before"):
        import_stream(vault.archive, vault.uri(BACK), master="inline")


def test_run_that_loses_its_lease_replays_no_scale(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the lease whenever a segment is full, or a second has passed."""

    class Jobs:
        idle = False

        def __init__(self, *_: object) -> None: ...
        def add(self, _: object) -> None: ...
        def close(self) -> None: ...

        def next_result(self, _: float) -> None:
            assert not lost, "it goes on"
            lost.append(True)

    def check(self: Lease) -> None:
        if lost:
            raise LeaseHeld("another import is restoring into this target")

    lost: list[bool] = []
    monkeypatch.setattr("streamvault.importer.run.FillJobs", Jobs)
    monkeypatch.setattr(Lease, "check", check)
    with pytest.raises(LeaseHeld):
        import_stream(vault.archive, vault.uri(BACK), master="inline")
