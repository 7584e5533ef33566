"""The worked examples of docs/contributing.md, executed as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from objectstore.uri import SCHEMES
from streamstore.model import StreamName
from streamstore.uri import parse_stream
from streamvault import check_archive, export_stream, import_stream
from streamvault.demo.stream import compare, fill

PAGE = Path(__file__).parent.parent.parent / "docs" / "contributing.md"
SOURCE, TARGET = StreamName("demo", "orders"), StreamName("demo", "restored")


def load_example(file: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Import the example that begins with a comment naming its file; returns the module's name."""
    found = re.search(rf"^```python\n(# {re.escape(file)}\n.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"no example {file}"
    module = ModuleType(file.removesuffix(".py").replace("/", "."))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(found[1], file, "exec"), module.__dict__)
    return module.__name__


def test_added_object_store_holds_an_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SCHEMES, "ram", load_example("objectstore/ram.py", monkeypatch))
    streams = f"local://{tmp_path}/streams"
    with parse_stream(f"{streams}/{SOURCE}")[0].open() as store:
        fill(store, SOURCE, 50)
        export_stream(f"{streams}/{SOURCE}", "ram://example/vault", master="inline")
        assert check_archive(f"ram://example/vault/{SOURCE}", read_data=True, master="inline").ok
        import_stream(f"ram://example/vault/{SOURCE}", f"{streams}/{TARGET}", master="inline")
        assert compare(store, SOURCE, TARGET) == 50
