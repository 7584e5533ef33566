"""Ranges as columns are those that were packed, and take little memory, as an archive's plans do.

The checksums of a range's blocks.
"""

from __future__ import annotations

import base64
import pickle
import random
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamvault.importer.from_archive import Selection
from streamvault.importer.plan import plan_restore
from streamvault.importer.reports import RestoreOptions
from streamvault.layouts.archived_range import (
    BLOCK_BYTES,
    ArchivedRange,
    BlockChecksums,
    are_block_checksums,
    block_checksums_hash,
    block_checksums_length,
)
from streamvault.layouts.packed_ranges import Kept, packed
from streamvault.manifests.archive import Archive
from streamvault.manifests.history import Generation, History, select_parts, with_rows
from streamvault.manifests.verbs.check_ranges import range_tasks, strays_tasks
from streamvault.objectstore.store import crc64nvme
from streamvault.objectstore.uri import RootAddress
from streamvault.sources.sources import ArchiveState
from streamvault.streamstore.model import SegmentId, StreamCut
from testkit.small_archives import a_root
from tests.archives import LEFT, NAME, RIGHT, generation

MIB = 2**20
SIZES = st.integers(1, 2**40)


@st.composite
def some_rows(draw: st.DrawFn) -> list[ArchivedRange]:
    rows = []
    for segment in draw(st.lists(st.sampled_from([LEFT, RIGHT, SegmentId(7, 9)]), max_size=8)):
        start, size = draw(st.integers(0, 2**62)), draw(SIZES)
        frames = tuple(draw(st.lists(st.integers(1, 2**31 - 1), max_size=3)))
        texts = [draw(st.sampled_from(["", base64.b64encode(bytes([at] * 8)).decode()])) for at in range(2)]
        digest = draw(st.binary(min_size=32, max_size=32)).hex()
        rows.append(ArchivedRange(segment, start, start + size, draw(SIZES), digest, frames, *texts))
    return rows


@given(some_rows(), st.sampled_from(["all", "objects", "compared", "none"]))
def test_what_is_packed_is_found(rows: list[ArchivedRange], kept: Kept) -> None:
    wanted: dict[SegmentId, list[ArchivedRange]] = {}
    for row in rows:
        blocks = {"all": row.block_checksums, "compared": block_checksums_hash(row.block_checksums)}
        objects = row.crc64nvme if kept in {"all", "objects"} else ""
        known = replace(row, block_checksums=blocks.get(kept, ""), crc64nvme=objects)
        wanted.setdefault(row.segment, []).append(known)
    for found in (held := packed(rows, kept), pickle.loads(pickle.dumps(held))):
        assert {segment: [*map(astuple, some)] for segment, some in found.items()} == {
            segment: [*map(astuple, some)] for segment, some in wanted.items()
        }
        assert all(some == wanted[segment] for segment, some in found.items())


@given(st.sets(st.text("AB", max_size=9), max_size=9))
def test_hashes_tell_checksums_of_blocks_apart(texts: set[str]) -> None:
    found = {block_checksums_hash(text) for text in texts}
    assert len(found) == len(texts)
    assert {len(one) for one in found} <= {0, 12}
    assert ("" in found) == ("" in texts)


RANGES = 3_000
SIZE = 64 * MIB


def a_history(ranges: int) -> History:
    """An archive of a segment with ranges of 64 MiB, all checksums of which are known."""
    noted = base64.b64encode(bytes(8 * 64)).decode()

    def rows() -> Iterator[ArchivedRange]:
        for number in range(ranges):
            start = number * SIZE
            yield ArchivedRange(LEFT, start, start + SIZE, 60_000, f"{number:064x}", (), "AAAAAAAAAAA=", noted)

    made = generation({})
    cut = StreamCut(NAME, {LEFT: ranges * SIZE, RIGHT: 0})
    entries = tuple(one.model_copy(update={"end": cut.offsets[one.id]}) for one in made.manifest.segments)
    manifest = made.manifest.model_copy(update={"to": cut, "segments": entries})
    return History([Generation(with_rows(manifest, rows(), None, ""), packed(rows(), "none"))])


def plans_of_an_import(history: History, archive: Archive) -> object:
    selection = Selection(ArchiveState(archive, history), select_parts(archive.address, history))
    plan = plan_restore(selection.content(RestoreOptions()), RestoreOptions())
    assert plan.bytes == history.bytes
    return selection, plan


def tasks_of_a_check(history: History, archive: Archive) -> object:
    tasks = [range_tasks(history, archive.address, (), share=share, seed=1) for share in (0.0, 0.3, 1.0)]
    return tasks, strays_tasks(history, archive.address, ())


@pytest.mark.parametrize("plans", [plans_of_an_import, tasks_of_a_check])
def test_a_range_takes_60_bytes(plans: Callable[[History, Archive], object]) -> None:
    """A petabyte has 15 million ranges of 64 MiB, and the goal is a gibibyte."""
    archive = Archive(RootAddress.parse(a_root()), NAME)
    tracemalloc.start()
    try:
        held = []
        for ranges in (RANGES, 2 * RANGES):
            history = a_history(ranges)
            before = tracemalloc.get_traced_memory()[0]
            made = plans(history, archive)
            after = tracemalloc.get_traced_memory()[0]
            held.append((after, after - before))
            del history, made
    finally:
        tracemalloc.stop()
    (few, few_plans), (many, many_plans) = held
    assert (many - few) / RANGES < 60
    assert (many_plans - few_plans) / RANGES < 4  # each of the three checks has a byte that says whether it is read


def test_parts_between_cuts_are_those_that_overlap_them() -> None:
    history, archive = a_history(10), Archive(RootAddress.parse(a_root()), NAME)
    begin, end = SIZE + 5, 4 * SIZE + 7

    def between(low: int, high: int) -> list[tuple[int, int]]:
        cuts = (StreamCut(NAME, {LEFT: at, RIGHT: 0}) for at in (low, high))
        return [(part.start, part.end) for part in select_parts(archive.address, history, *cuts)]

    inner = [(at * SIZE, (at + 1) * SIZE) for at in (2, 3)]
    assert between(begin, end) == [(begin, 2 * SIZE), *inner, (4 * SIZE, end)]
    assert between(begin, begin) == []
    assert between(SIZE, 2 * SIZE) == [(SIZE, 2 * SIZE)]
    assert between(begin, begin + 1) == [(begin, begin + 1)]


def test_tasks_that_look_for_strays_are_sent_as_numbers() -> None:
    """Spark must get them, and sends nothing of more than 128 MiB; in the driver, a range has all of its checksums."""
    sizes = []
    for ranges in (100, 200):
        history = a_history(ranges)
        rows = packed((row for some in history.generations[0].rows.values() for row in some), "all")
        whole = History([Generation(history.generations[0].manifest, rows)])
        (task,) = [
            one for one in strays_tasks(whole, Archive(RootAddress.parse(a_root()), NAME).address, ()) if one.ranges
        ]
        sent = pickle.dumps(task)
        assert (
            list(pickle.loads(sent).ranges) == list(task.ranges) == [(n * SIZE, (n + 1) * SIZE) for n in range(ranges)]
        )
        sizes.append(len(sent))
    assert (sizes[1] - sizes[0]) / 100 < 17


DATA = random.Random(1).randbytes(2 * BLOCK_BYTES + 99)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, len(DATA)])
@pytest.mark.parametrize("step", [300_007, BLOCK_BYTES, 4 * BLOCK_BYTES])
def test_checksums_do_not_depend_on_how_the_bytes_are_appended(size: int, step: int) -> None:
    found = BlockChecksums()
    for low in range(0, size, step):
        found.update(DATA[low : min(low + step, size)])
    whole, blocks = found.finish()
    each = [crc64nvme(DATA[low : min(low + BLOCK_BYTES, size)]) for low in range(0, size, BLOCK_BYTES)]
    assert whole == crc64nvme(DATA[:size])
    assert blocks == base64.b64encode(b"".join(map(base64.b64decode, each))).decode()
    assert len(blocks) == block_checksums_length(size)
    assert are_block_checksums(blocks, size)
    assert found.finish() == (whole, blocks)


@pytest.mark.parametrize("text", ["", "AAAAAAAAAAA", "AAAAAAAAAAA=\n", "AAAAAAAAAA==", "AAAA" * 6, "ä" * 12, "." * 12])
def test_other_texts_are_no_checksums_of_a_block(text: str) -> None:
    assert are_block_checksums("AAAAAAAAAAA=", 1)
    assert not are_block_checksums(text, 1)
