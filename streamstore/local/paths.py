"""Where things lie in the store's folder.

``SCOPE/STREAM/stream.json`` is the stream's record, ``SCOPE/STREAM/N.#epoch.E.data`` a segment's bytes as they are, and
``….state`` how far it goes. A segment without files is empty. Names that begin with a dot are the store's own:
``.numbers/SCOPE`` says with which number a stream that is made again begins, the others are drafts and remains.
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
    """The file with a segment's bytes."""
    return folder / f"{segment}{_DATA}"


def state_path(folder: Path, segment: SegmentId) -> Path:
    """The file that says how far a segment goes."""
    return folder / f"{segment}{_STATE}"


def segment_of(path: Path) -> SegmentId | None:
    """Which segment a file belongs to; None if it is not a segment's."""
    try:
        return SegmentId.parse(path.stem) if path.suffix in {_DATA, _STATE} else None
    except InvalidName:
        return None
