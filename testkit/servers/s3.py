"""What every S3 server for the tests has in common: the values a client needs, and how a program of Go is run."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import boto3
import botocore.config
import botocore.exceptions

from testkit.servers.process import ServerProcess, free_ports, http_answer, temporary_folder

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

HOST = "127.0.0.1"
REGION = "us-east-1"
START_TIMEOUT = 60.0


@dataclasses.dataclass(frozen=True)
class S3Server:
    """Where an S3 server is and how to be let in.

    Attributes:
        name: ``minio``, ``versitygw`` or ``moto``.
        endpoint: its URL.
        access_key: the access key's id.
        secret_key: the access key's secret.
        region: the region it says it is in.
        session_token: goes with temporary credentials.
        data: the folder with its data, if it has one.
    """

    name: str
    endpoint: str
    access_key: str
    secret_key: str
    region: str = REGION
    session_token: str | None = None
    data: Path | None = None

    def environment(self) -> dict[str, str]:
        """The standard AWS variables for a client of this server."""
        variables = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            # the Rust client refuses plain HTTP without it
            "AWS_ALLOW_HTTP": "true",
        }
        if self.session_token is not None:
            variables["AWS_SESSION_TOKEN"] = self.session_token
        return variables

    def client(self) -> S3Client:
        """A boto3 client, the same each time, for preparing and looking; the product under test has its own."""
        return _client(self)

    def own_client(self) -> S3Client:
        """Another one, to be changed. It takes 0.2 s of the processor, which `client` spares tests that look often."""
        config = botocore.config.Config(s3={"addressing_style": "path"}, max_pool_connections=32)
        return self.session().client("s3", endpoint_url=self.endpoint, config=config)

    def session(self) -> boto3.Session:
        """A boto3 session with this server's credentials."""
        return boto3.Session(
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            aws_session_token=self.session_token,
            region_name=self.region,
        )

    def make_bucket(self, name: str) -> str:
        """Make a bucket; its name."""
        self.client().create_bucket(Bucket=name)
        return name

    def summary(self) -> dict[str, object]:
        """What somebody needs to use the server, as JSON values."""
        return {"server": self.name, "endpoint": self.endpoint, "environment": self.environment()}


@functools.lru_cache(maxsize=8)
def _client(server: S3Server) -> S3Client:
    return server.own_client()


class S3Program(ABC):
    """An S3 server that is a program of its own, with one folder of data. A context manager that gives the `S3Server`.

    `kill` and `restart` are for tests of faults: they keep the port and the data.
    """

    name: ClassVar[str]
    ready_path: ClassVar[str]
    access_key: ClassVar[str] = "test-access"
    secret_key: ClassVar[str] = "test-secret-key"

    def __init__(self) -> None:
        self._port = 0
        self._folder: Path | None = None
        self._process: ServerProcess | None = None

    @abstractmethod
    def program(self) -> Path:
        """The program, fetched if need be.

        Raises:
            Unavailable: it can't be had.
        """

    @abstractmethod
    def arguments(self, address: str, folder: Path) -> list[str]:
        """What the program is called with to serve ``folder / "data"`` at `address` (``HOST:PORT``)."""

    def environment(self) -> Mapping[str, str]:
        """The program's environment; one of its own, so that this machine's settings don't reach it."""
        return {"PATH": "/usr/bin:/bin"}

    def __enter__(self) -> S3Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def server(self) -> S3Server:
        """Where it is, once it is started."""
        return S3Server(
            name=self.name,
            endpoint=f"http://{HOST}:{self._port}",
            access_key=self.access_key,
            secret_key=self.secret_key,
            data=None if self._folder is None else self._folder / "data",
        )

    @property
    def process(self) -> ServerProcess:
        """The running process (its pid, its log)."""
        if self._process is None:
            raise RuntimeError("the server is not started")
        return self._process

    def start(self) -> S3Server:
        """Start the server on an empty folder and return when it answers.

        Raises:
            Unavailable: it can't be fetched or does not start.
        """
        self._port = free_ports(1)[0]
        self._folder = temporary_folder(self.name)
        (self._folder / "data").mkdir()
        try:
            self._run(self._folder)
        except BaseException:
            self.stop()
            raise
        return self.server

    def kill(self) -> None:
        """End the server as a crash would; its data stays."""
        self.process.kill()

    def restart(self) -> Self:
        """Kill the server if it runs and start it again on the same port with the same data."""
        self.process.kill()
        if self._folder is None:
            raise RuntimeError("the server is not started")
        self._run(self._folder)
        return self

    def stop(self) -> None:
        """End the server at once and remove its data. Does nothing the second time."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def summary(self) -> dict[str, object]:
        """What somebody needs to use the server, as JSON values."""
        return {**self.server.summary(), "pid": self.process.pid, "log": str(self.process.log)}

    def _run(self, folder: Path) -> None:
        command = [str(self.program()), *self.arguments(f"{HOST}:{self._port}", folder)]
        self._process = ServerProcess(self.name, command, folder=folder, env=self.environment())
        self._process.wait_until(self._answers, timeout=START_TIMEOUT)

    def _answers(self) -> bool:
        if http_answer(self.server.endpoint + self.ready_path) is None:
            return False
        try:
            # MinIO says that it is ready a moment before it serves buckets
            self.server.client().list_buckets()
        except (OSError, botocore.exceptions.ClientError):
            return False
        return True
