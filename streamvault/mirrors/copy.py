"""The *copy* command: a stream, or a part of it, as a new stream."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from streamvault.common.errors import Conflict
from streamvault.common.progress import Progress
from streamvault.importer.lease import finishing_record, lease_stream, marked_work, take_lease, unfinished_work
from streamvault.importer.options import FILLER_LIMIT, Numbers, Offsets
from streamvault.importer.plan import Content, RestorePlan, SegmentPlan, plan_restore
from streamvault.importer.reports import CopyReport, MovedBoundary
from streamvault.importer.run import RESTORE_TASKS, ImportRun, Restored
from streamvault.importer.target import (
    OTHER_NAME,
    TargetTaken,
    Unfinished,
    check_missing_filler,
    check_other_stream,
    taken_error,
)
from streamvault.layouts.windows import WINDOW
from streamvault.mirrors.copied import Copied, examine
from streamvault.mirrors.from_stream import COPY, begin_of, copy_name
from streamvault.mirrors.options import CopyOptions
from streamvault.mirrors.source import StreamSource
from streamvault.sparkrun.masters import Master
from streamvault.sparkrun.opening import Tasks
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.arithmetic.cut_option import Cut, parse_cut
from streamvault.streamstore.arithmetic.cuts import live_ends
from streamvault.streamstore.errors import NoSuchScope, NoSuchSegment, NoSuchStream, SegmentTruncated, StreamStoreError
from streamvault.streamstore.model import StreamCut, StreamDescription, StreamName
from streamvault.streamstore.own import COPY_OF, LONGEST_TAG, TARGET_LEDGER, is_own, stream_beside, tag_of, users_tags
from streamvault.streamstore.services.lease import last_record
from streamvault.streamstore.services.ledger import Ledger, LedgerNameTaken
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress, parse_stream

TURNS = 10
"""How often a finished copy is looked at if it or its source is truncated meanwhile."""

TRUNCATED_BEYOND = "the source was truncated beyond --from; what is missing there is not copied"


def copy_stream(
    source: str,
    stream: str,
    *,
    from_cut: Cut | None = None,
    to_cut: Cut | None = None,
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
        offsets=offsets,
        filler_limit=filler_limit,
        numbers=numbers,
        window=window,
        read_back=read_back,
    )
    source_address, source_name = parse_stream(source)
    address, name = parse_stream(stream, target=True)
    check_other_stream((source_address, source_name), (address, name))
    with source_address.open() as source_store, address.open() as store, ExitStack() as stack:
        given, end_of = {"from_cut": from_cut, "to_cut": to_cut}, live_ends(source_store, source_name)
        cuts = {option: parse_cut(cut, source_name, end_of) for option, cut in given.items()}
        copy = _Copy(source_store, source_address, source_name, store, address, name, options, cuts)
        Master.parse(master)
        tasks = Tasks(master, stack, RESTORE_TASKS)
        planned, finished = copy.look(None if dry_run or not read_back else tasks, progress)
        if finished is not None:
            if not dry_run:
                copy.clean_up(planned)
            for warning in finished.warnings:
                progress.warn(warning)
            report = _finished_report(source, stream, planned, finished, options)
            total = time.monotonic() - began
            return replace(
                report,
                read_back=read_back and (dry_run or finished.read_back),
                seconds=round(total - tasks.start_seconds, 3),
                total_seconds=round(total, 3),
                dry_run=dry_run,
            )
        copy.run(planned).check_free()
        copy.check_filler(planned)
        for warning in planned.warnings:
            progress.warn(warning)
        if dry_run:
            report = _report(source, stream, planned, options)
            return replace(report, total_seconds=round(time.monotonic() - began, 3), dry_run=True)
        plan_began = time.monotonic()
        done = copy.copy(planned, tasks, progress)
    report = _report(source, stream, done.planned, options)
    return replace(
        report,
        resumed=done.restored.resumed and not done.truncated,
        moved_bytes=done.moved_bytes,
        truncated=done.truncated or report.truncated,
        renumbered={str(old): str(new) for old, new in done.restored.segments.items() if old != new},
        seconds=round(done.restored.finished - plan_began - tasks.start_seconds, 3),
        total_seconds=round(time.monotonic() - began, 3),
    )


@dataclass(frozen=True, slots=True)
class _Planned:
    """The source at one moment, and the plan of its copy.

    Attributes:
        described: the source.
        content: what is copied of it.
        plan: the plan.
        tag: the tag of the finished copy.
        begin: where the copy began, maybe in an earlier run; shifted offsets are relative to it.
        warnings: what the user is to be warned of.
    """

    described: StreamDescription
    content: Content
    plan: RestorePlan
    tag: str
    begin: StreamCut
    warnings: tuple[str, ...]

    @property
    def head(self) -> StreamCut:
        """The source's head."""
        return self.described.head


@dataclass(frozen=True, slots=True)
class _Done:
    """A copy that this call finished.

    Attributes:
        planned: what was copied.
        restored: the result of the last run.
        moved_bytes: bytes that all runs appended, without filler.
        truncated: whether the source was truncated meanwhile.
    """

    planned: _Planned
    restored: Restored
    moved_bytes: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class _Finished:
    """A finished copy.

    Attributes:
        copied: the copy.
        read_back: whether all of it was read back and compared.
        warnings: what the user is to be warned of.
    """

    copied: Copied
    read_back: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Copy:
    """One source, one target, and the options; `cuts` are those between which the source is copied."""

    source_store: StreamStore
    source_address: StoreAddress
    source: StreamName
    store: StreamStore
    address: StoreAddress
    name: StreamName
    options: CopyOptions
    cuts: Mapping[str, StreamCut | None]

    @property
    def target(self) -> str:
        """The target's URI."""
        return f"{self.store.uri}/{self.name}"

    @property
    def ledger(self) -> Ledger:
        """The ledger of where a copy with shifted offsets began."""
        return Ledger(self.store, stream_beside(self.name, TARGET_LEDGER), self.name)

    @property
    def origin(self) -> StreamSource:
        """The source."""
        return StreamSource(self.source_store, self.source_address, self.source, f"{self.source_address}/{self.source}")

    def work(self, described: StreamDescription) -> str:
        """Return the name of this copy of a source."""
        texts = {name: None if cut is None else cut.to_json() for name, cut in self.cuts.items()}
        return copy_name(self.source_address, described, self.options, texts)

    def tag(self, work: str) -> str:
        """Return the tag of the finished copy, which tells copies with other cuts or options apart."""
        plain = (self.options.offsets, self.options.numbers) == ("keep", "keep") and not any(self.cuts.values())
        suffix = "" if plain else "#" + work.removeprefix(COPY)[:8]
        if len(tag := f"{COPY_OF}{self.source}{suffix}") <= LONGEST_TAG:
            return tag
        return f"{COPY_OF}{hashlib.sha256(str(self.source).encode()).hexdigest()}{suffix}"

    def plan(self) -> _Planned:
        """Plan the copy of the source as it is now; changes nothing."""
        while True:
            look = self.origin.look()
            described, cuts = look.described, self.cuts
            work = self.work(described)
            tag = self.tag(work)
            tagged = replace(described.configuration, tags=(*users_tags(described.configuration), tag))
            head = begin_of(described, cuts["from_cut"])
            begin = self._begin(work, head)
            look = replace(look, described=replace(described, configuration=tagged))
            try:
                content = self.origin.content(look, self.options, work=work, first_head=begin, **cuts)
            except SourceTruncated:
                continue
            plan = plan_restore(content, self.options, limit_filler=False)
            warnings = () if cuts["from_cut"] in (None, head) else (TRUNCATED_BEYOND,)
            return _Planned(described, content, plan, tag, begin, warnings)

    def _begin(self, work: str, head: StreamCut) -> StreamCut:
        """Return where this copy began, maybe in an earlier run; offsets stay shifted by that."""
        if self.options.offsets == "keep" or unfinished_work(self.store, self.name) != work:
            return head
        ledger = self.ledger
        known = ledger.newest(create=False)
        if known is not None and known["work"] == work:
            return StreamCut.from_json(known["head"], self.source)
        described = self._describe()
        if described is not None and is_own(described.configuration):
            raise TargetTaken(
                "the record of where the unfinished copy began is gone",
                where=f"{self.store.uri}/{ledger.name}",
                todo="Copy into another name. Delete the unfinished copy only if the source still has its events.",
            )
        return head

    def look(self, tasks: Tasks | None, progress: Progress) -> tuple[_Planned, _Finished | None]:
        """Plan the copy, and look for a finished one.

        Args:
            tasks: opens the runner to read a finished copy back; None not to read it.
            progress: receives the progress.

        Raises:
            TargetTaken: the target is another stream, or was written to since it was copied.
        """
        for turn in range(TURNS):
            unfinished = Unfinished.find(self.store, self.name)
            planned = self.plan()
            try:
                finished = self._find_finished(planned, tasks, progress)
                if unfinished is not None and marked_work(unfinished.described) == planned.plan.work:
                    self.run(planned).check_unfinished(unfinished)
            except (SourceTruncated, SegmentTruncated, NoSuchSegment, NoSuchStream):
                if turn == TURNS - 1:
                    raise
            else:
                return planned, finished
        raise AssertionError

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
            whole_events=True,
        )

    def check_filler(self, planned: _Planned) -> None:
        """Check how much filler is still to be appended.

        Raises:
            Usage: it is more than the limit.
        """
        check_missing_filler(planned.plan, self.options.filler_limit, Unfinished.find(self.store, self.name))

    def copy(self, planned: _Planned, tasks: Tasks, progress: Progress) -> _Done:
        """Make the copy; begin it later if the source is truncated meanwhile."""
        moved, truncated = 0, False
        while True:
            run = self.run(planned)
            try:
                restored = run.run(tasks.runner, progress, self._keeping_ledger(planned))
            except SourceTruncated:
                moved += run.moved_bytes
                before, planned = planned, self.plan()
                if planned.plan.work != before.plan.work:
                    raise self._recreated_error() from None
                if planned.head == before.head:
                    raise
                for warning in set(planned.warnings).difference(before.warnings):
                    progress.warn(warning)
                truncated = True
                self.check_filler(planned)
            else:
                return _Done(planned, restored, moved + restored.moved_bytes, truncated)

    @contextmanager
    def _keeping_ledger(self, planned: _Planned) -> Iterator[None]:
        """Record where a copy begins before its target is created; delete the record when the copy is finished.

        The lease on the target is held meanwhile.

        Raises:
            Conflict: another run of this copy has begun elsewhere since it was planned.
        """
        work, ledger, mine = planned.plan.work, self.ledger, False
        shifted, is_new = self.options.offsets == "shift", not self.store.exists(self.name)
        if is_new and not shifted:
            with suppress(LedgerNameTaken):
                ledger.newest(create=False)
                ledger.delete()  # of a target that was deleted
        elif shifted:
            known = ledger.newest(create=is_new)
            mine = is_new or (known is not None and known["work"] == work)
            if is_new:
                ledger.record({"work": work, "head": planned.begin.to_json()})
            elif known is not None and mine and StreamCut.from_json(known["head"], self.source) != planned.begin:
                raise Conflict(
                    "another run of this copy was killed meanwhile",
                    where=self.target,
                    todo="Run the same command again to resume it.",
                )
        try:
            yield
        except Exception:
            with suppress(StreamStoreError):
                if mine and unfinished_work(self.store, self.name) != work:
                    ledger.delete()
            raise
        if mine:
            ledger.delete()

    def _find_finished(self, planned: _Planned, tasks: Tasks | None, progress: Progress) -> _Finished | None:
        """Return the finished copy; None if there is no target, or an unfinished one, or only the seal is missing."""
        described, work = self._describe(), planned.plan.work
        if described is None:
            return None
        if is_own(described.configuration):
            self._check_recreated(marked_work(described), planned)
            return None
        finishing = finishing_record(self.store, described)
        begun = finishing.work if finishing is not None else ""
        if begun not in ("", work):
            raise taken_error(self.store, described, begun=begun)
        if planned.tag not in described.configuration.tags:
            raise self._other_error(described)
        copied = examine(self.store, described, self.source_store, planned.content, planned.plan)
        equal = not copied.behind and len(described.epochs) == len(planned.plan.replay.epochs)
        if begun and equal and planned.plan.sealed and not described.sealed:
            return None  # an earlier run was killed before its last step
        return _Finished(copied, False) if tasks is None else self._read_back(planned, copied, tasks, progress)

    def _read_back(self, planned: _Planned, copied: Copied, tasks: Tasks, progress: Progress) -> _Finished:
        """Compare all that a finished copy and its source still have."""
        parts = dict(copied.parts(planned.content, self.source_address))
        plans = {segment: SegmentPlan(0, (), tuple(found), 0, 0) for segment, found in parts.items()}
        run = ImportRun(
            self.store,
            self.address,
            self.name,
            plan=replace(planned.plan, segments=plans),
            window=self.options.window,
            read_back=True,
        )
        run.compare(copied.segments, tasks.runner, progress, lambda: None)
        progress.end()
        left = copied.bytes - sum(part.end - part.start for found in parts.values() for part in found)
        warning = f"{left} bytes of the copy were not compared, as the source was truncated since"
        return _Finished(copied, not left, (warning,) if left else ())

    def _check_recreated(self, begun: str, planned: _Planned) -> None:
        """Say so if an unfinished target is a copy of an earlier stream of the source's name."""
        copied = self._describe()
        if copied is not None and begun not in ("", planned.plan.work):
            earlier = replace(planned.described, epochs=copied.epochs)
            if self.work(earlier) == begun:
                raise self._recreated_error()

    def _recreated_error(self) -> TargetTaken:
        return TargetTaken(
            "the source was deleted and created again since this copy was begun",
            where=self.target,
            todo="Choose another name. The unfinished copy may have events that no other stream has.",
        )

    def _other_error(self, described: StreamDescription) -> Conflict:
        """Return the error for a stream that is not a finished copy with these cuts and options."""
        found = tag_of(described.configuration, COPY_OF)
        if not found:
            return taken_error(self.store, described)
        what = f"the stream is a copy of {found.partition('#')[0]}"
        if what.endswith(f" {self.source}"):
            what += " with other cuts or options, or of an earlier stream of that name"
        return TargetTaken(what, where=self.target, todo=OTHER_NAME)

    def clean_up(self, planned: _Planned) -> None:
        """Delete the lease and the ledger that a killed or late run of this copy has left beside it.

        Raises:
            TargetBusy: the run still goes on.
        """
        work, ledger, lease_name = planned.plan.work, self.ledger, lease_stream(self.name)
        record = last_record(self.store, lease_name)
        if record is not None and record.work != work:
            return
        mine = False
        with suppress(LedgerNameTaken):
            known = ledger.newest(create=False)
            # a late run may have been killed before it wrote to its ledger
            mine = self.store.exists(ledger.name) if known is None else known["work"] == work
        if not mine and not self.store.exists(lease_name):
            return
        lease = take_lease(self.store, self.name, work)
        if mine:
            ledger.delete()
        lease.release(remove=True)

    def _describe(self) -> StreamDescription | None:
        try:
            return self.store.describe(self.name)
        except (NoSuchStream, NoSuchScope):
            return None


def _report(source: str, stream: str, planned: _Planned, options: CopyOptions) -> CopyReport:
    plan = planned.plan
    ends = {segment: end + plan.segments[segment].shift for segment, end in plan.tail.items()}
    return CopyReport(
        source=source,
        stream=stream,
        read_back=options.read_back,
        bytes=plan.bytes,
        segments=len(plan.segments),
        epochs=len(plan.replay.epochs),
        head=planned.content.head.to_json(),
        tail=StreamCut(plan.source, ends).to_json(),
        truncated=bool(planned.warnings),
        offsets=plan.offsets,
        shifts={s.in_stream(plan.source): segment.shift for s, segment in plan.segments.items() if segment.shift},
        moved_boundaries=_moved(plan, len(plan.replay.epochs)),
        warnings=planned.warnings,
    )


def _finished_report(
    source: str, stream: str, planned: _Planned, finished: _Finished, options: CopyOptions
) -> CopyReport:
    """Return the report of what a finished copy has."""
    copied, name = finished.copied, planned.described.name
    described = copied.described
    return CopyReport(
        source=source,
        stream=stream,
        unchanged=True,
        bytes=copied.bytes,
        behind_bytes=copied.behind,
        segments=len(copied.segments),
        epochs=len(described.epochs),
        head=copied.in_source(described.head, name).to_json(),
        tail=copied.in_source(described.tail, name).to_json(),
        offsets=options.offsets,
        shifts={segment.in_stream(name): shift for segment, shift in copied.shifts.items()},
        renumbered={str(old): str(new) for old, new in copied.segments.items() if old != new},
        moved_boundaries=_moved(planned.plan, len(described.epochs)),
        warnings=finished.warnings,
    )


def _moved(plan: RestorePlan, epochs: int) -> tuple[MovedBoundary, ...]:
    return tuple(moved for moved in plan.replay.moved if moved.epoch < epochs)
