"""Export and import on a real standalone cluster whose workers do not have the project's code."""

from __future__ import annotations

import uuid

import pytest

from streamvault import check_archive, export_stream, import_stream
from streamvault.runner.opening import open_runner
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.servers.pravega import PravegaServer
from testkit.servers.spark_cluster import SparkCluster
from testkit.streams import digest_of, make_stream, shape_of

pytestmark = [pytest.mark.pravega, pytest.mark.minio, pytest.mark.spark, pytest.mark.timeout(600)]


def test_export_and_import_run_on_two_workers(
    pravega: PravegaServer,
    root: str,
    spark_cluster: SparkCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(spark_cluster.python))
    scope = f"scope-{uuid.uuid4().hex[:8]}"
    source, restored = StreamName(scope, "source"), StreamName(scope, "restored")
    uri = f"{pravega.uri}/{source}"
    with parse_stream(uri)[0].open() as store:
        make_stream(store, source, events=4000)
        expected = digest_of(store, source)
        # one application for all three: its executors take long to start
        with open_runner(spark_cluster.master_url):
            report = export_stream(uri, root, range_size=32 * 1024, master=spark_cluster.master_url)
            assert report.events == expected[0]
            assert report.ranges > len(store.describe(source).ranges())
            checked = check_archive(f"{root}/{source}", read_data=True, master=spark_cluster.master_url)
            assert checked.ok, checked.findings
            import_stream(f"{root}/{source}", f"{pravega.uri}/{restored}", master=spark_cluster.master_url)
        assert digest_of(store, restored) == expected
        assert shape_of(store, restored) == shape_of(store, source)
