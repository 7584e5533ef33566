"""The demo's steps, from filling a stream to a query of its table."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import boto3

from streamvault.common.errors import Conflict, Failed
from streamvault.common.options import verb
from streamvault.common.processes import make_folders
from streamvault.common.progress import Progress
from streamvault.common.units import bytes_text, count_text
from streamvault.demo.report import DemoOptions, DemoReport, Proof
from streamvault.demo.server import environment, s3_server
from streamvault.demo.stream import CLICKS, ROUNDS, compare, events_of, fill, grow
from streamvault.exporter.export import export_stream
from streamvault.exporter.reports import ExportReport
from streamvault.exporter.run import export_range
from streamvault.importer.fill import fill_segment, verify_range
from streamvault.importer.import_ import import_stream
from streamvault.importer.reports import ImportReport
from streamvault.lake.handoff import write_table
from streamvault.layouts.keys import event_key
from streamvault.manifests.verbs.check import check_archive
from streamvault.report.write import check_packages, write_report
from streamvault.runner.opening import open_runner
from streamvault.runner.runner import Master
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream

SOURCE = StreamName("demo", "orders")
TARGET = StreamName("demo", "orders-restored")
FROM_CHUNKS = StreamName("demo", "orders-from-chunks")
BUCKET = "streamvault-demo"
ROOT = f"s3://{BUCKET}"
ARCHIVE, CHUNKS = f"{ROOT}/{SOURCE}", f"{ROOT}/chunks/{SOURCE}"
FIRST_KEYS = 3
QUERY = "SELECT city, sum(cents) FROM parquet.`{}` WHERE city IS NOT NULL GROUP BY city"


@verb(DemoOptions)
def run_demo(options: DemoOptions, progress: Progress) -> DemoReport:
    """Archive a generated stream, restore it, and verify that both are equal.

    The streams are in a folder, and the S3 server runs in this process, so only this machine is needed. The environment
    is restored when the call returns.

    Args:
        events: number of events.
        keep: a folder for the streams and a copy of the archive; None keeps nothing.
        report: the file for a page that shows the archive of a stream that grows; None for none.
        master: a Spark master, or ``"inline"`` for no Spark.
        progress: receives the progress.

    Raises:
        Conflict: the folder is not empty.
        Failed: the folder cannot be used, or a check failed.
        Usage: a page was asked for, and the packages that draw are not installed.
        Problem: as the commands raise it.
    """
    if options.report is not None:
        check_packages()
    with ExitStack() as cleanup:
        folder = _folder(options.keep, cleanup)
        endpoint = cleanup.enter_context(s3_server())
        cleanup.enter_context(environment(endpoint))
        # shared by all commands, so that Spark starts only once
        cleanup.enter_context(open_runner(options.master, [export_range, fill_segment, verify_range]))
        tour = _Tour(folder, endpoint, options, progress)
        tour.archive_stream()
        tour.restore_archive()
        tour.use_chunks()
        tour.write_table()
        if options.keep is not None:
            tour.export((folder / "archive").as_uri())
        page = tour.draw_archive(options.report) if options.report is not None else ""
        return DemoReport(
            events=options.events,
            bytes=tour.bytes,
            segments=len(tour.stream.ranges()),
            epochs=len(tour.stream.epochs),
            archive=ARCHIVE,
            first_keys=tour.first_keys,
            proofs=tuple(tour.proofs),
            kept=str(folder) if options.keep else "",
            page=page,
        )


def _folder(keep: Path | None, cleanup: ExitStack) -> Path:
    """Return the empty folder for everything, with a folder for the archive in it."""
    folder = keep.absolute() if keep else Path()
    try:
        if keep is None:
            folder = Path(tempfile.gettempdir())
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="streamvault-demo-")))
        elif folder.exists() and any(folder.iterdir()):
            raise Conflict("the folder for the demo is not empty", where=str(folder), todo="Use a new folder.")
        make_folders(folder / "archive")
    except OSError as error:
        todo = "Set TMPDIR to another folder." if keep is None else "Use another folder."
        raise Failed(
            f"the folder for the demo cannot be used ({error.strerror})", where=str(folder), todo=todo
        ) from None
    return folder


class _Tour:
    """The steps in order; each adds a proof or raises."""

    def __init__(self, folder: Path, endpoint: str, options: DemoOptions, progress: Progress) -> None:
        self._events = options.events
        self._local = (folder / "archive").as_uri()
        self._streams = f"local://{folder / 'streams'}"
        self._s3 = boto3.client("s3", endpoint_url=endpoint)
        self._progress = progress
        self._how: dict[str, Any] = {"master": options.master, "progress": progress}
        self.proofs: list[Proof] = []

    def archive_stream(self) -> None:
        """Create a stream and archive it."""
        with self._step("create a stream") as show, self._store() as store:
            fill(store, SOURCE, self._events)
            self.stream = store.describe(SOURCE)
            pointers, self._cents = [], Counter[str]()
            for pointer, payload in events_of(store, SOURCE):
                pointers.append(pointer)
                if payload.startswith(b"{"):
                    order = json.loads(payload)
                    self._cents[order["city"]] += order["cents"]
            self.bytes = sum(pointer.length for pointer in pointers)
            _require(len(pointers) == self._events, "the stream has every event")
            segments, epochs = len(self.stream.ranges()), len(self.stream.epochs)
            show(f"{self._events:,} events, {bytes_text(self.bytes)}, {segments} segments, {epochs} epochs")
        with self._step("export it to S3") as show:
            self._s3.create_bucket(Bucket=BUCKET)
            made = self.export(ROOT)
            show(f"{made.events:,} objects, one for each event")
        with self._step("list it with boto3") as show:
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{SOURCE}/events/")
            keys = [entry["Key"].removeprefix(f"{SOURCE}/") for page in pages for entry in page["Contents"]]
            self.first_keys = tuple(keys[:FIRST_KEYS])
            names = [event_key(p.segment, p.offset, p.length) for p in pointers]
            _require(keys == names, "S3 lists the events in the stream's order")
            show(f"{len(keys):,} keys: the event pointers, in order")
        with self._step("export again") as show:
            again = export_stream(self._uri(SOURCE), ROOT, **self._how)
            _require(again.unchanged and again.generation == made.generation, "a second export changes nothing")
            show(f"nothing new since generation {again.generation}")

    def restore_archive(self) -> None:
        """Restore the archive into a second stream and compare them."""
        with self._step("import it as a new stream") as show:
            made = self._restore(ARCHIVE, TARGET)
            show(f"{made.segments} segments, {made.epochs} epochs, every range verified")
        with self._step("compare both streams") as show:
            show(f"equal: {self._compare(TARGET):,} events, epochs, policies, tags")

    def use_chunks(self) -> None:
        """Export, import and compare again, in layout ``chunks``."""
        with self._step("export it in chunks") as show:
            made = self.export(f"{ROOT}/chunks", layout="chunks", compress="zstd")
            show(f"{count_text(made.ranges, 'object')}, one for each range, compressed")
        with self._step("import and compare") as show:
            self._restore(CHUNKS, FROM_CHUNKS)
            show(f"{self._compare(FROM_CHUNKS):,} pointers and payloads are equal")
        with self._step("check --read-data") as show:
            found = check_archive(CHUNKS, read_data=True, **self._how)
            _require(found.ok and found.ranges_read == found.ranges, "the archive is intact")
            show(f"{count_text(found.ranges, 'range')} read, every digest matches")

    def write_table(self) -> None:
        """Write a table of the archive and query it."""
        with self._step("hand it off as a table") as show:
            made = write_table(CHUNKS, table="orders", format="parquet", decode="json", root=self._local, **self._how)
            _require(made.events == self._events, "the table has a row for each event")
            show(f"{made.events:,} rows, {len(made.columns)} columns, {count_text(made.files, 'file')}")
        master = Master.parse(self._how["master"])
        if master.kind == "inline":
            return
        with self._step("query it with SQL") as show:
            from pyspark.sql import SparkSession  # noqa: PLC0415  (Spark is imported only where it is used)

            from streamvault.runner.spark import SparkRunner  # noqa: PLC0415

            with SparkRunner(master):
                rows = SparkSession.builder.getOrCreate().sql(QUERY.format(made.location)).collect()
            _require(dict(map(tuple, rows)) == self._cents, "the query's sums equal those of the stream")
            show(f"{self._cents.total() / 100:,.2f} in {len(rows)} cities, as in the stream")

    def draw_archive(self, file: Path) -> str:
        """Archive another stream as it grows, draw the archive, and return the page's file."""
        with self._step("archive a growing stream") as show, self._store() as store:
            for _ in grow(store):
                made = export_stream(
                    self._uri(CLICKS), self._local, layout="chunks", master="inline", progress=self._progress
                )
            _require(made.generation == ROUNDS, "each export has made a generation")
            segments = len(store.describe(CLICKS).ranges())
            show(f"{made.generation} generations, {segments} segments after splits")
        with self._step("draw it") as show:
            drawn = write_report(f"{self._local}/{CLICKS}", output=file.absolute())
            _require(drawn.generations_read == ROUNDS, "the page shows each generation")
            show("a page with charts, which needs no network")
        return drawn.file

    def export(self, root: str, **options: Any) -> ExportReport:
        """Archive the stream in a root that has nothing of it yet."""
        made = export_stream(self._uri(SOURCE), root, **options, **self._how)
        self._require_all(made, "export")
        return made

    def _restore(self, archive: str, target: StreamName) -> ImportReport:
        made = import_stream(archive, self._uri(target), **self._how)
        self._require_all(made, "import")
        return made

    def _require_all(self, made: ExportReport | ImportReport, what: str) -> None:
        same = (made.events, made.bytes) == (self._events, self.bytes)
        _require(same, f"the {what} has the stream's events and bytes")

    def _compare(self, target: StreamName) -> int:
        with self._store() as store:
            restored = store.describe(target)
            same = [(d.epochs, d.configuration, d.head.offsets, d.tail.offsets) for d in (self.stream, restored)]
            _require(same[0] == same[1], "epochs, key ranges, offsets and policies are the same")
            count = compare(store, SOURCE, target)
        _require(count == self._events, "no event is missing")
        return count

    @contextmanager
    def _step(self, step: str) -> Iterator[Callable[[str], None]]:
        began, shown = time.monotonic(), list[str]()
        self._progress.say(f"demo: {step}")
        yield shown.append
        self.proofs.append(Proof(step=step, shown=shown[0], seconds=round(time.monotonic() - began, 3)))

    def _uri(self, stream: StreamName) -> str:
        return f"{self._streams}/{stream}"

    def _store(self) -> StreamStore:
        return parse_stream(self._uri(SOURCE))[0].open()


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Failed("a check of the demo failed", where=what)
