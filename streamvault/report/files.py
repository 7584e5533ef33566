"""Files that are written whole or not at all."""

from __future__ import annotations

import secrets
from pathlib import Path

from streamvault.common.errors import Failed


def replace_file(file: Path, text: str) -> None:
    """Write a file whole or not at all: beside it, then renamed. A pipe or a device (``/dev/stdout``) is written to.

    Raises:
        Failed: it cannot be written.
    """
    try:
        if file.exists() and not file.is_file():  # root could put a file in the place of /dev/null
            file.write_text(text, encoding="utf-8")
            return
        file = file.resolve()  # a link stays one
        file.parent.mkdir(parents=True, exist_ok=True)
        made = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
        try:
            made.write_text(text, encoding="utf-8")
            made.replace(file)
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failed(f"the file cannot be written ({reason})", where=str(file), todo="Use another folder.") from None
