"""Pravega's own Java client, by the programs of ``testkit/java``: a reader and writer with none of our code."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from streamvault.streamstore.model import StreamName
from testkit.servers.availability import Unavailable
from testkit.servers.certificates import STORE_PASSWORD
from testkit.servers.java import LIGHT_JAVA, find_java
from testkit.servers.pravega import PravegaServer, class_options
from testkit.servers.pravega_java import pravega_jars
from testkit.servers.process import run_tool

PROGRAMS = Path(__file__).parent.parent / "java"


@dataclass(frozen=True)
class JavaClient:
    """The compiled programs.

    Attributes:
        classes: the folder with their classes and the settings of their log.
    """

    classes: Path

    @classmethod
    def compile(cls, classes: Path) -> Self:
        """Compile the programs into an empty folder.

        Raises:
            Unavailable: the Java here has no compiler, or the client can't be fetched.
        """
        if "jdk.compiler" not in run_tool([str(find_java()), "--list-modules"], timeout=60):
            raise Unavailable("the Java here has no compiler, which the Java client's programs need")
        (classes / "logback.xml").write_text("<configuration/>")
        compiler = [str(find_java()), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        jars = ":".join(map(str, pravega_jars().glob("*.jar")))  # the compiler expands no wildcards
        command = [*compiler, "-cp", jars, "-d", str(classes), *map(str, PROGRAMS.glob("*.java"))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return cls(classes)

    def run(
        self, program: str, server: PravegaServer, stream: StreamName, *arguments: object, timeout: float = 300
    ) -> list[str]:
        """Run a program on a stream, as the server's first user; the lines it printed.

        Args:
            program: its class.
            server: the server.
            stream: the stream.
            arguments: what it takes after them.
            timeout: seconds.

        Raises:
            TimeoutExpired: it takes longer.
        """
        command = [str(find_java()), *LIGHT_JAVA.split(), *class_options(), *_login(server)]
        command += [f"-Dlogback.configurationFile={self.classes / 'logback.xml'}"]
        # the archive of classes is of what begins with the server's class path
        command += ["-cp", f"{server.classpath}:{self.classes}", program]
        where = [
            server.uri.replace("pravega+tls://", "tls://").replace("pravega://", "tcp://"),
            *str(stream).split("/"),
        ]
        run = subprocess.run(
            [*command, *where, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False
        )
        assert run.returncode == 0, run.stderr[-2000:]
        return run.stdout.strip().splitlines()

    def digest(self, server: PravegaServer, stream: StreamName, count: int) -> str:
        """Read a stream of ``count`` events; what ``StreamDigest`` prints of them."""
        line = self.run("StreamDigest", server, stream, count)[-1]
        assert line.startswith(f"{count} "), f"{line}, not {count} events, at {server.uri}"
        return line

    def byte_stream(self, server: PravegaServer, stream: StreamName, *, append: int = 0) -> list[str]:
        """Append so many bytes to a byte stream; its head, tail and digest."""
        return self.run("ByteStream", server, stream, append)[-1].split()


def server_at(uri: str, classpath: str) -> Any:
    """What `JavaClient` is told of a server without TLS and logins, such as one of an archive."""
    return SimpleNamespace(uri=uri, certificates=None, accounts=(), classpath=classpath)


def _login(server: PravegaServer) -> list[str]:
    """Java's options for the server's certificate and its first user."""
    options = []
    if server.certificates is not None:
        options.append(f"-Djavax.net.ssl.trustStore={server.certificates.trust_store}")
        options.append(f"-Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}")
    if server.accounts:
        user = server.accounts[0]
        token = base64.b64encode(f"{user.user}:{user.password}".encode()).decode()
        options += ["-Dpravega.client.auth.method=Basic", f"-Dpravega.client.auth.token={token}"]
    return options
