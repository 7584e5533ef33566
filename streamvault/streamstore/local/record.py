"""A stream's metadata: one JSON file, replaced atomically with each change."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from streamvault.streamstore.arithmetic.cuts import segments_between
from streamvault.streamstore.errors import InvalidName, StreamStoreError
from streamvault.streamstore.local.files import replace_file
from streamvault.streamstore.local.transaction_record import StreamTransactions
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamDescription,
    StreamName,
)

RECORD = "stream.json"
_FORMAT = 1
_COMMITTING_FORMAT = 2
"""While a commit is to be finished, so that an earlier version does not overlook it."""
_REVISION_BYTES = 64
_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True)
class StreamRecord:
    """A stream's configuration and history; it says which segments are open.

    Attributes:
        transactions: those that are open, and how the last ones ended.
        revision: the beginning of the file it was read from; another one with each change.
    """

    stream: StreamName
    configuration: StreamConfiguration
    epochs: tuple[Epoch, ...]
    head: StreamCut
    sealed: bool = False
    transactions: StreamTransactions = field(default_factory=StreamTransactions)
    revision: bytes = field(default=b"", compare=False)

    @property
    def current(self) -> Epoch:
        """The newest epoch; its segments are open unless the stream is sealed."""
        return self.epochs[-1]

    def is_open(self, segment: SegmentId) -> bool:
        """Return whether a segment accepts appends."""
        return not self.sealed and segment in self.current.segments

    @cached_property
    def ranges(self) -> dict[SegmentId, KeyRange]:
        """Every segment that ever was, with its key range."""
        return self.describe(self.head).ranges()

    @cached_property
    def live(self) -> frozenset[SegmentId]:
        """The segments that the head has not passed."""
        end = StreamCut(self.stream, dict.fromkeys(self.current.segments, _NO_LIMIT))
        return frozenset(segments_between(self.describe(end), self.head, end))

    def describe(self, tail: StreamCut) -> StreamDescription:
        """The description, with a tail."""
        return StreamDescription(self.stream, self.configuration, self.epochs, self.head, tail, self.sealed)


def read_revision(folder: Path) -> bytes:
    """The revision of the record now, without reading the rest.

    Raises:
        FileNotFoundError: there is no such stream.
    """
    with (folder / RECORD).open("rb", buffering=0) as file:
        return file.read(_REVISION_BYTES)


def load_record(folder: Path, stream: StreamName) -> StreamRecord:
    """Read a stream's record.

    Raises:
        FileNotFoundError: there is no such stream.
        StreamStoreError: the file is damaged, or has an unsupported format.
    """
    content = (folder / RECORD).read_bytes()
    try:
        value = json.loads(content)
        if value["format"] not in {_FORMAT, _COMMITTING_FORMAT}:
            raise StreamStoreError(
                f"the stream has format {value['format']!r}, but this version supports 1 and 2", where=str(folder)
            )
        return StreamRecord(
            stream=stream,
            configuration=_configuration(value["configuration"]),
            epochs=_epochs(value["epochs"]),
            head=StreamCut(stream, {SegmentId.parse(name): offset for name, offset in value["head"].items()}),
            sealed=value["sealed"],
            transactions=_transactions(value),
            revision=content[:_REVISION_BYTES],
        )
    except (ValueError, KeyError, TypeError, AttributeError, InvalidName) as error:
        raise StreamStoreError(f"the stream's record is damaged ({error})", where=str(folder / RECORD)) from None


def save_record(folder: Path, record: StreamRecord) -> None:
    """Replace a stream's record."""
    epochs, before = [], dict[SegmentId, KeyRange]()
    for epoch in record.epochs:
        opens = {str(s): [r.low, r.high] for s, r in epoch.segments.items() if s not in before}
        seals = [str(segment) for segment in before if segment not in epoch.segments]
        epochs.append({"epoch": epoch.number, "seals": seals, "opens": opens})
        before = dict(epoch.segments)
    value = {
        "revision": secrets.token_hex(20),  # first, and so among the bytes that `read_revision` reads
        "format": _FORMAT if record.transactions.committing is None else _COMMITTING_FORMAT,
        "sealed": record.sealed,
        "configuration": asdict(record.configuration),
        "head": {str(segment): offset for segment, offset in record.head.offsets.items()},
        "epochs": epochs,
    }
    if record.transactions != StreamTransactions():
        value["transactions"] = record.transactions.to_json()
    replace_file(folder / RECORD, json.dumps(value, indent=1).encode() + b"\n")


def _transactions(value: dict[str, Any]) -> StreamTransactions:
    held = value.get("transactions")
    return StreamTransactions() if held is None else StreamTransactions.from_json(held)


def _epochs(value: list[dict[str, Any]]) -> tuple[Epoch, ...]:
    epochs: list[Epoch] = []
    segments: dict[SegmentId, KeyRange] = {}
    for entry in value:
        for name in entry["seals"]:
            del segments[SegmentId.parse(name)]
        segments.update((SegmentId.parse(name), KeyRange(low, high)) for name, (low, high) in entry["opens"].items())
        epochs.append(Epoch(entry["epoch"], segments))  # which copies
    return tuple(epochs)


def _configuration(value: dict[str, Any]) -> StreamConfiguration:
    scaling, retention = value.pop("scaling"), value.pop("retention")
    return StreamConfiguration(
        scaling=Scaling(ScaleKind(scaling.pop("kind")), **scaling),
        retention=Retention(RetentionKind(retention.pop("kind")), **retention),
        tags=tuple(value.pop("tags")),
        **value,
    )
