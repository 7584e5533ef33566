"""Which S3 storage classes data may be put into."""

from __future__ import annotations

import re

from common.errors import Usage
from objectstore.uri import RootAddress

__all__ = ["check_readable", "check_storage_class"]

_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_NOT_READ_AT_ONCE = {"GLACIER", "DEEP_ARCHIVE"}


def check_storage_class(storage_class: str, root: RootAddress) -> None:
    """Refuse what cannot be a storage class there; whether the server has it, only the server knows.

    Raises:
        Usage: it cannot.
    """
    if not storage_class:
        return
    if root.scheme == "file":
        raise Usage("a folder has no storage classes", where=root.uri, todo="Leave --storage-class out.")
    if not _NAME.fullmatch(storage_class):
        todo = "Write it as S3 does, for example STANDARD_IA."
        raise Usage("not a storage class", where=repr(storage_class), todo=todo)


def check_readable(storage_class: str) -> None:
    """Refuse a storage class whose objects cannot be read as soon as they are written.

    Raises:
        Usage: it is one.
    """
    if storage_class in _NOT_READ_AT_ONCE:
        todo = "Use GLACIER_IR, or have a lifecycle rule move the objects later."
        raise Usage(
            "a rotation reads back what it has written, and this storage class does not allow that",
            where=storage_class,
            todo=todo,
        )
