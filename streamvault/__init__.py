"""Archives Pravega streams to S3 and restores them. Each verb of the command line is one function here.

    from streamvault import export_stream, import_stream, list_archives, show_archive, check_archive
    from streamvault import convert_archive, get_event, read_archive, warm_archive, handoff_archive, run_demo
    from streamvault import compact_archive, follow_stream
    from streamvault import rotate_stream, hold_archive, release_archive, show_timeline
    from streamvault import request_restore, work_queue, show_queue

Nothing heavy is imported until a verb is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamvault.checking import check_archive
    from streamvault.compacting import compact_archive
    from streamvault.converting import convert_archive
    from streamvault.demo import run_demo
    from streamvault.exporting import export_stream
    from streamvault.following import follow_stream
    from streamvault.getting import get_event
    from streamvault.handing_off import handoff_archive, print_table_ddl
    from streamvault.holding import hold_archive, release_archive
    from streamvault.importing import import_stream
    from streamvault.looking import list_archives, show_archive, show_timeline
    from streamvault.reading import read_archive
    from streamvault.rotating import rotate_stream
    from streamvault.warming import warm_archive
    from streamvault.work.asking import request_restore
    from streamvault.work.looking import show_queue
    from streamvault.work.working import work_queue

__all__ = [
    "check_archive",
    "compact_archive",
    "convert_archive",
    "export_stream",
    "follow_stream",
    "get_event",
    "handoff_archive",
    "hold_archive",
    "import_stream",
    "list_archives",
    "print_table_ddl",
    "read_archive",
    "release_archive",
    "request_restore",
    "rotate_stream",
    "run_demo",
    "show_archive",
    "show_queue",
    "show_timeline",
    "warm_archive",
    "work_queue",
]

_HOMES = {
    "export_stream": "streamvault.exporting",
    "import_stream": "streamvault.importing",
    "list_archives": "streamvault.looking",
    "show_archive": "streamvault.looking",
    "show_timeline": "streamvault.looking",
    "rotate_stream": "streamvault.rotating",
    "hold_archive": "streamvault.holding",
    "release_archive": "streamvault.holding",
    "check_archive": "streamvault.checking",
    "compact_archive": "streamvault.compacting",
    "follow_stream": "streamvault.following",
    "convert_archive": "streamvault.converting",
    "get_event": "streamvault.getting",
    "read_archive": "streamvault.reading",
    "handoff_archive": "streamvault.handing_off",
    "print_table_ddl": "streamvault.handing_off",
    "run_demo": "streamvault.demo",
    "warm_archive": "streamvault.warming",
    "request_restore": "streamvault.work.asking",
    "show_queue": "streamvault.work.looking",
    "work_queue": "streamvault.work.working",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streamvault' has no attribute {name!r}")
