"""Archives Pravega streams to S3 and restores them. Each verb of the command line is one function here.

    from streamvault import export_stream, import_stream, list_archives, show_archive, check_archive
    from streamvault import convert_archive, get_event, handoff_archive, read_archive, run_demo

Nothing heavy is imported until a verb is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamvault.checking import check_archive
    from streamvault.converting import convert_archive
    from streamvault.demo import run_demo
    from streamvault.exporting import export_stream
    from streamvault.getting import get_event
    from streamvault.handing_off import handoff_archive, print_table_ddl
    from streamvault.importing import import_stream
    from streamvault.looking import list_archives, show_archive
    from streamvault.reading import read_archive

__all__ = [
    "check_archive",
    "convert_archive",
    "export_stream",
    "get_event",
    "handoff_archive",
    "import_stream",
    "list_archives",
    "print_table_ddl",
    "read_archive",
    "run_demo",
    "show_archive",
]

_HOMES = {
    "export_stream": "streamvault.exporting",
    "import_stream": "streamvault.importing",
    "list_archives": "streamvault.looking",
    "show_archive": "streamvault.looking",
    "check_archive": "streamvault.checking",
    "convert_archive": "streamvault.converting",
    "get_event": "streamvault.getting",
    "read_archive": "streamvault.reading",
    "handoff_archive": "streamvault.handing_off",
    "print_table_ddl": "streamvault.handing_off",
    "run_demo": "streamvault.demo",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streamvault' has no attribute {name!r}")
