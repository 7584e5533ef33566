"""Check that the links of the project's pages lead to files and headings that exist; print those that do not."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


@cache
def headings(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings."""
    found = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found)


def broken(page: Path) -> Iterator[str]:
    """Yield the links of a page that lead nowhere."""
    for target, anchor in LINK.findall(BLOCK.sub("", page.read_text())):
        linked = page.parent / target if target else page
        folder = linked.is_dir() and linked.resolve().is_relative_to(ROOT / "docs")  # the site has none
        if (
            not linked.exists()
            or folder
            or (anchor and linked.suffix == ".md" and anchor not in headings(linked.resolve()))
        ):
            yield f"{page.relative_to(ROOT)}: {target}{'#' * bool(anchor)}{anchor}"


if __name__ == "__main__":
    folders = ("docs", "examples", "spec")
    pages = [*ROOT.glob("*.md"), *(page for folder in folders for page in (ROOT / folder).rglob("*.md"))]
    wrong = [link for page in sorted(pages) for link in broken(page)]
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))
