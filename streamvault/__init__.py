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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamvault.demo import run_demo
    from streamvault.exporter.convert.convert import convert_archive
    from streamvault.exporter.export import export_stream
    from streamvault.importer.import_ import import_stream
    from streamvault.lake.handoff import table_ddl, write_table
    from streamvault.lake.read import read_archive
    from streamvault.manifests.verbs.check import check_archive
    from streamvault.manifests.verbs.get import get_event
    from streamvault.manifests.verbs.hold import hold_archive, release_archive
    from streamvault.manifests.verbs.show import list_archives, show_archive, show_timeline
    from streamvault.manifests.verbs.warm import warm_archive
    from streamvault.mirrors.copy import copy_stream
    from streamvault.mirrors.move import move_stream
    from streamvault.mirrors.promote import promote_replica
    from streamvault.mirrors.replicate import replicate_stream
    from streamvault.mirrors.translate import translate
    from streamvault.requests.request import request_restore
    from streamvault.requests.show import drop_failed, retry_failed, show_queue, skip_foreign
    from streamvault.requests.work import work_queue
    from streamvault.rotation.compact.compact import compact_archive
    from streamvault.rotation.follow import follow_stream
    from streamvault.rotation.rotate import rotate_stream

__all__ = [
    "check_archive",
    "compact_archive",
    "convert_archive",
    "copy_stream",
    "drop_failed",
    "export_stream",
    "follow_stream",
    "get_event",
    "hold_archive",
    "import_stream",
    "list_archives",
    "move_stream",
    "promote_replica",
    "read_archive",
    "release_archive",
    "replicate_stream",
    "request_restore",
    "retry_failed",
    "rotate_stream",
    "run_demo",
    "show_archive",
    "show_queue",
    "show_timeline",
    "skip_foreign",
    "table_ddl",
    "translate",
    "warm_archive",
    "work_queue",
    "write_table",
]

_HOMES = {
    "export_stream": "streamvault.exporter.export",
    "import_stream": "streamvault.importer.import_",
    "copy_stream": "streamvault.mirrors.copy",
    "replicate_stream": "streamvault.mirrors.replicate",
    "promote_replica": "streamvault.mirrors.promote",
    "move_stream": "streamvault.mirrors.move",
    "translate": "streamvault.mirrors.translate",
    "list_archives": "streamvault.manifests.verbs.show",
    "show_archive": "streamvault.manifests.verbs.show",
    "show_timeline": "streamvault.manifests.verbs.show",
    "rotate_stream": "streamvault.rotation.rotate",
    "hold_archive": "streamvault.manifests.verbs.hold",
    "release_archive": "streamvault.manifests.verbs.hold",
    "check_archive": "streamvault.manifests.verbs.check",
    "compact_archive": "streamvault.rotation.compact.compact",
    "follow_stream": "streamvault.rotation.follow",
    "convert_archive": "streamvault.exporter.convert.convert",
    "get_event": "streamvault.manifests.verbs.get",
    "read_archive": "streamvault.lake.read",
    "write_table": "streamvault.lake.handoff",
    "table_ddl": "streamvault.lake.handoff",
    "run_demo": "streamvault.demo",
    "warm_archive": "streamvault.manifests.verbs.warm",
    "request_restore": "streamvault.requests.request",
    "show_queue": "streamvault.requests.show",
    "retry_failed": "streamvault.requests.show",
    "drop_failed": "streamvault.requests.show",
    "skip_foreign": "streamvault.requests.show",
    "work_queue": "streamvault.requests.work",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("streamvault.common.version").VERSION
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streamvault' has no attribute {name!r}")
