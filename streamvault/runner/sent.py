"""What is sent to executors with a task."""

from __future__ import annotations

import io
from typing import Any

from pyspark import cloudpickle

from streamvault.objectstore.s3.access import StaticKeys
from streamvault.streamstore.pravega.connection import PravegaSettings


def has_login(sent: object) -> bool:
    """Return whether an object, or any that it refers to, has a key or a password."""
    looking = _Looking(io.BytesIO())  # type: ignore[no-untyped-call]
    looking.dump(sent)  # type: ignore[no-untyped-call]
    return looking.found


class _Looking(cloudpickle.Pickler):
    found = False

    def reducer_override(self, obj: Any) -> Any:
        """See the base class."""
        self.found |= isinstance(obj, StaticKeys) or (isinstance(obj, PravegaSettings) and bool(obj.password))
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]
