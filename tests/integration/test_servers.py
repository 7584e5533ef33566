"""The servers of the other tests behave as those tests assume."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable

import botocore.exceptions
import grpc
import obstore.exceptions
import pytest
from obstore.store import S3Store

from streamvault.streamstore.pravega import controller_pb2 as messages
from streamvault.streamstore.pravega.controller_pb2_grpc import ControllerServiceStub
from testkit.servers.minio import MinioServer, read_only
from testkit.servers.pravega import PravegaServer
from testkit.servers.pravega_security import ADMIN
from testkit.servers.proxy import FaultProxy
from testkit.servers.s3 import S3Program, S3Server
from testkit.servers.spark_cluster import SparkCluster
from testkit.servers.versitygw import VersityServer

# A frame of the segment store's protocol: hello, versions 16 and 5. It answers with its own.
HELLO = bytes.fromhex("ffffff81 00000008 00000010 00000005")
JOB = """
from pyspark.sql import SparkSession

def look(_):
    import importlib.util, sys
    import pyarrow
    return [(sys.executable, importlib.util.find_spec("streamvault") is not None)]

spark = SparkSession.builder.master({master!r}).config("spark.ui.enabled", "false").getOrCreate()
import json
print(json.dumps(sorted(set(spark.sparkContext.parallelize(range(2), 2).mapPartitions(look).collect()))))
spark.stop()
"""


def _create_scope(channel: grpc.Channel, scope: str, user: str = "", password: str = "") -> int:
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    metadata = [("authorization", f"Basic {credentials}")] if user else None
    answer = ControllerServiceStub(channel).createScope(messages.ScopeInfo(scope=scope), timeout=20, metadata=metadata)
    return int(answer.status)


def _hello(connection: socket.socket) -> bytes:
    connection.sendall(HELLO)
    with connection.makefile("rb") as answer:
        return answer.read(len(HELLO))


@pytest.mark.pravega
def test_pravega_serves(pravega: PravegaServer, scope_name: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{pravega.controller_port}") as channel:
        assert _create_scope(channel, scope_name) == messages.CreateScopeStatus.SUCCESS
        assert _create_scope(channel, scope_name) == messages.CreateScopeStatus.SCOPE_EXISTS
    with socket.create_connection(("127.0.0.1", pravega.segment_store_port), timeout=10) as connection:
        assert _hello(connection) == HELLO


@pytest.mark.pravega
def test_secure_pravega_requires_tls_and_a_password(pravega_secure: PravegaServer, scope_name: str) -> None:
    assert pravega_secure.certificates is not None
    authority = pravega_secure.certificates.authority
    address = f"127.0.0.1:{pravega_secure.controller_port}"
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(authority.read_bytes())) as channel:
        for user, password in [("", ""), (ADMIN.user, "wrong")]:
            with pytest.raises(grpc.RpcError) as refused:
                _create_scope(channel, scope_name, user, password)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert _create_scope(channel, scope_name, ADMIN.user, ADMIN.password) == messages.CreateScopeStatus.SUCCESS
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as refused:
        _create_scope(channel, scope_name, ADMIN.user, ADMIN.password)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    context = ssl.create_default_context(cafile=str(authority))
    with (
        socket.create_connection(("127.0.0.1", pravega_secure.segment_store_port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        assert _hello(connection) == HELLO


@pytest.mark.pravega
def test_pravega_sends_clients_through_a_proxy_and_restarts_empty(pravega: PravegaServer, scope_name: str) -> None:
    # `pravega` only shows whether one can be started at all
    with FaultProxy() as proxy, PravegaServer(proxy=proxy) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.controller_port}") as channel:
            assert _create_scope(channel, scope_name) == messages.CreateScopeStatus.SUCCESS
            segment = messages.SegmentId(streamInfo=messages.StreamInfo(scope=scope_name, stream="s"), segmentId=0)
            place = ControllerServiceStub(channel).getURI(segment, timeout=20)
            assert (place.endpoint, place.port) == ("127.0.0.1", proxy.port)
        controller_port = server.controller_port
        server.restart()
        assert server.controller_port == controller_port
        with grpc.insecure_channel(f"127.0.0.1:{server.controller_port}") as channel:
            assert _create_scope(channel, scope_name) == messages.CreateScopeStatus.SUCCESS


@pytest.mark.parametrize(
    "fixture",
    [
        pytest.param("minio", marks=pytest.mark.minio),
        pytest.param("versitygw", marks=pytest.mark.versitygw),
        "moto_s3",
    ],
)
def test_s3_server_is_reached_by_its_environment(
    request: pytest.FixtureRequest, fixture: str, bucket_name: str, use_s3: Callable[[S3Server], None]
) -> None:
    server: S3Server = request.getfixturevalue(fixture)
    server.make_bucket(bucket_name)
    use_s3(server)
    store = S3Store(bucket_name)
    store.put("folder/key", b"content", mode="create")
    assert bytes(store.get("folder/key").bytes()) == b"content"
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        store.put("folder/key", b"other", mode="create")


@pytest.mark.minio
def test_read_only_credentials_read_one_bucket_and_write_nothing(minio: S3Server, bucket_name: str) -> None:
    for bucket in (bucket_name, f"{bucket_name}-2"):
        minio.make_bucket(bucket)
        minio.client().put_object(Bucket=bucket, Key="key", Body=b"content")
    client = read_only(minio, bucket_name).client()
    assert client.get_object(Bucket=bucket_name, Key="key")["Body"].read() == b"content"
    assert client.list_objects_v2(Bucket=bucket_name)["KeyCount"] == 1
    for refused in (
        lambda: client.put_object(Bucket=bucket_name, Key="key", Body=b"other"),
        lambda: client.delete_object(Bucket=bucket_name, Key="key"),
        lambda: client.get_object(Bucket=f"{bucket_name}-2", Key="key"),
    ):
        with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
            refused()


@pytest.mark.parametrize(
    ("fixture", "program"),
    [
        pytest.param("minio", MinioServer, marks=pytest.mark.minio),
        pytest.param("versitygw", VersityServer, marks=pytest.mark.versitygw),
    ],
)
def test_s3_server_keeps_its_data_over_a_crash(
    request: pytest.FixtureRequest, fixture: str, program: type[S3Program], bucket_name: str
) -> None:
    # only to be skipped if the server cannot be started
    request.getfixturevalue(fixture)
    crashing = program()
    with crashing as server:
        server.make_bucket(bucket_name)
        server.client().put_object(Bucket=bucket_name, Key="key", Body=b"content")
        crashing.kill()
        with pytest.raises(botocore.exceptions.EndpointConnectionError):
            server.client().list_buckets()
        crashing.restart()
        assert server.client().get_object(Bucket=bucket_name, Key="key")["Body"].read() == b"content"
        data = server.data
    assert data is not None
    assert not data.exists()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_workers_have_the_dependencies_but_not_the_project(spark_cluster: SparkCluster) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOB.format(master=spark_cluster.master_url)],
        env={**os.environ, **spark_cluster.environment()},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[str(spark_cluster.python), False]]
