"""Java's archive of Spark's classes: when it is created, used and recreated; also with a real Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from streamvault.sparkrun.class_archive import ABANDONED_SECONDS, RUNTIMES_OWN, ClassArchive
from streamvault.sparkrun.java import java_home


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Folders of a Java runtime and a Spark; the cache is empty."""
    java, spark = tmp_path / "java", tmp_path / "spark"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").touch()
    (java / "lib" / "server").mkdir(parents=True)
    (java / "lib" / "server" / "classes.jsa").touch()
    (spark / "jars").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    return java, spark


def written(archive: ClassArchive) -> Path:
    """Writes the file that Java was told to write."""
    name, _, path = archive.options.strip().partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    Path(path).write_text("classes")
    return Path(path)


def made(java: Path, spark: Path) -> None:
    """Create it, by two runs."""
    ClassArchive(java, spark)
    second = ClassArchive(java, spark)
    written(second)
    second.take(whole=True)


def test_second_run_makes_the_archive_and_the_third_uses_it(places: tuple[Path, Path]) -> None:
    first = ClassArchive(*places)
    assert (first.options, first.is_due) == ("", False)
    first.take(whole=True)
    second = ClassArchive(*places)
    part = written(second)
    assert second.is_due
    second.take(whole=True)
    assert not part.exists()
    third = ClassArchive(*places)
    assert not third.is_due
    use, crash = third.options.split()
    name, _, path = use.partition("=")
    assert (name, Path(path).read_text()) == ("-XX:SharedArchiveFile", "classes")
    assert crash == f"-XX:ErrorFile={Path(path).with_suffix('.crash.log')}"


def test_incomplete_archive_is_removed_and_made_again(places: tuple[Path, Path]) -> None:
    ClassArchive(*places)
    for write in (True, False):
        killed = ClassArchive(*places)
        part = written(killed) if write else None
        killed.take(whole=False)
        assert part is None or not part.exists()
    never_wrote = ClassArchive(*places)
    never_wrote.take(whole=True)  # a runtime that cannot create one
    assert ClassArchive(*places).is_due


def test_files_of_a_killed_process_are_removed_later(places: tuple[Path, Path]) -> None:
    ClassArchive(*places)
    left = written(ClassArchive(*places))
    ClassArchive(*places)
    assert left.exists()  # it may still be being written
    past = time.time() - ABANDONED_SECONDS - 1
    os.utime(left, (past, past))
    ClassArchive(*places)
    assert not left.exists()


def test_other_spark_or_java_has_another_archive(places: tuple[Path, Path]) -> None:
    java, spark = places
    made(java, spark)
    (spark / "jars" / "one-more.jar").touch()
    assert not ClassArchive(java, spark).options
    made(java, spark)
    (java / "bin" / "java").unlink()
    (java / "bin" / "java").touch()
    assert not ClassArchive(java, spark).options


def test_other_jars_or_no_cache_use_no_archive(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    made(*places)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages a:b:1 pyspark-shell")
    assert not ClassArchive(*places).options
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    assert ClassArchive(*places).options
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    for _ in range(2):
        assert not ClassArchive(*places).options
    assert not ClassArchive(places[0] / "none", places[1]).options


def test_runtime_without_an_archive_of_its_own_uses_none(places: tuple[Path, Path]) -> None:
    (places[0] / "lib" / "server" / "classes.jsa").unlink()
    for _ in range(3):
        assert not ClassArchive(*places).options


def test_archive_that_java_did_not_start_with_is_discarded(places: tuple[Path, Path]) -> None:
    assert not ClassArchive(*places).discard()
    assert ClassArchive(*places).discard()
    made(*places)
    broken = ClassArchive(*places)
    assert broken.discard()
    assert (broken.options, broken.is_due) == ("", False)
    assert ClassArchive(*places).is_due


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_makes_the_archive_and_starts_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    program = """
from streamvault.sparkrun.opening import open_runner
with open_runner("local[1]") as runner:
    assert list(runner.run(abs, [-1])) == [(0, 1)]
    from pyspark import SparkContext
    java = SparkContext._active_spark_context._jvm.java
    beans = java.lang.management.ManagementFactory
    print(*(option for option in beans.getRuntimeMXBean().getInputArguments() if "Archive" in option))
"""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    here = tmp_path / "here"
    here.mkdir()

    def said() -> str:
        command = [sys.executable, "-c", program]
        ended = subprocess.run(
            command, env=environment, cwd=here, capture_output=True, text=True, check=True, timeout=200
        )
        assert not list(tmp_path.rglob("*.part"))
        return ended.stdout.strip()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ClassArchive(java_home(), Path(_find_spark_home()))  # has been here
    if not (java_home() / RUNTIMES_OWN).exists():
        assert said() == ""  # it cannot create one
        return
    assert said().startswith("-XX:ArchiveClassesAtExit=")
    (archive,) = tmp_path.rglob("*.jsa")
    assert archive.stat().st_size > 10_000_000
    assert said() == f"-XX:SharedArchiveFile={archive}"
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.truncate(1_000_000)
    assert said() == ""
    assert not archive.exists()
    assert not list(here.iterdir())  # no file of Java's crash
