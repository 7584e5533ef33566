"""Open the origin of a table: an archive or a stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from common.errors import Usage
from common.version import TOOL
from lake.from_archive import ArchiveOrigin
from lake.from_stream import StreamOrigin
from layouts.windows import WINDOW
from manifests.archive import Archive
from manifests.overtaken import unless_changed
from objectstore.uri import RootAddress
from streamstore.model import LARGEST_EVENT_BYTES
from streamstore.uri import is_stream, parse_stream

__all__ = ["TableOrigin", "none_changed", "open_origin"]

TableOrigin = ArchiveOrigin | StreamOrigin


@contextmanager
def open_origin(
    source: str, root: str | None, window: int = WINDOW, largest_event: int = LARGEST_EVENT_BYTES
) -> Iterator[tuple[TableOrigin, RootAddress]]:
    """Open the origin of a table; yield it with the table's root.

    Args:
        source: an archive, ``ROOT/SCOPE/STREAM``, or a stream, ``pravega://HOST:PORT/SCOPE/STREAM``.
        root: the table's root; None for the archive's.
        window: maximum data a task buffers in memory, of an archive (bytes).
        largest_event: the largest payload to accept, of a stream (bytes).

    Raises:
        NoSuchArchive: there is no archive.
        Damaged: the archive is damaged.
        Usage: the source is a stream and ``root`` is None.
    """
    if not is_stream(source):
        archive = Archive.open(source)
        target = archive.root if root is None else RootAddress.parse(root).resolve()
        yield ArchiveOrigin(archive, archive.history(), window), target
        return
    store_address, name = parse_stream(source)
    if root is None:
        todo = f"Add --root ROOT; the table's folder will be ROOT/{name}/table/NAME."
        raise Usage("a table from a stream requires --root", where=source, todo=todo)
    target = RootAddress.parse(root).resolve()
    with store_address.open() as store:
        yield StreamOrigin(store_address, store, name, TOOL, largest_event), target


def none_changed(origin: TableOrigin, first: int | None = None) -> AbstractContextManager[None]:
    """As `unless_changed` for an archive; nothing for a stream, whose truncated events are gaps.

    Args:
        origin: the origin that is read.
        first: the first generation that matters; None for all.
    """
    if isinstance(origin, StreamOrigin):
        return nullcontext()
    return unless_changed(origin.archive, origin.history, origin.history.first if first is None else first)
