"""The verb *check*."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from manifests.archive import Archive, History
from manifests.check import (
    CheckResult,
    check_ranges,
    find_strays,
    foreign_keys,
    plan_check,
)
from manifests.model import Layout
from manifests.plan import find_plan
from objectstore.uri import RootAddress
from problems import Usage
from sparkrun.progress import Progress
from sparkrun.runner import Runner, open_runner
from streamstore.model import StreamName
from streamvault.preload import TASK_MODULES
from streamvault.reports import CheckReport

__all__ = ["check_archive"]

MAX_FINDINGS = 1000

T = TypeVar("T")


def check_archive(
    archive: str,
    *,
    read_data: bool = False,
    subset: float | None = None,
    seed: int | None = None,
    master: str = "local[*]",
    progress: Progress | None = None,
) -> CheckReport:
    """Prove that everything the manifests promise is there, and nothing else.

    Without reading, the keys and sizes of every object are compared with the manifests; that runs in this process. An
    archive that is not whole is a report that is not `ok`, not an error.

    Args:
        archive: ``ROOT/SCOPE/STREAM``.
        read_data: read every range and compare its digest.
        subset: read only this share of the ranges, above 0 and up to 1; overrides `read_data`.
        seed: chooses the sample; None takes one by chance, which the report names.
        master: a Spark master, or ``"inline"``; used if data is read.
        progress: told how the check goes on.

    Raises:
        NoSuchArchive: there is nothing to check. Damaged: a manifest itself is not valid.
        Problem: the archive cannot be read.
    """
    began = time.monotonic()
    progress = progress or Progress()
    if subset is not None and not 0 < subset <= 1:
        raise Usage("a sample is more than 0 and at most 100%", where=str(subset))
    share = subset if subset is not None else float(read_data)
    if seed is None:
        seed = secrets.randbelow(1_000_000)
    address, scope, stream = RootAddress.parse(archive).resolve().split()
    source = Archive(address.open(), StreamName(scope, stream))
    history = source.history()
    unfinished = find_plan(source.store, source.prefix, history.generation + 1)
    ranges, strays = plan_check(history, address, source.prefix, share=share, seed=seed, unfinished=unfinished)
    with open_runner(master if share else "inline", TASK_MODULES) as runner:
        progress.begin("reading" if share else "checking", history.bytes)
        results = _run(runner, check_ranges, ranges, progress)
        extra = _run(runner, find_strays, strays, progress)
        start_seconds = runner.start_seconds
    extra += [foreign_keys(source.store, source.prefix, layout, strays) for layout in _layouts(history)]
    notes = []
    if unfinished is not None:
        notes.append(f"generation {unfinished.generation} is unfinished; its objects were left out of the check")
    elif _went_on(source, history):
        notes.append("an export went on beside the check: objects outside of every range are not told. Check again")
        extra = []
    progress.end()
    findings = [line for result in [*results, *extra] for line in result.findings]
    found = sum(result.found for result in [*results, *extra])
    told = tuple(findings[:MAX_FINDINGS])
    seconds = time.monotonic() - began
    return CheckReport(
        archive=source.uri,
        generations=tuple(generation.manifest.generation for generation in history.generations),
        ok=not found,
        ranges=sum(len(task.rows) for task in ranges),
        ranges_read=sum(result.read for result in results),
        events=history.events,
        bytes=history.bytes,
        findings=told,
        more_findings=found - len(told),
        notes=tuple(notes),
        seed=seed if subset is not None else None,
        seconds=round(seconds - start_seconds, 3),
        total_seconds=round(seconds, 3),
    )


def _run(
    runner: Runner,
    function: Callable[[T], CheckResult],
    tasks: Sequence[T],
    progress: Progress,
) -> list[CheckResult]:
    """The tasks' results in the order of the tasks."""
    results: dict[int, CheckResult] = {}
    for index, result in runner.run(function, tasks):
        results[index] = result
        progress.advance(result.events, result.bytes)
    return [results[index] for index in sorted(results)]


def _layouts(history: History) -> list[Layout]:
    return sorted({generation.manifest.layout for generation in history.generations})


def _went_on(source: Archive, history: History) -> bool:
    """Whether an export published or began a generation since the check began."""
    newest = source.generations()[-1]
    return newest != history.generation or find_plan(source.store, source.prefix, newest + 1) is not None
