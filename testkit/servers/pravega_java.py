"""The Java processes of a Pravega: its jars, from the Java package registry, and how each is started."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from testkit.servers.availability import Unavailable
from testkit.servers.cache import cached
from testkit.servers.java import LIGHT_JAVA, find_java
from testkit.servers.listed_jars import FETCH_TIMEOUT, check_listed, fetch_listed
from testkit.servers.process import ServerProcess, accepts, free_ports, run_tool

LISTED = "0.13.0"
VERSION = os.environ.get("STREAMVAULT_PRAVEGA", LISTED)
"""Pravega's version; another one, such as 0.11.0, needs Maven."""
HERE = Path(__file__).parent
POM = HERE / "pravega-pom.xml"
JARS = HERE / "pravega-jars.txt"
MIB = 1024 * 1024
START_TIMEOUT = 180.0
PORTS = 5
PORTS_TAKEN = "Address already in use"
LOGBACK = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level %logger{{20}} %msg%n%ex{{8}}</pattern></encoder>
  </appender>
{loggers}
  <root level="{level}"><appender-ref ref="OUT"/></root>
</configuration>
"""


def pravega_jars() -> Path:
    """The folder with the server's jars (188 files of 0.13.0, 82 MB).

    Raises:
        Unavailable: they can't be fetched, or are not the ones of the list.
    """
    return cached(f"pravega-{VERSION}", _fetch)


def _fetch(folder: Path) -> None:
    if VERSION == LISTED and not shutil.which("mvn"):
        fetch_listed(JARS, folder)
        return
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    with tempfile.TemporaryDirectory() as made:
        pom = Path(made) / "pom.xml"
        pom.write_text(POM.read_text().replace(LISTED, VERSION))
        command = ["mvn", "--batch-mode", "--quiet", f"--file={pom}", "dependency:copy-dependencies", *options]
        run_tool(command, timeout=FETCH_TIMEOUT)
    if VERSION == LISTED:
        check_listed(JARS, folder)


def java_process(
    name: str,
    main: str,
    folder: Path,
    options: Mapping[str, str],
    *,
    heap: str,
    cache_mib: int,
    quick: bool = True,
    more: Sequence[str] = (),
    log: tuple[str, str] = ("", "ERROR"),
) -> ServerProcess:
    """Start a Java program of Pravega; if that fails, its folder goes.

    Args:
        name: how messages call it.
        main: its class.
        folder: its folder.
        options: Java's properties.
        heap: the Java heap's limit.
        cache_mib: the cache, outside the heap, in MiB.
        quick: compile Java lightly, for a fast start.
        more: options of Java itself.
        log: elements of its log's setting, and the level of the others.
    """
    try:
        java, jars = find_java(), pravega_jars()
        (folder / "logback.xml").write_text(LOGBACK.format(loggers=log[0], level=log[1]))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    properties = {"logback.configurationFile": str(folder / "logback.xml"), "java.io.tmpdir": str(folder), **options}
    command = [
        str(java),
        *(LIGHT_JAVA.split() if quick else ()),
        *more,
        f"-Xmx{heap}",
        # the cache and the network buffers
        f"-XX:MaxDirectMemorySize={cache_mib + 512}m",
        "-XX:+ExitOnOutOfMemoryError",
        *(f"-D{key}={value}" for key, value in properties.items()),
        *("-cp", f"{jars}/*", main),
    ]
    return ServerProcess(name, command, folder=folder)


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """Write a file of Java's properties; its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def wait_for(server: ServerProcess, *ports: int) -> None:
    """Return once a server accepts connections to the ports."""
    for port in ports:
        server.wait_until(partial(accepts, port), timeout=START_TIMEOUT)


def start_on_free_ports(start: Callable[[list[int]], None]) -> None:
    """Start servers on five free ports; on others if somebody else takes one before Java has come so far.

    Raises:
        Unavailable: they can't be fetched or do not start.
    """
    for attempts_left in (2, 1, 0):
        try:
            return start(free_ports(PORTS))
        except Unavailable as error:
            if not attempts_left or PORTS_TAKEN not in str(error):
                raise
    raise AssertionError("unreachable")
