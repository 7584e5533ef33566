from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import boto3
import pytest

from streamvault.cli import main
from streamvault.common.processes import environment
from streamvault.demo.tour import s3_server, s3_settings


def test_environment_leads_to_the_demo_and_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.delenv("AWS_REGION", raising=False)
    before = dict(os.environ)
    with s3_server() as endpoint:
        assert endpoint.startswith("http://127.0.0.1:")
        with suppress(LookupError), environment(s3_settings(endpoint)):
            assert "AWS_SESSION_TOKEN" not in os.environ
            client = boto3.session.Session().client("s3")
            client.create_bucket(Bucket="a-bucket-of-the-demo")
            assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["a-bucket-of-the-demo"]
            raise LookupError
        assert dict(os.environ) == before


def test_demo_finds_nothing_of_an_earlier_one() -> None:
    for _ in range(2):
        with s3_server() as endpoint, environment(s3_settings(endpoint)):
            client = boto3.session.Session().client("s3")
            assert client.list_buckets()["Buckets"] == []
            client.create_bucket(Bucket="left-behind")
            client.put_object(Bucket="left-behind", Key="key", Body=b"value")


@pytest.mark.parametrize("keep", ["file", "file/below", "x" * 300, "/proc/1/demo"])
def test_unusable_folder_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str], keep: str) -> None:
    (tmp_path / "file").write_text("")
    assert main(["demo", "--keep", str(tmp_path / keep)]) == 1
    _, err = capfd.readouterr()
    assert err.startswith("streamvault: the folder for the demo cannot be used (")
    assert err.count("\n") == 1


def test_unusable_temporary_folder_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
        assert main(["demo"]) == 1
    assert capfd.readouterr().err.endswith(f"{tmp_path / 'gone'}. Set TMPDIR to another folder.\n")
