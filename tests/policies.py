"""The logins of docs/reference/policies: what each may create and delete, and keys of every kind to try it on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "policies"

SEGMENT, ONE, MERGED = "0000000000.0000000000", "0000000009", "0000000009-0000000003"
KEYS = {
    "event": f"events/{SEGMENT}/0000000000000000000-0000000012",
    "chunk": f"chunks/{SEGMENT}/0000000000000000000-0000000000000000012",
    "work": f"_work/{ONE}/plan.json",
    "merging": f"_work/{MERGED}/plan.json",
    "probe": "_work/probe-0123456789abcdef/A",
    "manifest": f"_manifest/{ONE}.json",
    "index": f"_manifest/{ONE}.ranges.parquet",
    "mark": f"_manifest/{ONE}.checked.json",
    "noted blocks": f"_manifest/{ONE}.blocks.json",
    "merged manifest": f"_manifest/{MERGED}.json",
    "merged index": f"_manifest/{MERGED}.ranges.parquet",
    "merged mark": f"_manifest/{MERGED}.checked.json",
    "merged noted blocks": f"_manifest/{MERGED}.blocks.json",
    "decision": f"_manifest/decisions/{ONE}.json",
    "truncation": f"_manifest/truncations/{ONE}.json",
    "table record": "_table/clicks/table.json",
    "table manifest": f"_table/clicks/012345678901/_manifest/{ONE}.json",
    "table mark": f"_table/clicks/012345678901/_manifest/{ONE}.checked.json",
    "table decision": f"_table/clicks/012345678901/_manifest/decisions/{ONE}.json",
    "table probe": "_table/clicks/012345678901/_work/probe-0123456789abcdef/A",
    "table file": f"table/clicks/012345678901/generation=9/{SEGMENT}-0000000000000000000.parquet",
    "table metadata": "table/clicks/012345678901/metadata/v1.metadata.json",
    "other": "notes.txt",
}
"""A key of every kind below ``ROOT/SCOPE/STREAM/``."""

DATA = {"event", "chunk"}
WORK = {"work", "probe"}
PLAIN = {"manifest", "index"}
MERGE = {"merged manifest", "merged index"}
MARKS = {"mark", "merged mark"}
BLOCKS = {"noted blocks", "merged noted blocks"}
RECORDS = {*PLAIN, *MERGE, *MARKS, *BLOCKS, "decision", "truncation"}
TABLE = {kind for kind in KEYS if kind.startswith("table ")}
FILES = {"table file", "table metadata"}

CREATES: dict[str, set[str]] = {
    "import": set(),
    "query": set(),
    "warm": set(),
    "check": MARKS | BLOCKS,
    "hold": {"decision"},
    "export": DATA | WORK | PLAIN,
    "rotate": DATA | WORK | PLAIN | MARKS | {"decision", "truncation"},
    "compact": MERGE | MARKS | {"chunk", "merging", "probe", "decision"},
    "convert": DATA | WORK | PLAIN | MERGE | {"merging", "decision"},
    "delete": {"decision"},
    "handoff": TABLE,
}
"""Login → the kinds of keys that it may create; where the bucket does not demand create-only writes, also replace."""

DELETES: dict[str, set[str]] = {
    "import": set(),
    "query": set(),
    "warm": set(),
    "check": set(),
    "hold": set(),
    "export": WORK,
    "rotate": DATA | WORK | RECORDS | {"merging"},
    "compact": RECORDS | {"chunk", "merging", "probe"},
    "convert": WORK | {"merging"},
    "delete": DATA | WORK | RECORDS | {"merging"},
    "handoff": {"table probe", "table file"},
}
"""Login → the kinds of keys that it may delete."""


def policy(name: str, bucket: str) -> dict[str, Any]:
    """Return one of the pages' policies, for a bucket and the root ``backups`` in it."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text().replace(":::vault", f":::{bucket}"))
    return found


_SHAPES = {kind: re.compile(re.sub(r"[0-9a-f]{16}|[0-9]+", "[0-9a-f]+", re.escape(key))) for kind, key in KEYS.items()}
_SHAPES |= {
    "work": re.compile(r"_work/[0-9]{10}/.*"),
    "merging": re.compile(r"_work/[0-9]{10}-[0-9]{10}/.*"),
    "probe": re.compile(r"_work/probe-.*"),
    "table probe": re.compile(r"_table/\w+/\w+/_work/probe-.*"),
    "table manifest": re.compile(r"_table/\w+/\w+/_manifest/[0-9-]+\.(json|ranges\.parquet)"),
    "table decision": re.compile(r"_table/\w+/\w+/_manifest/decisions/.*"),
    "table record": re.compile(r"_table/\w+/(table|\w+/\w+|\w+/plan/.*)\.json"),
    "table file": re.compile(r"table/\w+/\w+/generation=.*"),
    "table metadata": re.compile(r"table/\w+/\w+/metadata/.*"),
}


def kinds_of(keys: Iterable[str]) -> set[str]:
    """Return the kinds of keys, each relative to its archive."""
    return {next((kind for kind, shape in _SHAPES.items() if shape.fullmatch(key)), key) for key in keys}
