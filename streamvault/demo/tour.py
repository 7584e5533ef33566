"""The demo's steps, from filling a stream to a query of its table.

The stream has invented orders with all that makes archiving difficult. The S3 server runs in a process of its own,
with an environment that directs all S3 clients to it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import boto3

from streamvault.common.errors import Conflict, Failed
from streamvault.common.options import verb
from streamvault.common.processes import environment, make_folders, python_command, start_python
from streamvault.common.progress import Progress
from streamvault.common.units import bytes_text, count_text
from streamvault.demo.report import DemoOptions, DemoReport, Proof
from streamvault.exporter.export import export_stream
from streamvault.exporter.reports import ExportReport
from streamvault.exporter.run import export_range
from streamvault.importer.fill import fill_segment, verify_range
from streamvault.importer.import_ import import_stream
from streamvault.importer.reports import ImportReport
from streamvault.inspect.write import check_packages, write_report
from streamvault.lake.handoff import write_table
from streamvault.layouts.keys import event_key
from streamvault.manifests.verbs.check import check_archive
from streamvault.runner.java import java_home
from streamvault.runner.opening import open_runner
from streamvault.runner.runner import Master, NoJava
from streamvault.streamstore.events import EventSplitter
from streamvault.streamstore.framing import frame_many
from streamvault.streamstore.model import EventPointer, KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream

HOST = "127.0.0.1"

_log = logging.getLogger(__name__)

_FOREIGN = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_ENDPOINT_URL_S3")
"""Settings of the user's account, which must not interfere."""


@contextmanager
def s3_server() -> Iterator[str]:
    """Run moto on a free port of 127.0.0.1 and yield its URL. It keeps its data in memory.

    Raises:
        Failed: moto is not installed, or did not start.
    """
    if find_spec("moto") is None or find_spec("werkzeug") is None:
        todo = "Run: pip install 'streamvault[demo]'"
        raise Failed("the demo's S3 server is not installed", where="moto", todo=todo)
    command = python_command("-c", f"from {__name__} import serve; serve()")
    # in this process the server would compete with the tasks' threads for Python's lock
    with start_python(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout else ""
            if not port:
                raise Failed("the demo's S3 server did not start")
            yield f"http://{HOST}:{port}"
        finally:
            process.kill()


def serve() -> None:
    """Serve S3 with moto, print the port, and end with the process that started this one, which holds its input."""
    # moto's own server spends a third of its time finding the service of each request
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app  # noqa: PLC0415  (an extra)
    from werkzeug.serving import make_server  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(HOST, 0, create_backend_app("s3"), threaded=False, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, name="moto", daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


def s3_settings(endpoint: str) -> dict[str, str | None]:
    """Return the environment variables that direct all S3 clients to ``endpoint``, see `environment`."""
    return {
        **dict.fromkeys(_FOREIGN),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": HOST,
        "no_proxy": HOST,
    }


LARGE = 1024 * 1024
CUSTOMERS = 500
_SEED = 2026


def fill(store: StreamStore, name: StreamName, events: int) -> None:
    """Create the stream: three segments, 60% of the events, a split of a segment, the other events."""
    store.create_scope(name.scope)
    configuration = StreamConfiguration(scaling=Scaling(min_segments=3), tags=("demo", "orders"))
    store.create_stream(name, configuration)
    orders = list(_orders(events))
    before_scale = events * 6 // 10
    _append(store, name, orders[:before_scale])
    _split(store, name, next(iter(store.describe(name).epochs[-1].segments)))
    # the number of segments open now; with another number, a real store would merge them again
    store.update_stream(name, replace(configuration, scaling=Scaling(min_segments=4)))
    _append(store, name, orders[before_scale:])


def _orders(events: int) -> Iterator[tuple[float, bytes]]:
    """Yield the place of the routing key and the payload of each event, the same in every run."""
    chance = random.Random(_SEED)  # noqa: S311  (test data, not a secret)
    payload = b""
    for number in range(events):
        customer = f"customer-{chance.randrange(CUSTOMERS)}"
        kind = number % 400  # fewer than 1% that are no JSON, or the table would come with a warning
        if kind == 7:
            payload = b""
        elif kind == 17:
            payload = chance.randbytes(chance.randrange(1, 4096))
        elif kind == 27:
            # zeros look like the headers of empty events
            payload = bytes(chance.randrange(8, 512))
        elif kind == 37:
            pass  # repeat the payload before
        elif number % 1000 == 999:
            payload = chance.randbytes(LARGE)
        else:
            city = chance.choice(("Zürich", "Łódź", "東京", "São Paulo", "Αθήνα", "Paris"))
            cents = chance.randrange(100, 100_000)
            payload = f'{{"order": {number}, "customer": "{customer}", "city": "{city}", "cents": {cents}}}'.encode()
        yield int.from_bytes(hashlib.sha256(customer.encode()).digest()[:6]) / 2**48, payload


def _append(store: StreamStore, name: StreamName, events: Iterable[tuple[float, bytes]]) -> None:
    """Write each event to the open segment that owns its place between 0 and 1."""
    segments = store.describe(name).epochs[-1].segments
    shares: dict[SegmentId, list[bytes]] = {segment: [] for segment in segments}
    for place, payload in events:
        shares[_owner(segments, place)].append(payload)
    for segment, payloads in shares.items():
        with store.appender(name, segment) as appender:
            for block in frame_many(payloads):
                appender.append(block)


def _owner(segments: Mapping[SegmentId, KeyRange], place: float) -> SegmentId:
    return next(segment for segment, keys in segments.items() if keys.low <= place < keys.high)


def _split(store: StreamStore, name: StreamName, segment: SegmentId) -> None:
    keys = store.describe(name).epochs[-1].segments[segment]
    middle = (keys.low + keys.high) / 2
    store.scale(name, [segment], [KeyRange(keys.low, middle), KeyRange(middle, keys.high)])


def events_of(store: StreamStore, name: StreamName) -> Iterator[tuple[EventPointer, bytes]]:
    """Yield every event of a stream in the stream's order, with its pointer."""
    segments = list(store.describe(name).ranges())
    for info in store.segment_info(name, segments):
        splitter = EventSplitter(info.start_offset, info.segment.in_stream(name))
        for block in store.read(name, info.segment, info.start_offset, info.write_offset):
            for offset, payload in splitter.events(block):
                yield EventPointer(name, info.segment, offset, len(payload) + 8), bytes(payload)
        splitter.finish()


def compare(store: StreamStore, one: StreamName, other: StreamName) -> int:
    """Compare two streams event by event: segment, offset, length and payload.

    Returns:
        The number of events of both.

    Raises:
        Failed: they differ; names the first difference.
    """
    count = 0
    for left, right in zip_longest(events_of(store, one), events_of(store, other)):
        if left is None or right is None:
            raise Failed(f"one stream ends after {count} events, the other does not", where=f"{one} and {other}")
        (a, payload), (b, again) = left, right
        if (a.segment, a.offset, a.length) != (b.segment, b.offset, b.length) or payload != again:
            raise Failed("an event differs", where=f"{a} and {b}")
        count += 1
    return count


CLICKS = StreamName("demo", "clicks")
ROUNDS = 12
EVENTS = 120
MOST_SEGMENTS = 9


def grow(store: StreamStore) -> Iterator[int]:
    """Create the stream, and yield each time that it has more events, the same in every run."""
    chance = random.Random(_SEED)  # noqa: S311  (test data, not a secret)
    store.create_stream_and_scope(CLICKS, StreamConfiguration(scaling=Scaling(min_segments=2), tags=("demo", "clicks")))
    for number in range(ROUNDS):
        busy = 0.06 + 0.88 * number / ROUNDS
        _append(store, CLICKS, (_click(chance, busy) for _ in range(EVENTS)))
        yield number
        segments = store.describe(CLICKS).epochs[-1].segments
        if len(segments) < MOST_SEGMENTS:
            _split(store, CLICKS, _owner(segments, busy))


def _click(chance: random.Random, busy: float) -> tuple[float, bytes]:
    place = busy + chance.uniform(-0.02, 0.02) if chance.random() < 0.6 else chance.random()
    return place, chance.randbytes(chance.randrange(40, 400))


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
        cleanup.enter_context(environment(s3_settings(endpoint)))
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
        self._s3 = boto3.Session().client("s3", endpoint_url=endpoint)  # boto3 keeps the credentials of its own
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
        """Write a table of the archive and query it, unless Spark was not asked for and has no Java."""
        with self._step("hand it off as a table") as show:
            made = write_table(CHUNKS, table="orders", format="parquet", decode="json", root=self._local, **self._how)
            _require(made.events == self._events, "the table has a row for each event")
            show(f"{made.events:,} rows, {len(made.columns)} columns, {count_text(made.files, 'file')}")
        master = Master.parse(self._how["master"])
        if master.kind == "inline":
            return
        if master.is_auto:
            try:
                java_home()
            except NoJava as problem:
                _log.warning("skipped the SQL query, which needs Spark: %s", problem)
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
