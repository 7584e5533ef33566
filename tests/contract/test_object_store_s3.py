"""Errors between an object store and a real S3 server, each with the message that a user sees."""

from __future__ import annotations

import dataclasses
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streamvault.common.errors import Problem
from streamvault.objectstore.probe import fit_server
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
)
from streamvault.objectstore.uri import RootAddress
from testkit.servers.certificates import make_certificates
from testkit.servers.minio import MinioServer, read_only
from testkit.servers.process import free_ports
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Program, S3Server
from testkit.servers.spoiling import SpoilingGateway
from testkit.servers.versitygw import VersityServer

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
    assert time.monotonic() - began < 10


def test_silent_server_is_unavailable_in_bounded_time(
    server: S3Server, bucket: str, proxy: FaultProxy, open_at: Callable[..., ObjectStore]
) -> None:
    store = open_at(through(server, proxy.port), bucket, retry_seconds=1, timeout_seconds=0.5)
    assert store.get("a/b") == b"0123456789"
    proxy.silence()
    began = time.monotonic()
    with pytest.raises(ObjectStoreUnavailable, match="did not answer in time"):
        store.get("a/b")
    assert time.monotonic() - began < 6
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
