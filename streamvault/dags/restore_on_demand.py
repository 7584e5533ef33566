"""Restores an archive into a new stream: all of it, as of a time, or up to a generation.

Checks the parameters, waits until the archive can be read (S3 restores objects in cold storage), restores it, and
reports what was verified.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, get_current_context, task

from streamvault.airflow.helpers import (
    ON_REQUEST,
    checked_params,
    connection_param,
    option_param,
    templates,
    text_param,
)
from streamvault.airflow.operators import ImportStreamOperator, WarmArchiveOperator
from streamvault.importer.reports import ImportOptions
from streamvault.manifests.options import WarmOptions

HOW, COLD = "How to restore", "Cold storage"
"""Sections of the form."""

PARAMS = {
    "archive": Param(
        type="string",
        pattern="^(s3|file)://.+/.+/.+$",
        title="Archive",
        description="ROOT/SCOPE/STREAM, such as s3://vault/backups/shop/orders.",
    ),
    "target": text_param("New stream", "SCOPE/STREAM of the connection, or a URI. It must not exist."),
    "at": option_param(
        ImportOptions,
        "at",
        "Point in time",
        default=None,
        description="Restore the newest generation taken at or before then; empty for the newest. Not with Generation.",
    ),
    "generation": option_param(
        ImportOptions,
        "generation",
        "Generation",
        default=None,
        description="Restore up to this generation; empty for the newest.",
    ),
    "offsets": option_param(ImportOptions, "offsets", "Offsets", default="keep", section=HOW),
    "numbers": option_param(ImportOptions, "numbers", "Segment numbers", default="keep", section=HOW),
    "retention": option_param(ImportOptions, "retention", "Retention policy", default="keep", section=HOW),
    "read_back": option_param(ImportOptions, "read_back", "Read back", default=True, section=HOW),
    "wait_for_warm_up": Param(
        True,
        type="boolean",
        title="Wait for cold storage",
        section=COLD,
        description="Request objects in cold storage and wait for them; otherwise fail if there are any.",
    ),
    "tier": option_param(WarmOptions, "tier", "Retrieval tier", default="Bulk", section=COLD),
    "days": option_param(WarmOptions, "days", "Days", default=7, section=COLD),
    "pravega_conn_id": connection_param("pravega_default", "Connection to Pravega", kind="pravega"),
    "aws_conn_id": connection_param("aws_default", "Connection to AWS", kind="aws"),
}

UPTO: dict[str, Any] = {"at": "{{ params.at or '' }}", "generation": "{{ params.generation or '' }}"}


@dag(
    **ON_REQUEST,
    params=PARAMS,
    tags=["streamvault", "restore"],
    doc_md=__doc__,
    description="Restores an archive into a new stream.",
)
def restore_on_demand() -> None:
    @task(retries=0)
    def check_params() -> dict[str, str]:
        from streamvault.airflow.helpers import check_restore  # noqa: PLC0415  (only runs need it)

        return check_restore(checked_params(get_current_context()))

    @task
    def report(restored: dict[str, Any]) -> str:
        from streamvault.airflow.helpers import describe_restore  # noqa: PLC0415

        text = describe_restore(restored, read_back=get_current_context()["params"]["read_back"])
        print(text)
        return text

    checked = check_params()
    warm_up = WarmArchiveOperator(
        task_id="warm_up",
        wait="{{ params.wait_for_warm_up }}",
        **UPTO,
        **templates("archive", "tier", "days", "aws_conn_id"),
    )
    restore = ImportStreamOperator(
        task_id="restore",
        stream="{{ params.target }}",
        **UPTO,
        **templates("archive", "offsets", "numbers", "retention", "read_back"),
        **templates("pravega_conn_id", "aws_conn_id"),
    )
    checked >> warm_up >> restore >> report(restore.output)  # type: ignore[arg-type]


restore_on_demand()
