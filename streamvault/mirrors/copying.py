"""Copies a stream, or looks at what an earlier copy has left.

A copy is a replica that is finished as soon as it has everything: its target, and the ledger of where its offsets are
counted from, are those of `mirrors.target`. It needs no ledger if offsets are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from streamvault.common.errors import Conflict
from streamvault.common.progress import Progress
from streamvault.importer.ownership import (
    finishing_record,
    finishing_under_lease,
    marked_import,
    reporting_lost_lease,
    unfinished_import,
)
from streamvault.importer.plan import Content, RestorePlan, plan_restore, scaling_warnings
from streamvault.importer.run import ImportRun, Restored
from streamvault.importer.target import OTHER_NAME, Target, TargetTaken, target_exists_error
from streamvault.importer.unfinished import Unfinished, check_missing_filler, look_again
from streamvault.mirrors.content import begin_of, mirrored_content
from streamvault.mirrors.copied import Copied, Pair
from streamvault.mirrors.options import CopyOptions
from streamvault.mirrors.reach import Reach
from streamvault.mirrors.replica import Replica, replica_id
from streamvault.mirrors.target import ReplicaTarget
from streamvault.reading.stream_source import StreamSource
from streamvault.sparkrun.opening import Tasks
from streamvault.streamstore.arithmetic.byte_source import SourceTruncated
from streamvault.streamstore.errors import NoSuchSegment, NoSuchStream, SegmentTruncated
from streamvault.streamstore.model import StreamCut, StreamDescription
from streamvault.streamstore.open_stream import OpenStream
from streamvault.streamstore.own import COPY_OF, FILLED, LONGEST_TAG, is_own, tag_of, users_tags
from streamvault.streamstore.services.lease import Lease
from streamvault.streamstore.services.ledger import LedgerNameTaken

COPY = "copy."
"""Prefix of a copy's name (`importer.plan.RestorePlan.import_id`)."""

TRUNCATED_BEYOND = "the source was truncated beyond --from; what is missing there is not copied"


@dataclass(frozen=True, slots=True)
class PlannedCopy:
    """The source at one moment, and the plan of its copy.

    Attributes:
        content: what is copied of the source.
        plan: the plan.
        begin: where the copy began, maybe in an earlier run; shifted offsets are relative to it.
        warnings: what the user is to be warned of.
    """

    content: Content
    plan: RestorePlan
    begin: StreamCut
    warnings: tuple[str, ...]


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


class CopyTarget(ReplicaTarget):
    """The target of a copy; see `ReplicaTarget`. `cuts` are those between which the source is copied."""

    def __init__(
        self, source: StreamSource, replica: Replica, options: CopyOptions, cuts: Mapping[str, StreamCut | None]
    ) -> None:
        super().__init__(source, replica, options, keep_head=False)
        self._cuts = [None if cut is None else cut.to_json() for cut in cuts.values()]

    def id_of(self, described: StreamDescription) -> str:
        """Return the name of the copy of a source: the same for the same source, cuts and options."""
        return replica_id(self._source, described, self._options, self._cuts, kind=COPY)

    def read(self) -> None:
        """See the base class; a copy that keeps offsets has no ledger."""
        if self._options.offsets == "shift":
            super().read()
        elif self.check_free() is None:
            with suppress(LedgerNameTaken):
                self._replica.read()  # of a target that was deleted: `Replica.forget` deletes it
            self._replica.record = None

    def take(self, run: ImportRun, described: StreamDescription, lease: Lease) -> Target:
        """See the base class."""
        return run.take(lease) if self._options.offsets == "keep" else super().take(run, described, lease)

    def check_free(self) -> str | None:
        """See the base class."""
        stream = self._replica.stream
        begun = unfinished_import(stream)
        if begun is None or begun == self.id or (found := stream.find()) is None:
            return begun
        earlier = replace(self._described, epochs=found.epochs)
        if begun and begun == marked_import(found) == self.id_of(earlier):
            raise self.recreated_error()
        raise target_exists_error(stream.store, found, begun=begun)

    def no_ledger_error(self) -> TargetTaken:
        """See the base class."""
        return TargetTaken(
            "the record of where the unfinished copy began is gone",
            where=self._replica.uri,
            todo="Copy into another name. Delete the unfinished copy only if the source still has its events.",
        )

    def recreated_error(self) -> TargetTaken:
        """Build the error for an unfinished target that is a copy of an earlier stream of the source's name."""
        return TargetTaken(
            "the source was deleted and created again since this copy was started",
            where=self._replica.uri,
            todo="Choose another name. The unfinished copy may have events that no other stream has.",
        )


class Copying:
    """One copy.

    Args:
        source: the source.
        target: its copy; it need not exist.
        options: how it is copied.
        cuts: the cuts between which it is copied.
    """

    def __init__(
        self, source: StreamSource, target: OpenStream, options: CopyOptions, cuts: Mapping[str, StreamCut | None]
    ) -> None:
        self._source = source
        self._stream = target
        self._options = options
        self._cuts = cuts
        self._replica = Replica(target)
        self._target = CopyTarget(source, self._replica, options, cuts)

    def _tag(self, import_id: str) -> str:
        """Return the tag of the finished copy, which tells copies with other cuts or options apart."""
        name, options = self._source.name, self._options
        plain = (options.offsets, options.numbers) == ("keep", "keep") and not any(self._cuts.values())
        suffix = "" if plain else "#" + import_id.removeprefix(COPY)[:8]
        if len(tag := f"{COPY_OF}{name}{suffix}") <= LONGEST_TAG:
            return tag
        return f"{COPY_OF}{hashlib.sha256(str(name).encode()).hexdigest()}{suffix}"

    def _plan(self) -> PlannedCopy:
        """Plan the copy of the source as it is now; changes nothing."""
        return look_again(self._plan_once, SourceTruncated)

    def _plan_once(self) -> PlannedCopy:
        look, cuts = self._source.look(), self._cuts
        described = look.described
        import_id = self._target.id_of(described)
        given = described.configuration
        filled = (tag for tag in given.tags if tag.startswith(FILLED))
        tagged = replace(given, tags=(*users_tags(given), *filled, self._tag(import_id)))
        head = begin_of(described, cuts["from_cut"])
        begin = self._beginning(described, head)
        look = replace(look, described=replace(described, configuration=tagged))
        content = mirrored_content(look, import_id=import_id, first_head=begin, **cuts)
        plan = plan_restore(content, self._options)
        beyond = () if cuts["from_cut"] in (None, head) else (TRUNCATED_BEYOND,)
        warnings = (*scaling_warnings(given, plan.configuration), *beyond)
        return PlannedCopy(content, plan, begin, warnings)

    def _beginning(self, described: StreamDescription, head: StreamCut) -> StreamCut:
        """Return where the copy of a source began, or begins, which is at ``head``."""
        return Reach(self._source, self._replica, self._options.offsets).beginning(replace(described, head=head))

    def look(self, tasks: Tasks | None, progress: Progress) -> tuple[PlannedCopy, Copied | None]:
        """Plan the copy, and look for a finished one.

        Args:
            tasks: opens the runner to read a finished copy back; None not to read it.
            progress: receives the progress.

        Raises:
            TargetTaken: the target is another stream, or was written to since it was copied.
            Usage: too much filler is needed.
        """
        changed = (SourceTruncated, SegmentTruncated, NoSuchSegment, NoSuchStream)
        return look_again(lambda: self._look(tasks, progress), *changed)

    def _look(self, tasks: Tasks | None, progress: Progress) -> tuple[PlannedCopy, Copied | None]:
        unfinished = Unfinished.find(self._stream)
        planned = self._plan()
        if (finished := self._find_finished(planned, tasks, progress)) is not None:
            return planned, finished
        self._target.find(planned.content.described)
        if self._replica.record is not None:  # it says where the copy began
            planned = self._plan()
        if unfinished is not None and marked_import(unfinished.described) == planned.plan.import_id:
            self._run(planned).check_unfinished(unfinished)
        check_missing_filler(planned.plan, self._options.filler_limit, unfinished)
        return planned, None

    def _run(self, planned: PlannedCopy) -> ImportRun:
        """Return the run that makes the copy."""
        options = self._options
        return ImportRun(self._stream, planned.plan, window=options.window, read_back=options.read_back, mirrors=True)

    def copy(self, planned: PlannedCopy, tasks: Tasks, progress: Progress) -> CopyResult:
        """Make the copy; begin it later if the source is truncated meanwhile."""
        moved, truncated = 0, False
        with finishing_under_lease(self._stream, self._target.id) as lease, reporting_lost_lease(lease):
            self._target.read()  # others may have begun it before the lease was taken
            if self._beginning(planned.content.described, planned.begin) != planned.begin:
                planned = self._plan()
            while True:
                run = self._run(planned)
                try:
                    target = self._target.take(run, replace(planned.content.described, head=planned.begin), lease)
                    restored = run.complete(target, lease, tasks.runner, progress)
                    break
                except SourceTruncated:
                    moved += run.moved_bytes
                    before, planned = planned, self._plan()
                    if planned.plan.import_id != before.plan.import_id:
                        raise self._target.recreated_error() from None
                    if planned.content.described.head == before.content.described.head:
                        raise
                    for warning in set(planned.warnings).difference(before.warnings):
                        progress.warn(warning)
                    truncated = True
                    check_missing_filler(planned.plan, self._options.filler_limit, Unfinished.find(self._stream))
            self._replica.forget()
        return CopyResult(planned, restored, moved + restored.moved_bytes, truncated)

    def _find_finished(self, planned: PlannedCopy, tasks: Tasks | None, progress: Progress) -> Copied | None:
        """Return the finished copy; None if there is no target, or an unfinished one, or only the seal is missing."""
        described, import_id = self._stream.find(), planned.plan.import_id
        if described is None or is_own(described.configuration):
            return None
        finishing = finishing_record(self._stream.store, described)
        begun = finishing.work if finishing is not None else ""
        if begun not in ("", import_id):
            raise target_exists_error(self._stream.store, described, begun=begun)
        if self._tag(import_id) not in described.configuration.tags:
            raise self._other_error(described)
        copied = Pair(self._stream, described, self._source.stream, planned.content, planned.plan).examine()
        equal = not copied.behind and len(described.epochs) == len(planned.plan.replay.epochs)
        if begun and equal and planned.plan.sealed and not described.sealed:
            return None  # an earlier run was killed before its last step
        return copied if tasks is None else self._read_back(planned, copied, tasks, progress)

    def _read_back(self, planned: PlannedCopy, copied: Copied, tasks: Tasks, progress: Progress) -> Copied:
        """Compare all that a finished copy and its source still have."""
        plan = replace(planned.plan, segments=copied.plans(planned.content, self._source.stream))
        run = ImportRun(self._stream, plan, window=self._options.window, read_back=True)
        run.compare(copied.segments, tasks.runner, progress)
        progress.end()
        left = copied.bytes - plan.bytes
        warning = f"{left} bytes of the copy were not compared, as the source was truncated since"
        return replace(copied, read_back=not left, warnings=(warning,) if left else ())

    def _other_error(self, described: StreamDescription) -> Conflict:
        """Return the error for a stream that is not a finished copy with these cuts and options."""
        found = tag_of(described.configuration, COPY_OF)
        if not found:
            return target_exists_error(self._stream.store, described)
        what = f"the stream is a copy of {found.partition('#')[0]}"
        if what.endswith(f" {self._source.name}"):
            what += " with other cuts or options, or of an earlier stream of that name"
        return TargetTaken(what, where=self._stream.uri, todo=OTHER_NAME)
