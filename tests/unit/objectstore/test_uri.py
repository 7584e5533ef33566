"""Root URIs, and what is resolved from the AWS environment and files."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from streamvault.objectstore.s3.access import S3Access
from streamvault.objectstore.store import AccessDenied, InvalidRoot, NoSuchBucket, ObjectStoreError
from streamvault.objectstore.uri import RootAddress

SECRET = "wJalrXUtnFEMI-not-to-be-shown"


@pytest.mark.parametrize(
    ("text", "name", "place", "prefix", "uri"),
    [
        ("s3://bucket", "s3", "bucket", "", "s3://bucket"),
        ("s3://bucket/", "s3", "bucket", "", "s3://bucket"),
        ("s3://bucket/a/b", "s3", "bucket", "a/b", "s3://bucket/a/b"),
        ("s3://my.bucket-1/a=1/", "s3", "my.bucket-1", "a=1", "s3://my.bucket-1/a=1"),
        ("file:///a/b", "file", "", "a/b", "file:///a/b"),
        ("file:///a/b/", "file", "", "a/b", "file:///a/b"),
        ("file:////a//b", "file", "", "a/b", "file:///a/b"),
        ("file://localhost/a", "file", "", "a", "file:///a"),
        ("file:///a%20b", "file", "", "a b", "file:///a%20b"),
        ("file:///a b#1", "file", "", "a b#1", "file:///a%20b%231"),
        ("file:///", "file", "", "", "file:///"),
        ("/a/b", "file", "", "a/b", "file:///a/b"),
        ("/a b%20/c/", "file", "", "a b%20/c", "file:///a%20b%2520/c"),
        (Path("/a/b"), "file", "", "a/b", "file:///a/b"),
        ("S3://bucket/A", "s3", "bucket", "A", "s3://bucket/A"),
        ("File:///A", "file", "", "A", "file:///A"),
        ("memory://name/x", "memory", "name", "x", "memory://name/x"),
    ],
)
def test_uri_is_parsed_and_normalized(text: Any, name: str, place: str, prefix: str, uri: str) -> None:
    address = RootAddress.parse(text)
    assert (address.name, address.place, address.prefix, address.uri) == (name, place, prefix, uri)
    assert str(address) == uri
    assert RootAddress.parse(address.uri) == address
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "s3://BUCKET/PREFIX, file:///FOLDER or the absolute path of a folder"),
        ("bucket/prefix", "s3://BUCKET/PREFIX, file:///FOLDER or the absolute path of a folder"),
        ("a/folder", "s3://BUCKET/PREFIX, file:///FOLDER or the absolute path of a folder"),
        ("./a/folder", "s3://BUCKET/PREFIX, file:///FOLDER or the absolute path of a folder"),
        ("/a/../folder", "Remove '..'"),
        ("gs://bucket", "s3://BUCKET/PREFIX, file:///FOLDER or the absolute path of a folder"),
        ("s3:/bucket", "s3://BUCKET/PREFIX, file:///FOLDER or the absolute path of a folder"),
        ("s3://", "no bucket"),
        ("s3:///prefix", "no bucket"),
        ("s3://b", "invalid bucket name"),
        ("s3://user:password@host/x", "must not contain credentials"),
        ("s3://bucket/a//b", "invalid prefix"),
        ("s3://bucket/../b", "invalid prefix"),
        ("s3://bucket/a\nb", "invalid prefix"),
        ("file://folder", "three slashes"),
        ("file://./folder", "three slashes"),
        ("file:folder", "s3://BUCKET/PREFIX, file:///FOLDER or the absolute path of a folder"),
        ("file:///a/../b", "invalid folder"),
        ("file:///a%00b", "invalid folder"),
    ],
)
def test_invalid_root_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(InvalidRoot) as caught:
        RootAddress.parse(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_archive_address_splits_into_root_scope_and_stream() -> None:
    for archive, root in [
        ("s3://bucket/a/b/scope/stream", "s3://bucket/a/b"),
        ("s3://bucket/scope/stream", "s3://bucket"),
        ("file:///a/scope/stream/", "file:///a"),
        ("file:///scope/stream", "file:///"),
        ("memory://m/scope/stream", "memory://m"),
    ]:
        assert RootAddress.parse(archive).split() == (RootAddress.parse(root), "scope", "stream")
    for wrong in ("s3://bucket", "s3://bucket/stream", "file:///stream", "file:///"):
        with pytest.raises(InvalidRoot, match="ROOT/SCOPE/STREAM"):
            RootAddress.parse(wrong).split()


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An AWS config file for this test; no credentials in the environment."""
    file = tmp_path / "config"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    file.write_text("")
    return file


@pytest.fixture
def with_keys(config: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return config


def resolved(text: str = "s3://bucket/x") -> S3Access:
    address = RootAddress.parse(text).resolve()
    assert address.access is not None
    for shown in (repr(address), str(address), repr(address.access), f"{address.access.keys}"):
        assert SECRET not in shown
        assert "AKIDEXAMPLE" not in shown
    assert pickle.loads(pickle.dumps(address)) == address
    assert hash(address) == hash(pickle.loads(pickle.dumps(address)))
    assert address.resolve() is address
    return address.access


def test_missing_credentials_are_refused(config: Path) -> None:
    with pytest.raises(AccessDenied, match="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"):
        RootAddress.parse("s3://bucket").resolve()
    with pytest.raises(AccessDenied):
        RootAddress.parse("s3://bucket").open()


def test_without_an_endpoint_the_region_of_aws_is_used(with_keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    access = resolved()
    assert access.endpoint == "https://s3.eu-west-3.amazonaws.com"
    assert access.region == "eu-west-3"
    assert access.virtual_host
    assert access.profile is None
    assert access.keys is not None
    assert (access.keys.secret_key, access.keys.token) == (SECRET, None)
    assert not resolved("s3://a.bucket").virtual_host


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_endpoint_is_taken_from_the_environment(
    with_keys: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9000/")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-not-to-be-shown")
    access = resolved()
    assert access.endpoint == "http://127.0.0.1:9000"
    assert access.region == "us-east-1"
    assert not access.virtual_host
    assert access.keys is not None
    assert access.keys.token == "token-not-to-be-shown"
    assert "token-not" not in repr(access)


def test_profile_with_a_services_section_is_resolved(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(
        f"""
[profile archive]
region = eu-south-2
services = mine
aws_access_key_id = AKIDEXAMPLE
aws_secret_access_key = {SECRET}
s3 =
    addressing_style = virtual

[services mine]
s3 =
    endpoint_url = https://objects.example.com
"""
    )
    monkeypatch.setenv("AWS_PROFILE", "archive")
    access = resolved()
    assert access.endpoint == "https://objects.example.com"
    assert access.region == "eu-south-2"
    assert access.virtual_host
    assert access.profile == "archive"
    assert access.keys is not None


def test_unknown_profile_is_one_line(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ObjectStoreError, match="nobody") as caught:
        RootAddress.parse("s3://bucket").resolve()
    assert "\n" not in str(caught.value)


def test_invalid_endpoint_is_one_line(with_keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "not a url")
    with pytest.raises(ObjectStoreError, match="AWS configuration") as caught:
        RootAddress.parse("s3://bucket").resolve()
    assert "\n" not in str(caught.value)


def test_unusable_ca_bundle_is_refused(with_keys: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "nowhere.pem"))
    with pytest.raises(ObjectStoreError, match="AWS_CA_BUNDLE"):
        RootAddress.parse("s3://bucket").resolve()
    (tmp_path / "nowhere.pem").write_text("no certificate")
    with pytest.raises(ObjectStoreError, match="AWS_CA_BUNDLE"):
        RootAddress.parse("s3://bucket").resolve()
    (tmp_path / "nowhere.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(ObjectStoreError, match="AWS_CA_BUNDLE contains an invalid certificate"):
        RootAddress.parse("s3://bucket").open()


def test_renewable_credentials_are_left_to_each_process(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "Version": 1,
        "AccessKeyId": "AKIDEXAMPLE",
        "SecretAccessKey": SECRET,
        "SessionToken": "token",
        "Expiration": "2099-01-01T00:00:00Z",
    }
    script = config.parent / "give.py"
    script.write_text(f"print({json.dumps(given)!r})")
    config.write_text(f"[profile work]\ncredential_process = {sys.executable} {script}\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    access = resolved()
    assert access.keys is None
    assert access.profile == "work"
    assert SECRET.encode() not in pickle.dumps(access)

    script.write_text("import sys; sys.exit('the session has ended, log in again')")
    with pytest.raises(AccessDenied, match="log in again"):
        RootAddress.parse("s3://bucket").resolve()


def test_equal_addresses_open_the_same_store(tmp_path: Path) -> None:
    address = RootAddress.parse(tmp_path.as_uri())
    assert address.open() is pickle.loads(pickle.dumps(address)).open()


def test_root_folder_is_made_only_if_its_parent_exists(tmp_path: Path) -> None:
    store = RootAddress.parse((tmp_path / "root").as_uri()).open()
    assert list(store.list("")) == []
    assert list(store.folders("")) == []
    assert not (tmp_path / "root").exists()
    store.put("a/b", b"x")
    assert (tmp_path / "root" / "a" / "b").read_bytes() == b"x"

    deep = RootAddress.parse((tmp_path / "not" / "there").as_uri()).open()
    for ask in (
        lambda: deep.put("a", b""),
        lambda: deep.get("a"),
        lambda: deep.size("a"),
        lambda: list(deep.list("")),
        lambda: deep.folders(""),
    ):
        with pytest.raises(NoSuchBucket, match="no such folder"):
            ask()
