"""Exceptions raised by Streamvault.

Every error is a `Problem`: one line with what happened, where, and what to do. Its class determines the exit code of
the command line. Catch `Problem` for all errors, `Failed` for those that may not recur later, `Absent` if something
does not exist, and `Conflict` if something that exists is in the way.
"""

from __future__ import annotations

from streamvault.common.errors import Absent, Conflict, Damaged, Failed, Overtaken, Problem, Usage
from streamvault.objectstore.store import InArchiveClass, NoSuchBucket, ObjectStoreError, ObjectStoreUnavailable
from streamvault.streamstore.errors import (
    InvalidCut,
    InvalidName,
    NoSuchStream,
    StreamExists,
    StreamStoreError,
    StreamStoreUnavailable,
)

__all__ = [
    "Absent",
    "Conflict",
    "Damaged",
    "Failed",
    "InArchiveClass",
    "InvalidCut",
    "InvalidName",
    "NoSuchBucket",
    "NoSuchStream",
    "ObjectStoreError",
    "ObjectStoreUnavailable",
    "Overtaken",
    "Problem",
    "StreamExists",
    "StreamStoreError",
    "StreamStoreUnavailable",
    "Usage",
]
