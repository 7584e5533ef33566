"""A plan and an archive belong to one stream: another stream with the same name is rejected, whatever its shape."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from streamvault import (
    append_streams,
    check_archive,
    compact_archive,
    convert_archive,
    copy_stream,
    export_stream,
    follow_stream,
    import_stream,
    join_streams,
    move_stream,
    replicate_stream,
    request_restore,
    work_queue,
    write_table,
)
from streamvault.common.errors import Conflict
from streamvault.concat import copy_events
from streamvault.concat.copy_events import EventCopying
from streamvault.exporter.plan import settle_plan
from streamvault.exporter.reports import ExportOptions
from streamvault.exporter.run import ExportRun
from streamvault.replication.move import _Move
from streamvault.sources import identity
from streamvault.sources.identity import AnotherSource
from streamvault.sources.sources import LiveState
from streamvault.spark.pravega_reader import PravegaStreamReader
from streamvault.spark.pravega_sink import PravegaStreamSink
from streamvault.spark.pravega_source import PravegaDataSource
from streamvault.streamstore.errors import NoSuchSegment, NoSuchStream
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.local.store import LocalTransactions
from streamvault.streamstore.model import (
    Epoch,
    Epochs,
    KeyRange,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)
from streamvault.streamstore.store import Transaction, Transactions, Written
from testkit.killed import stopped_at
from testkit.scenes import killed_at, killed_at_stage
from testkit.small_archives import NAME, RANGE_SIZE, Vault, archive_of, contents
from testkit.spark_sinks import Place
from testkit.streams import append_events, events_of

FIRST = SegmentId(0, 0)


def made(folder: Path, *payloads: bytes, root: str | None = None) -> Vault:
    """A stream of two segments, with the given events in each."""
    vault = Vault(folder) if root is None else Vault(folder, root)
    with vault.store as store:
        store.create_stream_and_scope(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
    vault.add(*payloads)
    return vault


def plan(vault: Vault) -> None:
    """The state left by a run that was killed right after planning."""
    with vault.store as store:
        settle_plan(archive_of(vault.root), store, ExportOptions(range_size=RANGE_SIZE))


def refused(vault: Vault, first: Vault) -> None:
    before = contents(vault.root)
    with pytest.raises(Conflict) as caught:
        vault.export()
    text = str(caught.value)
    assert f"local://{first.folder}/streams/{NAME}" in text
    assert f"local://{vault.folder}/streams/{NAME}" in text
    assert "below another root" in text
    assert contents(vault.root) == before


@pytest.mark.parametrize(
    "others",
    [(b"other", b"bytes"), (b"other", b"bytes", b"and", b"more"), (b"o",)],
    ids=["as long", "longer", "shorter"],
)
def test_stream_of_another_cluster_is_refused(tmp_path: Path, others: tuple[bytes, ...]) -> None:
    mine = made(tmp_path / "mine", b"these", b"bytes")
    other = made(tmp_path / "other", *others, root=mine.root)
    plan(mine)
    refused(other, mine)
    mine.export()
    refused(other, mine)
    mine.add(b"later")
    assert mine.export().events == 2
    assert check_archive(mine.archive, read_data=True, master="inline").ok


def test_stream_with_another_history_is_refused_although_its_bytes_are_equal(tmp_path: Path) -> None:
    vault = made(tmp_path, b"these", b"bytes")
    vault.export()
    manifest = archive_of(vault.root).manifest()
    with vault.store as store:
        described = store.describe(NAME)
        left, right = described.epochs[0].segments
        other = Epoch(0, {left: KeyRange(0.0, 0.25), right: KeyRange(0.25, 1.0)})
        assert len(identity.check_same_stream(described, store, manifest)) == 2
        with pytest.raises(Conflict, match="its epochs differ"):
            identity.check_same_stream(replace(described, epochs=Epochs([other])), store, manifest)


def test_recreated_stream_is_refused(tmp_path: Path) -> None:
    vault = made(tmp_path, b"these", b"bytes")
    plan(vault)
    vault.delete()
    vault.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
    vault.add(b"other", b"bytes")
    refused(vault, vault)


def test_cluster_under_a_new_name_is_accepted(tmp_path: Path) -> None:
    old = made(tmp_path / "old", b"these", b"bytes")
    old.export()
    (tmp_path / "old").rename(tmp_path / "new")
    new = replace(old, folder=tmp_path / "new")
    new.add(b"later")
    assert new.export().generation == 2


def test_witness_is_what_lies_before_the_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "WITNESS_BYTES", 20)
    vault = made(tmp_path, b"0123456789", b"0123456789")
    with vault.store as store:
        cut = store.describe(NAME).tail
        seen = list(identity.take_witness(store, cut))
        assert [(one.offset, one.length) for one in seen] == [(16, 20), (16, 20)]
        store.truncate(StreamCut(NAME, dict.fromkeys(cut.offsets, 18)))
        assert [(one.offset, one.length) for one in identity.take_witness(store, cut)] == [(18, 18), (18, 18)]
        store.truncate(cut)
        assert list(identity.take_witness(store, cut)) == []


def test_truncated_witness_is_not_compared_and_not_refused(tmp_path: Path) -> None:
    vault = made(tmp_path, b"these", b"bytes")
    vault.export()
    with vault.store as store:
        manifest = archive_of(vault.root).manifest()
        assert identity.check_witness(store, manifest)
        store.truncate(store.describe(NAME).tail)
        assert not identity.check_witness(store, manifest)
    vault.add(b"later")
    assert vault.export().generation == 2


def test_segment_is_gone_only_if_the_head_has_passed_it(tmp_path: Path) -> None:
    vault = made(tmp_path, b"these")
    with vault.store as store:
        with pytest.raises(NoSuchSegment):
            identity.check_gone(store, NAME, FIRST)
        with pytest.raises(Conflict, match="deleted and recreated"):
            identity.check_gone(store, NAME, SegmentId(7, 9))
        store.scale(NAME, [FIRST], [KeyRange(0.0, 0.5)])
        described = store.describe(NAME)
        store.truncate(described.tail)
        identity.check_gone(store, NAME, FIRST)
        store.delete(NAME)
        with pytest.raises(NoSuchStream):
            identity.check_gone(store, NAME, FIRST)


def test_export_of_a_stream_recreated_meanwhile_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is recreated during its export: data of the old and the new stream is not mixed."""
    vault = made(tmp_path, b"these", b"bytes")

    real = ExportRun._move

    def move(self: ExportRun, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        other = made(tmp_path / "other", b"other", b"bytes")
        (tmp_path / "streams").rename(tmp_path / "gone")
        (other.folder / "streams").rename(tmp_path / "streams")

    monkeypatch.setattr(ExportRun, "_move", move)
    with pytest.raises(Conflict, match=r"its bytes 0 to 26 of 0\.#epoch\.0 differ"):
        vault.export()
    assert archive_of(vault.root).generations() == []


def scaled(vault: Vault) -> None:
    with vault.store as store:
        store.scale(NAME, list(store.describe(NAME).tail.offsets), [KeyRange(0.0, 0.25), KeyRange(0.25, 1.0)])


@pytest.mark.parametrize(
    ("replaces", "why"),
    [
        ("exporter.run.ExportRun._move", "the segment ends at 9, but was to be read up to 26"),
        ("exporter.plan.sealed_ends", "it was deleted and recreated in the meantime"),
    ],
    ids=["before it is read", "before the ends of its sealed segments are looked up"],
)
def test_export_of_a_stream_replaced_by_a_shorter_one_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: str, why: str
) -> None:
    vault, other = made(tmp_path / "mine", b"these", b"bytes"), made(tmp_path / "other", b"o")
    archived = "sealed" in replaces
    if archived:
        vault.export()
        scaled(vault)
        scaled(other)
        vault.add(b"later")
    real = resolve_name(f"streamvault.{replaces}")

    def replace_first(*arguments: object, **options: object) -> object:
        (vault.folder / "streams").rename(vault.folder / "gone")
        (other.folder / "streams").rename(vault.folder / "streams")
        return real(*arguments, **options)

    monkeypatch.setattr(f"streamvault.{replaces}", replace_first)
    with pytest.raises(Conflict, match=why):
        vault.export()
    assert len(archive_of(vault.root).generations()) == archived


# What continues a source: it is replaced by another one of the same name and shape, and nothing is touched.

SOURCE, TARGET = StreamName("scope", "stream"), StreamName("scope", "target")
OLD = (b"these", b"are the bytes", b"of the stream")
OTHERS = {
    "as long": (b"THESE", b"ARE THE BYTES", b"OF THE STREAM"),
    "longer": (b"others", b"of more", b"bytes than there were", b"before", b"and even more of them"),
    "shorter": (b"o", b"x"),
}


@dataclass(frozen=True)
class Replaced:
    """A source, which may be an archive, and what continues it."""

    folder: Path

    @property
    def vault(self) -> Vault:
        return Vault(self.folder / "source", f"file://{self.folder}/vault")

    @property
    def source(self) -> str:
        return self.vault.uri(SOURCE)

    @property
    def target(self) -> str:
        return f"local://{self.folder}/target/{TARGET}"

    @property
    def archive(self) -> str:
        return f"{self.vault.root}/{SOURCE}"

    @property
    def queue(self) -> str:
        return f"local://{self.folder}/target/scope/queue"

    def make(self, *payloads: bytes) -> None:
        """Make the source, in place of the one that was there; and its archive."""
        for folder in ("source", "vault"):
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        made(self.folder / "source", *payloads, root=self.vault.root)
        (self.folder / "vault").mkdir()
        export_stream(self.source, self.vault.root, layout="chunks", master="inline[2]")

    def make_target(self) -> None:
        with LocalStore(self.folder / "target") as store:
            store.create_stream_and_scope(TARGET, StreamConfiguration())

    def appended(self) -> list[bytes]:
        with LocalStore(self.folder / "target") as store:
            return sorted(payload for _, payload in events_of(store, TARGET))

    def touched(self) -> object:
        """What the targets have, finished or not, and the tables."""
        with LocalStore(self.folder / "target") as store:
            own = ("streamvault-", "queue")
            names = [name for name in store.list_streams("scope", own=True) if not name.stream.startswith(own)]
            streams = {name: (store.describe(name), list(events_of(store, name))) for name in names}
        tables = self.folder / "tables"
        return streams, {str(path): path.stat().st_size for path in tables.rglob("*") if path.is_file()}


def _append(place: Replaced, source: str) -> object:
    return append_streams([source], place.target, master="inline[2]")


def _join(place: Replaced, source: str) -> object:
    return join_streams([source], place.target.replace("target", "joined"), master="inline[2]")


def _copy(**options: Any) -> Callable[[Replaced, str], object]:
    return lambda place, source: copy_stream(source, place.target + "-copy", master="inline[2]", **options)


def _copy_range(place: Replaced, source: str) -> object:
    segments = list(place.vault.tail(SOURCE))
    cuts = [{segment.in_stream(SOURCE): at for segment in segments} for at in (0, 13)]
    return _copy(ranges=[tuple(cuts)])(place, source)


def _replicate(place: Replaced, source: str) -> object:
    return replicate_stream(source, place.target + "-copy", master="inline[2]")


def _hand_off(place: Replaced, source: str) -> object:
    return write_table(source, root=f"file://{place.folder}/tables", master="inline[1]")


def _follow(place: Replaced, source: str) -> object:
    return follow_stream(source, f"file://{place.folder}/tables", idle=0.05, every=0.01, master="inline[2]")


def _work(place: Replaced, source: str) -> object:
    request_restore(source, place.target + "-copy", queue=place.queue)
    report = work_queue(place.queue, idle=0.0, master="inline[2]")
    if report.failed:
        assert report.failed_exit_codes == (4,)
        raise Conflict("the request failed")
    return report


def _import(place: Replaced, source: str) -> object:
    return import_stream(source, place.target + "-copy", master="inline[2]")


CONTINUED: dict[str, tuple[Callable[[Replaced, str], object], str]] = {
    "append": (_append, ""),
    "append stopped": (_append, "filling"),
    "join": (_join, ""),
    "join stopped": (_join, "filling"),
    "copy": (_copy(), ""),
    "copy stopped": (_copy(), "update_stream"),
    "copy by events": (_copy(method="events"), ""),
    "copy by events stopped": (_copy(method="events"), "update_stream"),
    "copy ranges": (_copy_range, ""),
    "copy ranges stopped": (_copy_range, "filling"),
    "replicate": (_replicate, ""),
    "follow": (_follow, ""),
    "handoff": (_hand_off, ""),
    "import stopped": (_import, "update_stream"),
    "work stopped": (_work, "update_stream"),
}
ONLY_STREAMS = ("copy", "follow")


@contextmanager
def stopped(at: str) -> Iterator[None]:
    """Kill a run right after it has recorded a stage, or before it makes a stream its user's."""
    if not at:
        yield
    elif at == "update_stream":
        with killed_at("update_stream", replace(TARGET, stream="target-copy")):
            yield
    else:
        with killed_at_stage(at, after=True):
            yield


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in CONTINUED
        for kind in ("stream", "archive")
        if not (kind == "archive" and name.startswith(ONLY_STREAMS))
        and not (kind == "stream" and name.startswith(("import", "work")))
    ],
)
def test_source_that_was_replaced_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, others: str
) -> None:
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)
    command, at = CONTINUED[name]
    place = Replaced(tmp_path)
    place.make(*OLD)
    place.make_target()
    (tmp_path / "tables").mkdir()
    source = place.source if kind == "stream" else place.archive
    with stopped(at):
        command(place, source)
    before = place.touched()
    place.make(*OTHERS[others])
    with pytest.raises(Conflict) as caught:
        command(place, source)
    assert caught.value.exit_code == 4
    assert place.touched() == before


def _emptied(place: Replaced, *, history: bool) -> None:
    """Scale the source, so that its open segments are empty, as they are in any stream of this history."""
    with place.vault.store as store:
        ranges = [KeyRange(0.0, 0.25 if history else 0.75), KeyRange(0.25 if history else 0.75, 1.0)]
        store.scale(SOURCE, list(store.describe(SOURCE).tail.offsets), ranges)


@pytest.mark.parametrize("verb", ["append", "join", "copy", "replicate"])
@pytest.mark.parametrize("call", range(1, 9))
def test_source_that_is_replaced_between_the_look_and_its_bytes_is_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, call: int
) -> None:
    """Its tail lies inside an event of the other one, and the bytes that identify it are the other one's."""
    monkeypatch.setattr("streamvault.streamstore.lease.PATIENCE_SECONDS", 0.05)
    place, calls, last = Replaced(tmp_path), count(1), LiveState.last
    place.make(*OLD)
    place.make_target()

    def late(look: LiveState, *given: Any) -> Any:
        if next(calls) == call:
            place.make(*OTHERS["longer"])
        return last(look, *given)

    monkeypatch.setattr(LiveState, "last", late)
    with suppress(Conflict):
        CONTINUED[verb][0](place, place.source)
    monkeypatch.undo()
    with LocalStore(tmp_path / "target") as store:
        for name in store.list_streams("scope"):
            assert {payload for _, payload in events_of(store, name)} in ({*()}, {*OLD}, {*OTHERS["longer"]})


@pytest.mark.parametrize("before", [(_Move, "_delete_compared"), (LocalStore, "delete")], ids=["look", "deletion"])
def test_stream_that_is_made_again_after_it_was_compared_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[object, str]
) -> None:
    """It is open, and has the numbers of the one that was moved, as in a cluster that was rebuilt."""
    place = Replaced(tmp_path)
    place.make(*OLD)
    place.make_target()
    owner, name = before
    real = getattr(owner, name)

    def late(self: Any, what: Any, **options: Any) -> Any:
        if SOURCE in (what, getattr(what, "name", None)):
            place.make(*OTHERS["longer"])
        return real(self, what, **options)

    monkeypatch.setattr(owner, name, late)
    with pytest.raises(Conflict, match="is not the one that was moved"):
        move_stream(place.source, place.target + "-moved", master="inline[2]")
    assert set(place.vault.payloads(SOURCE)) == {*OTHERS["longer"]}
    assert not place.vault.describe(SOURCE).sealed


def test_sealed_stream_that_was_never_compared_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, really = Replaced(tmp_path), _Move._delete_compared
    place.make(*OLD)
    place.make_target()

    def late(move: _Move, old: StreamDescription) -> None:
        place.make(*OTHERS["longer"])
        place.vault.seal(SOURCE)
        really(move, old)

    monkeypatch.setattr(_Move, "_delete_compared", late)
    with pytest.raises(Conflict, match="is not the one that was moved"):
        move_stream(place.source, place.target + "-moved", master="inline[2]")
    assert set(place.vault.payloads(SOURCE)) == {*OTHERS["longer"]}


@pytest.mark.parametrize("other_history", [False, True])
def test_source_whose_segments_are_new_is_compared_by_what_was_before(tmp_path: Path, *, other_history: bool) -> None:
    """Of the same bytes with another history, or of other bytes with the same one."""
    place = Replaced(tmp_path)
    place.make_target()
    place.make(*OLD)
    _emptied(place, history=False)
    _append(place, place.source)
    before = place.touched()
    place.make(*(OLD if other_history else OTHERS["as long"]))
    _emptied(place, history=other_history)
    with pytest.raises(Conflict, match="its epochs differ" if other_history else "its bytes 0 to"):
        _append(place, place.source)
    assert place.touched() == before


def test_history_that_an_earlier_release_has_noted_is_compared() -> None:
    halves = {SegmentId(0, 0): KeyRange(0.0, 0.5), SegmentId(0, 1): KeyRange(0.5, 1.0)}
    first = Epochs([Epoch(0, halves)])
    longer = first.then(Epoch(1, {SegmentId(1, 2): KeyRange(0.0, 1.0)}))
    other = Epochs([Epoch(0, {SegmentId(0, 0): KeyRange(0.0, 0.25), SegmentId(0, 1): KeyRange(0.25, 1.0)})])
    noted = hashlib.sha256(json.dumps([[(0, 0.0, 0.5), (1, 0.5, 1.0)]]).encode()).hexdigest()[:32]
    for known in (f"1.{noted}", identity.history_digest(first)):
        assert identity.has_history(first, known)
        assert identity.has_history(longer, known)
        assert not identity.has_history(other, known)
    assert not identity.has_history(first, identity.history_digest(longer))


def test_source_that_was_truncated_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    place = Replaced(tmp_path)
    place.make_target()
    place.make(*OLD, b"last")
    _append(place, place.source)
    for more in ((b"later",), ()):
        if more:
            place.vault.add(*more)
        else:
            place.make(*OTHERS["as long"], b"LAST", b"later", b"yet later")
        at = dict.fromkeys(place.vault.tail(SOURCE), sum(8 + len(event) for event in OLD))
        place.vault.truncate(StreamCut(SOURCE, at))
        if more:
            assert not append_streams([place.source], place.target, master="inline[2]").warnings
        else:
            with pytest.raises(Conflict, match="differ"):
                _append(place, place.source)
    assert place.appended().count(b"later") == 2


def test_source_that_was_truncated_to_what_was_appended_keeps_its_witness(tmp_path: Path) -> None:
    """Beside another one, which grows, so that another position is recorded."""
    place, beside = Replaced(tmp_path), Replaced(tmp_path / "beside")
    place.make_target()
    place.make(*OLD)
    beside.make(b"beside")
    both = [place.source, beside.source]
    append_streams(both, place.target, master="inline[2]")
    place.vault.truncate(place.vault.describe(SOURCE).tail)
    beside.vault.add(b"more")
    append_streams(both, place.target, master="inline[2]")
    before = place.touched()
    place.make(*OTHERS["longer"])
    with pytest.raises(Conflict, match="differ"):
        append_streams(both, place.target, master="inline[2]")
    assert place.touched() == before


def test_copied_events_are_not_finished_of_another_source(tmp_path: Path) -> None:
    place = Replaced(tmp_path)
    place.make(*OLD)
    with stopped_at(EventCopying, "_finish"):
        copy_stream(place.source, place.target, method="events")
    before = place.touched()
    place.make(*OTHERS["as long"])
    with pytest.raises(Conflict, match="differ"):
        copy_stream(place.source, place.target, method="events")
    assert place.touched() == before


@pytest.mark.parametrize("others", ["as long", "longer"])
def test_source_that_is_replaced_between_batches_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    place = Replaced(tmp_path)
    place.make(*OLD)
    monkeypatch.setattr(copy_events, "BATCH_BYTES", 1)
    monkeypatch.setattr(copy_events, "LEAST_BYTES", 1)
    real, batches = EventCopying._put, count(1)

    def filled(self: EventCopying, *arguments: Any) -> Any:
        if next(batches) == 2:
            place.make(*OTHERS[others])
        return real(self, *arguments)

    monkeypatch.setattr(EventCopying, "_put", filled)
    with pytest.raises(Conflict, match="differ"):
        copy_stream(place.source, place.target, method="events")
    assert next(batches) == 3
    assert place.appended() == [OLD[0]] * 2  # of each segment


def test_source_that_is_replaced_while_it_is_read_is_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Replaced(tmp_path)
    place.make_target()
    place.make(*OLD)
    before = place.touched()
    real = Transactions.check_holds

    def check_holds(self: Transactions, written: Written) -> None:
        real(self, written)
        place.make(*OTHERS["as long"])

    with monkeypatch.context() as patched:
        patched.setattr(Transactions, "check_holds", check_holds)
        with pytest.raises(Conflict, match="differ"):
            _append(place, place.source)
    assert place.touched() == before
    place.make(*OLD)  # it is back: nothing of the other one is in what is appended
    _append(place, place.source)
    assert place.appended() == sorted([*OLD, *OLD])


@pytest.mark.parametrize(
    ("name", "others"),
    [
        *((name, others) for name in ("append", "join", "copy ranges") for others in OTHERS),
        ("append again", "longer"),
        ("copy by events", "shorter"),
    ],
)
def test_source_that_is_replaced_before_it_is_read_and_then_truncated_is_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, others: str
) -> None:
    """Afterwards, nothing is left of it that could be compared: what was read is."""
    place = Replaced(tmp_path)
    place.make_target()
    place.make(*OLD)
    command = CONTINUED[name.removesuffix(" again")][0]
    if name == "append again":
        command(place, place.source)
        place.vault.add(b"later")
    before = place.appended()
    real_begin, real_check = LocalTransactions.begin, Transactions.check_holds

    def begin(self: LocalTransactions, *args: Any) -> Transaction:
        place.make(*OTHERS[others])
        return real_begin(self, *args)

    def check_holds(self: Transactions, written: Written) -> None:
        real_check(self, written)
        place.vault.truncate(place.vault.describe(SOURCE).tail)

    with monkeypatch.context() as patched:
        patched.setattr(LocalTransactions, "begin", begin)
        patched.setattr(Transactions, "check_holds", check_holds)
        with pytest.raises(Conflict, match=r"differ|the segment ends at|shorter") as caught:
            command(place, place.source)
    assert caught.value.exit_code == 4
    with LocalStore(tmp_path / "target") as store:
        held = [event for stream in store.list_streams("scope") for _, event in events_of(store, stream)]
    assert sorted(held) == before


def test_archive_whose_generations_were_merged_or_converted_is_the_same(tmp_path: Path) -> None:
    place = Replaced(tmp_path)
    place.make_target()
    place.make(*OLD)
    _append(place, place.archive)
    place.vault.add(b"later")
    export_stream(place.source, place.vault.root, layout="chunks", master="inline[2]")
    _append(place, place.archive)
    assert compact_archive(place.archive, at_least=2, master="inline[2]").runs
    convert_archive(place.archive, f"file://{tmp_path}/other", layout="events", master="inline[2]")
    shutil.rmtree(tmp_path / "vault")
    (tmp_path / "other").rename(tmp_path / "vault")
    assert append_streams([place.archive], place.target, master="inline[2]").unchanged


@pytest.mark.parametrize("others", OTHERS)
def test_streaming_query_of_a_stream_that_was_replaced_is_refused(tmp_path: Path, others: str) -> None:
    """Wherever its checkpoint is: at a batch that is to be repeated, or at the end of the last one."""
    place = Replaced(tmp_path)
    place.make(*OLD)
    reader = _query(place)
    start = json.loads(json.dumps(reader.initialOffset()))
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(start, end)
    place.make(*OTHERS[others])
    again = _query(place)
    with pytest.raises(AnotherSource, match="another checkpoint"):
        again.latestOffset(end, ReadAllAvailable())
    with pytest.raises(AnotherSource, match="another checkpoint"):
        again.partitions(start, end)


def _query(place: Replaced) -> PravegaStreamReader:
    made = PravegaDataSource({"path": place.source, "startingOffsets": "earliest"})
    return made.streamReader(made.schema())


@pytest.mark.parametrize("others", OTHERS)
def test_named_write_to_a_stream_that_was_replaced_is_refused(tmp_path: Path, others: str) -> None:
    place = Place(tmp_path / "streams")
    sink = PravegaStreamSink(place.writing())
    sink.commit([place.task(*OLD)], 0)
    with place.store as store:
        described = store.describe(StreamName("scope", "target"))
    for path in (tmp_path / "streams" / "scope").glob("target*"):
        shutil.rmtree(path)
    with place.store as store:
        store.create_stream(described.name, described.configuration)
        append_events(store, described.name, min(described.tail.offsets), OTHERS[others])
    before = place.events
    with pytest.raises(Conflict, match=r"deleted and recreated .*(differ|shorter)"):
        sink.commit([place.task(b"next")], 1)
    assert place.events == before
