"""A hook of mkdocs: the site also has the page of changes, and the pages of docs/ that mkdocs.yml does not list."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

SECTIONS = {"guide": "How-to", "tutorial": "Tutorials", "runbooks": "Runbooks", "reference": "Reference"}
LINK = re.compile(r"\[([^]]+)\]\(((?!https?:|mailto:)[^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> None:
    """Append pages that are not listed to the section of their folder."""
    docs = Path(config["docs_dir"])
    sections = {title: pages for entry in config["nav"] for title, pages in entry.items()}
    listed = {page for pages in sections.values() for page in ([pages] if isinstance(pages, str) else pages)}
    for page in sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md")):
        if page not in listed:
            sections[SECTIONS.get(page.partition("/")[0], "Explanation")].append(page)


def on_files(files: Any, config: Any) -> None:
    """Add the page of changes, which lies at the top of the repository."""
    text = (Path(config["docs_dir"]).parent / "CHANGELOG.md").read_text()
    text = LINK.sub(r"[\1](../\2\3)", text).replace("](../docs/", "](")
    files.append(File.generated(config, "changes.md", content=text))


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Lead links that leave docs/ to the page of changes, or make them plain text: the site has no other files."""
    docs = Path(config["docs_dir"]).resolve()

    def within(found: re.Match[str]) -> str:
        target = (docs / PurePosixPath(page.file.src_uri).parent / found[2]).resolve()
        if target.is_relative_to(docs):
            return found[0]
        if target.name == "CHANGELOG.md":
            return f"[{found[1]}]({'../' * page.file.src_uri.count('/')}changes.md)"
        return f"{found[1]} (`{target.relative_to(docs.parent)}` in the repository)"

    return LINK.sub(within, markdown)
