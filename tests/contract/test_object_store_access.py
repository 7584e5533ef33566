"""Ways to access a real server: TLS with a private authority, renewed credentials, session tokens."""

from __future__ import annotations

import dataclasses
import json
import pickle
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streamvault.objectstore.store import AccessDenied, ObjectStoreError
from streamvault.objectstore.uri import RootAddress
from testkit.servers.certificates import Certificates, make_certificates
from testkit.servers.minio import limited
from testkit.servers.s3 import S3Server

ALLOW_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}

pytestmark = pytest.mark.minio


@pytest.fixture
def bucket(minio: S3Server, bucket_name: str) -> str:
    return minio.make_bucket(bucket_name)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


@pytest.fixture
def encrypted(minio: S3Server, certificates: Certificates) -> Iterator[S3Server]:
    """The same server behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    listener = socket.create_server(("127.0.0.1", 0))
    inside = urlsplit(minio.endpoint).port or 0
    threading.Thread(target=_forward_all, args=(listener, context, inside), daemon=True).start()
    yield dataclasses.replace(minio, endpoint=f"https://127.0.0.1:{listener.getsockname()[1]}")
    listener.close()


def _forward_all(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_forward, args=(plain, context, port), daemon=True).start()


def _forward(plain: socket.socket, context: ssl.SSLContext, port: int) -> None:
    try:
        client = context.wrap_socket(plain, server_side=True)
    except OSError:
        return
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        _pump(client, server)
        back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_custom_certificate_authority_is_trusted(
    encrypted: S3Server,
    certificates: Certificates,
    bucket: str,
    use_s3: Callable[[S3Server], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_s3(encrypted)
    with pytest.raises(ObjectStoreError, match=r"certificate is not trusted.*AWS_CA_BUNDLE"):
        RootAddress.parse(f"s3://{bucket}").open().put("a", b"x")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates.authority))
    address = RootAddress.parse(f"s3://{bucket}").resolve()
    certificates.authority.unlink()  # an executor may not have the file
    store = address.open()
    store.put("a", b"x" * 100_000)
    assert store.get("a") == b"x" * 100_000


def test_session_token_is_used(minio: S3Server, bucket: str, use_s3: Callable[[S3Server], None]) -> None:
    temporary = limited(minio, ALLOW_ALL)
    use_s3(temporary)
    store = RootAddress.parse(f"s3://{bucket}").open()
    store.put("a", b"x")
    use_s3(dataclasses.replace(temporary, session_token="not the token"))
    with pytest.raises(AccessDenied):
        RootAddress.parse(f"s3://{bucket}").open().get("a")


def profile_that_runs(server: S3Server, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Choose a profile whose credentials a program prints; return its file, which is still to be written."""
    program, config = folder / "give.py", folder / "config"
    config.write_text(
        f"[profile work]\nendpoint_url = {server.endpoint}\ncredential_process = {sys.executable} {program}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "work")
    return program


def test_renewed_credentials_are_used(
    minio: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A task resolves them itself, from the profile's name alone."""
    asked = tmp_path / "asked"
    temporary = limited(minio, ALLOW_ALL)
    given = {
        "Version": 1,
        "AccessKeyId": temporary.access_key,
        "SecretAccessKey": temporary.secret_key,
        "SessionToken": temporary.session_token,
        "Expiration": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
    }
    give = profile_that_runs(minio, monkeypatch, tmp_path)
    give.write_text(f"open({str(asked)!r}, 'a').write('x')\nprint({json.dumps(given)!r})\n")
    address = RootAddress.parse(f"s3://{bucket}").resolve()
    sent = pickle.dumps(address)
    assert temporary.secret_key.encode() not in sent

    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-somebody-else")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-somebody-else")
    store = pickle.loads(sent).open()
    for number in range(20):
        store.put(f"a/{number}", b"x")
    assert len(list(store.list("a/"))) == 20
    assert len(asked.read_text()) <= 3  # the driver once, the task once: not for every request


def test_credentials_that_cannot_be_renewed_are_named(
    minio: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {
        "Version": 1,
        "AccessKeyId": minio.access_key,
        "SecretAccessKey": minio.secret_key,
        "Expiration": (datetime.now(UTC) + timedelta(seconds=30)).isoformat(),
    }
    give = profile_that_runs(minio, monkeypatch, tmp_path)
    give.write_text(f"print({json.dumps(given)!r})\n")
    store = RootAddress.parse(f"s3://{bucket}").open()
    give.write_text("import sys; sys.exit('the session has ended, log in again')")
    with pytest.raises(AccessDenied, match="log in again") as caught:
        store.put("a", b"x")
    assert "\n" not in str(caught.value)
