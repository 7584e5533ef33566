"""What Airflow shows and tells of a finished task: links to its archive's page and to Spark's pages, and lineage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from streamvault.airflow.links import ArchivePageLink, SparkLink
from streamvault.airflow.operators import (
    CheckArchiveOperator,
    ConvertArchiveOperator,
    CopyStreamOperator,
    ExportStreamOperator,
    HandoffTableOperator,
    ImportStreamOperator,
    JoinStreamsOperator,
    RequestRestoreOperator,
)
from streamvault.airflow.operators.command import CommandOperator
from streamvault.airflow.submit import HISTORY_SERVER, Outcome, StreamvaultSubmitHook
from streamvault.runner.settings import PAGES_FILE
from testkit.airflow_attempt import Attempt
from testkit.servers.s3 import S3Server
from testkit.small_archives import Vault

PAGES = {"application": "app-1", "url": "http://worker:4040"}


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[CommandOperator, dict[str, Any]], Attempt]:
    """A function that runs an operator whose command prints a report."""

    def run(operator: CommandOperator, report: dict[str, Any]) -> Attempt:
        monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: Outcome(0, report))
        attempt = Attempt()
        operator.execute({"ti": attempt, "dag_run": SimpleNamespace(run_type="manual")})
        return attempt

    return run


def test_links_of_a_mapped_task_are_known_without_its_class() -> None:
    """The API server has the serialized DAG only; the URLs are XComs."""
    with DAG("d") as dag:
        ExportStreamOperator.partial(task_id="e", root="file:///v").expand(stream=["local:///a/b/c"])
    task = DagSerialization.from_dict(DagSerialization.to_dict(dag)).get_task("e")
    assert set(task.extra_links) == {"Archive report", "Spark UI"}
    assert set(ProvidersManager().extra_links_class_names) >= {
        f"{kind.__module__}.{kind.__qualname__}" for kind in (ArchivePageLink, SparkLink)
    }


@pytest.mark.parametrize("place", ["file", "s3"])
def test_page_of_the_archive_is_drawn_when_the_task_ends(
    run: Callable[..., Attempt],
    tmp_path: Path,
    moto_s3: S3Server,
    bucket_name: str,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    extra = {"endpoint_url": moto_s3.endpoint, "region_name": moto_s3.region}
    connection = {"conn_type": "aws", "login": moto_s3.access_key, "password": moto_s3.secret_key, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
    moto_s3.make_bucket(bucket_name)
    vault = Vault(tmp_path)
    vault.create()
    vault.add(b"one")
    vault.export()
    file = f"s3://{bucket_name}/pages/orders.html" if place == "s3" else f"{tmp_path}/orders.html"
    operator = CheckArchiveOperator(
        task_id="t", archive=vault.archive, report_file=file, report_url="https://reports/orders.html"
    )
    run(operator, {"archive": vault.archive, "ok": True})
    assert ArchivePageLink().get_link(operator, ti_key=None) == "https://reports/orders.html"
    if place == "s3":
        found = moto_s3.client().get_object(Bucket=bucket_name, Key="pages/orders.html")
        assert found["ContentType"].startswith("text/html")
        page = found["Body"].read().decode()
    else:
        page = Path(file).read_text()
    assert "<title>Archive of scope/stream</title>" in page


def test_page_that_cannot_be_written_does_not_fail_the_task(
    run: Callable[..., Attempt], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the command wrote is written; a retry would do it again."""
    (tmp_path / "taken").touch()
    operator = CheckArchiveOperator(
        task_id="t", archive=f"file://{tmp_path}/a/b", report_file=f"{tmp_path}/taken/page.html"
    )
    run(operator, {"archive": f"file://{tmp_path}/a/b", "ok": True})
    assert ArchivePageLink().get_link(operator, ti_key=None) == ""


def spark_hook(folder: Path, conf: dict[str, str]) -> tuple[StreamvaultSubmitHook, list[str]]:
    hook, announced = StreamvaultSubmitHook(variables={}, conn_id="spark_default", conf=conf), []
    hook._pages = folder / "spark.json"
    hook.on_spark = announced.append
    return hook, announced


def test_sparks_pages_are_linked_while_it_runs(tmp_path: Path) -> None:
    """From the first line that the command writes after they are there; then those of the history server."""
    hook, announced = spark_hook(tmp_path, {HISTORY_SERVER: "history:18080"})
    lines = iter(["starting", "exporting", "done"])

    def output() -> Any:
        for line in lines:
            yield line
            if line == "starting":
                assert announced == []
                hook._pages.write_text(json.dumps(PAGES))

    hook._process_spark_submit_log(output())
    assert announced == ["http://worker:4040"]
    assert hook.history_url == "http://history:18080/history/app-1"
    assert spark_hook(tmp_path, {})[0].history_url == ""


def test_task_without_spark_has_no_link_to_it(run: Callable[..., Attempt]) -> None:
    operator = CheckArchiveOperator(task_id="t", archive="file:///v/a/b")
    assert run(operator, {"archive": "file:///v/a/b"}).pushed == {}
    assert SparkLink().get_link(operator, ti_key=None) == ""
    assert PAGES_FILE.startswith("STREAMVAULT_")


A, B = "local:///data/shop/a", "pravega://h:9090/shop/b"
LINEAGE: list[tuple[CommandOperator, dict[str, Any], list[tuple[str, str]], list[tuple[str, str, int | None, int]]]] = [
    (
        ExportStreamOperator(task_id="t", stream=B, root="s3://vault/backups", aws_conn_id=None),
        {"archive": "s3://vault/backups/shop/b", "unchanged": False, "events": 7, "bytes": 70},
        [("pravega://h:9090", "shop/b")],
        [("s3://vault", "backups/shop/b", 7, 70)],
    ),
    (
        CopyStreamOperator(task_id="t", source=A, stream=B),
        {"source": A, "stream": B, "unchanged": False, "bytes": 70},
        [("local", "/data/shop/a")],
        [("pravega://h:9090", "shop/b", None, 70)],
    ),
    (
        CheckArchiveOperator(task_id="t", archive="file:///vault/shop/a"),
        {"archive": "file:///vault/shop/a"},
        [("file", "/vault/shop/a")],
        [],
    ),
    (
        ExportStreamOperator(task_id="t", stream="local:///data/shop/", root="file:///vault"),
        {
            "outcomes": [
                {"stream": A, "result": {"archive": "file:///vault/shop/a", "unchanged": False, "bytes": 7}},
                {"stream": "local:///data/shop/gone", "result": None},
            ]
        },
        [("local", "/data/shop/a"), ("local", "/data/shop/gone")],
        [("file", "/vault/shop/a", None, 7)],
    ),
    (
        HandoffTableOperator(task_id="t", source="s3://vault/backups/shop/b", aws_conn_id=None),
        {"source": "s3://vault/backups/shop/b", "location": "s3://vault/backups/shop/b/table/t/", "bytes": 7},
        [("s3://vault", "backups/shop/b")],
        [("s3://vault", "backups/shop/b/table/t", None, 7)],
    ),
    (
        ConvertArchiveOperator(task_id="t", archive="file:///vault/shop/a", root="file:///other", layout="chunks"),
        {"source": "file:///vault/shop/a", "archive": "file:///other/shop/a", "events": 1, "bytes": 7},
        [("file", "/vault/shop/a")],
        [("file", "/other/shop/a", 1, 7)],
    ),
]


OPERATORS_WITH_TARGETS = [
    ImportStreamOperator(task_id="t", archive="file:///vault/shop/a", stream=B, dry_run=True),
    CopyStreamOperator(task_id="t", source="file:///vault/shop/a", stream=B, dry_run=True),
    JoinStreamsOperator(task_id="t", sources=["file:///vault/shop/a"], stream=B, dry_run=True),
    RequestRestoreOperator(task_id="t", archive="file:///vault/shop/a", stream=B, requests="local:///data/shop/queue"),
]


@pytest.mark.parametrize("operator", OPERATORS_WITH_TARGETS)
def test_lineage_of_what_wrote_nothing_names_no_target(run: Callable[..., Attempt], operator: CommandOperator) -> None:
    """A dry run, a request, and a task that has failed before it had a report."""
    reported = {"archive": "file:///vault/shop/a", "source": "file:///vault/shop/a", "stream": B, "bytes": 70}
    for _ in range(2):
        found = DefaultExtractor(operator).extract_on_complete(None)
        assert [(each.namespace, each.name) for each in found.inputs] == [("file", "/vault/shop/a")]
        assert found.outputs == []
        run(operator, reported)


@pytest.mark.parametrize(("operator", "report", "inputs", "outputs"), LINEAGE)
def test_lineage_has_what_was_read_and_written(
    run: Callable[..., Attempt],
    operator: CommandOperator,
    report: dict[str, Any],
    inputs: list[tuple[str, str]],
    outputs: list[tuple[str, str, int | None, int]],
) -> None:
    """As Airflow's provider for OpenLineage extracts it."""
    run(operator, report)
    found = DefaultExtractor(operator).extract_on_complete(None)
    assert [(each.namespace, each.name) for each in found.inputs] == inputs
    written = [(each.namespace, each.name, each.outputFacets["outputStatistics"]) for each in found.outputs]
    assert [(*place, facet.rowCount, facet.size) for *place, facet in written] == outputs
