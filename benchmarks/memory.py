"""Memory by the number of an archive's ranges, and of a table's small events: no servers.

The first archive has ranges as large as they are by default, in generations of a terabyte: the objects are sparse
files, which nothing reads. What reads them has an archive of ranges of one event each.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measuring import say
from benchmarks.results import Results, table
from streamvault import check_archive, export_stream, import_stream, list_archives, read_archive, write_table
from streamvault.layouts.archived_range import ArchivedRange, BlockChecksums
from streamvault.layouts.keys import chunk_key
from streamvault.manifests.archive import Archive
from streamvault.manifests.history import with_rows
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from testkit.streams import append_events

HELP = "memory by the number of an archive's ranges, and of a table of small events; needs no server"

NAME = StreamName("benchmark", "source")
SEGMENT = SegmentId(0, 0)
MIB = 2**20
RANGE_BYTES = 64 * MIB
PETABYTE = 10**15
PAYLOAD = b"ten bytes."
PARTS = ("plans", "data", "handoff")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    parser.add_argument("--part", nargs="+", default=PARTS, choices=PARTS, help="what is measured")
    parser.add_argument("--generations", type=int, nargs=2, default=[4, 16], metavar="N", help="two sizes (4 16)")
    parser.add_argument("--ranges", type=int, default=15_000, metavar="N", help="ranges of 64 MiB (15000)")
    parser.add_argument("--events", type=int, default=16_000_000, metavar="N", help="events of the table (16 million)")
    parser.add_argument("--quick", action="store_true", help="only show that it runs")


def run(arguments: argparse.Namespace, results: Results) -> None:
    """Add the tables."""
    few, many = (1, 2) if arguments.quick else arguments.generations
    ranges, events = (20, 2_000) if arguments.quick else (arguments.ranges, arguments.events)
    results.describe({"ranges of 64 MiB": f"{ranges:,} in each generation", "event": f"{len(PAYLOAD)} bytes"})
    if "plans" in arguments.part:
        _add_ranges(results, few, many, ranges, large=True)
    if "data" in arguments.part:
        _add_ranges(results, few, many, ranges // 5, large=False)
    if "handoff" in arguments.part:
        _add_handoff(results, events)


@dataclass(frozen=True, slots=True)
class Made:
    """Folders of one turn.

    Attributes:
        folder: where they are.
        large: whether ranges are as large as by default, without data.
    """

    folder: str
    large: bool = False

    @property
    def root(self) -> str:
        """The archive's root."""
        return f"file://{self.folder}/vault"

    @property
    def archive(self) -> str:
        """The archive."""
        return f"{self.root}/{NAME}"

    def stream(self, name: str) -> str:
        """A stream."""
        return f"local://{self.folder}/streams/{NAME.scope}/{name}"

    def fill(self, generations: int, ranges: int) -> None:
        """Make the archive: one segment, its ranges one after another."""
        Path(self.folder, "vault").mkdir()
        size = RANGE_BYTES if self.large else len(PAYLOAD) + 8
        self._create([PAYLOAD])
        export_stream(self.stream(NAME.stream), f"file://{self.folder}/first", layout="chunks", master="inline")
        manifest = Archive.open(f"file://{self.folder}/first/{NAME}").manifest()
        archive, event = Archive.open(self.archive), self._event()
        folder = Path(self.folder, "vault", str(NAME))
        for number in range(generations):
            first = number * ranges
            rows = list(self._rows(first, ranges, size, event))
            for row in rows:
                path = folder / chunk_key(SEGMENT, row.start, size)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    file.write(b"" if self.large else event)
                    file.truncate(size)
            entry = manifest.segments[0].model_copy(update={"start": first * size, "end": (first + ranges) * size})
            cuts = {"from_": _cut(first * size), "to": _cut((first + ranges) * size)}
            members = {"generation": number + 1, "index": None, "witness": (), "segments": (entry,), **cuts}
            archive.commit(with_rows(manifest.model_copy(update=members), rows, None, ""), rows)

    def _rows(self, first: int, count: int, size: int, event: bytes) -> Iterator[ArchivedRange]:
        found = BlockChecksums()
        found.update(event)
        whole, noted = found.finish()
        if self.large:
            noted = b64encode(bytes(8 * (size // MIB))).decode()
        for number in range(first, first + count):
            digest = hashlib.sha256(b"%d" % number if self.large else event).hexdigest()
            start, events = number * size, 60_000 if self.large else 1
            yield ArchivedRange(SEGMENT, start, start + size, events, digest, crc64nvme=whole, block_checksums=noted)

    def _event(self) -> bytes:
        with LocalStore(Path(self.folder, "streams")) as store:
            return b"".join(bytes(block) for block in store.read(NAME, SEGMENT, 0, len(PAYLOAD) + 8))

    def _create(self, payloads: list[bytes], times: int = 1) -> None:
        with LocalStore(Path(self.folder, "streams")) as store:
            store.create_scope(NAME.scope)
            store.create_stream(NAME, StreamConfiguration(Scaling.never(1)))
            for _ in range(times):
                append_events(store, NAME, SEGMENT, payloads)

    def export(self, events: int) -> None:
        """Make an archive of small events."""
        some = min(events, 100_000)
        self._create([PAYLOAD] * some, events // some)
        export_stream(self.stream(NAME.stream), self.root, layout="chunks", master="inline")


def _cut(offset: int) -> StreamCut:
    return StreamCut(NAME, {SEGMENT: offset})


def _plan_import(made: Made) -> None:
    import_stream(made.archive, made.stream("restored"), dry_run=True, master="inline")


def _import(made: Made) -> None:
    import_stream(made.archive, made.stream(f"restored{time.monotonic_ns()}"), master="inline[1]")


def _check(made: Made) -> None:
    report = check_archive(made.archive, master="inline[1]")
    assert report.ok, report.findings[:3]


def _check_data(made: Made) -> None:
    report = check_archive(made.archive, read_data=True, master="inline[1]")
    assert report.ok, report.findings[:3]


def _cat(made: Made) -> None:
    for _ in read_archive(made.archive):
        pass


def _ls(made: Made) -> None:
    list_archives(made.root)


def _plan_handoff(made: Made) -> None:
    write_table(made.archive, format="parquet", dry_run=True, master="inline")


OF_LARGE = {
    "`ls`": _ls,
    "`import`, its plan": _plan_import,
    "`check`": _check,
    "`handoff --dry-run`": _plan_handoff,
}
OF_SMALL = {"`import`": _import, "`cat`": _cat, "`check --read-data`": _check_data}


def _add_ranges(results: Results, few: int, many: int, ranges: int, *, large: bool) -> None:
    found: dict[str, list[int]] = {}
    for generations in (few, many):
        with TemporaryDirectory() as folder:
            made = Made(folder, large)
            made.fill(generations, ranges)
            for name, verb in (OF_LARGE if large else OF_SMALL).items():
                found.setdefault(name, []).append(_peak(verb, made))
                say(f"  {generations} generations: {name}: {found[name][-1] / MIB:.0f} MiB")
    rows = []
    for name, (low, high) in found.items():
        each = max(0.0, (high - low) / ((many - few) * ranges))
        whole = (low + each * (PETABYTE / RANGE_BYTES - few * ranges)) / 2**30
        rows.append((name, f"{low / MIB:.0f} MiB", f"{high / MIB:.0f} MiB", f"{each:.0f} B", f"{whole:.1f} GiB"))
    title = "of 64 MiB" if large else "of an event"
    heads = (f"memory, by ranges {title}", f"{few * ranges:,}", f"{many * ranges:,}", "a range", "1 PB, extrapolated")
    results.add(title, table(heads, rows), found)


def _add_handoff(results: Results, events: int) -> None:
    rows, found = [], {}
    with TemporaryDirectory() as folder:
        made = Made(folder)
        Path(folder, "vault").mkdir()
        made.export(events)
        size = events * (len(PAYLOAD) + 8)
        for threads, files in ((1, 1), (4, 4)):
            found[threads] = _peak(_Handoff(threads, -(-size // files)), made)
            rows.append((f"{threads}", f"{events:,}", f"{files}", f"{found[threads] / MIB:.0f} MiB"))
            say(f"  handoff, {threads} threads: {found[threads] / MIB:.0f} MiB")
    results.add("handoff", table(("threads of a handoff", "events", "files", "memory"), rows), found)


@dataclass(frozen=True, slots=True)
class _Handoff:
    threads: int
    target_size: int

    def __call__(self, made: Made) -> None:
        write_table(
            made.archive,
            format="parquet",
            table=f"of_{self.threads}",
            decode="none",
            target_size=self.target_size,
            master=f"inline[{self.threads}]",
        )


def _peak(work: Callable[[Made], None], made: Made) -> int:
    """Return the peak resident size of a new process that does something (bytes)."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(work, made, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        found: int = ours.recv()
    except EOFError:
        raise RuntimeError("a process of the benchmark failed") from None
    finally:
        process.join()
    return found


def _measure(work: Callable[[Made], None], made: Made, end: Connection) -> None:
    work(made)
    status = Path("/proc/self/status").read_text()
    end.send(next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")))
