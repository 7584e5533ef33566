"""Results of the verbs: frozen dataclasses, shared by ``--json``, the DAGs and the Python API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from streamvault.common.notebook import html_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base class of the reports."""

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as a dict of plain values, in the order of `attribute_names`."""
        values = asdict(self)
        return {name: values[name] for name in attribute_names(type(self))}

    @property
    def exit_code(self) -> int:
        """The exit code of a command with this result."""
        return 0

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return html_of(self.to_json())


def attribute_names(kind: type[Any]) -> list[str]:
    """Return the names of a dataclass's attributes: its own first, then those that it shares with ever more classes."""
    return list(dict.fromkeys(name for one in kind.__mro__ for name in vars(one).get("__annotations__", {})))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedReport(Report):
    """Result of a verb that may start Spark.

    Attributes:
        seconds: duration, without the start of Spark.
        total_seconds: duration of the call; of the whole command on the command line.
    """

    seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport(TimedReport):
    """Result of a verb that can be rehearsed.

    Attributes:
        warnings: what the user was warned of.
        dry_run: whether it was a dry run: nothing was changed, and the report says what would be done.
    """

    warnings: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """S3 requests of a run, computed from its plan. Deletions are free and not counted.

    Attributes:
        objects: objects written or read.
        objects_estimated: whether `objects` is estimated from a sample of the stream.
        puts: PUT requests.
        lists: LIST requests.
        gets: GET and HEAD requests.
        usd: list price of these requests in US dollars (S3 Standard, us-east-1: 0.005 per 1,000 PUT or LIST, 0.0004
            per 1,000 GET).
    """

    objects: int
    objects_estimated: bool
    puts: int
    lists: int
    gets: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    """Bytes that were truncated before they could be archived, or that a restore left out because of damage.

    Attributes:
        segment: full name of the segment.
        start: offset of the first byte.
        end: offset after the last one.
        reason: why they are missing.
    """

    segment: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedGroup:
    """A reader group that reads a source, and what became of it.

    Attributes:
        name: its name.
        outcome: "created" on the new stream; "present", as an earlier run has created it; "noted", for a promotion, in
            an archive, or in a dry run; or "left out", with the reason.
        position: where it goes on, as a stream cut of the new stream, or of an archive's; None if that cannot be told.
        reason: why it was left out, or goes on elsewhere than where it was; else empty.
    """

    name: str
    outcome: Literal["created", "present", "noted", "left out"]
    position: Mapping[str, int] | None = None
    reason: str = ""
