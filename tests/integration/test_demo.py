"""The demo as a user runs it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from streamvault.cli import main
from streamvault.cli.demo import _show
from streamvault.cli.output import Results
from streamvault.demo.report import DemoReport
from streamvault.runner.runner import NoJava

EVENTS = 1_500
"""Fewer events than by default, and without Spark: bin/demo runs in CI too."""

pytestmark = [pytest.mark.timeout(600)]


def test_demo_passes_and_keeps_its_files_on_request(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept, page = tmp_path / "with a blank", tmp_path / "page.html"
    shown = subprocess.run(
        [
            sys.executable,
            "-m",
            "streamvault",
            "demo",
            "--json",
            "--keep",
            kept,
            "--events",
            str(EVENTS),
            "--report",
            page,
            "--master",
            "inline",
            # a slow machine would say how far a step is
            "--progress-every",
            "0",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    report = json.loads(shown.stdout)
    assert (report["events"], report["segments"], report["epochs"]) == (EVENTS, 5, 2)
    assert [proof["step"] for proof in report["proofs"]] == [
        "create a stream",
        "export it to S3",
        "list it with boto3",
        "export again",
        "import it as a new stream",
        "compare both streams",
        "export it in chunks",
        "import and compare",
        "check --read-data",
        "hand it off as a table",
        "archive a growing stream",
        "draw it",
    ]
    widest = [max(len(proof[column]) for proof in report["proofs"]) for column in ("step", "shown")]
    assert sum(widest) + len("SECONDS") + 2 * 2 <= 80, "the table fits a terminal"
    assert report["first_keys"][0].startswith("events/0000000000.0000000000/0000000000000000000-")
    assert report["kept"] == str(kept)
    assert report["page"] == str(page)
    assert "Where the bytes went" in page.read_text()

    # the kept streams and archive can be used with the other commands
    assert main(["check", f"{(kept / 'archive').as_uri()}/demo/orders", "--master", "inline", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["events"] == EVENTS
    with Results() as results:
        _show(results, DemoReport(**{**report, "proofs": (), "first_keys": ()}))
    *_, last = capfd.readouterr().out.splitlines()
    words = shlex.split(last.partition("streamvault ")[2])
    assert main([*words, "--listen", "0", "--for", "1s", "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[0])["served"] == ["demo/orders"]

    # and an existing folder is never changed
    assert main(["demo", "--keep", str(kept)]) == 4
    assert capfd.readouterr().err == (f"streamvault: the folder for the demo is not empty: {kept}. Use a new folder.\n")


def test_demo_without_java_leaves_the_query_out(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java() -> Path:
        raise NoJava("no Java runtime", todo="Install one.")

    monkeypatch.setattr("streamvault.demo.tour.java_home", no_java)
    monkeypatch.setenv("STREAMVAULT_MASTER", "auto")
    assert main(["demo", "--events", "50", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["proofs"][-1]["step"] == "hand it off as a table"
    assert "skipped the SQL query, which needs Spark: no Java runtime. Install one.\n" in err
