"""Layout of the store's folder.

``SCOPE/STREAM/stream.json`` is the stream's record, ``SCOPE/STREAM/N.#epoch.E.data`` a segment's bytes as they are, and
``….state`` how far it goes. A segment without files is empty. Names that begin with a dot are the store's own:
``.numbers/SCOPE`` has the first segment number of recreated streams, the others are drafts and remains.
"""

from __future__ import annotations

from pathlib import Path

from streamstore.errors import InvalidName
from streamstore.model import SegmentId, StreamName

__all__ = ["DRAFT", "REMAINS", "data_path", "numbers_path", "segment_of", "state_path", "stream_folder"]

DRAFT = ".new-"
REMAINS = ".deleted-"

_DATA = ".data"
_STATE = ".state"


def stream_folder(root: Path, stream: StreamName) -> Path:
    """A stream's folder. Names of scopes and streams cannot leave the root: no slash, no leading dot."""
    return root / stream.scope / stream.stream


def numbers_path(root: Path, scope: str) -> Path:
    """The file of a scope's deleted streams. It outlasts the scope: Pravega's numbers do."""
    return root / ".numbers" / scope


def data_path(folder: Path, segment: SegmentId) -> Path:
    """Return the path of a segment's data file."""
    return folder / f"{segment}{_DATA}"


def state_path(folder: Path, segment: SegmentId) -> Path:
    """Return the path of a segment's state file."""
    return folder / f"{segment}{_STATE}"


def segment_of(path: Path) -> SegmentId | None:
    """Return the segment a file belongs to, or None."""
    try:
        return SegmentId.parse(path.stem) if path.suffix in {_DATA, _STATE} else None
    except InvalidName:
        return None
