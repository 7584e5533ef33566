"""The package's public interface: its functions and its version.

Type checkers take what the API page says: a program with every public function, and one misspelt attribute.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streamvault


def test_dir_lists_every_function() -> None:
    assert {*streamvault.__all__, "__version__"} == set(dir(streamvault))
    assert all(callable(getattr(streamvault, name)) for name in streamvault.__all__)


def test_docstring_names_every_function() -> None:
    assert {name for name in streamvault.__all__ if f" {name}" not in (streamvault.__doc__ or "")} == set()


PROGRAM = """
from datetime import UTC, datetime, timedelta
from pathlib import Path

from streamvault import *
from streamvault.scopes.reports import ScopeReport

uri, vault, archive = "pravega://127.0.0.1:9090/shop/orders", Path("vault"), Path("vault/shop/orders")
made = export_stream(uri, vault, window="64MiB", range_size="16MiB", from_cut=Path("cut.json"), layout="chunks")
print(made.generation + 1, ScopeReport.of(export_stream("local:///x/shop/", str(vault), window=1 << 26)).exit_code)
print(plan_archive(segments=3, bytes="1PB", events=10, network=2.5).ranges + plan_archive(uri).ranges)
print(follow_stream(uri, vault, every="10s", idle=timedelta(minutes=5), lasting=3.5, keep_for="90d").made)
print(rotate_stream(uri, vault, keep_for=timedelta(days=3), until=datetime.now(UTC), truncate_source=True).expired)
print(compact_archive(archive, target="256MiB", grace="1h").waits_until.upper())
print(convert_archive(archive, Path("other"), layout="chunks", compress="zstd").events + 1)
print(hold_archive(archive, "audit", why="they ask").generations, release_archive(archive, "audit").generations)
print(delete_archive(archive, yes=True).objects + 1)
print([each.bytes + 1 for each in list_streams("pravega://127.0.0.1:9090")])
with ephemeral_stream(uri, segments=2) as name:
    print(name.upper())
print(sweep_scope("pravega://127.0.0.1:9090/shop/", older_than="1h").dry_run)
print([each.events for each in list_archives(vault)], show_archive(archive).generation + 1)
print([each.generation + 1 for each in show_timeline(archive).entries])
print(show_status(vault, metrics=Path("metrics")).seen, show_status("local:///x/shop/", root=vault).seen)
print(write_report(vault, output=Path("page.html"), svg="figures"))
print(check_archive(archive, subset="10%", fingerprints=["ab"]).ok, check_archive(archive, subset=0.5).ok)
print(get_event(archive, "shop/orders/0.#epoch.0:0-9").hex())
for event in read_archive(archive, window="32MiB", columns=["payload"]):
    print(event)
print(check_setup(uri, vault, time_limit="5s").passed)
print(import_stream(archive, uri, at="2026-01-31T18:00:00Z", to_cut={"a/b/0.#epoch.0": 1}).events + 1)
print(warm_archive(archive, days=3, tier="Bulk", wait=True, poll="5m").dry_run, translate(str(archive), uri, ["ab"]))
print(copy_stream(uri, uri, ranges=[("a.json", {"a/b/0.#epoch.0": 1})], method="events", segments=3).bytes + 1)
print(append_streams([uri], uri, distinct=True).bytes + 1, join_streams([uri, uri], uri, window="64MiB").bytes + 1)
print(replicate_stream(archive, uri, follow=True, every="2s", retry_for=timedelta(hours=1)).rounds + 1)
print(promote_replica(uri, retention="off").tail, move_stream(uri, uri, numbers="keep").bytes + 1)
print(write_table(archive, root=Path("tables"), schema=Path("schema.json"), target_size="256MiB").added)
print(table_ddl(archive, "trino", decode="json").upper())
print(request_restore(archive, uri, queue=uri, at=datetime.now(UTC)).dry_run, work_queue(uri, idle="1m", wait=3))
print(show_queue(uri), retry_failed(uri), drop_failed(uri), skip_foreign(uri, 3, failed=True))
print(serve_archives([str(archive)], listen="0", cache="64MiB", lasting="1s").uri)
print(run_demo(keep=Path("x"), report="page.html", events=10).events + 1)
with StreamManager("pravega://127.0.0.1:9090", master="inline") as manager:
    print(manager.export_stream("shop/orders", vault, window="64MiB").generation + 1)
print(made.generatoin)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    assert {name for name in streamvault.__all__ if not re.search(rf"\b{name}\(", PROGRAM)} == set()
    file = tmp_path / "program.py"
    names = ", ".join(streamvault.__all__)
    file.write_text(PROGRAM.replace("import *", f"import {names}"))
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    return file


CHECKERS = {
    "mypy": ("mypy", "--strict", "--output=json", "--cache-dir=cache"),
    "pyright": ("basedpyright", "--outputjson", f"--pythonpath={sys.executable}"),
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_program_with_every_function_passes_but_for_its_misspelt_attribute(program: Path, checker: str) -> None:
    command = [sys.executable, "-m", *CHECKERS[checker], program.name]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
    if checker == "mypy":
        found = [json.loads(line) for line in done.stdout.splitlines()]
        lines = [(one["line"], one["message"]) for one in found]
    else:
        found = json.loads(done.stdout)["generalDiagnostics"]
        lines = [(one["range"]["start"]["line"] + 1, one["message"]) for one in found if one["severity"] == "error"]
    assert [line for line, _ in lines] == [PROGRAM.rstrip().count("\n") + 1], done.stdout + done.stderr
    assert '"generatoin"' in lines[0][1]
