"""An archive: its generations, read with all cross-checks, and the decisions about them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Literal, Self, TypeVar
from weakref import WeakValueDictionary

from pydantic import Field, model_validator

from streamvault.common.errors import Absent, Conflict, Damaged, Overtaken
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import (
    FOLDER_DIGITS,
    TABLES,
    GenerationSpan,
    Place,
    PlaceAddress,
    decision_key,
    is_table_folder,
    line_of,
    manifest_key,
    ranges_key,
    table_folder,
    table_options_key,
)
from streamvault.layouts.layout import table_layout
from streamvault.layouts.packed_ranges import Kept, packed
from streamvault.manifests.decisions import Decision
from streamvault.manifests.files import File, decode, find_file
from streamvault.manifests.history import Generation, History, by_segment, check_contains, check_follows, cross_check
from streamvault.manifests.listing import UNKNOWN_TODO, Listing, check_decisions, manifest_lost, read_listing
from streamvault.manifests.manifest import MAX_INDEX_BYTES, GenerationModel, IndexEntry, Manifest, SchemaGroup, Totals
from streamvault.objectstore.store import AccessDenied, AlreadyExists, NoSuchObject, ObjectStore
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import StreamName


def publish(archive: Archive, manifest: Manifest, rows: Sequence[ArchivedRange], grace: float) -> Generation | None:
    """See `Archive.commit`."""
    from streamvault.manifests.index import decode_ranges, encode_ranges  # noqa: PLC0415  (see `load_index_code`)

    where = f"{archive.store.uri}/{archive.prefix}{manifest_key(manifest.span)}"
    held = by_segment(rows)
    cross_check(manifest, held, where)
    found = archive.stable(lambda listing: _place_of(archive, listing, manifest, where))
    if found is None:
        return None

    def is_same_index(data: bytes, found_where: str) -> bool:
        return list(decode_ranges(archive.stream, data, found_where)) == list(rows)

    def is_same_manifest(data: bytes, found_where: str) -> bool:
        found = decode(Manifest, data, found_where)
        written = (found.layout, found.compression)
        return found.is_same(manifest) and written == (manifest.layout, manifest.compression)

    try:
        index, _ = create_or_compare(
            archive, ranges_key(manifest.span), encode_ranges(archive.stream, rows), is_same_index
        )
    except Conflict:
        # A late run of the same plan may have found more of the stream truncated; the first to publish wins.
        if manifest.replaces or archive.published(manifest) is None:
            raise
        return None
    manifest = manifest.model_copy(update={"index": IndexEntry.of(index), "before": found.before})
    data, created = create_or_compare(archive, manifest_key(manifest.span), manifest.encode(), is_same_manifest)
    if manifest.replaces:
        created = _decide_merge(archive, manifest, where, grace)
    listing = archive.listing()
    archive.check_open(listing)  # what a deletion did not see before it was decided must not be reported as archived
    if not created:
        return None
    if manifest.generation <= listing.dropped:
        raise expired(where)  # this run was so late that its generation is out of force
    return Generation(manifest, held, archive.reader_of(manifest), hashlib.sha256(data).hexdigest())


def create_or_compare(
    archive: Archive, key: str, data: bytes, is_same: Callable[[bytes, str], bool]
) -> tuple[bytes, bool]:
    """Create an object or accept one with the same content; return its bytes and whether it was created."""
    where = f"{archive.store.uri}/{archive.prefix}{key}"
    try:
        archive.store.put(archive.prefix + key, data)
    except AlreadyExists:
        found = archive.store.get(archive.prefix + key, MAX_INDEX_BYTES)
        if found != data and not is_same(found, where):
            raise Overtaken(
                "another run has written this generation with different content",
                where=where,
                todo="Run the same command again. If it fails again, the generation's manifest was lost: restore it"
                " from a version or a copy of the bucket, and delete nothing.",
            ) from None
        return found, False
    return data, True


def expired(where: str) -> Conflict:
    """Return the error of a generation that was published and has expired."""
    return Conflict("another run published this generation, and it has since expired", where=where)


def _decide_merge(archive: Archive, manifest: Manifest, where: str, grace: float) -> bool:
    def change(listing: Listing) -> Decision | None:
        if manifest.span in listing.spans or _place_of(archive, listing, manifest, where) is None:
            return None
        return listing.decision.merge(manifest.span, grace)

    return archive.decide(change)[1]


@dataclass(frozen=True, slots=True)
class _PlaceInArchive:
    """Where a generation may be published: `before` has the totals of the generations before it, if they tell them."""

    before: Totals | None


def _place_of(archive: Archive, listing: Listing, manifest: Manifest, where: str) -> _PlaceInArchive | None:
    """Return where a generation may be published; None if it is already in force within a merged one.

    Raises:
        Conflict, Damaged: it must not be published, see `Archive.commit`.
    """
    archive.check_open(listing)
    if manifest.generation <= listing.dropped:
        raise expired(where)
    if listing.orphans:
        raise manifest_lost(listing, archive.uri)
    holder = listing.holder(manifest.generation)
    if holder is not None and holder.first <= manifest.first and holder != manifest.span:
        return None
    before = manifest.first - 1
    if manifest.replaces and listing.newest != before:  # otherwise it is the next one, of a conversion
        if not listing.within(manifest.span):
            raise Overtaken(
                "generations to be merged have expired or were merged with others in the meantime", where=where
            )
        first = listing.holder(manifest.first) or GenerationSpan.of(manifest.first)
        return _PlaceInArchive(archive.read_manifest(first).before)
    if before <= listing.dropped:
        return _PlaceInArchive(Totals())
    previous = archive.read_manifest(listing.holder(before) or GenerationSpan.of(before))
    check_follows(previous, manifest, where)
    return _PlaceInArchive(previous.through)


T = TypeVar("T")

_decoded = WeakValueDictionary[str, Manifest]()
"""The SHA-256 of a file → the manifest in it, while anybody has it: decoding one with many segments takes a second."""

DECIDE_TRIES = 100
"""How often other runs may decide first before this one fails."""


CONVERTING = "a conversion into this archive has begun, and has published nothing yet"
CONVERTING_TODO = "Run 'streamvault convert' again as before: it resumes."


class NoSuchArchive(Absent):
    """There is no archive at the address, or it does not have the generation."""


class Archive:
    """One stream's archive at one root.

    Args:
        root: the root's address.
        stream: the archived stream.
        store: the root's store, if it is already open.
    """

    table = ""
    """The name of the table whose records these are; empty for an archive."""

    def __init__(self, root: RootAddress, stream: StreamName, store: ObjectStore | None = None) -> None:
        self.root = root
        self.stream = stream
        self.store = root.open() if store is None else store

    @classmethod
    def open(cls, uri: str | os.PathLike[str], data_class: str = "") -> Archive:
        """Return the archive at ``ROOT/SCOPE/STREAM``, without a request for any of its objects.

        New data objects get ``data_class``, see `RootAddress`.

        Raises:
            Problem: the URI is not valid, or its bucket cannot be reached.
        """
        root, scope, stream = RootAddress.parse_archive(uri)
        return Archive(root.resolve().with_data_class(data_class), StreamName(scope, stream))

    @property
    def prefix(self) -> str:
        """The archive's folder below the root, with a trailing slash: ``SCOPE/STREAM/``."""
        return f"{self.stream}/"

    @property
    def place(self) -> Place:
        """The archive's folder in the store."""
        return Place(self.store, self.prefix)

    @property
    def address(self) -> PlaceAddress:
        """The address of the archive's folder, for tasks."""
        return PlaceAddress(self.root, self.prefix)

    @property
    def uri(self) -> str:
        """The archive's URI, ``ROOT/SCOPE/STREAM``."""
        return self.place.uri

    @property
    def line(self) -> str | None:
        """The archive's line, empty for a stream's first archive; None for a table: its manifests are an archive's."""
        return line_of(self.root.prefix.rpartition("/")[2])

    def tables(self) -> Sequence[str]:
        """Return the names of the archive's tables."""
        return self.store.folders(self.prefix + TABLES)

    def table_archive(self, name: str) -> TableArchive:
        """Return the records of one of the archive's tables, of the one that now has this name.

        Raises:
            Damaged: its options cannot be read, or are missing beside the folder of its records.
            InvalidKey: the name is not valid.
        """
        key = self.prefix + table_options_key(name)
        for _ in range(2):  # another run may begin the table between the two looks
            begun = find_file(TableRecord, self.store, key)
            if begun is not None or not any(map(is_table_folder, self.store.folders(self.prefix + table_folder(name)))):
                return TableArchive(self.root, self.stream, name, "" if begun is None else begun.folder, self.store)
        todo = "If the table was removed, remove the rest of its records, too. If not, restore the file from a backup."
        raise Damaged("a table's options are missing", where=f"{self.store.uri}/{key}", todo=todo)

    def listing(self, keys: list[str] | None = None) -> Listing:
        """Return the generations in force and their marks; ``keys`` as for `read_listing`."""
        return read_listing(self.place, keys=keys)

    def generations(self) -> list[int]:
        """Return the numbers of the generations in force, ascending; empty if there is no archive."""
        return list(self.listing().generations)

    def manifest(self, generation: int | None = None) -> Manifest:
        """Return the manifest of a generation in force, or of the merged one that contains it; by default the newest.

        Raises:
            NoSuchArchive: there is no such generation, or it has expired.
            Damaged: the manifest is not valid, or manifests are missing.
        """
        return self.found(generation)[0]

    def found(self, generation: int | None = None) -> tuple[Manifest, str, Decision]:
        """Return the same as `manifest`, the SHA-256 of its file (hexadecimal), and the newest decision."""
        return self.stable(
            lambda listing: (*self.read_fingerprinted(self._span(listing, generation)), listing.decision)
        )

    def noted_schemas(self, manifests: Iterable[Manifest]) -> list[SchemaGroup | None]:
        """Return what is noted of the schemas of some generations' events, given the manifests, oldest first.

        The newest of all is asked, too: it may be the first whose export has noted them, and has those of all. If it is
        damaged, or contradicts the given ones, these must do.
        """
        noted = [one.schemas for one in manifests]
        with suppress(Damaged, ValueError):
            newest = self.manifest().schemas
            SchemaGroup.union([*noted, newest])
            return [*noted, newest]
        return noted

    def newest(self) -> Manifest | None:
        """Return the newest generation's manifest, to which another is to be added; None if there is no archive.

        Raises:
            Damaged: as for `manifest`.
            Conflict: the archive is being deleted, or was.
        """
        return self.newest_fingerprinted()[0]

    def newest_fingerprinted(self) -> tuple[Manifest | None, str]:
        """Return the same as `newest`, and the SHA-256 of the manifest's file, hexadecimal."""

        def read(listing: Listing) -> tuple[Manifest | None, str]:
            self.check_open(listing)
            if listing.is_new and listing.dropped:
                raise Conflict(CONVERTING, where=self.uri, todo=CONVERTING_TODO)
            return (None, "") if self._is_empty(listing) else self.read_fingerprinted(self._span(listing, None))

        return self.stable(read)

    def load(self, generation: int, load: Callable[[GenerationSpan], Generation] | None = None) -> Generation:
        """Return a generation in force, or the merged one that contains it, with its ranges, cross-checked.

        ``load`` is as for `history`.

        Raises:
            NoSuchArchive, Damaged: as for `manifest`; also if ranges and manifest do not agree.
        """
        return self.stable(lambda listing: (load or self.load_span)(self._span(listing, generation)))

    def history(
        self,
        generation: int | None = None,
        load: Callable[[GenerationSpan], Generation] | None = None,
        *,
        since: int = 0,
        keep: Kept = "all",
    ) -> History:
        """Return all generations in force up to one (by default the newest), as one stream.

        The stream ends with that generation even if later ones have been merged with it.

        Args:
            generation: the last generation; None for the newest.
            load: loads each of them, and may leave out ranges; None for `load_span`.
            since: the first original generation that is needed; those before it are not read, unless there is no other.
            keep: which checksums of ranges are kept in memory, where ``load`` is None.

        Raises:
            NoSuchArchive: there is no archive, or no such generation.
            Damaged: a generation is not valid, or they are not contiguous.
        """

        def read(listing: Listing) -> History:
            chosen = self.in_force(listing, generation)
            needed = [span for span in chosen if span.last >= since] or chosen[-1:]
            loaded = [load(span) if load else self.load_span(span, keep) for span in needed]
            for before, after in pairwise(loaded):
                check_follows(before.manifest, after.manifest, self.uri)
            last = loaded[-1].manifest
            return History(loaded, next((one for one in last.replaces[:-1] if one.generation == generation), None))

        return self.stable(read)

    def stable(self, read: Callable[[Listing], T], listing: Listing | None = None) -> T:
        """Return what ``read`` returns for the current listing; if it fails and the listing has changed, try again.

        A listing changes when generations expire or are merged.

        Args:
            read: what to do.
            listing: the listing, if it was just read.
        """
        listing = listing or self.listing()
        while True:
            try:
                return read(listing)
            except (NoSuchArchive, Damaged):
                before, listing = listing, self.listing()
                if (listing.decision.number, listing.spans) == (before.decision.number, before.spans):
                    raise

    def decide(self, change: Callable[[Listing], Decision | None], *, deleting: bool = False) -> tuple[Listing, bool]:
        """Write the archive's next decision, based on what is in force now.

        If another run decides first, the change is evaluated again.

        Args:
            change: returns the next decision for a listing (`Listing.decision` and its methods); None if nothing is to
                be decided, for example because it already holds. May be called several times.
            deleting: whether it deletes the archive; nothing else is decided once a deletion has begun.

        Returns:
            The resulting listing, and whether this run wrote the decision.

        Raises:
            Conflict: other runs were first too often; or the archive is being deleted, or was.
            Damaged: the newest decision does not follow from those before it, see `check_decisions`.
        """
        written = False

        def evaluate(now: Listing) -> tuple[Listing, Decision | None]:
            check_decisions(self.place, now)
            if not deleting:
                self.check_open(now)
            return now, change(now)

        for _ in range(DECIDE_TRIES):
            listing, decision = self.stable(evaluate)
            if decision is None:
                return listing, written
            decision = decision.numbered(listing.decision.number + 1)
            try:
                self.store.put(self.prefix + decision_key(decision.number), decision.encode())
            except AlreadyExists:
                continue
            listing = self.listing()
            # A slow put may find its number free because the decision of that number has been superseded and deleted
            # meanwhile. Then it has no effect, and `change` is evaluated again.
            written = True
            if listing.decision == decision:
                with suppress(AccessDenied):  # older ones are harmless
                    self.store.delete([self.prefix + decision_key(number) for number in listing.superseded])
                return listing, written
        raise Overtaken(
            "no decision about the archive could be written, because other runs kept writing theirs first",
            where=self.uri,
        )

    def read_manifest(self, span: GenerationSpan) -> Manifest:
        """Return the manifest of a generation in force (see `Listing.spans`).

        Raises:
            NoSuchArchive: it no longer exists.
            Damaged: it is not valid.
        """
        return self.read_fingerprinted(span)[0]

    def fingerprint(self, generation: int | None = None) -> str:
        """Return the SHA-256 of the manifest's file, hexadecimal; `generation` as for `manifest`.

        Raises:
            NoSuchArchive, Damaged: as for `manifest`.
        """
        return self.found(generation)[1]

    def read_fingerprinted(self, span: GenerationSpan) -> tuple[Manifest, str]:
        """Return a manifest, and the SHA-256 of its file, hexadecimal; errors as for `read_manifest`."""
        key = self.prefix + manifest_key(span)
        where = f"{self.store.uri}/{key}"
        try:
            data = self.store.get(key)
        except NoSuchObject:
            raise NoSuchArchive(f"no generation {span.last}", where=self.uri) from None
        fingerprint = hashlib.sha256(data).hexdigest()
        manifest = _decoded.get(fingerprint)
        if manifest is None:
            manifest = _decoded[fingerprint] = decode(Manifest, data, where)
        if (manifest.name, manifest.span) != (self.stream, span):
            what = f"the manifest belongs to another archive ({manifest.name}, generation {manifest.generation})"
            raise Damaged(what, where=where)
        if manifest.line is not None and self.line is not None and manifest.line != self.line:
            known, here = (
                f"line {name}" if name else "a stream's first archive" for name in (manifest.line, self.line)
            )
            todo = "Move each archive back to the folder it was written to: ROOT, or ROOT/_line-NAME."
            raise Damaged(f"the manifest belongs to {known}, but this is {here}", where=where, todo=todo)
        return manifest, fingerprint

    def load_span(self, span: GenerationSpan, keep: Kept = "all") -> Generation:
        """Return a generation in force with its manifest and ranges, cross-checked.

        Memory: some 60 bytes a range, and the checksums that are kept; while it is read, the index's file.

        Raises:
            NoSuchArchive, Damaged: as for `read_manifest`; also if ranges and manifest do not agree.
        """
        from streamvault.manifests.index import decode_ranges  # noqa: PLC0415  (see `load_index_code`)

        manifest, fingerprint = self.read_fingerprinted(span)
        key = self.prefix + ranges_key(span)
        where = f"{self.store.uri}/{key}"
        if manifest.index is None:
            raise Damaged("the manifest names no index of ranges", where=where)
        try:
            data = self.store.get(key, min(manifest.index.bytes, MAX_INDEX_BYTES))
        except NoSuchObject:
            raise Damaged("the index of ranges is missing", where=where) from None
        if IndexEntry.of(data) != manifest.index:
            raise Damaged("the index of ranges is not that of the manifest (size or SHA-256 differs)", where=where)
        rows = packed(decode_ranges(self.stream, data, where, max_rows=manifest.max_ranges), keep)
        cross_check(manifest, rows, where)
        return Generation(manifest, rows, self.reader_of(manifest), fingerprint)

    def reader_of(self, manifest: Manifest) -> str:
        """Return the name, for `layouts.layout.open_reader`, of the reader of a generation's data."""
        return manifest.layout

    def published(self, plan: GenerationModel) -> Manifest | None:
        """Return the manifest in force of a plan's generation, or of the one it was merged into; None if unpublished.

        Raises:
            Conflict: the generation has expired, or was published by another plan.
        """
        where = f"{self.uri}, generation {plan.generation}"

        def read(listing: Listing) -> Manifest | None:
            self.check_open(listing)
            if plan.generation <= listing.dropped:
                raise expired(where)
            holder = listing.holder(plan.generation)
            found = None if holder is None else self.read_manifest(holder)
            if found is not None and not found.is_same(plan):
                raise Overtaken("another run has published this generation with different content", where=where)
            return found

        return self.stable(read)

    def check_open(self, listing: Listing) -> None:
        """Raise `Conflict` unless generations may be added to the archive: it is not being deleted, and was not."""
        if listing.decision.deletion:
            what, todo = self._deletion(listing)
            raise Conflict(what, where=self.uri, todo=todo)

    def _deletion(self, listing: Listing) -> tuple[str, str]:
        """Return what to say of an archive that is being deleted, or was, and what to do.

        Raises:
            Damaged: that cannot be what was decided.
        """
        check_decisions(self.place, listing)
        todo = f"Archive the stream below another root, or as another line (--line NAME). {UNKNOWN_TODO}"
        title = listing.decision.title
        if listing.decision.deletion == "done":
            return f"the archive was deleted, and its address is not used again, according to {title}", todo
        return f"the archive is being deleted, according to {title}", todo

    def _is_empty(self, listing: Listing) -> bool:
        """Check whether nothing has been published yet, or nothing is in force any more."""
        return listing.decision.is_deleted or listing.is_new

    def _span(self, listing: Listing, generation: int | None) -> GenerationSpan:
        """Return the span in force that contains a generation; by default the newest.

        Every verb chooses generations here, so none goes on with an archive that lacks one of them.

        Raises:
            NoSuchArchive: there is no archive, or no such generation.
            Damaged: its manifest is missing, or that of an earlier one; by default, any is missing.
        """
        if not listing.spans:
            if not self._is_empty(listing):
                raise manifest_lost(listing, self.uri)
            raise self.nothing_yet(listing)
        if listing.missing is not None and (generation is None or generation >= listing.missing):
            raise manifest_lost(listing, self.uri)
        if generation is None:
            return listing.spans[-1]
        if not listing.dropped < generation <= listing.newest:
            gone = 0 < generation <= listing.dropped
            what = f"generation {generation} has expired" if gone else f"no generation {generation}"
            first, last = listing.spans[0].first, listing.newest
            todo = f"Available: {first}." if first == last else f"Available: {first} to {last}."
            raise NoSuchArchive(what, where=self.uri, todo=todo)
        return listing.holder(generation) or GenerationSpan.of(generation)

    def nothing_yet(self, listing: Listing) -> NoSuchArchive:
        """Return the error of an archive of which nothing is in force."""
        if listing.decision.is_deleted:
            what, todo = self._deletion(listing)
            return NoSuchArchive(what, where=self.uri, todo=todo)
        if listing.dropped:
            return NoSuchArchive(CONVERTING, where=self.uri, todo=CONVERTING_TODO)
        return NoSuchArchive("no archive", where=self.uri, todo="'streamvault ls ROOT' lists the archives.")

    def in_force(self, listing: Listing, generation: int | None = None) -> tuple[GenerationSpan, ...]:
        """Return the generations in force up to one (by default the newest), in order, at least one.

        Raises:
            NoSuchArchive: there is none, or not that one.
            Damaged: a manifest is missing.
        """
        upto = self._span(listing, generation).last
        return tuple(span for span in listing.spans if span.last <= upto)

    def check_merged(self, listing: Listing) -> None:
        """Check that merged generations have all that they replaced, as far as the manifests of that are there.

        Whatever deletes or expires calls this first: whoever may create objects can merge generations, too.

        Raises:
            Damaged: one has not.
        """
        for old in listing.replaced:
            span = listing.holder(old.last)
            if span is not None and span.first <= old.first:
                with suppress(NoSuchArchive):  # it is already deleted
                    check_contains(self.read_manifest(span), self.read_manifest(old), self.uri)

    def check_beginning(self, listing: Listing) -> None:
        """Check that the archive began where a decision says, as far as the manifest of its first generation is there.

        Whatever deletes that one, or relies on where the archive began, calls this first.

        Raises:
            Damaged: it did not.
        """
        for span in (one for one in listing.expired if one.first == 1):
            begin = listing.decision.begin
            with suppress(NoSuchArchive, Damaged):  # it is already deleted, or never was
                begin = self.read_manifest(span).from_
            if begin != listing.decision.begin:
                what = f"{listing.decision.title} does not begin where generation {span.last} does"
                raise Damaged(what, where=self.uri, todo=UNKNOWN_TODO)

    def check_contiguous(self, listing: Listing) -> None:
        """Check that each generation begins where the one before it ends, so that none has another's bytes.

        That of those in force, and of those that have expired, as far as their manifests are there.

        Raises:
            Damaged: one does not.
        """

        @lru_cache(maxsize=8)
        def read(span: GenerationSpan) -> Manifest | None:
            try:
                return self.read_manifest(span)
            except NoSuchArchive:  # it is already deleted
                return None
            except Damaged:
                if span.first > listing.dropped:
                    raise
                return None  # of what has expired, such a one counts for nothing

        spans = sorted({*listing.expired, *self.in_force(listing)})
        begins: dict[int, list[GenerationSpan]] = {}
        for span in spans:
            begins.setdefault(span.first, []).append(span)
        for before, after in ((one, other) for one in spans for other in begins.get(one.last + 1, ())):
            if (first := read(before)) and (second := read(after)):
                check_follows(first, second, self.uri)

    def commit(self, manifest: Manifest, rows: Sequence[ArchivedRange], *, grace: float = 0.0) -> Generation | None:
        """Publish a generation: ranges first, then the manifest, create-only; a merged one also by a decision.

        However late that is, nothing comes back into force: a manifest counts only if no decision has put its
        generation out of force.

        Args:
            manifest: the manifest of the generation after the newest, of one that another run may have published
                meanwhile, or of one merged from generations in force.
            rows: its ranges, in order of (segment, start).
            grace: seconds for which the generations that a merged one replaces are kept.

        Returns:
            The published generation; None if another run of the same plan has already published it or the generation
            it was merged into.

        Raises:
            Conflict: a generation of this number with different content has been published, or it has expired; or a
                generation to merge is no longer in force.
            Damaged: it does not follow the previous generation, or manifest and ranges do not agree. Nothing was
                written.
        """
        return publish(self, manifest, rows, grace)


class TableRecord(File):
    """The part of the file ``table.json`` that says where a table's records and files are.

    Attributes:
        folder: random digits, the name of the folder in ``_table/NAME/`` and ``table/NAME/`` that is this table's. What
            a run of a table that was removed writes late is in another one. Empty in tables of earlier releases (format
            1 and 2), which are in those folders themselves.
    """

    format: Literal[1, 2, 3] = 1
    folder: Annotated[str, Field(pattern=f"^([0-9a-f]{{{FOLDER_DIGITS}}})?$")] = ""

    @model_validator(mode="after")
    def _has_its_folder(self) -> Self:
        if (self.format == 3) != bool(self.folder):
            raise ValueError("a table has a folder of its own from format 3 on")
        return self


class TableArchive(Archive):
    """A table's records, with the interface of an archive: the generations whose data are in the table's files.

    Its prefix, the folder of the records, is ``SCOPE/STREAM/_table/NAME/FOLDER/``, see `TableRecord`.
    """

    def __init__(
        self, root: RootAddress, stream: StreamName, name: str, folder: str, store: ObjectStore | None = None
    ) -> None:
        super().__init__(root, stream, store)
        self.table = name
        self.folder = folder
        self.options_key = super().prefix + table_options_key(name)
        self._records = super().prefix + table_folder(name, folder)

    def in_folder(self, folder: str) -> TableArchive:
        """Return the records of the table of this name that has a folder."""
        return TableArchive(self.root, self.stream, self.table, folder, self.store)

    @property
    def prefix(self) -> str:
        """The folder of the records below the root, with a trailing slash."""
        return self._records

    @property
    def line(self) -> str | None:
        """See `Archive.line`."""
        return None

    def reader_of(self, manifest: Manifest) -> str:
        """See `Archive.reader_of`."""
        return table_layout(manifest.generation)

    def listing(self, keys: list[str] | None = None) -> Listing:
        """Return the generations in force; a table's plans are kept, and elsewhere than an archive's."""
        return read_listing(self.place, has_plans=False, keys=keys)

    def _is_empty(self, listing: Listing) -> bool:
        # a table's first decision says where it begins, and precedes its first generation
        return not listing.spans

    def nothing_yet(self, listing: Listing) -> NoSuchArchive:
        """See `Archive.nothing_yet`."""
        if not listing.dropped:
            return super().nothing_yet(listing)
        todo = "Run 'streamvault handoff' to continue it."
        return NoSuchArchive("the table has no generation yet", where=self.uri, todo=todo)
