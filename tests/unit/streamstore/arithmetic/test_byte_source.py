"""The bytes of a live segment."""

from __future__ import annotations

from pathlib import Path

from streamvault.streamstore.byte_source import LiveSegment
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.streams import append_events, frame

NAME = StreamName("scope", "stream")
SEGMENT = SegmentId(0, 0)


def test_blocks_stay_valid(tmp_path: Path) -> None:
    """An appender keeps the blocks that are not acknowledged, and sends them again after a lost connection."""
    events = [bytes([number]) * 1_000_000 for number in range(5)]
    with LocalStore(tmp_path) as store:
        store.create_scope("scope")
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=1)))
        end = append_events(store, NAME, SEGMENT, events)
    address, _ = parse_stream(f"local://{tmp_path}/{NAME}")
    blocks = list(LiveSegment(address, NAME, SEGMENT, 0, end).blocks(0, end, 1))
    assert len(blocks) > 2
    assert b"".join(blocks) == b"".join(frame(event) for event in events)
