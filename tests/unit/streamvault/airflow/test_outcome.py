"""What the end of a command means for Airflow."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from streamvault.airflow.outcome import raising_for_airflow, report_of
from streamvault.airflow.submit import Outcome
from streamvault.cli.running import error_document
from streamvault.common.errors import Conflict, Overtaken, Problem
from streamvault.manifests.archive import NoSuchArchive
from streamvault.objectstore.store import AccessDenied, NoSuchBucket
from streamvault.runner.runner import NoJava
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream, StoreBusy, StreamStoreUnavailable
from streamvault.streamstore.lease import LeaseHeld

STREAM, ARCHIVE = "local:///data/shop/orders", "file:///vault/shop/orders"


def ended(code: int, **document: Any) -> Outcome:
    return Outcome(code, document or None, "the last lines")


ERROR = {"what": "it is not there", "where": "s3://v", "todo": "Look.", "exit_code": 0}


def test_report_of_a_successful_command_is_returned() -> None:
    assert report_of(ended(0, events=1)) == {"events": 1}


@pytest.mark.parametrize(
    ("code", "again"), [*((code, True) for code in (1, 130, -9, 137, 143)), *((code, False) for code in (2, 3, 4))]
)
def test_exit_code_decides_whether_airflow_retries(code: int, again: bool) -> None:
    with pytest.raises(AirflowException, match=r"it is not there: s3://v. Look.") as raised:
        report_of(ended(code, error=ERROR))
    assert isinstance(raised.value, AirflowFailException) is not again


@pytest.mark.parametrize(
    ("problem", "again"),
    [
        (NoSuchArchive("no archive"), False),
        (NoSuchStream("no such stream"), False),
        (NoSuchScope("no such scope"), False),
        (NoSuchBucket("no such bucket"), False),
        (NoJava("no Java runtime"), False),
        (StreamStoreUnavailable("Pravega does not answer"), True),
        (AccessDenied("the credentials have expired"), True),
        (Conflict("another archive"), False),
        (Overtaken("generations were merged"), True),
        (LeaseHeld("another import is alive"), True),
        (StoreBusy("another process is writing"), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Problem) else "",
)
def test_kind_of_problem_decides_whether_airflow_retries(problem: Problem, again: bool) -> None:
    document = error_document(problem)
    with pytest.raises(AirflowException, match=problem.what) as said_by_a_command:
        report_of(Outcome(problem.exit_code, document))
    with pytest.raises(AirflowException, match=problem.what) as said_in_a_task, raising_for_airflow():
        raise problem
    for raised in (said_by_a_command, said_in_a_task):
        assert isinstance(raised.value, AirflowFailException) is not again


def test_overtaken_run_is_told_to_run_the_command_again() -> None:
    assert Overtaken("x").todo == "Run the same command again."
    assert pickle.loads(pickle.dumps(Overtaken("x", todo="Wait."))).todo == "Wait."


def test_driver_without_a_report_fails_the_attempt() -> None:
    with pytest.raises(AirflowException, match="the last lines"):
        report_of(ended(1))
    with pytest.raises(AirflowException, match="no report"):
        report_of(ended(0))


def test_damage_is_listed_up_to_a_limit() -> None:
    findings = [f"range {number} is gone" for number in range(30)]
    with pytest.raises(AirflowFailException) as raised:
        report_of(ended(3, archive=ARCHIVE, ok=False, findings=findings, more_findings=5))
    lines = str(raised.value).splitlines()
    assert lines[:2] == [f"{ARCHIVE} is damaged:", "range 0 is gone"]
    assert lines[-2:] == ["range 19 is gone", "and 15 more"]


@pytest.mark.parametrize("retriable", [True, False])
def test_failures_of_a_scopes_streams_are_listed(retriable: bool) -> None:
    """A retry is worthwhile if one of them may succeed."""
    failures = [{"what": "it is another stream", "where": "s3://v", "todo": "", "retriable": False}] * 24
    failures[3] = {"what": "it does not answer", "where": "", "todo": "", "retriable": retriable}
    outcomes: list[dict[str, Any]] = [
        {"stream": f"s/{number}", "exit_code": 4, "result": None, "failure": failure}
        for number, failure in enumerate(failures)
    ]
    damaged = {"archive": ARCHIVE, "findings": ["range 1 is gone"]}
    outcomes[0] = {"stream": "s/done", "exit_code": 0, "result": {}, "failure": None}
    outcomes[1] = {"stream": "s/damaged", "exit_code": 3, "result": damaged, "failure": None}
    with pytest.raises(AirflowException) as raised:
        report_of(ended(1, outcomes=outcomes))
    assert isinstance(raised.value, AirflowFailException) is not retriable
    lines = str(raised.value).splitlines()
    assert lines[0] == f"s/damaged: {ARCHIVE} is damaged:"
    assert lines[1:4] == ["range 1 is gone", "s/2: it is another stream: s3://v", "s/3: it does not answer"]
    assert lines[-1] == "and 3 more"


def test_import_that_left_damage_out_fails_and_says_that_the_stream_is_there() -> None:
    with pytest.raises(AirflowFailException) as raised:
        report_of(ended(3, archive=ARCHIVE, stream=STREAM, findings=["range 1 is gone"]))
    lines = [f"{STREAM} was restored without the damaged parts of {ARCHIVE}:", "range 1 is gone"]
    assert str(raised.value).splitlines() == lines
