"""Concurrent work on the same stream, archive or target while a command runs."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from itertools import pairwise

import pytest

from streamvault import check_archive, export_stream, import_stream, show_archive
from streamvault.common.progress import Progress
from streamvault.exporter.plan import TRUNCATED_BEFORE
from streamvault.importer.target import TargetBusy, lease_stream, take_lease
from streamvault.sources.reader import TRUNCATED
from streamvault.streamstore import lease
from streamvault.streamstore.model import EventPointer, Scaling, StreamConfiguration, StreamCut, StreamName
from testkit.commands import run, started, wait_until
from testkit.streams import append_events, boundary, digest_of, events_of, make_stream, opened, payloads, shape_of
from tests.faults.conftest import Contents, contents_of, rows_of
from tests.integration.conftest import Place

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.timeout(300)]

SMALL_RANGES = 128 * 1024


def archived(place: Place) -> Contents:
    return contents_of(place.minio.client(), place.bucket, f"vault/{place.source}/")


class Meanwhile(Progress):
    """Does something once the plan exists and no byte has moved, and again whenever a range is finished."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self._act = act
        self._times = 0
        self.warnings: list[str] = []

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:  # noqa: ARG002  (of `Progress`)
        if what == "exporting":
            self._act(0)

    def advance(self, events: int, size: int) -> None:  # noqa: ARG002  (of `Progress`)
        self._times += 1
        self._act(self._times)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def key_of(pointer: EventPointer) -> str:
    segment = pointer.segment
    return f"events/{segment.epoch:010d}.{segment.number:010d}/{pointer.offset:019d}-{pointer.length:010d}"


def plain_stream(place: Place, segments: int, events: int, *, largest: int = 64 * 1024) -> None:
    """A stream of one epoch."""
    place.store.create_scope(place.source.scope)
    place.store.create_stream(place.source, StreamConfiguration(scaling=Scaling(min_segments=segments)))
    for segment in place.store.describe(place.source).tail.offsets:
        append_events(place.store, place.source, segment, payloads(events, segment.number, largest=largest))


def test_writer_does_not_change_the_generation_being_exported(place: Place) -> None:
    make_stream(place.store, place.source, events=2000, largest=64 * 1024)
    first = {pointer for pointer, _ in events_of(place.store, place.source)}
    tail = list(place.store.describe(place.source).tail.offsets)

    def write(times: int) -> None:
        for segment in tail:
            append_events(place.store, place.source, segment, payloads(20, times * 100 + segment.number))

    report = export_stream(place.uri, place.root, range_size=SMALL_RANGES, master="inline", progress=Meanwhile(write))
    assert report.events == len(first)
    assert archived(place).events == sorted(key_of(pointer) for pointer in first)
    everything = {pointer for pointer, _ in events_of(place.store, place.source)}
    assert len(everything) > len(first) + 100

    second = export_stream(place.uri, place.root, range_size=SMALL_RANGES, master="inline")
    assert second.generation == 2
    assert second.events == len(everything - first)
    assert archived(place).events == sorted(key_of(pointer) for pointer in everything)
    assert check_archive(place.archive, read_data=True, master="inline").ok


def test_export_ends_beside_a_constant_writer(place: Place) -> None:
    """Generations written one after another while a writer appends contain together every event once."""
    plain_stream(place, 2, 500)
    tail = list(place.store.describe(place.source).tail.offsets)
    done = threading.Event()

    def write() -> None:
        times = 0
        while not done.wait(0.02):
            times += 1
            append_events(place.store, place.source, tail[times % 2], payloads(5, times, largest=1000))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [export_stream(place.uri, place.root, master="inline") for _ in range(4)]
    finally:
        done.set()
        writer.join()
    reports.append(export_stream(place.uri, place.root, master="inline"))
    assert [report.generation for report in reports if not report.unchanged] == [1, 2, 3, 4, 5][: len(reports)]
    manifests = [show_archive(place.archive, generation=report.generation) for report in reports]
    for before, after in pairwise(manifests):
        assert after.from_ == before.to
    pointers = [pointer for pointer, _ in events_of(place.store, place.source)]
    assert sum(manifest.events for manifest in manifests) == len(pointers)
    assert archived(place).events == sorted(map(key_of, pointers))
    target = StreamName(place.source.scope, "restored")
    import_stream(place.archive, place.uri_of(target), master="inline")
    assert digest_of(place.store, target) == digest_of(place.store, place.source)


def test_export_joins_one_that_is_nearly_done(place: Place) -> None:
    """The second one begins at any point of the first: also while the first publishes and cleans up."""
    make_stream(place.store, place.source, events=1000, largest=16 * 1024)
    pointers = sorted(key_of(pointer) for pointer, _ in events_of(place.store, place.source))
    client, environment = place.minio.client(), place.minio.environment()
    for number in range(3):
        root = f"vault{number}"
        command = ("export", place.uri, f"s3://{place.bucket}/{root}", "--range-size", "16KiB", "--master", "inline",
                   "--json")  # fmt: skip
        with started(*command, environment=environment) as one:

            def has_come_far(root: str = root, rows: int = 1 + 4 * number) -> bool:
                return len(rows_of(client, place.bucket, f"{root}/{place.source}/")[1]) >= rows

            wait_until(has_come_far, one)
            with started(*command, environment=environment) as other:
                ended = [one.ended(), other.ended()]
        assert [each.code for each in ended] == [0, 0], [each.err for each in ended]
        assert {each.report["generation"] for each in ended} == {1}
        contents = contents_of(client, place.bucket, f"{root}/{place.source}/")
        assert contents.is_finished
        assert contents.events == pointers


def test_import_refuses_the_target_of_another_import(place: Place) -> None:
    """Another archive, while the first import runs and after it: rejected, and nothing is changed."""
    make_stream(place.store, place.source, events=2500, largest=256 * 1024)
    export_stream(place.uri, place.root, master="inline")
    append_events(place.store, place.source, next(iter(place.store.describe(place.source).tail.offsets)), [b"more"])
    export_stream(place.uri, place.root, master="inline")
    target = StreamName(f"scope-{uuid.uuid4().hex[:10]}", "restored")
    command = ("import", place.archive, place.uri_of(target), "--master", "inline", "--json")
    environment = place.minio.environment()
    with started(*command, environment=environment) as one:
        assert wait_until(lambda: place.store.exists(target), one), one.ended()
        other = run(*command, "--generation", "1", environment=environment)
        assert other.code == 4, other.err
        assert one.ended().code == 0
    assert digest_of(place.store, target) == digest_of(place.store, place.source)
    assert run(*command, "--generation", "1", environment=environment).code == 4
    assert run(*command, environment=environment).report["unchanged"]
    assert digest_of(place.store, target) == digest_of(place.store, place.source)


@pytest.mark.parametrize("offsets", [pytest.param("keep", marks=pytest.mark.long), "shift"])
def test_truncation_during_an_export_is_a_gap(place: Place, offsets: str) -> None:
    plain_stream(place, 2, 1500, largest=32 * 1024)
    pointers = [pointer for pointer, _ in events_of(place.store, place.source)]
    tail = place.store.describe(place.source).tail.offsets
    cuts = {}
    for share in (0.3, 0.7):
        cut = {segment: boundary(place.store, place.source, segment, share) for segment in tail}
        cuts[share] = StreamCut(place.source, cut)

    def truncate(times: int) -> None:
        if times == 2:
            place.store.truncate(cuts[0.3])
        if times == 5:
            place.store.truncate(cuts[0.7])

    watching = Meanwhile(truncate)
    report = export_stream(place.uri, place.root, range_size=16 * 1024, master="inline", progress=watching)
    assert report.gaps
    assert all(gap.reason == TRUNCATED for gap in report.gaps)
    assert all(any(f"{gap.segment} bytes {gap.start} to {gap.end}" in text for text in watching.warnings)
               for gap in report.gaps)  # fmt: skip
    manifest = show_archive(place.archive)
    assert [(gap.segment, gap.start, gap.end, gap.reason) for gap in manifest.gaps] == [
        (gap.segment, gap.start, gap.end, gap.reason) for gap in report.gaps
    ]

    def is_gone(pointer: EventPointer) -> bool:
        name = pointer.segment.in_stream(place.source)
        return any(gap.segment == name and gap.start <= pointer.offset < gap.end for gap in report.gaps)

    kept = [pointer for pointer in pointers if not is_gone(pointer)]
    assert 0 < len(kept) < len(pointers)
    assert report.events == len(kept)
    assert archived(place).events == sorted(map(key_of, kept))
    # everything that could still be read was archived
    assert set(kept) >= {pointer for pointer, _ in events_of(place.store, place.source)}
    assert check_archive(place.archive, read_data=True, master="inline").ok
    again = export_stream(place.uri, place.root, master="inline")
    assert again.unchanged

    target = StreamName(place.source.scope, "restored")
    back = import_stream(place.archive, place.uri_of(target), offsets=offsets, master="inline")  # type: ignore[arg-type]
    assert back.events == len(kept)
    restored = list(events_of(place.store, target))
    if offsets == "shift":
        assert len(restored) == len(kept)
        assert all(start == 0 for _, start, _ in shape_of(place.store, target)["live"])  # type: ignore[attr-defined]
        return
    places = {(pointer.segment, pointer.offset, pointer.length) for pointer in kept}
    filler = [
        payload for pointer, payload in restored if (pointer.segment, pointer.offset, pointer.length) not in places
    ]
    assert len(restored) == len(kept) + len(filler)
    assert not b"".join(filler).strip(b"\0")
    assert place.store.describe(target).tail.offsets == tail


def test_truncation_between_generations_is_a_gap(place: Place) -> None:
    plain_stream(place, 2, 200)
    export_stream(place.uri, place.root, master="inline")
    tail = place.store.describe(place.source).tail.offsets
    for segment in tail:
        append_events(place.store, place.source, segment, payloads(100, 5, largest=2000))
    cut = {segment: boundary(place.store, place.source, segment, 0.97) for segment in tail}
    assert all(cut[segment] > tail[segment] for segment in tail)
    place.store.truncate(StreamCut(place.source, cut))
    report = export_stream(place.uri, place.root, same_stream=True, master="inline")
    assert {(gap.segment, gap.start, gap.end, gap.reason) for gap in report.gaps} == {
        (segment.in_stream(place.source), tail[segment], cut[segment], TRUNCATED_BEFORE) for segment in tail
    }
    assert report.warnings
    assert check_archive(place.archive, read_data=True, master="inline").ok
    target = StreamName(place.source.scope, "restored")
    back = import_stream(place.archive, place.uri_of(target), offsets="keep", master="inline")
    manifests = [show_archive(place.archive, generation=number) for number in (1, 2)]
    assert back.events == sum(manifest.events for manifest in manifests)
    assert place.store.describe(target).tail.offsets == place.store.describe(place.source).tail.offsets


def test_import_that_lost_its_lease_leaves_it_to_the_new_holder(place: Place) -> None:
    """An import that was stopped for long is replaced by another run, and changes nothing of that run's work."""
    place.store.create_scope(place.source.scope)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "BEAT_SECONDS", 3600.0)
        patch.setattr(lease, "PATIENCE_SECONDS", 1.0)
        silent = take_lease(opened(place.store, place.source), "work")
        alive = take_lease(opened(place.store, place.source), "work")
        assert alive.former is not None
        with pytest.raises(TargetBusy):
            silent.finishing()
        silent.release(remove=True)
        assert place.store.exists(lease_stream(place.source)), "the lease is the other's now"
        alive.finishing()
        alive.check()
        alive.release(remove=True)
        assert not place.store.exists(lease_stream(place.source))


def test_stream_being_created_is_waited_for(place: Place) -> None:
    """An existing stream can be described, also while another process is still creating it."""
    place.store.create_scope(place.source.scope)
    for number in range(10):
        name = StreamName(place.source.scope, f"made-{number}")
        maker = threading.Thread(
            target=place.store.create_stream, args=(name, StreamConfiguration(scaling=Scaling(min_segments=5)))
        )
        maker.start()
        while not place.store.exists(name):
            pass
        assert len(place.store.describe(name).tail.offsets) == 5
        maker.join()
