"""The rules that the design names, each taken out: a test or a family of the explorer's schedules must notice.

A mutant is a small change of one file. It is applied to a copy of the tree, where the named tests or families run. Its
text must be found exactly once; a mutant whose place has changed is reported, and is mended with the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[2]
COPIED = (
    "streamvault",
    "tests",
    "testkit",
    "pyproject.toml",
    "docs",
    "bin",
    "dags",
    "exporter",
    "importer",
    "manifests",
    "README.md",
)
LIMIT = 300.0
EVERY_SCHEDULE = "STREAMVAULT_EVERY_SCHEDULE"
"""Environment variable: the tests run every family and every schedule of it, and not some."""
SKIPPED = "not spark and not pravega and not minio and not versitygw and not trino and not long"


@dataclass(frozen=True)
class Mutant:
    """A rule that is taken out.

    Attributes:
        name: of the mutant. rule: what does not hold with it. file: below `streamvault/`. old, new: texts.
        tests: pytest's arguments. families: the explorer's. At least one of them must fail.
        same: why it changes nothing that anybody can notice; then nothing is run.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    same: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        mutant: which. how: found, survived, equivalent, undecided or no place. by: what noticed it, or why not.
        seconds: how long that took.
    """

    mutant: Mutant
    how: str
    by: str
    seconds: float


def apply(mutant: Mutant, root: Path) -> str:
    """Change a file of a tree; returns its former text.

    Raises:
        ValueError: the text to replace is not there, or several times.
    """
    path = root / "streamvault" / mutant.file
    text = path.read_text()
    if (times := text.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.file} has the text of {mutant.name} {times} times")
    path.write_text(text.replace(mutant.old, mutant.new))
    return text


def try_mutants(mutants: Sequence[Mutant], processes: int = 2) -> Iterator[Verdict]:
    """Try each mutant in a copy of the tree; yields what became of it, in order.

    Args:
        mutants: which. processes: how many at once, each with a copy of its own.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(processes):
            copies.put(_copy(Path(folder) / str(number)))

        def one(mutant: Mutant) -> Verdict:
            copy = copies.get()
            try:
                return _try(mutant, copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(processes) as pool:
            yield from pool.map(one, mutants)


def _copy(to: Path) -> Path:
    to.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, to / name)
    return to


def _try(mutant: Mutant, copy: Path) -> Verdict:
    began = time.monotonic()
    if mutant.same:
        return Verdict(mutant, "equivalent", mutant.same, 0.0)
    try:
        text = apply(mutant, copy)
    except ValueError as error:
        return Verdict(mutant, "no place", str(error), 0.0)
    try:
        for what, command in _commands(mutant):
            if not _passes(command, copy):
                return Verdict(mutant, "found", what, time.monotonic() - began)
    except RuntimeError as error:
        return Verdict(mutant, "undecided", str(error).splitlines()[0], time.monotonic() - began)
    finally:
        (copy / "streamvault" / mutant.file).write_text(text)
    return Verdict(mutant, "survived", "", time.monotonic() - began)


def _commands(mutant: Mutant) -> Iterator[tuple[str, list[str]]]:
    for text in mutant.families:
        yield text, ["-m", "testkit.prove", "--family", text]
    for test in mutant.tests:
        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", SKIPPED]
        yield test, ["-m", "pytest", *options, test]


def _passes(command: Sequence[str], folder: Path) -> bool:
    """Whether a command passes; one that fails in another way than by what it tests is an error.

    Raises:
        RuntimeError: it could not be run.
    """
    try:
        # unbuffered and without compiled files, of which one may have the same time and size as a mutant's
        done = subprocess.run(
            [sys.executable, "-B", *command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            env={**os.environ, EVERY_SCHEDULE: "1"},
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(command)} was not done in {LIMIT:.0f} s") from None
    if done.returncode not in {0, 1}:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    if done.returncode == 0 and "pytest" in command and " passed" not in done.stdout:
        raise RuntimeError(f"{' '.join(command)} skipped its tests: {done.stdout[-2000:]}")
    return done.returncode == 0
