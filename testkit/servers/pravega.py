"""A real Pravega: its standalone server, which runs controller, segment store and ZooKeeper in one Java process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from streamvault.streamstore.model import StreamName
from streamvault.streamstore.pravega import PravegaSettings, PravegaStore
from testkit.servers.cache import cached
from testkit.servers.certificates import Certificates, make_certificates
from testkit.servers.java import java_home
from testkit.servers.pravega_java import (
    MIB,
    START_TIMEOUT,
    VERSION,
    java_process,
    pravega_jars,
    start_on_free_ports,
    wait_for,
    write_properties,
)
from testkit.servers.pravega_security import ADMIN, Account, auth_settings, tls_settings
from testkit.servers.process import Server, temporary_folder
from testkit.servers.proxy import FaultProxy
from testkit.streams import make_stream

HOST = "127.0.0.1"
READY = "Sandbox is running"
FEWER_WAKEUPS = {
    f"controller.{job}.{part}.count": "1" for job in ("retention", "watermarking") for part in ("bucket", "thread")
}
"""By default, an idle server takes 7 % of a core for its timers; with these and smaller pools, half of it."""
SMALL_POOLS = {f"pravegaservice.threadPool.{pool}.size": "8" for pool in ("core", "storage")}
QUIET = ("-Xlog:disable",)
"""Where an archive of classes does not fit, Java does without it, and says nothing."""
LOGGERS = '  <logger name="io.pravega.local.LocalPravegaEmulator" level="INFO"/>'


@dataclass
class PravegaServer(Server):
    """One standalone Pravega, empty at every start.

    Args:
        heap: the Java heap's limit, as Java writes it; benchmarks want ``4g``.
        cache_mib: the segment store's cache, outside the heap, in MiB.
        properties: further settings, e.g. ``{"autoScale.cooldown.time.seconds": "0"}``; they win over those set here.
        quick: compile Java lightly and have few threads, for a fast start and little idle work; benchmarks want it off.
        tier2: the folder for the stored chunks, kept when the server stops; by default one that goes with it.
        tls: serve TLS only; `certificates` says what to trust.
        accounts: who may use it, e.g. ``(ADMIN,)``; the first one needs every right. None: nobody is asked.
        proxy: what the controller sends clients to instead of the segment store itself; it is pointed there. The
            controller's own connections go through it too.
        java: options of Java itself; by default, those by which it starts with a third of the processor time.
    """

    heap: str = "1g"
    cache_mib: int = 128
    properties: dict[str, str] = field(default_factory=dict)
    quick: bool = True
    tier2: Path | None = None
    tls: bool = False
    accounts: tuple[Account, ...] = ()
    proxy: FaultProxy | None = None
    java: tuple[str, ...] | None = None

    certificates: Certificates | None = field(init=False, default=None)
    controller_port: int = field(init=False, default=0)
    segment_store_port: int = field(init=False, default=0)
    rest_port: int = field(init=False, default=0)
    admin_port: int = field(init=False, default=0)
    _zookeeper_port: int = field(init=False, default=0)

    @property
    def uri(self) -> str:
        """The controller's URI."""
        return f"pravega{'+tls' if self.tls else ''}://{HOST}:{self.controller_port}"

    @property
    def rest_uri(self) -> str:
        """The controller's REST interface."""
        return f"http{'s' if self.tls else ''}://{HOST}:{self.rest_port}"

    @property
    def classpath(self) -> str:
        """The Java class path of the server, which holds the Java client too."""
        return f"{pravega_jars()}/*"

    def start(self) -> None:
        """See the base class."""
        start_on_free_ports(self._start)

    def kill(self) -> None:
        """End the server as a crash would. Its streams are gone: the standalone server keeps them in memory."""
        super().kill()

    def restart(self) -> None:
        """Kill the server and start an empty one on the same ports."""
        ports = [self.controller_port, self.segment_store_port, self.rest_port, self.admin_port, self._zookeeper_port]
        self.stop()
        self._start(ports)

    def summary(self) -> dict[str, object]:
        """What somebody needs to use the server, as JSON values."""
        return {
            "server": "pravega",
            "uri": self.uri,
            "controller_port": self.controller_port,
            "segment_store_port": self.segment_store_port,
            "rest_uri": self.rest_uri,
            "pid": self.process.pid,
            "log": str(self.process.log),
            "classpath": self.classpath,
            **({"authority": str(self.certificates.authority)} if self.certificates else {}),
            **({"user": self.accounts[0].user, "password": self.accounts[0].password} if self.accounts else {}),
        }

    def _start(self, ports: list[int]) -> None:
        folder = temporary_folder("pravega")
        try:
            settings = write_properties(folder / "pravega.properties", self._settings(folder, ports))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        process = java_process(
            *("pravega", "io.pravega.local.LocalPravegaEmulator", folder),
            {"singlenode.configurationFile": str(settings), **(FEWER_WAKEUPS if self.quick else {})},
            heap=self.heap,
            cache_mib=self.cache_mib,
            quick=self.quick,
            more=self.java if self.java is not None else class_options() if self.quick else (),
            log=(LOGGERS, "WARN"),
        )
        process.wait_until(lambda: process.has_logged(READY), timeout=START_TIMEOUT)
        # it says so a little before the controller listens
        wait_for(process, self.segment_store_port, self.controller_port, self.rest_port)
        self._process = process

    def _settings(self, folder: Path, ports: list[int]) -> dict[str, str]:
        self.controller_port, self.segment_store_port, self.rest_port, self.admin_port, self._zookeeper_port = ports
        published_port = self.segment_store_port
        if self.proxy is not None:
            self.proxy.target_port = self.segment_store_port
            published_port = self.proxy.port
        tier2 = self.tier2 or folder / "tier2"
        tier2.mkdir(exist_ok=True)
        return {
            "singlenode.zk.port": str(self._zookeeper_port),
            "singlenode.segmentStore.port": str(self.segment_store_port),
            "singlenode.controller.rpc.port": str(self.controller_port),
            "singlenode.controller.rest.enable": "true",
            "singlenode.controller.rest.port": str(self.rest_port),
            "singlenode.admin.gateway.enable": "true",
            "singlenode.admin.gateway.port": str(self.admin_port),
            "pravegaservice.service.listener.host.nameOrIp": HOST,
            "pravegaservice.service.published.host.nameOrIp": HOST,
            "pravegaservice.service.published.port": str(published_port),
            "pravegaservice.rest.listener.enable": "false",
            "pravegaservice.cache.size.max": str(self.cache_mib * MIB),
            "pravegaservice.storage.impl.name": "FILESYSTEM",
            "filesystem.root": str(tier2),
            **(SMALL_POOLS if self.quick else {}),
            **self._security(folder),
            **self.properties,
        }

    def _security(self, folder: Path) -> dict[str, str]:
        settings: dict[str, str] = {}
        if self.tls:
            self.certificates = make_certificates(folder)
            settings |= tls_settings(self.certificates)
        if self.accounts:
            settings |= auth_settings(self.accounts, folder)
        return settings


def class_options() -> tuple[str, ...]:
    """Java's options by which a server or a client loads its classes from an archive of them, see `java.spark_options`.

    Raises:
        Unavailable: as `PravegaServer.start`.
    """
    folder = cached(f"pravega-{VERSION}-classes-{java_home().name}", _archive)
    return (f"-XX:SharedArchiveFile={folder / 'classes'}", *QUIET)


def _archive(folder: Path) -> None:
    java = (f"-XX:ArchiveClassesAtExit={folder / 'classes'}", *QUIET)
    with PravegaServer(tls=True, accounts=(ADMIN,), java=java) as server:
        assert server.certificates is not None
        login = {"PRAVEGA_USERNAME": ADMIN.user, "PRAVEGA_PASSWORD": ADMIN.password}
        login["PRAVEGA_CA_FILE"] = str(server.certificates.authority)
        name = StreamName("classes", "used")
        with PravegaStore(PravegaSettings.from_environment(server.uri, login)) as store:
            store.create_scope(name.scope)
            make_stream(store, name, events=300)
        server.process.terminate(timeout=START_TIMEOUT)
