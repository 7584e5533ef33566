"""The folder outside the tree that keeps what was fetched or built for the tests, each thing once."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """``$STREAMVAULT_CACHE``, or ``~/.cache/streamvault/servers``; made when it is missing."""
    named = os.environ.get("STREAMVAULT_CACHE")
    folder = Path(named) if named else Path.home() / ".cache" / "streamvault" / "servers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """The cached folder `name`, built now if it isn't there.

    Two runs at once build it once: the second waits for the first. A build that fails or is killed leaves nothing
    under `name`.

    Args:
        name: says everything the content depends on, so the version too: ``minio-v1.2.3``.
        build: fills the empty folder it is given; what it raises goes through.
    """
    folder = cache_folder()
    wanted = folder / name
    if wanted.is_dir():
        return wanted
    with locked(folder / f"{name}.lock"):
        if wanted.is_dir():
            return wanted
        for left_over in folder.glob(f"{name}.building-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        building = Path(tempfile.mkdtemp(prefix=f"{name}.building-", dir=folder))
        try:
            build(building)
            building.rename(wanted)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return wanted


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made when it is missing."""
    with path.open("w") as file:
        # the lock ends with the process, however it ends
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
