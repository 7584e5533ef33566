"""The commands' text output, from reports as the verbs return them.

What append and join say they did, or would do.
"""

from __future__ import annotations

import logging
import os
import pty
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pytest

from streamvault.cli import join, output
from streamvault.cli import join as append
from streamvault.cli.check import _show as show_check
from streamvault.cli.export import _show as show_export
from streamvault.cli.import_ import _show as show_import
from streamvault.cli.ls import _show_archives as show_ls
from streamvault.cli.ls import _show_generations as show_timeline
from streamvault.cli.output import Results, configure_logs
from streamvault.cli.queue_ import _show as show_queue
from streamvault.cli.rotate import _show as show_rotation
from streamvault.cli.show import _show as show_manifest
from streamvault.cli.status import _show as show_status
from streamvault.cli.streams import _show as show_streams
from streamvault.common.report import Cost, GapReport
from streamvault.concat.reports import StitchReport
from streamvault.exporter.reports import ExportReport, RotateReport, StoppedReport
from streamvault.importer.reports import ImportReport, MovedBoundary
from streamvault.inspect.reports import (
    ArchiveStatus,
    LeaseStatus,
    QueueStatus,
    ReplicaStatus,
    StatusReport,
    StreamStatus,
)
from streamvault.manager.reports import StreamSummary
from streamvault.manifests.verbs.reports import ArchiveSummary, CheckReport, Timeline, TimelineEntry
from streamvault.requests.reports import QueueReport, WaitingRequest

ARCHIVE = "s3://vault/backups/shop/orders"
GAP = GapReport(segment="shop/orders/0.#epoch.0", start=0, end=64, reason="truncated")
BOUNDARY = MovedBoundary(epoch=1, source_position=0.25, target_position=0.2500000000000001, ulps=2)
COST = Cost(objects=10_000, objects_estimated=True, puts=10_020, lists=10, gets=2, usd=0.0502)

Shown = Callable[..., list[str]]


@pytest.fixture
def shown(capfd: pytest.CaptureFixture[str]) -> Shown:
    def lines(show: Callable[..., None], *arguments: Any) -> list[str]:
        with Results() as results:
            show(results, *arguments)
        return capfd.readouterr().out.splitlines()

    return lines


def test_export_is_shown_with_all_its_numbers(shown: Shown) -> None:
    report = ExportReport(
        archive=ARCHIVE, generation=3, resumed=True, events=10_000, bytes=3 * 1024**2, moved_bytes=1024**2,
        ranges=7, gaps=(GAP,), seconds=4.2, total_seconds=14.6,
    )  # fmt: skip
    assert shown(show_export, report) == [
        f"wrote generation 3 of {ARCHIVE} (resumed an unfinished run)",
        "events    10,000",
        "bytes     3,145,728 (3.0 MiB)",
        "of these  2.0 MiB archived by an earlier run",
        "ranges    7",
        "gaps      1 (see the warnings)",
        "time      4.20 s (total 14.6 s)",
    ]


def test_export_with_nothing_new_is_shown_in_one_line(shown: Shown) -> None:
    report = ExportReport(archive=ARCHIVE, generation=3, unchanged=True)
    assert shown(show_export, report) == [f"nothing new since generation 3 of {ARCHIVE}"]


def test_dry_run_of_an_export_is_shown_with_its_cost(shown: Shown) -> None:
    report = ExportReport(archive=ARCHIVE, generation=1, events=10_000, bytes=4096, dry_run=True, ranges=1, cost=COST)
    assert shown(show_export, report)[:-1] == [
        f"would write generation 1 of {ARCHIVE}",
        "events      10,000",
        "bytes       4,096 (4.0 KiB)",
        "ranges      1",
        "objects     about 10,000",
        "requests    about 10,020 PUT, 10 LIST, 2 GET",
        "list price  about 0.05 USD for the requests (S3 Standard, us-east-1)",
    ]


def test_import_shows_what_differs_from_the_source(shown: Shown) -> None:
    report = ImportReport(
        stream="local:///data/shop/restored", archive=ARCHIVE, generation=2, resumed=True, events=5, bytes=100,
        moved_bytes=60, segments=4, epochs=2, offsets="shift", shifts={"shop/orders/0.#epoch.0": 6400},
        moved_boundaries=(BOUNDARY,), gaps=(GAP, GAP),
    )  # fmt: skip
    lines = shown(show_import, report)
    assert lines[0] == f"restored {ARCHIVE} into local:///data/shop/restored (resumed an unfinished import)"
    assert "segments    4 in 2 epochs" in lines
    assert "of these    40 B restored by an earlier run" in lines
    assert lines[-2] == "shifted: every offset of shop/orders/0.#epoch.0 is 6,400 lower than in the source"
    assert lines[-1] == (
        "moved: in epoch 1 the key-range boundary 0.25 is at 0.2500000000000001 (2 ulps), so that segments keep "
        "their numbers"
    )


def test_check_shows_a_intact_and_a_damaged_archive(shown: Shown) -> None:
    intact = CheckReport(archive=ARCHIVE, generations=(1, 2), ok=True, ranges=9, ranges_read=1, seed=7, notes=("odd",))
    lines = shown(show_check, intact)
    assert lines[0] == f"intact: {ARCHIVE}"
    assert "ranges       9, 1 read and verified" in lines
    assert "seed         7" in lines
    assert not any(line.startswith("checksums") for line in lines)
    assert lines[-1] == "note: odd"

    compared = CheckReport(
        archive=ARCHIVE, generations=(1,), ok=True,
        checksums_compared=1234, checksums_not_kept=1, checksums_not_indexed=2,
    )  # fmt: skip
    lines = shown(show_check, compared)
    assert lines[0] == f"intact as far as compared (1,234 of 1,237 objects): {ARCHIVE}"
    assert "checksums    1,234 compared with the store's, 3 not compared" in lines
    assert shown(show_check, replace(compared, checksums_compared=0))[0] == f"nothing compared: {ARCHIVE}"
    every = replace(compared, checksums_not_kept=0, checksums_not_indexed=0)
    assert shown(show_check, every)[0] == f"intact: {ARCHIVE}"

    damaged = CheckReport(archive=ARCHIVE, generations=(1,), ok=False, findings=("a is gone",), more_findings=2)
    lines = shown(show_check, damaged)
    assert lines[0] == f"DAMAGED: {ARCHIVE}"
    assert lines[-2:] == ["damaged: a is gone", "damaged: and 2 more findings"]


def test_ls_shows_a_table_of_archives(shown: Shown) -> None:
    good = ArchiveSummary(
        archive=ARCHIVE, stream_name="shop/orders", generations_in_force=2, generation=2,
        created="2026-03-01T10:00:00Z", events=10_000, bytes=2**20, layout="events",
    )  # fmt: skip
    bad = ArchiveSummary(archive=ARCHIVE + "2", stream_name="shop/orders2", problem="not complete JSON")
    lines = shown(show_ls, "s3://vault/backups", [good, bad])
    assert [line.split() for line in (lines[0], *lines[2:])] == [
        ["ARCHIVE", "GENERATIONS", "EVENTS", "BYTES", "LAYOUT", "NEWEST"],
        ["shop/orders", "2", "10,000", "1.0", "MiB", "events", "2026-03-01", "10:00:00Z"],
        ["shop/orders2", "?", "?", "?", "?", "cannot", "be", "read"],
    ]
    assert shown(show_ls, "s3://vault/backups", []) == ["no archives below s3://vault/backups"]


def test_show_shows_a_manifest(shown: Shown) -> None:
    names = [f"shop/orders/{number}.#epoch.{epoch}" for epoch, number in ((0, 0), (0, 1), (1, 2))]
    document = {
        "scope": "shop",
        "stream": "orders",
        "generation": 1,
        "created": "2026-03-01T10:00:00Z",
        "source": "pravega://127.0.0.1:9090",
        "fingerprint": "0" * 64,
        "layout": "events",
        "events": 3,
        "bytes": 2048,
        "configuration": {
            "scaling": {"kind": "events", "target": 100, "factor": 2, "min_segments": 2},
            "retention": {"kind": "time", "minimum": 3600000, "maximum": 0},
            "tags": ["a", "b"],
        },
        "epochs": [">0:0.5,1", "0.0>2"],
        "segments": [
            {"name": name, "start": 0, "end": 1024, "sealed": name == names[0], "events": 1, "bytes": 1024}
            for name in names
        ],
        "gaps": [{"segment": names[0], "start": 0, "end": 64, "reason": "truncated"}],
    }
    lines = shown(show_manifest, ARCHIVE, document)
    assert lines[0] == ARCHIVE
    assert "scaling      events, target 100 events/s per segment, factor 2, min segments 2" in lines
    assert "retention    time, minimum 3,600,000 ms" in lines
    assert "tags         a, b" in lines
    table = [line.split() for line in lines if "#epoch" in line and "gap" not in line]
    assert table[0] == ["0.#epoch.0", "[0,", "0.5)", "0", "1,024", "1", "1.0", "KiB", "sealed"]
    assert table[2][:3] == ["2.#epoch.1", "[0,", "0.5)"]
    assert table[2][-1] == "open"
    assert lines[-1] == "gap: shop/orders/0.#epoch.0 from 0 to 64: truncated"


def test_rotation_is_shown_with_what_expired(shown: Shown) -> None:
    export = ExportReport(archive=ARCHIVE, generation=9, events=5, bytes=100)
    stopped = StoppedReport(generation=4, reason="retention (COMPLIANCE) of a/b", until="2030-01-01T00:00:00Z")
    report = RotateReport(
        archive=ARCHIVE, export=export, generation=9, first_generation=4, hold="monthly", checked=(9,),
        expired=(1, 2, 3), stopped=stopped, objects_deleted=1500, requests=12, resumed=True, truncated=True, cut={},
        total_seconds=2.0,
    )  # fmt: skip
    assert shown(show_rotation, report) == [
        f"wrote generation 9 of {ARCHIVE}",
        "events       5",
        "bytes        100",
        "hold         monthly, on generation 9",
        "read back    generation 9",
        "expired      generations 1 to 3",
        "kept         generation 4, because of retention (COMPLIANCE) of a/b until 2030-01-01T00:00:00Z",
        "deleted      1,500 objects, 12 requests",
        "resumed      an unfinished deletion of an earlier run",
        "archive has  generations 4 to 9",
        "truncated    the stream, up to the end of the archived and verified data",
        "time         0.00 s (total 2.00 s)",
    ]


def test_rotation_with_nothing_to_do_is_shown(shown: Shown) -> None:
    export = ExportReport(archive=ARCHIVE, generation=1, unchanged=True)
    lines = shown(show_rotation, RotateReport(archive=ARCHIVE, export=export, generation=1, first_generation=1))
    assert lines[:-1] == [
        f"nothing new since generation 1 of {ARCHIVE}",
        "read back    nothing; everything was read back before",
        "expired      nothing",
        "archive has  generation 1",
    ]


def test_timeline_is_shown_as_a_table(shown: Shown) -> None:
    cut = {f"shop/orders/{number}.#epoch.0": 10 * number for number in range(5)}
    entry = TimelineEntry(
        generation=3, first=3, created="2026-03-01T10:00:00Z", from_cut=cut, to_cut=dict(list(cut.items())[:2]),
        layout="chunks", events=1234, bytes=2048, holds=("audit", "monthly"), checked_at="2026-03-01T10:01:00Z",
    )  # fmt: skip
    timeline = Timeline(
        archive=ARCHIVE, stream_name="shop/orders", expired_up_to=2, decision="decision 4", entries=(entry,)
    )
    assert "epoch" not in "".join(shown(show_timeline, timeline))
    lines = shown(partial(show_timeline, wide=True), timeline)
    assert lines[:2] == [ARCHIVE, "generations up to 2 have expired, according to decision 4"]
    assert "0.#epoch.0:0 1.#epoch.0:10 2.#epoch.0:20 +2 more" in lines[-1]
    assert lines[-1].endswith("0.#epoch.0:0 1.#epoch.0:10")
    assert "audit, monthly" in lines[-1]
    (told,) = timeline.to_json()["entries"]
    assert (told["from_cut"], told["to_cut"]) == (cut, entry.to_cut)


LONG = "warehouse-telemetry/conveyor-belt-vibration-sensors-building-17"
ROOT = "s3://company-archives-eu-west-1/pravega/production"
WHEN = "2026-03-01T10:00:00.123456Z"


def _summaries(count: int) -> list[ArchiveSummary]:
    return [
        ArchiveSummary(
            archive=f"{ROOT}/{LONG}", stream_name=LONG, generations_in_force=673, first_generation=2, generation=674,
            created=WHEN, events=10_123_456_789, bytes=2**40 + number, layout="chunks", unfinished_generation=675,
            unchecked_generations=12, held_generations=3, gap_bytes=2**30,
        )
        for number in range(count)
    ]  # fmt: skip


def _statuses() -> tuple[ArchiveStatus, ...]:
    return tuple(
        ArchiveStatus(**asdict(summary), newest_age=1e6, spans_planned=20_000, spans_done=12_345)
        for summary in _summaries(2)
    )


def _entries() -> tuple[TimelineEntry, ...]:
    cut = {f"{LONG}/{number}.#epoch.0": 1_234_567_890 for number in range(5)}
    return tuple(
        TimelineEntry(
            generation=last, first=first, created=WHEN, from_cut=cut, to_cut=cut, layout="chunks",
            events=10_123_456_789, bytes=2**40, checked_at=WHEN,
        )
        for first, last in ((1, 673), (674, 674), (675, 675))
    )  # fmt: skip


def _manifest() -> dict[str, Any]:
    name = "shop/orders/123.#epoch.17"
    retention = {"kind": "none", "minimum": 0, "maximum": 0}
    return {
        "scope": "shop", "stream": "orders", "generation": 1, "created": WHEN, "source": "x", "fingerprint": "0" * 64,
        "layout": "events", "events": 3, "bytes": 2048,
        "epochs": [">0:0.1234567,122:0.7654321,1", *[">"] * 16, "0.122>123"],
        "configuration": {"scaling": {"kind": "fixed", "min_segments": 2}, "retention": retention, "tags": []},
        "segments": [
            {"name": name, "start": 654_321_000, "end": 1_987_654_321, "sealed": True,
             "events": 23_456_789, "bytes": 10**12},
        ],
        "gaps": [],
    }  # fmt: skip


def _waiting(reason: str) -> WaitingRequest:
    text = f"import {ROOT}/{LONG} pravega://controller.streaming.svc:9090/restored/{LONG.partition('/')[2]}"
    return WaitingRequest(id="01JABCDEF0123456789", text=text, put=WHEN, age_seconds=1e5, bytes=300, reason=reason)


def _scope_status() -> StatusReport:
    store = "pravega://controller.streaming.svc:9090"
    uri = f"{store}/{LONG}"
    return StatusReport(
        root=ROOT,
        scope=f"{store}/{LONG.partition('/')[0]}/",
        seen=WHEN,
        statuses=_statuses(),
        live_streams=(
            StreamStatus(stream=uri, archive=_statuses()[0].archive, is_archived=True, unarchived=2**40),
            StreamStatus(stream=f"{store}/shop/new", is_archived=False, unarchived=12),
        ),
        leases=(
            LeaseStatus(lease=uri, stream=uri, purpose="import or mirror", host="vault-2", pid=4194304, alive=True),
        ),
        queues=(QueueStatus(queue=uri, waiting=12_345, failed=678, oldest_age=1e6, worker="vault-2.example.com"),),
        replicas=(ReplicaStatus(replica=uri, source=uri, state="replica", reached=WHEN, lag_bytes=2**40),),
    )


TABLES: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
    "ls": (show_ls, (ROOT, _summaries(2))),
    "status": (show_status, (StatusReport(root=ROOT, seen=WHEN, statuses=_statuses()),)),
    "status of a scope": (show_status, (_scope_status(),)),
    "timeline": (show_timeline, (Timeline(archive=ROOT, stream_name=LONG, expired_up_to=0, entries=_entries()),)),
    "show": (show_manifest, (ROOT, _manifest())),
    "streams": (
        show_streams,
        (
            "pravega://controller:9090",
            (
                StreamSummary(stream=f"pravega://controller:9090/{LONG}", role="ephemeral", segments=1200, bytes=2**40),
                StreamSummary(
                    stream="pravega://controller:9090/shop/orders", role="unfinished", segments=4, bytes=5, sealed=True
                ),
            ),
        ),
    ),
    "queue": (
        show_queue,
        (
            QueueReport(
                queue="pravega://controller:9090/operations/restores", waiting=1, failed=1, outstanding_bytes=1,
                failed_bytes=1, first_waiting=(_waiting(""),), first_failed=(_waiting("no such archive: " + ROOT),),
            ),
        ),
    ),
}  # fmt: skip


def _words(lines: list[str]) -> set[str]:
    return {word for line in lines for word in line.split()}


@pytest.mark.parametrize("verb", TABLES)
def test_a_table_fits_a_terminal_and_folds_between_words(
    verb: str, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    show, arguments = TABLES[verb]
    whole = shown(show, *arguments)
    monkeypatch.setattr(output, "_PIPED_COLUMNS", 80)
    folded = shown(show, *arguments)
    rule = next(number for number, line in enumerate(folded) if line.startswith("──"))
    assert max(map(len, folded[rule - 1 :])) <= 80
    assert len(folded) > len(whole)
    short = {word for word in _words(whole) if len(word) <= 20}
    assert short - _words(folded) == set()


def test_a_timeline_of_three_generations_takes_few_lines(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_PIPED_COLUMNS", 80)
    show, arguments = TABLES["timeline"]
    lines = shown(show, *arguments)
    assert len(lines) <= 9
    assert any(line.split()[:3] == ["1", "to", "673"] for line in lines)
    assert not any("epoch" in line for line in lines)
    assert sum(line.count(".123") for line in lines) == 3, "when it was taken is not rounded: --at takes it"


def test_only_words_wider_than_a_terminal_are_broken(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_PIPED_COLUMNS", 40)
    lines = shown(lambda results: results.table({"NAME": False, "BYTES": True}, [("x" * 50, "12.5 KiB")]))
    assert [len(line) for line in lines] == [40, 40, 40, 20]
    assert lines[2].split() == ["x" * 30, "12.5", "KiB"]


@pytest.mark.parametrize(("columns", "is_table"), [(120, True), (80, True), (72, False), (40, False)])
def test_numbers_are_never_broken(columns: int, is_table: bool, shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_PIPED_COLUMNS", columns)
    headers = {"SEGMENT": False, "KEYS": False, "START": True, "END": True, "EVENTS": True, "BYTES": True}
    numbers = "1,234,567,890,123", "9,234,567,890,123", "10,123,456", "7.3 TiB"
    rows = [(f"{number}.#epoch.12", "[0.0003052, 0.0006104)", *numbers) for number in (1234, 12)]
    lines = shown(lambda results: results.table(headers, rows))
    assert {*numbers[:3]} <= _words(lines)
    assert max(map(len, lines)) <= columns
    assert any(line.startswith("──") for line in lines) == is_table


HOSTILE = b"caf\xc3\xa9\ta\n\x1b]0;pwn\x07\x1b[31m\r\xc2\x9b31m\xe2\x80\xae\x7f\xff\n"
ESCAPED = "café\ta\n\\x1b]0;pwn\\x07\\x1b[31m\\r\\x9b31m\\u202e\\x7f\\xff\n"


def test_payload_controls_no_terminal_and_is_unchanged_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with Results() as results:
        results.raw(HOSTILE)
    assert capfdbinary.readouterr().out == HOSTILE
    ours, terminal = pty.openpty()
    monkeypatch.setattr(output, "STDOUT", terminal)
    with Results() as results:
        results.raw(HOSTILE)
    assert os.read(ours, 1000).decode().replace("\r\n", "\n") == ESCAPED
    os.close(ours)
    os.close(terminal)


def test_log_line_controls_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logs("info")
    logging.getLogger("streamvault").warning("%s", HOSTILE.decode(errors="replace"))
    err = capfd.readouterr().err
    assert "\\x1b]0;pwn\\x07" in err
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(err)


HERE, INTO = "local:///streams/shop/orders", "local:///streams/shop/all"


@pytest.mark.parametrize(
    ("resumed", "dry_run", "appended", "joined"),
    [
        (False, False, f"appended {HERE} to {INTO}", f"joined {HERE} into {INTO}"),
        (False, True, f"would append {HERE} to {INTO}", f"would join {HERE} into {INTO}"),
        (True, True, f"would finish appending {HERE} to {INTO}", f"would finish joining {HERE} into {INTO}"),
        (
            *(True, False),
            f"appended {HERE} to {INTO} (resumed an unfinished run)",
            f"joined {HERE} into {INTO} (resumed an unfinished run)",
        ),
    ],
)
def test_what_was_done_is_said(
    capfd: pytest.CaptureFixture[str], resumed: bool, dry_run: bool, appended: str, joined: str
) -> None:
    report = StitchReport(sources=(HERE,), stream=INTO, resumed=resumed, dry_run=dry_run)
    with Results() as results:
        append._show(results, report)
        join._show_join(results, report)
    assert [line for line in capfd.readouterr().out.splitlines() if HERE in line] == [appended, joined]


def test_nothing_to_do_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    report = StitchReport(sources=(HERE,), stream=INTO, unchanged=True)
    with Results() as results:
        append._show(results, report)
        join._show_join(results, report)
    assert capfd.readouterr().out.splitlines() == [
        f"nothing new to append to {INTO} since the last time",
        f"already joined: {INTO} has {HERE}",
    ]
