"""Copies a stream to another cluster through a folder or a bucket that both sides can reach.

Exports the stream below a root that is unique to the run, imports it, and removes the intermediate archive. Each step
can be cleared and run again on its own: export and import resume, and the clean-up removes what is left. As long as the
intermediate archive exists, a finished import that is run again reads its stream back and verifies it.
"""

from __future__ import annotations

from airflow.sdk import Param, dag, get_current_context, task

from streamvault.airflow.helpers import ON_REQUEST, checked_params, connection_param, templates, text_param
from streamvault.airflow.operators import ExportStreamOperator, ImportStreamOperator

PARAMS = {
    "stream": text_param("Stream", "The stream to copy: SCOPE/STREAM of its connection, or a URI."),
    "target": text_param("New stream", "SCOPE/STREAM of its connection, or a URI. It must not exist."),
    "via": Param(
        type="string",
        pattern="^(s3|file)://.+$",
        title="Intermediate root",
        description="s3://BUCKET/PREFIX or file:///FOLDER (made if it does not exist), for the intermediate archive.",
    ),
    "layout": Param(
        "chunks",
        type="string",
        enum=["chunks", "events"],
        title="Layout",
        description="Of the intermediate archive: chunks of up to 64 MiB, or an object for each event.",
    ),
    "clean_up": Param(True, type="boolean", title="Clean up", description="Delete the intermediate archive."),
    "pravega_conn_id": connection_param("pravega_default", "Connection of the stream", kind="pravega"),
    "target_pravega_conn_id": connection_param("pravega_default", "Connection of the new stream", kind="pravega"),
    "aws_conn_id": connection_param("aws_default", "Connection to AWS", kind="aws"),
}


@dag(
    **ON_REQUEST,
    params=PARAMS,
    tags=["streamvault", "copy"],
    doc_md=__doc__,
    description="Copies a stream to another cluster through a folder or a bucket.",
)
def copy_via_file() -> None:
    @task
    def choose_root() -> str:
        from streamvault.airflow.helpers import copy_root  # noqa: PLC0415  (only runs need it)
        from streamvault.airflow.outcome import raising_for_airflow  # noqa: PLC0415

        context = get_current_context()
        via = checked_params(context)["via"]
        with raising_for_airflow():
            return copy_root(via, context["dag"].dag_id, str(context["run_id"]))

    @task.short_circuit
    def wants_clean_up() -> bool:
        return bool(get_current_context()["params"]["clean_up"])

    @task
    def clean_up(root: str) -> int:
        from streamvault.airflow.helpers import remove_copy  # noqa: PLC0415
        from streamvault.airflow.outcome import raising_for_airflow  # noqa: PLC0415

        with raising_for_airflow():
            return remove_copy(root, get_current_context()["params"]["aws_conn_id"])

    root = choose_root()
    export = ExportStreamOperator(
        task_id="export",
        root=root,
        **templates("stream", "layout", "pravega_conn_id", "aws_conn_id"),
    )
    restore = ImportStreamOperator(
        task_id="import",
        archive="{{ ti.xcom_pull(task_ids='export')['archive'] }}",
        stream="{{ params.target }}",
        pravega_conn_id="{{ params.target_pravega_conn_id }}",
        aws_conn_id="{{ params.aws_conn_id }}",
    )
    export >> restore >> wants_clean_up() >> clean_up(root)  # type: ignore[arg-type]


copy_via_file()
