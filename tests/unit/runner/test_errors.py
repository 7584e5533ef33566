"""One line extracted from Spark's error messages."""

from __future__ import annotations

from streamvault.runner.runner import last_line

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
