"""Packs the project's packages into one file that executors can import from."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["PACKAGES", "import_folders", "ship_code", "zip_code"]

PACKAGES = (
    "common",
    "streamstore",
    "objectstore",
    "sparkrun",
    "layouts",
    "manifests",
    "exporter",
    "importer",
    "lake",
    "rotation",
    "streamvault",
)
"""The project's packages that tasks may import; dependencies must be installed where tasks run."""

_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_NAME = "streamvault-code-"
_shipping = threading.Lock()


def import_folders() -> list[Path]:
    """Return the folders this process imports our packages from: a source tree, or site-packages."""
    return sorted({folder.parent for folder in _package_folders()})


def zip_code(path: Path) -> None:
    """Write our packages, as imported by this process, to a zip file; output is deterministic."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for folder in _package_folders():
            for source in sorted(folder.rglob("*.py")):
                name = source.relative_to(folder.parent).as_posix()
                file.writestr(zipfile.ZipInfo(name, _LONG_AGO), source.read_bytes(), zipfile.ZIP_DEFLATED)


def ship_code(context: Any) -> None:
    """Make our packages importable on all current and future executors of a Spark context; once per context.

    Spark sends the file to every executor that runs a task, for as long as the context lives. So the file is in the
    context's own folder, which Spark removes when the context stops, and its name contains a hash of its content.
    """
    with _shipping:
        if any(Path(str(url)).name.startswith(_NAME) for url in context.listFiles):
            return
        # Spark keeps its own copies at the top of this folder
        folder = tempfile.mkdtemp(prefix="code-", dir=context._jvm.org.apache.spark.SparkFiles.getRootDirectory())  # noqa: SLF001
        code = Path(folder, "code.zip")
        zip_code(code)
        digest = hashlib.sha256(code.read_bytes()).hexdigest()
        path = list(sys.path)
        context.addPyFile(str(code.rename(Path(folder, f"{_NAME}{digest[:16]}.zip"))))
        # this process already has the code
        sys.path[:] = path


def _package_folders() -> Iterator[Path]:
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            yield Path(next(iter(spec.submodule_search_locations))).resolve()
