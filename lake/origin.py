"""What a table is made of, and grows from: an archive, or a stream itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from common.progress import Progress
from lake.options import OriginKind, TableOptions
from lake.plan import TablePlan
from lake.sources import RangeSource, WantedRange
from manifests.model import Manifest
from sparkrun.runner import Runner
from streamstore.model import StreamName

__all__ = ["Origin"]


class Origin(Protocol):
    """Says what follows in a table. What it says is fixed by `lake.plan`, and then holds for all runs.

    Attributes:
        kind: what it is.
    """

    kind: OriginKind

    @property
    def stream(self) -> StreamName:
        """Whose events they are."""

    @property
    def uri(self) -> str:
        """The archive's, or the stream's."""

    @property
    def has_nothing_yet(self) -> bool:
        """Whether a new table would get nothing of it by now."""

    @property
    def source(self) -> RangeSource:
        """Where tasks get the bytes."""

    def draft(self, last: Manifest | None, options: TableOptions, where: str) -> TablePlan | None:
        """What follows in a table, as far as one can tell without reading it; None if the table has all.

        Args:
            last: the table's newest generation; None if it has none.
            options: the table's.
            where: names the table in messages.

        Raises:
            Conflict: the table is of something else, or what should follow is gone.
        """

    def prove(self, draft: TablePlan, runner: Runner, progress: Progress, *, all_of_it: bool = False) -> TablePlan:
        """The same plan with ranges that are known to begin and end where events do.

        Args:
            draft: of this origin.
            runner: where tasks run.
            progress: told how it goes on.
            all_of_it: also that what lies between known boundaries is nothing but events.

        Raises:
            NotEvents, InvalidCut: the stream holds something else than events, or ends inside of one.
        """

    def check(self, plan: TablePlan, where: str) -> None:
        """Raise `Conflict` unless this run can do what was planned, by now or by another run."""

    def ranges(self, plan: TablePlan) -> Iterator[WantedRange]:
        """A planned generation's ranges in the stream's order: by epoch, number and offset."""

    def events(self, plan: TablePlan) -> int:
        """How many events a plan has; about, as long as nobody has counted them."""

    def sample(self) -> Iterator[bytes]:
        """Some payloads, from places spread over all; none if there is no event."""
