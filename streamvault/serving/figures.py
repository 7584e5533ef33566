"""How a server is doing: metrics for Prometheus, and a document for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from streamvault.common.units import moment_text
from streamvault.inspect.metrics import Metric, text_of
from streamvault.serving.archived import ServedArchive
from streamvault.serving.cache import BlockCache
from streamvault.serving.live import LiveStream
from streamvault.serving.segments import REFUSALS, SegmentServer


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """A server that answers, and what it answers from.

    Attributes:
        server: its segment store.
        cache: its memory.
        archives: what it serves.
        live: the live stream that goes on where the only archive ends; None for archives.
    """

    server: SegmentServer
    cache: BlockCache
    archives: Sequence[ServedArchive]
    live: LiveStream | None = None

    def __call__(self) -> str:
        """Return the figures in the text format of Prometheus."""
        return text_of(Metric(f"streamvault_serve_{name}", *METRICS[name](self)) for name in METRICS)

    def status(self) -> dict[str, Any]:
        """Return how the server is doing, in types that JSON has."""
        server = self.server
        refused = sorted(server.refused.copy().items())
        return {
            "streams": [self._stream(one) for one in self.archives],
            "connections": server.connections,
            "waiting_reads": server.waiting,
            "sent_bytes": server.sent,
            "cache_bytes": self.cache.used,
            "cache_limit_bytes": self.cache.limit,
            "refusals": {
                what: {"count": server.counts[what], "last": _moment(when), "why": why} for what, (when, why) in refused
            },
        }

    def _stream(self, archive: ServedArchive) -> dict[str, Any]:
        """Return what is served of a stream, and since when."""
        now, live = archive.now, self.live
        newest = now.state.history.newest
        return {
            "stream": str(archive.name),
            "archive": archive.uri,
            "over": None if live is None else live.address.uri,
            "generation": newest.generation,
            "created": moment_text(newest.created),
            "since": _moment(now.since),
            "looked": _moment(archive.looked) if archive.looked else None,
            "problem": archive.problem or ("" if live is None else live.problem),
        }


def _moment(seconds: float) -> str:
    return moment_text(datetime.fromtimestamp(int(seconds * 1000) / 1000, UTC))


_Samples = list[tuple[dict[str, str], float]]
_Figure = Callable[[ServerFigures], tuple[str, _Samples, str]]


def _one(text: str, value: Callable[[ServerFigures], float], kind: str = "gauge") -> _Figure:
    return lambda figures: (text, [({}, value(figures))], kind)


def _counts(text: str, label: str, *, refusals: bool) -> _Figure:
    def found(figures: ServerFigures) -> tuple[str, _Samples, str]:
        counts = sorted(figures.server.counts.copy().items())
        return text, [({label: what}, n) for what, n in counts if (what in REFUSALS) is refusals], "counter"

    return found


METRICS: dict[str, _Figure] = {
    "archives": _one("Archives served.", lambda one: len(one.archives)),
    "oldest_look_timestamp_seconds": lambda figures: (
        "When the archives were last checked, in seconds since 1970: the oldest of these times.",
        [({}, min(looked))] if (looked := [one.looked for one in figures.archives if one.looked]) else [],
        "gauge",
    ),
    "connections": _one("Connections of clients to the segment store.", lambda one: one.server.connections),
    "waiting_reads": _one("Reads that wait, most of them at the end of a segment.", lambda one: one.server.waiting),
    "sent_bytes_total": _one("Bytes of segments sent.", lambda one: one.server.sent, "counter"),
    "cache_bytes": _one("Memory in use, out of the budget.", lambda one: one.cache.used),
    "cache_limit_bytes": _one(
        "The budget, without what states of reader groups may take.", lambda one: one.cache.limit
    ),
    "requests_total": _counts("Requests, by kind.", "request", refusals=False),
    "refusals_total": _counts("Refused requests and connections, by reason.", "reason", refusals=True),
    "cache_hits_total": _one("Times that a block was found in memory.", lambda one: one.cache.hits, "counter"),
    "fetched_blocks_total": _one("Blocks that were fetched and compared.", lambda one: one.cache.fetched, "counter"),
    "fetch_seconds_total": _one(
        "Seconds that fetches took, including failed ones.", lambda one: one.cache.fetch_seconds, "counter"
    ),
}
"""The metrics: name, without ``streamvault_serve_``, → what it says, its samples, and what kind it is."""
