"""A bucket that does not exist is no empty one: each command says so, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamvault.cli import main
from streamvault.manifests.archive import Archive
from streamvault.streamstore.uri import parse_stream
from testkit.servers.s3 import S3Server

ROOT = "s3://bucket-of-nobody/vault"
ARCHIVE = f"{ROOT}/scope/stream"
MASTER = ("--master", "inline")

COMMANDS = [
    ("ls", ROOT),
    ("ls", "s3://bucket-of-nobody"),
    ("show", ARCHIVE),
    ("timeline", ARCHIVE),
    ("status", ROOT),
    ("status", "SCOPE/", "--root", ROOT),
    ("status", "STREAM", "--root", ROOT),
    ("report", ARCHIVE, "-o", "FILE"),
    ("report", ROOT, "-o", "FILE"),
    ("check", ARCHIVE, *MASTER),
    ("check", ARCHIVE, "--stored-checksums", *MASTER),
    ("get", ARCHIVE, "scope/stream/0.#epoch.0:0-10"),
    ("cat", ARCHIVE),
    ("import", ARCHIVE, "STREAM-2", *MASTER),
    ("import", ARCHIVE, "STREAM-2", "--dry-run"),
    ("append", ARCHIVE, "--into", "STREAM", *MASTER),
    ("join", ARCHIVE, "STREAM", "--into", "STREAM-2", *MASTER),
    ("replicate", ARCHIVE, "STREAM-2", *MASTER),
    ("convert", ARCHIVE, "file://FOLDER/other", "--layout", "chunks", *MASTER),
    ("handoff", ARCHIVE, *MASTER),
    ("handoff", "STREAM", "--root", ROOT, *MASTER),
    ("ddl", ARCHIVE, "athena"),
    ("compact", ARCHIVE, *MASTER),
    ("export", "STREAM", ROOT, *MASTER),
    ("export", "STREAM", ROOT, "--dry-run"),
    ("export", "STREAM", ROOT, "--restart", *MASTER),
    ("rotate", "STREAM", ROOT, "--keep", "1", "--truncate-source", *MASTER),
    ("rotate", "SCOPE/", ROOT, "--keep", "1", *MASTER),
    ("follow", "STREAM", ROOT, *MASTER),
    ("hold", ARCHIVE, "a-hold"),
    ("release", ARCHIVE, "a-hold"),
    ("delete", ARCHIVE),
    ("delete", ARCHIVE, "--yes", "--unfinished"),
    ("warm", ARCHIVE),
]


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("minio", "versitygw")])
def server(request: pytest.FixtureRequest, use_s3: Callable[[S3Server], None]) -> S3Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, S3Server)
    use_s3(found)
    return found


def test_each_command_says_so(server: S3Server, stream: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scope, _, name = stream.rpartition("/")
    words = {"STREAM-2": f"{scope}/{name}-2", "STREAM": stream, "SCOPE/": f"{scope}/", "FILE": f"{tmp_path}/page.html"}
    line = (
        f"no such bucket: s3://bucket-of-nobody at {server.endpoint}. "
        "Check its name and the endpoint; a new one must be created first."
    )
    with parse_stream(stream)[0].open() as store:
        before = store.describe(parse_stream(stream)[1])
        for command in COMMANDS:
            given = [words.get(each, each).replace("FOLDER", str(tmp_path)) for each in command]
            assert main(given) == 5, command
            told = capfd.readouterr()
            assert line in told.err + told.out, command
            assert len(told.err.splitlines()) == 1 or given[1].endswith("/"), command
        assert store.describe(before.name) == before
        assert [str(each) for each in store.list_streams("scope")] == ["scope/stream"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["streams"]


def test_a_bucket_that_is_gone_was_no_deleted_archive(
    server: S3Server, stream: str, bucket_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor does the next rotation begin a new archive, or say that there is nothing to do."""
    server.make_bucket(bucket_name)
    root = f"s3://{bucket_name}/vault"
    assert main(["export", stream, root, *MASTER]) == 0
    objects = [each.key for each in Archive.open(f"{root}/scope/stream").store.list("")]
    client = server.client()
    for key in objects:
        client.delete_object(Bucket=bucket_name, Key=f"vault/{key}")
    client.delete_bucket(Bucket=bucket_name)
    capfd.readouterr()
    for command in (["delete", f"{root}/scope/stream", "--yes"], ["rotate", stream, root, "--keep", "1", *MASTER]):
        assert main(command) == 5
        assert capfd.readouterr().err.startswith(f"streamvault: no such bucket: s3://{bucket_name} at ")
