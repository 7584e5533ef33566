"""The worked examples of docs/contributing.md, executed in a copy of the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
PAGE = (TOP / "docs" / "contributing.md").read_text()

ROUND_TRIP = """
import sys
from streamvault import check_archive, export_stream, import_stream
from streamvault.demo.tour import compare, fill
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream

streams, root, layout = sys.argv[1:]
source, target = StreamName("demo", "orders"), StreamName("demo", "restored")
with parse_stream(f"{streams}/{source}")[0].open() as store:
    fill(store, source, 50)
    export_stream(f"{streams}/{source}", root, layout=layout, master="inline")
    assert check_archive(f"{root}/{source}", read_data=True, master="inline").ok
    import_stream(f"{root}/{source}", f"{streams}/{target}", master="inline")
    assert compare(store, source, target) == 50
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the package to a folder."""
    shutil.copytree(TOP / "streamvault", tmp_path / "streamvault", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def add_example(copy: Path, module: str) -> None:
    """Write the example that begins with a comment naming its module."""
    found = re.search(rf"^```python\n(# {re.escape(module)}\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no example {module}"
    (copy / module).write_text(found[1])


def change_line(copy: Path, module: str, old: str, new: str) -> None:
    """Replace a line by one that the page shows."""
    assert f"`{new}`" in PAGE.replace("\n", " ")
    text = (copy / module).read_text()
    assert text.count(old) == 1
    (copy / module).write_text(text.replace(old, new))


def run(copy: Path, *words: str) -> None:
    done = subprocess.run([sys.executable, *words], cwd=copy, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_added_object_store_holds_an_archive(copy: Path) -> None:
    add_example(copy, "streamvault/objectstore/ram.py")
    change_line(
        copy,
        "streamvault/objectstore/uri.py",
        '"memory": "streamvault.objectstore.obstore_store",',
        '"ram": "streamvault.objectstore.ram",',
    )
    run(copy, "-c", ROUND_TRIP, f"local://{copy}/streams", "ram://example/vault", "events")


def test_added_layout_holds_an_archive(copy: Path) -> None:
    add_example(copy, "streamvault/layouts/blocks.py")
    old, new = 'Literal["events", "chunks"]', 'Literal["events", "chunks", "blocks"]'
    change_line(copy, "streamvault/layouts/layout.py", f"LayoutName = {old}", f"LayoutName = {new}")
    run(copy, "-c", ROUND_TRIP, f"local://{copy}/streams", f"file://{copy}/vault", "blocks")
    assert list((copy / "vault" / "demo" / "orders" / "blocks").rglob("*-*"))


def test_added_command_prints_and_refuses(copy: Path) -> None:
    add_example(copy, "streamvault/manifests/verbs/size.py")
    add_example(copy, "streamvault/cli/size.py")
    change_line(
        copy,
        "streamvault/__init__.py",
        '"warm_archive": "streamvault.manifests.verbs.warm",',
        '"size_archive": "streamvault.manifests.verbs.size",',
    )
    line = '"demo": "Demonstrate the commands on a generated stream.",'
    change_line(copy, "streamvault/cli/app.py", line, '"size": "Print the size of an archive.",')
    run(copy, "-c", ROUND_TRIP, f"local://{copy}/streams", f"file://{copy}/root", "events")
    archive = f"file://{copy}/root/demo/orders"
    run(copy, "-m", "streamvault", "size", archive, "--json")
    run(copy, "-m", "streamvault", "size", archive, "--since", "2")
    with pytest.raises(AssertionError, match="--since must be at least 1: 0"):
        run(copy, "-m", "streamvault", "size", archive, "--since", "0")
