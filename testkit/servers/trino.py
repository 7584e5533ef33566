"""A real Trino: one process, with catalogs over S3 for tables of Hive's kind and of Iceberg's."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.request
from pathlib import Path
from typing import Any

from testkit.servers.process import Server, ServerProcess, free_ports, http_answer, temporary_folder
from testkit.servers.s3 import HOST, S3Server
from testkit.servers.trino_files import trino_files, trino_java

START_TIMEOUT = 180.0
QUERY_TIMEOUT = 240.0
CONNECTOR = "connector.name"
ICEBERG = {
    CONNECTOR: "iceberg",
    "iceberg.register-table-procedure.enabled": "true",
    # tests do not wait for a week
    "iceberg.expire-snapshots.min-retention": "0s",
    "iceberg.remove-orphan-files.min-retention": "0s",
}


class TrinoFailed(RuntimeError):
    """What Trino said of a query that failed."""


class TrinoServer(Server):
    """Trino with the catalogs ``hive`` and ``iceberg`` in Glue, and ``own``: Hive's kind in a metastore of its own.

    Args:
        objects: the S3 server with the tables' files.
        glue: the server with the catalog; it need not be the same.
        heap: the Java heap's limit, as Java writes it.
        quick: compile Java lightly, for a fast start; benchmarks want it off.
    """

    def __init__(self, objects: S3Server, glue: S3Server, heap: str = "1536M", *, quick: bool = True) -> None:
        self._quick = quick
        self._objects = objects
        self._glue = glue
        self._heap = heap
        self._folder: Path | None = None
        self._port = 0
        self._latest = ""

    def start(self) -> None:
        """See the base class."""
        java, files = trino_java(), trino_files() / "server"
        self._port = free_ports(1)[0]
        self._folder = temporary_folder("trino")
        try:
            self._configure(self._folder / "etc", files)
            command = [
                *(str(java), f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
                *(("-XX:TieredStopAtLevel=1",) if self._quick else ()),
                *("--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"),
                *(f"-Dconfig={self._folder / 'etc' / 'config.properties'}", f"-Dnode.data-dir={self._folder}"),
                *("-cp", str(files / "lib" / "*"), "io.trino.server.TrinoServer"),
            ]
            self._process = ServerProcess("trino", command, folder=self._folder, env={"PATH": "/usr/bin:/bin"})
            self._process.wait_until(self._is_ready, timeout=START_TIMEOUT)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """See the base class."""
        super().stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def uri(self) -> str:
        """The server's URL."""
        return f"http://{HOST}:{self._port}"

    def query(self, sql: str, catalog: str = "hive") -> list[list[Any]]:
        """A query's rows, as JSON has them.

        Raises:
            TrinoFailed: it did not work.
        """
        headers = {"X-Trino-User": "test", "X-Trino-Catalog": catalog, "X-Trino-Time-Zone": "UTC"}
        headers["X-Trino-Client-Capabilities"] = "PARAMETRIC_DATETIME"  # else times are cut to milliseconds
        answer = self._ask(urllib.request.Request(f"{self.uri}/v1/statement", sql.encode(), headers))
        self._latest = answer["id"]
        rows: list[list[Any]] = []
        deadline = time.monotonic() + QUERY_TIMEOUT
        while True:
            if "error" in answer:
                raise TrinoFailed(answer["error"]["message"])
            rows += answer.get("data") or []
            if "nextUri" not in answer:
                return rows
            if time.monotonic() > deadline:
                raise TrinoFailed(f"no answer within {QUERY_TIMEOUT:.0f} s")
            answer = self._ask(urllib.request.Request(answer["nextUri"], headers=headers))

    def planning_seconds(self) -> float:
        """How long the newest query was planned, which is when the metastore is asked."""
        request = urllib.request.Request(f"{self.uri}/v1/query/{self._latest}", headers={"X-Trino-User": "test"})
        text = self._ask(request)["queryStats"]["planningTime"]
        number, unit = re.fullmatch(r"([0-9.]+)(ns|us|ms|s|m)", text).groups()  # type: ignore[union-attr]
        return float(number) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}[unit]

    def add_rest_catalog(self, name: str, uri: str) -> None:
        """Know the Iceberg tables of a REST catalog, as those of the catalog `name`."""
        rest = {"iceberg.catalog.type": "rest", "iceberg.rest-catalog.uri": uri}
        setting = {**ICEBERG, **rest, **self._object_settings()}
        said = ", ".join(f""""{key}" = '{value}'""" for key, value in setting.items() if key != CONNECTOR)
        self.query(f"CREATE CATALOG {name} USING iceberg WITH ({said})")

    def _ask(self, request: urllib.request.Request) -> dict[str, Any]:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())  # type: ignore[no-any-return]

    def _is_ready(self) -> bool:
        told = http_answer(f"{self.uri}/v1/info")
        try:
            return told is not None and not json.loads(told)["starting"] and self.query("SELECT 1") == [[1]]
        except (OSError, TrinoFailed):
            return False

    def _configure(self, folder: Path, files: Path) -> None:
        catalogs = folder / "catalog"
        catalogs.mkdir(parents=True)
        _write(
            folder / "config.properties",
            {
                "node.environment": "test",
                "node.id": "test",
                "node.bind-ip": HOST,
                "node.internal-address": HOST,
                "coordinator": "true",
                "catalog.management": "dynamic",
                "node-scheduler.include-coordinator": "true",
                "http-server.http.port": str(self._port),
                "discovery.uri": self.uri,
                "plugin.dir": str(files / "plugin"),
            },
        )
        objects = self._object_settings()
        glue = {
            **objects,
            "hive.metastore.glue.region": self._glue.region,
            "hive.metastore.glue.endpoint-url": self._glue.endpoint,
            "hive.metastore.glue.aws-access-key": self._glue.access_key,
            "hive.metastore.glue.aws-secret-key": self._glue.secret_key,
        }
        hive = {
            CONNECTOR: "hive",
            "hive.partition-projection-enabled": "true",
            "hive.non-managed-table-writes-enabled": "true",
            "hive.allow-register-partition-procedure": "true",
            # moto's Glue has none, and fails so that each query tries again for seconds
            "hive.table-statistics-enabled": "false",
        }
        bucket = self._objects.make_bucket(f"trino-{self._port}")
        own = {"hive.metastore": "file", "hive.metastore.catalog.dir": f"s3://{bucket}/metastore"}
        own["hive.collect-column-statistics-on-write"] = "false"  # statistics are off
        exact = {"hive.timestamp-precision": "MICROSECONDS"}
        _write(catalogs / "hive.properties", {**hive, **exact, "hive.metastore": "glue", **glue})
        _write(catalogs / "iceberg.properties", {**ICEBERG, "iceberg.catalog.type": "glue", **glue})
        _write(catalogs / "own.properties", {**hive, **own, **objects})

    def _object_settings(self) -> dict[str, str]:
        """How every catalog reaches the tables' files."""
        return {
            "fs.native-s3.enabled": "true",
            "s3.endpoint": self._objects.endpoint,
            "s3.region": self._objects.region,
            "s3.path-style-access": "true",
            "s3.aws-access-key": self._objects.access_key,
            "s3.aws-secret-key": self._objects.secret_key,
        }


def _write(path: Path, properties: dict[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
