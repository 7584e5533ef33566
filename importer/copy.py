"""The *copy* command: a stream, or a part of it, as a new stream."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from common.errors import Usage
from common.progress import Progress
from importer.from_stream import copy_name, stream_content
from importer.lease import take_lease, unfinished_work
from importer.options import FILLER_LIMIT, CopyOptions, Numbers, Offsets
from importer.plan import RestorePlan, plan_restore
from importer.reports import CopyReport, MovedBoundary
from importer.run import ImportRun
from importer.target import taken_error
from layouts.windows import WINDOW
from sparkrun.opening import TASK_MODULES, open_runner
from streamstore.byte_source import SourceTruncated
from streamstore.counterparts import counterparts
from streamstore.cut_option import Cut
from streamstore.cuts import segments_between
from streamstore.errors import NoSuchSegment, SegmentTruncated
from streamstore.lease import stream_beside
from streamstore.ledger import Ledger, LedgerConflict
from streamstore.model import ContentKind, StreamCut, StreamDescription, StreamName
from streamstore.own import describe_source, is_own
from streamstore.store import StreamStore
from streamstore.uri import StoreAddress, parse_stream

__all__ = ["COPY_OF", "copy_stream"]

COPY_OF = "streamvault-copy-of:"
"""Prefix of the tag on a finished copy; the source's scope and name follow."""


def copy_stream(
    source: str,
    stream: str,
    *,
    from_cut: Cut | None = None,
    to_cut: Cut | None = None,
    content: ContentKind | None = None,
    offsets: Offsets = "keep",
    filler_limit: int = FILLER_LIMIT,
    numbers: Numbers = "keep",
    window: int = WINDOW,
    read_back: bool = False,
    master: str = "local[*]",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> CopyReport:
    """Copy a stream into a new one: same events, order and pointers, same segments, epochs and policies.

    The stream's head and tail are fixed when the call starts. After a kill, repeat the call to resume; it then copies
    up to the tail of that moment. What the source truncates meanwhile is missing at the copy's head. A finished copy
    has the tag ``streamvault-copy-of:SCOPE/STREAM``, and is left as it is if the call is repeated.

    Args:
        source: the stream to copy.
        stream: the stream to create, as for `import_stream`; its cluster's login may be given by
            ``PRAVEGA_TARGET_USERNAME``, ``…_PASSWORD``, ``…_CA_FILE`` and ``…_TLS_VERIFY_HOSTNAME``.
        from_cut: copy only events after this cut (JSON text or a mapping).
        to_cut: copy only events before this cut.
        content: ``"bytes"`` if it is a byte stream: cuts may have any offsets. None for ``"events"``: cuts must be
            between events. Without cuts, it makes no difference.
        offsets: as for `import_stream`.
        filler_limit: likewise (bytes).
        numbers: as for `import_stream`.
        window: maximum data a task buffers in memory (bytes).
        read_back: read back every byte of the copy and compare it with the source.
        master: a Spark master, or ``"inline"`` for no Spark.
        dry_run: only report what would be copied.
        progress: receives the progress.

    Raises:
        Problem: the copy failed; the exception has the command's exit code.
        TargetTaken: the stream exists and is neither this call's unfinished copy nor a finished one (exit code 4).
    """
    began = time.monotonic()
    progress = progress or Progress()
    options = CopyOptions(
        from_cut=from_cut,
        to_cut=to_cut,
        content=content,
        offsets=offsets,
        filler_limit=filler_limit,
        numbers=numbers,
        window=window,
        read_back=read_back,
    )
    source_address, source_name = parse_stream(source)
    address, name = parse_stream(stream, target=True)
    if (source_address.uri, source_name) == (address.uri, name):
        raise Usage("source and target are the same stream", where=stream, todo="Give the copy another name.")
    with source_address.open() as source_store, address.open() as store:
        copy = _Copy(source_store, source_address, source_name, store, address, name, options)
        planned = copy.plan(dry_run=dry_run)
        report = _report(source, stream, planned, options)
        finished = copy.find_finished(planned)
        if finished is not None:
            total = round(time.monotonic() - began, 3)
            return replace(report, unchanged=True, behind_bytes=finished, total_seconds=total, dry_run=dry_run)
        copy.run(planned).check_free()
        for warning in report.warnings:
            progress.warn(warning)
        if dry_run:
            return replace(report, total_seconds=round(time.monotonic() - began, 3), dry_run=True)
        plan_began, truncated, moved = time.monotonic(), False, 0
        with open_runner(master, TASK_MODULES) as runner:
            while True:
                run = copy.run(planned)
                try:
                    copied = run.run(runner, progress)
                    break
                except SourceTruncated:
                    moved += run.moved_bytes
                    before, planned = planned, copy.plan()
                    if planned.head == before.head:
                        raise
                    truncated = True
        copy.forget()
    return replace(
        _report(source, stream, planned, options),
        resumed=copied.resumed and not truncated,
        moved_bytes=moved + copied.moved_bytes,
        truncated=truncated,
        renumbered={str(old): str(new) for old, new in copied.segments.items() if old != new},
        seconds=round(copied.finished - plan_began - runner.start_seconds, 3),
        total_seconds=round(time.monotonic() - began, 3),
    )


@dataclass(frozen=True, slots=True)
class _Planned:
    """The source at one moment, and the plan of its copy."""

    described: StreamDescription
    plan: RestorePlan

    @property
    def head(self) -> StreamCut:
        """The source's head."""
        return self.described.head


@dataclass(frozen=True, slots=True)
class _Copy:
    """One source, one target, and the options."""

    source_store: StreamStore
    source_address: StoreAddress
    source: StreamName
    store: StreamStore
    address: StoreAddress
    name: StreamName
    options: CopyOptions

    @property
    def tag(self) -> str:
        """The tag of the finished copy."""
        return f"{COPY_OF}{self.source}"[:256]

    @property
    def ledger(self) -> Ledger:
        """The ledger of where a copy with shifted offsets began."""
        return Ledger(self.store, stream_beside(self.name, "streamvault-copy-"), self.name)

    def plan(self, *, dry_run: bool = False) -> _Planned:
        """Plan the copy of the source as it is now."""
        while True:
            described = describe_source(self.source_store, self.source)
            cuts: dict[str, Any] = {
                name: None if cut is None else StreamCut.from_json(cut, self.source)
                for name, cut in (("from_cut", self.options.from_cut), ("to_cut", self.options.to_cut))
            }
            texts = {name: None if cut is None else cut.to_json() for name, cut in cuts.items()}
            work = copy_name(self.source_address, described, self.options, texts)
            kept = [tag for tag in described.configuration.tags if not tag.startswith(COPY_OF)]
            tagged = replace(described, configuration=replace(described.configuration, tags=(*kept, self.tag)))
            try:
                content = stream_content(
                    self.source_store,
                    self.source_address,
                    tagged,
                    work=work,
                    kind=self.options.content or "events",
                    first_head=self._first_head(work, cuts["from_cut"] or described.head, dry_run=dry_run),
                    **cuts,
                )
            except (NoSuchSegment, SegmentTruncated):
                if describe_source(self.source_store, self.source).head == described.head:
                    raise
                continue  # it was truncated meanwhile
            return _Planned(described, plan_restore(content, self.options))

    def _first_head(self, work: str, head: StreamCut, *, dry_run: bool) -> StreamCut:
        """Return where this copy began, maybe in an earlier run; offsets stay shifted by that."""
        if self.options.offsets == "keep" or dry_run:
            return head
        while True:
            ledger = self.ledger
            known = ledger.newest()
            if known is not None and known["work"] == work:
                return StreamCut.from_json(known["head"], self.source)
            try:
                ledger.record({"work": work, "head": head.to_json()})
            except LedgerConflict:
                continue
            return head

    def run(self, planned: _Planned) -> ImportRun:
        """Return the run that makes the copy."""
        return ImportRun(
            self.store,
            self.address,
            self.name,
            plan=planned.plan,
            window=self.options.window,
            read_back=self.options.read_back,
            trust_earlier=True,
        )

    def find_finished(self, planned: _Planned) -> int | None:
        """Return how many bytes the source has more than a finished copy; None if there is no finished copy."""
        begun = unfinished_work(self.store, self.name)
        if begun is None:
            return None
        copied = self.store.describe(self.name)
        if self.tag not in copied.configuration.tags or is_own(copied.configuration):
            return None
        if begun and planned.plan.sealed and not copied.sealed:
            return None  # an earlier run was killed before its last step
        if begun:
            take_lease(self.store, self.name, begun).release(remove=True)
        described = planned.described
        segments = counterparts(described.epochs, copied.epochs)
        if segments is None:
            raise taken_error(self.store, copied, planned.plan)
        names = {new: old for old, new in segments.items()}
        if self.options.offsets == "shift" or self.options.to_cut or not names.keys() >= copied.tail.offsets.keys():
            return 0
        reached = StreamCut(self.source, {names[segment]: offset for segment, offset in copied.tail.offsets.items()})
        between = segments_between(described, reached, described.tail)
        sealed = [segment for segment, (_, end) in between.items() if end is None]
        infos = self.source_store.segment_info(self.source, sealed) if sealed else []
        ends = {info.segment: info.write_offset for info in infos}
        return sum(max(0, (ends[segment] if end is None else end) - start) for segment, (start, end) in between.items())

    def forget(self) -> None:
        """Delete the ledger of a finished copy."""
        if self.options.offsets == "shift" and self.store.exists(self.ledger.name):
            self.store.delete(self.ledger.name)


def _report(source: str, stream: str, planned: _Planned, options: CopyOptions) -> CopyReport:
    plan = planned.plan
    moved = tuple(
        MovedBoundary(epoch=m.epoch, source=m.source, target=m.target, ulps=m.ulps) for m in plan.replay.moved
    )
    ends = {segment: end + plan.segments[segment].shift for segment, end in plan.tail.items()}
    return CopyReport(
        source=source,
        stream=stream,
        read_back=options.read_back,
        bytes=plan.bytes,
        segments=len(plan.segments),
        epochs=len(plan.replay.epochs),
        head=planned.head.to_json(),
        tail=StreamCut(plan.source, ends).to_json(),
        offsets=plan.offsets,
        shifts={s.in_stream(plan.source): segment.shift for s, segment in plan.segments.items() if segment.shift},
        moved_boundaries=moved,
    )
