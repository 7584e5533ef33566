"""Master URLs: their meaning, invalid ones, and a master that does not answer.

One line extracted from Spark's error messages.
"""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from streamvault.common.errors import Usage
from streamvault.runner.opening import open_runner
from streamvault.runner.runner import InvalidMaster, Master, SparkFailed, last_line


@pytest.mark.parametrize(
    ("url", "kind", "on_loopback"),
    [
        ("inline", "inline", False),
        ("inline[4]", "inline", False),
        ("local", "local", True),
        ("local[2]", "local", True),
        ("local[*]", "local", True),
        ("local[*, 3]", "local", True),
        ("local-cluster[2,1,512]", "cluster", True),
        ("spark://127.0.0.1:7077", "cluster", True),
        ("spark://[::1]:7077", "cluster", True),
        ("spark://127.0.0.1:7077,spark.example:7077", "cluster", False),
        ("spark://spark.example:7077", "cluster", False),
        ("yarn", "cluster", False),
        ("k8s://https://cluster.example:6443", "cluster", False),
    ],
)
def test_master_url_has_its_kind(url: str, kind: str, on_loopback: bool) -> None:
    master = Master.parse(url)
    assert (master.kind, master.on_loopback or kind == "inline") == (kind, on_loopback or kind == "inline")


@pytest.mark.parametrize(
    "url",
    ["", "lokal", "local[0]", "local[x]", "inline[0]", "spark://", "spark://host", "spark://host:0", "spark://h:99999",
     "spark://h:٣", "http://host:7077", "mesos://host:5050", "local\n", "yarn-client"],
)  # fmt: skip
def test_invalid_master_url_is_wrong_usage(url: str) -> None:
    with pytest.raises(InvalidMaster) as caught, open_runner(url):
        pass
    assert isinstance(caught.value, Usage)
    assert "\n" not in str(caught.value)


def test_master_that_is_down_fails_at_once() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # the port is bound, but nothing listens
        url = f"spark://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(SparkFailed, match=r"the Spark master does not answer .*refused") as caught:
            Master.parse(url).check_reachable()
    assert url in str(caught.value)


PYTHON_ERROR = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 1.0 failed 1 times, most recent \
failure: Lost task 3.0 in stage 1.0 (TID 5) (localhost executor driver): org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "worker.py", line 2044, in main
    process()
  File "sizes.py", line 5, in work
    raise ValueError(
    ^^^^^^^^^^^^^^^^^
ValueError: the first line
and the second

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2898)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 2044, in main
    process()
KeyError: 'of another attempt'
"""
LOST_EXECUTOR = """org.apache.spark.SparkException: Job aborted due to stage failure: \
Task 0 in stage 0.0 failed 4 times, \
most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited \
caused by one of the running tasks) Reason: worker lost
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.x(DAGScheduler.scala:1)"""


def test_last_line_is_the_cause_of_the_failure() -> None:
    assert last_line(PYTHON_ERROR) == "ValueError: the first line and the second"
    assert last_line(LOST_EXECUTOR).startswith("ExecutorLostFailure (executor 1 exited caused by")
    assert last_line("org.apache.spark.SparkException: Could not parse Master URL: 'x'\n\tat org.a.B(C.scala:1)") == (
        "Could not parse Master URL: 'x'"
    )
    assert last_line("") == "no reason given"


PY4J = """
import logging
from streamvault.runner.session import _silence_py4j

_silence_py4j()
exec(compile("logging.exception('reset')", "/packages/py4j/java_gateway.py", "exec"))
logging.error("another")
"""


def test_a_connection_to_spark_that_is_reset_is_not_logged() -> None:
    """py4j logs a traceback by the root logger, which nobody but the command line has set up."""
    said = subprocess.run([sys.executable, "-c", PY4J], check=True, capture_output=True, text=True).stderr
    assert said == "ERROR:root:another\n"
