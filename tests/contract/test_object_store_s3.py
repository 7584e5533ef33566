"""Errors between an object store and a real S3 server, each with the message that a user sees.

Ways to access a real server: TLS with a private authority, renewed credentials, session tokens.

The servers of docs/reference/s3-servers.md that are tested do what the table says.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from streamvault.common.errors import Problem
from streamvault.objectstore.probe import creates_only_in_parts, fit_server
from streamvault.objectstore.s3.access import S3Access, StaticKeys
from streamvault.objectstore.s3.scheme import WORTH_ASKING
from streamvault.objectstore.store import (
    AccessDenied,
    InvalidRoot,
    NoSuchBucket,
    NoSuchObject,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    crc64nvme,
)
from streamvault.objectstore.uri import RootAddress
from testkit.servers.certificates import Certificates, make_certificates
from testkit.servers.minio import MinioServer, limited, read_only
from testkit.servers.process import free_ports
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Program, S3Server
from testkit.servers.spoiling import SpoilingGateway
from testkit.servers.versitygw import VersityServer
from tests.pages import DOCS

SERVERS = [pytest.param("minio", marks=pytest.mark.minio), pytest.param("versitygw", marks=pytest.mark.versitygw)]
PROGRAMS: dict[str, type[S3Program]] = {"minio": MinioServer, "versitygw": VersityServer}
ASKS: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("a/new", b"x"),
    "get": lambda store: store.get("a/b"),
    "part": lambda store: store.get_range("a/b", 1, 2),
    "size": lambda store: store.size("a/b"),
    "list": lambda store: list(store.list("a/")),
    "folders": lambda store: store.folders(""),
    "delete": lambda store: store.delete(["a/b"]),
}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, S3Server)
    return found


@pytest.fixture
def bucket(server: S3Server, bucket_name: str) -> str:
    """A bucket with the object ``a/b``."""
    server.make_bucket(bucket_name)
    server.client().put_object(Bucket=bucket_name, Key="a/b", Body=b"0123456789")
    return bucket_name


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(urlsplit(server.endpoint).port or 0) as proxy:
        yield proxy


@pytest.fixture
def open_at(use_s3: Callable[[S3Server], None]) -> Callable[..., ObjectStore]:
    def open_at(server: S3Server, bucket: str, **options: float) -> ObjectStore:
        use_s3(server)
        return RootAddress.parse(f"s3://{bucket}").open(**options)

    return open_at


def through(server: S3Server, port: int) -> S3Server:
    return dataclasses.replace(server, endpoint=f"http://127.0.0.1:{port}")


def problems(store: ObjectStore) -> dict[str, Problem]:
    """Every kind of request must fail with a one-line message that contains no secret."""
    found = {}
    for name, ask in ASKS.items():
        with pytest.raises(Problem) as caught:
            ask(store)
        found[name] = caught.value
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300
        assert "not-to-be-shown" not in str(caught.value)
        assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args
    return found


@pytest.mark.parametrize(
    ("change", "name", "kind", "text"),
    [
        (lambda _: {"access_key": "nobody"}, "", AccessDenied, "unknown access key"),
        (lambda _: {"secret_key": "not-to-be-shown"}, "", AccessDenied, "the secret access key is wrong"),
        (lambda _: {}, "bucket-of-nobody", NoSuchBucket, "no such bucket"),
        (lambda _: {}, "No_Bucket", InvalidRoot, "No_Bucket"),
        (lambda at: {"endpoint": at.replace("http:", "https:")}, "", ObjectStoreError, "does not speak TLS"),
    ],
    ids=["access key", "secret key", "bucket", "name of a bucket", "TLS"],
)
def test_wrong_place_is_named(
    server: S3Server,
    bucket: str,
    open_at: Callable[..., ObjectStore],
    change: Callable[[str], dict[str, str]],
    name: str,
    kind: type[Problem],
    text: str,
) -> None:
    wrong = dataclasses.replace(server, **change(server.endpoint))
    for ask, problem in problems(open_at(wrong, name or bucket)).items():
        assert isinstance(problem, kind), ask
        assert text in str(problem)
        assert (name or bucket) in str(problem)
        assert kind is not AccessDenied or server.endpoint in str(problem)


def test_missing_server_is_unavailable(server: S3Server, bucket: str, open_at: Callable[..., ObjectStore]) -> None:
    store = open_at(through(server, free_ports(1)[0]), bucket, retry_seconds=0.5)
    began = time.monotonic()
    for name, problem in problems(store).items():
        assert isinstance(problem, ObjectStoreUnavailable), name
        assert "nothing is listening at the endpoint" in str(problem)
    assert time.monotonic() - began < 60


def test_silent_server_is_unavailable_in_bounded_time(
    server: S3Server, bucket: str, proxy: FaultProxy, open_at: Callable[..., ObjectStore]
) -> None:
    store = open_at(through(server, proxy.port), bucket, retry_seconds=1, timeout_seconds=0.5)
    assert store.get("a/b") == b"0123456789"
    proxy.silence()
    began = time.monotonic()
    with pytest.raises(ObjectStoreUnavailable, match="did not answer in time"):
        store.get("a/b")
    assert time.monotonic() - began < 60
    proxy.resume()
    assert store.get("a/b") == b"0123456789"


def test_large_object_over_a_slow_connection_arrives(
    server: S3Server, bucket: str, proxy: FaultProxy, open_at: Callable[..., ObjectStore]
) -> None:
    # well above the pauses of a busy machine, and below the time that the object takes
    store = open_at(through(server, proxy.port), bucket, retry_seconds=0, timeout_seconds=4)
    body = b"x" * 4_000_000
    proxy.delay = 0.1  # for each 64 KiB: 6 seconds
    store.put("large", body)
    assert store.get("large") == body


def test_requests_on_lost_connections_are_retried(
    server: S3Server, bucket: str, proxy: FaultProxy, open_at: Callable[..., ObjectStore]
) -> None:
    store = open_at(through(server, proxy.port), bucket)
    for name, ask in ASKS.items():
        proxy.cut()
        if name != "delete":
            ask(store)
    assert store.get("a/new") == b"x"


def test_truncated_response_is_read_again(
    server: S3Server, bucket: str, proxy: FaultProxy, open_at: Callable[..., ObjectStore]
) -> None:
    body = bytes(range(256)) * 4096
    server.client().put_object(Bucket=bucket, Key="long", Body=body)
    store = open_at(through(server, proxy.port), bucket)
    for ask in (
        lambda: store.get("long"),
        lambda: store.get_range("long", 0, len(body)),
        lambda: b"".join(store.stream("long", 0, len(body))),
    ):
        proxy.cut_after(len(body) // 2, times=3)
        assert ask() == body
    impatient = open_at(through(server, proxy.port), bucket, retry_seconds=0)
    proxy.cut_after(len(body) // 2)
    with pytest.raises(ObjectStoreUnavailable, match="connection to the server was lost"):
        impatient.get("long")


def test_put_with_lost_response_succeeds(
    server: S3Server, bucket: str, proxy: FaultProxy, open_at: Callable[..., ObjectStore]
) -> None:
    store = open_at(through(server, proxy.port), bucket)
    store.size("a/b")
    for number in range(5):
        proxy.cut_after(1)  # the request arrives, the answer does not
        store.put(f"lost/{number}", b"payload")
    assert [entry.key for entry in store.list("lost/")] == [f"lost/{number}" for number in range(5)]


def test_interrupted_listing_is_resumed(
    server: S3Server, bucket: str, proxy: FaultProxy, open_at: Callable[..., ObjectStore]
) -> None:
    direct = open_at(server, bucket)
    keys = [f"list/{number:04d}" for number in range(1100)]
    threads = [
        threading.Thread(target=lambda part: [direct.put(key, b"") for key in part], args=(keys[first::16],))
        for first in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = []
    for entry in open_at(through(server, proxy.port), bucket).list("list/"):
        found.append(entry.key)
        if len(found) in {1, 1000}:
            proxy.cut_after(1000)
            proxy.cut()
    assert found == keys


@pytest.mark.parametrize("checksum", ["SHA256", "CRC64NVME"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_corrupted_upload_is_refused_and_sent_again(
    server: S3Server, bucket: str, tmp_path: Path, scheme: str, checksum: str
) -> None:
    certificates = make_certificates(tmp_path) if scheme == "https" else None
    with SpoilingGateway(server.endpoint, certificates) as gateway:
        keys = StaticKeys(server.access_key, server.secret_key)
        authority = certificates.authority.read_text() if certificates else ""
        access = S3Access(
            gateway.endpoint, server.region, virtual_host=False, authorities=authority, keys=keys, checksum=checksum
        )
        store = RootAddress("s3", bucket, access=access).open()
        for number, body in enumerate((b"small", bytes(range(256)) * 8192)):
            gateway.spoil, gateway.statuses = 1, []
            store.put(f"sent/{number}", body)
            assert gateway.statuses == [400, 200]
            assert store.get(f"sent/{number}") == body
        gateway.spoil = 1000
        impatient = RootAddress("s3", bucket, access=access).open(retry_seconds=0)
        with pytest.raises(ObjectStoreUnavailable, match="damaged in transit"):
            impatient.put("sent/never", b"body")
        gateway.spoil = 0
        with pytest.raises(NoSuchObject):
            store.get("sent/never")


def test_server_verifies_crc64nvme_also_where_a_lock_requires_a_checksum(
    server: S3Server, bucket_name: str, use_s3: Callable[[S3Server], None]
) -> None:
    use_s3(server)
    client = server.client()
    client.create_bucket(Bucket=bucket_name, ObjectLockEnabledForBucket=True)
    retention = {"Mode": "GOVERNANCE", "Days": 1}
    client.put_object_lock_configuration(
        Bucket=bucket_name,
        ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": retention}},  # type: ignore[typeddict-item]
    )
    store = RootAddress.parse(f"s3://{bucket_name}").probe("scope/stream/_work/", WORTH_ASKING).open()
    assert list(store.list("")) == []  # the probe leaves nothing that could be locked
    for key, body in (("small", b"123456789"), ("large", bytes(3_000_000))):
        store.put(key, body)
        found = client.head_object(Bucket=bucket_name, Key=key, ChecksumMode="ENABLED")
        assert found.get("ObjectLockMode") == ("GOVERNANCE" if server.name == "minio" else None)
        assert found["ContentLength"] == len(body)
        assert "ChecksumCRC64NVME" in found
        assert "ChecksumSHA256" not in found
    small = client.head_object(Bucket=bucket_name, Key="small", ChecksumMode="ENABLED")
    assert small["ChecksumCRC64NVME"] == "rosUhgp5mIg="


@pytest.mark.minio
def test_read_only_bucket_refuses_writes(
    minio: S3Server, bucket_name: str, open_at: Callable[..., ObjectStore]
) -> None:
    minio.make_bucket(bucket_name)
    open_at(minio, bucket_name).put("a/b", b"x")
    store = open_at(read_only(minio, bucket_name), bucket_name)
    assert store.get("a/b") == b"x"
    assert [entry.key for entry in store.list("a/")] == ["a/b"]
    with pytest.raises(AccessDenied, match="no permission to write"):
        store.put("a/c", b"x")
    with pytest.raises(AccessDenied, match="no permission to delete"):
        store.delete(["a/b"])
    with pytest.raises(AccessDenied, match="no permission to write"):
        fit_server(store)
    with pytest.raises(NoSuchObject):
        store.get("a/c")


def test_restarted_server_is_used_again(
    server: S3Server, bucket_name: str, open_at: Callable[..., ObjectStore]
) -> None:
    own = PROGRAMS[server.name]()
    with own as started:
        started.make_bucket(bucket_name)
        store = open_at(started, bucket_name, retry_seconds=40)
        store.put("before", b"x")
        own.kill()
        back = threading.Timer(1.5, own.restart)
        back.start()
        store.put("after", b"y")
        back.join()
        assert [entry.key for entry in store.list("")] == ["after", "before"]


ALLOW_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


@pytest.fixture
def plain_bucket(minio: S3Server, bucket_name: str) -> str:
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


@pytest.mark.minio
def test_custom_certificate_authority_is_trusted(
    encrypted: S3Server,
    certificates: Certificates,
    plain_bucket: str,
    use_s3: Callable[[S3Server], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_s3(encrypted)
    with pytest.raises(ObjectStoreError, match=r"certificate is not trusted.*AWS_CA_BUNDLE"):
        RootAddress.parse(f"s3://{plain_bucket}").open().put("a", b"x")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates.authority))
    address = RootAddress.parse(f"s3://{plain_bucket}").resolve()
    certificates.authority.unlink()  # an executor may not have the file
    store = address.open()
    store.put("a", b"x" * 100_000)
    assert store.get("a") == b"x" * 100_000


@pytest.mark.minio
def test_session_token_is_used(minio: S3Server, plain_bucket: str, use_s3: Callable[[S3Server], None]) -> None:
    temporary = limited(minio, ALLOW_ALL)
    use_s3(temporary)
    store = RootAddress.parse(f"s3://{plain_bucket}").open()
    store.put("a", b"x")
    use_s3(dataclasses.replace(temporary, session_token="not the token"))
    with pytest.raises(AccessDenied):
        RootAddress.parse(f"s3://{plain_bucket}").open().get("a")


def profile_that_runs(server: S3Server, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Choose a profile whose credentials a program prints; return its file, which is still to be written."""
    program, config = folder / "give.py", folder / "config"
    config.write_text(
        f"[profile work]\nendpoint_url = {server.endpoint}\ncredential_process = {sys.executable} {program}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "work")
    return program


@pytest.mark.minio
def test_renewed_credentials_are_used(
    minio: S3Server, plain_bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
    address = RootAddress.parse(f"s3://{plain_bucket}").resolve()
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


@pytest.mark.minio
def test_credentials_that_cannot_be_renewed_are_named(
    minio: S3Server, plain_bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = {
        "Version": 1,
        "AccessKeyId": minio.access_key,
        "SecretAccessKey": minio.secret_key,
        "Expiration": (datetime.now(UTC) + timedelta(seconds=30)).isoformat(),
    }
    give = profile_that_runs(minio, monkeypatch, tmp_path)
    give.write_text(f"print({json.dumps(given)!r})\n")
    store = RootAddress.parse(f"s3://{plain_bucket}").open()
    give.write_text("import sys; sys.exit('the session has ended, log in again')")
    with pytest.raises(AccessDenied, match="log in again") as caught:
        store.put("a", b"x")
    assert "\n" not in str(caught.value)


ROWS = {
    name: cells.split(" | ")
    for name, cells in re.findall(
        r"^\| \*\*(\w+)\*\*.*? \| (.*) \|$", (DOCS / "reference/s3-servers.md").read_text(), re.MULTILINE
    )
}
WRONG = "AAAAAAAAAAA="


def yes(fact: object) -> str:
    return "yes" if fact else "no"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("minio", marks=pytest.mark.minio),
        pytest.param("versitygw", marks=pytest.mark.versitygw),
        pytest.param("moto"),
    ],
)
def test_row_of_a_server(
    name: str, request: pytest.FixtureRequest, bucket_name: str, use_s3: Callable[[S3Server], None]
) -> None:
    server = request.getfixturevalue({"moto": "moto_s3"}.get(name, name))
    use_s3(server)
    server.make_bucket(bucket_name)
    store = RootAddress.parse(f"s3://{bucket_name}").open()
    warnings = fit_server(store)  # raises if keys are not listed in order
    client, place = server.client(), {"Bucket": bucket_name, "Key": "checksum"}
    try:
        client.put_object(**place, Body=b"x", ChecksumCRC64NVME=WRONG)
        rejected = False
    except ClientError:
        rejected = True
    client.put_object(**place, Body=b"x", ChecksumCRC64NVME=crc64nvme(b"x"))
    kept = client.head_object(**place, ChecksumMode="ENABLED").get("ChecksumCRC64NVME")
    found = ["yes", yes(not warnings), yes(creates_only_in_parts(store, "")), yes(rejected), yes(kept)]
    assert {"minio": "MinIO"}.get(name, name) in ROWS
    assert ROWS[{"minio": "MinIO"}.get(name, name)] == found
