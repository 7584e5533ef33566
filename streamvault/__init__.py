"""Archives Pravega streams to S3 and restores them. Each verb of the command line is one function here.

    from streamvault import export_stream, import_stream, list_archives, show_archive, check_archive
    from streamvault import convert_archive, get_event, read_archive, warm_archive, write_table, table_ddl, run_demo
    from streamvault import compact_archive, follow_stream
    from streamvault import copy_stream, move_stream, promote_replica, replicate_stream, translate
    from streamvault import rotate_stream, hold_archive, release_archive, show_timeline
    from streamvault import request_restore, work_queue, show_queue, retry_failed, drop_failed, skip_foreign

They raise the exceptions in `streamvault.errors`. Nothing heavy is imported until a function is called.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any


def _homes() -> dict[str, str]:
    """Return the module of each public function, as the stub names it for type checkers."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
    found = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in found for name in node.names}


_HOMES = _homes()

__all__ = list(_HOMES)


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("streamvault.common.version").VERSION
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streamvault' has no attribute {name!r}")
