"""Archives Pravega streams to S3 and restores them. Each verb of the command line is one function here.

    from streamvault import check_archive, export_stream, import_stream

    export_stream("pravega://localhost:9090/shop/orders", "s3://vault")
    check_archive("s3://vault/shop/orders", read_data=True)
    import_stream("s3://vault/shop/orders", "pravega://localhost:9090/shop/restored")

Archive:   plan_archive, export_stream, follow_stream, rotate_stream, compact_archive, convert_archive, hold_archive,
           release_archive, delete_archive
Streams:   list_streams, ephemeral_stream, sweep_scope, StreamManager
Look:      list_archives, show_archive, show_timeline, show_status, write_report, check_archive, get_event,
           read_archive, check_setup
Restore:   import_stream, warm_archive, translate
Mirror:    copy_stream, append_streams, join_streams, replicate_stream, promote_replica,
           move_stream
Tables:    write_table, table_ddl
Requests:  request_restore, work_queue, show_queue, retry_failed, drop_failed, skip_foreign
Demo:      run_demo

They raise the exceptions in `streamvault.errors`. Nothing heavy is imported until a function is used.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from typing import Any


@cache
def _homes() -> dict[str, str]:
    """Return the module of each public function, as the stub names it for type checkers."""
    loader: Any = __loader__  # of a folder, or of the zip file that executors import from
    stub = ast.parse(loader.get_data(f"{__file__}i"))
    found = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(node.module) for node in found for name in node.names}


@cache
def _public(name: str) -> Any:
    """Return a public function; the verbs among them also take scopes."""
    function = getattr(import_module(_homes()[name]), name)
    return import_module("streamvault.scopes.verb").taking_scopes(function)


def __dir__() -> list[str]:
    return [*_homes(), "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("streamvault.common.version").VERSION
    if name == "__all__":
        return list(_homes())
    if not name.startswith("_") and name in _homes():
        return _public(name)
    raise AttributeError(f"module 'streamvault' has no attribute {name!r}")
