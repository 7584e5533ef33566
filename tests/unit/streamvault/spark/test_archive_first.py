"""A streaming query that reads a stream's archive first, simulated without Spark: its batches, and the seam."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from streamvault import rotate_stream
from streamvault.common.errors import Conflict, Problem
from streamvault.common.progress import Progress
from streamvault.lake.read import Expired, read_part
from streamvault.manifests.merging import delete_replaced
from streamvault.runner.inline import InlineRunner
from streamvault.spark.pravega_reader import DataLoss
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import KeyRange, StreamConfiguration
from testkit.small_archives import NAME, Vault, archive_of, merge
from testkit.streams import append_events
from tests.spark_reads import FIRST, events_in, source, text
from tests.unit.streamvault.spark.test_pravega_stream import Following, check_order

ARCHIVED = "archived"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path)


def follow(vault: Vault, **options: str) -> Following:
    """A query that begins at its default."""
    return Following(vault.folder, archive=vault.archive, **options)


def payloads_in(batches: list[Any]) -> list[bytes]:
    return [payload for batch in batches for _, payload in batch]


def grow(vault: Vault) -> list[Any]:
    """Three generations, scales between them, and what the archive does not have; returns all events."""
    vault.make(events=300, largest=5000)
    events = vault.events()
    vault.export("chunks", "zstd")
    for turn in range(2):
        with vault.store as store:
            segment = max(store.describe(NAME).tail.offsets)
            append_events(store, NAME, segment, [b"before %d" % turn] * 5)
            store.scale(NAME, [segment], [store.describe(NAME).epochs[-1].segments[segment]])
        vault.add(*[b"between %d" % turn] * 20)
        vault.export("chunks")
    tail = vault.described.tail
    vault.add(b"alive", b"and well")
    events = sorted({*events, *vault.events()})
    vault.truncate(tail)  # as a rotation does: what is archived is in the archive alone
    return events


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxBytesPerTrigger": "10KiB"},
        {"maxEventsPerTrigger": "20"},
        {"maxBytesPerTrigger": "1"},
        {"maxBytesPerTrigger": "10KiB", "maxEventsPerTrigger": "5"},
    ],
)
def test_archive_and_stream_are_read_once_and_in_order(vault: Vault, options: dict[str, str]) -> None:
    events = grow(vault)
    following = follow(vault, **options)
    batches = following.follow()
    with vault.store as store:
        check_order(store, batches)
    assert sorted(event for batch in batches for event in batch) == events
    if options == {"maxBytesPerTrigger": "10KiB"}:
        assert max(sum(pointer.length for pointer, _ in batch) for batch in batches) <= 11 * 1024
    assert ARCHIVED not in following.at
    vault.add(b"later")
    assert set(payloads_in(following.follow())) == {b"later"}
    # what it has reached is read on without the archive, too
    made = source(vault.folder)
    vault.add(b"last")
    reader = made.streamReader(made.schema())
    assert reader.latestOffset(following.at, following.limit) != following.at


def test_query_goes_on_with_an_archive_that_grows_and_is_compacted(vault: Vault) -> None:
    events = grow(vault)
    following = follow(vault, maxEventsPerTrigger="20")
    at, ends = following.at, []
    for _ in range(4):
        ends.append(following.reader.latestOffset(at, following.limit))
        assert ARCHIVED in ends[-1]
        at = ends[-1]
    vault.export("chunks")
    tail = vault.described.tail
    vault.add(b"more")
    vault.truncate(tail)
    merge(vault, 1, 4)
    # batches of ranges that are part of larger ones by now
    batches = following.follow()
    assert sorted(event for batch in batches for event in batch) == sorted({*events, *vault.events()})


def test_gap_between_archive_and_stream_is_one_line(vault: Vault) -> None:
    vault.create()
    vault.add(b"1")
    vault.export()
    query = follow(vault)
    vault.add(b"lost", b"2")
    vault.truncate(9 + 12)
    for begin in (lambda: follow(vault), query.follow):
        with pytest.raises(DataLoss, match="the stream begins after its archive's end") as lost:
            begin()
        assert "\n" not in str(lost.value)
    assert payloads_in(query.batches) == [b"1"]
    assert payloads_in(follow(vault, failOnDataLoss="false").follow()) == [b"1", b"2"]


def test_other_stream_of_the_same_name_is_refused(vault: Vault) -> None:
    vault.create()
    vault.add(b"archived")
    vault.export()
    query = follow(vault)
    query.at = query.reader.latestOffset(query.at, query.limit)
    vault.seal()
    vault.delete()
    vault.create_stream(NAME, StreamConfiguration())
    segment = max(vault.tail())
    vault.write(NAME, segment, [b"another", b"and more of it"])
    for begin in (lambda: follow(vault), query.follow):
        with pytest.raises(Conflict, match="not the one that was archived") as refused:
            begin()
        assert "Give the archive of this stream" in str(refused.value)
    assert query.batches == []


def test_stream_with_other_bytes_is_refused_at_the_seam(vault: Vault, tmp_path: Path) -> None:
    """Same name, same segments, same length."""
    vault.create()
    vault.add(b"archived")
    vault.export()
    query = follow(vault)
    query.at = query.reader.latestOffset(query.at, query.limit)
    shutil.rmtree(tmp_path / "streams")
    vault.create()
    vault.add(b"ARCHIVED", b"more")
    for begin in (lambda: follow(vault), query.follow):
        with pytest.raises(Conflict, match="differ"):
            begin()


def test_expired_generations_are_data_loss(vault: Vault) -> None:
    vault.create()
    for turn in range(3):
        vault.add(b"%d" % turn)
        vault.export()
    queries = {may: follow(vault, failOnDataLoss=may, maxEventsPerTrigger="1") for may in ("true", "false")}
    planned = queries["false"].reader.latestOffset(queries["false"].at, queries["false"].limit)
    rotate_stream(vault.uri(), vault.root, keep=1, master="inline[1]")
    with pytest.raises(DataLoss, match="have expired from the archive"):
        queries["true"].follow()
    assert queries["false"].reader.partitions(queries["false"].at, planned) == []
    assert payloads_in(queries["false"].follow()) == [b"2"]
    assert payloads_in(follow(vault).follow()) == [b"2"], "a new query begins where the archive does"


@pytest.mark.parametrize("layout", ["chunks", "events"])
@pytest.mark.parametrize("may", ["true", "false"])
def test_range_that_expires_before_its_task_reads_it_is_data_loss(vault: Vault, layout: str, may: str) -> None:
    vault.create()
    for turn in range(3):
        vault.add(b"%d" % turn)
        vault.export(layout)
    query = follow(vault, failOnDataLoss=may)
    end = query.reader.latestOffset(query.at, query.limit)
    parts = query.reader.partitions(query.at, end)
    rotate_stream(vault.uri(), vault.root, keep=1, master="inline[1]")
    if may == "true":
        with pytest.raises(DataLoss, match="a range expired from the archive before it was read") as lost:
            events_in(query.reader.read(parts[0]))
        assert "\n" not in str(lost.value)
        assert "failOnDataLoss" in str(lost.value)
    else:
        assert [events_in(query.reader.read(part)) for part in parts[:2]] == [[], []]
    assert [payload for _, payload in events_in(query.reader.read(parts[2]))] == [b"2"]
    with pytest.raises(Expired, match="a hold"):
        list(read_part(NAME, parts[0].part))


def test_range_that_is_merged_before_its_task_reads_it_is_read(vault: Vault) -> None:
    events = grow(vault)
    query = follow(vault)
    end = query.reader.latestOffset(query.at, query.limit)
    parts = query.reader.partitions(query.at, end)
    merge(vault, 1, 3)
    delete_replaced(archive_of(vault.root), lambda: InlineRunner(1), Progress())
    found = [event for part in parts for event in events_in(query.reader.read(part))]
    query.at = end
    assert sorted([*found, *(event for batch in query.follow() for event in batch)]) == events


@pytest.mark.parametrize("may", ["true", "false"])
def test_query_goes_on_where_the_segment_it_had_read_has_expired(vault: Vault, may: str) -> None:
    """Its checkpoint is recognized by bytes of a segment of which the archive has nothing any more."""
    vault.create()
    vault.add(b"0")
    with vault.store as store:
        store.scale(NAME, [FIRST], [KeyRange(0.0, 1.0)])
    vault.export()
    query = follow(vault, failOnDataLoss=may)
    while ARCHIVED in (end := query.reader.latestOffset(query.at, query.limit)):
        query.at = end
    for payload in (b"1", b"2"):
        vault.add(payload)
        vault.export()
    rotate_stream(vault.uri(), vault.root, keep=2, master="inline[1]")
    assert payloads_in(query.follow()) == [b"1", b"2"]


def test_stream_is_looked_at_after_its_archive(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would lack what is written and archived between the two looks."""
    vault.create()
    vault.add(b"1")
    vault.export()
    query, really = follow(vault), LocalStore.describe

    def describe(self: LocalStore, *arguments: Any) -> Any:
        described = really(self, *arguments)
        monkeypatch.setattr(LocalStore, "describe", really)
        vault.add(b"2")
        vault.export()
        return described

    monkeypatch.setattr(LocalStore, "describe", describe)
    assert payloads_in(query.follow()) == [b"1", b"2"]


def test_query_ends_within_the_archive(vault: Vault) -> None:
    vault.create()
    vault.add(b"1")
    cut = vault.described.tail
    vault.add(b"2")
    vault.export()
    vault.add(b"3")
    assert payloads_in(follow(vault, endingOffsets=text(cut)).follow()) == [b"1"]
    assert payloads_in(follow(vault, startingOffsets=text(cut)).follow()) == [b"2", b"3"]
    query = follow(vault)
    query.reader.prepareForTriggerAvailableNow()
    vault.add(b"4")
    vault.export()
    assert payloads_in(query.follow()) == [b"1", b"2", b"3"]


def test_query_within_the_archive_has_an_offset_of_its_own(vault: Vault) -> None:
    """Each offset is that of the stream, so that a scale in the archive is read in order, without the stream."""
    vault.create()
    vault.add(b"1")
    with vault.store as store:
        store.scale(NAME, [FIRST], [KeyRange(0.0, 1.0)])
    vault.add(b"2")
    vault.export()
    query = follow(vault)
    assert query.at == {**query.at, "scope/stream/0.#epoch.0": 0, ARCHIVED: True}
    assert [payloads_in([batch]) for batch in query.follow() if batch] == [[b"1"], [b"2"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"archive": "file:///vault/scope/other"}, "it is the archive of scope/other, not of scope/stream"),
        ({"archive": "file:///vault/scope/stream", "from": "latest"}, "reads nothing of the archive"),
        ({"archive": "here"}, "not an archive URI: option archive of format pravega"),
    ],
)
def test_invalid_option_is_one_line(tmp_path: Path, store: LocalStore, options: dict[str, str], said: str) -> None:
    del store
    with pytest.raises(Problem, match=said):
        source(tmp_path, **options).schema()


def test_batch_has_no_archive(tmp_path: Path) -> None:
    made = source(tmp_path, archive="file:///vault/scope/stream")
    with pytest.raises(Problem, match="Use readStream, or read the archive"):
        made.reader(made.schema())
