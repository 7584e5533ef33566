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
Serve:     serve_archives
Demo:      run_demo

They raise the exceptions in `streamvault.errors`. Nothing heavy is imported until a function is used.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

_HOMES = {
    "run_demo": "streamvault.demo.tour",
    "convert_archive": "streamvault.exporter.convert",
    "export_stream": "streamvault.exporter.export",
    "plan_archive": "streamvault.exporter.forecast",
    "import_stream": "streamvault.importer.import_",
    "append_streams": "streamvault.concat.append",
    "join_streams": "streamvault.concat.append",
    "table_ddl": "streamvault.lake.handoff",
    "write_table": "streamvault.lake.handoff",
    "read_archive": "streamvault.lake.read",
    "ephemeral_stream": "streamvault.manager.ephemeral",
    "list_streams": "streamvault.manager.manager",
    "StreamManager": "streamvault.manager.manager",
    "sweep_scope": "streamvault.manager.sweep",
    "check_archive": "streamvault.manifests.verbs.check",
    "delete_archive": "streamvault.manifests.verbs.delete",
    "get_event": "streamvault.manifests.verbs.show",
    "hold_archive": "streamvault.manifests.verbs.delete",
    "release_archive": "streamvault.manifests.verbs.delete",
    "list_archives": "streamvault.manifests.verbs.show",
    "show_archive": "streamvault.manifests.verbs.show",
    "show_timeline": "streamvault.manifests.verbs.show",
    "warm_archive": "streamvault.manifests.verbs.warm",
    "copy_stream": "streamvault.replication.copy",
    "move_stream": "streamvault.replication.move",
    "promote_replica": "streamvault.replication.promote",
    "replicate_stream": "streamvault.replication.replicate",
    "translate": "streamvault.replication.translate",
    "check_setup": "streamvault.inspect.doctor",
    "write_report": "streamvault.inspect.write",
    "request_restore": "streamvault.requests.show",
    "drop_failed": "streamvault.requests.show",
    "retry_failed": "streamvault.requests.show",
    "show_queue": "streamvault.requests.show",
    "skip_foreign": "streamvault.requests.show",
    "work_queue": "streamvault.requests.work",
    "compact_archive": "streamvault.exporter.compact",
    "follow_stream": "streamvault.exporter.follow",
    "rotate_stream": "streamvault.exporter.rotate",
    "show_status": "streamvault.scopes.status",
    "serve_archives": "streamvault.serving.serve",
}
"""The module of each public function."""


@cache
def _public(name: str) -> Any:
    """Return a public function; the verbs among them also take scopes."""
    function = getattr(import_module(_HOMES[name]), name)
    return import_module("streamvault.scopes.uri").taking_scopes(function)


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("streamvault.common.version").VERSION
    if name == "__all__":
        return list(_HOMES)
    if not name.startswith("_") and name in _HOMES:
        return _public(name)
    raise AttributeError(f"module 'streamvault' has no attribute {name!r}")
