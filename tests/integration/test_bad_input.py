"""Servers that refuse a login or a write: one line that says what, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamvault import export_stream
from streamvault.cli import main
from streamvault.streamstore.model import StreamName
from testkit.servers.minio import limited, read_only
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_security import ADMIN
from testkit.servers.s3 import S3Server
from tests.integration.conftest import Site
from tests.told import assert_ends

NAME = StreamName("scope", "stream")
INLINE = ("--master", "inline")


@pytest.mark.minio
@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("AWS_ACCESS_KEY_ID", "nobody", r"unknown access key .*Check AWS_ACCESS_KEY_ID.*"),
        ("AWS_SECRET_ACCESS_KEY", "wrong-secret", r"the secret access key is wrong .*Check AWS_ACCESS_KEY_ID.*"),
        ("AWS_SESSION_TOKEN", "made-up", r".*(token|credential).*"),
    ],
)
def test_wrong_s3_credentials_are_one_line(
    stream: str,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *,
    variable: str,
    value: str,
    line: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert_ends(("export", stream, f"s3://{bucket}/vault", *INLINE), 1, line, capfd)


@pytest.mark.minio
def test_read_only_bucket_refuses_writes(
    stream: str,
    minio: S3Server,
    bucket: str,
    use_s3: Callable[[S3Server], None],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    export_stream(stream, f"s3://{bucket}/vault", master="inline")
    use_s3(read_only(minio, bucket))
    line = rf"no permission to write .*s3://{bucket}/other/.*Allow s3:PutObject.*"
    assert_ends(("export", stream, f"s3://{bucket}/other", *INLINE), 1, line, capfd)
    # commands that only read still work
    assert main(["export", stream, f"s3://{bucket}/vault", *INLINE]) == 0
    assert main(["check", f"s3://{bucket}/vault/{NAME}", "--read-data", *INLINE]) == 0
    assert main(["import", f"s3://{bucket}/vault/{NAME}", f"local://{tmp_path}/streams/a/b", *INLINE]) == 0


@pytest.mark.minio
def test_bucket_without_delete_permission_can_be_exported_to(
    stream: str,
    minio: S3Server,
    bucket: str,
    use_s3: Callable[[S3Server], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """An archive is only ever added to, so no permission to delete is needed."""
    allowed = {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject", "s3:PutObject"]}
    places = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    policy = {"Version": "2012-10-17", "Statement": [{**allowed, "Resource": places}]}
    use_s3(limited(minio, policy))
    for _ in range(2):
        assert main(["export", stream, f"s3://{bucket}/vault", *INLINE]) == 0
        err = capfd.readouterr().err
        assert err == "warning: deletion is not allowed; the work files of generation 1 remain under _work/\n"
    assert main(["check", f"s3://{bucket}/vault/{NAME}", "--read-data", *INLINE]) == 0


@pytest.mark.pravega
def test_missing_scope_or_stream_on_pravega_is_named(
    here: Site, scope_name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root, scope = f"file://{tmp_path}/vault", f"{here.server.uri}/{scope_name}"
    assert_ends(("export", f"{scope}/orders", root, *INLINE), 5, rf"no such scope.*{scope_name}.*", capfd)
    here.store.create_scope(scope_name)
    assert_ends(("export", f"{scope}/orders", root, *INLINE), 5, r"no such stream.*orders.*", capfd)


@pytest.mark.pravega
def test_wrong_pravega_login_is_one_line(
    pravega_secure: PravegaServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert pravega_secure.certificates is not None
    monkeypatch.setenv("PRAVEGA_CA_FILE", str(pravega_secure.certificates.authority))
    monkeypatch.setenv("PRAVEGA_USERNAME", ADMIN.user)
    monkeypatch.setenv("PRAVEGA_PASSWORD", "wrong")
    arguments = ("export", f"{pravega_secure.uri}/shop/orders", f"file://{tmp_path}/vault", *INLINE)
    assert_ends(arguments, 1, r".*PRAVEGA_USERNAME.*", capfd)
