"""Writes the pages and schemas that are generated from the sources.

python -m bin.pages              writes them, and removes those that are no longer generated
python -m bin.pages --check      says which of them are out of date
"""

from __future__ import annotations

import sys

from bin.pages import api, cli, manifest, reports


def main(argument: str = "") -> int:
    """Write or check the files."""
    made = {path: text for each in (api, cli, manifest, reports) for path, text in each.files().items()}
    stale = [path for folder in (reports.FOLDER / "reports", cli.MAN) for path in folder.iterdir() if path not in made]
    changed = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if argument:
        sys.stdout.writelines(f"{path} is not what python -m bin.pages writes\n" for path in [*stale, *changed])
        return 1 if stale or changed else 0
    for path in stale:
        path.unlink()
    for path in changed:
        path.write_text(made[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
