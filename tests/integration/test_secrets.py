"""Planted secrets: no command prints, logs or stores a credential, whether it succeeds or fails."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from streamvault.cli import main
from streamvault.common.errors import Problem
from streamvault.demo.tour import fill
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamName
from testkit.servers.s3 import S3Server

NAME = StreamName("shop", "orders")
PLANTED = {
    name: f"planted{uuid.uuid4().hex}"
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PRAVEGA_PASSWORD", "login")
}
LOGIN = f"somebody:{PLANTED['login']}"


@pytest.fixture
def root(moto_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {**moto_s3.environment(), **PLANTED}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PRAVEGA_USERNAME", "admin")
    before = logging.getLogger().handlers[:], logging.getLogger().level
    yield f"s3://{moto_s3.make_bucket(f'vault-{uuid.uuid4().hex[:10]}')}/backups"
    logging.getLogger().handlers[:], level = before
    logging.getLogger().setLevel(level)


class Shell:
    """Runs commands and keeps everything that they print, at every level."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.printed = ""
        self._turn = 0

    def run(self, *arguments: str, code: int = 0) -> None:
        self._turn += 1
        assert main([*arguments, "--log-level", "debug", *(["--json"] if self._turn % 2 else [])]) == code, arguments
        self.printed += "".join(self._capfd.readouterr())


def planted_in(text: str | bytes) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    return [name for name, value in PLANTED.items() if value.encode() in data]


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capfd)


def test_no_command_shows_or_stores_a_secret(root: str, shell: Shell, tmp_path: Path) -> None:
    streams = f"local://{tmp_path}/streams"
    with LocalStore(tmp_path / "streams") as store:
        fill(store, NAME, 60)
    source, archive, queue = f"{streams}/{NAME}", f"{root}/{NAME}", f"{streams}/ops/restores"
    inline = ("--master", "inline")
    shell.run("export", source, root, *inline)
    shell.run("rotate", source, root, "--keep", "5", "--queue", queue, *inline)
    shell.run(
        "handoff", archive, "--table", "lake.orders", "--catalog", f"sql:sqlite:///{tmp_path}/catalog.db", *inline
    )
    glue = ("--table", "lake.others", "--format", "parquet", "--catalog", "glue")
    for command in (
        ("handoff", archive, *glue, *inline),
        ("ls", root),
        ("show", archive),
        ("timeline", archive),
        ("doctor", source, root, "--time-limit", "60s"),
        ("status", root, "--metrics", str(tmp_path / "status.prom")),
        ("hold", archive, "audit"),
        ("check", archive, "--read-data", *inline),
        ("cat", archive),
        ("compact", archive, *inline),
        ("convert", archive, f"{root}-2", "--layout", "chunks", *inline),
    ):
        shell.run(*command)
    assert main(["release", archive, "audit", "--log-level", "debug"]) == 0
    shell.run("import", archive, f"{streams}/shop/dry", "--dry-run", *inline)
    shell.run("request-restore", archive, f"{streams}/shop/restored", "--queue", queue)
    shell.run("request-restore", f"{root}/no/archive", f"{streams}/shop/other", "--queue", queue)
    shell.run("queue", "show", queue)
    assert main(["work", queue, "--once", "--log-level", "debug", *inline]) == 5
    shell.run("queue", "show", queue)
    assert "1 failed" in shell.printed

    assert planted_in(shell.printed) == []
    objects = boto3.resource("s3").Bucket(root.removeprefix("s3://").partition("/")[0]).objects.all()
    stored = {each.key: each.get()["Body"].read() for each in objects}
    assert any(key.endswith(".metadata.json") for key in stored), "the catalog's own files, too"
    stored |= {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {key: planted_in(key) + planted_in(data) for key, data in stored.items() if planted_in(data)} == {}


def test_no_error_shows_a_secret(root: str, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, queue = f"local://{tmp_path}/streams/shop/orders", f"local://{tmp_path}/streams/ops/q"
    bucket = root.removeprefix("s3://")
    for code, *arguments in (
        (2, "ls", f"s3://{LOGIN}@{bucket}"),
        (2, "ls", f"s3://{LOGIN}/{bucket}"),
        (2, "ls", f"https://{LOGIN}@host/{bucket}"),
        (2, "show", f"s3://{LOGIN}@{bucket}/shop/orders"),
        (2, "export", f"pravega://{LOGIN}@127.0.0.1:9090/shop/orders", root),
        (2, "export", f"pravega+tls://{LOGIN}@127.0.0.1/shop/orders", root),
        (2, "export", f"pravega://{LOGIN}@/shop", root),
        (2, "export", f"http://{LOGIN}@127.0.0.1:9090/shop/orders", root),
        (2, "import", f"s3://{LOGIN}@{bucket}/shop/orders", stream),
        (2, "import", f"{root}/shop/orders", f"pravega://{LOGIN}@127.0.0.1:9090/shop/orders"),
        (2, "rotate", f"pravega://{LOGIN}@127.0.0.1:9090/shop", root),
        (2, "rotate", f"pravega://{LOGIN}@127.0.0.1:9090/shop/orders", root, "--queue", f"pravega://{LOGIN}@h:1/a/q"),
        (2, "request-restore", f"s3://{LOGIN}@{bucket}/shop/orders", stream, "--queue", queue),
        (2, "request-restore", f"{root}/shop/orders", f"pravega://{LOGIN}@h:1/a/b", "--queue", queue),
        (2, "request-restore", f"{root}/shop/orders", stream, "--queue", f"pravega://{LOGIN}@h:1/a/q"),
        (2, "work", f"pravega://{LOGIN}@h:1/a/q", "--once"),
        (2, "queue", "show", f"pravega://{LOGIN}@h:1/a/q"),
        (2, "handoff", f"pravega://{LOGIN}@h:1/a/b", "--root", root),
        (2, "get", f"s3://{LOGIN}@{bucket}/shop/orders", "shop/orders/0.#epoch.0:0-8"),
    ):
        shell.run(*arguments, code=code)
    with LocalStore(tmp_path / "streams") as store:
        fill(store, NAME, 20)
    assert main(["export", stream, root, "--master", "inline"]) == 0
    for catalog in (f"rest:http://{LOGIN}@127.0.0.1:1", f"sql:sqlite://{LOGIN}@/x", f"sql:nonsense://{LOGIN}@host/db"):
        shell.run("handoff", f"{root}/shop/orders", "--catalog", catalog, "--master", "inline", code=1)
    monkeypatch.setattr("streamvault.objectstore.uri.RETRY_SECONDS", 0.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{LOGIN}@127.0.0.1:1")
    monkeypatch.setenv("HTTPS_PROXY", f"http://{LOGIN}@127.0.0.1:1")
    shell.run("show", f"{root}-elsewhere/shop/orders", code=1)
    assert planted_in(shell.printed) == []
    assert "127.0.0.1:1" in shell.printed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pravega://u:p@h:1/a/b", "pravega://…@h:1/a/b"),
        ("in 'sql:postgresql+psycopg://u:p%40@h/db'", "in 'sql:postgresql+psycopg://…@h/db'"),
        ("rest:https://t0ken@h and http://a:b@c", "rest:https://…@h and http://…@c"),
        ("s3://bucket/a@b/c", "s3://bucket/a@b/c"),
        ("file:///home/a@b", "file:///home/a@b"),
    ],
)
def test_problem_shows_no_login(text: str, shown: str) -> None:
    problem = Problem(text, where=text, todo=text)
    assert (problem.what, problem.where, problem.todo) == (shown, shown, shown)
    assert json.loads(json.dumps(str(problem))).count(shown) == 3
