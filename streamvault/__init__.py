"""Archives Pravega streams to S3 and restores them. Each verb of the command line is one function here.

    from streamvault import export_stream, import_stream, list_archives, show_archive, check_archive
    from streamvault import convert_archive, get_event, read_archive, warm_archive, handoff_archive, run_demo
    from streamvault import compact_archive, follow_stream
    from streamvault import copy_stream, move_stream, promote_replica, replicate_stream, translate
    from streamvault import rotate_stream, hold_archive, release_archive, show_timeline
    from streamvault import request_restore, work_queue, show_queue

They raise the exceptions in `streamvault.errors`. Nothing heavy is imported until a function is called.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.convert.convert import convert_archive
    from exporter.export import export_stream
    from importer.copy import copy_stream
    from importer.import_ import import_stream
    from importer.move import move_stream
    from importer.promote import promote_replica
    from importer.queue.request import request_restore
    from importer.queue.show import show_queue
    from importer.queue.work import work_queue
    from importer.replicate import replicate_stream
    from importer.translate import translate
    from lake.handoff import handoff_archive, print_table_ddl
    from lake.read import read_archive
    from manifests.check_archive import check_archive
    from manifests.get import get_event
    from manifests.hold import hold_archive, release_archive
    from manifests.show import list_archives, show_archive, show_timeline
    from manifests.warm import warm_archive
    from rotation.compact.compact import compact_archive
    from rotation.follow import follow_stream
    from rotation.rotate import rotate_stream
    from streamvault.demo import run_demo

__all__ = [
    "check_archive",
    "compact_archive",
    "convert_archive",
    "copy_stream",
    "export_stream",
    "follow_stream",
    "get_event",
    "handoff_archive",
    "hold_archive",
    "import_stream",
    "list_archives",
    "move_stream",
    "print_table_ddl",
    "promote_replica",
    "read_archive",
    "release_archive",
    "replicate_stream",
    "request_restore",
    "rotate_stream",
    "run_demo",
    "show_archive",
    "show_queue",
    "show_timeline",
    "translate",
    "warm_archive",
    "work_queue",
]

_ROOMS = (
    "common",
    "exporter",
    "importer",
    "lake",
    "layouts",
    "manifests",
    "objectstore",
    "rotation",
    "sparkrun",
    "streamstore",
)
"""Packages installed beside this one. Their names are common, so another distribution may use the same."""

_HOMES = {
    "export_stream": "exporter.export",
    "import_stream": "importer.import_",
    "copy_stream": "importer.copy",
    "replicate_stream": "importer.replicate",
    "promote_replica": "importer.promote",
    "move_stream": "importer.move",
    "translate": "importer.translate",
    "list_archives": "manifests.show",
    "show_archive": "manifests.show",
    "show_timeline": "manifests.show",
    "rotate_stream": "rotation.rotate",
    "hold_archive": "manifests.hold",
    "release_archive": "manifests.hold",
    "check_archive": "manifests.check_archive",
    "compact_archive": "rotation.compact.compact",
    "follow_stream": "rotation.follow",
    "convert_archive": "exporter.convert.convert",
    "get_event": "manifests.get",
    "read_archive": "lake.read",
    "handoff_archive": "lake.handoff",
    "print_table_ddl": "lake.handoff",
    "run_demo": "streamvault.demo",
    "warm_archive": "manifests.warm",
    "request_restore": "importer.queue.request",
    "show_queue": "importer.queue.show",
    "work_queue": "importer.queue.work",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("common.version").VERSION
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streamvault' has no attribute {name!r}")


def _check_rooms() -> None:
    """Check that imports find the packages beside this one.

    Raises:
        ImportError: another distribution has a package of the same name.
    """
    mine = PurePath(__file__).parent.parent
    for room in _ROOMS:
        spec = find_spec(room)
        if spec is None or spec.origin is None or PurePath(spec.origin).parent.parent != mine:
            found = "is missing" if spec is None else f"is shadowed by {spec.origin}"
            raise ImportError(
                f"Streamvault's package {room!r} {found}. Install Streamvault in an environment of its own."
            )


_check_rooms()
