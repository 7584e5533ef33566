"""The archives in `spec/vectors`: what a check says of each is what the specification says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamvault.manifests.archive import Archive
from streamvault.objectstore.uri import RootAddress
from testkit.injured_vectors import injured
from testkit.small_archives import NAME
from testkit.vectors import VECTORS, expected, make, verdict

FOLDER = Path(__file__).parents[2] / "spec" / "vectors"
OF = {one["name"]: one for one in json.loads((FOLDER / "vectors.json").read_text())}
INJURED = json.loads((FOLDER / "injured.json").read_text())


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_read_as_the_specification_says(name: str) -> None:
    vector = OF[name]
    root = FOLDER / str(vector["archive"]).removesuffix(f"/{NAME}")
    found = expected(Archive(RootAddress.parse(f"file://{root}"), NAME))
    assert {"name": name, "archive": vector["archive"], **found} == vector
    with injured(FOLDER, vector, ()) as archive:
        assert verdict(archive) == vector["verdict"]


@pytest.mark.parametrize("case", INJURED, ids=lambda one: one["name"])
def test_an_injured_vector_is_judged_as_the_specification_says(case: dict[str, Any]) -> None:
    with injured(FOLDER, OF[case["of"]], case["edits"]) as archive:
        assert verdict(archive) == case["verdict"]


def test_what_makes_the_vectors_makes_these(tmp_path: Path) -> None:
    make(tmp_path)
    assert json.loads((tmp_path / "vectors.json").read_text()) == list(OF.values()), "a change of the format"
    named = [{**one, "edits": len(one["edits"])} for one in json.loads((tmp_path / "injured.json").read_text())]
    assert named == [{**one, "edits": len(one["edits"])} for one in INJURED]
