"""Replicas of streams of the embedded store: rounds, promotion, moves."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamvault import export_stream, import_stream, replicate_stream, rotate_stream
from streamvault.common.errors import Conflict, Failed, Overtaken, Problem, Usage
from streamvault.common.waiting import Round
from streamvault.importer.reports import TargetOptions
from streamvault.importer.run import ImportRun
from streamvault.importer.target import LOOKS, TargetTaken
from streamvault.replication.replica import Replica
from streamvault.replication.replication import ReplicaTarget, Replication
from streamvault.sources.sources import open_source
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.local.store import LocalAppender
from streamvault.streamstore.own import OWN, is_own
from streamvault.streamstore.uri import open_stream
from testkit.killed import Killed
from testkit.scenes import TARGET, Streams, at_block, killed_at, leave_leases, ledger_of
from testkit.small_archives import NAME
from tests.told import Ran


def is_replica(streams: Streams, *, sealed: bool | None = None) -> bool:
    """Whether a promoted replica has its source's events, shape and policies; ``sealed`` if the source is sealed."""
    but = {} if sealed is None else {"sealed": (True, sealed)}
    return streams.is_like_its_source(f"streamvault-replica-of:{streams.source}", but=but)


def test_rounds_follow_growth_scales_and_truncation(streams: Streams) -> None:
    first = streams.replicate()
    assert (first.ended, first.rounds, first.moved_bytes > 0) == ("caught up", 1, True)
    assert streams.same_events()
    streams.add(b"later", b"")
    streams.scale()
    streams.add(b"after the scale")
    assert streams.replicate(dry_run=True).behind_bytes > 0
    again = streams.replicate()
    assert again.behind_bytes == again.moved_bytes
    assert streams.same_events()
    streams.truncate()
    streams.add(b"after the truncation")
    streams.replicate()
    assert streams.same_events()
    assert OWN in streams.configuration(TARGET).tags
    assert streams.described.head.offsets == streams.describe(TARGET).head.offsets
    assert streams.listed() == [NAME]
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
    assert streams.payloads(TARGET) == streams.payloads()
    streams.promote()
    assert streams.own() == []


@pytest.mark.parametrize("end", ["round", "promotion", "move", "hole"])
def test_head_is_kept(streams: Streams, end: str) -> None:
    """Also if the option was given to one run only, and not to the first one."""
    streams.replicate()
    streams.replicate(keep_head=True)
    before = streams.digest(TARGET)
    streams.truncate()
    if end == "promotion":
        streams.promote(seal_source=True)
    elif end == "move":
        streams.move()
    else:
        streams.replicate()
    assert streams.digest(TARGET) == before
    if end == "hole":
        streams.add(b"lost")
        streams.scale()
        streams.truncate()
        with pytest.raises(Conflict, match="truncated beyond what the replica has"):
            streams.replicate(keep_head=True)


@pytest.mark.usefixtures("impatient")
def test_filler_that_a_replica_has_does_not_count(streams: Streams) -> None:
    limited = {"filler_limit": 0, "offsets": "keep", "numbers": "map"}
    with pytest.raises(Usage, match="more than filler_limit 0"):
        streams.replicate(**limited)
    streams.replicate()
    streams.add(b"replicated")
    streams.replicate(**limited)
    streams.truncate()
    streams.add(b"kept")
    streams.replicate(**limited)
    assert streams.same_events()
    streams.add(b"lost")
    streams.truncate()
    with pytest.raises(Usage, match="more than filler_limit 0"):
        streams.replicate(**limited)
    streams.replicate()
    with killed_at("delete", NAME):
        streams.move(**limited)
    streams.move(**limited)
    assert streams.own() == []


def test_lag(streams: Streams, ran: Ran) -> None:
    none = streams.replicate(dry_run=True)
    assert (none.behind_seconds, none.ended) == (None, None)
    assert none.behind_bytes == sum(8 + len(payload) for payload in streams.payloads())
    streams.replicate()
    even = streams.replicate(dry_run=True)
    assert (even.behind_bytes, even.behind_seconds) == (0, 0.0)
    streams.add(b"x" * 92)
    late = streams.replicate(dry_run=True)
    assert late.behind_bytes == 100 * len(streams.tail())
    assert late.behind_seconds is not None
    assert 0 < late.behind_seconds < 60
    assert "behind" in ran("replicate", streams.source, streams.target, "--dry-run").out


@pytest.mark.parametrize("sealed", [False, True])
def test_promoted_replica_is_a_stream_like_its_source(streams: Streams, *, sealed: bool) -> None:
    if sealed:
        streams.seal()
    streams.replicate()
    report = streams.promote()
    assert (report.sealed, report.unchanged) == (sealed, False)
    if sealed:
        assert is_replica(streams)
    else:  # late appends and scales are refused, as the segments that were open are sealed
        source, copied = streams.described, streams.describe(TARGET)
        assert copied.epochs[:-1] == tuple(source.epochs)
        assert list(copied.epochs[-1].segments.values()) == list(source.epochs[-1].segments.values())
        assert set(copied.tail.offsets.values()) == {0}
        assert streams.same_events()
        with pytest.raises(Conflict, match="promoted before, without sealing its source"):
            streams.promote(seal_source=True)
    assert streams.own() == []
    assert streams.promote().unchanged
    with pytest.raises(Conflict, match="promoted replica of"):
        streams.replicate()


def test_source_may_be_gone(streams: Streams) -> None:
    streams.replicate()
    before = streams.digest()
    streams.delete()
    with pytest.raises(Failed, match="no such stream"):
        streams.replicate()
    assert streams.promote().tail_time
    assert streams.digest(TARGET) == before
    assert streams.own() == []


@pytest.mark.parametrize("offsets", ["keep", "shift"])
def test_cut_over(streams: Streams, offsets: str) -> None:
    streams.replicate(offsets=offsets)
    streams.add(b"written before the cut-over")
    report = streams.promote(seal_source=True)
    assert (report.source_sealed, report.sealed) == (True, False)
    assert report.moved_bytes > 0
    if offsets == "keep":
        assert is_replica(streams, sealed=False)
    else:
        assert streams.payloads(TARGET) == streams.payloads()
    assert streams.own() == []
    assert streams.promote(seal_source=True).unchanged


def test_round_that_ends_between_look_and_ledger_is_no_other_stream(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger of a running replication may be ahead of what was seen of the source before it was read."""
    streams.replicate()
    read, beside = ReplicaTarget.read, []

    def reading(target: ReplicaTarget) -> None:
        if not beside:
            beside.append(True)
            streams.add(b"more")
            streams.replicate()
        read(target)

    monkeypatch.setattr(ReplicaTarget, "read", reading)
    streams.promote(seal_source=True)
    assert is_replica(streams, sealed=False)


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
    assert replicate_stream(archive, streams.target, master="inline").rounds == 1
    assert streams.same_events()
    streams.promote()
    assert streams.same_events()


def test_archive_that_expires_inside_a_later_segment_keeps_shifted_offsets(streams: Streams, tmp_path: Path) -> None:
    """The segments that a scale has opened begin at 0 in the replica, wherever the archive begins by now."""
    root = f"file://{tmp_path}/vault"
    streams.truncate()
    streams.add(b"first")
    export_stream(streams.source, root, master="inline")
    replicate_stream(f"{root}/{NAME}", streams.target, offsets="shift", master="inline")
    streams.scale()
    for event in (b"second", b"third"):
        streams.add(event)
        export_stream(streams.source, root, master="inline")
        replicate_stream(f"{root}/{NAME}", streams.target, offsets="shift", master="inline")
    rotate_stream(streams.source, root, keep=1, master="inline")
    streams.add(b"fourth")
    export_stream(streams.source, root, master="inline")
    replicate_stream(f"{root}/{NAME}", streams.target, offsets="shift", keep_head=True, master="inline")
    newest = max(streams.tail())
    assert streams.tail(TARGET)[newest] == streams.tail()[newest]
    assert streams.payloads(TARGET)[-1] == b"fourth"


def test_source_made_again_is_refused(streams: Streams) -> None:
    streams.replicate()
    streams.remake()
    for verb in (streams.replicate, partial(streams.promote, seal_source=True)):
        with pytest.raises(Conflict, match="deleted and created again"):
            verb()
    streams.promote()


@pytest.mark.parametrize("options", [{}, {"offsets": "shift"}, {"numbers": "keep"}, {"keep_head": True}])
def test_source_of_a_rebuilt_cluster_is_refused_while_the_replicas_open_segments_are_empty(
    streams: Streams, options: dict[str, Any]
) -> None:
    streams.rebuild(*[b"old"] * 20)
    streams.replicate(**options)
    streams.rebuild(*[b"new"] * 20, after=[b"newer"])
    for dry_run in (True, False):
        with pytest.raises(Conflict, match="source is another stream"):
            streams.replicate(**options, dry_run=dry_run)
    assert streams.payloads(TARGET) == [b"old"] * 20


def test_truncated_source_is_followed_while_the_replicas_open_segments_are_empty(streams: Streams) -> None:
    streams.rebuild(*[b"event"] * 20)
    streams.replicate()
    streams.truncate()
    streams.add(b"newer")
    streams.replicate()
    assert streams.payloads(TARGET) == [b"newer"] * 2


def test_source_that_is_made_again_during_a_round_is_refused(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    streams.rebuild(*[b"old"] * 20, after=[b"older"])
    at_block(monkeypatch, 2, lambda: streams.rebuild(*[b"new"] * 20, after=[b"newer"]))
    for dry_run in (False, False, True):  # to the later ones, the replica's last bytes are the source's
        with pytest.raises(Conflict, match="deleted and created again"):
            streams.replicate(dry_run=dry_run)


@pytest.mark.usefixtures("impatient")
def test_dry_run_leaves_the_lease_of_an_interrupted_promotion(streams: Streams) -> None:
    streams.replicate()
    with pytest.MonkeyPatch.context() as patched:
        leave_leases(patched)
        streams.promote()
    left = streams.own()
    assert left
    streams.promote(dry_run=True)
    assert streams.own() == left
    streams.promote()
    assert streams.own() == []


def test_event_cut_short_is_not_promoted(streams: Streams) -> None:
    """A large event is appended in pieces; a kill may leave the first ones."""
    streams.replicate()
    with streams.store as store, store.appender(TARGET, max(streams.tail(TARGET))) as appender:
        appender.append(b"\0\0\0\0\0\0\1\0abc")
    with pytest.raises(Failed, match="ends inside an event"):
        streams.promote()


@pytest.mark.parametrize("rest", [b"abc", bytes(1001), b"a line of a log\n" * 50, bytes(7) + b"\xc8xx"])
def test_byte_replica_has_no_events_to_tear(streams: Streams, rest: bytes) -> None:
    """The source is lost, and a round was killed after it appended and before it recorded that."""
    (segment,) = streams.make_plain()

    def append(data: bytes) -> None:
        with streams.store as store, store.appender(NAME, segment) as appender:
            appender.append(data)

    note = Replica.note

    def kill(self: Replica, *args: object, **changes: object) -> object:
        if "ends" in changes:
            raise Killed
        return note(self, *args, **changes)  # type: ignore[arg-type]

    append(b"first line\n" * 20)
    streams.replicate()
    append(rest)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Replica, "note", kill)
        with pytest.raises(Killed):
            streams.replicate()
    streams.delete()
    streams.promote()
    with streams.store as store:
        assert store.segment_info(TARGET, [segment])[0].write_offset == 220 + len(rest)


def test_replica_with_less_than_its_ledger_says_is_not_promoted(streams: Streams) -> None:
    streams.replicate()
    replica = ledger_of(streams)
    replica.note(ends={segment: end + 8 for segment, end in replica.newest.ends.items()})
    with pytest.raises(Failed, match="fewer bytes than its ledger records"):
        streams.promote()


def test_move_is_a_rename(streams: Streams, ran: Ran) -> None:
    shape, events = streams.shape(), streams.digest()
    assert streams.move(dry_run=True).bytes > 0
    assert streams.listed(own=True) == [NAME]
    assert streams.move().bytes > 0
    moved = streams.shape(TARGET)
    assert streams.digest(TARGET) == events
    for key in ("epochs", "head", "tail", "live", "sealed"):
        assert moved[key] == shape[key]
    tombstone = streams.described
    assert tombstone.sealed
    assert f"streamvault-moved-to:{streams.target}"[:256] in tombstone.configuration.tags
    assert streams.listed() == [TARGET]
    assert streams.own() == []
    assert streams.move().unchanged
    with pytest.raises(Problem, match="the stream was moved"):
        export_stream(streams.source, f"file://{streams.folder}/vault", master="inline")
    assert "already moved" in ran("move", streams.source, streams.target).out


def test_move_without_tombstone(streams: Streams) -> None:
    streams.move(no_tombstone=True, offsets="shift")
    assert streams.listed(own=True) == [TARGET]
    assert set(streams.describe(TARGET).head.offsets.values()) == {0}
    assert streams.move(no_tombstone=True).unchanged


@pytest.mark.usefixtures("impatient")
def test_nothing_follows_a_promotion(streams: Streams) -> None:
    streams.replicate()
    with killed_at("update_stream"):
        streams.promote()
    streams.truncate()
    streams.add(b"late")
    with pytest.raises(TargetTaken, match="a promotion of the replica has not finished"):
        streams.replicate()
    with pytest.raises(Conflict, match="without sealing its source has not finished"):
        streams.promote(seal_source=True)
    with pytest.raises(Conflict, match="promoted without sealing the stream"):
        streams.move()
    assert not streams.is_sealed(NAME)
    streams.promote()
    assert streams.own() == []


@pytest.mark.usefixtures("impatient")
def test_replica_with_filler_is_not_promoted(streams: Streams) -> None:
    streams.replicate()
    streams.add(b"lost")
    streams.truncate()
    streams.add(b"kept")
    with killed_at("appender"):
        streams.replicate()
    with pytest.raises(Failed, match="begins with filler"):
        streams.promote()
    streams.replicate()
    streams.promote()


@pytest.mark.usefixtures("impatient")
def test_import_that_was_killed_is_no_move(streams: Streams, tmp_path: Path) -> None:
    streams.seal()
    root = f"file://{tmp_path}/vault"
    export_stream(streams.source, root, master="inline")
    with killed_at("seal"):
        import_stream(f"{root}/{NAME}", streams.target, master="inline")
    with pytest.raises(TargetTaken):
        streams.move()
    import_stream(f"{root}/{NAME}", streams.target, master="inline")
    assert streams.same_events()
    assert streams.own() == []


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
        with pytest.raises(Conflict, match="another process is updating the replica"):
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


def test_promotion_is_not_finished_unless_the_replica_is_complete(streams: Streams) -> None:
    streams.replicate()
    streams.add(b"more")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Replication, "round", lambda _: Round(changed=False, sealed=False))
        with pytest.raises(Failed, match="does not end where its source ends"):
            streams.promote(seal_source=True)
    assert is_own(streams.configuration(TARGET))
    streams.promote(seal_source=True)
    assert streams.same_events()


def test_blocks_of_a_round_are_whole_events(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a round that is killed leaves whole events."""
    streams.write(NAME, min(streams.tail()), [b"x" * (5 << 20)] * 3)
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
    assert record.tail is not None
    assert record.source_head is not None
    changed = {
        "the same": record,
        "another stream": replace(record, work="replica.other", tail=None, source_head=None),
        "its tail moved back": replace(record, tail={s: offset + 1 for s, offset in record.tail.items()}),
        "its head moved back": replace(record, source_head={s: at + 1 for s, at in record.source_head.items()}),
        "other segments": replace(record, tail={f"{NAME}/99.#epoch.0": 1}),
    }[what]
    with ExitStack() as stack:
        source = open_source(streams.source, stack)
        look, options = source.look(), TargetOptions(offsets="keep", numbers="map")
        replica = Replica(stack.enter_context(open_stream(streams.target)))
        target, replica.record = ReplicaTarget(source, replica, options, keep_head=False), changed
        with nullcontext() if what == "the same" else pytest.raises(Conflict, match="deleted and created again"):
            target.check_same(look)


def test_replica_with_more_than_its_source_is_refused_before_the_source_is_read(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.replicate()
    for segment in streams.tail(TARGET):
        streams.write(TARGET, segment, [b"of another writer"])
    monkeypatch.setattr(ImportRun, "_fill_task", lambda *_: pytest.fail("the shape shows it"))
    with pytest.raises(TargetTaken, match="written to by another process; the source has"):
        streams.replicate()
