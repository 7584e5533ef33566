"""The Spark data sources on a real Spark, Pravega and MinIO: round trips, filters, errors."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamvault import export_stream
from streamvault.spark import register
from streamvault.spark.sources import PUSH_DOWN
from streamvault.streamstore.model import KeyRange, Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.routing import SegmentRouter
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.servers.java import spark_environment
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_security import ADMIN
from testkit.servers.s3 import S3Server
from testkit.servers.spark_cluster import SparkCluster, end_spark
from testkit.small_archives import Vault
from testkit.streams import append_events, events_of, make_stream

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.spark, pytest.mark.timeout(600)]

RANGE_SIZE = 32 * 1024


def settings(builder: SparkSession.Builder) -> SparkSession:
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    return builder.config(map=quiet).config("spark.driver.memory", "512m").getOrCreate()


@pytest.fixture(scope="module")
def spark(minio: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A user's own session, stopped after the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**minio.environment(), **spark_environment()}.items():
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("spark")
        patch.chdir(folder)
        logs = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": str(folder)}
        spark = settings(SparkSession.builder.master("local[2]").config(map=logs))
        register(spark)
        yield spark
        end_spark(spark)


@pytest.fixture(scope="module")
def store(pravega: PravegaServer) -> Iterator[StreamStore]:
    with parse_stream(f"{pravega.uri}/a/b")[0].open() as store:
        yield store


@pytest.fixture(scope="module")
def source(store: StreamStore) -> StreamName:
    """A stream with all kinds of scales and its head truncated; tests do not change it."""
    name = StreamName(f"scope-{uuid.uuid4().hex[:8]}", "source")
    make_stream(store, name, events=1500, largest=100_000)
    return name


def target(store: StreamStore, scope: str, segments: int = 3) -> StreamName:
    name = StreamName(scope, f"target-{uuid.uuid4().hex[:8]}")
    store.create_scope(scope)
    store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=segments)))
    return name


def wanted(store: StreamStore, stream: StreamName) -> list[tuple[object, ...]]:
    """Every event's columns, in the stream's order."""
    return [
        (
            *(stream.scope, stream.stream, pointer.segment.epoch, pointer.segment.number),
            *(pointer.offset, pointer.length, str(pointer), payload),
        )
        for pointer, payload in events_of(store, stream)
    ]


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return [(*row[:7], bytes(row[7])) for row in frame.collect()]


def test_all_columns_of_a_stream_are_read(
    spark: SparkSession, pravega: PravegaServer, store: StreamStore, source: StreamName
) -> None:
    frame = (
        spark.read.format("pravega")
        .option("controller", pravega.uri.replace("pravega://", "tcp://"))
        .option("scope", source.scope)
        .option("stream", source.stream)
        .option("start_stream_cut", "unbounded")
    )
    assert rows(frame.load()) == wanted(store, source)
    narrow = frame.option("columns", "length,offset").load()
    assert narrow.columns == ["length", "offset"]
    assert narrow.selectExpr("sum(length)").first()[0] == sum(row[5] for row in wanted(store, source))  # type: ignore[misc,index]


def test_events_above_8_mib_are_read(
    spark: SparkSession, pravega: PravegaServer, store: StreamStore, source: StreamName, bucket: str
) -> None:
    stream = target(store, source.scope, segments=1)
    sizes = [100, 12 * 1024 * 1024, 7]
    append_events(store, stream, SegmentId(0, 0), [os.urandom(size) for size in sizes])
    of_the_stream = (
        spark.read.format("pravega")
        .option("controller", pravega.uri)
        .option("scope", stream.scope)
        .option("stream", stream.stream)
    )
    export_stream(f"{pravega.uri}/{stream}", f"s3://{bucket}/vault", master="inline[2]")
    of_the_archive = spark.read.format("streamvault").option("path", f"s3://{bucket}/vault/{stream}")
    for reader in (of_the_stream, of_the_archive):
        found = reader.load().selectExpr("length", "sha2(payload, 256) AS digest").collect()
        assert [tuple(row) for row in found] == [
            (len(payload) + 8, hashlib.sha256(payload).hexdigest()) for _, payload in events_of(store, stream)
        ]


def test_archive_is_read_with_all_columns_and_only_needed_ranges(
    spark: SparkSession,
    pravega: PravegaServer,
    bucket: str,
    store: StreamStore,
    source: StreamName,
) -> None:
    events = wanted(store, source)
    for layout, compress in (("events", ""), ("chunks", "zstd")):
        root = f"s3://{bucket}/{layout}"
        report = export_stream(
            f"{pravega.uri}/{source}",
            root,
            layout=layout,  # type: ignore[arg-type]
            compress=compress,  # type: ignore[arg-type]
            range_size=RANGE_SIZE,
            master="inline[2]",
        )
        frame = spark.read.format("streamvault").load(f"{root}/{source}")
        assert rows(frame) == events
        assert frame.rdd.getNumPartitions() == report.ranges
        one = events[len(events) // 2]
        chosen = frame.filter(f"epoch = {one[2]} and segment = {one[3]} and offset = {one[4]}")
        assert chosen.rdd.getNumPartitions() == 1
        assert rows(chosen) == [one]
        nothing = frame.filter("segment = 999")
        assert (nothing.rdd.getNumPartitions(), nothing.count()) == (1, 0)


def test_formats_are_found_without_registration_and_are_tables_of_sql(
    spark: SparkSession, pravega: PravegaServer, store: StreamStore, source: StreamName, bucket: str, tmp_path: Path
) -> None:
    events = wanted(store, source)
    roots = (f"s3://{bucket}/found", f"file://{tmp_path}/vault")
    for root in roots:
        export_stream(f"{pravega.uri}/{source}", root, layout="chunks", master="inline[2]")
    found = spark.newSession()  # which knows nothing of what was registered
    assert found.conf.get(PUSH_DOWN) == "false"
    assert rows(found.read.format("streamvault").load(f"{roots[0]}/{source}")) == events
    tables = {
        "on_s3": f"USING streamvault LOCATION '{roots[0]}/{source}' TBLPROPERTIES ('owner of it' = 'we')",
        "in_a_folder": f"USING streamvault LOCATION '{roots[1]}/{source}'",
        "by_path": f"USING streamvault OPTIONS (path '{tmp_path}/vault/{source}', generation '1')",
        "live": f"USING pravega OPTIONS (controller '{pravega.uri}', scope '{source.scope}', stream '{source.stream}')",
    }
    for name, statement in tables.items():
        found.sql(f"CREATE TABLE {name} {statement}")
        assert rows(found.table(name)) == events, name
    one = events[len(events) // 2]
    found.conf.set(PUSH_DOWN, "true")
    chosen = found.sql(f"SELECT * FROM on_s3 WHERE epoch = {one[2]} AND segment = {one[3]} AND offset = {one[4]}")
    assert (chosen.rdd.getNumPartitions(), rows(chosen)) == (1, [one])
    with pytest.raises(PySparkException, match="no generation 7"):
        found.sql("SELECT * FROM on_s3 WITH (generation '7')").collect()
    following = found.readStream.option("startingOffsets", "earliest").table("live").writeStream
    query = following.format("memory").queryName("followed").option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted(rows(found.table("followed"))) == sorted(events)
    for name in tables:
        found.sql(f"DROP TABLE {name}")
    assert rows(found.read.format("streamvault").load(f"{roots[1]}/{source}")) == events


def test_errors_are_one_line_wherever_they_occur(spark: SparkSession, tmp_path: Path) -> None:
    """When a query is planned, in a task, in a sink and in a streaming query."""
    with parse_stream(f"local://{tmp_path}/a/b")[0].open() as local:
        name = target(local, "scope", segments=1)
        append_events(local, name, SegmentId(0, 0), [b"event"])
        uri, inside = f"{local.uri}/{name}", json.dumps({SegmentId(0, 0).in_stream(name): 1})
    reading = spark.read.format("pravega")
    nothing = spark.range(1).selectExpr("CAST(NULL AS binary) AS payload")

    def follow() -> None:
        following = spark.readStream.format("pravega").load(f"{uri}x").writeStream.format("noop")
        following.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)

    failures: dict[str, Callable[[], object]] = {
        "unknown option: option startat of format pravega. Available:": lambda: reading.option("startAt", "0").load(
            uri
        ),
        "no such stream: local:": lambda: spark.read.format("pravega").load(f"{uri}x").count(),
        "cut off after": lambda: spark.read.format("pravega").option("from", inside).load(uri).count(),
        "an event is null": lambda: nothing.write.format("pravega").mode("append").save(uri),
        "no such stream: ": follow,
    }
    for said, fail in failures.items():
        with pytest.raises(PySparkException, match=re.escape(said)) as caught:
            fail()
        assert "Traceback" not in str(caught.value)
        assert sum("streamvault." in line for line in str(caught.value).splitlines()) == 1


def test_embedded_store_is_written_to(spark: SparkSession, tmp_path: Path) -> None:
    with parse_stream(f"local://{tmp_path}/a/b")[0].open() as local:
        name = target(local, "scope")
        frame = spark.range(2_000).repartition(4).selectExpr("CAST(id AS STRING) AS event")
        for _ in range(2):
            named = frame.write.format("pravega").mode("append").option("txnAppId", "test").option("txnVersion", 1)
            named.save(f"{local.uri}/{name}")
        assert sorted(int(payload) for _, payload in events_of(local, name)) == list(range(2_000))


def test_write_to_a_sealed_stream_fails_at_once(
    spark: SparkSession, pravega: PravegaServer, store: StreamStore
) -> None:
    name = StreamName(f"scope-{uuid.uuid4().hex[:8]}", "sealed")
    store.create_scope(name.scope)
    store.create_stream(name, StreamConfiguration())
    store.seal(name)
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS payload")
    with pytest.raises(PySparkException, match="the stream is sealed and cannot be changed: pravega"):
        frame.write.format("pravega").mode("append").save(f"{pravega.uri}/{name}")


def test_write_is_atomic_and_a_named_write_happens_once(
    spark: SparkSession, pravega: PravegaServer, store: StreamStore, source: StreamName, scope_name: str
) -> None:
    name, events = target(store, scope_name), sorted(payload for _, payload in events_of(store, source))
    frame = spark.read.format("pravega").load(f"{pravega.uri}/{source}")
    written = frame.selectExpr("payload", "pointer AS routing_key")
    for _ in range(2):
        named = written.write.format("pravega").mode("append").option("txnAppId", "test").option("txnVersion", 1)
        named.save(f"{pravega.uri}/{name}")
    assert sorted(payload for _, payload in events_of(store, name)) == events
    router = SegmentRouter(store.describe(name).epochs[0].segments)
    where = {payload: pointer.segment for pointer, payload in events_of(store, name)}
    unique = {payload: str(pointer) for pointer, payload in events_of(store, source) if events.count(payload) == 1}
    assert len(unique) > 500
    for payload, key in unique.items():
        assert where[payload] == router.segments[router.index_of(key)]
    # the last of the tasks fails: no event of the others is visible
    broken = written.selectExpr(
        "IF(spark_partition_id() = 1, CAST(assert_true(length(payload) < 0) AS BINARY), payload) AS payload"
    )
    with pytest.raises(PySparkException):
        broken.write.format("pravega").mode("append").save(f"{pravega.uri}/{name}")
    with pytest.raises(PySparkException, match="events cannot be overwritten"):
        written.write.format("pravega").mode("overwrite").save(f"{pravega.uri}/{name}")
    assert sorted(payload for _, payload in events_of(store, name)) == events


def test_query_follows_a_scale(
    spark: SparkSession, pravega: PravegaServer, store: StreamStore, scope_name: str, tmp_path: Path
) -> None:
    first, second = target(store, scope_name, 1), target(store, scope_name, 2)
    append_events(store, first, SegmentId(0, 0), [b"1"])
    query = (
        spark.readStream.format("pravega")
        .option("startingOffsets", "earliest")
        .load(f"{pravega.uri}/{first}")
        .selectExpr("payload AS event")
        .writeStream.format("pravega")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start(f"{pravega.uri}/{second}")
    )
    try:
        wait_for(store, second, [b"1"])
        store.scale(first, [SegmentId(0, 0)], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])
        append_events(store, first, SegmentId(1, 1), [b"2"])
        append_events(store, first, SegmentId(1, 2), [b"3"])
        # the target is scaled too: transactions begin in its new epoch
        store.scale(second, [SegmentId(0, 0)], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
        wait_for(store, second, [b"1", b"2", b"3"])
        append_events(store, first, SegmentId(1, 2), [b"4"])
        wait_for(store, second, [b"1", b"2", b"3", b"4"])
        assert query.isActive
    finally:
        query.stop()


def test_query_has_a_login_of_its_own_for_each_cluster(
    spark: SparkSession,
    pravega: PravegaServer,
    pravega_secure: PravegaServer,
    store: StreamStore,
    scope_name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No password is in a plan, a log of Spark, a checkpoint or a message."""
    assert pravega_secure.certificates is not None
    login = {
        "username": ADMIN.user,
        "password": ADMIN.password,
        "caFile": str(pravega_secure.certificates.authority),
    }
    first, name = target(store, scope_name, 1), StreamName(scope_name, "guarded")
    append_events(store, first, SegmentId(0, 0), [b"1", b"2"])
    with monkeypatch.context() as patch:
        for option, variable in {"username": "USERNAME", "password": "PASSWORD", "caFile": "CA_FILE"}.items():
            patch.setenv(f"PRAVEGA_{variable}", login[option])
        secure = parse_stream(f"{pravega_secure.uri}/a/b")[0]
    with secure.open() as guarded:
        guarded.create_scope(scope_name)
        guarded.create_stream(name, StreamConfiguration())
        followed = spark.readStream.format("pravega").option("startingOffsets", "earliest")
        followed = followed.option("maxEventsPerTrigger", 1)
        copied = followed.load(f"{pravega.uri}/{first}").selectExpr("payload AS event").writeStream.format("pravega")
        query = (
            copied.options(**login)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(f"{pravega_secure.uri}/{name}")
        )
        assert query.awaitTermination(120)
        assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [1, 1]
        query.explain(extended=True)
        wait_for(guarded, name, [b"1", b"2"])
    frame = spark.read.format("pravega").options(**login).load(f"{pravega_secure.uri}/{name}")
    assert sorted(bytes(row.payload) for row in frame.collect()) == [b"1", b"2"]
    frame.explain("extended")
    frame.select("payload").write.format("pravega").mode("append").options(**login).save(f"{pravega_secure.uri}/{name}")
    assert spark.read.format("pravega").options(**login).load(f"{pravega_secure.uri}/{name}").count() == 4
    with pytest.raises(PySparkException, match=r"option columns|unknown column") as wrong:
        spark.read.format("pravega").options(**login, columns="key").load(f"{pravega_secure.uri}/{name}")
    other = spark.read.format("pravega").options(**login | {"password": ADMIN.password[::-1]})
    with pytest.raises(PySparkException, match="rejected the login of admin") as refused:
        other.load(f"{pravega_secure.uri}/{name}").count()
    said = str(wrong.value) + str(refused.value) + "".join(capfd.readouterr())
    folders = (tmp_path, Path(spark.conf.get("spark.eventLog.dir") or ""))
    kept = "".join(file.read_text("latin-1") for folder in folders for file in folder.rglob("*") if file.is_file())
    assert "BatchScan" in kept
    for secret in (ADMIN.password, ADMIN.password[::-1]):
        assert secret not in said
        assert secret not in kept


def test_one_query_reads_the_archive_and_then_the_stream(
    spark: SparkSession, pravega: PravegaServer, store: StreamStore, scope_name: str, bucket: str, tmp_path: Path
) -> None:
    first, second, root = target(store, scope_name, 2), target(store, scope_name, 1), f"s3://{bucket}/vault"
    written: list[bytes] = []

    def append(*payloads: str) -> None:
        for segment in sorted(store.describe(first).tail.offsets):
            written.extend(found := [f"{payload} in {segment}".encode() for payload in payloads])
            append_events(store, first, segment, found)

    def run() -> list[int]:
        """Let the query read what is there; return how many events each of its batches has."""
        query = (
            spark.readStream.format("pravega")
            .option("archive", f"{root}/{first}")
            .option("maxEventsPerTrigger", 10)
            .load(f"{pravega.uri}/{first}")
            .selectExpr("payload AS event")
            .writeStream.format("pravega")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(f"{pravega.uri}/{second}")
        )
        assert query.awaitTermination(240)
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    append(*(f"first {number}" for number in range(8)))
    export_stream(f"{pravega.uri}/{first}", root, layout="chunks", master="inline[2]")
    store.scale(first, [SegmentId(0, 0)], [KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)])
    append("second")
    export_stream(f"{pravega.uri}/{first}", root, layout="chunks", master="inline[2]")
    tail = store.describe(first).tail
    append("alive")
    store.truncate(tail)
    assert len(run()) > 2
    wait_for(store, second, sorted(written))
    append("later")
    assert sum(run()) == 3
    wait_for(store, second, sorted(written))
    assert run() == []


def test_embedded_store_and_its_archive_are_one_query(spark: SparkSession, tmp_path: Path) -> None:
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=200, largest=3000)
    vault.export("chunks", "zstd")
    vault.add(b"alive")

    def rows_of(run: int) -> list[str]:
        query = (
            spark.readStream.format("pravega")
            .option("archive", vault.archive)
            .option("maxBytesPerTrigger", "20KiB")
            .load(vault.uri())
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "lake"))
        )
        assert query.awaitTermination(240), run
        return sorted(row.pointer for row in spark.read.parquet(str(tmp_path / "lake")).collect())

    assert rows_of(1) == sorted(str(pointer) for pointer, _ in vault.events())
    vault.add(b"later")
    assert rows_of(2) == sorted(str(pointer) for pointer, _ in vault.events())


def test_query_of_a_pattern_is_joined_by_a_new_stream(spark: SparkSession, tmp_path: Path) -> None:
    scope = f"local://{tmp_path}/streams/shop/"

    def add(name: str, *payloads: bytes) -> None:
        with parse_stream(f"{scope}{name}")[0].open() as local:
            stream = StreamName("shop", name)
            local.create_scope("shop")
            if not local.exists(stream):
                local.create_stream(stream, StreamConfiguration())
            append_events(local, stream, SegmentId(0, 0), payloads)

    def found() -> list[tuple[str, bytes]]:
        query = (
            spark.readStream.format("pravega")
            .option("streamPattern", "orders-.*")
            .option("startingOffsets", "earliest")
            .option("maxEventsPerTrigger", 2)
            .load(scope)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "lake"))
        )
        assert query.awaitTermination(240)
        frame = spark.read.parquet(str(tmp_path / "lake"))
        return sorted((row.stream, bytes(row.payload)) for row in frame.collect())

    add("others", b"0")
    add("orders-1", b"1", b"2", b"3")
    add("orders-2", b"4")
    expected = [("orders-1", b"1"), ("orders-1", b"2"), ("orders-1", b"3"), ("orders-2", b"4")]
    assert found() == expected
    add("orders-1", b"5")
    add("orders-3", b"6", b"7", b"8")
    expected += [("orders-1", b"5"), ("orders-3", b"6"), ("orders-3", b"7"), ("orders-3", b"8")]
    assert found() == sorted(expected)
    batch = spark.read.format("pravega").option("streamPattern", "orders-.*").load(scope)
    assert sorted((row.stream, bytes(row.payload)) for row in batch.collect()) == sorted(expected)


ON_A_CLUSTER = """
import sys
from pyspark.sql import SparkSession
from streamvault.spark import register

master, stream, archive, copy = sys.argv[1:]
spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
spark = spark.config("spark.driver.host", "127.0.0.1").config("spark.executor.memory", "512m").getOrCreate()
register(spark)
events = spark.read.format("pravega").load(stream)
events.selectExpr("payload AS event").write.format("pravega").mode("append").save(copy)
print(events.count(), spark.read.format("streamvault").load(archive).count())
"""


@pytest.mark.long
def test_workers_without_the_code_can_read(
    minio: S3Server,
    spark_cluster: SparkCluster,
    store: StreamStore,
    source: StreamName,
    tmp_path: Path,
) -> None:
    made, root = target(store, source.scope), f"file://{tmp_path}/vault"
    export_stream(f"{store.uri}/{source}", root, layout="chunks", range_size=RANGE_SIZE, master="inline[2]")
    done = subprocess.run(
        [
            *(sys.executable, "-c", ON_A_CLUSTER, spark_cluster.master_url),
            *(f"{store.uri}/{source}", f"{root}/{source}", f"{store.uri}/{made}"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, **minio.environment(), **spark_cluster.environment()},
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    events = [payload for _, payload in events_of(store, source)]
    assert done.stdout.split() == [str(len(events))] * 2
    assert sorted(payload for _, payload in events_of(store, made)) == sorted(events)


THE_USERS_OWN_SPARK = """
import sys
from pyspark.sql import SparkSession
from streamvault.runner.opening import open_runner
from streamvault.spark import register

master = "local-cluster[1,1,1024]"
spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
spark = spark.config("spark.driver.memory", "512m").config("spark.executor.memory", "512m")
spark = spark.config("spark.master.rest.enabled", "false").config("spark.task.maxFailures", "1").getOrCreate()
for _ in range(2):
    with open_runner(master):
        pass
    register(spark)
print(sum("streamvault" in name for name in map(str, spark.sparkContext.listFiles)))
# the executor has not run a task yet, so it fetches the context's files only now
print(spark.sparkContext.parallelize(range(3), 1).sum())
"""


@pytest.mark.long
def test_programs_own_jobs_run_after_commands(tmp_path: Path) -> None:
    """Spark sends every file of a context to every executor, so a shipped file must stay available under one name."""
    done = subprocess.run(
        [sys.executable, "-c", THE_USERS_OWN_SPARK],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **spark_environment()},
        check=False,
        timeout=500,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["1", "3"]), done.stderr[-2000:]


NOT_ACTIVATED = """
import sys
from pyspark.sql import SparkSession
from streamvault.common.errors import Problem
from streamvault.spark import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
spark = spark.config("spark.driver.memory", "512m").getOrCreate()
try:
    register(spark)
    print(spark.read.format("streamvault").load(sys.argv[1]).count())
except Problem as problem:
    print(problem)
"""


@pytest.mark.long
@pytest.mark.parametrize("named", [False, True])
def test_program_of_an_inactive_environment_runs(tmp_path: Path, named: bool) -> None:
    """``/venv/bin/python program.py``: PySpark's default, ``python3``, is another Python then."""
    vault = Vault(tmp_path, f"file://{tmp_path}/vault")
    vault.make(events=20)
    vault.export()
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')  # without any package
    bare.chmod(0o755)
    environment = {**os.environ, **spark_environment()}
    del environment["PYSPARK_PYTHON"]
    environment["PATH"] = f"{bare.parent}{os.pathsep}{os.environ['PATH']}"
    if named:
        environment["PYSPARK_PYTHON"] = "python3"
    done = subprocess.run(
        [sys.executable, "-c", NOT_ACTIVATED, vault.archive],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
        timeout=500,
    )
    (line,) = done.stdout.splitlines()
    if named:
        assert line.startswith(f"Spark's Python cannot run the data sources: {bare}: ModuleNotFoundError")
        assert line.endswith(f"Set PYSPARK_PYTHON before Spark starts; this program runs with {sys.executable}.")
    else:
        assert line == str(len(vault.events()))


def wait_for(store: StreamStore, stream: StreamName, payloads: list[bytes]) -> None:
    deadline = time.monotonic() + 120
    while (found := sorted(payload for _, payload in events_of(store, stream))) != payloads:
        # those of two segments come in any order
        assert set(found) <= set(payloads)
        assert len(found) <= len(payloads)
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
