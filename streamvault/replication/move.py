"""The *move* command: give a stream another name, or another cluster."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace

from streamvault.common.errors import Conflict
from streamvault.common.options import verb
from streamvault.common.progress import Progress
from streamvault.common.report import CarriedGroup
from streamvault.importer.fill import Differs
from streamvault.importer.plan import plan_restore
from streamvault.importer.reader_groups import group_warnings
from streamvault.importer.reports import renumbered
from streamvault.importer.run import RESTORE_TASKS, ImportRun
from streamvault.importer.target import (
    check_other_stream,
    finishing_under_lease,
    first_segment_id,
    remove_leftovers,
    take_lease,
    unfinished_import,
)
from streamvault.replication.content import CarryingGroups, mirrored_content
from streamvault.replication.promote import cut_over, promotion_warnings, taking_over
from streamvault.replication.replica import REPLICA, Record, Replica, forget_seal, replica_id, replica_tag
from streamvault.replication.replication import Replication
from streamvault.replication.reports import MoveOptions, MoveReport
from streamvault.runner.opening import Tasks
from streamvault.sources.sources import StreamSource
from streamvault.streamstore.cuts import counterparts, later_of
from streamvault.streamstore.errors import (
    GoneBefore,
    NoSuchScope,
    NoSuchSegment,
    NoSuchStream,
    SegmentTruncated,
    StreamChanged,
    StreamExists,
    StreamNotSealed,
)
from streamvault.streamstore.lease import Lease
from streamvault.streamstore.model import Scaling, StreamConfiguration, StreamCut, StreamDescription
from streamvault.streamstore.own import LONGEST_TAG, MOVED_TO, OWN, REPLICA_OF, is_own, tag_of
from streamvault.streamstore.uri import open_stream


@verb(MoveOptions)
def move_stream(source: str, stream: str, options: MoveOptions, progress: Progress) -> MoveReport:
    """Move a stream to another name, scope or cluster, while it is written to.

    The stream is replicated until only a second's worth is missing; then it is sealed, the rest is replicated, and the
    new stream can be written to. Every byte is read back and compared before the old stream is deleted. An empty sealed
    stream keeps the old name, so that no writer creates it again. After a kill, repeat the call to go on.

    Args:
        source: URI of the stream.
        stream: its new URI; the login of its cluster is as for `copy_stream`.
        no_tombstone: leave no empty sealed stream, tagged ``streamvault-moved-to:URI``, under the old name.
        offsets: as for `import_stream`.
        filler_limit: likewise (bytes).
        numbers: likewise. If ``"keep"`` turns out to be impossible once the stream is sealed, because of a transaction
            that was committed over a scale at the last moment, segments get other numbers.
        retention: as for `promote_replica`.
        reader_groups: also create the reader groups that read the stream, as `copy_stream` does, as soon as the new
            stream can be written to, each where it is then. If a position cannot be read, the call fails before the
            stream is sealed.
        window: maximum data a task buffers in memory (bytes).
        master: as for `replicate_stream`.
        dry_run: only report what would be moved.
        progress: receives the progress.

    Raises:
        Problem: it failed; the exception has the command's exit code.
        GoneBefore: there is no such stream (exit code 5).
        TargetTaken: the new stream exists and is not this call's (exit code 4).
        TargetBusy: another process is writing to it (exit code 4).
    """
    with open_stream(source) as origin, open_stream(stream, target=True) as target, ExitStack() as stack:
        check_other_stream(origin, target)
        move = _Move(StreamSource(origin), Replica(target), options, Tasks(options.master, stack, RESTORE_TASKS))
        move.check_there()
        report = MoveReport(source=source, stream=stream, tombstone=not options.no_tombstone, dry_run=options.dry_run)
        if move.is_done():
            if not options.dry_run:
                move.clean_up()
            report = replace(report, unchanged=True)
        elif options.dry_run:
            report = move.rehearse(report)
        else:
            report = move.run(report, progress)
        progress.end()
        return replace(report, seconds=move.tasks.seconds)


class _Move:
    """One move; each step is known from what is there.

    Attributes:
        tasks: opens the runner.
    """

    def __init__(self, source: StreamSource, replica: Replica, options: MoveOptions, tasks: Tasks) -> None:
        self._source = source
        self._replica = replica
        self._options = options
        self.tasks = tasks

    @property
    def _tombstone(self) -> str:
        """The tag of the tombstone."""
        return f"{MOVED_TO}{self._replica.uri}"[:LONGEST_TAG]

    def check_there(self) -> None:
        """Check that there is something to move.

        Raises:
            GoneBefore: there is no such stream, and no run has begun to move it.
        """
        if unfinished_import(self._replica.stream) is None:
            try:
                self._source.stream.describe()
            except (NoSuchScope, NoSuchStream) as gone:
                raise GoneBefore(gone.what, where=gone.where) from None

    def is_done(self) -> bool:
        """Whether the stream was moved before."""
        if unfinished_import(self._replica.stream) != "":
            return False
        old = self._source.stream.find()
        if old is None:
            return tag_of(self._replica.stream.describe().configuration, REPLICA_OF) == replica_tag(self._source.uri)
        return self.is_tombstone(old)

    def is_tombstone(self, old: StreamDescription | None) -> bool:
        """Whether the old name has this move's tombstone."""
        return old is not None and self._tombstone in old.configuration.tags

    def clean_up(self) -> None:
        """Make up for the last steps of an earlier run."""
        if not self._options.no_tombstone:
            self._leave_tombstone()
        remove_leftovers(self._replica.stream)

    def rehearse(self, report: MoveReport) -> MoveReport:
        """Report what is still to be replicated, and which reader groups are to come along."""
        missing = 0
        if self._begun() is None:
            replication = self._replication(Progress())
            replication.look_first()
            missing = replication.target.behind()
        groups = self._groups().planned() if self._options.reader_groups else ()
        return replace(report, bytes=missing, reader_groups=groups)

    def run(self, report: MoveReport, progress: Progress) -> MoveReport:
        """Move the stream, or go on where an earlier run was killed."""
        target = self._replica.stream
        begun = unfinished_import(target)
        is_replica = begun is not None and begun.startswith(REPLICA)
        if is_replica and self._replica.read() is None and not is_own(target.describe().configuration):
            take_lease(target, begun or "").release(remove=True)  # an earlier run was killed right before this
            if self.is_done():
                self.clean_up()
                return replace(report, unchanged=True)
        record = self._begun()
        if record is not None:
            with finishing_under_lease(target, record.work) as lease:
                self._replica.choose_retention(self._options.retention)
                self._replica.finish(lease, complete=False)
                return self._delete_source(report, lease, progress)
        if self._options.reader_groups:
            self._groups()  # what cannot be read is found out before the stream is sealed
        replication = self._replication(progress)
        with taking_over(replication):
            lease = cut_over(replication, self._source, retention=self._options.retention)
            report = replace(
                report,
                moved_bytes=replication.moved_bytes,
                rounds=replication.rounds - 1,
                cutover_seconds=round(replication.cutover_seconds, 3),
                renumbered=renumbered(replication.segments),
            )
            return self._delete_source(report, lease, progress)

    def _begun(self) -> Record | None:
        """Return the record of a promotion of this move's replica that was killed; go on with its options.

        Raises:
            Conflict: the old stream may have more than the replica.
        """
        begun = unfinished_import(self._replica.stream)
        record = self._replica.read() if begun is not None and begun.startswith(REPLICA) else None
        if record is None or record.source != self._source.uri or not record.is_promoting:
            return None
        self._options = self._options.model_copy(update=record.target_options)
        self._check_sealed(self._source.stream.find(), record)
        return record

    def _delete_source(self, report: MoveReport, lease: Lease, progress: Progress) -> MoveReport:
        """Verify the new stream, delete the old one, leave the tombstone, and remove the ledger."""
        old = self._source.stream.find()
        record = self._replica.newest
        groups: tuple[CarriedGroup, ...] = ()
        if old is not None and self._check_sealed(old, record):
            groups = self._groups().carry(old) if self._options.reader_groups else ()
            report = replace(report, bytes=self._verify(lease, progress))
            lease.confirm()
            self._check_new()
            self._delete_compared(old)
        warnings = (*promotion_warnings(record), *group_warnings(groups))
        if not self._options.no_tombstone and (left := self._leave_tombstone()):
            warnings = (*warnings, left)
            report = replace(report, tombstone=self.is_tombstone(self._source.stream.find()))
        progress.warn_all(warnings)
        report = replace(report, warnings=warnings, reader_groups=groups)
        if record.source_first:
            forget_seal(self._source.stream, record.source_first)
        self._replica.forget()
        return report

    def _delete_compared(self, old: StreamDescription) -> None:
        """Delete the old stream, but no open one and none that has another end: nobody has compared that.

        Raises:
            Conflict: the old stream is another one now.
        """
        try:
            now = self._source.stream.describe()
            if (now.sealed, now.tail, now.epochs) == (True, old.tail, old.epochs):
                self._source.stream.store.delete(self._source.name, first=old.epochs[0], only_sealed=True)
                return
        except (StreamChanged, NoSuchStream):
            return
        except StreamNotSealed:
            pass
        raise Conflict(
            "the stream is not the one that was moved: it was deleted and created again, so it is kept",
            where=self._source.uri,
            todo=f"Run 'streamvault promote {self._replica.uri}' to use the new stream as it is.",
        )

    def _groups(self) -> CarryingGroups:
        return CarryingGroups(self._source.stream, self._replica.stream, self._options.offsets, strict=True)

    def _check_sealed(self, old: StreamDescription | None, record: Record) -> bool:
        """Return whether the old stream still is the one that was replicated.

        Raises:
            Conflict: it is, and it may have more than the replica.
        """
        if old is None and not record.sealing:
            raise Conflict(
                "the replica was promoted without sealing the stream, which is gone, so it may lack events",
                where=self._source.uri,
                todo=f"Run 'streamvault promote {self._replica.uri}' to use the replica as it is.",
            )
        if old is None or replica_id(self._source, old, self._options) != record.work:
            return False
        # A cut-over has compared both ends. A promotion without one has replaced the replica's open segments, so the
        # source's tail of the last round says what the replica has.
        if not (old.sealed and (record.sealing or record.tail == old.tail.to_json())):
            raise Conflict(
                "the replica was promoted without sealing the stream, which may have been written to since",
                where=self._source.uri,
                todo=f"Run 'streamvault promote {self._replica.uri}', copy what is missing with 'streamvault copy "
                "--from', and delete the stream yourself.",
            )
        return True

    def _check_new(self) -> StreamDescription:
        """Return the new stream.

        Raises:
            Conflict: it is another one.
        """
        copied = self._replica.stream.find()
        if copied is not None and first_segment_id(copied) == self._replica.newest.target:
            return copied
        raise Conflict("the new stream was deleted, or created again, so the old one is kept", where=self._replica.uri)

    def _verify(self, lease: Lease, progress: Progress) -> int:
        """Read the new stream back and compare all of it with the old one; return the number of bytes.

        What the new stream's retention policy has deleted meanwhile is not compared.
        """
        replication = self._replication(progress)
        while True:
            look, copied = self._source.look(), self._check_new()
            head = replication.target.cut_of(copied, copied.head, look.described)
            if head is None:
                raise Conflict(
                    "the new stream was scaled and truncated before it was compared, so the old one is kept",
                    where=self._replica.uri,
                    todo=f"Compare them yourself, or export {self._source.uri}, before you delete it.",
                )
            described = replace(look.described, head=later_of(look.described, head, look.described.head))
            record = self._replica.newest
            first_head = StreamCut.from_json(record.head, self._source.name)
            content = mirrored_content(replace(look, described=described), import_id=record.work, first_head=first_head)
            # only the bytes are compared, and the replica may have got other numbers after the seal
            plan = plan_restore(content, self._options.model_copy(update={"numbers": "map"}))
            run = ImportRun(self._replica.stream, plan, window=self._options.window, read_back=True)
            segments = counterparts(described.epochs, copied.epochs) or {}
            try:
                run.compare(segments, self.tasks.runner, progress, lease)
            except (SegmentTruncated, NoSuchSegment):
                if self._check_new().head == copied.head:
                    raise
                continue
            except Differs as differs:
                todo = (
                    f"Keep both: {self._source.uri} is sealed and has all that was written to it, and "
                    f"{self._replica.uri} may have newer events. Copy the old one to a third name."
                )
                raise Differs(differs.what, where=differs.where, todo=todo) from None
            return plan.bytes

    def _leave_tombstone(self) -> str:
        """Create the tombstone, or seal it; return a warning if the name belongs to another stream, or has events."""
        store, name = self._source.stream.store, self._source.name
        configuration = StreamConfiguration(Scaling(min_segments=1), tags=(OWN, self._tombstone))
        with suppress(StreamExists):
            store.create_stream(name, configuration)
        described = store.describe(name)
        if described.configuration.tags != configuration.tags:
            return f"another stream was created as {self._source.uri} meanwhile; it is left unchanged"
        store.seal(name, first=described.epochs[0])
        if any(store.describe(name).tail.offsets.values()):
            return f"a writer has written to {self._source.uri} before it was sealed; the events are still there"
        return ""

    def _replication(self, progress: Progress) -> Replication:
        return Replication(self._source, self._replica, self._options, progress=progress, tasks=self.tasks)
