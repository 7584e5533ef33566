"""A real Schema Registry of Pravega, and its Java serializers, which write records into streams of a real Pravega."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamvault.streamstore.model import StreamName
from testkit.servers.availability import Unavailable
from testkit.servers.cache import cached
from testkit.servers.java import find_java
from testkit.servers.listed_jars import fetch_listed
from testkit.servers.pravega import HOST, PravegaServer
from testkit.servers.process import Server, ServerProcess, free_ports, http_answer, run_tool, temporary_folder

VERSION = "0.6.0"
JARS = Path(__file__).parent / "schema-registry-jars.txt"
PROGRAMS = Path(__file__).parent.parent / "java" / "registry"
START_TIMEOUT = 60.0
QUIET = '<configuration><root level="OFF"/></configuration>'


def schema_registry_jars() -> Path:
    """The folder with the jars of the server and the serializers (121 files, 48 MB).

    Raises:
        Unavailable: they can't be fetched, or are not the ones of the list.
    """
    return cached(f"schema-registry-{VERSION}", lambda folder: fetch_listed(JARS, folder))


class SchemaRegistryServer(Server):
    """A registry that keeps its groups in memory."""

    def __init__(self) -> None:
        self._port = 0

    def start(self) -> None:
        """See the base class."""
        java, jars = find_java(), schema_registry_jars()
        self._port = free_ports(1)[0]
        folder = temporary_folder("schema-registry")
        (folder / "logback.xml").write_text(QUIET)
        (folder / "schema-registry.config.properties").write_text(
            "schemaRegistry.store.type.name=InMemory\n"
            f"schemaRegistry.service.rest.published.host.nameOrIp={HOST}\n"
            f"schemaRegistry.service.rest.listener.port={self._port}\n"
        )
        command = [
            *(str(java), "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
            *("-cp", f"{folder}:{jars}/*", "io.pravega.schemaregistry.service.Main"),
        ]
        self._process = ServerProcess("schema-registry", command, folder=folder)
        self._process.wait_until(lambda: http_answer(f"{self.uri}/v1/groups") is not None, timeout=START_TIMEOUT)

    @property
    def uri(self) -> str:
        """The registry's URL."""
        return f"http://{HOST}:{self._port}"


class JavaSerializers:
    """The compiled programs.

    Args:
        folder: an empty folder for their classes and inputs.

    Raises:
        Unavailable: the Java here has no compiler, or the serializers can't be fetched.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if "jdk.compiler" not in run_tool([str(find_java()), "--list-modules"], timeout=60):
            raise Unavailable("the Java here has no compiler, which the serializers' program needs")
        (folder / "logback.xml").write_text(QUIET)
        jars = ":".join(map(str, schema_registry_jars().glob("*.jar")))
        compiler = [str(find_java()), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn"]
        run_tool([*compiler, "-cp", jars, "-d", str(folder), *map(str, PROGRAMS.glob("*.java"))], timeout=120)

    def write(
        self,
        server: PravegaServer,
        registry: SchemaRegistryServer,
        stream: StreamName,
        schema: bytes,
        records: Iterable[object],
        *,
        kind: str = "Avro",
        codec: str = "None",
        message: str = "shop.Order",
        group: str = "",
    ) -> None:
        """Write records, as the serializers of the registry do.

        Args:
            server: the cluster.
            registry: where they register schema and codec.
            stream: the stream.
            schema: the schema; of Protobuf, a file descriptor set.
            records: the records, as the format's own JSON has them.
            kind: Avro, Protobuf or Json.
            codec: None, GzipCompressor or SnappyCompressor.
            message: the type's name.
            group: the group; the stream's name by default.
        """
        inputs = self._folder / "schema", self._folder / "records"
        inputs[0].write_bytes(schema)
        inputs[1].write_text("".join(json.dumps(record) + "\n" for record in records))
        arguments = [group or stream.stream, kind, codec, message, *map(str, inputs)]
        self._run("WriteRecords", server, stream, registry, *arguments)

    def read(
        self, server: PravegaServer, registry: SchemaRegistryServer, stream: StreamName, group: str
    ) -> list[dict[str, Any]]:
        """Read the Avro records of a sealed stream, as the deserializers of the registry do."""
        lines = self._run("ReadRecords", server, stream, registry, group).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def _run(
        self, program: str, server: PravegaServer, stream: StreamName, registry: SchemaRegistryServer, *arguments: str
    ) -> str:
        command = [str(find_java()), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-cp", f"{self._folder}:{schema_registry_jars()}/*", program]
        command += [server.uri.replace("pravega://", "tcp://"), stream.scope, stream.stream, registry.uri, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout
