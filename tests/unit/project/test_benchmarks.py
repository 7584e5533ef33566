"""The benchmarks' own arithmetic, and what the scripts of `bin/` say and install, offline too."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.measuring import Arm, Measured, interleave, ratio, spread
from benchmarks.processes import run_together
from benchmarks.product import PeakWatch
from benchmarks.results import beside_loops, size_text, spread_text, table
from benchmarks.workload import Workload
from streamvault import plan_archive
from streamvault.layouts.keys import EVENT_KEYS
from streamvault.layouts.layout import LayoutName
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import frame_many
from streamvault.streamstore.model import SegmentId, StreamName
from tests.pages import DOCS, blocks

MIB = 1024 * 1024


def test_interleave_lets_arms_take_turns() -> None:
    order: list[tuple[str, int]] = []

    def arm(name: str) -> Arm:
        def run(repeat: int) -> Measured:
            order.append((name, repeat))
            return Measured(10, 100, 1.0)

        return Arm(name, run)

    interleave([arm("a"), arm("b")], 2, lambda: order.append(("settle", 0)))
    assert order[1::2] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert order[::2] == [("settle", 0)] * 4


def test_ratio_is_taken_within_each_repeat() -> None:
    found = {
        "mine": [Measured(100, 1000, 2.0), Measured(100, 1000, 20.0), Measured(100, 1000, 4.0)],
        "limit": [Measured(100, 1000, 1.0), Measured(100, 1000, 10.0), Measured(100, 1000, 1.0)],
    }
    assert ratio(found, "mine", "limit") == spread([0.5, 0.5, 0.25])
    assert spread_text(ratio(found, "mine", "limit"), 2) == "0.50 (0.25 to 0.50)"


def test_rates_do_not_depend_on_how_much_was_moved() -> None:
    assert Measured(100, 3_000_000, 2.0).events_per_second == Measured(500, 0, 10.0).events_per_second == 50
    assert Measured(100, 3_000_000, 2.0).megabytes_per_second == 1.5


def test_objects_of_a_workload_are_the_events_of_its_segments() -> None:
    workload = Workload(events=101, size=100, segments=4)
    assert sum(workload.share(segment) for segment in range(4)) == 101
    total = 0
    for segment in range(4):
        splitter = EventSplitter(0)
        events = [
            (offset, bytes(payload))
            for block in frame_many(workload.payloads(segment), 1000)
            for offset, payload in splitter.events(block)
        ]
        total += splitter.finish()
        objects = list(workload.objects(StreamName("a", "b"), segment))
        keys = [EVENT_KEYS.parse(key.removeprefix("a/b/")) for key, _ in objects]
        assert [(SegmentId(0, segment), offset, len(payload) + 8) for offset, payload in events] == keys
        assert [payload for _, payload in events] == [bytes(data) for _, data in objects]
        assert len({payload for _, payload in events}) == len(events)
    assert total == workload.bytes


def test_processes_begin_together_and_are_timed_together() -> None:
    moved = run_together(_prepare, [0.0, 1.0])
    assert moved.events == 2
    assert moved.seconds >= 1
    assert moved.processor_seconds < 1


def _prepare(nap: float) -> Callable[[], int]:
    def action() -> int:
        time.sleep(nap)
        return 1

    return action


@pytest.mark.parametrize("how", ["raise", "die"])
def test_failing_process_fails_the_run(how: str) -> None:
    with pytest.raises(RuntimeError, match="not today" if how == "raise" else "was killed"):
        run_together(_fail, [how])


def _fail(how: str) -> Callable[[], int]:
    if how == "raise":
        raise ValueError("not today")
    os._exit(9)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's high-water mark is Linux's")
def test_peak_is_seen_after_the_memory_was_given_back() -> None:
    program = "data = bytearray(b'x') * (100 << 20); del data; import time; time.sleep(1)"
    with subprocess.Popen([sys.executable, "-c", program]) as process, PeakWatch(process.pid) as watch:
        process.wait()
    assert 100 * MIB < watch.peaks.driver < 200 * MIB
    assert watch.peaks.task == watch.peaks.java == 0


def test_table_is_markdown() -> None:
    assert table(("", "x"), [("a", "1")]) == "|  | x |\n| --- | --: |\n| a | 1 |"
    assert [size_text(size) for size in (100, 1024, 1500, 8 * MIB)] == ["100 B", "1 KiB", "1500 B", "8 MiB"]


def test_command_is_compared_with_the_loops() -> None:
    """The whole command with the bare loop, its work with the loop that computes a digest."""
    found = {
        "loop": [Measured(1000, 10**9, 4.0, 1.5)],
        "digest": [Measured(1000, 10**9, 5.0, 2.0)],
        "ours": [Measured(1000, 10**9, 8.0, 4.0, 6.25)],
        "few": [Measured(4, 4000, 1.0, 1.0, 0.2)],
    }
    assert beside_loops(found, "loop", "loop", "digest") == ["loop", "1", "", "1.50", "1", "", "", "250"]
    assert beside_loops(found, "digest", "loop", "digest") == ["digest", "0.80", "", "2.00", "1.33", "", "", "200"]
    ours = ["ours", "0.50", "0.80", "4.00", "2.67", "3.00", "1.50", "125"]
    assert beside_loops(found, "ours", "loop", "digest", "few") == ours


def test_benchmarks_of_the_page_exist() -> None:
    shown = [block for block in blocks((DOCS / "performance.md").read_text()) if block.needs == "benchmarks"]
    names = [line.removeprefix("python -m benchmarks ") for block in shown for line in block.lines]
    assert len(names) > 7
    assert [name for name in names if find_spec(f"benchmarks.{name}") is None] == []


SIZES = {"10 GB": 10**10, "1 TB": 10**12, "100 TB": 10**14}
EVENTS = {"100 B": 108, "1 KiB": 1032, "64 KiB": 65544}
"""The sizes of events, with their headers."""
KINDS: list[tuple[str, LayoutName]] = [*((event, "events") for event in EVENTS), ("any", "chunks")]


def dollars(amount: float) -> str:
    return f"{amount:,.2f}" if amount < 100 else f"{amount:,.0f}"


def row(size: str, event: str, layout: LayoutName) -> str:
    events = SIZES[size] // EVENTS.get(event, 1032)
    plan = plan_archive(segments=16, bytes=SIZES[size], events=events, layout=layout, exports=30)
    export, restore, _, read_back = plan.work
    month = {each.storage_class: each.usd_month for each in plan.storage}
    cells = [size, event, f"`{layout}`", f"{plan.objects:,}", *map(dollars, (export.usd, read_back.usd, restore.usd))]
    return f"| {' | '.join([*cells, dollars(month['STANDARD']), dollars(month['GLACIER_IR'])])} |"


def test_table_of_the_page() -> None:
    page = (DOCS / "sizing.md").read_text().splitlines()
    rows = [row(size, event, layout) for size in SIZES for event, layout in KINDS]
    assert [line for line in page if line.startswith(tuple(f"| {size}" for size in SIZES))] == rows, "\n".join(rows)


ROOT = Path(__file__).parents[3]

UV = """#!/bin/sh
case $1 in
--version) exit 0 ;;
export) echo '{packages}' > "$8" ;;
esac
for argument do case $argument in
*known.json) printf '%s' '{known}' > "$argument" ;;
*packages.json) printf '%s' '{found}' > "$argument"; exit {code} ;;
esac; done
"""
VULNERABLE = '{"dependencies": [{"name": "x", "version": "1", "vulns": [{"id": "PYSEC-1"}]}]}'
SOUND = '{"dependencies": [{"name": "x", "version": "1", "vulns": []}]}'
SKIPPED = '{"dependencies": [{"name": "x", "skip_reason": "not found"}]}'


@pytest.mark.parametrize(
    ("known", "found", "code", "exit_code", "said"),
    [
        (VULNERABLE, SOUND, 0, 0, "ok      audit: no known vulnerability in 1 packages"),
        (VULNERABLE, VULNERABLE, 1, 1, "WRONG   audit"),
        (VULNERABLE, SKIPPED, 0, 2, "NOT DONE  audit: some of the packages"),
        (VULNERABLE, "", 1, 2, "NOT DONE  audit: some of the packages"),
        (SKIPPED, SOUND, 0, 2, "NOT DONE  audit: no database"),
        (SOUND, SOUND, 0, 2, "NOT DONE  audit: no database"),
        ("", SOUND, 0, 2, "NOT DONE  audit: no database"),
    ],
)
def test_audit_that_saw_nothing_is_no_success(
    known: str, found: str, code: int, exit_code: int, said: str, tmp_path: Path
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(UV.format(packages="x==1", known=known, found=found, code=code))
    uv.chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "STREAMVAULT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([ROOT / "bin/check", "--audit"], env=variables, check=False, capture_output=True, text=True)
    assert (done.returncode, said in done.stderr) == (exit_code, True), done.stderr


@pytest.mark.parametrize("is_ours", [True, False])
def test_uv_is_installed_by_its_digest(is_ours: bool, tmp_path: Path) -> None:
    """A script beside copies of lib.sh and uv.txt, of which the latter has the digest of a wheel that is made up."""
    wheel = tmp_path / "index/uv-9.9.9-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        program = zipfile.ZipInfo("uv-9.9.9.data/scripts/uv")
        program.external_attr = 0o100755 << 16
        file.writestr(program, "#!/bin/sh\necho uv 9.9.9\n")
        file.writestr("uv-9.9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 9.9.9\n")
        file.writestr("uv-9.9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("uv-9.9.9.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes() if is_ours else b"another").hexdigest()
    scripts = tmp_path / "project/bin"
    scripts.mkdir(parents=True)
    (scripts / "lib.sh").write_bytes((ROOT / "bin/lib.sh").read_bytes())
    (scripts / "uv.txt").write_text(f"uv==9.9.9 \\\n    --hash=sha256:{digest}\n")
    (scripts / "try").write_text('#!/bin/sh\n. "$(dirname -- "$0")/lib.sh"\nfind_uv\nuv --version\n')
    python = tmp_path / "python3.11"  # without venv, which takes seconds
    python.write_text(f'#!/bin/sh\n[ "$2" != venv ] && exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "STREAMVAULT_CACHE": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheel.parent),
    }
    done = subprocess.run(["sh", scripts / "try"], env=variables, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == ((0, "uv 9.9.9\n") if is_ours else (1, "")), done.stderr
    assert is_ours or "uv could not be installed" in done.stderr
