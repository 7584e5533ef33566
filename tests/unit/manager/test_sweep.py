"""A sweep deletes what killed runs have left, and nothing that could be the only copy of an event.

Whatever the names and tags of users' streams are, a sweep touches none of them.
"""

from __future__ import annotations

import itertools
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamvault import ephemeral_stream, export_stream, import_stream, sweep_scope
from streamvault.cli import main
from streamvault.errors import Conflict, InvalidName, Usage
from streamvault.importer.target import Target, TargetTaken, first_segment_id, lease_stream, origin_tag
from streamvault.manager import sweep as notes
from streamvault.manager.ephemeral import EphemeralTag, ephemeral_lease
from streamvault.manager.reports import SweepReport
from streamvault.manager.sweep import Leftovers
from streamvault.spark.pravega_sink import WriteLog
from streamvault.streamstore import lease
from streamvault.streamstore.errors import NoSuchStream, StreamStoreError
from streamvault.streamstore.ledger import Ledger, LedgerNameTaken
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.own import (
    APPEND_LEDGER,
    CONSUMER_LEASE,
    EPHEMERAL,
    EPHEMERAL_LEASE,
    FROM,
    JOIN,
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
from streamvault.streamstore.store import Transaction
from testkit.leftovers import (
    OWNER,
    QUEUE,
    STAGING,
    TARGET,
    dead_lease,
    dead_worker,
    killed_copy,
    killed_ephemeral,
    killed_import,
    queue,
    replica,
)
from testkit.small_archives import NAME, Vault, archive_of
from testkit.streams import append_events, opened

GONE = replace(NAME, stream="gone")


def sweep(vault: Vault, older_than: float = 0.0, **options: Any) -> SweepReport:
    return sweep_scope(f"local://{vault.folder}/streams/{NAME.scope}/", older_than=older_than, **options)


def names(vault: Vault) -> list[StreamName]:
    with vault.store as store:
        return list(store.list_streams(NAME.scope, own=True))


def kept(report: SweepReport) -> dict[str, str]:
    return {one.stream.rpartition("/")[2]: one.reason for one in report.leftovers if not one.swept}


def taken(monkeypatch: pytest.MonkeyPatch) -> list[lease.Lease]:
    """The leases that are taken from now on."""
    really, found = lease.Lease._take, list[lease.Lease]()
    monkeypatch.setattr(lease.Lease, "_take", lambda *given: found.append(really(*given)) or found[-1])
    return found


def pause(holder: lease.Lease) -> None:
    """Let others take a lease over; its holder finds out when it looks."""
    holder.release(remove=False)
    holder._lost = StreamStoreError("another process has taken the lease over")


def append(vault: Vault, name: StreamName) -> None:
    with vault.store as store:
        segment = next(iter(store.describe(name).tail.offsets))
        append_events(store, name, segment, [b"more"])


def a_ledger(vault: Vault, prefix: str, about: StreamName, *also: str, record: dict[str, Any] | None = None) -> Ledger:
    ledger = Ledger(vault.store, stream_beside(about, prefix, *also), about)
    ledger.newest()
    ledger.record(record or {"work": "copy.1"})
    return ledger


@pytest.mark.usefixtures("all_dead")
def test_leftovers_are_deleted_and_nothing_else(vault: Vault) -> None:
    queue(vault)
    killed_ephemeral(vault)
    killed_import(vault)
    dead_lease(vault, GONE)
    dead_worker(vault)
    a_ledger(vault, TARGET_LEDGER, GONE)
    report = sweep(vault)
    assert kept(report) == {}
    assert {one.role for one in report.leftovers} == {"ephemeral", "unfinished", "lease", "ledger"}
    assert names(vault) == sorted([NAME, QUEUE])


def test_ledger_of_a_refused_append_is_deleted_with_its_stream(vault: Vault) -> None:
    with vault.store as store:
        ledgers = [Ledger(store, stream_beside(about, APPEND_LEDGER, "what"), about) for about in (NAME, GONE)]
        for ledger in ledgers:
            ledger.newest()
    assert kept(sweep(vault)) == {ledgers[0].name.stream: f"it belongs to {NAME}, which still exists"}
    assert names(vault) == sorted([NAME, ledgers[0].name])


def test_notes_that_a_killed_sweep_left_empty_are_deleted(vault: Vault) -> None:
    name = replace(NAME, stream=SWEEP_NOTES)
    with vault.store as store:
        Ledger(store, name, name).newest()
    sweep(vault)
    assert names(vault) == [NAME]


@pytest.mark.usefixtures("all_dead")
def test_what_vanishes_meanwhile_is_not_noted(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    left = dead_lease(vault, GONE)

    def vanish() -> None:
        with vault.store as store:
            store.delete(left)
        raise NoSuchStream("no such stream")

    monkeypatch.setattr(Leftovers, "lease", lambda *_: vanish)
    assert sweep(vault).leftovers == ()
    assert names(vault) == [NAME]


@pytest.mark.usefixtures("all_dead")
def test_dry_run_deletes_and_notes_nothing(vault: Vault) -> None:
    killed_ephemeral(vault)
    killed_import(vault)
    dead_lease(vault, GONE)
    with vault.store as store:
        before = [store.describe(name) for name in names(vault)]
        report = sweep(vault, dry_run=True)
        assert [store.describe(name) for name in names(vault)] == before
    assert (kept(report), report.dry_run) == ({}, True)
    assert sweep(vault, older_than=60.0, dry_run=True).leftovers != report.leftovers
    assert SWEEP_NOTES not in {name.stream for name in names(vault)}


def finish_before_the_fence(vault: Vault, monkeypatch: pytest.MonkeyPatch, *, compares: bool = True) -> None:
    """Another run finishes the target right before the fence, and its user writes to it.

    Args:
        vault: with a killed import.
        monkeypatch: of the test.
        compares: whether the store compares what the fence replaces.
    """
    really, holder = LocalStore.update_stream, taken(monkeypatch)

    def update(self: LocalStore, name: StreamName, configuration: StreamConfiguration, **was: Any) -> None:
        fences = name == TARGET and SWEPT in configuration.tags
        if fences:
            monkeypatch.setattr(LocalStore, "update_stream", really)
            pause(holder[0])
            import_stream(vault.archive, vault.uri(TARGET), master="inline")
            append(vault, TARGET)
        really(self, name, configuration, **(was if compares or not fences else {}))

    monkeypatch.setattr(LocalStore, "update_stream", update)


class TestEphemeral:
    def test_one_in_use_stays(self, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lease, "BEAT_SECONDS", 0.05)
        with ephemeral_stream(vault.uri(STAGING)):
            assert kept(sweep(vault))[STAGING.stream] == "it is in use"
            append(vault, STAGING)

    @pytest.mark.usefixtures("all_dead")
    def test_stream_with_a_copied_tag_stays(self, vault: Vault) -> None:
        described = killed_ephemeral(vault)
        other = replace(NAME, stream="other")
        with vault.store as store:
            store.create_stream(other, described.configuration)
            append(vault, other)
            assert list(kept(sweep(vault))) == [other.stream]
            assert names(vault) == sorted([NAME, other])
            assert store.describe(other).configuration == described.configuration

    @pytest.mark.usefixtures("all_dead")
    @pytest.mark.parametrize("empty", [False, True])
    def test_stream_that_was_created_again_with_its_tag_stays(self, vault: Vault, empty: bool) -> None:
        described = killed_ephemeral(vault)
        with vault.store as store:
            store.delete(STAGING)
            store.create_stream(STAGING, described.configuration)
            if not empty:
                append(vault, STAGING)
            assert STAGING.stream in kept(sweep(vault))
            assert not store.describe(STAGING).sealed

    @pytest.mark.usefixtures("all_dead")
    def test_stream_without_a_lease_stays(self, vault: Vault) -> None:
        killed_ephemeral(vault)
        with vault.store as store:
            store.delete(ephemeral_lease(STAGING))
            assert list(kept(sweep(vault))) == [STAGING.stream]

    @pytest.mark.usefixtures("all_dead")
    def test_stream_whose_tag_was_removed_is_a_users(self, vault: Vault) -> None:
        killed_ephemeral(vault)
        with vault.store as store:
            store.update_stream(STAGING, StreamConfiguration())
        assert kept(sweep(vault)) == {}
        assert names(vault) == sorted([NAME, STAGING])

    @pytest.mark.usefixtures("all_dead")
    def test_stream_whose_tag_is_removed_meanwhile_stays(self, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
        killed_ephemeral(vault)
        really = lease.Lease.confirm

        def confirm(self: lease.Lease) -> None:
            really(self)
            with vault.store as store:
                store.update_stream(STAGING, StreamConfiguration(tags=("users",)))

        monkeypatch.setattr(lease.Lease, "confirm", confirm)
        assert STAGING.stream in kept(sweep(vault))
        with vault.store as store:
            assert store.describe(STAGING).configuration.tags == ("users",)

    @pytest.mark.usefixtures("all_dead")
    def test_one_that_was_sealed_is_deleted(self, vault: Vault) -> None:
        killed_ephemeral(vault)
        with vault.store as store:
            store.seal(STAGING)
        assert kept(sweep(vault)) == {}
        assert names(vault) == [NAME]

    def test_holder_on_another_machine_is_watched_as_long_as_its_tag_says(
        self, vault: Vault, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        killed_ephemeral(vault)
        watched = []
        monkeypatch.setattr("streamvault.manager.sweep.watch_silence", lambda *a, **_: watched.append(a[2]))
        monkeypatch.setattr(lease, "PATIENCE_SECONDS", 0.0)
        assert kept(sweep(vault)) == {}
        assert watched == [12.0]


@pytest.mark.usefixtures("all_dead")
class TestTargets:
    def test_import_can_begin_again(self, vault: Vault) -> None:
        killed_import(vault)
        assert kept(sweep(vault)) == {}
        report = import_stream(vault.archive, vault.uri(TARGET), numbers="map", master="inline")
        assert not report.resumed

    @pytest.mark.parametrize("options", [{"offsets": "shift"}, {"numbers": "map"}, {"generation": 1}])
    def test_archive_that_has_grown_still_gives_the_import(self, vault: Vault, options: dict[str, Any]) -> None:
        killed_import(vault, **options)
        vault.add(b"more")
        vault.export("chunks")
        assert kept(sweep(vault)) == {}

    def test_target_whose_archive_is_gone_stays(self, vault: Vault) -> None:
        killed_import(vault)
        shutil.rmtree(vault.folder / "vault")
        assert kept(sweep(vault))[TARGET.stream].startswith("its archive cannot be read")
        assert TARGET in names(vault)

    def test_target_whose_archive_is_being_deleted_stays(self, vault: Vault) -> None:
        killed_import(vault)
        archive_of(vault.root).decide(lambda now: now.decision.delete("begun"), deleting=True)
        assert "(the archive is being deleted, according to decision 1 of" in kept(sweep(vault))[TARGET.stream]
        assert TARGET in names(vault)

    def test_target_whose_archive_is_another_one_now_stays(self, vault: Vault, tmp_path: Path) -> None:
        killed_import(vault)
        shutil.rmtree(vault.folder / "vault")
        (tmp_path / "vault").mkdir()
        vault.add(b"more")
        export_stream(vault.uri(), vault.root, layout="chunks", master="inline")
        assert "no longer has exactly what is restored" in kept(sweep(vault))[TARGET.stream]

    def test_target_with_foreign_events_stays(self, vault: Vault) -> None:
        killed_import(vault)
        with vault.store as store:
            described = store.describe(TARGET)
            for segment in described.tail.offsets:
                append_events(store, TARGET, segment, [b"x" * 1_000_000])
        assert "was written to by another process" in kept(sweep(vault))[TARGET.stream]
        with vault.store as store:
            assert store.describe(TARGET).configuration == described.configuration

    @pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(bytes(path.stat().st_size))])
    def test_target_whose_archive_has_lost_events_stays(self, vault: Vault, damage: Callable[[Path], object]) -> None:
        killed_import(vault)
        for chunk in (vault.folder / "vault").rglob("chunks/**/*"):
            if chunk.is_file():
                damage(chunk)
        before = vault.store.describe(TARGET)
        assert "its archive cannot be read" in kept(sweep(vault))[TARGET.stream]
        assert vault.store.describe(TARGET) == before

    @pytest.mark.parametrize(
        ("place", "reason"),
        [(0, "the segment has 12 bytes, but the source only 0"), (1, "the target differs from the source")],
        ids=["what has expired", "filler"],
    )
    def test_target_with_foreign_events_instead_of_its_own_stays(self, vault: Vault, place: int, reason: str) -> None:
        killed_import(vault, numbers="map")
        with vault.store as store:
            configuration = store.describe(TARGET).configuration
            store.delete(TARGET)
            store.create_stream(TARGET, configuration)
            before = store.describe(TARGET)
            append_events(store, TARGET, sorted(before.tail.offsets)[place], [b"more"])
        assert reason in kept(sweep(vault))[TARGET.stream]
        assert vault.store.describe(TARGET).configuration == before.configuration

    def test_target_that_is_written_to_right_before_its_end_stays(
        self, vault: Vault, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        killed_import(vault)
        really = LocalStore.seal

        def seal(self: LocalStore, name: StreamName, **first: Any) -> None:
            if name == TARGET:
                append(vault, TARGET)
            really(self, name, **first)

        monkeypatch.setattr(LocalStore, "seal", seal)
        assert "was written to by another process" in kept(sweep(vault))[TARGET.stream]
        assert TARGET in names(vault)

    def test_stream_with_the_tags_of_a_target_stays(self, vault: Vault) -> None:
        killed_import(vault)
        with vault.store as store:
            store.create_stream(GONE, store.describe(TARGET).configuration)
        append(vault, GONE)
        assert kept(sweep(vault)) == {GONE.stream: "nothing shows from which archive it was restored"}

    def test_target_that_is_finished_meanwhile_stays(self, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sweep is paused right before its fence while another run takes the lease over and finishes."""
        killed_import(vault)
        finish_before_the_fence(vault, monkeypatch)
        assert TARGET.stream in kept(sweep(vault))
        with vault.store as store:
            assert OWN not in store.describe(TARGET).configuration.tags

    def test_fence_that_came_too_late_deletes_nothing(self, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pravega cannot compare and set: the fence may hit a stream that was finished and written to."""
        killed_import(vault)
        finish_before_the_fence(vault, monkeypatch, compares=False)
        for _ in range(2):
            assert TARGET.stream in kept(sweep(vault))
            assert TARGET in names(vault)

    def test_import_does_not_finish_what_a_sweep_deletes(self, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
        """The import is paused before its last steps; the sweep fences its target and is killed."""
        really = Target.finish

        def finish(self: Target) -> None:
            with vault.store as store:
                configuration = store.describe(TARGET).configuration
                store.update_stream(TARGET, replace(configuration, tags=(SWEPT, *configuration.tags)))
            really(self)

        monkeypatch.setattr(Target, "finish", finish)
        with pytest.raises(TargetTaken, match="is being deleted by a sweep"):
            import_stream(vault.archive, vault.uri(TARGET), master="inline")
        with pytest.raises(TargetTaken, match="is being deleted by a sweep"):
            import_stream(vault.archive, vault.uri(TARGET), master="inline")
        assert kept(sweep(vault)) == {}
        assert TARGET not in names(vault)

    def test_copy_with_data_stays(self, vault: Vault) -> None:
        killed_copy(vault)
        assert "may have events that its source has lost" in kept(sweep(vault))[TARGET.stream]

    def test_replica_and_its_ledger_stay(self, vault: Vault) -> None:
        replica(vault)
        before = names(vault)
        assert set(kept(sweep(vault))) == {TARGET.stream, stream_beside(TARGET, TARGET_LEDGER).stream}
        assert names(vault) == before

    def test_empty_target_is_deleted(self, vault: Vault) -> None:
        killed_copy(vault)
        with vault.store as store:
            configuration = store.describe(TARGET).configuration
            store.delete(TARGET)
            store.create_stream(TARGET, configuration)
        assert kept(sweep(vault)) == {}
        assert names(vault) == [NAME]

    def test_empty_target_of_a_join_stays(self, vault: Vault) -> None:
        """A join looks at no fence: it may scale, fill and finish its target right before the deletion."""
        with vault.store as store:
            store.create_stream(TARGET, StreamConfiguration(tags=(OWN, f"{UNFINISHED}{JOIN}0123.4567")))
        assert kept(sweep(vault)) == {TARGET.stream: "its run may still be active; repeat its command"}

    def test_probe_is_deleted_if_it_is_empty(self, vault: Vault) -> None:
        probe, other = stream_beside(TARGET, TARGET_PROBE), stream_beside(GONE, TARGET_PROBE)
        with vault.store as store:
            for name in (probe, other):
                store.create_stream(name, StreamConfiguration(tags=(OWN,)))
        append(vault, other)
        assert set(kept(sweep(vault))) == {other.stream}
        assert names(vault) == sorted([NAME, other])


@pytest.mark.usefixtures("all_dead")
class TestLeasesAndLedgers:
    def test_lease_of_an_import_without_its_last_step_stays(self, vault: Vault) -> None:
        name = dead_lease(vault, NAME, about=first_segment_id(vault.described))
        for _ in range(2):
            assert kept(sweep(vault)) == {name.stream: f"the last step of {NAME} is missing; repeat its command"}

    def test_lease_that_was_finishing_another_stream_of_the_name_is_deleted(self, vault: Vault) -> None:
        dead_lease(vault, NAME, about="77.#epoch.0")
        assert kept(sweep(vault)) == {}

    def test_lease_whose_stream_was_made_since_stays(self, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
        name = dead_lease(vault, GONE, about="0.#epoch.0")
        really = lease.Lease.take

        def take(*given: Any, **options: Any) -> lease.Lease:
            with vault.store as store:
                store.create_stream(GONE, StreamConfiguration())
            return really(*given, **options)

        monkeypatch.setattr(lease.Lease, "take", take)
        assert kept(sweep(vault)) == {name.stream: f"the last step of {GONE} is missing; repeat its command"}

    def test_stream_with_the_name_and_tag_of_a_lease_stays_if_it_holds_none(self, vault: Vault) -> None:
        name = lease_stream(GONE)
        with vault.store as store:
            store.create_stream(name, StreamConfiguration(tags=(OWN,)))
        append(vault, name)
        assert kept(sweep(vault)) == {name.stream: "its last record is not that of a lease"}

    @pytest.mark.parametrize("prefix", [TARGET_LEDGER, SOURCE_SEAL, SPARK_LEDGER, APPEND_LEDGER])
    def test_ledger_is_deleted_when_its_stream_is_gone(self, vault: Vault, prefix: str) -> None:
        first = first_segment_id(vault.described)
        also = {TARGET_LEDGER: (), SOURCE_SEAL: (first,), SPARK_LEDGER: ("app",), APPEND_LEDGER: (first, "uri")}[prefix]
        ledger = a_ledger(vault, prefix, NAME, *also, record={"app": "app", "sealing": True, "stage": "committed"})
        assert kept(sweep(vault)) == {ledger.name.stream: f"it belongs to {NAME}, which still exists"}
        with vault.store as store:
            store.delete(NAME)
        assert kept(sweep(vault)) == {}
        assert names(vault) == []

    @pytest.mark.parametrize("prefix", [SOURCE_SEAL, APPEND_LEDGER])
    def test_ledger_whose_tag_lacks_the_end_of_a_long_name_stays(self, vault: Vault, prefix: str) -> None:
        long = replace(NAME, stream="x" * 255)
        with vault.store as store:
            store.create_stream(long, StreamConfiguration())
        ledger = a_ledger(vault, prefix, long, "0.#epoch.0", "uri", record={"stage": "committed"})
        assert kept(sweep(vault)) == {ledger.name.stream: "nothing shows which stream it belongs to"}

    def test_ledger_of_who_sealed_an_earlier_stream_is_deleted(self, vault: Vault) -> None:
        a_ledger(vault, SOURCE_SEAL, NAME, "77.#epoch.0")
        assert kept(sweep(vault)) == {}

    def test_ledger_that_gets_a_record_meanwhile_stays(self, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
        ledger = a_ledger(vault, TARGET_LEDGER, GONE)
        really = Ledger.retire

        def retire(self: Ledger) -> None:
            ledger.record({"work": "copy.2"})
            really(self)

        monkeypatch.setattr(Ledger, "retire", retire)
        assert ledger.name.stream in kept(sweep(vault))
        assert Ledger(vault.store, ledger.name, GONE).newest() == {"work": "copy.2"}

    def test_ledger_is_not_used_any_more_once_it_is_to_be_deleted(
        self, vault: Vault, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The sweep is killed before the deletion, or comes to it late."""
        ledger = a_ledger(vault, TARGET_LEDGER, GONE)
        late = Ledger(vault.store, ledger.name, GONE)
        assert late.newest(create=False) is not None
        monkeypatch.setattr(Ledger, "delete", lambda _: None)
        late.retire()
        monkeypatch.undo()
        with pytest.raises(Conflict):
            ledger.record({"work": "copy.2"})
        assert Ledger(vault.store, ledger.name, GONE).newest(create=False) is None
        new = Ledger(vault.store, ledger.name, GONE)
        assert new.newest() is None
        new.record({"work": "copy.3"})
        late.delete()
        assert Ledger(vault.store, ledger.name, GONE).newest() == {"work": "copy.3"}

    def test_ledger_with_another_name_or_tag_stays(self, vault: Vault) -> None:
        one = Ledger(vault.store, stream_beside(TARGET, TARGET_LEDGER), GONE)
        one.newest()
        with vault.store as store:
            two = stream_beside(GONE, SPARK_LEDGER, "app")
            store.create_stream(two, StreamConfiguration(tags=(OWN,)))
        assert kept(sweep(vault)) == dict.fromkeys(
            (one.name.stream, two.stream), "nothing shows which stream it belongs to"
        )

    def test_ledger_of_a_spark_write(self, vault: Vault) -> None:
        with vault.store as store:
            writes = WriteLog(opened(store, NAME), "app")
            writes.newest_of("")
            writes.record(writes.prepared(1, "", Transaction(NAME, uuid.uuid4(), {})), None)
            store.delete(NAME)
        assert kept(sweep(vault)) == {}


def test_worker_that_lives_keeps_its_lease(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.05)
    queue(vault)
    with vault.store as store:
        held = lease.Lease.take(store, stream_beside(QUEUE, "streamvault-consumer-"), "q", held=lease.LeaseHeld("held"))
        assert set(kept(sweep(vault)).values()) == {"it is in use"}
        held.confirm()
        held.release(remove=True)


@pytest.mark.usefixtures("all_dead")
class TestAge:
    def test_what_has_not_changed_since_an_earlier_sweep_is_deleted(
        self, vault: Vault, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name, now = dead_lease(vault, GONE), time.time()
        monkeypatch.setattr(notes.time, "time", lambda: now)
        assert kept(sweep(vault, 60.0)) == {
            name.stream: "another sweep may delete it in 1m or later, unless it changes"
        }
        now += 59.0
        assert name.stream in kept(sweep(vault, 60.0))
        append_to_lease = dead_lease(vault, GONE)
        assert append_to_lease == name
        now += 59.0
        assert name.stream in kept(sweep(vault, 60.0)), "it has changed"
        now -= 100_000.0
        assert name.stream in kept(sweep(vault, 60.0)), "the clock has jumped"
        now += 60.0
        assert kept(sweep(vault, 60.0)) == {}
        assert names(vault) == [NAME], "the notes are gone with the last leftover"

    def test_target_is_as_old_as_its_lease(self, vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
        killed_import(vault)
        now = time.time()
        monkeypatch.setattr(notes.time, "time", lambda: now)
        sweep(vault, 60.0)
        dead_lease(vault, TARGET)
        now += 61.0
        assert TARGET.stream in kept(sweep(vault, 60.0))
        now += 61.0
        assert kept(sweep(vault, 60.0)) == {}

    def test_default_is_an_hour(self, vault: Vault) -> None:
        dead_lease(vault, GONE)
        report = sweep_scope(f"local://{vault.folder}/streams/{NAME.scope}/")
        assert "in 1h or later" in next(iter(kept(report).values()))


@pytest.mark.usefixtures("all_dead")
def test_command(vault: Vault, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    scope = f"local://{vault.folder}/streams/{NAME.scope}/"
    name = dead_lease(vault, GONE)
    assert main(["sweep", scope]) == 0
    assert f"kept {scope}{name.stream}: another sweep may delete it in 1h" in capfd.readouterr().out
    assert main(["sweep", scope, "--older-than", "0s", "--dry-run"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        f"would remove {scope}{name.stream} (lease)",
        f"{scope}: would remove 1 stream, kept 0",
    ]
    monkeypatch.setenv("STREAMVAULT_OLDER_THAN", "0s")
    assert main(["sweep", scope]) == 2
    assert "variables cannot make a command delete" in capfd.readouterr().err
    monkeypatch.delenv("STREAMVAULT_OLDER_THAN")
    assert main(["sweep", scope, "--older-than", "0s"]) == 0
    assert f"{scope}: removed 1 stream, kept 0" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("uri", "error"), [("local:///a", Usage), ("s3://bucket/a/", InvalidName), ("local:///a/b/_c/", InvalidName)]
)
def test_what_is_no_scope(uri: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        sweep_scope(uri)


@pytest.mark.usefixtures("all_dead")
@pytest.mark.parametrize("make", [killed_ephemeral, partial(killed_import, numbers="map")])
def test_sweep_that_is_killed_anywhere_is_repeated(
    vault: Vault, make: Callable[[Vault], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each of its changes of a store; what it has begun, the next one ends."""
    at = 0
    while True:
        make(vault)
        changes = 0
        with monkeypatch.context() as patch:

            def counted(really: Any, most: int = at) -> Any:
                def change(*given: Any, **options: Any) -> Any:
                    nonlocal changes
                    changes += 1
                    if changes > most:
                        raise KeyboardInterrupt
                    return really(*given, **options)

                return change

            for method in ("create_stream", "update_stream", "seal", "delete", "appender"):
                patch.setattr(LocalStore, method, counted(getattr(LocalStore, method)))
            try:
                sweep(vault)
                done = True
            except KeyboardInterrupt:
                done = False
        assert kept(sweep(vault)) == {}
        assert names(vault) == [NAME]
        if done:
            break
        at += 1
    assert at > 4


def test_tag_says_who_and_how_long() -> None:
    assert EphemeralTag.of(StreamConfiguration(tags=(str(EphemeralTag("owner", 12.5)),))) == EphemeralTag("owner", 12.5)


STAGED = "staging"
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
    st.tuples(st.sampled_from(PREFIXES), st.sampled_from((STAGED, "target", "orders", "none"))),
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
    killed_ephemeral(vault, replace(place, stream=STAGED))
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
