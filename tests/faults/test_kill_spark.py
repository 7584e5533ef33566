"""A streaming query from one stream to another, or to files, that is killed: every event is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkrun.java import java_home
from streamstore.model import Scaling, StreamConfiguration, StreamName
from streamstore.store import StreamStore
from streamstore.uri import parse_stream
from tests.faults.conftest import KILLS as DEFAULT_KILLS
from tests.servers.pravega import PravegaServer
from tests.streams import events_of, make_stream

pytestmark = [pytest.mark.long, pytest.mark.pravega, pytest.mark.spark, pytest.mark.timeout(900)]

KILLS = 3
"""Of each kind of copy; each costs a start of Spark, so one kind is killed once unless more is asked for."""


@pytest.mark.parametrize(
    "kind", ["stream", pytest.param("batches", marks=pytest.mark.late), pytest.param("parquet", marks=pytest.mark.late)]
)
def test_a_copy_that_is_killed_is_whole(
    request: pytest.FixtureRequest, pravega: PravegaServer, tmp_path: Path, kind: str
) -> None:
    every = int(request.config.getoption("kills", default=0)) > DEFAULT_KILLS
    if kind != "stream" and not every:
        pytest.skip(f"--kills {DEFAULT_KILLS + 1} or more kills every kind of copy")
    scope = f"scope-{uuid.uuid4().hex[:8]}"
    source, target = StreamName(scope, "source"), StreamName(scope, "target")
    with parse_stream(f"{pravega.uri}/{source}")[0].open() as store:
        make_stream(store, source, events=1500, largest=100_000)
        store.create_stream(target, StreamConfiguration(scaling=Scaling(min_segments=3)))
        files = tmp_path / "files"
        where = str(files) if kind == "parquet" else f"{pravega.uri}/{target}"
        arguments = [f"{pravega.uri}/{source}", where, str(tmp_path / "checkpoint"), kind]
        # in the middle of the batch after the first one that it has done, a little later each time
        kills = KILLS if every else 1
        ended = [copy(arguments, kill_after=0.2 * run) for run in range(kills)]
        assert not ended[0]
        assert copy(arguments)
        check_whole(store, source, target, files if kind == "parquet" else None)


def check_whole(store: StreamStore, source: StreamName, target: StreamName, files: Path | None) -> None:
    if files is None:
        found = sorted(payload for _, payload in events_of(store, target))
        assert found == sorted(payload for _, payload in events_of(store, source))
        return
    rows = [
        (row["pointer"], row["payload"])
        for path in committed(files)
        for row in pq.read_table(path, columns=["pointer", "payload"]).to_pylist()
    ]
    assert sorted(rows) == sorted((str(pointer), payload) for pointer, payload in events_of(store, source))


def committed(files: Path) -> list[Path]:
    """The files that Spark's log of the sink names; those of killed batches lie there too."""
    names = set()
    for log in (files / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            names |= {part.split('"')[3].rpartition("/")[2] for part in log.read_text().splitlines()[1:]}
    return [files / name for name in sorted(names)]


def copy(arguments: list[str], kill_after: float | None = None) -> bool:
    """Run the program; whether it came to its end. It is killed so many seconds after its first batch."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.spark_copy", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        if kill_after is not None:
            for line in iter(process.stdout.readline, ""):
                if line.startswith("batch"):
                    break
            time.sleep(kill_after)
            os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert kill_after is not None or process.returncode == 0, errors
    return output.endswith("done\n")
