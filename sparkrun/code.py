"""The project's own packages as one file that executors can import from."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

__all__ = ["PACKAGES", "import_folders", "zip_code"]

PACKAGES = (
    "problems",
    "streamstore",
    "objectstore",
    "manifests",
    "sparkrun",
    "cutting",
    "exporter",
    "importer",
    "lake",
    "streamvault",
)
"""What a task may import that is ours; dependencies have to be installed where tasks run."""

_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def import_folders() -> list[Path]:
    """The folders from which this process imports our packages: a source tree, or site-packages."""
    return sorted({folder.parent for folder in _package_folders()})


def zip_code(path: Path) -> None:
    """Write our packages, as this process imports them, to a zip file; the same code makes the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for folder in _package_folders():
            for source in sorted(folder.rglob("*.py")):
                name = source.relative_to(folder.parent).as_posix()
                file.writestr(zipfile.ZipInfo(name, _LONG_AGO), source.read_bytes(), zipfile.ZIP_DEFLATED)


def _package_folders() -> Iterator[Path]:
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            yield Path(next(iter(spec.submodule_search_locations))).resolve()
