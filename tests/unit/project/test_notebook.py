"""The guide's notebook runs unchanged, and is stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[3] / "docs" / "guide" / "read-an-archive.ipynb"


def test_notebook_runs_and_is_kept_without_outputs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    NotebookClient(
        notebook, timeout=250, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    said = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("1000 events in generation 1" in output.get("text", "") for output in said)
