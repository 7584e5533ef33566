"""Time and memory by a stream's length, in threads or on Spark, one segment with one task or two, and a resume."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import product

from benchmarks.measuring import Arm, Measured, interleave, say, spread
from benchmarks.product import PEAKS, Outcome
from benchmarks.results import Results, size_text, spread_text, table
from benchmarks.setting import S3_SERVERS, Setting, open_setting, parallelism
from benchmarks.workload import Workload
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import GenerationSpan, manifest_key, ranges_key
from streamvault.layouts.layout import open_layout
from streamvault.manifests.archive import Archive
from streamvault.manifests.plan import FinishedSpan, Plan, RangeEntry, create_plan, leave_row
from streamvault.objectstore.bulk import delete_all
from streamvault.objectstore.s3.access import S3Access, StaticKeys
from streamvault.objectstore.store import ObjectStore
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import StreamName

HELP = "time and memory of longer streams, threads beside Spark, one task beside two, and a resume close to the end"

MB = 1_000_000
MIB = 1024 * 1024
SIZE = 1024
CHUNKS = ("--layout", "chunks")
ON_SPARK = ("--master", "local[*]")
LAYOUTS: dict[str, tuple[str, ...]] = {"events": (), "chunks": CHUNKS, "zstd": (*CHUNKS, "--compress", "zstd")}
RESUME_RANGE = 5 * MIB
UNDONE = 0.01
"""Minimum share of a generation that is left for a resume."""

MASTERS = {"threads": "inline[{}]", "Spark": "local[{}]"}
PARTS = ("lengths", "masters", "tasks", "resume")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``python -m benchmarks scaling``."""
    parser.add_argument(
        "--stream", type=int, nargs="+", default=(100 * MB, 1000 * MB, 4000 * MB), metavar="BYTES", help="streams"
    )
    parser.add_argument("--size", type=int, nargs="+", default=(SIZE,), metavar="BYTES", help="payloads (1024)")
    parser.add_argument("--layout", nargs="+", choices=LAYOUTS, default=("chunks",), help="layouts (chunks)")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="tables (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="of all but the lengths (3)")
    parser.add_argument("--s3", choices=sorted(S3_SERVERS), default="minio", help="S3 server (default minio)")
    parser.add_argument("--heap", default="12g", help="limit of Pravega's Java heap (12g)")
    parser.add_argument("--quick", action="store_true", help="20 and 80 MB, one repeat: whether it runs")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add a table for each part."""
    if arguments.quick:
        arguments.stream, arguments.repeats, arguments.heap = (20 * MB, 80 * MB), 1, "4g"
    with open_setting(arguments.s3, arguments.heap, quick=arguments.quick) as setting:
        results.describe(setting.describe())
        length = 80 * MB if arguments.quick else 1000 * MB
        if "lengths" in arguments.part:
            _lengths(setting, arguments, results)
        if "masters" in arguments.part:
            _masters(setting, arguments, results)
        if "tasks" in arguments.part:
            _tasks(setting, length, arguments.repeats, results)
        if "resume" in arguments.part:
            _resume(setting, length, arguments.repeats, results)


def _lengths(setting: Setting, arguments: argparse.Namespace, results: Results) -> None:
    """Measure time and memory by the stream's length, with four segments."""
    rows, figures = [], []
    for size, length, layout in product(arguments.size, arguments.stream, arguments.layout):
        workload = Workload(length // size, size, 4)
        for verb, outcome in _move(setting, workload, f"{layout}-{size}-{length}", LAYOUTS[layout]):
            seconds, peaks = outcome.report["seconds"], outcome.peaks
            rows.append(
                (
                    f"{verb}, {layout}, {workload.bytes / MB:,.0f} MB of {size_text(size)}",
                    f"{seconds:.1f}",
                    f"{workload.bytes / seconds / MB:,.0f}",
                    *peaks.cells,
                )
            )
            say(f"  {rows[-1]}")
            figures.append({"verb": verb, "layout": layout, "size": size, "bytes": workload.bytes, **asdict(peaks)})
    results.add("lengths", table(("", "seconds", "MB/s", *PEAKS), rows), figures)


def _move(setting: Setting, workload: Workload, name: str, options: tuple[str, ...]) -> list[tuple[str, Outcome]]:
    """Export and import a new stream while watching the commands' memory; return both outcomes with their verbs."""
    source, target = setting.stream(f"source-{name}"), setting.stream(f"target-{name}")
    workload.fill(setting.store, source)
    setting.settle()
    exported = setting.export(source, name, *options, *ON_SPARK, watch=True)
    setting.settle()
    setting.store.delete(source)
    imported = setting.restore(source, name, target, workload.bytes, *ON_SPARK, watch=True)
    for outcome in (exported, imported):
        if outcome.report["events"] != workload.events:
            raise RuntimeError(f"the command moved something else: {outcome.report}")
        if not outcome.peaks.task:
            raise RuntimeError("no process of a task was seen")
    return [("export", exported), ("import", imported)]


def _masters(setting: Setting, arguments: argparse.Namespace, results: Results) -> None:
    """Measure whole commands in threads and on Spark, whose start is included, by the stream's length."""
    rows, figures = [], {}
    for length in arguments.stream:
        workload = Workload(length // SIZE, SIZE, 4)
        source = setting.stream(f"masters-{length}")
        workload.fill(setting.store, source)
        arms = [arm for verb in (_export_on, _import_on) for arm in verb(setting, workload, source)]
        found = interleave(arms, arguments.repeats, setting.settle)
        setting.store.delete(source)
        _empty(setting, source.stream)
        for verb in ("export", "import"):
            threads, spark = (f"{verb}, {name}" for name in MASTERS)
            both = [[one.seconds for one in found[name]] for name in (threads, spark)]
            used = [[one.processor_seconds for one in found[name]] for name in (threads, spark)]
            rows.append(
                (
                    f"{verb}, {workload.bytes / MB:,.0f} MB",
                    *(spread_text(spread(one), 1) for one in (*both, *used)),
                )
            )
        figures[length] = {name: [asdict(one) for one in runs] for name, runs in found.items()}
    heads = ("chunks", "threads (s)", "Spark (s)", "threads (processor s)", "Spark (processor s)")
    results.add("masters", table(heads, rows), figures)


def _export_on(setting: Setting, workload: Workload, source: StreamName) -> Iterator[Arm]:
    """Yield an arm for each master; the first export's archive stays, at the root of the source's name."""

    def export(name: str, repeat: int) -> Measured:
        root = source.stream if name == "threads" and not repeat else f"{source.stream}-again"
        outcome = setting.export(source, root, *CHUNKS, "--master", MASTERS[name].format(parallelism()))
        if root != source.stream:
            _empty(setting, root)
        return _measured(workload, outcome)

    for name in MASTERS:
        yield Arm(f"export, {name}", partial(export, name))


def _import_on(setting: Setting, workload: Workload, source: StreamName) -> Iterator[Arm]:
    """Yield an arm for each master, which imports the archive that `_export_on` left."""

    def restore(name: str, repeat: int) -> Measured:
        target = setting.stream(f"{source.stream}-{name}-{repeat}")
        options = ("--master", MASTERS[name].format(parallelism()))
        return _measured(workload, setting.restore(source, source.stream, target, workload.bytes, *options))

    for name in MASTERS:
        yield Arm(f"import, {name}", partial(restore, name))


def _measured(workload: Workload, outcome: Outcome) -> Measured:
    return workload.measured(
        outcome.report["events"], outcome.report["bytes"], outcome.seconds, outcome.processor_seconds
    )


def _empty(setting: Setting, root: str) -> None:
    """Delete all objects below a root."""
    store = _open(setting, root)
    delete_all(store, (one.key for one in store.list("")))


def _tasks(setting: Setting, length: int, repeats: int, results: Results) -> None:
    """Measure one segment, moved by one task at a time and by two."""
    workload = Workload(length // SIZE, SIZE, 1)
    source = setting.stream("one-segment")
    workload.fill(setting.store, source)
    found: dict[int, list[Outcome]] = {1: [], 2: []}
    for repeat in range(repeats):
        for tasks, outcomes in found.items():
            root = f"tasks-{tasks}-{repeat}"
            setting.settle()
            outcomes.append(setting.export(source, root, *CHUNKS, "--master", f"inline[{tasks}]"))
            say(f"  {repeat + 1}/{repeats} {tasks} tasks: {outcomes[-1].report['seconds']:.1f} s")
    setting.store.delete(source)
    seconds = {tasks: [one.report["seconds"] for one in outcomes] for tasks, outcomes in found.items()}
    used = {
        tasks: [one.processor_seconds / workload.bytes * 1e9 for one in outcomes] for tasks, outcomes in found.items()
    }
    rows = [
        (
            f"{tasks} task{'s' if tasks > 1 else ''}",
            _times([one / mine for one, mine in zip(seconds[1], seconds[tasks], strict=True)]),
            spread_text(spread([workload.bytes / one / MB for one in seconds[tasks]]), 0),
            spread_text(spread(used[tasks]), 2),
            _times([mine / one for one, mine in zip(used[1], used[tasks], strict=True)]),
        )
        for tasks in found
    ]
    heads = (
        f"export of one segment of {workload.bytes / MB:,.0f} MB as chunks",
        "times one task",
        "MB/s",
        "processor s/GB",
        "times one task's",
    )
    results.add("tasks", table(heads, rows), {"seconds": seconds, "processor seconds per GB": used})


def _times(ratios: list[float]) -> str:
    return "1" if set(ratios) == {1.0} else spread_text(spread(ratios), 2)


def _resume(setting: Setting, length: int, repeats: int, results: Results) -> None:
    """Measure a whole export, and the resume of one killed when all but one of its ranges were finished."""
    workload = Workload(length // SIZE, SIZE, 4)
    source = setting.stream("resumed")
    workload.fill(setting.store, source)
    whole, rest, undone = [], [], 0
    for repeat in range(repeats):
        root = f"resume-{repeat}"
        options = (*CHUNKS, "--range-size", str(RESUME_RANGE))
        setting.settle()
        whole.append(setting.export(source, root, *options).report["seconds"])
        archive = Archive(RootAddress.parse(setting.root_uri(root)), source, _open(setting, root))
        undone = _undo(archive)
        setting.settle()
        resumed = setting.export(source, root, *options).report
        if not resumed["resumed"] or resumed["moved_bytes"] != undone:
            raise RuntimeError(f"the run did not go on with the unfinished one: {resumed}")
        rest.append(resumed["seconds"])
        say(f"  {repeat + 1}/{repeats} whole {whole[-1]:.1f} s, resumed {rest[-1]:.1f} s")
    setting.store.delete(source)
    ratios = [mine / one for mine, one in zip(rest, whole, strict=True)]
    done = f"{1 - undone / workload.bytes:.1%}"
    rows = [
        ("whole", "1", spread_text(spread(whole), 2)),
        (f"resumed with {done} done", spread_text(spread(ratios), 3), spread_text(spread(rest), 2)),
    ]
    heads = (f"export of {workload.bytes / MB:,.0f} MB as chunks", "of the whole", "seconds")
    results.add("resume", table(heads, rows), {"whole": whole, "resumed": rest})


def _undo(archive: Archive) -> int:
    """Turn a finished generation into one killed with a range or two left; return the bytes of these."""
    generation = archive.load(1)
    create_plan(archive.place, Plan.of(generation.manifest))
    rows = [row for segment in generation.rows.values() for row in segment]
    undone, layout = 0, open_layout("chunks")
    while undone < generation.manifest.bytes * UNDONE:
        last = rows.pop()
        undone += last.end - last.start
        delete_all(
            archive.store, (found.key for found in layout.between(archive.place, last.segment, last.start, last.end))
        )
    for row in rows:
        leave_row(archive.place, GenerationSpan.of(1), row.segment, _finished(row))
    archive.store.delete([archive.prefix + manifest_key(GenerationSpan.of(1))])
    archive.store.delete([archive.prefix + ranges_key(GenerationSpan.of(1))])
    return undone


def _finished(row: ArchivedRange) -> FinishedSpan:
    entry = RangeEntry(start=row.start, end=row.end, events=row.events, digest=row.digest)
    return FinishedSpan(start=row.start, end=row.end, ranges=(entry,))


def _open(setting: Setting, root: str) -> ObjectStore:
    keys = StaticKeys(setting.s3.access_key, setting.s3.secret_key)
    access = S3Access(setting.s3.endpoint, setting.s3.region, virtual_host=False, keys=keys)
    return replace(RootAddress.parse(setting.root_uri(root)), access=access).open()
