"""Java's archive of the classes that Spark loads: a Java process that has it maps them instead of loading each one.

That saves 40 % of a start of Spark (docs/performance.md). Java writes it itself as it ends
(https://openjdk.org/jeps/350), which takes some seconds; so it is not the first run on a machine that makes it, but the
second: where nothing is kept from one run to the next, as in most containers, it would be made in vain.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from sparkrun.cache import cache_folder

__all__ = ["ClassArchive"]

RUNTIMES_OWN = Path("lib", "server", "classes.jsa")

ABANDONED_SECONDS = 3600.0
"""What is not whole after this time was left by a process that was killed."""


class ClassArchive:
    """One archive, for one Java runtime and one Spark; some 70 MB in the user's cache folder.

    Java itself refuses an archive that does not fit what it runs with, and goes on without; but one that is cut off it
    may take for whole and crash, so `discard` is for a process that did not start with it.

    Args:
        java_home: of the runtime; one that comes without an archive of its own classes can't make another.
        spark_home: where Spark's jars are.

    Attributes:
        is_due: whether the process started with `options` writes it as it ends.
    """

    def __init__(self, java_home: Path, spark_home: Path) -> None:
        self._file: Path | None = None
        self._part: Path | None = None
        # a cache that cannot be had or written, a Spark that has other jars than usual: it goes without
        with suppress(OSError):
            if "PYSPARK_SUBMIT_ARGS" not in os.environ and (java_home / RUNTIMES_OWN).exists():
                self._file = cache_folder() / f"spark-{_fingerprint(java_home, spark_home)}.jsa"
                self._look_for(self._file)

    def _look_for(self, file: Path) -> None:
        if file.exists():
            return
        been_here = file.with_suffix(".seen")
        if been_here.exists():
            for part in file.parent.glob(f"{file.stem}.*.part"):
                if time.time() - part.stat().st_mtime > ABANDONED_SECONDS:
                    part.unlink()
            self._part = file.with_suffix(f".{os.getpid()}.part")
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            been_here.touch()

    @property
    def is_due(self) -> bool:
        """See the class."""
        return self._part is not None

    @property
    def options(self) -> str:
        """Options for Java, with a space before them; none if there is no archive to use or to make."""
        if self._part is not None:
            return f" -XX:ArchiveClassesAtExit={self._part}"
        if self._file is not None and self._file.exists():
            # what Java says of a crash would lie in the user's folder
            return f" -XX:SharedArchiveFile={self._file} -XX:ErrorFile={self._file.with_suffix('.crash.log')}"
        return ""

    def take(self, *, whole: bool) -> None:
        """Take over what the process has written, now that it has ended.

        Args:
            whole: whether it has ended by itself; else what there is of it is removed.
        """
        if self._part is None or self._file is None:
            return
        with suppress(OSError):
            if whole:
                with self._part.open("rb") as part:
                    os.fsync(part.fileno())  # or a loss of power may leave it cut off
                self._part.replace(self._file)
            else:
                self._part.unlink()
        self._part = None

    def discard(self) -> bool:
        """Do without, from now on; whether there was something to do without."""
        had = bool(self.options)
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
        self._file = self._part = None
        return had


def _fingerprint(java_home: Path, spark_home: Path) -> str:
    """Of what an archive has to fit: it differs after another version was installed in the same place."""
    jars, runtime = spark_home / "jars", (java_home / "bin" / "java").resolve()
    said = [f"{path} {path.stat().st_mtime_ns}" for path in (jars, runtime)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]
