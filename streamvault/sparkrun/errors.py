"""Errors of Spark and of tasks."""

from __future__ import annotations

from streamvault.common.errors import Failed, Usage


class InvalidMaster(Usage):
    """``--master`` is not a valid master URL."""


class NoJava(Failed):
    """There is no Java runtime that Spark can use."""

    retriable = False


class SparkFailed(Failed):
    """Spark did not start, or ended unexpectedly."""


class TaskFailed(Failed):
    """A task failed with an error other than a `Problem`, after Spark's retries."""
