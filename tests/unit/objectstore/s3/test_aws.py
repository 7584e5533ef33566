"""What plain variables say is what botocore says."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from streamvault.common.errors import Problem
from streamvault.objectstore.s3.access import S3Access, access_from_environment
from streamvault.objectstore.s3.aws import resolve_access
from streamvault.objectstore.store import ObjectStoreError

PLAIN = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}
VALUES: dict[str, tuple[str | None, ...]] = {
    "AWS_ACCESS_KEY_ID": ("key", "k/e+y=", " key ", "", None),
    "AWS_SECRET_ACCESS_KEY": ("secret", "s\u00e9cret", "", None),
    "AWS_SESSION_TOKEN": (None, None, "token", ""),
    "AWS_SECURITY_TOKEN": (None, None, None, None, None, "older"),
    "AWS_CREDENTIAL_EXPIRATION": (None, None, None, None, None, "2099-01-01T00:00:00Z"),
    "AWS_ENDPOINT_URL": (
        "http://127.0.0.1:9000",
        "http://127.0.0.1:9000/",
        "https://minio.example.com",
        "https://minio",
        "http://minio:80",
        "https://minio:443/",
        "http://minio:59999",
        "http://minio:65535",
        "http://minio:65536",
        "http://minio:09",
        "http://MINIO:9000",
        "http://mi_nio:9000",
        "http://-minio:9000",
        "http://minio-:9000",
        "http://minio..example:9000",
        "http://minio:9000/path/",
        "http://user:pass@minio:9000",
        "http://[::1]:9000",
        "http://minio:9000?x=1",
        "http://" + "a" * 64,
        "http://1.2.3",
        "ftp://minio",
        "minio:9000",
        "https://s3.eu-west-1.amazonaws.com",
        "https://s3.cn-north-1.amazonaws.com.cn",
        "",
        None,
    ),
    "AWS_ENDPOINT_URL_S3": (None, None, None, None, "http://other:9000", ""),
    "AWS_DEFAULT_REGION": (
        None,
        "eu-west-1",
        "us-east-1",
        "us-gov-west-1",
        "cn-north-1",
        "aws-global",
        "auto",
        "",
        "x!",
    ),
    "AWS_REGION": (None, "eu-west-3"),
    "AWS_PROFILE": (None, None, None, None, None, "work"),
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": (None, None, None, None, None, "true"),
    "AWS_USE_FIPS_ENDPOINT": (None, None, None, None, None, "true"),
    "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": (None, None, None, None, None, "regional"),
    "AWS_MAX_ATTEMPTS": (None, None, None, None, None, "many"),
    "AWS_EC2_METADATA_DISABLED": (None, "true", "maybe"),
    "AWS_PAGER": (None, ""),
    "AWS_ALLOW_HTTP": (None, "true"),
    "AWS_DEFAULT_OUTPUT": (None, "json"),
    "AWS_CA_BUNDLE": (None, None, None, "bundle.pem", "", " ", "/nowhere"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("bundle.pem").write_text("-----BEGIN CERTIFICATE-----")
    return tmp_path


def found_in(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> S3Access | None:
    """What plain variables say, after a comparison with what botocore says."""
    with monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            found = access_from_environment()
        except ObjectStoreError as error:
            with pytest.raises(ObjectStoreError, match=re.escape(str(error))):
                resolve_access("bucket")
            return None
        if found is not None:
            resolved = resolve_access("bucket")
            assert found == resolved, environment
            assert found.keys is not None
            assert resolved.keys is not None
            assert found.keys() == resolved.keys(), environment
        return found


@pytest.mark.usefixtures("home")
def test_each_variable_is_understood_as_botocore_does(monkeypatch: pytest.MonkeyPatch) -> None:
    told = 0
    for name, values in VALUES.items():
        for value in set(values):
            environment = {key: one for key, one in {**PLAIN, name: value}.items() if one is not None}
            told += found_in(environment, monkeypatch) is not None
    assert told > 20


@pytest.mark.usefixtures("home")
def test_variables_together_are_understood_as_botocore_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    told = 0
    for _ in range(300):
        chosen = {name: rng.choice(values) for name, values in VALUES.items()}
        if rng.random() < 0.7:
            chosen |= PLAIN
        told += found_in({name: one for name, one in chosen.items() if one is not None}, monkeypatch) is not None
    assert told > 20


def test_configuration_is_left_to_botocore(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_in(PLAIN, monkeypatch) is not None
    (home / ".aws").mkdir()
    assert access_from_environment(PLAIN) is None
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_DATA_PATH", "AWS_OF_THE_FUTURE"):
        assert access_from_environment({**PLAIN, name: ""}) is None


@pytest.mark.usefixtures("home")
def test_wrong_endpoint_is_still_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert access_from_environment() is None
    with pytest.raises(Problem, match=r"Invalid endpoint: minio:9000\. An endpoint is http://HOST:PORT"):
        resolve_access("bucket")


@pytest.mark.usefixtures("home")
def test_botocore_is_not_loaded_where_variables_say_all() -> None:
    code = """if True:
        import sys
        from streamvault.objectstore.uri import RootAddress
        RootAddress.parse("s3://bucket/vault").open()
        assert "botocore" not in sys.modules
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    subprocess.run([sys.executable, "-c", code], env={**environment, **PLAIN}, check=True)
