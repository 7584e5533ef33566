"""The *plan* command: what it computes, beside what the verbs do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from streamvault import plan_archive
from streamvault.common.errors import Usage
from streamvault.exporter import forecast
from streamvault.exporter.run import Destination, ExportTask
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import GenerationSpan, PlaceAddress
from streamvault.layouts.layout import open_layout
from streamvault.manifests.history import by_segment
from streamvault.manifests.index import encode_ranges
from streamvault.manifests.plan import FinishedSpan, RangeEntry
from streamvault.manifests.verbs.costs import LIST_PRICES, Part, list_prices, load_prices
from streamvault.objectstore.uri import RootAddress
from streamvault.sources.proof import SegmentChain
from streamvault.streamstore.model import SegmentId, StreamName
from streamvault.streamstore.uri import parse_stream
from tests.told import Ran

GIB = 2**30
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "plan.md"
PETABYTE = ("--segments", "10000", "--bytes", "1PB", "--events", "1_000_000_000_000")


def test_petabyte_takes_little_memory_and_no_server() -> None:
    """A minute of a core at most, whatever the machine does besides; a gigabyte at most."""

    program = f"""
import resource
from pathlib import Path
from streamvault.cli import main
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
assert main(["plan", *{PETABYTE!r}, "--layout", "chunks", "--json"]) == 0
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
print(peak.split()[1])
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    *document, peak = done.stdout.splitlines()
    plan = json.loads("\n".join(document))
    assert int(peak) * 1024 <= GIB
    export, restore = plan["work"][:2]
    assert plan["objects"] == 10_000 * 1491
    for one in (export, restore):
        assert one["least_requests"] <= one["puts"] + one["lists"] + one["gets"] <= 1.01 * one["least_requests"]
    assert export["puts"] == 2 * plan["objects"] + 12
    assert "larger --range-size" in plan["warnings"][0]


@pytest.mark.parametrize("layout", ["events", "chunks"])
@pytest.mark.parametrize("more", [(), ("--exports", "12"), ("--compress", "zstd", "--cores", "1000")])
def test_output_fits_eighty_columns(layout: str, more: tuple[str, ...], ran: Ran) -> None:
    if layout == "events" and "--compress" in more:
        more = more[2:]
    lines = ran("plan", *PETABYTE, "--layout", layout, *more).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) > 25


def test_guide_shows_what_is_printed(ran: Ran) -> None:
    (command, shown), *others = re.findall(r"```\n\$ streamvault (.*)\n((?:.*\n)*?)```", GUIDE.read_text())
    assert not others
    assert ran(*command.split()).out == shown


def test_compressed_ranges_have_the_sizes_of_their_frames_in_memory() -> None:
    """Four bytes for each MiB, beside the index, whatever it is."""
    given: dict[str, Any] = {"segments": 100, "bytes": 10**15, "events": 10**10, "layout": "chunks", "exports": 10}
    plain, compressed = plan_archive(None, **given), plan_archive(None, **given, compress="zstd")
    held = [[work.driver_bytes - plan.index_bytes for work in plan.work] for plan in (plain, compressed)]
    more = [after - before for before, after in zip(*held, strict=True)]
    assert more[0] == pytest.approx(0, abs=1e6), "an export has those of one generation in its index"
    assert more[1:] == pytest.approx([4 * 10**15 / 2**20] * len(more[1:]), rel=0.01)


def test_several_exports_have_smaller_files_and_more_requests() -> None:
    given: dict[str, Any] = {"segments": 100, "bytes": 10**15, "events": 10**10, "layout": "chunks"}
    one, ten = plan_archive(None, **given), plan_archive(None, **given, exports=10)
    assert one.warnings
    assert not ten.warnings
    assert ten.index_bytes < one.index_bytes / 9
    assert ten.work[0].driver_bytes < one.work[0].driver_bytes / 4
    rows = [plan.work[1].driver_bytes - plan.index_bytes for plan in (one, ten)]
    assert rows[1] == pytest.approx(rows[0], rel=0.01), "an import has the ranges of all generations"
    assert one.work[0].puts < ten.work[0].puts < 1.01 * one.work[0].puts
    assert (ten.events, ten.bytes) == (one.events, one.bytes)


def test_hours_are_those_of_what_takes_longer() -> None:
    given: dict[str, Any] = {"segments": 100, "bytes": 10**15, "events": 10**10, "layout": "chunks"}
    slow = plan_archive(None, **given, cores=1, network=100.0).work[0]
    wire = plan_archive(None, **given, cores=1000, network=1.0).work[0]
    assert (slow.limit, wire.limit) == ("processor", "network")
    assert slow.hours == pytest.approx(slow.processor_hours)
    assert wire.hours == pytest.approx(10**15 * 8 / 1e9 / 3600)
    busy = plan_archive(None, **{**given, "layout": "events"}, cores=1000, network=100.0)
    puts = busy.work[0].puts / busy.work[0].hours / 3600
    assert busy.work[0].prefixes == -(-puts // 3500)
    assert busy.written_prefixes < busy.work[0].prefixes
    assert "prefixes" in busy.warnings[-1]


def test_storage_is_priced_by_class() -> None:
    standard, deep = list_prices().standard, list_prices().classes["DEEP_ARCHIVE"]
    assert standard.usd_a_month(1, 100 * 1024 * GIB, standard) == pytest.approx(51_200 * 0.023 + 51_200 * 0.022)
    assert standard.usd_a_month(1, 600 * 1024 * GIB, standard) == pytest.approx(
        51_200 * 0.023 + 460_800 * 0.022 + 102_400 * 0.021
    )
    small = list_prices().classes["STANDARD_IA"].usd_a_month(8192, 8192 * 1000, standard)
    assert small == pytest.approx(0.0125), "a gigabyte, as each object is billed as 128 KiB"
    assert deep.usd_a_month(32_768, 0, standard) == pytest.approx(0.00099 + 0.25 * 0.023)
    assert deep.usd_to_retrieve(1000, GIB) == pytest.approx(0.02 + 0.1)
    plan = plan_archive(None, segments=1, bytes=10**9, events=10**6)
    month = {one.storage_class: one.usd_month for one in plan.storage}
    assert month["STANDARD"] < month["STANDARD_IA"], "small objects"
    few = plan_archive(None, segments=1, bytes=10**6, events=10)
    assert all(one.usd_month > 0 for one in few.storage), "little is not nothing"


def test_prices_come_from_a_file(tmp_path: Path, ran: Ran) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('source = "ours"\ndate = "2026"\n[classes.STANDARD]\nput = 1\nget = 0\nstorage = [{ usd = 2 }]\n')
    plan = plan_archive(None, segments=1, bytes=GIB, events=1000, prices=str(file))
    assert (plan.prices, plan.prices_date, plan.work[0].usd) == ("ours", "2026", plan.work[0].puts + plan.work[0].lists)
    assert [(one.storage_class, round(one.usd_month)) for one in plan.storage] == [("STANDARD", 2)]
    text = LIST_PRICES.read_text()
    for wrong, said in (
        ("a = [", "is not TOML"),
        (text.replace("put = 0.000005", 'put = "much"'), "classes.STANDARD.put"),
        (text + "\n[classes.STANDARD.more]\n", "classes.STANDARD.more"),
        (text.replace("classes.STANDARD]", "classes.USUAL]"), "no prices for STANDARD"),
    ):
        file.write_text(wrong)
        with pytest.raises(Usage, match=said):
            load_prices(str(file))
    assert (
        "--prices cannot be read"
        in ran(
            "plan", "--segments", "1", "--bytes", "1", "--events", "0", "--prices", str(tmp_path / "none"), code=2
        ).err
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--segments is missing"),
        (("--segments", "1", "--events", "1"), "--bytes is missing"),
        (("--segments", "0", "--bytes", "1GB", "--events", "1"), "--segments must be at least 1"),
        (("--segments", "1", "--bytes", "7", "--events", "1"), "1 events take at least 8 bytes"),
        (("--segments", "1", "--bytes", "7", "--events", "0"), "--events and --bytes must both be 0, or neither"),
        (("--segments", "1", "--bytes", "8", "--events", "1", "--content", "bytes"), "a byte stream has no events"),
        (("--segments", "1", "--bytes", "7", "--events", "0", "--content", "bytes", "--layout", "events"), "layout"),
        (("--segments", "1", "--bytes", "1GB", "--events", "1", "--compress", "zstd"), "does not support"),
        (("--segments", "1", "--bytes", "1GB", "--events", "1", "--network", "0"), "--network must be positive"),
        (("local:///nowhere/a/b", "--segments", "1"), "a stream has its own size"),
        (("nonsense",), "nonsense"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], said: str, ran: Ran) -> None:
    (line,) = ran("plan", *arguments, code=2).err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    "given",
    [
        {"segments": 1_000_000, "bytes": 10**18, "events": 10**17, "range_size": 1, "exports": 1_000_000},
        {"segments": 1, "bytes": 10**18, "events": 1, "range_size": 10**18, "layout": "chunks", "compress": "zstd"},
        {"segments": 1_000_000, "bytes": 8, "events": 1, "layout": "chunks"},
        {"segments": 7, "bytes": 0, "events": 0},
        {"segments": 7, "bytes": 100, "events": 0, "content": "bytes"},
    ],
)
def test_any_size_is_computed(given: dict[str, Any]) -> None:
    plan = plan_archive(**given)  # the stream may be left out
    assert (plan.events, plan.bytes) == (given["events"], given["bytes"])
    assert all(one.puts + one.lists + one.gets >= one.least_requests * 0.9 for one in plan.work)


def test_sizes_are_those_of_the_real_files(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StreamName("scope", "stream")
    part = Part(0, 37 * 2**20, 37 * 1024, 2**20, alike=1200)
    for compressed in (False, True):
        frames, checksums = (2**20,) if compressed else (), ("rosUhgp5mIg=", "rosUhgp5mIg=")
        rows = [
            ArchivedRange(
                SegmentId(0, n // 37), n % 37 * 2**20, (n % 37 + 1) * 2**20, 1000, f"{n:064x}", frames, *checksums
            )
            for n in range(1200 * 37)
        ]
        real = len(encode_ranges(stream, rows))
        found = forecast.index_bytes(stream, [(SegmentId(0, 0), part)], open_layout("chunks"), compressed=compressed)
        assert found == pytest.approx(real, rel=0.01)
    sample = forecast.manifest_bytes(stream, "chunks", 1500, part, 1000)
    monkeypatch.setattr(forecast, "SAMPLE_SEGMENTS", 1500)
    assert sample == pytest.approx(forecast.manifest_bytes(stream, "chunks", 1500, part, 1000), rel=0.05)


def test_memory_of_the_driver_is_what_its_objects_take() -> None:
    count, size = 3000, 2**26
    source, name = parse_stream("local:///folder/scope/stream")
    address, segment = PlaceAddress(RootAddress.parse("memory://root"), "scope/stream/"), SegmentId(0, 0)
    tracemalloc.start()
    try:
        chain, span = SegmentChain(0, count * size, size), GenerationSpan.of(1)
        to = Destination(address, span, 1, "chunks", "", size)
        tasks = [
            ExportTask(
                source=source, stream=name, segment=segment, segment_end=count * size, span=span, to=to,
            )
            for span in chain.open_spans()
        ]  # fmt: skip
        for number, task in enumerate(tasks):
            low, high = task.span.low, task.span.high
            checksum = b64encode(number.to_bytes(8)).decode()
            blocks = b64encode(number.to_bytes(size // 2**20 * 8)).decode()
            entry = RangeEntry(
                start=low,
                end=high,
                events=65_000 + number,
                digest=f"{number:064x}",
                crc64nvme=checksum,
                block_checksums=blocks,
            )
            chain.add(FinishedSpan(start=low, end=high, ranges=(entry,)))
        chain.prove()
        rows = [one.of_segment(segment) for one in chain.ranges()]
        grouped = by_segment(rows)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(grouped[segment]) == count
    assert held / count == pytest.approx(forecast.DRIVER_BYTES_A_RANGE["export"], rel=0.25)


@pytest.mark.parametrize(("events", "warned"), [(200_000, False), (300_000, True)])
def test_few_objects_are_not_slowed_down(events: int, warned: bool) -> None:
    plan = plan_archive(segments=1, bytes=events * 100, events=events, layout="events")
    assert any("S3 throttles it" in warning for warning in plan.warnings) == warned
