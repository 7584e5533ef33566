"""An archive in an archive class of S3 (moto): a task waits for it in the triggerer of a real Airflow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto.moto_api import state_manager

from streamvault import import_stream
from streamvault.objectstore.store import InArchiveClass
from testkit.servers.airflow import AirflowServer
from testkit.servers.s3 import S3Server
from testkit.small_archives import NAME, Vault
from tests.integration.test_warm import freeze

pytestmark = [pytest.mark.late, pytest.mark.timeout(1800)]


@pytest.fixture
def two_looks() -> Iterator[None]:
    """Requested objects are being restored at the first check, and readable at the next."""
    state_manager.set_transition("s3::keyrestore", {"progression": "time", "seconds": 0})
    yield
    state_manager.unset_transition("s3::keyrestore")


@pytest.mark.usefixtures("two_looks")
def test_task_waits_in_the_triggerer(
    airflow: AirflowServer, moto_s3: S3Server, use_s3: Callable[[S3Server], None], bucket_name: str, tmp_path: Path
) -> None:
    use_s3(moto_s3)
    moto_s3.make_bucket(bucket_name)
    vault = Vault(tmp_path, f"s3://{bucket_name}/vault")
    vault.make(events=20)
    vault.export("chunks")
    objects = freeze(moto_s3, vault)
    back = vault.uri(replace(NAME, stream="back"))
    with pytest.raises(InArchiveClass):
        import_stream(vault.archive, back, master="inline")
    extra = json.dumps({"endpoint_url": moto_s3.endpoint, "region_name": moto_s3.region})
    airflow.connect("cold", conn_type="aws", login=moto_s3.access_key, password=moto_s3.secret_key, extra=extra)
    airflow.pause("warm_once", paused=False)
    run = airflow.trigger("warm_once", {"archive": vault.archive})

    def deferred() -> dict[str, Any] | None:
        (task,) = airflow.tasks("warm_once", run) or [{"state": None}]
        assert task["state"] not in {"success", "failed"}, airflow.logs("warm_once")
        return task if task["state"] == "deferred" and task["triggerer_job"] else None

    waiting = airflow.wait(deferred, timeout=600, what="the task's wait")
    assert waiting["trigger"]["classpath"] == "streamvault.airflow.triggers.ArchiveReadableTrigger"
    assert airflow.finished("warm_once", run)["state"] == "success", airflow.logs("warm_once")
    (task,) = airflow.tasks("warm_once", run)
    assert (task["state"], task["try_number"]) == ("success", 1)
    logs = "".join(airflow.logs("warm_once"))
    assert f"requested {objects} objects of {vault.archive} from S3" in logs
    assert "is not readable yet; checking again in 8" in logs
    assert f"all required objects of {vault.archive} are readable" in logs
    assert moto_s3.secret_key not in "".join(airflow.logs())
    assert import_stream(vault.archive, back, master="inline").events == len(vault.events())
