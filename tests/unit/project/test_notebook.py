"""The guide's notebook runs as it is, and with a stream and a root of the user's own, and shows what it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

import streamvault
from testkit.small_archives import Vault

NOTEBOOK = Path(__file__).parents[3] / "docs" / "guide" / "read-an-archive.ipynb"


def run(folder: Path, *changed: str) -> list[Any]:
    """Run the notebook with these lines in place of the two that it says to change; return its cells with code."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (cell,) = (one for one in notebook.cells if one.source.startswith("stream = "))
    lines = cell.source.splitlines()
    assert [line.partition(" = ")[0] for line in lines] == ["stream", "root"]
    cell.source = "\n".join(changed or lines)
    NotebookClient(
        notebook, timeout=250, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return code_in(notebook)


def code_in(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cells: list[Any]) -> list[list[tuple[list[str], str]]]:
    """What each cell shows: the kinds of data, and the text without what differs from run to run."""
    return [
        [
            (sorted(output.get("data", {})), steady(output.get("text") or output["data"]["text/plain"]))
            for output in cell.outputs
        ]
        for cell in cells
    ]


def steady(text: str) -> str:
    text = re.sub(r"/tmp/\w+", "/tmp/…", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{64}|seconds=[\d.]+|datetime\([^)]*\)", "…", text)


def test_notebook_keeps_what_it_shows(tmp_path: Path) -> None:
    stored = code_in(nbformat.read(NOTEBOOK, as_version=4))
    assert [cell.execution_count for cell in stored] == list(range(1, len(stored) + 1))
    assert sum("image/svg+xml;base64" in str(cell.outputs) for cell in stored) == 2
    assert shown(run(tmp_path)) == shown(stored)


def test_notebook_works_with_a_stream_and_a_root_of_ones_own(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=50)
    cells = run(tmp_path, f'stream = "{vault.uri()}"', f'root = "file://{tmp_path}/vault"')
    assert f"{len(vault.events())} rows" in str(cells[-1].outputs)


def test_notebook_uses_public_names_only() -> None:
    for cell in code_in(nbformat.read(NOTEBOOK, as_version=4)):
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, ast.Import) or "streamvault" not in {one.name for one in node.names}
            if isinstance(node, ast.ImportFrom) and "streamvault" in str(node.module):
                assert node.module == "streamvault"
                assert {one.name for one in node.names} <= set(streamvault.__all__)
