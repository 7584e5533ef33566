"""The origin of a table's events: an archive or a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from common.progress import Progress
from lake.options import OriginKind, TableOptions
from lake.plan import TablePlan
from lake.sources import RangeSource, TableRange
from manifests.model import Manifest
from sparkrun.runner import Runner
from streamstore.model import StreamName

__all__ = ["Origin"]


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
