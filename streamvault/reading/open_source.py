"""Opens a URI that is a stream or an archive."""

from __future__ import annotations

from contextlib import ExitStack

from streamvault.reading.archive_source import ArchiveSource
from streamvault.reading.stream_source import StreamSource
from streamvault.streamstore.open_stream import open_stream
from streamvault.streamstore.uri import is_stream


def open_source(uri: str, stack: ExitStack) -> StreamSource | ArchiveSource:
    """Open a source; ``stack`` closes it.

    Raises:
        InvalidName, Usage: the URI is not valid.
    """
    return StreamSource(stack.enter_context(open_stream(uri))) if is_stream(uri) else ArchiveSource(uri)
