"""Results of the verbs: frozen dataclasses, shared by ``--json``, the DAGs and the Python API."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Cost", "GapReport", "Report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base class of the reports."""

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as a dict of plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """S3 requests of a run, computed from its plan. Bulk deletes are free and not counted.

    Attributes:
        objects: objects written or read.
        objects_estimated: whether `objects` is estimated from a sample of the stream.
        puts: PUT and LIST requests.
        gets: GET requests.
        usd: list price of these requests in US dollars (S3 Standard, us-east-1: 0.005 per 1,000 PUT or LIST, 0.0004
            per 1,000 GET).
    """

    objects: int
    objects_estimated: bool
    puts: int
    gets: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    """A range of bytes that was truncated before it could be archived, or that a restore left out because of damage."""

    segment: str
    start: int
    end: int
    reason: str
