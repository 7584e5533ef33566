"""Roots in local folders: ``file:///FOLDER``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from objectstore.errors import InvalidRoot
from objectstore.folder.store import FolderStore
from objectstore.scheme import Scheme
from objectstore.store import ObjectStore

__all__ = ["SCHEME"]


class _FolderScheme(Scheme):
    form = "file:///FOLDER"

    def parse(self, rest: str, uri: str) -> tuple[str, str]:
        """No place, and the folder's path without its first slash."""
        folder = unquote(rest.removeprefix("localhost"))
        if not folder.startswith("/"):
            raise InvalidRoot("not an absolute folder", where=repr(uri), todo=f"Use {self.form}, with three slashes.")
        if "\0" in folder or ".." in folder.split("/"):
            raise InvalidRoot("invalid folder", where=repr(uri), todo="Remove '..' and control characters.")
        return "", os.path.normpath("/" + folder).lstrip("/")

    def format(self, place: str, path: str) -> str:
        """See the base class."""
        return f"{place}/{quote(path)}"

    def open(self, place: str, path: str, access: Any, **_: Any) -> ObjectStore:  # noqa: ARG002
        """See the base class."""
        return FolderStore(Path("/", path))


SCHEME = _FolderScheme()
