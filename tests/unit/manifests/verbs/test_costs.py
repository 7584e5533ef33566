"""The requests that the model says, compared with those that are made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, convert_archive, export_stream, import_stream
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.layout import Compression, LayoutName, open_layout
from streamvault.manifests.history import History
from streamvault.manifests.verbs.costs import (
    Part,
    Requests,
    cost_of_import,
    least_to_export,
    objects_of,
    to_check,
    to_export,
    to_import,
    to_read_all,
    to_read_part,
)
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import SegmentId
from testkit.small_archives import KINDS, Vault, a_root, archive_of, data_keys
from tests.counting import counted

MIB = 1024 * 1024
DIGEST = "ab" * 32
SHAPES = {
    # payload; segments; events of each in the first generation and the next; ranges are of 4 KiB
    "one segment of a few events": (b"some bytes", 1, 3, 2),
    "no event at first": (b"some bytes", 2, 0, 5),
    "several ranges in each of three segments": (b"some bytes" * 50, 3, 40, 50),
    "more events than a page of a listing": (b"a", 1, 1_200, 1_100),
    "more ranges than a task lists": (b"8 bytes." * 511, 1, 17, 35),
}


def row(size: int, events: int) -> ArchivedRange:
    return ArchivedRange(SegmentId(0, 0), 0, size, events, DIGEST)


def parts_of(history: History, number: int) -> list[Part]:
    held = history.generations[number - 1].rows.values()
    return [Part(rows[0].start, rows[-1].end, sum(row.events for row in rows), 4096) for rows in held if rows]


def said(cost: Any) -> Requests:
    return Requests(cost.puts, cost.lists, cost.gets)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_verbs_send_the_requests_that_the_model_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[bytes, int, int, int],
    kind: tuple[LayoutName, Compression],
) -> None:
    payload, segments, *numbers = shape
    vault, (name, compress), layout = Vault(tmp_path), kind, open_layout(kind[0])
    vault.create(segments)
    for generation, events in enumerate(numbers, start=1):
        vault.add(*[payload] * events)
        dry = export_stream(
            vault.uri(), vault.root, layout=name, compress=compress, range_size=4096, master="inline", dry_run=True
        ).cost
        with counted(monkeypatch) as made:
            vault.export(name, compress)
        assert dry is not None
        assert said(dry) == made[0]
        history = archive_of(vault.root).history()
        assert to_export(layout, parts_of(history, generation), generation=generation) == made[0]

    back = f"{vault.uri()}-restored"
    dry = import_stream(vault.archive, back, master="inline", dry_run=True).cost
    with counted(monkeypatch) as made:
        import_stream(vault.archive, back, master="inline")
    assert dry is not None
    assert (said(dry).puts, said(dry).gets) == (made[0].puts, made[0].gets)
    # the last range of a segment has no key behind it, so a page less if its events fill pages exactly
    assert 0 <= said(dry).lists - made[0].lists <= segments

    generations = [parts_of(history, number) for number, _ in enumerate(numbers, start=1)]
    held = list(zip(*filter(None, generations), strict=True))
    rows = [(name, row, row.end - row.start) for g in history.generations for some in g.rows.values() for row in some]
    for reads, checksums in ((False, False), (True, False), (False, True)):
        with counted(monkeypatch) as made:
            check_archive(vault.archive, read_data=reads, stored_checksums=checksums, master="inline")
        model = to_check(layout, held, len(numbers), reads=reads, checksums=checksums)
        model += to_read_all(rows) if reads else Requests()
        assert model == made[0]


def test_estimates_of_a_scaled_stream_differ_by_a_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = Vault(tmp_path)
    vault.make()
    with counted(monkeypatch) as made:
        vault.export("chunks")
    history = archive_of(vault.root).history()
    model = to_export(open_layout("chunks"), parts_of(history, 1), generation=1)
    assert abs(model.total - made[0].total) <= 3, "a guess that was wrong"
    rows = sum(len(rows) for rows in history.generations[0].rows.values())
    cost = convert_archive(vault.archive, a_root(), layout="events", master="inline", dry_run=True).cost
    with counted(monkeypatch) as made:
        convert_archive(vault.archive, a_root(), layout="events", master="inline")
    assert cost is not None
    assert abs(said(cost).total - made[0].total) <= 12
    assert cost.objects == sum(g.manifest.events for g in history.generations)
    assert cost.puts - cost.objects == rows + 4


def test_large_archive_of_chunks_takes_within_a_hundredth_of_the_least_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, layout = Vault(tmp_path), open_layout("chunks")
    vault.create()
    vault.add(*[b"8 bytes." * 511] * 1200)
    with counted(monkeypatch) as made:
        vault.export("chunks")
    parts = parts_of(archive_of(vault.root).history(), 1)
    assert objects_of(layout, parts) == len(data_keys(vault.root)) == 1200
    assert made[0] == to_export(layout, parts, generation=1)
    assert made[0].total <= 1.01 * least_to_export(layout, parts)

    petabyte = [Part(0, 10**11, 10**8, 64 * MIB, alike=10_000)]
    assert to_export(layout, petabyte, generation=1).total <= 1.001 * least_to_export(layout, petabyte)
    assert to_read_part(layout, petabyte[0]) == Requests(gets=objects_of(layout, petabyte))


def test_import_gets_parts_of_compressed_chunks_and_of_large_events() -> None:
    parts = [("chunks", row(size, 10), size) for size in (64 * MIB, 16 * MIB + 1, 100)]
    cost = cost_of_import(parts, 1, may_be_cold=False)
    assert (cost.objects, cost.gets, cost.puts, cost.lists) == (3, 3 + 2, 0, 1)
    squeezed = replace(row(64 * MIB, 10), frames=(1000,) * 64)
    assert to_import([("chunks", squeezed, 64 * MIB)], 1, may_be_cold=False).gets == 16 + 2  # frames in parts of four
    events = to_import([("events", row(64 * MIB, 2500), 64 * MIB)], 1, may_be_cold=True)
    assert (events.gets, events.lists) == (2500 + 2 + 1, 1 + 1 + 3)
    large = to_import([("events", row(9 * MIB + 8, 1), 9 * MIB + 8)], 1, may_be_cold=False)
    assert (large.gets, large.lists) == (3 + 2, 2)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_dry_run_writes_nothing(tmp_path: Path, kind: tuple[LayoutName, Compression]) -> None:
    vault, root = Vault(tmp_path), a_root()
    vault.make()
    said = export_stream(vault.uri(), root, layout=kind[0], compress=kind[1], master="inline", dry_run=True)
    assert list(RootAddress.parse(root).open().list("")) == []
    assert said.cost is not None
    assert said.cost.objects_estimated <= (kind[0] == "events"), "the ranges of a plan can be counted"
