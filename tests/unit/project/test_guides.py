"""The commands, options and messages in the documentation exist; bin/links.py looks at the links."""

from __future__ import annotations

import ast
import io
import re
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from streamvault.cli import main
from streamvault.cli.app import COMMANDS
from tests.pages import FENCED, SYNOPSIS

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
