"""Keys and passwords in tasks for executors.

The code that is sent to executors.
"""

from __future__ import annotations

import base64
import logging
import pickle
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamvault.common.errors import Usage
from streamvault.objectstore.s3.scheme import SCHEME
from streamvault.objectstore.s3.store import open_bucket
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.runner import Master
from streamvault.runner.session import Session, has_login
from streamvault.runner.settings import import_folder, zip_code
from streamvault.streamstore.errors import AccessDenied
from streamvault.streamstore.pravega.calls import ControllerCalls
from streamvault.streamstore.uri import parse_stream

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAPLANTED",
    "AWS_SECRET_ACCESS_KEY": "PLANTEDSECRETKEY",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "PRAVEGA_USERNAME": "reader",
    "PRAVEGA_PASSWORD": "PLANTEDPASSWORD1",
    "PRAVEGA_TARGET_USERNAME": "writer",
    "PRAVEGA_TARGET_PASSWORD": "PLANTEDPASSWORD2",
}


@pytest.fixture(autouse=True)
def logins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def sent() -> dict[str, Any]:
    return {
        "archive": RootAddress.parse("s3://vault").resolve(),
        "source": parse_stream("pravega://127.0.0.1:9090/shop/orders")[0],
        "target": parse_stream("pravega://127.0.0.1:9090/shop/orders", target=True)[0],
    }


def test_logins_are_sent_unless_told_otherwise() -> None:
    addresses = sent()
    assert all(has_login(partial(print, [address])) for address in addresses.values())
    assert pickle.dumps(addresses).count(b"PLANTED") == 4


def test_executors_take_logins_from_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMVAULT_SEND_LOGINS", "no")
    addresses = sent()
    assert not has_login(addresses)
    data = pickle.dumps(addresses)
    assert b"PLANTED" not in data
    # the executor
    monkeypatch.delenv("STREAMVAULT_SEND_LOGINS")
    monkeypatch.setenv("PRAVEGA_PASSWORD", "executors")
    arrived = pickle.loads(data)
    users = [
        base64.b64decode(ControllerCalls(arrived[name].settings)._metadata[0][1].split()[1])
        for name in ("source", "target")
    ]
    assert users == [b"reader:executors", b"writer:PLANTEDPASSWORD2"]
    provider: Any = open_bucket("vault", arrived["archive"].access, timeout=1).credential_provider
    assert provider()["secret_access_key"] == SECRETS["AWS_SECRET_ACCESS_KEY"]
    monkeypatch.delenv("PRAVEGA_PASSWORD")
    with pytest.raises(AccessDenied, match="PRAVEGA_PASSWORD for the executors"):
        arrived["source"].settings.login()


def test_neither_yes_nor_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMVAULT_SEND_LOGINS", "never")
    with pytest.raises(Usage):
        SCHEME.resolve("vault")


GUARDED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize(
    ("master", "conf", "warnings"),
    [
        ("spark://spark.example.com:7077", {}, 1),
        ("k8s://https://example.com", {"spark.authenticate": "true"}, 1),
        ("yarn", {"spark.network.crypto.enabled": "true"}, 1),
        ("yarn", GUARDED, 0),
        ("spark://127.0.0.1:7077", {}, 0),
        ("local[2]", {}, 0),
    ],
)
def test_unencrypted_logins_are_warned_of_once(
    master: str, conf: dict[str, str], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    session = Session(Master.parse(master))
    session.context = SimpleNamespace(master=master, getConf=lambda: conf)
    with caplog.at_level(logging.WARNING):
        session.warn_of_logins(print, "nothing secret")
        assert not caplog.records
        for address in sent().values():
            session.warn_of_logins(print, address)
    session.context = None
    session.stop()
    assert len(caplog.records) == warnings
    assert "PLANTED" not in caplog.text


def test_zip_has_all_packages_and_can_be_imported(tmp_path: Path) -> None:
    code, again = tmp_path / "code.zip", tmp_path / "again.zip"
    zip_code(code)
    zip_code(again)
    assert code.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(code) as file:
        names = file.namelist()
    assert {name.partition("/")[0] for name in names} == {"streamvault"}
    assert "streamvault/streamstore/pravega/controller_pb2.py" in names
    script = "from streamvault import show_archive; from streamvault.streamstore.pravega import controller_pb2"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(code)!r}); {script}; print(controller_pb2.__file__)",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert str(code) in done.stdout


def test_package_lies_in_the_import_folder() -> None:
    assert (import_folder() / "streamvault").is_dir()
