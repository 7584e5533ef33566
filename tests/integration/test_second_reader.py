"""The reader in `spec/reader`, which is written in Go from the specification alone, agrees with `streamvault check`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testkit.injured_vectors import injured, random_edits
from testkit.servers.availability import Unavailable
from testkit.servers.golang import go_build
from testkit.vectors import verdict
from tests.conftest import absent

SPEC = Path(__file__).parents[2] / "spec"
FOLDER = SPEC / "vectors"
VECTORS = json.loads((FOLDER / "vectors.json").read_text())
OF = {one["name"]: one for one in VECTORS}
INJURED = json.loads((FOLDER / "injured.json").read_text())
RANDOM = 200


@pytest.fixture(scope="module")
def reader() -> Path:
    try:
        return go_build(SPEC / "reader")
    except Unavailable as error:
        absent("go", str(error))


def read(reader: Path, command: str, archive: Path) -> str:
    done = subprocess.run([reader, command, archive], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in {0, 1, 3, 4}, done.stderr
    return done.stdout


def judged(reader: Path, archive: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(reader, "verify", archive))
    return found


def test_it_finds_what_is_in_each_vector(reader: Path) -> None:
    for vector in VECTORS:
        found = judged(reader, FOLDER / vector["archive"])
        assert {name: found.get(name) for name in vector if name not in {"name", "archive"}} == {
            name: value for name, value in vector.items() if name not in {"name", "archive"}
        }, vector["name"]


def test_it_judges_each_injured_vector_alike(reader: Path) -> None:
    for case in INJURED:
        with injured(FOLDER, OF[case["of"]], case["edits"]) as archive:
            assert judged(reader, archive)["verdict"] == case["verdict"], case["name"]


def test_it_judges_random_injuries_alike(reader: Path) -> None:
    seen = set()
    for seed in range(RANDOM):
        vector = VECTORS[seed % len(VECTORS)]
        edits = random_edits(FOLDER / vector["archive"], seed)
        with injured(FOLDER, vector, edits) as archive:
            wanted = verdict(archive)
            found = judged(reader, archive)
        assert found["verdict"] == wanted, (seed, vector["name"], [one[:2] for one in edits], found.get("findings"))
        seen.add(wanted)
    assert {"intact", "damage"} <= seen


def test_it_prints_events_by_their_pointers(reader: Path) -> None:
    lines = read(reader, "events", FOLDER / OF["merged"]["archive"]).splitlines()
    assert len(lines) == OF["merged"]["events"]
    assert lines[0].startswith("scope/stream/0.#epoch.0:0-")
    assert read(reader, "list", FOLDER / OF["merged"]["archive"]).startswith("1-3\t")
