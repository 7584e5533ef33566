"""The origin of a table's events: an archive or a stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from streamvault.common.errors import Usage
from streamvault.common.progress import Progress
from streamvault.lake.from_archive import ArchiveOrigin
from streamvault.lake.from_stream import StreamOrigin
from streamvault.lake.options import OriginKind, TableOptions
from streamvault.lake.plan import TablePlan
from streamvault.lake.sources import RangeSource, TableRange
from streamvault.layouts.windows import WINDOW
from streamvault.manifests.archive.archive import Archive
from streamvault.manifests.archive.changed import unless_changed
from streamvault.manifests.format.model import Manifest
from streamvault.objectstore.uri import RootAddress
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.model import LARGEST_EVENT_BYTES, StreamName
from streamvault.streamstore.uri import is_stream, parse_stream


class Origin(Protocol):
    """Drafts a table's next generation. `lake.plan` then records the plan, which holds for all runs.

    Attributes:
        kind: archive or stream.
    """

    kind: OriginKind

    @property
    def stream(self) -> StreamName:
        """The stream whose events these are."""

    @property
    def uri(self) -> str:
        """URI of the archive or the stream."""

    @property
    def has_nothing_yet(self) -> bool:
        """Whether there is nothing yet for a new table."""

    @property
    def source(self) -> RangeSource:
        """The source that tasks read from."""

    def draft(self, last: Manifest | None, options: TableOptions, where: str) -> TablePlan | None:
        """Plan the table's next generation without reading its events; None if the table is up to date.

        Args:
            last: the table's newest generation; None if it has none.
            options: the table's options.
            where: the table's name for messages.

        Raises:
            Conflict: the table is of another origin, or the next events are gone.
        """

    def prove(self, draft: TablePlan, runner: Runner, progress: Progress, *, all_of_it: bool = False) -> TablePlan:
        """Return the plan with ranges that are proved to begin and end at event boundaries.

        Args:
            draft: a draft of this origin.
            runner: where tasks run.
            progress: receives the progress.
            all_of_it: also read ranges with known boundaries, to prove that they contain only events.

        Raises:
            NotEvents, InvalidCut: the stream contains other data than events, or ends inside an event.
        """

    def check(self, plan: TablePlan, where: str) -> None:
        """Check that this run can carry out a plan, its own or another run's.

        Raises:
            Conflict: it cannot.
        """

    def ranges(self, plan: TablePlan) -> Iterator[TableRange]:
        """Yield a planned generation's ranges in the stream's order: by epoch, number and offset."""

    def events(self, plan: TablePlan) -> int:
        """Return the number of events of a plan; an estimate if they were not counted yet."""

    def sample(self) -> Iterator[bytes]:
        """Yield sample payloads from places spread over all; none if there are no events."""


@contextmanager
def open_origin(
    source: str, root: str | None, window: int = WINDOW, largest_event: int = LARGEST_EVENT_BYTES
) -> Iterator[tuple[Origin, RootAddress]]:
    """Open the origin of a table; yield it with the table's root.

    Args:
        source: an archive, ``ROOT/SCOPE/STREAM``, or a stream, ``pravega://HOST:PORT/SCOPE/STREAM``.
        root: the table's root; None for the archive's.
        window: maximum data a task buffers in memory, of an archive (bytes).
        largest_event: the largest payload to accept, of a stream (bytes).

    Raises:
        NoSuchArchive: there is no archive.
        Damaged: the archive is damaged.
        Usage: the source is a stream and ``root`` is None, or the archive is of a byte stream.
    """
    if not is_stream(source):
        archive = Archive.open(source)
        target = archive.root if root is None else RootAddress.parse(root).resolve()
        history = archive.history()
        history.generations[-1].manifest.require_events(archive.uri)
        yield ArchiveOrigin(archive, history, window), target
        return
    store_address, name = parse_stream(source)
    if root is None:
        todo = f"Add --root ROOT; the table's folder will be ROOT/{name}/table/NAME."
        raise Usage("a table from a stream requires --root", where=source, todo=todo)
    target = RootAddress.parse(root).resolve()
    with store_address.open() as store:
        yield StreamOrigin(store_address, store, name, largest_event), target


def none_changed(origin: Origin, first: int | None = None) -> AbstractContextManager[None]:
    """As `unless_changed` for an archive; nothing for a stream, whose truncated events are gaps.

    Args:
        origin: the origin that is read.
        first: the first generation that matters; None for all.
    """
    if isinstance(origin, ArchiveOrigin):
        return unless_changed(origin.archive, origin.history, origin.history.first if first is None else first)
    return nullcontext()
