"""A real Pravega of three processes, whose segment store keeps its data over a crash."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from tests.servers.availability import Unavailable
from tests.servers.java import find_java
from tests.servers.pravega_jars import pravega_jars
from tests.servers.process import ServerProcess, accepts, free_ports, temporary_folder

HOST = "127.0.0.1"
START_TIMEOUT = 120.0
PORTS_TAKEN = "Address already in use"
LEDGERS = "/pravega/bookkeeper/ledgers"
MIB = 1024 * 1024
CACHE_MIB = 128
LOGBACK = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{20} %msg%n%ex{8}</pattern></encoder>
  </appender>
  <root level="ERROR"><appender-ref ref="OUT"/></root>
</configuration>
"""


@dataclass
class PravegaCluster:
    """ZooKeeper with a bookie, a controller, and a segment store, all empty at the start. A context manager.

    The standalone server keeps its streams in memory. Here the segment store writes to a bookie and to a folder, and so
    can be killed and started again.

    Args:
        retention_minutes: how often the controller enforces retention policies.
        properties: further settings of the segment store; they win over those set here.
    """

    retention_minutes: int = 30
    properties: Mapping[str, str] = field(default_factory=dict)

    controller_port: int = field(init=False, default=0)
    segment_store_port: int = field(init=False, default=0)
    _zookeeper_port: int = field(init=False, default=0)
    _ledgers: ServerProcess | None = field(init=False, default=None)
    _controller: ServerProcess | None = field(init=False, default=None)
    _segment_store: ServerProcess | None = field(init=False, default=None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def uri(self) -> str:
        """The controller's URI."""
        return f"pravega://{HOST}:{self.controller_port}"

    def start(self) -> None:
        """Start the servers and return when they are ready.

        Raises:
            Unavailable: one of them can't be fetched or does not start.
        """
        for attempts_left in (2, 1, 0):
            try:
                self._start()
            except Unavailable as error:
                self.stop()
                if attempts_left and PORTS_TAKEN in str(error):
                    continue
                raise
            return

    def kill_segment_store(self) -> None:
        """End the segment store as a crash would. What it acknowledged is kept."""
        assert self._segment_store is not None
        self._segment_store.kill()

    def start_segment_store(self) -> None:
        """Start the segment store that was killed, and return when it accepts connections."""
        assert self._segment_store is not None
        assert self._ledgers is not None
        folder = self._segment_store.folder
        self._segment_store = self._run_segment_store(folder)

    def kill(self) -> None:
        """End all servers as a crash would, for good."""
        for server in (self._segment_store, self._controller, self._ledgers):
            if server is not None:
                server.kill()

    def stop(self) -> None:
        """End all servers at once and remove their files. Does nothing the second time."""
        for server in (self._segment_store, self._controller, self._ledgers):
            if server is not None:
                server.stop()
        self._segment_store = self._controller = self._ledgers = None

    def _start(self) -> None:
        ports = free_ports(5)
        self.controller_port, self.segment_store_port, rest_port, self._zookeeper_port, bookie_port = ports
        folder = temporary_folder("pravega-ledgers")
        self._ledgers = self._java(
            "pravega-ledgers",
            "io.pravega.segmentstore.storage.impl.bookkeeper.BookKeeperServiceRunner",
            folder,
            {
                "java.io.tmpdir": str(folder),
                "basePort": str(bookie_port),
                "bookieCount": "1",
                "zkPort": str(self._zookeeper_port),
                "zkLedgersPath": LEDGERS,
                "startZk": "true",
            },
        )
        self._wait(self._ledgers, bookie_port)
        self._controller = self._java(
            "pravega-controller",
            "io.pravega.controller.server.Main",
            temporary_folder("pravega-controller"),
            {
                "controller.zk.connect.uri": f"{HOST}:{self._zookeeper_port}",
                "controller.service.rpc.listener.port": str(self.controller_port),
                "controller.service.rpc.published.host.nameOrIp": HOST,
                "controller.service.rpc.published.port": str(self.controller_port),
                "controller.service.rest.listener.port": str(rest_port),
                "controller.retention.frequency.minutes": str(self.retention_minutes),
                "controller.security.auth.delegationToken.signingKey.basis": "secret",
            },
        )
        self._segment_store = self._run_segment_store(temporary_folder("pravega-segments"))
        self._wait(self._controller, self.controller_port)

    def _run_segment_store(self, folder: Path) -> ServerProcess:
        tier2 = folder / "tier2"
        tier2.mkdir(exist_ok=True)
        settings = {
            "pravegaservice.cluster.name": "pravega-cluster",
            "pravegaservice.container.count": "4",
            "pravegaservice.zk.connect.uri": f"{HOST}:{self._zookeeper_port}",
            "pravegaservice.service.listener.host.nameOrIp": HOST,
            "pravegaservice.service.listener.port": str(self.segment_store_port),
            "pravegaservice.service.published.host.nameOrIp": HOST,
            "pravegaservice.service.published.port": str(self.segment_store_port),
            "pravegaservice.rest.listener.enable": "false",
            "pravegaservice.admin.gateway.enable": "false",
            "pravegaservice.dataLog.impl.name": "BOOKKEEPER",
            "pravegaservice.storage.impl.name": "FILESYSTEM",
            "pravegaservice.cache.size.max": str(CACHE_MIB * MIB),
            "filesystem.root": str(tier2),
            "bookkeeper.zk.connect.uri": f"{HOST}:{self._zookeeper_port}",
            "bookkeeper.ledger.path": LEDGERS,
            "bookkeeper.ensemble.size": "1",
            "bookkeeper.write.quorum.size": "1",
            "bookkeeper.ack.quorum.size": "1",
            "autoScale.controller.connect.uri": f"tcp://{HOST}:{self.controller_port}",
            **self.properties,
        }
        (folder / "pravega.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        options = {"java.io.tmpdir": str(folder), "pravega.configurationFile": str(folder / "pravega.properties")}
        main = "io.pravega.segmentstore.server.host.ServiceStarter"
        server = self._java("pravega-segments", main, folder, options)
        self._wait(server, self.segment_store_port)
        return server

    def _java(self, name: str, main: str, folder: Path, options: Mapping[str, str]) -> ServerProcess:
        try:
            java, jars = find_java(), pravega_jars()
            (folder / "logback.xml").write_text(LOGBACK)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        properties = {"logback.configurationFile": str(folder / "logback.xml"), **options}
        command = [
            str(java),
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx768m",
            # the cache and the network buffers
            f"-XX:MaxDirectMemorySize={CACHE_MIB + 512}m",
            "-XX:+ExitOnOutOfMemoryError",
            *(f"-D{key}={value}" for key, value in properties.items()),
            *("-cp", f"{jars}/*", main),
        ]
        return ServerProcess(name, command, folder=folder)

    def _wait(self, server: ServerProcess, port: int) -> None:
        server.wait_until(partial(accepts, port), timeout=START_TIMEOUT)
