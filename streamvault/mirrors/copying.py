"""Copies a stream, or looks at what an earlier copy has left."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from streamvault.common.errors import Conflict
from streamvault.common.progress import Progress
from streamvault.importer.ownership import (
    finishing_record,
    finishing_under_lease,
    lease_stream,
    marked_import,
    reporting_lost_lease,
    take_lease,
    unfinished_import,
)
from streamvault.importer.plan import Content, RestorePlan, plan_restore, scaling_warnings
from streamvault.importer.run import ImportRun, Restored
from streamvault.importer.target import OTHER_NAME, TargetTaken, target_exists_error
from streamvault.importer.unfinished import Unfinished, check_missing_filler
from streamvault.mirrors.content import begin_of, mirrored_content
from streamvault.mirrors.copied import Copied, examine
from streamvault.mirrors.options import CopyOptions
from streamvault.reading.stream_source import StreamSource
from streamvault.sparkrun.opening import Tasks
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.errors import NoSuchSegment, NoSuchStream, SegmentTruncated, StreamStoreError
from streamvault.streamstore.model import StreamCut, StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import (
    COPY_OF,
    FILLED,
    LONGEST_TAG,
    TARGET_LEDGER,
    is_own,
    stream_beside,
    tag_of,
    users_tags,
)
from streamvault.streamstore.services.lease import last_heartbeat
from streamvault.streamstore.services.ledger import Ledger, LedgerNameTaken

COPY = "copy."
"""Prefix of a copy's name (`importer.plan.RestorePlan.import_id`)."""

TURNS = 10
"""How often a finished copy is looked at if it or its source is truncated meanwhile."""

TRUNCATED_BEYOND = "the source was truncated beyond --from; what is missing there is not copied"


@dataclass(frozen=True, slots=True)
class PlannedCopy:
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
class CopyResult:
    """A copy that this call finished.

    Attributes:
        planned: what was copied.
        restored: the result of the last run.
        moved_bytes: bytes that all runs appended, without filler.
        truncated: whether the source was truncated meanwhile.
    """

    planned: PlannedCopy
    restored: Restored
    moved_bytes: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class FinishedCopy:
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
class Copying:
    """One source, one target, and the options; `cuts` are those between which the source is copied."""

    source: StreamSource
    target: OpenStream
    options: CopyOptions
    cuts: Mapping[str, StreamCut | None]

    @property
    def ledger(self) -> Ledger:
        """The ledger of where a copy with shifted offsets began."""
        return Ledger(self.target.store, stream_beside(self.target.name, TARGET_LEDGER), self.target.name)

    def import_id(self, described: StreamDescription) -> str:
        """Return the name of this copy (`RestorePlan.import_id`): the same for the same source, cuts and options.

        A source that was deleted and recreated is another one.
        """
        cuts = {name: None if cut is None else cut.to_json() for name, cut in self.cuts.items()}
        first = [segment.value for segment in described.epochs[0].segments]
        source, options = self.source.stream, self.options
        content = [source.address.uri, str(source.name), first, cuts, options.offsets, options.numbers]
        return f"{COPY}{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]}"

    def tag(self, import_id: str) -> str:
        """Return the tag of the finished copy, which tells copies with other cuts or options apart."""
        plain = (self.options.offsets, self.options.numbers) == ("keep", "keep") and not any(self.cuts.values())
        suffix = "" if plain else "#" + import_id.removeprefix(COPY)[:8]
        if len(tag := f"{COPY_OF}{self.source.name}{suffix}") <= LONGEST_TAG:
            return tag
        return f"{COPY_OF}{hashlib.sha256(str(self.source.name).encode()).hexdigest()}{suffix}"

    def plan(self) -> PlannedCopy:
        """Plan the copy of the source as it is now; changes nothing."""
        while True:
            look = self.source.look()
            described, cuts = look.described, self.cuts
            import_id = self.import_id(described)
            tag = self.tag(import_id)
            given = described.configuration
            filled = (one for one in given.tags if one.startswith(FILLED))
            tagged = replace(given, tags=(*users_tags(given), *filled, tag))
            head = begin_of(described, cuts["from_cut"])
            begin = self._begin(import_id, head)
            look = replace(look, described=replace(described, configuration=tagged))
            try:
                content = mirrored_content(look, import_id=import_id, first_head=begin, **cuts)
            except SourceTruncated:
                continue
            plan = plan_restore(content, self.options)
            beyond = () if cuts["from_cut"] in (None, head) else (TRUNCATED_BEYOND,)
            warnings = (*scaling_warnings(given, plan.configuration), *beyond)
            return PlannedCopy(described, content, plan, tag, begin, warnings)

    def _begin(self, import_id: str, head: StreamCut) -> StreamCut:
        """Return where this copy began, maybe in an earlier run; offsets stay shifted by that."""
        if self.options.offsets == "keep" or unfinished_import(self.target) != import_id:
            return head
        ledger = self.ledger
        known = ledger.newest(create=False)
        if known is not None and known["work"] == import_id:
            return StreamCut.from_json(known["head"], self.source.name)
        described = self.target.find()
        if described is not None and is_own(described.configuration):
            raise TargetTaken(
                "the record of where the unfinished copy began is gone",
                where=f"{self.target.store.uri}/{ledger.name}",
                todo="Copy into another name. Delete the unfinished copy only if the source still has its events.",
            )
        return head

    def look(self, tasks: Tasks | None, progress: Progress) -> tuple[PlannedCopy, FinishedCopy | None]:
        """Plan the copy, and look for a finished one.

        Args:
            tasks: opens the runner to read a finished copy back; None not to read it.
            progress: receives the progress.

        Raises:
            TargetTaken: the target is another stream, or was written to since it was copied.
        """
        for turn in range(TURNS):
            unfinished = Unfinished.find(self.target)
            planned = self.plan()
            try:
                finished = self._find_finished(planned, tasks, progress)
                if unfinished is not None and marked_import(unfinished.described) == planned.plan.import_id:
                    self.run(planned).check_unfinished(unfinished)
            except (SourceTruncated, SegmentTruncated, NoSuchSegment, NoSuchStream):
                if turn == TURNS - 1:
                    raise
            else:
                return planned, finished
        raise AssertionError

    def run(self, planned: PlannedCopy) -> ImportRun:
        """Return the run that makes the copy."""
        options = self.options
        return ImportRun(self.target, planned.plan, window=options.window, read_back=options.read_back, mirrors=True)

    def check_filler(self, planned: PlannedCopy) -> None:
        """Check how much filler is still to be appended.

        Raises:
            Usage: it is more than the limit.
        """
        check_missing_filler(planned.plan, self.options.filler_limit, Unfinished.find(self.target))

    def copy(self, planned: PlannedCopy, tasks: Tasks, progress: Progress) -> CopyResult:
        """Make the copy; begin it later if the source is truncated meanwhile."""
        moved, truncated = 0, False
        while True:
            run = self.run(planned)
            try:
                with (
                    finishing_under_lease(self.target, planned.plan.import_id) as lease,
                    reporting_lost_lease(lease),
                    self._keeping_ledger(planned),
                ):
                    restored = run.restore(lease, tasks.runner, progress)
            except SourceTruncated:
                moved += run.moved_bytes
                before, planned = planned, self.plan()
                if planned.plan.import_id != before.plan.import_id:
                    raise self._recreated_error() from None
                if planned.head == before.head:
                    raise
                for warning in set(planned.warnings).difference(before.warnings):
                    progress.warn(warning)
                truncated = True
                self.check_filler(planned)
            else:
                return CopyResult(planned, restored, moved + restored.moved_bytes, truncated)

    @contextmanager
    def _keeping_ledger(self, planned: PlannedCopy) -> Iterator[None]:
        """Record where a copy begins before its target is created; delete the record when the copy is finished.

        The lease on the target is held meanwhile.

        Raises:
            Conflict: another run of this copy has begun elsewhere since it was planned.
        """
        import_id, ledger, mine = planned.plan.import_id, self.ledger, False
        shifted, is_new = self.options.offsets == "shift", not self.target.exists()
        if is_new and not shifted:
            with suppress(LedgerNameTaken):
                ledger.newest(create=False)
                ledger.delete()  # of a target that was deleted
        elif shifted:
            known = ledger.newest(create=is_new)
            mine = is_new or (known is not None and known["work"] == import_id)
            if is_new:
                ledger.record({"work": import_id, "head": planned.begin.to_json()})
            elif known is not None and mine and StreamCut.from_json(known["head"], self.source.name) != planned.begin:
                raise Conflict(
                    "another run of this copy was killed meanwhile",
                    where=self.target.uri,
                    todo="Run the same command again to resume it.",
                )
        try:
            yield
        except Exception:
            with suppress(StreamStoreError):
                if mine and unfinished_import(self.target) != import_id:
                    ledger.delete()
            raise
        if mine:
            ledger.delete()

    def _find_finished(self, planned: PlannedCopy, tasks: Tasks | None, progress: Progress) -> FinishedCopy | None:
        """Return the finished copy; None if there is no target, or an unfinished one, or only the seal is missing."""
        described, import_id = self.target.find(), planned.plan.import_id
        if described is None:
            return None
        if is_own(described.configuration):
            self._check_recreated(described, planned)
            return None
        finishing = finishing_record(self.target.store, described)
        begun = finishing.work if finishing is not None else ""
        if begun not in ("", import_id):
            raise target_exists_error(self.target.store, described, begun=begun)
        if planned.tag not in described.configuration.tags:
            raise self._other_error(described)
        copied = examine(self.target, described, self.source.stream, planned.content, planned.plan)
        equal = not copied.behind and len(described.epochs) == len(planned.plan.replay.epochs)
        if begun and equal and planned.plan.sealed and not described.sealed:
            return None  # an earlier run was killed before its last step
        return FinishedCopy(copied, False) if tasks is None else self._read_back(planned, copied, tasks, progress)

    def _read_back(self, planned: PlannedCopy, copied: Copied, tasks: Tasks, progress: Progress) -> FinishedCopy:
        """Compare all that a finished copy and its source still have."""
        plan = replace(planned.plan, segments=copied.plans(planned.content, self.source.stream))
        run = ImportRun(self.target, plan, window=self.options.window, read_back=True)
        run.compare(copied.segments, tasks.runner, progress)
        progress.end()
        left = copied.bytes - plan.bytes
        warning = f"{left} bytes of the copy were not compared, as the source was truncated since"
        return FinishedCopy(copied, not left, (warning,) if left else ())

    def _check_recreated(self, unfinished: StreamDescription, planned: PlannedCopy) -> None:
        """Say so if an unfinished target is a copy of an earlier stream of the source's name."""
        begun = marked_import(unfinished)
        earlier = replace(planned.described, epochs=unfinished.epochs)
        if begun not in ("", planned.plan.import_id) and self.import_id(earlier) == begun:
            raise self._recreated_error()

    def _recreated_error(self) -> TargetTaken:
        return TargetTaken(
            "the source was deleted and created again since this copy was begun",
            where=self.target.uri,
            todo="Choose another name. The unfinished copy may have events that no other stream has.",
        )

    def _other_error(self, described: StreamDescription) -> Conflict:
        """Return the error for a stream that is not a finished copy with these cuts and options."""
        found = tag_of(described.configuration, COPY_OF)
        if not found:
            return target_exists_error(self.target.store, described)
        what = f"the stream is a copy of {found.partition('#')[0]}"
        if what.endswith(f" {self.source.name}"):
            what += " with other cuts or options, or of an earlier stream of that name"
        return TargetTaken(what, where=self.target.uri, todo=OTHER_NAME)

    def clean_up(self, planned: PlannedCopy) -> None:
        """Delete the lease and the ledger that a killed or late run of this copy has left beside it.

        Raises:
            TargetBusy: the run still goes on.
        """
        target, import_id, ledger = self.target, planned.plan.import_id, self.ledger
        lease_name = lease_stream(target.name)
        record = last_heartbeat(target.store, lease_name)
        if record is not None and record.work != import_id:
            return
        mine = False
        with suppress(LedgerNameTaken):
            known = ledger.newest(create=False)
            # a late run may have been killed before it wrote to its ledger
            mine = target.store.exists(ledger.name) if known is None else known["work"] == import_id
        if not mine and not target.store.exists(lease_name):
            return
        lease = take_lease(target, import_id)
        if mine:
            ledger.delete()
        lease.release(remove=True)
