"""What a command's exit code means to Airflow: what is worth a retry, and what is not."""

from __future__ import annotations

from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from problems import Damaged, Failed, Problem
from streamvault.airflow.submit import Ended

__all__ = ["report_of"]

MOST_FINDINGS = 20
"""How many damaged places the message of a failed task names; the log has them all."""

INTERRUPTED = 130


def report_of(ended: Ended) -> dict[str, Any]:
    """The report of a command that is done.

    Raises:
        AirflowException: it failed or was interrupted; a retry goes on where it stopped.
        AirflowFailException: damage, a conflict or a wrong usage, which a retry would only find again.
    """
    document = ended.document or {}
    if ended.code == 0:
        if not document:
            raise AirflowException("the command ended well and left no report")
        return document
    message = _message(ended.code, document) or ended.said or f"the command ended with {ended.code}"
    again = ended.code in {Failed.exit_code, INTERRUPTED} or ended.code < 0 or ended.code > 128
    if again:
        raise AirflowException(message)
    raise AirflowFailException(message)


def _message(code: int, document: dict[str, Any]) -> str:
    error = document.get("error")
    if isinstance(error, dict):
        return str(Problem(error["what"], where=error["where"], todo=error["todo"]))
    if code != Damaged.exit_code:
        return ""
    findings = document.get("findings", [])
    more = len(findings) + document.get("more_findings", 0) - MOST_FINDINGS
    lines = [f"{document.get('archive')} is damaged:", *findings[:MOST_FINDINGS]]
    if more > 0:
        lines.append(f"and {more} more")
    return "\n".join(lines)
