"""Java class data archive (CDS) for Spark: a Java process maps the classes instead of loading each one.

This saves 40 % of Spark's start time (docs/performance.md). Java writes the archive on exit
(https://openjdk.org/jeps/350), which takes some seconds; so only the second run on a machine creates it. Where nothing
persists between runs, as in most containers, it would be useless.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from streamvault.common.modes import make_folders, open_file
from streamvault.sparkrun.java import cache_folder

RUNTIMES_OWN = Path("lib", "server", "classes.jsa")

ABANDONED_SECONDS = 3600.0
"""An incomplete archive older than this was left by a killed process."""


class ClassArchive:
    """The archive of one Java runtime and one Spark; about 70 MB in the user's cache folder.

    Java ignores an archive that does not match its runtime, but may crash on a truncated one; call `discard` if a
    process did not start with it.

    Args:
        java_home: the runtime's folder; a runtime without its own archive cannot create another.
        spark_home: Spark's folder, with its jars.

    Attributes:
        is_due: whether a process started with `options` writes the archive on exit.
    """

    def __init__(self, java_home: Path, spark_home: Path) -> None:
        self._file: Path | None = None
        self._part: Path | None = None
        # no archive if the cache is not writable or Spark's layout is unusual
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
            make_folders(file.parent)
            os.close(open_file(been_here))

    @property
    def is_due(self) -> bool:
        """See the class."""
        return self._part is not None

    @property
    def options(self) -> str:
        """Java options with a leading space; empty if there is no archive to use or create."""
        if self._part is not None:
            return f" -XX:ArchiveClassesAtExit={self._part}"
        if self._file is not None and self._file.exists():
            # otherwise Java would write crash logs to the working directory
            return f" -XX:SharedArchiveFile={self._file} -XX:ErrorFile={self._file.with_suffix('.crash.log')}"
        return ""

    def take(self, *, whole: bool) -> None:
        """Install the archive written by an ended process, or remove the partial one if it did not exit normally."""
        if self._part is None or self._file is None:
            return
        with suppress(OSError):
            if whole:
                with self._part.open("rb") as part:
                    os.fsync(part.fileno())  # otherwise a power loss may truncate it
                self._part.replace(self._file)
            else:
                self._part.unlink()
        self._part = None

    def discard(self) -> bool:
        """Stop using the archive and delete it; return whether there was one."""
        had = bool(self.options)
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
        self._file = self._part = None
        return had


def _fingerprint(java_home: Path, spark_home: Path) -> str:
    """Hash what an archive must match; changes when another version is installed in the same place."""
    jars, runtime = spark_home / "jars", (java_home / "bin" / "java").resolve()
    versions = [f"{path} {path.stat().st_mtime_ns}" for path in (jars, runtime)]
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]
