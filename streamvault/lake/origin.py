"""The origin of a table's events: an archive or a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from streamvault.common.progress import Progress
from streamvault.lake.plan import TablePlan
from streamvault.lake.recorded import OriginKind, TableOptions
from streamvault.lake.sources import EventSource, TableRange
from streamvault.manifests.format.manifest import Manifest
from streamvault.sparkrun.runner import Runner
from streamvault.streamstore.model import SegmentId, StreamName


class Origin(ABC):
    """Drafts a table's next generation. `lake.plan` then records the plan, which holds for all runs.

    Attributes:
        kind: archive or stream.
        stream: the stream whose events these are.
        uri: URI of the archive or the stream.
        source: what tasks read from.
    """

    kind: OriginKind

    def __init__(self, stream: StreamName, uri: str, source: EventSource) -> None:
        self.stream = stream
        self.uri = uri
        self.source = source

    @property
    def has_nothing_yet(self) -> bool:
        """Whether there is nothing yet for a new table."""
        return False

    @property
    def raw_segments(self) -> Sequence[SegmentId]:
        """The segments that have objects of layout ``events``."""
        return ()

    @abstractmethod
    def draft(self, last: Manifest | None, options: TableOptions, where: str) -> TablePlan | None:
        """Plan the table's next generation without reading its events; None if the table is up to date.

        Args:
            last: the table's newest generation; None if it has none.
            options: the table's options.
            where: the table's name for messages.

        Raises:
            Conflict: the table is of another origin, or the next events are gone.
        """

    def prove(
        self,
        draft: TablePlan,
        runner: Runner,  # noqa: ARG002
        progress: Progress,  # noqa: ARG002
        *,
        all_of_it: bool = False,  # noqa: ARG002
    ) -> TablePlan:
        """Return the plan with ranges that are proved to begin and end at event boundaries; here all are already.

        Args:
            draft: a draft of this origin.
            runner: where tasks run.
            progress: receives the progress.
            all_of_it: also read ranges with known boundaries, to prove that they contain only events.

        Raises:
            NotEvents, InvalidCut: the stream contains other data than events, or ends inside an event.
        """
        return draft

    @abstractmethod
    def check(self, plan: TablePlan, where: str) -> None:
        """Check that this run can carry out a plan, its own or another run's.

        Raises:
            Conflict: it cannot.
        """

    def ranges(self, plan: TablePlan) -> Iterator[TableRange]:
        """Yield a planned generation's ranges in the stream's order: by epoch, number and offset."""
        return plan.planned()

    def events(self, plan: TablePlan) -> int:
        """Return the number of events of a plan; an estimate if they were not counted yet."""
        return plan.events or 0

    @abstractmethod
    def sample(self) -> Iterator[bytes]:
        """Yield sample payloads from places spread over all; none if there are no events."""

    def unless_archive_changed(self, first: int = 0) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context in which the origin is read.

        Args:
            first: the first generation that matters; 0 for all.

        Raises:
            Overtaken: on leaving it, in place of `Damaged`, if an archive's generations expired or were merged
                meanwhile. What a stream loses meanwhile is a gap.
        """
        return nullcontext()
