"""Opening what a table is made of: an archive, or a stream."""

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
    """What a table is made of, and the root that it goes to.

    Args:
        source: an archive, ``ROOT/SCOPE/STREAM``, or a stream, ``pravega://HOST:PORT/SCOPE/STREAM``.
        root: of the table; None for the archive's.
        window: bytes that a task may hold of what is on its way from an archive.
        largest_event: of a stream, the largest payload to accept (bytes).

    Raises:
        NoSuchArchive, Damaged: the archive is not there, or not whole.
        Usage: a table of a stream, and nothing says where it goes.
    """
    if not is_stream(source):
        archive = Archive.open(source)
        target = archive.root if root is None else RootAddress.parse(root).resolve()
        yield ArchiveOrigin(archive, archive.history(), window), target
        return
    store_address, name = parse_stream(source)
    if root is None:
        todo = f"Add --root ROOT; the table's folder will be ROOT/{name}/table/NAME."
        raise Usage("a table that is made of a stream needs a place", where=source, todo=todo)
    target = RootAddress.parse(root).resolve()
    with store_address.open() as store:
        yield StreamOrigin(store_address, store, name, TOOL, largest_event), target


def none_changed(origin: TableOrigin, first: int | None = None) -> AbstractContextManager[None]:
    """As `unless_changed`, where the origin is an archive: what a stream has lost is a gap.

    Args:
        origin: what is read.
        first: the first generation that matters; None for all.
    """
    if isinstance(origin, StreamOrigin):
        return nullcontext()
    return unless_changed(origin.archive, origin.history, origin.history.first if first is None else first)
