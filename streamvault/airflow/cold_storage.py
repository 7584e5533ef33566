"""Waits for the objects in cold storage that a restore needs; S3 is reached with a connection's client."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from streamvault.airflow.aws import s3_client
from streamvault.airflow.operators.warm import TIMEOUT_HOURS
from streamvault.airflow.outcome import raising_for_airflow
from streamvault.airflow.triggers import ArchiveReadableTrigger, open_archive
from streamvault.common.progress import Progress
from streamvault.common.units import parse_moment
from streamvault.importer.import_ import generation_at
from streamvault.manifests.archive import Archive
from streamvault.manifests.options import POLL_SECONDS, WarmOptions
from streamvault.manifests.verbs.warm import (
    Span,
    first_cold,
    joined_parts,
    manifests_span,
    needed_parts,
    request_cold,
    spans_of,
)
from streamvault.objectstore.s3.cold import BucketColdStorage


def require_readable(
    task: Any,
    *,
    days: int | str,
    tier: str,
    wait: bool = True,
    poll_seconds: float = POLL_SECONDS,
    timeout_hours: float = TIMEOUT_HOURS,
) -> None:
    """Return if all objects can be read; otherwise request them, and defer the task.

    Args:
        task: the operator; has `archive`, `generation`, `at` and `aws_conn_id`.
        days: as for `WarmArchiveOperator`.
        tier: likewise.
        wait: likewise.
        poll_seconds: likewise.
        timeout_hours: likewise.

    Raises:
        TaskDeferred: the task goes on in its method ``execute_complete``, which must ask again.
        AirflowException, AirflowFailException: the objects cannot be requested, or must not be waited for.
    """
    with raising_for_airflow():
        generation = int(task.generation) if task.generation else None
        # the class validates the tier's name
        options = WarmOptions(generation=generation, days=int(days), tier=tier)  # type: ignore[arg-type]
        archive = open_archive(task.archive, task.aws_conn_id)
        storage = open_storage(archive, task.aws_conn_id)

        def require(spans: Sequence[Span]) -> None:
            cold, left = first_cold(storage, spans)
            if cold is None:
                return
            if not wait:
                raise AirflowFailException(f"{task.archive} is in cold storage ({cold.key}), and wait is false")
            *_, requested = request_cold(storage, left, options, Progress())
            task.log.info("requested %s objects of %s from S3", requested, task.archive)
            trigger = ArchiveReadableTrigger(
                archive=task.archive,
                spans=[list(span) for span in left],
                aws_conn_id=task.aws_conn_id,
                poll_seconds=poll_seconds,
            )
            raise TaskDeferred(trigger=trigger, method_name="execute_complete", timeout=timedelta(hours=timeout_hours))

        require([manifests_span(archive.prefix)])  # they list the other objects
        upto = generation_at(archive, parse_moment(task.at, "at")) if task.at else generation
        require(spans_of(archive.prefix, joined_parts(needed_parts(archive.history(upto)))))
    task.log.info("all required objects of %s are readable", task.archive)


def open_storage(archive: Archive, aws_conn_id: str | None) -> BucketColdStorage:
    """Return what asks S3 for an archive's objects, with a connection's client."""
    return BucketColdStorage(archive.root, s3_client(aws_conn_id))
