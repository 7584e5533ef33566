"""A real Pravega of three processes, whose segment store keeps its data over a crash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from testkit.servers.pravega import class_options
from testkit.servers.pravega_java import MIB, java_process, start_on_free_ports, wait_for, write_properties
from testkit.servers.process import ServerProcess, temporary_folder

HOST = "127.0.0.1"
LEDGERS = "/pravega/bookkeeper/ledgers"
CACHE_MIB = 128


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
        start_on_free_ports(self._start)

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

    def _start(self, ports: list[int]) -> None:
        try:
            self._start_all(ports)
        except BaseException:
            self.stop()
            raise

    def _start_all(self, ports: list[int]) -> None:
        self.controller_port, self.segment_store_port, rest_port, self._zookeeper_port, bookie_port = ports
        folder = temporary_folder("pravega-ledgers")
        self._ledgers = self._java(
            "pravega-ledgers",
            "io.pravega.segmentstore.storage.impl.bookkeeper.BookKeeperServiceRunner",
            folder,
            {
                "basePort": str(bookie_port),
                "bookieCount": "1",
                "zkPort": str(self._zookeeper_port),
                "zkLedgersPath": LEDGERS,
                "startZk": "true",
            },
        )
        wait_for(self._ledgers, bookie_port)
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
        wait_for(self._controller, self.controller_port)

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
        options = {"pravega.configurationFile": str(write_properties(folder / "pravega.properties", settings))}
        main = "io.pravega.segmentstore.server.host.ServiceStarter"
        server = self._java("pravega-segments", main, folder, options)
        wait_for(server, self.segment_store_port)
        return server

    def _java(self, name: str, main: str, folder: Path, options: Mapping[str, str]) -> ServerProcess:
        return java_process(name, main, folder, options, heap="768m", cache_mib=CACHE_MIB, more=class_options())
