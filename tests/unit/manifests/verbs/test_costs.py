"""The estimated S3 requests of a plan, compared with the requests that are made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streamvault import export_stream, import_stream
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests.format.archived_range import ArchivedRange
from streamvault.manifests.verbs.costs import cost_of_conversion, cost_of_export, cost_of_import
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import SegmentId
from tests.unit.small_archives import KINDS, NAME, RANGE_SIZE, Vault, a_root, archive_of, data_keys

MIB = 1024 * 1024
DIGEST = "ab" * 32


def row(size: int, events: int) -> ArchivedRange:
    return ArchivedRange(SegmentId(0, 0), 0, size, events, DIGEST)


def test_cost_of_an_export_of_chunks_is_an_object_a_range() -> None:
    chunks = cost_of_export(1000, 1000, estimated=False, first=True)
    events = cost_of_export(1_000_000, 1000, estimated=False, first=False)
    assert (chunks.objects, chunks.objects_estimated) == (1000, False)
    assert 2000 < chunks.puts < 2020
    assert events.puts > 1_000_000
    assert chunks.usd * 100 < events.usd


def test_cost_of_an_import_counts_a_request_for_each_chunk_that_is_not_compressed() -> None:
    parts = [("chunks", row(size, 10), size) for size in (64 * MIB, 16 * MIB + 1, 100)]
    cost = cost_of_import(parts, 1)
    assert cost.objects == 3
    assert cost.gets == 3 + 2
    assert cost.puts == 1
    squeezed = replace(row(64 * MIB, 10), frames=(1000,) * 64)
    assert cost_of_import([("chunks", squeezed, 64 * MIB)], 1).gets == 16 + 2  # frames in parts of four
    events = cost_of_import([("events", row(64 * MIB, 2500), 64 * MIB)], 1)
    assert (events.objects, events.gets, events.puts) == (2500, 2502, 3 + 1)


def test_cost_of_a_conversion_is_that_of_an_import_and_an_export() -> None:
    stored: list[tuple[LayoutName, ArchivedRange]] = [("events", row(64 * MIB, 1500)), ("chunks", row(20 * MIB, 700))]
    chunks = cost_of_conversion(stored, "chunks")
    assert (chunks.objects, chunks.gets) == (2, 1500 + 1)
    assert chunks.puts == 2 + 2 + 3 + 2
    assert cost_of_conversion(stored, "events").objects == 2200
    assert cost_of_conversion([], "chunks").objects == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_estimate_of_a_dry_run_equals_the_objects_made(tmp_path: Path, kind: tuple[LayoutName, Compression]) -> None:
    vault, root = Vault(tmp_path), a_root()
    vault.make()
    said = export_stream(
        vault.uri(), root, layout=kind[0], compress=kind[1], range_size=RANGE_SIZE, master="inline", dry_run=True
    )
    assert list(RootAddress.parse(root).open().list("")) == []
    vault.export(*kind)
    assert said.cost is not None
    if not said.cost.objects_estimated:
        assert said.cost.objects == len(data_keys(vault.root))
    assert said.cost.objects_estimated <= (kind[0] == "events"), "the ranges of a plan can be counted"
    rows = sum(len(held) for held in archive_of(vault.root).history().generations[0].rows.values())
    back = import_stream(vault.archive, vault.uri(NAME) + "-restored", master="inline", dry_run=True)
    assert back.cost is not None
    assert back.cost.objects == (len(data_keys(vault.root)) if kind[0] == "events" else rows)
