"""The commands, options and messages in the documentation exist; bin/links.py looks at the links.

The tour of README.md and the tutorials, one after the other as they are written, but for their folder.

The figures in the documentation can be drawn again.

The guide's notebook runs as it is, and with a stream and a root of the user's own, and shows what it says.

The page about the command line, and the man pages.

The page of the public functions.

The worked examples of docs/contributing.md, executed in a copy of the package.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import streamvault
from bin.pages.api import page as api_page
from bin.pages.cli import MAN, commands, man_pages
from bin.pages.cli import page as cli_page
from bin.pages.reports import FOLDER
from streamvault import errors
from streamvault.cli import main
from streamvault.cli.app import COMMANDS, help_records
from streamvault.manager.manager import StreamManager
from testkit.small_archives import Vault
from tests.pages import DOCS, FENCED, SYNOPSIS, Page, blocks, command_lines

ROOT = Path(__file__).parents[3]
OTHERS = {"README.md", "commands.md", "faq.md", "policies.md", "s3-servers.md", "sizing.md"}
ELSEWHERE = re.compile(r"^<!-- needs: .*?-->\n *```.*?^ *```$", re.MULTILINE | re.DOTALL)
"""Blocks of commands that are not Streamvault's."""
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
FOR_USERS = [page for page in DOCUMENTS if page.parent.name in {"guide", "runbooks", "tutorial"} or page.name in OTHERS]

GLOSSARY = "".join((ROOT / "docs" / page).read_text() for page in ("concepts.md", "reference/nouns.md"))
"""The terms that users read, and those of the code."""


@pytest.fixture(scope="module")
def sources() -> str:
    return "\n".join(file.read_text() for file in (ROOT / "streamvault").rglob("*.py"))


def test_every_message_of_the_troubleshooting_guide_is_in_the_sources(sources: str) -> None:
    guide = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text()
    told = [
        cell for row in re.findall(r"^\| (`[^|]*) \|", guide, re.MULTILINE) for cell in re.findall(r"`([^`]+)`", row)
    ]
    damaged = guide.partition("## Damaged archives")[2].partition("\n## ")[0]
    told += [text for text in re.findall(r"`([^`]+)`", damaged) if " " in text]
    assert len(told) > 30
    missing = [text for text in told if not all(part.strip() in sources for part in text.split("…"))]
    assert missing == []


def test_every_message_of_the_runbooks_is_in_the_sources(sources: str) -> None:
    pages = [page.read_text() for page in (ROOT / "docs" / "runbooks").glob("*.md")]
    told = [text for page in pages for text in re.findall(r"\(`([^`]+)`\)", page) if " " in text and "=" not in text]
    assert len(told) > 4
    assert [text for text in told if not all(part.strip() in sources for part in text.split("…"))] == []


def test_every_cell_of_the_threat_model_names_a_test_that_is_there() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    rows = re.findall(r"^\| (.*) \|$", page.partition("## Threat model")[2].partition("\n### ")[0], re.MULTILINE)[1:]
    named = [re.findall(r"`(tests/\S+\.py)::(\w+)`", cell) for row in rows for cell in row.split(" | ")[1:]]
    policies = {file.name for file in (ROOT / "docs" / "reference" / "policies").glob("*.json")}
    assert policies - set(re.findall(r"\w+\.json", "".join(rows))) == {"create-only.json", "warm.json"}
    assert len(named) == 2 * len(rows) > 20
    assert all(named)
    found = {(file, name) for cell in named for file, name in cell}
    assert [one for one in sorted(found) if f"\ndef {one[1]}(" not in (ROOT / one[0]).read_text()] == []


def test_every_term_of_the_glossary_is_used_in_the_sources(sources: str) -> None:
    rows = re.findall(r"^\| (\*\*.*?) \|", GLOSSARY, re.MULTILINE)
    terms = [term for cell in rows for term in re.findall(r"\*\*(.+?)\*\*", cell)]
    assert 50 < len(terms) <= 70
    assert len(set(terms)) == len(terms)
    assert {"replica", "ledger", "tombstone", "table"} < set(terms)
    assert [term for term in terms if not re.search(rf"\b{term}\b", sources, re.IGNORECASE)] == []


def test_classes_have_names_of_their_own() -> None:
    """But for errors, whose names say what happened, and for the messages that Pravega has named."""
    found, bases = Counter[str](), dict[str, set[str]]()
    for file in (ROOT / "streamvault").rglob("*.py"):
        if file.name == "wire.py" or "_pb2" in file.name:
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name] += 1
                bases.setdefault(node.name, set()).update(ast.unparse(base) for base in node.bases)
    errors = {"Exception", "BaseException", "RuntimeError", "ValueError", "OSError"}
    while more := {name for name, above in bases.items() if above & errors} - errors:
        errors |= more
    classes = {name: count for name, count in found.items() if name not in errors}
    assert len(classes) > 150
    assert [name for name, count in classes.items() if count > 1] == []


@pytest.fixture(scope="module")
def options() -> set[str]:
    """The options of all commands, and those of other programs that the pages mention."""
    shown = io.StringIO()
    with redirect_stdout(shown):
        for command in ("", *COMMANDS, "queue show", "queue skip"):
            main([*command.split(), "--help"])
    known = set(re.findall(r"--[a-z-]+", shown.getvalue()))
    assert len(known) > 50
    of_bin_test_and_docker = {"--fast", "--rm", "--profile"}
    of_uv_pip_and_airflow = {
        "--override",
        "--force-reinstall",
        "--no-deps",
        "--compile-bytecode",
        "--conn-json",
        "--constraint",
    }
    of_image_builds = {"--no-cache", "--chown", "--isolation", "--network", "--tag"}
    return known | of_bin_test_and_docker | of_uv_pip_and_airflow | of_image_builds


KINDS = {"tutorial": "Tutorials", "guide": "How-to", "runbooks": "Runbooks", "reference": "Reference"}
"""A page's folder → the kind of page that it is."""


def test_site_shows_each_page_among_those_of_its_kind() -> None:
    shown = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    sections = re.findall(r"^  - ([\w-]+):\n((?:      - .*\n)+)", shown, re.MULTILINE)
    assert {*KINDS.values(), "Explanation"} == {title for title, _ in sections}
    found = {page: title for title, pages in sections for page in re.findall(r"- (\S+)", pages)}
    assert {page: KINDS[page.partition("/")[0]] for page in found if "/" in page}.items() <= found.items()


@pytest.mark.parametrize("folder", ["tutorial", "guide", "runbooks"])
def test_pages_about_tasks_leave_options_to_the_reference(folder: str) -> None:
    """No synopsis, and no table of options: docs/reference/cli.md is generated and has all of them."""
    for page in (ROOT / "docs" / folder).glob("*.md"):
        blocks = [
            re.sub(r"^ +", "", found["text"] or "", flags=re.MULTILINE) for found in FENCED.finditer(page.read_text())
        ]
        assert not [text for text in blocks if SYNOPSIS.match(text)], page
        assert not re.findall(r"^\| `--[a-z-]+( [A-Z]+)?`", page.read_text(), re.MULTILINE), page


@pytest.mark.parametrize("document", FOR_USERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_in_the_guides_exist(document: Path, options: set[str]) -> None:
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ELSEWHERE.sub("", document.read_text()))) <= options


TUTORIAL = ("first-archive", "first-restore", "first-table", "disaster-drill")
NOT_SHOWN = [
    "ls ~/tour/vault/demo/orders/events/0000000001.0000000003 | head -n 3",
    "rm -r /tmp/trial/streams/demo/sales",
]
"""The commands that are not Streamvault's."""

EVENTS = 300
"""Fewer events than the demo makes by default."""


def test_tutorials(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMVAULT_MASTER", "inline")
    trial = tmp_path / "trial"
    reports = {}
    tour = Page("../README.md", {"$HOME/tour": str(trial), "~/tour": str(trial)}, capfd)
    for name in TUTORIAL:
        page = Page(f"tutorial/{name}.md", {"/tmp/trial": str(trial)}, capfd)
        text = (DOCS / page.file).read_text()
        assert sum(map(len, page.left.values())) == len(command_lines(text, needing=False)), (
            "each command is in a section"
        )
        for section in list(page.left):
            if section == "A stream":
                page.left[section][0] += ["--events", str(EVENTS)]
            if section == "With Pravega's own clients":
                page.left[section][0] += ["--for", "1s"]
            if section == "The disaster":
                page.line(NOT_SHOWN[1])
                page.run(section, 5)
            elif section == "A single event":
                listed, _ = page.left.pop(section)
                (event,) = page.command(listed)["events"]
                assert page.command(["get", listed[1], event["pointer"]])["payload"]
            else:
                reports[section] = page.run(section)
            if section == "A stream":
                shown = tour.run("A tour")
                tour.line(NOT_SHOWN[0])
                assert [report.get("events") for report in shown] == [EVENTS, None, EVENTS, EVENTS]
        for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(program.replace("/tmp/trial", str(trial)))
            assert "events" in capfd.readouterr().out
    files = ["../README.md", *(f"tutorial/{name}.md" for name in TUTORIAL)]
    shown_lines = [
        line for file in files for block in blocks((DOCS / file).read_text()) if not block.needs for line in block.lines
    ]
    assert [line for line in shown_lines if not line.startswith("streamvault ")] == NOT_SHOWN
    first, second = reports["Archive it"][1], reports["Archive new events"][2]
    assert (first["generation"], second["generation"]) == (1, 2)
    assert first["events"] == second["events"] > 0
    assert reports["With Pravega's own clients"][0]["served"] == ["demo/sales"]
    assert reports["Keep it up to date"][0]["unchanged"]
    assert reports["Resume the schedule"][1]["archives"]


def test_figures_are_those_that_the_command_draws(tmp_path: Path) -> None:
    """As many marks and as many texts: how wide a text is depends on the machine's fonts."""
    subprocess.run([sys.executable, ROOT / "bin" / "figures", tmp_path], check=True, timeout=120, env={})
    drawn = {file.name: file.read_text() for file in tmp_path.iterdir()}
    kept = {file.name: file.read_text() for file in (ROOT / "docs" / "figures").glob("*.svg")}
    assert drawn.keys() == kept.keys() == {"architecture.svg", "heat-map.svg", "segments.svg"}
    for name, text in kept.items():
        assert [drawn[name].count(mark) for mark in ("<path", "<text", "fill=")] == [
            text.count(mark) for mark in ("<path", "<text", "fill=")
        ]
        assert len(text) < 40_000


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


@pytest.mark.long
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


def test_page_has_each_command_with_its_options_in_whole_sentences() -> None:
    sections = dict(re.findall(r"^## ([a-z -]+)\n(.*?)(?=^## |\Z)", cli_page(), re.MULTILINE | re.DOTALL))
    assert list(sections) == [name for name, _ in commands()]
    assert {name.partition(" ")[0] for name in sections} == {*COMMANDS}
    for name, command in commands():
        for one in re.findall(r"^\| `.*` \| (.*) \|$", sections[name], re.MULTILINE):
            assert one.endswith((".", "]", ")")), one
        records = help_records(command, command.make_context(name, [], resilient_parsing=True))
        shown = {"--json", "--log-level", "-h"}
        options = {form.split()[0].rstrip(",") for form, _ in records["Options"]} - shown
        assert options == set(re.findall(r"^\| `(-[^ `,]+)", sections[name], re.MULTILINE))


def test_man_pages_have_each_command() -> None:
    pages = man_pages()
    assert set(pages) == {"streamvault.1", *(f"streamvault-{name.replace(' ', '-')}.1" for name, _ in commands())}
    for text in pages.values():
        assert text.isascii()
        assert all(re.match(r"\.(TH|SH|TP|PP)\b", line) for line in text.splitlines() if line.startswith((".", "'")))
    assert {file.name: file.read_text() for file in MAN.iterdir()} == pages


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_page_is_printed() -> None:
    command = ["groff", "-man", "-Tutf8", "-P-c", "-ww", "streamvault-export.1"]
    shown = subprocess.run(command, cwd=MAN, capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    assert "--range-size SIZE" in re.sub(".\b", "", shown.stdout)
    assert "Archive a stream" in " ".join(shown.stdout.split())


def test_page_has_no_tags() -> None:
    assert re.findall(r"<[A-Za-z]+>", re.sub(r"`[^`]*`", "", cli_page())) == []


def test_page_has_each_function_with_its_arguments_and_errors() -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", api_page(), re.MULTILINE | re.DOTALL))
    assert set(sections) == {*streamvault.__all__, "register"}
    for name in streamvault.__all__:
        section, called = sections[name], inspect.signature(getattr(streamvault, name))
        assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(called.parameters)
        assert f"{name}(" in section
        assert "``" not in section.replace("```", "")
    assert "`stream` may also name a [scope]" in sections["export_stream"]
    assert "[`ExportReport`](reports.md#export)" in sections["export_stream"]
    assert "[`Manifest`](format.md)" in sections["show_archive"]
    assert "ArchiveSummary" in sections["list_archives"]
    assert "-> " not in sections[StreamManager.__name__].partition("```python")[2].partition("```")[0]
    assert re.findall(r"^\| `(\w+)` \| \d", api_page(), re.MULTILINE) == errors.__all__


def test_links_of_the_page_lead_somewhere() -> None:
    text = api_page()
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line.startswith("##")}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= headings
    reports = (FOLDER / "reports.md").read_text()
    for anchor in re.findall(r"\(reports\.md#([\w-]+)\)", text):
        assert re.search(rf"^## {anchor}$", reports, re.MULTILINE | re.IGNORECASE), anchor


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


def run_copy(copy: Path, *words: str) -> None:
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
    run_copy(copy, "-c", ROUND_TRIP, f"local://{copy}/streams", "ram://example/vault", "events")


def test_added_layout_holds_an_archive(copy: Path) -> None:
    add_example(copy, "streamvault/layouts/blocks.py")
    old, new = 'Literal["events", "chunks"]', 'Literal["events", "chunks", "blocks"]'
    change_line(copy, "streamvault/layouts/layout.py", f"LayoutName = {old}", f"LayoutName = {new}")
    run_copy(copy, "-c", ROUND_TRIP, f"local://{copy}/streams", f"file://{copy}/vault", "blocks")
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
    run_copy(copy, "-c", ROUND_TRIP, f"local://{copy}/streams", f"file://{copy}/root", "events")
    archive = f"file://{copy}/root/demo/orders"
    run_copy(copy, "-m", "streamvault", "size", archive, "--json")
    run_copy(copy, "-m", "streamvault", "size", archive, "--since", "2")
    with pytest.raises(AssertionError, match="--since must be at least 1: 0"):
        run_copy(copy, "-m", "streamvault", "size", archive, "--since", "0")
