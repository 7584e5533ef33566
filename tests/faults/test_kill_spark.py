"""A streaming query from one stream to another, or to files, that is killed: every event is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.servers.java import spark_environment
from testkit.servers.pravega import PravegaServer
from testkit.streams import events_of, make_stream
from tests.faults.conftest import KILLS as DEFAULT_KILLS

pytestmark = [pytest.mark.pravega, pytest.mark.spark, pytest.mark.timeout(900)]

KILLS = 3
"""Of each kind of copy; each costs a start of Spark, so by default one kind is killed once."""

WRITTEN = {"parquet": "files/_spark_metadata/{}", "folders": "files/batch={}/_SUCCESS"}
"""The evidence that all files of a batch exist."""
BEGUN = "begun"


@pytest.mark.parametrize("kind", ["stream", pytest.param("batches", marks=pytest.mark.late)])
def test_killed_copy_is_complete_after_a_restart(
    request: pytest.FixtureRequest, pravega: PravegaServer, tmp_path: Path, kind: str
) -> None:
    every = int(request.config.getoption("kills", default=0)) > DEFAULT_KILLS
    if kind != "stream" and not every:
        pytest.skip(f"--kills {DEFAULT_KILLS + 1} or more kills every kind of copy")
    scope = f"scope-{uuid.uuid4().hex[:8]}"
    source, target = StreamName(scope, "source"), StreamName(scope, "target")
    # in the middle of the batch after the first one that it has done, a little later each time
    kills = KILLS if every else 1
    with parse_stream(f"{pravega.uri}/{source}")[0].open() as store:
        make_stream(store, source, events=300 + 400 * kills, largest=100_000)
        store.create_stream(target, StreamConfiguration(scaling=Scaling(min_segments=3)))
        arguments = [f"{pravega.uri}/{source}", f"{pravega.uri}/{target}", str(tmp_path / "checkpoint"), kind]
        ended = [copy(arguments, kill_after=0.2 * run) for run in range(kills)]
        assert not whole(ended[0])
        assert whole(copy(arguments))
        found = sorted(payload for _, payload in events_of(store, target))
        assert found == sorted(payload for _, payload in events_of(store, source))


EVERY_MOMENT = ("planned", "writing", "written", "noted")
"""When a batch is planned, when its first file exists, when all exist, and when the query has recorded it."""


@pytest.mark.long  # each moment costs a start of Spark
@pytest.mark.parametrize("kind", ["parquet", "folders"])
def test_killed_query_writes_complete_files_after_a_restart(pravega: PravegaServer, tmp_path: Path, kind: str) -> None:
    source = StreamName(f"scope-{uuid.uuid4().hex[:8]}", "source")
    with parse_stream(f"{pravega.uri}/{source}")[0].open() as store:
        make_stream(store, source, events=300 * len(EVERY_MOMENT), largest=100_000)
        arguments = [f"{pravega.uri}/{source}", str(tmp_path / "files"), str(tmp_path / "checkpoint"), kind]
        hit = set()
        for number, moment in enumerate(EVERY_MOMENT):
            # the batch that the previous kill left unfinished comes first
            batch = 2 * number + 1
            assert not whole(copy(arguments, kill_at=reaching(moment, batch, kind, tmp_path)))
            if reached(batch, kind, tmp_path) in {moment, BEGUN}:
                hit.add(moment)
        output = copy(arguments)
        wanted = sorted((str(pointer), payload) for pointer, payload in events_of(store, source))
    print("killed at:", *sorted(hit))
    assert len(hit) >= len(EVERY_MOMENT) - 1, "kills came too late"
    assert output.endswith(f"rows {len(wanted)}\ndone\n")
    files = tmp_path / "files"
    chosen = committed(files) if kind == "parquet" else sorted(files.glob("batch=*/*.parquet"))
    rows = [row for path in chosen for row in pq.read_table(path, columns=["pointer", "payload"]).to_pylist()]
    assert sorted((row["pointer"], row["payload"]) for row in rows) == wanted


def reaching(moment: str, batch: int, kind: str, folder: Path) -> Callable[[], bool]:
    """A function that returns whether a batch has reached that moment."""
    before: set[Path] = set()

    def there() -> bool:
        if moment != "writing":
            return (folder / place(moment, kind).format(batch)).exists()
        # not rglob: Spark deletes folders meanwhile
        found = {
            Path(at) / name for at, _, names in os.walk(folder / "files") for name in names if name.startswith("part-")
        }
        if not (folder / place("planned", kind).format(batch)).exists():
            before.update(found)
        return bool(found - before)

    return there


def reached(batch: int, kind: str, folder: Path) -> str:
    """How far a batch has come; `BEGUN` while its files are not all there."""
    if (folder / place("planned", kind).format(batch + 1)).exists():
        return "the next one is planned"
    for moment in ("noted", "written"):
        if (folder / place(moment, kind).format(batch)).exists():
            return moment
    return BEGUN


def place(moment: str, kind: str) -> str:
    """The files that exist from that moment on."""
    checkpoint = {"planned": "checkpoint/offsets/{}", "noted": "checkpoint/commits/{}"}
    return checkpoint.get(moment) or WRITTEN[kind]


def whole(output: str) -> bool:
    """Whether the program ended normally."""
    return output.endswith("done\n")


def committed(files: Path) -> list[Path]:
    """The files that the log of Spark's sink names; those of killed batches are there too."""
    names = set()
    for log in (files / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            names |= {part.split('"')[3].rpartition("/")[2] for part in log.read_text().splitlines()[1:]}
    return [files / name for name in sorted(names)]


def copy(arguments: list[str], kill_after: float | None = None, kill_at: Callable[[], bool] | None = None) -> str:
    """Run the program; what it said. It is killed so many seconds after its first batch, or when it is time."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.spark_copy", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **spark_environment()},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        if kill_after is not None:
            for line in iter(process.stdout.readline, ""):
                if line.startswith("batch"):
                    break
            time.sleep(kill_after)
        while kill_at is not None and not kill_at() and process.poll() is None:
            time.sleep(0.01)
        killed = kill_after is not None or (kill_at is not None and process.poll() is None)
        if killed:
            os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert killed or process.returncode == 0, errors
    return output
