"""Maps a command's outcome to Airflow: which failures are retried, and which are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from streamvault.common.errors import Damaged, Failed, Problem

if TYPE_CHECKING:
    from streamvault.airflow.submit import Outcome  # it imports the provider for Spark

MAX_FINDINGS = 20
"""Maximum findings in the message of a failed task; the log has all of them."""

INTERRUPTED = 130


def report_of(outcome: Outcome) -> dict[str, Any]:
    """Return the report of a finished command.

    Raises:
        AirflowException: the command failed or was interrupted; a retry resumes it.
        AirflowFailException: a retry would fail in the same way: damage, a conflict, wrong usage, or something that
            does not exist.
    """
    document = outcome.document or {}
    if outcome.code == 0:
        if not document:
            raise AirflowException("the command succeeded but wrote no report")
        return document
    # a killed driver leaves only its exit code
    retriable = outcome.code in {Failed.exit_code, INTERRUPTED} or outcome.code < 0 or outcome.code > 128
    message = ""
    error = document.get("error")
    if isinstance(error, dict):
        message = _text(error)
        retriable = error.get("retriable", retriable)
    elif failed := [each for each in document.get("outcomes", ()) if each["exit_code"]]:
        message = "\n".join(f"{each['stream']}: {_failure(each)}" for each in failed[:MAX_FINDINGS])
        message += f"\nand {len(failed) - MAX_FINDINGS} more" if len(failed) > MAX_FINDINGS else ""
        retriable = any((each["failure"] or {}).get("retriable") for each in failed)
    elif outcome.code == Damaged.exit_code:
        message = _damage(document)
    raise exception_for_airflow(
        message or outcome.log_tail or f"the command exited with code {outcome.code}", retriable=retriable
    )


def reports_in(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a command reports for each stream: of a scope's report, those of the streams that are still there."""
    return [each["result"] for each in report["outcomes"] if each["result"]] if "outcomes" in report else [report]


@contextmanager
def raising_for_airflow() -> Iterator[None]:
    """Convert a `Problem` to the exception that makes Airflow retry the task, or fail it at once.

    Raises:
        AirflowException, AirflowFailException: as for `report_of`.
    """
    try:
        yield
    except Problem as problem:
        raise exception_for_airflow(str(problem), retriable=problem.retriable) from None


def found_in(event: Mapping[str, Any]) -> Any:
    """Return what a `streamvault.airflow.triggers.LookingTrigger` found.

    Raises:
        AirflowException, AirflowFailException: it could not look.
    """
    if event["error"]:
        raise exception_for_airflow(event["error"], retriable=event["retriable"])
    return event["found"]


def exception_for_airflow(message: str, *, retriable: bool) -> Exception:
    """Return the exception that makes Airflow retry the task, or fail it at once."""
    return AirflowException(message) if retriable else AirflowFailException(message)


def _text(error: Mapping[str, Any]) -> str:
    return str(Problem(error["what"], where=error["where"], todo=error["todo"]))


def _failure(outcome: Mapping[str, Any]) -> str:
    """Return why a command for a scope failed for a stream."""
    return _text(outcome["failure"]) if outcome["failure"] else _damage(outcome["result"])


def _damage(document: dict[str, Any]) -> str:
    findings = document.get("findings", [])
    more = len(findings) + document.get("more_findings", 0) - MAX_FINDINGS
    what = f"{document.get('archive')} is damaged:"
    if "stream" in document:
        what = f"{document['stream']} was restored without the damaged parts of {document.get('archive')}:"
    lines = [what, *findings[:MAX_FINDINGS]]
    if more > 0:
        lines.append(f"and {more} more")
    return "\n".join(lines)
