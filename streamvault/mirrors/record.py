"""The records of a replica's ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from streamvault.common.times import moment_text
from streamvault.importer.ownership import first_segment_id
from streamvault.manifests.format.entries import Configuration
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamCut, StreamDescription, StreamName


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The newest record of a replica's ledger.

    Attributes:
        work: the replica's name, see `importer.plan.RestorePlan.import_id`.
        source: URI of the source.
        stream: the source's scope and name.
        offsets: as for `replicate_stream`.
        numbers: likewise.
        filler_limit: likewise.
        keep_head: likewise.
        head: the cut at which the replica began; shifted offsets are relative to it.
        configuration: the source's configuration, see `manifests.format.manifest.Configuration`.
        sealed: whether the source was sealed by its user.
        tail: the source's tail that the replica has reached; None if it has reached none.
        ends: the replica's segment → its end (bytes) at that tail.
        taken: when that tail was taken, RFC 3339; empty if there is none.
        sealing: whether a promotion has begun to seal the source; if it is promoted, whether that was done.
        skipping: whether a round has begun to append filler in place of what the source has truncated.
        promoted: whether a promotion has begun to finish the replica.
        target: which stream of the replica's name the record is about (`importer.ownership.first_segment_id`); empty
            while it is still to be created.
        source_head: the source's head when `tail` was taken; None if there is none.
        closing: segments of the replica that a promotion is replacing by new ones of the same key ranges.
        claim: which run was the last to begin a cut-over; a running replication then gives way to it.
        source_first: which stream of the source's name a cut-over seals (`importer.ownership.first_segment_id`); empty
            if none was begun.
        retention: the promoted stream's retention policy: the source's ("keep") or none ("off").
        reader_groups: the source's reader groups when `tail` was taken or before, see
            `mirrors.carried_groups.NotedGroup`; None if they were never asked for.
    """

    work: str
    source: str
    stream: str
    offsets: str
    numbers: str
    filler_limit: int
    keep_head: bool
    head: Mapping[str, int]
    configuration: Mapping[str, Any]
    sealed: bool
    tail: Mapping[str, int] | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    taken: str = ""
    sealing: bool = False
    skipping: bool = False
    promoted: bool = False
    target: str = ""
    source_head: Mapping[str, int] | None = None
    closing: Sequence[str] = ()
    claim: str = ""
    source_first: str = ""
    retention: str = "keep"
    reader_groups: Sequence[Mapping[str, Any]] | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Record:
        """Build from `to_json`."""
        return cls(**document)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @property
    def source_configuration(self) -> StreamConfiguration:
        """The source's configuration."""
        return Configuration.model_validate_json(json.dumps(self.configuration)).value()

    @property
    def target_options(self) -> dict[str, Any]:
        """How the source became the replica, as `TargetOptions` has it."""
        return {"offsets": self.offsets, "numbers": self.numbers, "filler_limit": self.filler_limit}

    @property
    def taken_at(self) -> datetime | None:
        """When the tail was taken."""
        return datetime.fromisoformat(self.taken) if self.taken else None

    @property
    def taken_text(self) -> str:
        """The same for reports; empty if there is none."""
        return moment_text(self.taken_at) if self.taken_at else ""

    @property
    def is_promoting(self) -> bool:
        """Whether a promotion has begun to change the replica, so that no replication may."""
        return self.promoted or bool(self.closing)

    def is_about(self, described: StreamDescription) -> bool:
        """Whether this is the stream that the record is about, not one that was made again under its name."""
        known = {str(segment) for epoch in described.epochs for segment in epoch.segments}
        return self.target in ("", first_segment_id(described)) and self.ends.keys() <= known

    def end_cut(self, replica: StreamName) -> StreamCut:
        """Return `ends` as a cut of the replica."""
        return StreamCut(replica, {SegmentId.parse(segment): end for segment, end in self.ends.items()})


def configuration_document(described: StreamDescription) -> Mapping[str, Any]:
    """Return a source's configuration as `Record.configuration` has it."""
    return Configuration.of(described.configuration).document()
