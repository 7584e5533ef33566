"""Archives Pravega streams to S3 and restores them. Each verb of the command line is one function here.

    from streamvault import check_archive, export_stream, import_stream

    export_stream("pravega://localhost:9090/shop/orders", "s3://vault")
    check_archive("s3://vault/shop/orders", read_data=True)
    import_stream("s3://vault/shop/orders", "pravega://localhost:9090/shop/restored")

Archive:   export_stream, follow_stream, rotate_stream, compact_archive, convert_archive, hold_archive, release_archive
Look:      list_archives, show_archive, show_timeline, check_archive, get_event, read_archive
Restore:   import_stream, warm_archive, translate
Mirror:    copy_stream, replicate_stream, promote_replica, move_stream
Tables:    write_table, table_ddl
Requests:  request_restore, work_queue, show_queue, retry_failed, drop_failed, skip_foreign
Demo:      run_demo

They raise the exceptions in `streamvault.errors`. Nothing heavy is imported until a function is used.
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
