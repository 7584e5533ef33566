"""S3 storage classes: their validation, and the retrieval tiers of archive classes."""

from __future__ import annotations

import re
from typing import Literal

from streamvault.common.errors import Usage
from streamvault.objectstore.uri import RootAddress

Tier = Literal["Bulk", "Standard", "Expedited"]

_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_NOT_READ_AT_ONCE = {"GLACIER", "DEEP_ARCHIVE"}


def check_storage_class(storage_class: str, root: RootAddress) -> None:
    """Validate the form of a storage class; whether the server supports it, only the server knows.

    Raises:
        Usage: it is malformed, or the root has no storage classes.
    """
    if not storage_class:
        return
    if not root.scheme.has_storage_classes:
        raise Usage("this root has no storage classes", where=root.uri, todo="Omit --storage-class.")
    if not _NAME.fullmatch(storage_class):
        todo = "Use S3's name, for example STANDARD_IA."
        raise Usage("not a storage class", where=repr(storage_class), todo=todo)


def check_readable(storage_class: str) -> None:
    """Reject a storage class whose objects cannot be read right after they are written.

    Raises:
        Usage: the objects of this class cannot be read at once.
    """
    if storage_class in _NOT_READ_AT_ONCE:
        todo = "Use GLACIER_IR, or have a lifecycle rule move the objects later."
        raise Usage(
            "a rotation reads back what it has written, which this storage class does not allow",
            where=storage_class,
            todo=todo,
        )
