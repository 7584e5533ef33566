"""Maps a command's outcome to Airflow: which failures are retried, and which are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from common.errors import Damaged, Failed, Problem

if TYPE_CHECKING:
    from streamvault.airflow.submit import Ended  # it imports the provider for Spark

__all__ = ["raising_for_airflow", "report_of"]

MOST_FINDINGS = 20
"""Maximum findings in the message of a failed task; the log has all of them."""

INTERRUPTED = 130


def report_of(ended: Ended) -> dict[str, Any]:
    """Return the report of a finished command.

    Raises:
        AirflowException: the command failed or was interrupted; a retry resumes it.
        AirflowFailException: a retry would fail in the same way: damage, a conflict, wrong usage, or something that
            does not exist.
    """
    document = ended.document or {}
    if ended.code == 0:
        if not document:
            raise AirflowException("the command succeeded but wrote no report")
        return document
    # a killed driver leaves only its exit code
    again = ended.code in {Failed.exit_code, INTERRUPTED} or ended.code < 0 or ended.code > 128
    message = ""
    error = document.get("error")
    if isinstance(error, dict):
        message = str(Problem(error["what"], where=error["where"], todo=error["todo"]))
        again = error.get("retriable", again)
    elif ended.code == Damaged.exit_code:
        message = _damage(document)
    raise _exception(message or ended.said or f"the command exited with code {outcome.code}", again=again)


@contextmanager
def raising_for_airflow() -> Iterator[None]:
    """Convert a `Problem` to the exception that makes Airflow retry the task, or fail it at once.

    Raises:
        AirflowException, AirflowFailException: as for `report_of`.
    """
    try:
        yield
    except Problem as problem:
        raise _exception(str(problem), again=problem.retriable) from None


def _exception(message: str, *, again: bool) -> Exception:
    return AirflowException(message) if again else AirflowFailException(message)


def _damage(document: dict[str, Any]) -> str:
    findings = document.get("findings", [])
    more = len(findings) + document.get("more_findings", 0) - MOST_FINDINGS
    lines = [f"{document.get('archive')} is damaged:", *findings[:MOST_FINDINGS]]
    if more > 0:
        lines.append(f"and {more} more")
    return "\n".join(lines)
