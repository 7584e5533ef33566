"""A stream with every kind of history is archived on a real S3 server and restored identically, on a real Pravega."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import boto3
import pytest

from streamvault import check_archive, convert_archive, export_stream, get_event, import_stream, show_archive
from streamvault.exporter.reports import ExportReport
from streamvault.importer.reports import ImportReport
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.java_client import JavaClient
from testkit.servers.pravega import PravegaServer
from testkit.servers.s3 import S3Server
from testkit.streams import (
    append_events,
    boundary,
    digest_of,
    events_of,
    make_stream,
    payloads,
    shape_of,
)

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.spark, pytest.mark.timeout(600)]

RANGE_SIZE = 4 * 1024 * 1024


def scope() -> str:
    return f"scope-{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="module")
def bucket(minio: S3Server) -> Iterator[str]:
    """A bucket, and MinIO in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in minio.environment().items():
            patch.setenv(name, value)
        yield minio.make_bucket(f"vault-{uuid.uuid4().hex[:10]}")


KINDS: list[tuple[LayoutName, Compression]] = [("events", ""), ("chunks", ""), ("chunks", "zstd")]
CHUNKS = KINDS[1:]


def kinds(kind: tuple[str, str]) -> str:
    return "-".join(filter(None, kind))


@dataclass(frozen=True)
class BothWays:
    """A stream that was archived and restored, on Spark."""

    store: StreamStore
    server: PravegaServer
    source: StreamName
    restored: StreamName
    bucket: str
    exported: ExportReport
    imported: ImportReport

    @property
    def archive(self) -> str:
        return f"s3://{self.bucket}/vault/{self.source}"


@dataclass(frozen=True)
class Chunked:
    """The same stream, archived as chunks and restored."""

    kind: tuple[LayoutName, Compression]
    archive: str
    restored: StreamName
    exported: ExportReport
    imported: ImportReport


@pytest.fixture(scope="module", params=CHUNKS, ids=kinds)
def chunked(request: pytest.FixtureRequest, both_ways: BothWays) -> Chunked:
    kind: tuple[LayoutName, Compression] = request.param
    uri, root = f"{both_ways.server.uri}/{both_ways.source}", f"s3://{both_ways.bucket}/{kinds(kind)}"
    restored = StreamName(scope(), "restored")
    exported = export_stream(uri, root, layout=kind[0], compress=kind[1], range_size=RANGE_SIZE, master="inline[2]")
    archive = f"{root}/{both_ways.source}"
    imported = import_stream(archive, f"{both_ways.server.uri}/{restored}", master="inline[2]")
    return Chunked(kind, archive, restored, exported, imported)


@pytest.fixture(scope="module")
def both_ways(request: pytest.FixtureRequest, pravega: PravegaServer, bucket: str) -> Iterator[BothWays]:
    source, restored = StreamName(scope(), "source"), StreamName(scope(), "restored")
    with parse_stream(f"{pravega.uri}/{source}")[0].open() as store:
        make_stream(store, source, events=request.config.getoption("--round-trip-events"))
        exported = export_stream(f"{pravega.uri}/{source}", f"s3://{bucket}/vault", range_size=RANGE_SIZE)
        imported = import_stream(f"s3://{bucket}/vault/{source}", f"{pravega.uri}/{restored}")
        yield BothWays(store, pravega, source, restored, bucket, exported, imported)


def keys_of(bucket: str, prefix: str) -> list[tuple[str, int]]:
    """As S3 itself lists them."""
    pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [(entry["Key"], entry["Size"]) for page in pages for entry in page.get("Contents", [])]


def assert_same_stream(store: StreamStore, source: StreamName, restored: StreamName) -> None:
    assert shape_of(store, restored) == shape_of(store, source)
    for (a, one), (b, other) in zip(events_of(store, source), events_of(store, restored), strict=True):
        assert (a.segment, a.offset, a.length) == (b.segment, b.offset, b.length)
        assert one == other


def test_round_trip_restores_every_event(request: pytest.FixtureRequest, both_ways: BothWays) -> None:
    count, digest = digest_of(both_ways.store, both_ways.source)
    assert count > 0.6 * request.config.getoption("--round-trip-events")  # the rest lies before the head
    assert (both_ways.exported.events, both_ways.imported.events) == (count, count)
    assert not both_ways.exported.gaps
    assert_same_stream(both_ways.store, both_ways.source, both_ways.restored)
    assert digest_of(both_ways.store, both_ways.restored) == (count, digest)


def test_s3_listing_is_in_stream_order(both_ways: BothWays) -> None:
    prefix = f"vault/{both_ways.source}/"
    listed = [key.removeprefix(prefix) for key, _ in keys_of(both_ways.bucket, f"{prefix}events/")]
    assert listed == [
        f"events/{p.segment.epoch:010d}.{p.segment.number:010d}/{p.offset:019d}-{p.length:010d}"
        for p, _ in events_of(both_ways.store, both_ways.source)
    ]


def test_second_run_reports_no_change(both_ways: BothWays) -> None:
    before = keys_of(both_ways.bucket, f"vault/{both_ways.source}/")
    again = export_stream(
        f"{both_ways.server.uri}/{both_ways.source}", f"s3://{both_ways.bucket}/vault", master="inline"
    )
    assert (again.unchanged, again.generation, again.events) == (True, 1, 0)
    assert keys_of(both_ways.bucket, f"vault/{both_ways.source}/") == before
    assert not [key for key, _ in before if "/_work/" in key]


def test_archive_passes_its_check(both_ways: BothWays) -> None:
    report = check_archive(both_ways.archive, read_data=True, master="inline")
    assert report.ok, report.findings
    assert report.ranges_read == report.ranges == both_ways.exported.ranges


def test_round_trip_by_chunks_restores_every_event(both_ways: BothWays, chunked: Chunked) -> None:
    count = both_ways.exported.events
    assert (chunked.exported.events, chunked.imported.events) == (count, count)
    assert (chunked.exported.bytes, chunked.exported.ranges) == (both_ways.exported.bytes, both_ways.exported.ranges)
    assert shape_of(both_ways.store, chunked.restored) == shape_of(both_ways.store, both_ways.source)
    assert digest_of(both_ways.store, chunked.restored) == digest_of(both_ways.store, both_ways.source)
    prefix = chunked.archive.removeprefix(f"s3://{both_ways.bucket}/")
    objects = keys_of(both_ways.bucket, f"{prefix}/chunks/")
    assert len(objects) == chunked.exported.ranges
    size = sum(size for _, size in objects)
    assert size < chunked.exported.bytes if chunked.kind[1] else size == chunked.exported.bytes
    assert not keys_of(both_ways.bucket, f"{prefix}/_work/")
    assert not keys_of(both_ways.bucket, f"{prefix}/events/")
    one, other = show_archive(both_ways.archive), show_archive(chunked.archive)
    assert [s.digest for s in one.segments] == [s.digest for s in other.segments]


def test_archive_of_chunks_passes_its_check(both_ways: BothWays, chunked: Chunked) -> None:
    report = check_archive(chunked.archive, read_data=True, master="inline[2]")
    assert report.ok, report.findings
    assert report.ranges_read == report.ranges == both_ways.exported.ranges


def test_get_returns_events_by_pointer(both_ways: BothWays, chunked: Chunked) -> None:
    events = random.Random(11).sample(list(events_of(both_ways.store, both_ways.source)), 8)
    for pointer, payload in events:
        assert get_event(both_ways.archive, str(pointer)) == payload
        assert get_event(chunked.archive, str(pointer)) == payload


def test_archive_of_chunks_is_converted_on_spark(both_ways: BothWays, chunked: Chunked) -> None:
    root = f"s3://{both_ways.bucket}/converted-{kinds(chunked.kind)}"
    compress: Compression = "" if chunked.kind[1] else "zstd"
    report = convert_archive(chunked.archive, root, layout="chunks", compress=compress, master="local[2]")
    assert report.moved_bytes == chunked.exported.bytes
    one, other = show_archive(chunked.archive), show_archive(report.archive)
    assert (other.layout, other.compression) == ("chunks", compress)
    assert other.segments == one.segments
    assert check_archive(report.archive, read_data=True, master="inline[2]").ok
    assert convert_archive(chunked.archive, root, layout="chunks", compress=compress, master="inline").unchanged


def test_java_client_reads_the_same_events(both_ways: BothWays, java_client: JavaClient) -> None:
    with ThreadPoolExecutor(2) as pool:
        source, restored = pool.map(
            lambda stream: java_client.digest(both_ways.server, stream, both_ways.exported.events),
            (both_ways.source, both_ways.restored),
        )
    assert source == restored


def test_generations_contain_exactly_their_events(pravega: PravegaServer, bucket: str) -> None:
    source = StreamName(scope(), "source")
    uri, root = f"{pravega.uri}/{source}", f"s3://{bucket}/vault"
    address, _ = parse_stream(uri)
    with address.open() as store:
        make_stream(store, source, events=1000)
        first = export_stream(uri, root, master="inline")
        before = {p for p, _ in events_of(store, source)}
        tail = sorted(store.describe(source).tail.offsets)
        for segment in tail:
            append_events(store, source, segment, payloads(50, segment.value % 89))
        second = export_stream(uri, root, master="inline")
        assert (first.generation, second.generation) == (1, 2)
        assert second.events == 50 * len(tail)
        manifest = show_archive(f"{root}/{source}")
        assert manifest.from_ == show_archive(f"{root}/{source}", generation=1).to
        new = {p for p, _ in events_of(store, source)} - before
        assert sum(s.events for s in manifest.segments) == len(new)

        store.seal(source)
        third = export_stream(uri, root, master="inline")
        assert (third.generation, third.events) == (3, 0)
        restored = StreamName(source.scope, "restored")
        import_stream(f"{root}/{source}", f"{pravega.uri}/{restored}", master="inline")
        assert store.describe(restored).sealed
        assert_same_stream(store, source, restored)


@pytest.mark.versitygw
@pytest.mark.parametrize("server", [pytest.param("minio", marks=pytest.mark.long), "versitygw"])
def test_generations_of_several_layouts_are_one_stream(
    pravega: PravegaServer,
    server: str,
    request: pytest.FixtureRequest,
    bucket_name: str,
    use_s3: Callable[[S3Server], None],
) -> None:
    """Exported, converted there and back, and imported, on two S3 servers."""
    s3: S3Server = request.getfixturevalue(server)
    use_s3(s3)
    s3.make_bucket(bucket_name)
    source = StreamName(scope(), "source")
    uri, root = f"{pravega.uri}/{source}", f"s3://{bucket_name}/vault"
    address, _ = parse_stream(uri)
    with address.open() as store:
        make_stream(store, source, events=600, largest=50_000)
        for number, (layout, compress) in enumerate([*KINDS, KINDS[0]]):
            for segment in sorted(store.describe(source).tail.offsets) if number else ():
                append_events(store, source, segment, payloads(30, segment.value % 89 + number))
            report = export_stream(
                uri, root, layout=layout, compress=compress, range_size=64 * 1024, master="inline[2]"
            )
            assert report.generation == number + 1
            assert show_archive(f"{root}/{source}").layout == layout
        checked = check_archive(f"{root}/{source}", read_data=True, master="inline[2]")
        assert checked.ok, checked.findings
        archives = [f"{root}/{source}"]
        for layout, compress in (KINDS[2], KINDS[0]):
            made = convert_archive(
                archives[-1],
                f"s3://{bucket_name}/{kinds((layout, compress))}",
                layout=layout,
                compress=compress,
                master="inline[2]",
            )
            assert made.converted == (1, 2, 3, 4)
            assert check_archive(made.archive, read_data=True, master="inline[2]").ok
            archives.append(made.archive)
        for number, archive in enumerate(archives):
            restored = StreamName(source.scope, f"restored-{number}")
            import_stream(archive, f"{pravega.uri}/{restored}", master="inline[2]")
            assert_same_stream(store, source, restored)


@pytest.mark.parametrize(
    "kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[1:])], ids=kinds
)
def test_part_between_two_cuts_is_restored(
    pravega: PravegaServer, bucket: str, kind: tuple[LayoutName, Compression]
) -> None:
    source = StreamName(scope(), "source")
    uri, root = f"{pravega.uri}/{source}", f"s3://{bucket}/vault"
    address, _ = parse_stream(uri)
    with address.open() as store:
        make_stream(store, source, events=2000 if kind == KINDS[0] else 500, largest=200_000)
        described = store.describe(source)
        export_stream(uri, root, layout=kind[0], compress=kind[1], master="inline")
        middle = {
            segment: boundary(store, source, segment, 0.6) if segment in described.head.offsets else 0
            for segment in described.head.offsets
        }
        low = StreamCut(source, middle)
        high = StreamCut(source, {s: boundary(store, source, s, 0.9) for s in described.tail.offsets})
        expected = [
            (p, payload)
            for p, payload in events_of(store, source)
            if p.offset >= low.offsets.get(p.segment, 0) and p.offset < high.offsets.get(p.segment, 2**63)
        ]
        restored = StreamName(source.scope, "part")
        report = import_stream(
            f"{root}/{source}",
            f"{pravega.uri}/{restored}",
            from_cut=low.to_json(),
            to_cut=json.dumps(high.to_json()),
            master="inline",
        )
        assert report.events == len(expected)
        found = [((p.segment, p.offset), payload) for p, payload in events_of(store, restored)]
        assert found == [((p.segment, p.offset), payload) for p, payload in expected]
        shifted = StreamName(source.scope, "shifted")
        report = import_stream(
            f"{root}/{source}",
            f"{pravega.uri}/{shifted}",
            from_cut=low.to_json(),
            to_cut=high.to_json(),
            offsets="shift",
            master="inline",
        )
        assert report.shifts == {s.in_stream(source): offset for s, offset in low.offsets.items() if offset}
        starts: dict[SegmentId, int] = {s: low.offsets.get(s, 0) for s in described.ranges()}
        found = [((p.segment, p.offset + starts[p.segment]), payload) for p, payload in events_of(store, shifted)]
        assert found == [((p.segment, p.offset), payload) for p, payload in expected]
