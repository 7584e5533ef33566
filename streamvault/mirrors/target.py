"""The target of a replication: free or its source's replica when it is found, and from then on that very stream.

The source has to stay the same, too. A stream of the same name and first segments may be another one: in a cluster that
was rebuilt, numbering begins anew. So the ledger has the source's tail and head of the newest round, and each round
compares the last bytes of all open segments with the replica's (`ImportRun.check_unfinished`) before it appends to any.
"""

from __future__ import annotations

from streamvault.common.errors import Conflict
from streamvault.importer.options import TargetOptions
from streamvault.importer.ownership import TargetBusy, unfinished_import
from streamvault.importer.run import ImportRun
from streamvault.importer.target import Target, TargetTaken, has_data, target_exists_error
from streamvault.importer.unfinished import Unfinished
from streamvault.mirrors.record import Record, configuration_document
from streamvault.mirrors.replica import Replica, replica_id, replica_tag
from streamvault.mirrors.sealing import is_sealed_by_user
from streamvault.reading.source import Source
from streamvault.reading.stream_source import StreamSource
from streamvault.streamstore.arithmetic.cuts import is_before
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import StreamCut, StreamDescription
from streamvault.streamstore.own import REPLICA_OF, is_own, tag_of
from streamvault.streamstore.services.lease import Lease


class ReplicaTarget:
    """The target of a replication, and the ledger that is about it.

    Args:
        source: the source.
        replica: the target; it need not exist.
        options: how the source becomes a new stream.
        keep_head: keep what the source truncates. Once given, it holds for the replica.

    Attributes:
        id: see `Record.work`; known after `find`.
        first: see `Record.target`; empty before `begin`.
        keep_head: as above.
        is_new: whether there was no target when it was read.
    """

    def __init__(self, source: Source, replica: Replica, options: TargetOptions, *, keep_head: bool) -> None:
        self._source = source
        self._replica = replica
        self._options = options
        self._deleted: Record | None = None
        self._described: StreamDescription
        self.keep_head = keep_head
        self.id = self.first = ""
        self.is_new = False

    @property
    def keeps_head(self) -> bool:
        """Whether the replica keeps what the source truncates. An omitted option must not delete the only copy."""
        record = self._replica.record
        return self.keep_head or (record is not None and record.keep_head)

    @property
    def was_deleted(self) -> bool:
        """Whether the ledger that was read is about a replica that was deleted."""
        return self._deleted is not None

    def find(self, described: StreamDescription) -> None:
        """As `read`, for the replica of a source that was looked at.

        Args:
            described: the source.
        """
        self.id, self._described = self.id_of(described), described
        self.read()

    def id_of(self, described: StreamDescription) -> str:
        """Return `Record.work` of the replica of a source."""
        return replica_id(self._source, described, self._options)

    def check_free(self) -> str | None:
        """Check that the target is free or this replica; return `unfinished_import`.

        Raises:
            TargetTaken: it is neither.
        """
        replica, source, options = self._replica, self._source, self._options
        begun = unfinished_import(replica.stream)
        if begun is None:
            return None
        described = replica.stream.describe()
        if begun == self.id:
            if not is_own(described.configuration):
                raise replica.promoting_error()
            return begun
        where = replica.uri
        record = replica.read()
        if begun and record is not None and record.work == begun and record.source == source.uri:
            if (record.offsets, record.numbers) != (options.offsets, options.numbers):
                what = f"the replica was started with --offsets {record.offsets} --numbers {record.numbers}"
                raise TargetTaken(what, where=where, todo="Give these options, or choose another name.")
            raise TargetTaken(
                "the source was deleted and created again, so it is not the stream that was replicated",
                where=source.uri,
                todo=f"Promote {where} as it is, or choose another name.",
            )
        if promoted := tag_of(described.configuration, REPLICA_OF):
            todo = "Choose another name. This stream may have events that no other one has."
            raise TargetTaken(f"the stream is a promoted replica of {promoted}", where=where, todo=todo)
        if not begun and self._is_origin():
            raise TargetTaken(
                f"the stream is the one that {source.uri} was a replica of",
                where=where,
                todo="Choose another name. It may have events that were never replicated.",
            )
        raise target_exists_error(replica.stream.store, described, begun=begun)

    def _is_origin(self) -> bool:
        """Whether the source is a promoted replica of the target: the old cluster is back."""
        if not isinstance(self._source, StreamSource):
            return False
        described = self._source.stream.find()
        return described is not None and tag_of(described.configuration, REPLICA_OF) == replica_tag(self._replica.uri)

    def read(self) -> None:
        """Check the target, and read the ledger. `Replica.record` is None if that is not about the target.

        Raises:
            TargetTaken: it is neither free nor this replica, its promotion has begun, or its ledger is missing.
        """
        replica = self._replica
        begun = self.check_free()
        record = replica.read()
        self.is_new, self._deleted = begun is None, None
        if begun is None:
            self._deleted, replica.record = record, None
            return
        if record is not None and record.is_promoting:
            raise replica.promoting_error()
        described = replica.stream.describe()
        if record is not None and not record.is_about(described):
            self._deleted, replica.record = record, None
        if replica.record is None and self._options.offsets == "shift" and has_data(described):
            raise self.no_ledger_error()

    def no_ledger_error(self) -> TargetTaken:
        """Build the error for an unfinished target whose offsets are counted from a place that is no longer known."""
        return TargetTaken(
            "the replica's ledger, which records the offset shifts, is missing",
            where=self._replica.uri,
            todo="Replicate into another stream. Delete this one only if the source still has all its events.",
        )

    def check_same(self, described: StreamDescription) -> None:
        """Check that the source is still the stream that the ledger is about, as far as its shape shows.

        Its tail and its head only move on, and its history grows.

        Args:
            described: the source as it is now.

        Raises:
            Conflict: it was deleted and created again.
        """
        record = self._replica.record
        if record is not None and not (self.id_of(described) == record.work and _goes_on(described, record)):
            raise Conflict(
                "the source was deleted and created again, so it is not the stream that was replicated",
                where=self._source.uri,
                todo=f"Promote {self._replica.uri} as it is, or replicate into another stream.",
            )

    def check_stays(self, unfinished: Unfinished | None) -> None:
        """Check that the target is the one that the ledger is about.

        Args:
            unfinished: the target; None if there is none.

        Raises:
            Conflict: it was deleted meanwhile, or is another one of its name.
        """
        record = self._replica.record
        if record is None or not record.target:
            return  # it is still to be created
        if unfinished is None:
            self.check_free()  # it may have been promoted
        if unfinished is None or not record.is_about(unfinished.described):
            raise self._gone()

    def take(self, run: ImportRun, described: StreamDescription, lease: Lease) -> Target:
        """Create or resume the target with its ledger, before it gets data.

        Args:
            run: fills the target.
            described: the source; a new ledger says that the replica began at its head.
            lease: the lease on the target.

        Raises:
            TargetTaken, TargetBusy, Conflict: as `ImportRun.take` and `begin`.
        """
        target, known = run.take(lease), self._replica.record
        self.begin(described, target.first_segment_id)
        if self._replica.record is not known:
            # another run may have finished the target, and deleted its ledger, before this one began a ledger anew
            target.check_unfinished()
        return target

    def begin(self, described: StreamDescription, first: str) -> None:
        """Begin the ledger of a replica that has none, after its target was created, and before it has data.

        So no ledger is left if the store refuses the target.

        Args:
            described: the source.
            first: see `Record.target`; empty if it is still to be created.

        Raises:
            TargetBusy: another process has begun it.
            Conflict: the replica that the ledger is about was deleted meanwhile.
        """
        replica = self._replica
        self.first = first
        record = replica.record
        if record is not None:
            if record.target != first and record.target:
                raise self._gone()
            if not record.target:
                replica.note(target=first)
            return
        if self._deleted is None and replica.read(create=True) is not None:
            raise TargetBusy("another process brings the replica up to date", where=replica.uri)
        replica.note(self._first_record(described))
        self.is_new, self._deleted = False, None

    def _first_record(self, described: StreamDescription) -> Record:
        former = self._deleted
        sealing = former is not None and former.work == self.id and former.sealing
        return Record(
            work=self.id,
            source=self._source.uri,
            stream=str(described.name),
            offsets=self._options.offsets,
            numbers=self._options.numbers,
            filler_limit=self._options.filler_limit,
            keep_head=self.keep_head,
            head=described.head.to_json(),
            configuration=configuration_document(described),
            sealed=former.sealed if former is not None and sealing else is_sealed_by_user(self._source, described),
            sealing=sealing,
            target=self.first,
        )

    def _gone(self) -> Conflict:
        return Conflict(
            "the replica was deleted while it was replicated",
            where=self._replica.uri,
            todo="Run the same command again to begin a new one.",
        )


def _goes_on(described: StreamDescription, record: Record) -> bool:
    """Whether a source can be the one of a record, later."""
    try:
        for before, now in ((record.tail, described.tail), (record.source_head, described.head)):
            if before is not None and not is_before(described, StreamCut.from_json(before, described.name), now):
                return False
    except InvalidCut:  # it never had such segments
        return False
    return True
