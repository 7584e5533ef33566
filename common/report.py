"""What verbs return: small frozen values, the same for the command line's ``--json``, the DAGs and users."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Cost", "GapReport", "Report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base of the reports."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, keys as the attributes are called."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run asks of S3, from its plan.

    Attributes:
        objects: how many objects are written or read.
        objects_estimated: whether `objects` is an estimate from a sample of the stream.
        puts: PUT and LIST requests; gets: GET requests; deletes: bulk deletes are free.
        usd: list price of those requests, US dollars (S3 Standard, us-east-1: 0.005 per 1,000 PUT or LIST, 0.0004 per
            1,000 GET).
    """

    objects: int
    objects_estimated: bool
    puts: int
    gets: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GapReport:
    """Bytes that were truncated away before they could be archived."""

    segment: str
    start: int
    end: int
    reason: str
