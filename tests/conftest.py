"""Real servers as fixtures, one of each per test session, started by the first test that asks for it.

A server that can't be had skips the tests that need it, or fails them where it is required: see `is_required`. The
names there are airflow, buildah, chromium, iceberg-rest, pravega, minio, versitygw, moto, spark and trino.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from typing import NoReturn, TypeVar

import botocore.session
import pytest
from botocore.loaders import create_loader
from hypothesis import settings
from psutil import virtual_memory

from streamvault.objectstore.obstore_store import _STORES
from streamvault.objectstore.uri import _open
from testkit.servers.airflow import AirflowServer
from testkit.servers.availability import Unavailable, is_required
from testkit.servers.buildah import Buildah, find_base
from testkit.servers.chromium import find_chromium
from testkit.servers.iceberg_rest import IcebergRestServer, iceberg_rest_jars
from testkit.servers.iceberg_spark import iceberg_options, iceberg_spark_jars, old_pyspark
from testkit.servers.java import find_java, spark_options
from testkit.servers.minio import MinioServer
from testkit.servers.moto import moto_server
from testkit.servers.pravega import PravegaServer, class_options
from testkit.servers.pravega_java import pravega_jars
from testkit.servers.pravega_security import ADMIN
from testkit.servers.process import FOLDERS
from testkit.servers.s3 import S3Server
from testkit.servers.schema_registry import SchemaRegistryServer, schema_registry_jars
from testkit.servers.spark_cluster import SparkCluster
from testkit.servers.trino import TrinoServer
from testkit.servers.trino_files import trino_files, trino_java
from testkit.servers.versitygw import VersityServer

T = TypeVar("T")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Tests in the background of a script, or below `nohup`: what they start would ignore interrupts, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something about the machine only. CI tries the same ones each time; other runs look
# for more.
settings.register_profile("streamvault", deadline=None)
settings.register_profile("ci", parent=settings.get_profile("streamvault"), max_examples=40, derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "streamvault")

# What fetches a fixture's server. Done before the first test, so that no test's time limit pays for it.
FETCHES: dict[str, tuple[Callable[[], object], ...]] = {
    "pravega": (find_java, pravega_jars, class_options),
    "pravega_secure": (find_java, pravega_jars, class_options),
    "minio": (MinioServer().program,),
    "versitygw": (VersityServer().program,),
    "spark_cluster": (find_java,),
    "trino": (trino_java, trino_files),
    "iceberg_rest": (find_java, iceberg_rest_jars),
    "iceberg_runtime": (find_java, iceberg_spark_jars, old_pyspark, iceberg_options),
    "schema_registry": (find_java, schema_registry_jars),
    "airflow": (find_java,),
    "chromium": (find_chromium,),
    "buildah": (find_base,),
}
ROOT = Path(__file__).parents[1]
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
"""Where the folders of fast tests are if so much (bytes) is free there."""
SERVER_ROOM = 8 << 30
"""The folders of servers are there, too, if so much is free; they hold some hundred MB."""
FAST = {"unit", "commands", "contract"}
"""The folders whose tests are fast if they have none of these markers."""
SERVERS = ("spark", "pravega", "minio", "versitygw", "trino")
MARKED = re.compile(rf"mark\.({'|'.join(SERVERS)})|getattr\(pytest\.mark")
SESSION = pytest.StashKey[pytest.Session]()
NOT_FETCHED = pytest.StashKey[dict[str, str]]()
LAST_USES = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lake-events", type=int, default=15_000, metavar="N", help="how many events the tables of tests have"
    )
    parser.addoption(
        "--round-trip-events",
        type=int,
        default=5_000,
        metavar="N",
        help="how many events go both ways on real servers",
    )
    parser.addoption(
        "--lake-kills", type=int, default=1, metavar="N", help="kill a handoff at N random moments, for each format"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set what this process and those that tests start find in their environment.

    Whoever imports Airflow makes its home, so it has one that goes.
    """
    config.add_cleanup(partial(_leave, config))  # what is added first is done last
    home = tempfile.TemporaryDirectory(prefix="streamvault-airflow-home-")
    config.add_cleanup(home.cleanup)
    # Every session of boto3 would look for and read its services' models again: S3's take 0.2 s of the processor.
    botocore.session.create_loader = cache(create_loader)  # type: ignore[attr-defined]
    # What `main` has frozen in this process is collected at its end, or some libraries report leaks.
    config.add_cleanup(gc.unfreeze)
    os.environ["AIRFLOW_HOME"] = home.name
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "false"
    # A test that asks for Spark means it.
    os.environ.setdefault("STREAMVAULT_MASTER", "local[*]")


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[SESSION] = session


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure at once where tests run for an hour: what stops them later must not hide it."""
    if report.failed and "CI" in os.environ:
        text = f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}"
        shown = text if len(text) < 6000 else f"{text[:3000]}\n[...]\n{text[-3000:]}"
        print(shown, file=sys.__stderr__, flush=True)


def _leave(config: pytest.Config) -> None:
    """End this process with the tests' exit code, without taking the interpreter apart.

    By then it has the threads of half a dozen libraries in C++ and Rust, and one of those has crashed it when all tests
    had passed. How a command ends is tested with processes that have run nothing else.
    """
    if (session := config.stash.get(SESSION, None)) is not None:
        config.get_terminal_writer().flush()
        atexit._run_exitfuncs()
        os._exit(int(session.exitstatus))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the fast tests; tests that are marked as late go behind the others of their folder."""
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        if folder in FAST and not any(item.get_closest_marker(server) for server in SERVERS):
            item.add_marker("fast")
        elif folder in FAST and not MARKED.search(item.path.read_text()):
            raise pytest.UsageError(
                f"{item.path}: bin/test finds what needs a server by the name of a mark in the file"
            )
    folders = list(dict.fromkeys(item.path.parent for item in items))
    items.sort(key=lambda item: (folders.index(item.path.parent), item.get_closest_marker("late") is not None))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the servers that the tests to be run ask for, and choose where their folders are."""
    not_fetched = session.config.stash.setdefault(NOT_FETCHED, {})
    if session.config.option.collectonly:
        return
    gc.collect()
    gc.freeze()  # no collection goes through thousands of tests and all they import again
    # Embedded stores flush every write, and on a disk tests would wait for that most of their time.
    is_fast = all(item.get_closest_marker("fast") for item in session.items)
    if is_fast and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    # Servers flush theirs, too: MinIO takes twice as long to store an object on a disk, and more of the processor.
    if not is_fast:
        if takes_servers(MEMORY):
            os.environ.setdefault(FOLDERS, str(MEMORY))
        with suppress(Unavailable):  # whoever needs Java says so
            os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())
    asked_for = {name: item.nodeid for item in session.items for name in getattr(item, "fixturenames", ())}
    names = sorted(asked_for.keys() & FETCHES.keys())
    session.config.stash[LAST_USES] = {name: asked_for[name] for name in names}
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if names and reporter is not None and session.config.option.verbose >= 0:
        reporter.write_line(f"servers: {', '.join(names)} (fetching one takes minutes, once)")
    for name in names:
        try:
            for fetch in FETCHES[name]:
                fetch()
        except Unavailable as error:
            not_fetched[name] = str(error)


def takes_servers(folder: Path) -> bool:
    """Whether a folder has room for the files of servers, and extended attributes, which versitygw needs."""
    if not folder.is_dir() or min(shutil.disk_usage(folder).free, virtual_memory().available) < SERVER_ROOM:
        return False
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        try:
            os.setxattr(file.fileno(), "user.test", b"")
        except OSError:
            return False
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Stop the servers that no later test asks for: even idle, some take a tenth of a core."""
    yield
    for name in [name for name, last in item.config.stash[LAST_USES].items() if last == item.nodeid]:
        for fixture in item._fixtureinfo.name2fixturedefs.get(name, ()):  # type: ignore[attr-defined]
            if fixture.scope == "session":
                fixture.finish(item._request)  # type: ignore[attr-defined]


@contextmanager
def started(request: pytest.FixtureRequest, name: str, server: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """The server, started; or no test that needs it."""
    reason = request.config.stash[NOT_FETCHED].get(str(request.fixturename))
    if reason is not None:
        absent(name, reason)
    with ExitStack() as running:
        try:
            started = running.enter_context(server())
        except Unavailable as error:
            reason = str(error)
        if reason is not None:
            absent(name, reason)
        yield started


def absent(name: str, reason: str) -> NoReturn:
    if is_required(name, os.environ):
        pytest.fail(f"{name} is required and can't be had: {reason}", pytrace=False)
    pytest.skip(f"{name} can't be had: {reason}")


@pytest.fixture(scope="module", autouse=True)
def what_lies_in_memory_ends_with_its_module() -> Iterator[None]:
    yield
    _open.cache_clear()
    _STORES.clear()


@pytest.fixture(scope="session")
def pravega(request: pytest.FixtureRequest) -> Iterator[PravegaServer]:
    """A plain Pravega that all tests share; stay within a scope of your own (`scope_name`)."""
    with started(request, "pravega", PravegaServer) as server:
        yield server


@pytest.fixture(scope="session")
def pravega_secure(request: pytest.FixtureRequest) -> Iterator[PravegaServer]:
    """A Pravega with TLS and passwords (`ADMIN`) that all tests share."""
    with started(request, "pravega", lambda: PravegaServer(tls=True, accounts=(ADMIN,))) as server:
        yield server


@pytest.fixture(scope="session")
def minio(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    """A MinIO that all tests share; make a bucket of your own (`bucket_name`)."""
    with started(request, "minio", MinioServer) as server:
        yield server


@pytest.fixture(scope="session")
def versitygw(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    """A versitygw that all tests share; make a bucket of your own (`bucket_name`)."""
    with started(request, "versitygw", VersityServer) as server:
        yield server


@pytest.fixture(scope="session")
def moto_s3(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    """moto's S3 in this process, which all tests share; make a bucket of your own (`bucket_name`)."""
    with started(request, "moto", moto_server) as server:
        yield server


@pytest.fixture(scope="session")
def trino(request: pytest.FixtureRequest, minio: S3Server, moto_s3: S3Server) -> Iterator[TrinoServer]:
    """A Trino that all tests share, over MinIO's objects and moto's Glue; use a database of your own."""
    with started(request, "trino", lambda: TrinoServer(minio, moto_s3)) as server:
        yield server


@pytest.fixture(scope="session")
def chromium(request: pytest.FixtureRequest) -> Iterator[str]:
    """The path of a Chromium."""
    with started(request, "chromium", lambda: nullcontext(find_chromium())) as path:
        yield path


@pytest.fixture(scope="session")
def buildah(request: pytest.FixtureRequest) -> Iterator[Buildah]:
    """Builds container images on the base image of the Dockerfile."""
    with started(request, "buildah", Buildah) as builder:
        yield builder


@pytest.fixture(scope="session")
def iceberg_rest(request: pytest.FixtureRequest, minio: S3Server) -> Iterator[IcebergRestServer]:
    """A REST catalog that all tests share, over MinIO's objects; use a database of your own."""
    with started(request, "iceberg-rest", lambda: IcebergRestServer(minio)) as server:
        yield server


@pytest.fixture(scope="session")
def iceberg_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark with Iceberg's runtime can be had; each test starts its own (`iceberg_spark`)."""
    with started(request, "spark", nullcontext) as nothing:
        yield nothing


@pytest.fixture(scope="session")
def schema_registry(request: pytest.FixtureRequest) -> Iterator[SchemaRegistryServer]:
    """A Schema Registry of Pravega that all tests share; use groups of your own."""
    with started(request, "schema-registry", SchemaRegistryServer) as server:
        yield server


@pytest.fixture(scope="session")
def spark_cluster(request: pytest.FixtureRequest) -> Iterator[SparkCluster]:
    """A Spark cluster that all tests share."""
    with started(request, "spark", SparkCluster) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def airflow(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """An Airflow with the project's DAGs and those of the tests, all paused; the rotation's schedule is short.

    One of its DAGs watches for an archive in the empty folder that the variable `STREAMVAULT_TEST_WATCHED` names.
    Rotations that fail or are late are noted in the file of `STREAMVAULT_TEST_NOTES`.
    """
    dags = [ROOT / "dags", ROOT / "tests" / "integration" / "airflow_dags"]
    variables = {
        "STREAMVAULT_ROTATION_SCHEDULE": "15s",
        "STREAMVAULT_TEST_WATCHED": str(tmp_path_factory.mktemp("watched")),
        "STREAMVAULT_TEST_NOTES": str(tmp_path_factory.mktemp("notes") / "notes"),
        "STREAMVAULT_ROTATION_ON_FAILURE": "testkit.servers.airflow.note_failure",
        "STREAMVAULT_ROTATION_ON_LATE": "testkit.servers.airflow.note_late",
        "STREAMVAULT_ROTATION_DEADLINE": "1d",
    }
    with started(request, "airflow", lambda: AirflowServer(dags, variables)) as server:
        yield server


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has, fit for a bucket, a scope and a stream: lower case, digits, hyphens."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_")).strip("-")
    return f"{test[:40].strip('-')}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def bucket_name(unique_name: str) -> str:
    """A bucket's name of this test's own; the bucket is not made."""
    return unique_name


@pytest.fixture
def scope_name(unique_name: str) -> str:
    """A scope's name of this test's own; the scope is not made."""
    return unique_name


@pytest.fixture
def stream_name(unique_name: str) -> str:
    """A stream's name of this test's own; the stream is not made."""
    return unique_name


@pytest.fixture
def use_s3(monkeypatch: pytest.MonkeyPatch) -> Callable[[S3Server], None]:
    """A function that points the AWS environment of this test at a server."""

    def use(server: S3Server) -> None:
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
        for variable, value in server.environment().items():
            monkeypatch.setenv(variable, value)

    return use


@pytest.fixture(scope="session", autouse=True)
def _no_foreign_aws_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reaches the account of whoever runs it."""
    nowhere = tmp_path_factory.mktemp("aws")
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(variable)
        patch.setenv("AWS_CONFIG_FILE", str(nowhere / "config"))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere / "credentials"))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield
