"""A DAG of the operators that the other DAGs leave out, on streams and archives below one folder."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag

from streamvault.airflow.operators import (
    AppendStreamsOperator,
    CheckSetupOperator,
    CompactArchiveOperator,
    ConvertArchiveOperator,
    CopyStreamOperator,
    DeleteArchiveOperator,
    FollowStreamOperator,
    HandoffTableOperator,
    HoldArchiveOperator,
    JoinStreamsOperator,
    ListArchivesOperator,
    ListStreamsOperator,
    MoveStreamOperator,
    PlanArchiveOperator,
    PromoteReplicaOperator,
    ReleaseArchiveOperator,
    RequestRestoreOperator,
    ShowDdlOperator,
    ShowManifestOperator,
    ShowQueueOperator,
    ShowStatusOperator,
    ShowTimelineOperator,
    SweepScopeOperator,
    TranslatePositionsOperator,
    WorkQueueOperator,
    WriteReportOperator,
)
from streamvault.airflow.sensors import StreamBytesSensor

FOLDER = "{{ params.folder }}"
SCOPE, ROOT = f"local://{FOLDER}/streams/shop", f"file://{FOLDER}/vault"
STREAM, ARCHIVE = f"{SCOPE}/orders", f"{ROOT}/shop/orders"
OTHER_ROOT = f"file://{FOLDER}/other"
CUT = "{{ ti.xcom_pull(task_ids='show')['to'] | tojson }}"


@dag(schedule=None, params={"folder": Param(type="string")}, max_active_tasks=3)
def every_operator() -> None:
    """The stream ``orders``, its archive of two generations, and its replica ``replica`` are there."""
    show = ShowManifestOperator(task_id="show", archive=ARCHIVE)
    archives = ListArchivesOperator(task_id="list", root=ROOT)
    ShowTimelineOperator(task_id="timeline", archive=ARCHIVE)
    ListStreamsOperator(task_id="streams", scope=SCOPE)
    PlanArchiveOperator(task_id="plan", stream=STREAM)
    CheckSetupOperator(task_id="doctor", stream=STREAM, root=ROOT, time_limit="1m")
    status = ShowStatusOperator(task_id="status", root=ROOT)
    report = WriteReportOperator(task_id="report", archive=ARCHIVE, file=f"{FOLDER}/page.html")

    hold = HoldArchiveOperator(task_id="hold", archive=ARCHIVE, hold="audit")
    hold >> ReleaseArchiveOperator(task_id="release", archive=ARCHIVE, hold="audit")
    handoff = HandoffTableOperator(task_id="handoff", source=ARCHIVE, format="parquet")
    [archives, status, report] >> handoff >> ShowDdlOperator(task_id="ddl", source=ARCHIVE, engine="trino")
    convert = ConvertArchiveOperator(task_id="convert", archive=ARCHIVE, root=OTHER_ROOT, layout="chunks")
    compact = CompactArchiveOperator(task_id="compact", archive=f"{OTHER_ROOT}/shop/orders")
    convert >> compact >> DeleteArchiveOperator(task_id="delete", archive=f"{OTHER_ROOT}/shop/orders", yes=True)

    ask = RequestRestoreOperator(task_id="ask", archive=ARCHIVE, stream=f"{SCOPE}/restored", requests=f"{SCOPE}/queue")
    queue = ShowQueueOperator(task_id="queue", requests=f"{SCOPE}/queue")
    work = WorkQueueOperator(task_id="work", requests=f"{SCOPE}/queue", idle="0s")
    translate = TranslatePositionsOperator(
        task_id="translate", source=ARCHIVE, stream=f"{SCOPE}/restored", positions=[CUT]
    )
    ask >> queue >> work >> translate
    show >> translate

    PromoteReplicaOperator(task_id="promote", stream=f"{SCOPE}/replica")
    follow = FollowStreamOperator(
        task_id="follow", stream=STREAM, root=f"file://{FOLDER}/followed", every="1s", idle="1s", lasting="1m"
    )
    copy = CopyStreamOperator(task_id="copy", source=STREAM, stream=f"{SCOPE}/copy")
    move = MoveStreamOperator(task_id="move", source=f"{SCOPE}/copy", stream=f"{SCOPE}/moved")
    join = JoinStreamsOperator(task_id="join", sources=[f"{SCOPE}/moved", ARCHIVE], stream=f"{SCOPE}/joined")
    append = AppendStreamsOperator(task_id="append", sources=[ARCHIVE], stream=f"{SCOPE}/log")
    # of a task that goes on before the scheduler has seen it pause, Airflow says that it has failed
    enough = StreamBytesSensor(
        task_id="enough", stream=f"{SCOPE}/log", poke_interval=8, deferrable=True, retries=2, retry_delay=timedelta(0)
    )
    sweep = SweepScopeOperator(task_id="sweep", scope=SCOPE)
    copy >> move >> [join, append]
    [follow, join, append, enough, work] >> sweep


every_operator()
