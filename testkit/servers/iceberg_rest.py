"""A real REST catalog: the one that Iceberg's project tests its clients with, in a Jetty, over a catalog in SQLite."""

from __future__ import annotations

from pathlib import Path

from testkit.servers.cache import cached
from testkit.servers.java import find_java
from testkit.servers.listed_jars import fetch_listed
from testkit.servers.process import Server, ServerProcess, free_ports, http_answer, temporary_folder
from testkit.servers.s3 import HOST, S3Server

VERSION = "1.9.1"
HERE = Path(__file__).parent
JARS = HERE / "iceberg-rest-jars.txt"
SETTING = HERE / "iceberg-rest.xml"
START_TIMEOUT = 60.0


def iceberg_rest_jars() -> Path:
    """The folder with the server's jars (27 files, 88 MB).

    Raises:
        Unavailable: they can't be fetched, or are not the ones of the list.
    """
    return cached(f"iceberg-rest-{VERSION}", lambda folder: fetch_listed(JARS, folder))


class IcebergRestServer(Server):
    """A catalog that is empty at first.

    Args:
        objects: the S3 server with the tables' files; the catalog writes each table's metadata there.
    """

    def __init__(self, objects: S3Server) -> None:
        self._objects = objects
        self._port = 0

    def start(self) -> None:
        """See the base class."""
        java, jars = find_java(), iceberg_rest_jars()
        self._port = free_ports(1)[0]
        command = [
            *(str(java), "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
            *("-Duser.timezone=UTC", "-cp", str(jars / "*"), "org.eclipse.jetty.xml.XmlConfiguration"),
            *(f"host={HOST}", f"port={self._port}", f"endpoint={self._objects.endpoint}", str(SETTING)),
        ]
        environment = {"PATH": "/usr/bin:/bin", **self._objects.environment()}
        self._process = ServerProcess("iceberg-rest", command, folder=temporary_folder("rest"), env=environment)
        self._process.wait_until(lambda: http_answer(f"{self.uri}/v1/config") is not None, timeout=START_TIMEOUT)

    @property
    def uri(self) -> str:
        """The catalog's URL."""
        return f"http://{HOST}:{self._port}"
