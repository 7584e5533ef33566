"""Metrics of a queue."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QueueMetrics"]


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """A consumer at one moment.

    Attributes:
        outstanding_bytes: put in and not yet handled, with what an entry takes besides its content.
        entries: handled by this consumer.
        bytes: of these (as they lie in the segment).
        retries: how often its handler failed and was called again.
        latency_seconds: from the put to the end of the handling, on average over `entries`; by the clocks of producer
            and consumer. 0.0 if nothing was handled.
    """

    outstanding_bytes: int = 0
    entries: int = 0
    bytes: int = 0
    retries: int = 0
    latency_seconds: float = 0.0
