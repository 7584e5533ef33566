"""Exports that are overtaken by others, or find leftovers of others: published data stays, and the work continues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamvault import check_archive, export_stream, rotate_stream
from streamvault.common.errors import Conflict, Damaged
from streamvault.exporter import plan as planning
from streamvault.exporter.plan import settle_plan
from streamvault.exporter.reports import ExportOptions
from streamvault.exporter.run import ExportRun
from streamvault.layouts.keys import WORK, GenerationSpan, chunk_key, event_key, manifest_key
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests.archive import Archive
from streamvault.manifests.plan import current_plan, has_ended
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectStoreUnavailable
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.errors import InvalidCut, NoSuchSegment
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamName
from testkit.killed import before_call
from testkit.scenes import SEGMENT, Place
from testkit.small_archives import KINDS, NAME, before_a_decision

KIND_IDS = ["events", "chunks", "zstd"]


def archive_of(place: Place) -> Archive:
    return Archive(RootAddress.parse(place.root), NAME)


@pytest.mark.parametrize("blocks", [0, 1], ids=["at once", "after a block"])
@pytest.mark.parametrize("size", [300_000, 9 * 1024 * 1024], ids=["small", "large"])
def test_missing_segment_that_should_exist_ends_the_run(
    place: Place, blocks: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment store may answer so while it recovers. That is neither a gap nor a reason to retry forever."""
    place.fill([bytes([number + 1]) * size for number in range(6)])
    with place.store as store:
        settle_plan(archive_of(place), store, ExportOptions())
    read, asked = LocalStore.read, 0

    def losing(self: LocalStore, stream: StreamName, segment: SegmentId, start: int, end: int) -> Iterator[memoryview]:
        nonlocal asked
        asked += 1
        assert asked < 20, "the run asks for ever"
        for number, block in enumerate(read(self, stream, segment, start, end)):
            if number == blocks:
                break
            yield block
        raise NoSuchSegment("no such segment", where="0.#epoch.0")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "read", losing)
        with pytest.raises(NoSuchSegment, match="should still have"):
            export_stream(place.uri(), place.root, master="inline")
    report = export_stream(place.uri(), place.root, master="inline")
    assert (report.events, report.gaps) == (6, ())


def test_plan_stays_if_a_run_fails_otherwise(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was away does not make the plan impossible: the next run goes on with it."""
    place.fill([b"one", b"two"])
    archive = archive_of(place)

    def failing(self: ExportRun, *_: object) -> None:
        raise ObjectStoreUnavailable("gone", where=archive.uri)

    monkeypatch.setattr(ExportRun, "_move", failing)
    with pytest.raises(ObjectStoreUnavailable):
        export_stream(place.uri(), place.root, master="inline")
    assert current_plan(archive.place, GenerationSpan.of(1))[1] == 1
    assert not has_ended(archive.place, GenerationSpan.of(1), 1)


def test_plan_of_a_published_generation_is_not_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with a smaller --largest-event finds it impossible, after another run has published it and tidied up."""
    place.fill([b"one", b"two"])

    def late(self: ExportRun, *_: object) -> None:
        monkeypatch.undo()
        export_stream(place.uri(), place.root, master="inline")
        monkeypatch.setattr("streamvault.exporter.run.record_end", ended)
        raise InvalidCut("the cut is within an event", where=str(NAME))

    def ended(*arguments: object) -> None:
        pytest.fail(f"the plan is given up: {arguments[-1]}")

    monkeypatch.setattr(ExportRun, "_move", late)
    report = export_stream(place.uri(), place.root, master="inline")
    assert (report.generation, archive_of(place).generations()) == (1, [1])


@pytest.mark.parametrize(("first", "second"), [("", "zstd"), ("zstd", "")])
def test_ended_plan_does_not_block_another_compression(place: Place, first: Compression, second: Compression) -> None:
    """What it has written is valid, and has the names that runs of the next plan use."""
    place.fill([bytes([number]) * 100 for number in range(20)])
    cut = {f"{NAME}/0.#epoch.0": 1000}
    options: Any = {"layout": "chunks", "range_size": 300, "master": "inline"}
    with pytest.raises(InvalidCut):
        export_stream(place.uri(), place.root, to_cut=cut, compress=first, **options)
    report = export_stream(place.uri(), place.root, compress=second, **options)
    assert report.events == 20
    assert "with its original options" in report.warnings[0]
    assert check_archive(place.archive, read_data=True, master="inline").ok


@pytest.mark.parametrize("layout", ["events", "chunks"])
def test_ended_plan_is_not_taken_up_for_another_clusters_stream(place: Place, layout: LayoutName) -> None:
    """Its events would be mixed with this stream's, and no listing shows which belong to which."""
    other = Place(place.folder / "other")
    place.fill([b"x" * 12, b"y" * 52, b"z" * 100])
    other.fill([b"a" * 22, b"b" * 42, b"c" * 100])
    cut = {f"{NAME}/0.#epoch.0": 20 + 60 + 50}
    with pytest.raises(InvalidCut):
        export_stream(place.uri(), place.root, to_cut=cut, layout=layout, range_size=80, master="inline")
    with pytest.raises(Conflict, match="not the one that was archived here"):
        export_stream(other.uri(), place.root, layout=layout, range_size=80, master="inline")
    assert export_stream(place.uri(), place.root, layout=layout, range_size=80, master="inline").events == 3


@pytest.mark.parametrize("stop", ["list", "get"])
@pytest.mark.parametrize(("layout", "compress"), KINDS, ids=KIND_IDS)
def test_overtaken_sweep_finds_no_damage(
    place: Place, layout: LayoutName, compress: Compression, stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its generation was published and merged with others, and the replaced data is deleted, or all has expired."""
    place.fill([b"\x07" * 40] * 4)
    options: Any = {"layout": layout, "compress": compress, "range_size": 4096, "master": "inline"}
    export_stream(place.uri(), place.root, **options)
    place.write(NAME, SEGMENT, [b"\x08" * 40] * 4)
    archive = archive_of(place)
    stray = {"events": event_key(SegmentId(0, 0), 201, 20), "chunks": chunk_key(SegmentId(0, 0), 201, 20)}[layout]
    archive.store.put(archive.prefix + stray, b"x" * 12)
    method, woken = getattr(ObstoreStore, stop), False
    listed: Any = ObstoreStore.list
    manifest = archive.prefix + manifest_key(GenerationSpan.of(2))
    last = {"list": f"{layout}/0000000000.0000000000/", "get": manifest}[stop]

    def stopping(self: ObstoreStore, key: str, *rest: Any) -> Any:
        nonlocal woken
        if (
            not woken
            and key.endswith(last)
            and manifest in [entry.key for entry in listed(archive.store, f"{NAME}/_manifest/")]
        ):
            woken = True
            place.write(NAME, SEGMENT, [b"\t" * 40] * 4)
            rotate_stream(place.uri(), place.root, keep=1, **options)
        return method(self, key, *rest)

    monkeypatch.setattr(ObstoreStore, stop, stopping)
    assert export_stream(place.uri(), place.root, **options).generation == 2
    assert woken
    assert check_archive(place.archive, read_data=True, repair=True, master="inline").ok


def test_stream_recreated_during_planning_is_not_mixed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the witness were taken after the identity check, it would be the other stream's."""
    other = Place(place.folder / "other")
    place.fill([b"a" * 12, b"b" * 12])
    other.fill([b"x" * 12, b"y" * 12, b"z" * 12])
    export_stream(place.uri(), place.root, master="inline")
    place.write(NAME, SEGMENT, [b"c" * 12])
    read, reads = LocalStore.read, 0

    def changing(self: LocalStore, stream: StreamName, segment: SegmentId, start: int, end: int) -> Any:
        nonlocal reads
        reads += 1
        store = self if reads == 1 else other.store  # the second check of the stream's bytes, and all later ones
        return read(store, stream, segment, start, end)

    monkeypatch.setattr(LocalStore, "read", changing)
    with pytest.raises(Conflict, match="not the one that was archived here"):
        export_stream(place.uri(), place.root, master="inline")


@pytest.mark.parametrize(("layout", "compress"), KINDS, ids=KIND_IDS)
def test_generation_is_published_only_if_all_its_objects_are_listed(
    place: Place, layout: LayoutName, compress: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object disappears after its range was finished, as something else deletes it."""
    place.fill([b"one", b"two"], [b"three"])
    archive, check = archive_of(place), ExportRun._check_source

    def losing(self: ExportRun) -> None:
        archive.store.delete([next(archive.store.list(f"{archive.prefix}{layout}/")).key])
        check(self)

    monkeypatch.setattr(ExportRun, "_check_source", losing)
    with pytest.raises(Damaged, match=r"object is missing|no object holds"):
        export_stream(place.uri(), place.root, layout=layout, compress=compress, master="inline")
    assert archive.generations() == []
    assert not list(archive.store.list(f"{archive.prefix}_manifest/"))


def test_run_whose_generation_has_expired_before_its_manifest_arrives_is_a_conflict(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest finds its name free, as the other run's was deleted with the generation."""
    place.fill([b"one"])
    archive = archive_of(place)

    def others() -> None:
        rotate_stream(place.uri(), place.root, master="inline")
        place.write(NAME, SEGMENT, [b"two"])
        rotate_stream(place.uri(), place.root, keep=1, master="inline")
        assert archive.generations() == [2]

    before_a_decision(monkeypatch, others, part=manifest_key(GenerationSpan.of(1)))
    with pytest.raises(Conflict, match="it has since expired"):
        export_stream(place.uri(), place.root, master="inline")
    assert archive.generations() == [2]
    assert check_archive(place.archive, read_data=True, master="inline").ok


def test_plan_of_a_generation_that_was_published_meanwhile_is_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is created when the other run has published the generation and removed its plan."""
    place.fill([b"one"])
    archive = archive_of(place)
    before_call(monkeypatch, planning, "create_plan", lambda: export_stream(place.uri(), place.root, master="inline"))
    with place.store as store:
        planned = settle_plan(archive, store, ExportOptions())
    assert (planned.plan, planned.newest) == (None, archive.manifest())
    assert archive.store.folders(archive.prefix + WORK) == []
