"""The modules that verbs and tasks import: imports cost time in every command, and memory in every task.

Modules named like all that is installed, in the folders of a shared machine: no child Python imports one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import streamvault.runner
from streamvault import export_stream, read_archive
from streamvault.cli.app import COMMANDS
from streamvault.exporter.archived_events import rewrite_range
from streamvault.exporter.run import export_range
from streamvault.importer.fill import fill_segment, verify_range
from streamvault.lake.task import write_file
from streamvault.manifests.verbs.check_ranges import check_ranges
from streamvault.runner import session as jvm
from streamvault.runner.opening import STORE_MODULES
from streamvault.runner.runner import Master, SparkFailed
from streamvault.runner.settings import import_folder, settings_for
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.streams import make_stream

TASKS = (export_range, fill_segment, verify_range, check_ranges, rewrite_range)
VERBS = (
    "streamvault.exporter.export",
    "streamvault.exporter.convert",
    "streamvault.importer.import_",
    "streamvault.manifests.verbs.check",
    "streamvault.manifests.verbs.show",
    "streamvault.exporter.compact",
    "streamvault.exporter.rotate",
)


def loaded(*modules: str) -> set[str]:
    """The packages that a process has loaded after importing these modules."""
    return loaded_by(f"import {', '.join(modules)}")


def loaded_by(program: str) -> set[str]:
    """The packages that a process has loaded after running this program."""
    told = f"{program}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True).stdout.split())


def test_tasks_load_neither_arrow_nor_botocore() -> None:
    tasks = {task.__module__ for task in TASKS}
    assert not loaded(*STORE_MODULES, *tasks) & {"pyarrow", "botocore", "boto3", "pyspark"}


def test_arrow_is_loaded_only_where_an_index_is_read() -> None:
    assert not loaded(*VERBS, "streamvault.manager.manager", "streamvault.replication.replicate") & {"pyarrow"}


def test_tasks_that_write_tables_load_arrow() -> None:
    assert "pyarrow" in loaded(write_file.__module__)


ROWS = """
from streamvault.lake.read import event_batches
from streamvault.lake.decoding import decoded_columns
from streamvault.lake.table import TableOptions, columns_for
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import SegmentId, StreamName
events = [frame(b'{"a": 1, "at": "2026-01-01T00:00:00Z"}'), frame(b"{}")]
[batch] = event_batches(StreamName("s", "t"), SegmentId(0, 0), 0, [b"".join(events)])
columns = columns_for({"a": "bigint", "at": "timestamp"})
table = {"scope": "s", "stream": "t", "table": "t", "kind": "parquet", "target_size": 1}
decoded_columns(TableOptions(**table, decode="json", columns=columns), batch["payload"])
"""


def test_rows_of_a_table_are_made_without_pandas() -> None:
    assert not loaded_by(ROWS) & {"pandas"}


DELAY = """
import os, sys
class Watch:
    def find_spec(self, name, *rest):
        if name == "pyarrow":
            print(os.environ["MIMALLOC_PURGE_DELAY"])
sys.meta_path.insert(0, Watch())
"""


@pytest.mark.parametrize("module", [write_file.__module__, "streamvault.cli.handoff", "streamvault.lake.handoff"])
def test_what_pyarrow_keeps_is_set_before_it_is_loaded(module: str) -> None:
    assert "1000" in loaded_by(f"{DELAY}\nimport {module}, pyarrow")


def test_runner_names_no_module_of_the_packages_above_it() -> None:
    files = list(Path(*streamvault.runner.__path__).rglob("*.py"))
    assert len(files) > 8
    assert [file.name for file in files if re.search(r"[\"']streamvault\.(?!runner)", file.read_text())] == []


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_load_botocore_only_for_s3(verb: str) -> None:
    assert not loaded(verb) & {"botocore", "boto3", "pyspark", "airflow", "pandas"}


HEAVY = frozenset({"numpy", "pyarrow", "pandas", "obstore", "grpc", "botocore", "boto3", "rich", "pyspark"})


def test_commands_start_no_threads_for_algebra() -> None:
    program = """
import os
from streamvault.cli import main
assert main(["--version"]) == 0
import numpy
print(len(os.listdir("/proc/self/task")))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "1"


LOADED = {
    "export": ("{orders} {vault} --master inline", "numpy pyarrow"),
    "import": ("{archive} {streams}/restored --master inline", "numpy pyarrow"),
    "copy": ("{orders} {streams}/copied --master inline", "numpy"),
    "append": ("{archive} --into {streams}/copied --master inline", "numpy pyarrow"),
    "join": ("{orders} {streams}/copied --into {streams}/joined --master inline", "numpy"),
    "replicate": ("{orders} {streams}/replica --master inline", "numpy"),
    "promote": ("{streams}/replica", "numpy"),
    "move": ("{streams}/restored {streams}/moved --master inline", "numpy"),
    "translate": ("{archive} {streams}/moved {pointer}", "numpy"),
    "streams": ("{streams}/", "numpy rich"),
    "sweep": ("{streams}/", "numpy"),
    "ls": ("{vault}", "rich"),
    "show": ("{archive}", "rich"),
    "timeline": ("{archive}", "rich"),
    "doctor": ("{orders} {vault}", "numpy"),
    "status": ("{vault}", "rich"),
    "report": ("{archive} -o {folder}/page.html", ""),
    "check": ("{archive} --master inline", "numpy pyarrow"),
    "get": ("{archive} {pointer}", "numpy pyarrow"),
    "cat": ("{archive}", "numpy pyarrow"),
    "plan": ("{orders}", "numpy pyarrow rich"),
    "convert": ("{archive} {elsewhere} --layout events --master inline", "numpy pyarrow"),
    "handoff": ("{archive} --format parquet --master inline", "numpy pyarrow"),
    "ddl": ("{archive} trino", "numpy pyarrow"),
    "compact": ("{archive} --master inline", "numpy"),
    "rotate": ("{orders} {vault} --master inline", "numpy pyarrow"),
    "follow": ("{orders} {vault} --for 1s", "numpy pyarrow"),
    "hold": ("{archive} audit", ""),
    "release": ("{archive} audit", ""),
    "delete": ("{archive}", ""),
    "request-restore": ("{archive} {streams}/again --queue {streams}/requests", "numpy"),
    "work": ("{streams}/requests --once --master inline", "numpy pyarrow"),
    "queue": ("show {streams}/requests", "numpy"),
    "serve": ("{archive} --listen 0 --for 1s", "numpy pyarrow grpc obstore"),
    "warm": ("{archive}", "numpy pyarrow"),
    "demo": ("--help", ""),
}
"""For each verb, a command for a small stream in a folder and its archive, and those of `HEAVY` that it loads."""


def test_what_commands_load(tmp_path: Path) -> None:
    """Each of these packages takes a noticeable part of a short command's time. The commands run in the order above."""
    stream = StreamName("shop", "orders")
    with parse_stream(f"local://{tmp_path}/streams/{stream}")[0].open() as store:
        make_stream(store, stream, events=20)
    vault, elsewhere = ((tmp_path / name).as_uri() for name in ("vault", "elsewhere"))
    (tmp_path / "vault").mkdir()
    (tmp_path / "elsewhere").mkdir()
    streams = f"local://{tmp_path}/streams/shop"
    export_stream(f"{streams}/orders", vault, master="inline")
    pointer = read_archive(f"{vault}/{stream}", columns=["pointer"]).read_all()["pointer"][0].as_py()
    places = {
        "folder": str(tmp_path),
        "streams": streams,
        "orders": f"{streams}/orders",
        "vault": vault,
        "elsewhere": elsewhere,
        "archive": f"{vault}/{stream}",
        "pointer": pointer,
    }
    assert sorted(LOADED) == sorted(COMMANDS)
    seen = {
        verb: _loaded_by_command([verb, *command.format(**places).split()]) for verb, (command, _) in LOADED.items()
    }
    assert seen == {verb: set(packages.split()) for verb, (_, packages) in LOADED.items()}


def _loaded_by_command(arguments: list[str]) -> set[str]:
    program = f"""
import sys
from streamvault.cli import main
assert main({arguments!r}) == 0
print(*{{name.partition('.')[0] for name in sys.modules}}, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return set(done.stderr.decode().splitlines()[-1].split()) & HEAVY


FOLDERS = {"TMPDIR": "temp", "HOME": "home", "XDG_CACHE_HOME": "cache", "PWD": "here"}
IMPORTING = {**os.environ, "PYTHONPATH": str(import_folder())}

DECODER = """
import io
import pyarrow as pa, pyarrow.parquet as pq
from streamvault.layouts.isolated import NotDecodable, decoded
file = io.BytesIO()
pq.write_table(pa.table({"a": [1]}), file)
try:
    list(decoded(file, {"stored": None}))
except NotDecodable as error:
    assert "has no column" in str(error), error
"""

REGISTERING = """
import sys
from streamvault.spark.sources import _package_of
from streamvault.runner.settings import import_folder
assert _package_of(sys.executable) == str(import_folder())
"""

DEMO = """
from urllib.request import urlopen
from streamvault.demo.tour import s3_server
with s3_server() as endpoint:
    assert urlopen(endpoint).status == 200
"""

WITH_TASKS = """
import sys
from streamvault.runner.opening import open_runner
def see(_):
    import os, obstore, zstandard, mmh3, pyarrow
    return [entry for entry in sys.path if entry in ("", os.getcwd())]
with open_runner("local[1]", [see]) as runner:
    [(_, found)] = runner.run(see, [0])
assert found == [], found
"""

OPERATOR = """
import sys
from unittest.mock import patch
from streamvault.airflow.submit import StreamvaultSubmitHook
with patch.object(StreamvaultSubmitHook, "_resolve_connection", lambda self: {"master": "inline", "deploy_mode": None}):
    hook = StreamvaultSubmitHook(conn_id="spark", variables={}, distributed=False)
outcome = hook.run(["ls", f"file://{sys.argv[1]}"])
assert outcome.code == 0, outcome
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders in which a module named like each installed one, and like each of Python's own, leaves a mark."""
    folder = tmp_path_factory.mktemp("planted")
    names = {name for name in {*packages_distributions(), *sys.stdlib_module_names} if name.isidentifier()}
    for place in FOLDERS.values():
        (folder / place).mkdir()
        for name in names - {"streamvault"}:
            (folder / place / f"{name}.py").write_text(
                f"open({str(folder / 'ran')!r}, 'a').write('{place} {name}, ')\n"
            )
    return folder


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(DECODER, id="decoder"),
        pytest.param(REGISTERING, id="registering"),
        pytest.param(DEMO, id="demo"),
        pytest.param(OPERATOR, id="operator"),
        pytest.param(WITH_TASKS, id="tasks", marks=pytest.mark.spark),
    ],
)
def test_child_imports_nothing_planted(program: str, planted: Path, tmp_path: Path) -> None:
    ran = planted / "ran"
    ran.unlink(missing_ok=True)
    # an empty part of the path is the working folder; of this process, too, if it had it from the start
    paths = f"import os; os.environ['PYTHONPATH'] = {f':{import_folder()}'!r}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{paths}\n{program}", str(tmp_path)],
        cwd=planted / "here",
        env={**IMPORTING, **{name: str(planted / place) for name, place in FOLDERS.items()}},
        check=False,
        capture_output=True,
        text=True,
    )
    assert not ran.exists(), ran.read_text()
    assert done.returncode == 0, done.stderr


def test_module_on_the_command_line_imports_no_library_planted(tmp_path: Path) -> None:
    for name in packages_distributions().keys() - {"streamvault"}:
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'imported {__name__}')\n")
    command = [sys.executable, "-m", "streamvault", "ls", tmp_path.as_uri()]
    done = subprocess.run(command, cwd=tmp_path, env=IMPORTING, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"no archives below {tmp_path.as_uri()}\n"), done.stderr


def test_spark_s_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: dict[str, str] = {}

    def popen(*_: object, env: dict[str, str], **__: object) -> None:
        told.update(env)
        raise OSError("enough")

    monkeypatch.setenv("PYTHONPATH", f":{tmp_path}")
    monkeypatch.setattr(jvm.subprocess, "Popen", popen)
    with pytest.raises(SparkFailed):
        jvm.Jvm().start({}, {})
    assert (told["PYTHONSAFEPATH"], told["PYTHONPATH"]) == ("1", str(tmp_path))


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077", "k8s://https://host", "yarn"])
def test_spark_tells_executors(master: str, tmp_path: Path) -> None:
    assert settings_for(Master.parse(master), tmp_path)["spark.executorEnv.PYTHONSAFEPATH"] == "1"
