"""What *plan* says, compared with what the verbs send and write: exact where events are of one size.

Pages of listings and tasks are small here, so that a few hundred events fill several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, export_stream, import_stream, plan_archive
from streamvault.exporter import forecast
from streamvault.exporter import plan as planning
from streamvault.exporter.reports import PlanReport
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests import deleting
from streamvault.manifests.verbs import costs
from streamvault.manifests.verbs.costs import Requests
from streamvault.streamstore.model import KeyRange, StreamCut
from testkit.small_archives import KINDS, NAME, Vault, archive_of, data_keys
from testkit.streams import append_bytes, append_events
from tests import metered
from tests.counting import counted

MIB = 1024 * 1024
RANGE_SIZE = 4096
PAGE, RANGES_A_TASK = 8, 4


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (metered, costs, forecast):
        monkeypatch.setattr(module, "PAGE", PAGE)
    monkeypatch.setattr(deleting, "CHUNKS_A_LISTING", PAGE - 1)
    monkeypatch.setattr(deleting, "RANGES_A_TASK", RANGES_A_TASK)
    # a time without a fraction is shorter, in one of a thousand manifests
    monkeypatch.setattr(planning, "now_utc", lambda: datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC))


Fill = Callable[[Vault], None]


def alike(payload: int, events: int, segments: int = 1) -> Fill:
    def fill(vault: Vault) -> None:
        vault.create(segments)
        vault.add(*[b"x" * payload] * events)

    return fill


def truncated(vault: Vault) -> None:
    alike(192, 100, segments=2)(vault)
    head = vault.described.head
    vault.truncate(StreamCut(NAME, dict.fromkeys(head.offsets, 33 * 200)))


def scaled(vault: Vault) -> None:
    """Several epochs; of the segments that were sealed, one is empty."""
    alike(192, 45, segments=2)(vault)
    with vault.store as store:
        for at in range(4):
            first, *_ = sorted(store.describe(NAME).tail.offsets)
            held = store.describe(NAME).epochs[-1].segments[first]
            middle = (held.low + held.high) / 2
            store.scale(NAME, [first], [KeyRange(held.low, middle), KeyRange(middle, held.high)])
            for number, segment in enumerate(sorted(store.describe(NAME).tail.offsets)):
                if at != 1 and number:
                    append_events(store, NAME, segment, [b"x" * 192] * 7)


def scaled_and_truncated(vault: Vault) -> None:
    """The head has left segments behind."""
    scaled(vault)
    vault.truncate(vault.described.tail)
    vault.add(*[b"x" * 192] * 50)


def of_bytes(vault: Vault) -> None:
    vault.create()
    with vault.store as store:
        append_bytes(store, NAME, *store.describe(NAME).tail.offsets, b"no event" * 5000)


STREAMS: dict[str, Fill] = {
    "a few events": alike(10, 3),
    "no event": alike(10, 0),
    "ranges in three segments": alike(192, 150, segments=3),
    "the last event spans a multiple": alike(992, 5),
    "the last event ends at a multiple": alike(504, 16),
    "events as large as ranges": alike(4088, 13),
    "events larger than ranges": alike(5000, 11),
    "many events in a range": alike(20, 700),
    "head truncated": truncated,
    "scaled": scaled,
    "scaled, then truncated": scaled_and_truncated,
    "bytes": of_bytes,
}


@dataclass
class Made:
    """What the verbs have sent, by verb, and the sizes of the manifests and indexes of the generations."""

    requests: dict[str, Requests]
    manifests: list[int]
    indexes: list[int]


def made(vault: Vault, monkeypatch: pytest.MonkeyPatch, rounds: Iterator[Any], **options: Any) -> Made:
    """Export in each round, then run the other verbs."""
    found = Made({"export": Requests()}, [], [])
    for _ in rounds:
        with counted(monkeypatch) as sent:
            export_stream(vault.uri(), vault.root, master="inline", **options)
        found.requests["export"] += sent[0]
    with counted(monkeypatch) as sent:
        import_stream(vault.archive, f"{vault.uri()}-restored", master="inline")
    history = archive_of(vault.root).history()
    ranges = sum(len(rows) for each in history.generations for rows in each.rows.values())
    found.requests["import"] = sent[0] + costs.to_touch(ranges)  # an import from S3 tests whether it can be read
    for verb, reads in (("check", False), ("check --read-data", True)):
        with counted(monkeypatch) as sent:
            check_archive(vault.archive, read_data=reads, master="inline")
        found.requests[verb] = sent[0]
    for each in history.generations:
        found.manifests.append(len(each.manifest.encode()))
        found.indexes.append(each.manifest.index.bytes if each.manifest.index else 0)
    return found


def said(plan: PlanReport) -> dict[str, Requests]:
    return {one.verb: Requests(one.puts, one.lists, one.gets) for one in plan.work}


LARGER = {
    # payload; events; size of a range; where the segment begins
    "several frames": (1_000_000, 12, 5 * MIB, 0),
    "several frames, head truncated": (1_000_000, 12, 5 * MIB, 4),
    "large events": (9 * MIB, 2, 64 * MIB, 0),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
@pytest.mark.parametrize("size", LARGER.values(), ids=LARGER)
def test_larger_ranges(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int, int, int],
    kind: tuple[LayoutName, Compression],
) -> None:
    payload, events, range_size, gone = size
    vault = Vault(tmp_path)
    alike(payload, events)(vault)
    vault.truncate(gone * (payload + 8))
    options = as_options(kind, range_size=range_size)
    plan = plan_archive(vault.uri(), **options)
    found = made(vault, monkeypatch, iter(range(1)), **options)
    assert said(plan) == found.requests
    assert ([plan.index_bytes], [plan.manifest_bytes]) == (found.indexes, found.manifests)


def as_options(kind: tuple[LayoutName, Compression], **more: Any) -> dict[str, Any]:
    return {"layout": kind[0], "compress": kind[1], "range_size": RANGE_SIZE} | more


@pytest.mark.parametrize(
    ("name", "kind"),
    # a byte stream has no events
    [
        pytest.param(name, kind, id="-".join(filter(None, (name, *kind))))
        for name in STREAMS
        for kind in KINDS
        if name != "bytes" or kind[0] == "chunks"
    ],
)
def test_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: tuple[LayoutName, Compression]
) -> None:
    content = {"content": "bytes"} if name == "bytes" else {}
    vault = Vault(tmp_path)
    STREAMS[name](vault)
    options = as_options(kind, **content)
    plan = plan_archive(vault.uri(), **options)
    found = made(vault, monkeypatch, iter(range(1)), **options)
    assert said(plan) == found.requests
    manifest = archive_of(vault.root).manifest()
    assert (plan.events, plan.bytes, plan.objects) == (manifest.events, manifest.bytes, len(data_keys(vault.root)))
    assert ([plan.index_bytes], [plan.manifest_bytes]) == (found.indexes, found.manifests)


SIZES = {
    # payload; segments; events of a segment in each export; exports
    "ranges cut at multiples": (192, 2, 33, 3),
    "events larger than ranges": (5000, 1, 3, 3),
    "many events in a range": (20, 1, 300, 2),
    "pages of manifests": (24, 1, 5, 7),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_several_exports_of_a_stream_that_need_not_exist(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int, int, int],
    kind: tuple[LayoutName, Compression],
) -> None:
    payload, segments, events, exports = size
    vault, total = Vault(tmp_path), events * segments * exports
    vault.create(segments)

    def rounds() -> Iterator[None]:
        for _ in range(exports):
            vault.add(*[b"x" * payload] * events)
            yield

    options = as_options(kind)
    found = made(vault, monkeypatch, rounds(), **options)
    plan = plan_archive(None, segments=segments, events=total, bytes=total * (payload + 8), exports=exports, **options)
    assert said(plan) == found.requests
    assert plan.index_bytes == max(found.indexes)
    assert plan.manifest_bytes == pytest.approx(found.manifests[-1], rel=0.1), "but for the names"
    assert (plan.events, plan.ranges) == (total, len(data_keys(vault.root)) if kind[0] == "chunks" else plan.ranges)
