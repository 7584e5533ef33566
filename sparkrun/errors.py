"""What can go wrong with Spark itself and with a task, by name."""

from __future__ import annotations

from common.errors import Failed, Usage

__all__ = ["InvalidMaster", "NoJava", "SparkFailed", "TaskFailed"]


class InvalidMaster(Usage):
    """A ``--master`` that is no master URL."""


class NoJava(Failed):
    """Spark needs a Java runtime and there is none that it can use."""

    retriable = False


class SparkFailed(Failed):
    """Spark did not start, or went away."""


class TaskFailed(Failed):
    """A task ended with an error that is not a `Problem`, after Spark's retries."""
