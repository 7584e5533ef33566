"""Plans an import: which generations of an archive, which ranges of them, and the target's unfinished import first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import get_args

from streamvault.common.errors import Usage
from streamvault.common.progress import Progress
from streamvault.common.times import moment_text
from streamvault.importer.from_archive import Selection, generation_of
from streamvault.importer.options import ImportOptions, Numbers, Offsets
from streamvault.importer.plan import RestorePlan, check_filler, plan_restore
from streamvault.manifests.archive.archive import Archive, NoSuchArchive
from streamvault.manifests.archive.listing import Listing
from streamvault.manifests.archive.selection import select_parts
from streamvault.reading.archive_source import ArchiveState
from streamvault.streamstore.arithmetic.cut_option import parse_cut


@dataclass(frozen=True, slots=True)
class PlannedRestore:
    """What is restored, and the plan."""

    selection: Selection
    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the restore of an archive.

    Attributes:
        archive: the archive, or a table's copy of it.
        options: which part of it is restored, and how.
        master: where damaged ranges are looked for, see `ImportOptions.skip_damaged`.
        progress: is told of that.
    """

    archive: Archive
    options: ImportOptions
    master: str
    progress: Progress

    def select(self, generation: int | None) -> Selection:
        """Select what is restored up to a generation; None for the newest."""
        source = ArchiveState(self.archive, history := self.archive.history(generation))
        cuts = (self.options.from_cut, self.options.to_cut)
        from_cut, to_cut = (parse_cut(cut, history.stream, history.sealed_end) for cut in cuts)
        selected = Selection(source, select_parts(history, from_cut, to_cut), from_cut, to_cut)
        return selected.without_damaged(self.master, self.progress) if self.options.skip_damaged else selected

    def plan(self, generation: int | None) -> PlannedRestore:
        """Plan the restore up to a generation; None for the newest."""
        selection = self.select(generation)
        plan = plan_restore(selection.content(self.options), self.options)
        check_filler(plan, self.options.filler_limit)
        return PlannedRestore(selection, plan)

    def plan_unfinished(self, import_id: str | None) -> PlannedRestore | None:
        """Plan an unfinished import; None if there is none, or it has another archive or other options."""
        generation = generation_of(import_id) if import_id else None
        if generation is None:
            return None
        try:
            planned = self.plan(generation)
        except (NoSuchArchive, Usage):
            return None  # this archive never had the generation, or it has expired, or the cuts lie beyond it
        return planned if planned.plan.import_id == import_id else None

    def check_same_options(self, import_id: str | None, plan: RestorePlan, where: str) -> None:
        """Reject options that are not those with which the target's unfinished import of the same content was begun.

        The target's tag has a digest of them. Cuts cannot be found from it.

        Args:
            import_id: the target's unfinished import; empty or None if there is none.
            plan: the plan with the given options.
            where: the target, for the message.

        Raises:
            Usage: they are not; the message has the unfinished import's.
        """
        generation = generation_of(import_id) if import_id and import_id != plan.import_id else None
        if generation is None or self.options.generation not in {None, generation}:
            return
        try:
            selection = self.select(generation)
        except (NoSuchArchive, Usage):
            return  # it is of another archive, or has other cuts
        for offsets, numbers in product(get_args(Offsets), get_args(Numbers)):
            other = self.options.model_copy(update={"offsets": offsets, "numbers": numbers})
            if other != self.options and selection.import_id(other) == import_id:
                raise Usage(
                    f"an unfinished import has other options: --offsets {offsets}, --numbers {numbers}",
                    where=where,
                    todo="Give these options to resume it, or choose another name. To give it up, end its run, then "
                    "delete the stream, unless something else has written to it.",
                )


def open_source(uri: str, options: ImportOptions) -> Archive:
    """Open the archive, or a table that holds a copy of it."""
    archive, table = Archive.open(uri), options.table
    if options.layout is None:
        if table is not None:
            raise Usage("--table requires --layout table", where=repr(table))
        return archive
    if table is None:
        tables = archive.tables()
        if len(tables) != 1:
            todo = f"Choose one with --table: {', '.join(tables)}." if tables else "Create one: 'streamvault handoff'."
            what = "the archive has several tables" if tables else "the archive has no table"
            raise Usage(what, where=archive.uri, todo=todo)
        table = tables[0]
    return archive.table_archive(table.rpartition(".")[2])


def generation_at(archive: Archive, moment: datetime) -> int:
    """Return the last generation in force whose tail was taken by then.

    Raises:
        NoSuchArchive: there is no archive, or all its generations are newer.
    """
    archive.manifest()  # raises if there is no archive

    def find(listing: Listing) -> int:
        created = None
        for span in reversed(listing.spans):
            manifest = archive.read_manifest(span)
            originals = [(one.generation, one.created) for one in manifest.replaces]
            for number, created in reversed(originals or [(manifest.generation, manifest.created)]):
                if created <= moment:
                    return number
        oldest = "" if created is None else f"; the oldest is from {moment_text(created)}"
        todo = "'streamvault timeline' lists what can be restored."
        raise NoSuchArchive(
            f"no generation is from {moment_text(moment)} or earlier{oldest}", where=archive.uri, todo=todo
        )

    return archive.stable(find)
