"""Replicas of streams of the embedded store: rounds, promotion, moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from streamvault import export_stream, import_stream, move_stream, promote_replica, replicate_stream
from streamvault.cli import main
from streamvault.common.errors import Conflict, Failed, Overtaken, Problem, Usage
from streamvault.importer.lease import first_segment_id
from streamvault.importer.options import TargetOptions
from streamvault.importer.run import ImportRun
from streamvault.importer.target import TargetTaken
from streamvault.importer.unfinished import LOOKS
from streamvault.manifests.archive.rounds import Round
from streamvault.mirrors.replica import NotAReplica, Replica
from streamvault.mirrors.replication import Replication
from streamvault.mirrors.source import open_source
from streamvault.mirrors.witness import check_same
from streamvault.streamstore.arithmetic.splitting import EventSplitter
from streamvault.streamstore.errors import ScaleRefused, SegmentSealed
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.appender import LocalAppender
from streamvault.streamstore.model import KeyRange, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.own import OWN, SOURCE_SEAL, is_own, stream_beside
from streamvault.streamstore.services.lease import Lease
from tests.killed import Killed
from tests.streams import append_events, digest_of, events_of, make_stream, opened, shape_of
from tests.unit.small_archives import NAME

TARGET = replace(NAME, stream="replica")


class Streams:
    """A folder of streams."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder)

    @property
    def source(self) -> str:
        return f"local://{self.folder}/{NAME}"

    @property
    def target(self) -> str:
        return f"local://{self.folder}/{TARGET}"

    def replicate(self, **options: object):  # type: ignore[no-untyped-def]
        return replicate_stream(self.source, self.target, master="inline[2]", **options)  # type: ignore[arg-type]

    def promote(self, **options: object):  # type: ignore[no-untyped-def]
        return promote_replica(self.target, master="inline[2]", **options)  # type: ignore[arg-type]

    def move(self, **options: object):  # type: ignore[no-untyped-def]
        return move_stream(self.source, self.target, master="inline[2]", **options)  # type: ignore[arg-type]

    def add(self, *events: bytes) -> None:
        with self.store as store:
            for segment in store.describe(NAME).tail.offsets:
                append_events(store, NAME, segment, events)

    def scale(self, parts: int = 2) -> None:
        """Seal the newest segment and open some in its place."""
        with self.store as store:
            described = store.describe(NAME)
            segment = max(described.tail.offsets)
            held = described.ranges()[segment]
            width = (held.high - held.low) / parts
            bounds = [held.low + width * i for i in range(parts)] + [held.high]
            store.scale(NAME, [segment], [KeyRange(a, b) for a, b in pairwise(bounds)])

    def truncate(self) -> None:
        with self.store as store:
            store.truncate(store.describe(NAME).tail)

    def own(self) -> list[StreamName]:
        """Every stream of the scope but source and target, and what says who sealed a source that is still there."""
        with self.store as store:
            left = {NAME, TARGET}
            if store.exists(NAME):
                left.add(stream_beside(NAME, SOURCE_SEAL, first_segment_id(store.describe(NAME))))
            return [name for name in store.list_streams(NAME.scope, own=True) if name not in left]


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    streams = Streams(tmp_path / "streams")
    with streams.store as store:
        make_stream(store, NAME, events=120, largest=20_000)
    return streams


def assert_same_events(streams: Streams, target: StreamName = TARGET) -> None:
    with streams.store as store:
        assert digest_of(store, NAME) == digest_of(store, target)


def assert_same(streams: Streams, *, sealed: bool | None = None) -> None:
    """The replica has the source's events, shape and policies."""
    with streams.store as store:
        source, copied = shape_of(store, NAME), shape_of(store, TARGET)
        configuration: StreamConfiguration = source.pop("configuration")  # type: ignore[assignment]
        scaling = replace(configuration.scaling, min_segments=len(store.describe(NAME).tail.offsets))
        tags = (*configuration.tags, f"streamvault-replica-of:{streams.source}"[:256])
        assert copied.pop("configuration") == replace(configuration, tags=tags, scaling=scaling)
        if sealed is not None:
            assert (source.pop("sealed"), copied.pop("sealed")) == (True, sealed)
        assert source == copied
        assert digest_of(store, NAME) == digest_of(store, TARGET)


def test_rounds_follow_growth_scales_and_truncation(streams: Streams) -> None:
    first = streams.replicate()
    assert (first.ended, first.rounds, first.moved_bytes > 0) == ("caught up", 1, True)
    assert_same_events(streams)
    streams.add(b"later", b"")
    streams.scale()
    streams.add(b"after the scale")
    assert streams.replicate(dry_run=True).behind_bytes > 0
    again = streams.replicate()
    assert again.behind_bytes == again.moved_bytes
    assert_same_events(streams)
    streams.truncate()
    streams.add(b"after the truncation")
    streams.replicate()
    assert_same_events(streams)
    with streams.store as store:
        assert OWN in store.describe(TARGET).configuration.tags
        assert store.describe(NAME).head.offsets == store.describe(TARGET).head.offsets
        assert list(store.list_streams(NAME.scope)) == [NAME]
    nothing = streams.replicate()
    assert (nothing.moved_bytes, nothing.behind_bytes) == (0, 0)


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_replica_that_was_behind_a_truncation_goes_on_at_the_head(streams: Streams, offsets: str) -> None:
    streams.replicate(offsets=offsets)
    streams.add(b"lost")
    streams.scale()
    streams.add(b"lost, too")
    streams.truncate()
    streams.add(b"kept")
    streams.replicate(offsets=offsets)
    with streams.store as store:
        kept = [payload for _, payload in events_of(store, NAME)]
        assert [payload for _, payload in events_of(store, TARGET)] == kept
    streams.promote()
    assert streams.own() == []


def test_head_is_kept(streams: Streams) -> None:
    streams.replicate(keep_head=True)
    with streams.store as store:
        before = digest_of(store, TARGET)
    streams.truncate()
    streams.replicate(keep_head=True)
    with streams.store as store:
        assert digest_of(store, TARGET) == before
    streams.add(b"lost")
    streams.scale()
    streams.truncate()
    with pytest.raises(Conflict, match="truncated beyond what the replica has"):
        streams.replicate(keep_head=True)


@pytest.mark.parametrize("end", ["round", "promotion", "move"])
def test_head_once_kept_is_kept_without_the_option(streams: Streams, end: str) -> None:
    """Also if the option was given to a later run only."""
    streams.replicate()
    streams.replicate(keep_head=True)
    with streams.store as store:
        before = digest_of(store, TARGET)
    streams.truncate()
    if end == "promotion":
        streams.promote(seal_source=True)
    elif end == "move":
        streams.move(numbers="map")
    else:
        streams.replicate()
    with streams.store as store:
        assert digest_of(store, TARGET) == before


@pytest.mark.usefixtures("impatient")
def test_filler_that_a_replica_has_does_not_count(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = {"filler_limit": 0, "offsets": "keep", "numbers": "map"}
    with streams.store as store:
        assert any(store.describe(NAME).head.offsets.values())
    with pytest.raises(Usage, match="more than --filler-limit 0"):
        streams.replicate(**limited)
    streams.replicate()
    streams.add(b"replicated")
    streams.replicate(**limited)
    streams.truncate()
    streams.add(b"kept")
    streams.replicate(**limited)
    assert_same_events(streams)
    streams.add(b"lost")
    streams.truncate()
    with pytest.raises(Usage, match="more than --filler-limit 0"):
        streams.replicate(**limited)
    streams.replicate()
    killed(monkeypatch, "delete", NAME, partial(streams.move, **limited))
    streams.move(**limited)
    assert streams.own() == []


def test_lag(streams: Streams, capfd: pytest.CaptureFixture[str]) -> None:
    none = streams.replicate(dry_run=True)
    assert (none.behind_seconds, none.ended) == (None, None)
    assert none.behind_bytes == sum(pointer.length for pointer, _ in _events(streams))
    streams.replicate()
    assert (streams.replicate(dry_run=True).behind_bytes, streams.replicate(dry_run=True).behind_seconds) == (0, 0.0)
    streams.add(b"x" * 92)
    late = streams.replicate(dry_run=True)
    with streams.store as store:
        assert late.behind_bytes == 100 * len(store.describe(NAME).tail.offsets)
    assert late.behind_seconds is not None
    assert 0 < late.behind_seconds < 60
    assert main(["replicate", streams.source, streams.target, "--dry-run"]) == 0
    assert "behind" in capfd.readouterr().out


def _events(streams: Streams) -> list[tuple[object, bytes]]:
    with streams.store as store:
        return list(events_of(store, NAME))  # type: ignore[arg-type]


@pytest.mark.parametrize("sealed", [False, True])
def test_promoted_replica_is_a_stream_like_its_source(streams: Streams, *, sealed: bool) -> None:
    if sealed:
        with streams.store as store:
            store.seal(NAME)
    streams.replicate()
    report = streams.promote()
    assert (report.sealed, report.unchanged) == (sealed, False)
    if sealed:
        assert_same(streams)
    else:  # late appends are refused, as the segments that were open are sealed
        with streams.store as store:
            source, copied = store.describe(NAME), store.describe(TARGET)
            assert copied.epochs[:-1] == source.epochs
            assert list(copied.epochs[-1].segments.values()) == list(source.epochs[-1].segments.values())
            assert set(copied.tail.offsets.values()) == {0}
            assert digest_of(store, NAME) == digest_of(store, TARGET)
    assert streams.own() == []
    assert streams.promote().unchanged
    with pytest.raises(Conflict, match="promoted replica of"):
        streams.replicate()


def test_sealing_after_a_promotion_is_refused(streams: Streams) -> None:
    streams.replicate()
    streams.promote()
    with pytest.raises(Conflict, match="promoted before, without sealing its source"):
        streams.promote(seal_source=True)


@pytest.mark.parametrize("late", ["append", "scale"])
def test_nothing_late_follows_a_promotion(streams: Streams, late: str) -> None:
    streams.replicate()
    with streams.store as store:
        segment, held = next(iter(store.describe(TARGET).epochs[-1].segments.items()))
    streams.promote()
    with streams.store as store:
        act = {
            "append": lambda: append_events(store, TARGET, segment, [b"late"]),
            "scale": lambda: store.scale(TARGET, [segment], [held]),
        }
        with pytest.raises((SegmentSealed, ScaleRefused)):
            act[late]()


def test_source_may_be_gone(streams: Streams) -> None:
    streams.replicate()
    with streams.store as store:
        before = digest_of(store, NAME)
        store.delete(NAME)
    with pytest.raises(Failed, match="no such stream"):
        streams.replicate()
    report = streams.promote()
    assert report.tail_time
    with streams.store as store:
        assert digest_of(store, TARGET) == before
    assert streams.own() == []


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_cut_over(streams: Streams, offsets: str) -> None:
    streams.replicate(offsets=offsets)
    streams.add(b"written before the cut-over")
    report = streams.promote(seal_source=True)
    assert (report.source_sealed, report.sealed) == (True, False)
    assert report.moved_bytes > 0
    if offsets == "keep":
        assert_same(streams, sealed=False)
    else:
        assert [p for _, p in _events(streams)] == _payloads(streams, TARGET)
    assert streams.own() == []
    assert streams.promote(seal_source=True).unchanged


def _payloads(streams: Streams, name: StreamName) -> list[bytes]:
    with streams.store as store:
        return [payload for _, payload in events_of(store, name)]


def test_cut_over_ends_a_running_replication(streams: Streams) -> None:
    reports = []
    thread = threading.Thread(target=lambda: reports.append(streams.replicate(follow=True, every=0.05)))
    thread.start()
    while not streams.own() or not _is_caught_up(streams):
        time.sleep(0.02)
    streams.add(b"late")
    with pytest.raises(Conflict, match="another import, copy or replication is writing"):
        streams.promote()
    streams.promote(seal_source=True)
    thread.join(20)
    assert reports[0].ended == "sealed"
    assert_same(streams, sealed=False)


def test_round_that_ends_between_look_and_ledger_is_no_other_stream(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger of a running replication may be ahead of what was seen of the source before it was read."""
    streams.replicate()
    read, beside = Replication._read, []

    def reading(replication: Replication) -> None:
        if not beside:
            beside.append(True)
            streams.add(b"more")
            streams.replicate()
        read(replication)

    monkeypatch.setattr(Replication, "_read", reading)
    streams.promote(seal_source=True)
    assert_same(streams, sealed=False)


def _is_caught_up(streams: Streams) -> bool:
    with streams.store as store:
        return store.exists(TARGET) and store.describe(TARGET).tail.offsets == store.describe(NAME).tail.offsets


def test_follow_ends_when_idle(streams: Streams) -> None:
    report = streams.replicate(follow=True, every=0.02, idle=0.1)
    assert (report.ended, report.rounds) == ("idle", 1)


def test_archive_is_replicated(streams: Streams, tmp_path: Path) -> None:
    root = f"file://{tmp_path}/vault"
    archive = f"{root}/{NAME}"
    export_stream(streams.source, root, master="inline")
    replicate_stream(archive, streams.target, master="inline")
    with pytest.raises(Usage, match="requires a replica of a stream"):
        streams.promote(seal_source=True)
    streams.add(b"more")
    streams.scale()
    streams.add(b"and more")
    export_stream(streams.source, root, master="inline")
    report = replicate_stream(archive, streams.target, master="inline")
    assert report.rounds == 1
    assert_same_events(streams)
    streams.promote()
    assert_same_events(streams)


def test_options_of_a_replica_stay(streams: Streams) -> None:
    streams.replicate()
    with pytest.raises(Conflict, match="begun with --offsets keep --numbers map"):
        streams.replicate(offsets="shift")


def test_source_made_again_is_refused(streams: Streams) -> None:
    streams.replicate()
    with streams.store as store:
        store.delete(NAME)
        make_stream(store, NAME, events=20)
    with pytest.raises(Conflict, match="deleted and created again"):
        streams.replicate()
    with pytest.raises(Conflict, match="deleted and created again"):
        streams.promote(seal_source=True)
    streams.promote()


@pytest.mark.usefixtures("impatient")
def test_dry_run_leaves_the_lease_of_an_interrupted_promotion(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.replicate()
    with monkeypatch.context() as patched:
        patched.setattr(Lease, "release", lambda lease, **_: lease._stop.set() or lease._appender.close())
        streams.promote()
    left = streams.own()
    assert left
    streams.promote(dry_run=True)
    assert streams.own() == left
    streams.promote()
    assert streams.own() == []


def test_what_is_no_replica_is_not_promoted(streams: Streams) -> None:
    with pytest.raises(NotAReplica, match="not a replica"):
        promote_replica(streams.source, master="inline")
    with pytest.raises(Failed, match="no such stream"):
        streams.promote()


def test_users_stream_is_no_target(streams: Streams) -> None:
    with streams.store as store:
        make_stream(store, TARGET, events=20)
    for verb in (streams.replicate, streams.move):
        with pytest.raises(Conflict, match="the stream exists"):
            verb()
    with pytest.raises(Usage, match="same stream"):
        replicate_stream(streams.source, streams.source, master="inline")


def test_event_cut_short_is_not_promoted(streams: Streams) -> None:
    """A large event is appended in pieces; a kill may leave the first ones."""
    streams.replicate()
    with streams.store as store:
        segment = max(store.describe(TARGET).tail.offsets)
        with store.appender(TARGET, segment) as appender:
            appender.append(b"\0\0\0\0\0\0\1\0abc")
    with pytest.raises(Failed, match="ends inside an event"):
        streams.promote()


@pytest.mark.parametrize("rest", [b"abc", bytes(1001), b"a line of a log\n" * 50, bytes(7) + b"\xc8xx"])
def test_byte_replica_has_no_events_to_tear(streams: Streams, monkeypatch: pytest.MonkeyPatch, rest: bytes) -> None:
    """The source is lost, and a round was killed after it appended and before it recorded that."""
    source = replace(NAME, stream="log")
    uri = f"local://{streams.folder}/{source}"
    with streams.store as store:
        store.create_stream(source, StreamConfiguration())
        with store.appender(source, SegmentId(0, 0)) as appender:
            appender.append(b"first line\n" * 20)
    replicate_stream(uri, streams.target, master="inline[2]")
    with streams.store as store, store.appender(source, SegmentId(0, 0)) as appender:
        appender.append(rest)
    note = Replica.note

    def kill(self: Replica, *args: object, **changes: object) -> object:
        if "ends" in changes:
            raise Killed
        return note(self, *args, **changes)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Replica, "note", kill)
        with pytest.raises(Killed):
            replicate_stream(uri, streams.target, master="inline[2]")
    with streams.store as store:
        store.delete(source)
    streams.promote()
    with streams.store as store:
        assert store.segment_info(TARGET, [SegmentId(0, 0)])[0].write_offset == 220 + len(rest)


def ledger_of(streams: Streams) -> Replica:
    replica = Replica(opened(streams.store, TARGET))
    replica.read()
    return replica


def test_replica_with_less_than_its_ledger_says_is_not_promoted(streams: Streams) -> None:
    streams.replicate()
    replica = ledger_of(streams)
    replica.note(ends={segment: end + 8 for segment, end in replica.newest.ends.items()})
    with pytest.raises(Failed, match="fewer bytes than its ledger says"):
        streams.promote()


def test_ledger_of_another_release_is_read(streams: Streams) -> None:
    streams.replicate()
    replica = ledger_of(streams)
    document = {**replica.newest.to_json(), "of a later release": 1}
    target = document.pop("target")
    del document["source_head"]
    replica._ledger.record(document)
    streams.add(b"more")
    streams.replicate()
    assert ledger_of(streams).newest.target == target
    streams.promote()
    assert_same_events(streams)


def test_move_is_a_rename(streams: Streams, capfd: pytest.CaptureFixture[str]) -> None:
    with streams.store as store:
        shape, events = shape_of(store, NAME), digest_of(store, NAME)
    report = streams.move()
    assert report.bytes > 0
    with streams.store as store:
        moved = shape_of(store, TARGET)
        assert digest_of(store, TARGET) == events
        for key in ("epochs", "head", "tail", "live", "sealed"):
            assert moved[key] == shape[key]
        tombstone = store.describe(NAME)
        assert tombstone.sealed
        assert f"streamvault-moved-to:{streams.target}"[:256] in tombstone.configuration.tags
        assert list(store.list_streams(NAME.scope)) == [TARGET]
    assert streams.own() == []
    assert streams.move().unchanged
    with pytest.raises(Problem, match="the stream was moved"):
        export_stream(streams.source, f"file://{streams.folder}/vault", master="inline")
    assert main(["move", streams.source, streams.target]) == 0
    assert "already moved" in capfd.readouterr().out


def test_move_without_tombstone(streams: Streams) -> None:
    streams.move(no_tombstone=True)
    with streams.store as store:
        assert not store.exists(NAME)
    assert streams.move(no_tombstone=True).unchanged


def test_dry_run_of_a_move_changes_nothing(streams: Streams) -> None:
    assert streams.move(dry_run=True).bytes > 0
    with streams.store as store:
        assert list(store.list_streams(NAME.scope, own=True)) == [NAME]


def test_cut_of_a_truncated_stream_is_kept(streams: Streams) -> None:
    with streams.store as store:
        described = store.describe(NAME)
    streams.move(offsets="shift")
    with streams.store as store:
        assert set(store.describe(TARGET).head.offsets.values()) == {0}
        assert isinstance(described.head, StreamCut)


def killed(monkeypatch: pytest.MonkeyPatch, method: str, name: StreamName, verb: Callable[[], object]) -> None:
    """Run a verb that is killed when it is about to make a change to a stream."""
    real = getattr(LocalStore, method)

    def call(self: LocalStore, stream: StreamName, *args: object, **options: object) -> object:
        if stream == name:
            raise Killed
        return real(self, stream, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, method, call)
        patched.setattr(Lease, "release", lambda lease, **_: lease._stop.set() or lease._appender.close())
        with pytest.raises((Killed, Failed)):  # a task reports its end
            verb()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.streamstore.services.lease.PATIENCE_SECONDS", 0.05)


@pytest.mark.usefixtures("impatient")
def test_users_stream_is_not_taken_for_the_replica(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    with streams.store as store:
        store.seal(NAME)
    streams.replicate()
    killed(monkeypatch, "seal", TARGET, streams.promote)
    with streams.store as store:
        store.delete(TARGET)
        make_stream(store, TARGET, events=20)
    with pytest.raises(NotAReplica):
        streams.promote()
    with streams.store as store:
        assert not store.describe(TARGET).sealed


@pytest.mark.usefixtures("impatient")
def test_nothing_follows_a_promotion(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    streams.replicate()
    killed(monkeypatch, "update_stream", TARGET, streams.promote)
    streams.truncate()
    streams.add(b"late")
    with pytest.raises(TargetTaken, match="a promotion of the replica has not ended"):
        streams.replicate()
    with pytest.raises(Conflict, match="without sealing its source has not ended"):
        streams.promote(seal_source=True)
    with pytest.raises(Conflict, match="promoted without sealing the stream"):
        streams.move(numbers="map")
    with streams.store as store:
        assert store.describe(NAME).sealed is False
    streams.promote()
    assert streams.own() == []


def test_replica_with_filler_is_not_promoted(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    streams.replicate()
    streams.add(b"lost")
    streams.truncate()
    streams.add(b"kept")
    killed(monkeypatch, "appender", TARGET, streams.replicate)
    with pytest.raises(Failed, match="begins with filler"):
        streams.promote()
    streams.replicate()
    streams.promote()


@pytest.mark.usefixtures("impatient")
def test_move_goes_on_with_other_options(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(monkeypatch, "delete", NAME, streams.move)
    streams.move(offsets="shift", no_tombstone=True)
    with streams.store as store:
        assert not store.exists(NAME)
    assert streams.own() == []


@pytest.mark.usefixtures("impatient")
def test_import_that_was_killed_is_no_move(streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with streams.store as store:
        store.seal(NAME)
    root = f"file://{tmp_path}/vault"
    export_stream(streams.source, root, master="inline")
    restore = partial(import_stream, f"{root}/{NAME}", streams.target, master="inline")
    killed(monkeypatch, "seal", TARGET, restore)
    with pytest.raises(TargetTaken):
        streams.move()
    restore()
    assert_same_events(streams)
    assert streams.own() == []


@pytest.mark.usefixtures("impatient")
def test_target_deleted_during_the_cut_over_is_made_again(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(monkeypatch, "update_stream", TARGET, lambda: streams.move(numbers="map"))
    with streams.store as store:
        assert store.describe(NAME).sealed
        store.delete(TARGET)
    streams.move(numbers="map")
    with streams.store as store:
        assert not store.describe(TARGET).sealed, "its user never sealed it"


def test_round_that_is_overtaken_again_and_again_ends(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[object] = []

    def bring_up(*of: object) -> None:
        tries.append(of)
        assert len(tries) <= LOOKS
        raise Overtaken("merged meanwhile")

    monkeypatch.setattr(Replication, "_bring_up", bring_up)
    with pytest.raises(Overtaken):
        streams.replicate()
    assert len(tries) == LOOKS


def test_record_of_a_round_is_not_merged_with_that_of_another(streams: Streams) -> None:
    """A late round must not take back that filler is being appended, nor follow a promotion."""
    streams.replicate()
    for changes in ({"skipping": True}, {"taken": "2026-01-01T00:00:00+00:00"}, {"target": "7"}):
        late, other = ledger_of(streams), ledger_of(streams)
        other.note(**changes)
        with pytest.raises(Conflict, match="another process brings the replica up to date"):
            late.note(taken=late.newest.taken, skipping=False)
        assert ledger_of(streams).newest == other.newest
    late, other = ledger_of(streams), ledger_of(streams)
    late.note(closing=())
    other.read()
    other.note(sealing=True)
    late.note(taken=late.newest.taken)
    assert late.newest.sealing
    late, other = ledger_of(streams), ledger_of(streams)
    other.note(promoted=True)
    with pytest.raises(Conflict, match="promoted or replaced"):
        late.note(keep_head=True)
    assert ledger_of(streams).newest == other.newest


def test_promotion_is_not_finished_unless_the_replica_is_complete(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.replicate()
    streams.add(b"more")
    with monkeypatch.context() as patched:
        patched.setattr(Replication, "round", lambda _: Round(changed=False, sealed=False))
        with pytest.raises(Failed, match="does not end where its source ends"):
            streams.promote(seal_source=True)
    with streams.store as store:
        assert is_own(store.describe(TARGET).configuration)
    streams.promote(seal_source=True)
    assert_same_events(streams)


def test_blocks_of_a_round_are_whole_events(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a round that is killed leaves whole events."""
    with streams.store as store:
        segment = min(store.describe(NAME).tail.offsets)
        append_events(store, NAME, segment, [b"x" * (5 << 20)] * 3)
    blocks: list[bytes] = []
    append = LocalAppender.append

    def appended(self: LocalAppender, block: bytes | bytearray | memoryview) -> None:
        blocks.append(bytes(block))
        append(self, block)

    monkeypatch.setattr(LocalAppender, "append", appended)
    streams.replicate()
    assert len(blocks) > 3
    for block in blocks:
        splitter = EventSplitter(0)
        list(splitter.feed(block))
        splitter.finish()


@pytest.mark.parametrize(
    "what", ["the same", "another stream", "its tail moved back", "its head moved back", "other segments"]
)
def test_witness_of_a_source(streams: Streams, what: str) -> None:
    streams.replicate()
    record = ledger_of(streams).newest
    with ExitStack() as stack:
        source = open_source(streams.source, stack)
        described = source.look().described
        assert record.tail is not None
        assert record.source_head is not None
        changed = {
            "the same": record,
            "another stream": replace(record, work="replica.other", tail=None, source_head=None),
            "its tail moved back": replace(record, tail={s: offset + 1 for s, offset in record.tail.items()}),
            "its head moved back": replace(
                record, source_head={s: offset + 1 for s, offset in record.source_head.items()}
            ),
            "other segments": replace(record, tail={f"{NAME}/99.#epoch.0": 1}),
        }[what]
        with nullcontext() if what == "the same" else pytest.raises(Conflict, match="deleted and created again"):
            check_same(source, described, TargetOptions(offsets="keep", numbers="map"), changed, streams.target)


def test_replica_with_more_than_its_source_is_refused_before_the_source_is_read(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.replicate()
    with streams.store as store:
        for segment in store.describe(TARGET).tail.offsets:
            append_events(store, TARGET, segment, [b"of another writer"])
    monkeypatch.setattr(ImportRun, "_fill_task", lambda *_: pytest.fail("the shape shows it"))
    with pytest.raises(TargetTaken, match="written to by another process; the source has"):
        streams.replicate()
