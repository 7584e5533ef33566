"""The check: everything missing, changed or extra is found and named, and nothing else.

Chunks compared with the index by what the store says of them, without reading them.

Blocks of a range that were compared with their checksums.
"""

from __future__ import annotations

import base64
import hashlib
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from streamvault import check_archive
from streamvault.common.errors import Damaged
from streamvault.common.progress import Progress
from streamvault.layouts.archived_range import BLOCK_BYTES, ArchivedRange
from streamvault.layouts.keys import EVENT_KEYS, GenerationSpan, Place, PlaceAddress, chunk_key, event_key
from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart, DigestMismatch, compared_blocks
from streamvault.manifests.manifest import PlannedSegment
from streamvault.manifests.plan import create_plan, find_plan
from streamvault.manifests.verbs.check import run_checks
from streamvault.manifests.verbs.check_ranges import (
    MAX_FINDINGS,
    CheckResult,
    check_ranges,
    compare_checksums,
    find_strays,
    foreign_keys,
    range_tasks,
    strays_tasks,
)
from streamvault.manifests.verbs.reports import CheckReport, damage_reports
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.s3 import multipart as s3_checksums
from streamvault.objectstore.s3.access import S3Access
from streamvault.objectstore.s3.multipart import kept_checksums
from streamvault.objectstore.store import KeptChecksums, NoSuchObject
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.inline import InlineRunner
from streamvault.streamstore.events import EventBlock
from streamvault.streamstore.model import SegmentId, StreamCut
from testkit.servers.s3 import S3Server
from testkit.small_archives import Vault, a_root, archive_of
from testkit.streams import frame
from tests.archives import LEFT, NAME, RIGHT, generation, plan_of, publish, two_generations
from tests.metered import MeteredStore

T = TypeVar("T")


@pytest.fixture
def root(tmp_path: Path) -> RootAddress:
    return RootAddress.parse(f"file://{tmp_path}")


@pytest.fixture
def archive(root: RootAddress) -> Archive:
    archive = Archive(root, NAME)
    publish(archive, *two_generations())
    return archive


def sent(task: T) -> T:
    """Serialized, as Spark would send it."""
    return pickle.loads(pickle.dumps(task))


def check(archive: Archive, root: RootAddress, *, share: float = 0.0, seed: int = 1) -> CheckResult:
    """The sums over all of a check's tasks."""
    history = archive.history()
    unfinished = find_plan(archive.place, GenerationSpan.of(history.generation + 1))
    address = PlaceAddress(root, archive.prefix)
    ranges = range_tasks(history, address, (), share=share, seed=seed)
    strays = strays_tasks(history, address, (), unfinished=unfinished)
    results = [
        *(sent(check_ranges(sent(task))) for task in ranges),
        *(sent(find_strays(sent(task))) for task in strays),
        foreign_keys(archive.place, "events", strays),
    ]
    return CheckResult.sum_of(results)


def test_sound_archive_has_no_findings(archive: Archive, root: RootAddress) -> None:
    history = archive.history()
    assert check(archive, root) == CheckResult(events=history.events, bytes=history.bytes)
    assert check(archive, root, share=1.0) == CheckResult(read=4, events=history.events, bytes=history.bytes)


Damage = Callable[[Archive], None]


def put(segment: str, name: str, data: bytes = b"12345") -> Damage:
    return lambda archive: archive.store.put(f"{archive.prefix}events/{segment}/{name}", data)


def remove(epoch: int, number: int, offset: int, length: int) -> Damage:
    key = event_key(SegmentId(epoch, number), offset, length)
    return lambda archive: archive.store.delete([archive.prefix + key])


def change(data: bytes, epoch: int, number: int, offset: int, length: int) -> Damage:
    def damage(archive: Archive) -> None:
        remove(epoch, number, offset, length)(archive)
        archive.store.put(archive.prefix + event_key(SegmentId(epoch, number), offset, length), data)

    return damage


FIRST = "0000000000.0000000000"
DAMAGES: dict[str, tuple[Damage, tuple[str, ...]]] = {
    "missing": (
        remove(0, 0, 0, 11),
        (
            "scope/stream/0.#epoch.0 bytes 0 to 11: no object holds the bytes 0 to 11",
            EVENT_KEYS.after(SegmentId(0, 0), 0),
            "generation 1, 1 event (11 B) lost",
        ),
    ),
    "missing, an empty event": (
        remove(0, 0, 11, 8),
        ("no object holds the bytes 11 to 19", "generation 1, 1 event (8 B) lost"),
    ),
    "missing, in the second generation": (
        remove(0, 1, 125, 12),
        ("bytes 125 to 137: no object holds", "generation 2, 1 event"),
    ),
    "changed in size": (
        change(b"longer", 0, 0, 0, 11),
        ("the object has 6 bytes instead of 3", event_key(SegmentId(0, 0), 0, 11), "generation 1, 1 event (11 B) lost"),
    ),
}  # fmt: skip
STRAYS = {
    "in a range": f"{FIRST}/{5:019d}-{13:010d}",
    "before the first": f"0000000000.0000000001/{0:019d}-{13:010d}",
    "behind the last": f"{FIRST}/{10**9:019d}-{13:010d}",
    "with a foreign name": f"{FIRST}/readme.txt",
    "in a segment of its own": f"0000000007.0000000000/{0:019d}-{13:010d}",
    "in a foreign folder": "other/x",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_kind_of_damage_is_found_and_named(archive: Archive, root: RootAddress, name: str) -> None:
    damage, expected = DAMAGES[name]
    damage(archive)
    result = check(archive, root)
    assert result.found == len(result.findings) == 1
    (line,) = map(str, damage_reports(archive.history(), result.findings))
    assert all(text in line for text in expected), line
    assert line.isprintable()


@pytest.mark.parametrize("name", STRAYS)
def test_strays_are_found_and_no_damage(archive: Archive, root: RootAddress, name: str) -> None:
    put(*STRAYS[name].split("/"))(archive)
    result = check(archive, root, share=1.0)
    assert (result.found, result.stray, result.strays) == (0, 1, (f"{archive.prefix}events/{STRAYS[name]}",))


def test_changed_content_is_found_by_reading_alone(archive: Archive, root: RootAddress) -> None:
    change(b"One", 0, 0, 0, 11)(archive)
    assert check(archive, root).found == 0
    result = check(archive, root, share=1.0)
    assert result.found == 1
    (line,) = map(str, damage_reports(archive.history(), result.findings))
    assert line.startswith("scope/stream/0.#epoch.0 bytes 0 to 19: the archive's bytes do not match the manifest")
    assert line.endswith("generation 1, 2 events (19 B) lost")


def test_range_with_missing_objects_is_not_read(archive: Archive, root: RootAddress) -> None:
    remove(0, 0, 0, 11)(archive)
    assert check(archive, root, share=1.0).read == 3


def test_findings_are_bounded_and_counted(archive: Archive, root: RootAddress) -> None:
    for number in range(MAX_FINDINGS + 50):
        put(FIRST, f"{10**9 + number:019d}-{13:010d}")(archive)
    result = check(archive, root)
    assert (len(result.strays), result.stray, result.found) == (MAX_FINDINGS, MAX_FINDINGS + 50, 0)


def test_objects_of_an_unfinished_generation_are_no_damage(archive: Archive, root: RootAddress) -> None:
    newest = archive.manifest()
    ends = newest.to.offsets
    plan = plan_of(
        3,
        from_=newest.to,
        to=StreamCut(NAME, {LEFT: ends[LEFT] + 100, RIGHT: ends[RIGHT]}),
        segments=(
            PlannedSegment(name=LEFT.in_stream(NAME), start=ends[LEFT], end=ends[LEFT] + 100, sealed=False),
            PlannedSegment(name=RIGHT.in_stream(NAME), start=ends[RIGHT], end=ends[RIGHT], sealed=False),
        ),
        gaps=(),
    )
    put(FIRST, f"{ends[LEFT]:019d}-{13:010d}")(archive)
    assert check(archive, root).stray == 1
    create_plan(archive.place, plan)
    assert check(archive, root).stray == 0
    put(FIRST, f"{ends[LEFT] + 100:019d}-{13:010d}")(archive)
    assert check(archive, root).stray == 1


def test_sample_depends_on_the_seed_and_has_at_least_one_range(tmp_path: Path) -> None:
    root = RootAddress.parse(f"file://{tmp_path}")
    archive = Archive(root, NAME)
    made = generation({LEFT: [[b"%d" % number] for number in range(200)]})
    assert archive.commit(made.manifest, made.rows)

    def sample(share: float, seed: int) -> list[int]:
        ranges = range_tasks(archive.history(), PlaceAddress(root, archive.prefix), (), share=share, seed=seed)
        return [row.start for task in ranges for row, read in zip(task.rows, task.read, strict=True) if read]

    assert len(sample(0.1, 1)) == 20
    assert sample(0.1, 1) == sample(0.1, 1) != sample(0.1, 2)
    assert len(sample(0.0001, 1)) == 1
    assert sample(0.0, 1) == []
    assert len(sample(1.0, 1)) == 200
    assert len({start for seed in range(60) for start in sample(0.1, seed)}) > 190


RAW = ArchivedRange(SegmentId(0, 0), 10, 110, 2, "ab" * 32, crc64nvme="rosUhgp5mIg=")
FRAMED = replace(RAW, frames=(30, 20))
DIGEST = base64.b64encode(b"\xab" * 32).decode()
OTHER = base64.b64encode(bytes(32)).decode()


class Keeping(ObstoreStore):
    """Says the same of every object."""

    def __init__(self, kept: KeptChecksums | None) -> None:
        self.kept = kept

    def checksums(self, key: str) -> KeptChecksums:
        assert key == "scope/stream/chunks/0000000000.0000000000/0000000000000000010-0000000000000000100"
        if self.kept is None:
            raise NoSuchObject("no such object", where=key)
        return self.kept


def compared(row: ArchivedRange, kept: KeptChecksums | None) -> CheckResult:
    [found] = compare_checksums(Place(Keeping(kept), "scope/stream/"), "chunks", [row])
    return found


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (RAW, KeptChecksums(100, crc64nvme="rosUhgp5mIg=")),
        (RAW, KeptChecksums(100, sha256=DIGEST)),
        (RAW, KeptChecksums(100, crc64nvme="rosUhgp5mIg=", sha256=DIGEST)),
        (replace(RAW, crc64nvme=""), KeptChecksums(100, sha256=DIGEST)),
        (FRAMED, KeptChecksums(50, crc64nvme="rosUhgp5mIg=")),
        # the digest is not of the compressed bytes
        (FRAMED, KeptChecksums(50, crc64nvme="rosUhgp5mIg=", sha256=OTHER)),
    ],
)
def test_equal_checksums_are_compared(row: ArchivedRange, kept: KeptChecksums) -> None:
    assert compared(row, kept) == CheckResult(compared=1)


@pytest.mark.parametrize(
    ("row", "kept", "what"),
    [
        (RAW, KeptChecksums(100, crc64nvme="AAAAAAAAAAA="), "the CRC64NVME that the store keeps"),
        (RAW, KeptChecksums(100, sha256=OTHER), "the SHA-256 that the store keeps"),
        (RAW, KeptChecksums(100, crc64nvme="rosUhgp5mIg=", sha256=OTHER), "the SHA-256 that the store keeps"),
        (FRAMED, KeptChecksums(50, crc64nvme="AAAAAAAAAAA="), "the CRC64NVME that the store keeps"),
        (RAW, KeptChecksums(99, crc64nvme="rosUhgp5mIg="), "the object has 99 bytes instead of 100"),
        (FRAMED, KeptChecksums(100, crc64nvme="rosUhgp5mIg="), "the object has 100 bytes instead of 50"),
        (RAW, None, "the object is missing"),
    ],
)
def test_other_checksums_are_damage(row: ArchivedRange, kept: KeptChecksums | None, what: str) -> None:
    [found] = compared(row, kept).findings
    assert found.what.startswith(what)
    assert (found.segment, found.start, found.end, found.events) == (SegmentId(0, 0), 10, 110, 2)


@pytest.mark.parametrize(
    ("row", "kept", "is_kept"),
    [
        (RAW, KeptChecksums(100), False),
        (replace(RAW, crc64nvme=""), KeptChecksums(100, crc64nvme="rosUhgp5mIg="), True),
        (FRAMED, KeptChecksums(50, sha256=DIGEST), True),
    ],
)
def test_what_is_not_compared_is_not_called_good(row: ArchivedRange, kept: KeptChecksums, is_kept: bool) -> None:
    found = compared(row, kept)
    assert found == CheckResult(not_kept=not is_kept, not_indexed=is_kept, not_compared=found.not_compared)
    assert found.not_compared


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        ({"ChecksumCRC64NVME": "rosUhgp5mIg=", "ChecksumType": "FULL_OBJECT"}, KeptChecksums(9, "rosUhgp5mIg=")),
        ({"ChecksumSHA256": DIGEST, "ChecksumType": "FULL_OBJECT"}, KeptChecksums(9, "", DIGEST)),
        ({"ChecksumSHA256": f"{DIGEST}-2", "ChecksumType": "COMPOSITE"}, KeptChecksums(9)),
        ({"ChecksumSHA256": DIGEST, "ChecksumType": "COMPOSITE"}, KeptChecksums(9)),
        ({"ChecksumSHA256": DIGEST}, KeptChecksums(9)),
        ({"ChecksumCRC64NVME": "b8e/EQ==", "ChecksumType": "FULL_OBJECT"}, KeptChecksums(9)),  # moto sends a CRC-32
        ({"ChecksumCRC32": "O0HJ5g==", "ChecksumType": "FULL_OBJECT"}, KeptChecksums(9)),
        ({}, KeptChecksums(9)),
    ],
)
def test_only_checksums_of_all_bytes_count(
    head: dict[str, str], kept: KeptChecksums, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client:
        def head_object(self, **asked: str) -> dict[str, Any]:
            assert asked == {"Bucket": "bucket", "Key": "vault/key", "ChecksumMode": "ENABLED"}
            return {"ContentLength": 9, **head}

    monkeypatch.setattr(s3_checksums, "shared_client", lambda _: Client())
    access = S3Access("http://127.0.0.1:1", "us-east-1", virtual_host=False)
    assert kept_checksums(access, "bucket", "vault/key") == kept


def checked(archive: str, **options: Any) -> CheckReport:
    return check_archive(archive, stored_checksums=True, master="inline", **options)


@pytest.mark.parametrize("place", ["memory", "file", "s3"])
def test_store_without_checksums_is_named(
    place: str, tmp_path: Path, moto_s3: S3Server, bucket_name: str, use_s3: Callable[[S3Server], None]
) -> None:
    use_s3(moto_s3)
    moto_s3.make_bucket(bucket_name)
    roots = {"memory": f"memory://{bucket_name}", "file": tmp_path.as_uri(), "s3": f"s3://{bucket_name}"}
    vault = Vault(tmp_path, root=roots[place])
    vault.make(events=40)
    vault.export("chunks")
    found = checked(vault.archive)
    assert (found.ok, found.checksums_compared, found.checksums_not_kept) == (True, 0, found.ranges)
    assert found.notes == (
        f"the store keeps no checksums: {found.ranges} objects not compared; --read-data compares their bytes",
    )
    assert check_archive(vault.archive, master="inline").checksums_compared is None


def test_objects_of_single_events_are_not_compared(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=40)
    vault.export("events")
    found = checked(vault.archive)
    assert (found.checksums_compared, found.checksums_not_indexed) == (0, found.events)
    why = f"for {found.events} of them, the index has no checksum of the kind that the store keeps"
    assert found.notes == (f"{found.events} objects not compared, such as those of layout events: {why}",)


@pytest.mark.parametrize("compress", ["", "zstd"])
def test_each_chunk_has_its_checksum_in_the_index(
    tmp_path: Path, compress: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is damaged is found, beside those that are not."""
    vault = Vault(tmp_path)
    vault.make()
    vault.export("chunks", compress)
    kept: dict[str, KeptChecksums] = {}
    monkeypatch.setattr(ObstoreStore, "checksums", lambda _, key: kept[key])
    archive = archive_of(vault.root)
    for entry in archive.store.list(f"{NAME}/chunks/"):
        row = row_of(archive, entry.key)
        kept[entry.key] = KeptChecksums(entry.size, row.crc64nvme)
    found = checked(vault.archive)
    assert (found.ok, found.checksums_compared, found.ranges) == (True, len(kept), len(kept))
    damaged = sorted(kept)[1]
    kept[damaged] = replace(kept[damaged], crc64nvme="AAAAAAAAAAA=")
    kept[sorted(kept)[2]] = replace(kept[sorted(kept)[2]], crc64nvme="")
    found = checked(vault.archive)
    assert (found.exit_code, len(found.damage), found.checksums_compared) == (3, 1, len(kept) - 1)
    assert f"({damaged})" in found.findings[0]
    assert found.notes == (
        f"1 object not compared, such as {sorted(kept)[2]}: for 1 of them, the store keeps no checksum",
    )


def row_of(archive: Archive, key: str) -> ArchivedRange:
    history = archive.history()
    rows = [row for segment in history.segments() for _, row in history.ranges(segment)]
    return next(row for row in rows if key.endswith(chunk_key(row.segment, row.start, row.end - row.start)))


def result_of(number: int) -> CheckResult:
    """Of every tenth task, there is something to tell."""
    return CheckResult(strays=(f"{number}",) if number % 10 == 0 else (), stray=number % 10 == 0, events=1, read=1)


def test_results_in_which_nothing_was_found_are_not_held() -> None:
    results = run_checks(InlineRunner(2), result_of, range(100), Progress())
    assert len(results) == 11
    total = CheckResult.sum_of(results)
    assert (total.events, total.read, total.stray) == (100, 100, 10)
    assert total.strays == tuple(f"{number}" for number in range(0, 100, 10))


SEGMENT, START = SegmentId(3, 7), 1000
EVENTS = [frame(random.Random(seed).randbytes(60_000)) for seed in range(75)]
BYTES = b"".join(EVENTS)
BLOCKS = range(-(-len(BYTES) // BLOCK_BYTES))


@pytest.fixture(params=["", "zstd"], ids=["raw", "zstd"])
def part(request: pytest.FixtureRequest) -> ArchivedPart:
    """All of a range of four MiB and a bit, as it is archived."""
    address = PlaceAddress(RootAddress.parse(a_root()), "")
    layout = open_layout("chunks", request.param)
    written = layout.write_run(address.open(), SEGMENT, [EventBlock(START, memoryview(BYTES), len(EVENTS))])
    digest = hashlib.sha256(BYTES).hexdigest()
    row = ArchivedRange(SEGMENT, START, START + len(BYTES), len(EVENTS), digest, *written)
    return ArchivedPart.all_of(address, "chunks", row)


def blocks_of(part: ArchivedPart, first: int, last: int) -> memoryview:
    start, end = START + first * BLOCK_BYTES, START + min(last * BLOCK_BYTES, len(BYTES))
    return compared_blocks(replace(part, start=start, end=end))


def flip(part: ArchivedPart, at: int) -> None:
    """Change the object that has a byte of the range."""
    store = part.place.store
    entries = list(store.list(""))
    entry = entries[at * len(entries) // len(BYTES)]
    data = bytearray(store.get(entry.key))
    data[at * len(data) // len(BYTES) if len(entries) == 1 else -1] ^= 1
    store.delete([entry.key])
    store.put(entry.key, bytes(data))


EDGES = [(0, 1), (0, len(BLOCKS)), (1, 3), (len(BLOCKS) - 1, len(BLOCKS))]


@pytest.mark.parametrize(("first", "last"), EDGES)
def test_blocks_are_the_bytes(part: ArchivedPart, first: int, last: int) -> None:
    assert blocks_of(part, first, last) == BYTES[first * BLOCK_BYTES : last * BLOCK_BYTES]


@pytest.mark.parametrize("at", [0, 1_500_000, len(BYTES) - 1])
def test_changed_block_is_not_handed_out(part: ArchivedPart, at: int) -> None:
    """The others are."""
    flip(part, at)
    for number in BLOCKS:
        if number != at // BLOCK_BYTES:
            assert blocks_of(part, number, number + 1) == BYTES[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
            continue
        for first in (number, 0):
            with pytest.raises(Damaged) as caught:
                blocks_of(part, first, number + 1)
            assert f"{SEGMENT}" in caught.value.where or "chunks/" in caught.value.where


def test_frame_that_is_valid_and_has_other_bytes_is_not_handed_out() -> None:
    """A frame's own checksum does not notice that another one took its place."""
    address, layout = PlaceAddress(RootAddress.parse(a_root()), ""), open_layout("chunks", "zstd")
    written = layout.write_run(address.open(), SEGMENT, [EventBlock(START, memoryview(BYTES), len(EVENTS))])
    other = layout.write_run(
        PlaceAddress(RootAddress.parse(a_root()), "").open(), SEGMENT, [EventBlock(START, memoryview(BYTES[::-1]), 1)]
    )
    row = ArchivedRange(SEGMENT, START, START + len(BYTES), 75, "ab" * 32, *written)
    wrong = replace(row, block_checksums=other.block_checksums)
    with pytest.raises(DigestMismatch, match="do not match"):
        compared_blocks(ArchivedPart.all_of(address, "chunks", wrong))


def test_only_the_blocks_that_are_asked_for_are_read(part: ArchivedPart, monkeypatch: pytest.MonkeyPatch) -> None:
    metered = MeteredStore(part.place.store)
    place = part.place._replace(store=metered)
    monkeypatch.setattr(PlaceAddress, "open", lambda _: place)
    blocks_of(part, 2, 3)
    assert metered.meter.bytes_got <= BLOCK_BYTES * 1.1
