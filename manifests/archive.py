"""The generations of one archive: reading them with every cross-check, and committing the next one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TypeVar

from common.errors import Conflict, Damaged, Failed, Overtaken
from layouts.keys import TABLES, GenerationSpan, archive_prefix, decision_key, manifest_key, ranges_key, table_folder
from layouts.layout import table_layout
from layouts.place import Place
from manifests.agreement import by_segment, check_follows, cross_check
from manifests.history import Generation, History
from manifests.jsonfile import decode
from manifests.listing import Listing, read_listing
from manifests.marks import Decision
from manifests.model import GenerationModel, IndexEntry, Manifest
from manifests.range_row import RangeRow
from manifests.ranges import MOST_INDEX_BYTES, decode_ranges, encode_ranges
from objectstore.errors import AccessDenied, AlreadyExists, NoSuchObject
from objectstore.store import ObjectStore
from objectstore.uri import RootAddress
from streamstore.model import SegmentId, StreamName

__all__ = ["Archive", "Generation", "History", "NoSuchArchive"]

T = TypeVar("T")

DECIDE_TRIES = 100
"""So many others may decide first, one after the other, before a run says that something is wrong."""


class NoSuchArchive(Failed):
    """There is no generation at this place."""

    retriable = False


class Archive:
    """One stream's archive at one root.

    Args:
        store: the root, opened.
        stream: the archived stream.
        root: the same root, for tasks that open it themselves; None if there are none.
    """

    table = ""
    """The name of the table whose records this is; empty for an archive."""

    def __init__(self, store: ObjectStore, stream: StreamName, root: RootAddress | None = None) -> None:
        self.store = store
        self.stream = stream
        self._root = root

    @classmethod
    def open(cls, uri: str) -> Archive:
        """The archive at ``ROOT/SCOPE/STREAM``. Nothing is asked of the store yet.

        Raises:
            Problem: not such a URI, or its bucket cannot be reached.
        """
        root, scope, stream = RootAddress.parse(uri).resolve().split()
        return Archive.at(root, StreamName(scope, stream))

    @staticmethod
    def at(root: RootAddress, stream: StreamName) -> Archive:
        """A stream's archive below a root."""
        return Archive(root.open(), stream, root)

    @property
    def root(self) -> RootAddress:
        """The root's address.

        Raises:
            ValueError: the archive was not opened by its address.
        """
        if self._root is None:
            raise ValueError("the archive was not opened by its address")
        return self._root

    @property
    def prefix(self) -> str:
        """Its folder below the root, with a slash: ``SCOPE/STREAM/``."""
        return archive_prefix(self.stream.scope, self.stream.stream)

    @property
    def place(self) -> Place:
        """Its folder in the store."""
        return Place(self.store, self.prefix)

    @property
    def uri(self) -> str:
        """``ROOT/SCOPE/STREAM``."""
        return self.place.uri

    def tables(self) -> Sequence[str]:
        """The names of the tables that have been made beside it."""
        return self.store.folders(self.prefix + TABLES)

    def table_archive(self, name: str) -> TableArchive:
        """The copy of the archive that a table is."""
        return TableArchive(self.store, self.stream, name, self._root)

    def listing(self) -> Listing:
        """What is in force, and the marks beside it."""
        return read_listing(self.store, self.prefix)

    def generations(self) -> list[int]:
        """The numbers of the generations in force, ascending; empty if there is no archive."""
        return list(self.listing().generations)

    def manifest(self, generation: int | None = None) -> Manifest:
        """The manifest of a generation in force, or of the merged one that holds it; the newest by default.

        Raises:
            NoSuchArchive: it is not there, or has expired.
            Damaged: it cannot be what an export wrote, or manifests are missing.
        """
        return self.stable(lambda listing: self.read_manifest(self._span(listing, generation)))

    def newest(self) -> Manifest | None:
        """The newest generation's manifest; None if there is no archive.

        Raises:
            Damaged: as for `manifest`.
        """
        return self.stable(
            lambda listing: None if self._is_empty(listing) else self.read_manifest(self._span(listing, None))
        )

    def load(self, generation: int) -> Generation:
        """A generation in force, or the merged one that holds it, with its ranges, cross-checked.

        Raises:
            NoSuchArchive, Damaged: as for `manifest`; also if ranges and manifest do not agree.
        """
        return self.stable(lambda listing: self.load_span(self._span(listing, generation)))

    def history(self, generation: int | None = None) -> History:
        """All generations in force up to one (the newest by default), as one stream.

        It ends with that one also if others after it were merged with it since.

        Raises:
            NoSuchArchive: there is none, or not that one.
            Damaged: one is not valid, or they do not follow each other.
        """

        def read(listing: Listing) -> History:
            loaded = [self.load_span(span) for span in self._chosen(listing, generation)]
            for before, after in pairwise(loaded):
                check_follows(before.manifest, after.manifest, self.uri)
            last = loaded[-1].manifest
            return History(loaded, next((one for one in last.replaces[:-1] if one.generation == generation), None))

        return self.stable(read)

    def stable(self, read: Callable[[Listing], T]) -> T:
        """What is read by a listing. If it fails, and others are in force since, it is read again.

        So it is if generations have expired or were merged meanwhile.

        Args:
            read: reads what the listing has in force.
        """
        listing = self.listing()
        while True:
            try:
                return read(listing)
            except (NoSuchArchive, Damaged):
                before, listing = listing, self.listing()
                if (listing.decision.number, listing.spans) == (before.decision.number, before.spans):
                    raise

    def decide(self, change: Callable[[Listing], Decision | None]) -> tuple[Listing, bool]:
        """Take the next decision about the archive: by what is in force now, or not at all.

        If another run decides first, everything is looked at again.

        Args:
            change: makes the next decision from what is in force (`Listing.decision` and its methods); None if there is
                nothing to decide, so also if just that holds already. It may be called several times.

        Returns:
            What is in force, with that decision or without one; and whether this run took it.

        Raises:
            Conflict: others were first again and again.
        """
        taken = False
        for _ in range(DECIDE_TRIES):
            listing, wanted = self.stable(lambda now: (now, change(now)))
            if wanted is None:
                return listing, taken
            wanted = wanted.numbered(listing.decision.number + 1)
            try:
                self.store.put(self.prefix + decision_key(wanted.number), wanted.encode())
            except AlreadyExists:
                continue
            listing = self.listing()
            # A put that took long may have found its number free only since that decision is long superseded and gone.
            # Then it counts for nothing, and `change` is asked again.
            taken = True
            if listing.decision == wanted:
                self._remove_older(listing)
                return listing, taken
        what = "a decision about the archive could not be taken: others are first, time after time"
        raise Overtaken(what, where=self.uri)

    def _remove_older(self, listing: Listing) -> None:
        with suppress(AccessDenied):  # they harm nobody
            self.store.delete([self.prefix + decision_key(number) for number in listing.older])

    def read_manifest(self, span: GenerationSpan) -> Manifest:
        """The manifest that a listing has in force (see `Listing.spans`).

        Raises:
            NoSuchArchive: it is gone. Damaged: it cannot be what an export wrote.
        """
        return self._read_manifest(span)[0]

    def fingerprint(self, generation: int | None = None) -> str:
        """The SHA-256 of the manifest's file, hexadecimal; `generation` as for `manifest`.

        Raises:
            NoSuchArchive, Damaged: as for `manifest`.
        """
        data = self.stable(lambda listing: self._read_manifest(self._span(listing, generation))[1])
        return hashlib.sha256(data).hexdigest()

    def _read_manifest(self, span: GenerationSpan) -> tuple[Manifest, bytes]:
        """A manifest, and its file."""
        key = self.prefix + manifest_key(span)
        where = f"{self.store.uri}/{key}"
        try:
            data = self.store.get(key)
        except NoSuchObject:
            raise NoSuchArchive(f"no generation {span.last}", where=self.uri) from None
        manifest = decode(Manifest, data, where)
        if (manifest.name, manifest.span) != (self.stream, span):
            what = f"the manifest is of another archive ({manifest.name}, generation {manifest.generation})"
            raise Damaged(what, where=where)
        return manifest, data

    def load_span(self, span: GenerationSpan) -> Generation:
        """As `read_manifest`, with its ranges, cross-checked.

        Raises:
            NoSuchArchive, Damaged: as for `read_manifest`; also if ranges and manifest do not agree.
        """
        manifest, written = self._read_manifest(span)
        key = self.prefix + ranges_key(span)
        where = f"{self.store.uri}/{key}"
        if manifest.index is None:
            raise Damaged("the manifest names no index of ranges", where=where)
        try:
            data = self.store.get(key, min(manifest.index.bytes, MOST_INDEX_BYTES))
        except NoSuchObject:
            raise Damaged("the index of ranges is missing", where=where) from None
        if _index_entry(data) != manifest.index:
            raise Damaged("not the index of ranges that the manifest names (size or SHA-256 differ)", where=where)
        rows = by_segment(decode_ranges(self.stream, data, where, most_rows=manifest.events))
        cross_check(manifest, rows, where)
        return self._generation(manifest, rows, written)

    def _generation(self, manifest: Manifest, rows: dict[SegmentId, list[RangeRow]], written: bytes) -> Generation:
        return Generation(manifest, rows, self._reader_of(manifest), hashlib.sha256(written).hexdigest())

    def _reader_of(self, manifest: Manifest) -> str:
        """What `layouts.layout.open_reader` takes for a generation's data."""
        return manifest.layout

    def published(self, wanted: GenerationModel) -> Manifest | None:
        """The manifest in force of a plan's generation, or of what it was merged into; None if there is none yet.

        Raises:
            Conflict: the generation has expired, or was published by another plan.
        """
        return self.stable(lambda listing: self._published(listing, wanted))

    def _published(self, listing: Listing, wanted: GenerationModel) -> Manifest | None:
        where = f"{self.uri}, generation {wanted.generation}"
        if wanted.generation <= listing.dropped:
            raise _expired(where)
        holder = listing.holder(wanted.generation)
        if holder is None:
            return None
        found = self.read_manifest(holder)
        if not found.is_same(wanted):
            raise Overtaken("another run has published this generation with other content", where=where)
        return found

    def _is_empty(self, listing: Listing) -> bool:
        """Whether nothing was published yet."""
        return not listing.spans and not listing.dropped

    def _span(self, listing: Listing, generation: int | None) -> GenerationSpan:
        """The manifest of the generation that is meant; the newest by default.

        Raises:
            NoSuchArchive: there is none, or not that one.
            Damaged: no manifest is left, though the newest never expires.
        """
        if not listing.spans:
            if not self._is_empty(listing):
                raise Damaged(f"the manifest of generation {listing.missing} is missing", where=self.uri)
            raise self._nothing_yet(listing)
        if generation is None:
            return listing.spans[-1]
        if not listing.dropped < generation <= listing.newest:
            what = (
                f"generation {generation} has expired"
                if generation <= listing.dropped
                else f"no generation {generation}"
            )
            todo = f"It has {listing.spans[0].first} to {listing.newest}."
            raise NoSuchArchive(what, where=self.uri, todo=todo)
        return listing.holder(generation) or GenerationSpan.of(generation)

    def _nothing_yet(self, listing: Listing) -> NoSuchArchive:  # noqa: ARG002  (a table tells more)
        return NoSuchArchive("no archive", where=self.uri, todo="`streamvault ls ROOT` lists what is there.")

    def _chosen(self, listing: Listing, generation: int | None) -> tuple[GenerationSpan, ...]:
        """The generations in force up to the one that is meant, as by `_span`.

        Raises:
            Damaged: the manifest of one is missing.
        """
        upto = self._span(listing, generation).last
        if listing.missing is not None and listing.missing <= upto:
            raise Damaged(f"the manifest of generation {listing.missing} is missing", where=self.uri)
        return tuple(span for span in listing.spans if span.last <= upto)

    def commit(self, manifest: Manifest, rows: Sequence[RangeRow], *, grace: float = 0.0) -> Generation | None:
        """Publish a generation: ranges first, then the manifest, create-only; a merged one also by a decision.

        However late that is, nothing comes back into force: a manifest counts only where no decision has put its
        generation out of force.

        Args:
            manifest: of the generation after the newest, of one that another run may have published meanwhile, or of
                one that is merged of some in force.
            rows: its ranges, in order of (segment, start).
            grace: seconds for which what a merged one replaces stays.

        Returns:
            The generation, as it was published now; None if another run of the same plan has published it already, or
            what it was merged into.

        Raises:
            Conflict: another generation of this number, with other content, was published, or it has expired already;
                or what was to be merged is not in force any more.
            Damaged: it does not follow the generation before, or manifest and ranges do not agree. Nothing was written.
        """
        where = f"{self.store.uri}/{self.prefix}{manifest_key(manifest.span)}"
        cross_check(manifest, by_segment(rows), where)
        if self.stable(lambda listing: self._is_there(listing, manifest, where)):
            return None

        def is_same_index(data: bytes, found_where: str) -> bool:
            return list(decode_ranges(self.stream, data, found_where)) == list(rows)

        def is_same_manifest(data: bytes, found_where: str) -> bool:
            found = decode(Manifest, data, found_where)
            return found.is_same(manifest) and (found.layout, found.compression) == (
                manifest.layout,
                manifest.compression,
            )

        try:
            index, _ = self._create_or_compare(
                ranges_key(manifest.span), encode_ranges(self.stream, rows), is_same_index
            )
        except Conflict:
            # A run of the same plan that was late may have seen less of the stream; what was published first holds.
            if manifest.replaces or self.published(manifest) is None:
                raise
            return None
        manifest = manifest.model_copy(update={"index": _index_entry(index)})
        data, created = self._create_or_compare(manifest_key(manifest.span), manifest.encode(), is_same_manifest)
        if manifest.replaces:
            created = self._decide_merge(manifest, where, grace)
        if not created:
            return None
        if manifest.generation <= self.listing().dropped:
            raise _expired(where)  # this run was so late that what it published is out of force
        return self._generation(manifest, by_segment(rows), data)

    def _decide_merge(self, manifest: Manifest, where: str, grace: float) -> bool:
        def change(listing: Listing) -> Decision | None:
            if manifest.span in listing.spans or self._is_there(listing, manifest, where):
                return None
            return listing.decision.merge(manifest.span, grace)

        return self.decide(change)[1]

    def _is_there(self, listing: Listing, manifest: Manifest, where: str) -> bool:
        """Whether a generation is in force already within a merged one; if not, whether it may be published.

        Raises:
            Conflict, Damaged: it may not, see `commit`.
        """
        if manifest.generation <= listing.dropped:
            raise _expired(where)
        holder = listing.holder(manifest.generation)
        if holder is not None and holder.first <= manifest.first and holder != manifest.span:
            return True
        before = manifest.first - 1
        if manifest.replaces and listing.newest != before:  # else it is the next one, of a conversion
            if not listing.within(manifest.span):
                raise Overtaken(
                    "generations that were to be merged have expired or were merged with others meanwhile",
                    where=where,
                )
            return False
        if before > listing.dropped:
            holder = listing.holder(before) or GenerationSpan.of(before)
            check_follows(self.read_manifest(holder), manifest, where)
        return False

    def _create_or_compare(self, key: str, data: bytes, is_same: Callable[[bytes, str], bool]) -> tuple[bytes, bool]:
        """The object's bytes, and whether it was created now; if one with the same content was there, its bytes."""
        where = f"{self.store.uri}/{self.prefix}{key}"
        try:
            self.store.put(self.prefix + key, data)
        except AlreadyExists:
            found = self.store.get(self.prefix + key, MOST_INDEX_BYTES)
            if found != data and not is_same(found, where):
                raise Overtaken(
                    "another run has written this generation with other content",
                    where=where,
                    todo="Run the same command again. If this stays, and no export is running, delete the object.",
                ) from None
            return found, False
        return data, True


class TableArchive(Archive):
    """The copy of an archive that a table is: records of the generations whose data are in the table's files.

    Its prefix is ``SCOPE/STREAM/_table/NAME/``, where the records are.

    Args:
        store: as of `Archive`.
        stream: likewise.
        name: of the table.
        root: as of `Archive`.
    """

    def __init__(self, store: ObjectStore, stream: StreamName, name: str, root: RootAddress | None = None) -> None:
        super().__init__(store, stream, root)
        self.table = name

    @property
    def prefix(self) -> str:
        """The folder of its records below the root, with a slash."""
        return super().prefix + table_folder(self.table)

    def _reader_of(self, manifest: Manifest) -> str:
        return table_layout(manifest.generation)

    def _is_empty(self, listing: Listing) -> bool:
        # its first decision says where it is to begin, and comes before all else
        return not listing.spans

    def _nothing_yet(self, listing: Listing) -> NoSuchArchive:
        if not listing.dropped:
            return super()._nothing_yet(listing)
        todo = "'streamvault handoff' goes on with it."
        return NoSuchArchive("the table has no generation yet", where=self.uri, todo=todo)


def _expired(where: str) -> Conflict:
    return Conflict("another run has published this generation, and it has expired meanwhile", where=where)


def _index_entry(data: bytes) -> IndexEntry:
    return IndexEntry(bytes=len(data), digest=hashlib.sha256(data).hexdigest())
