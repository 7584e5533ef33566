"""Metrics of archives, streams, leases, queues and replicas in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from streamvault.inspect.reports import (
    ArchiveStatus,
    LeaseStatus,
    PlaceStatus,
    QueueStatus,
    ReplicaStatus,
    StatusReport,
    StreamStatus,
)

R = TypeVar("R")
Value = Callable[[ArchiveStatus], float | None]
Gauge = tuple[str, Callable[[R], float | None]]


def _if_published(value: Value) -> Value:
    """Return a figure of generations: an archive that has none, or cannot be read, has no such figure."""
    return lambda one: value(one) if one.created and not one.problem else None


def _if_archive(value: Value) -> Value:
    """Return a figure that tables have not."""
    return lambda one: None if one.table else value(one)


def _if_readable(value: Value) -> Value:
    return lambda one: None if one.problem else value(one)


METRICS: Mapping[str, Gauge[ArchiveStatus]] = {
    "readable": ("Whether the archive can be read (1) or not (0).", lambda one: int(not one.problem)),
    "generation": ("Number of the newest generation.", _if_readable(lambda one: one.generation)),
    "generations_in_force": ("Generations in force.", _if_readable(lambda one: one.generations_in_force)),
    "newest_timestamp_seconds": (
        "When the newest generation was taken, in seconds since 1970.",
        _if_published(lambda one: datetime.fromisoformat(one.created).timestamp()),
    ),
    "events": ("Events in all generations in force.", _if_readable(lambda one: one.events)),
    "bytes": ("Bytes in all generations in force.", _if_readable(lambda one: one.bytes)),
    "gap_bytes": ("Bytes that were truncated before they were archived.", _if_readable(lambda one: one.gap_bytes)),
    "read_back": (
        "Whether all generations in force have been read back (1) or not (0).",
        _if_archive(_if_published(lambda one: int(not one.unchecked_generations))),
    ),
    "unchecked_generations": (
        "Generations in force that have not been read back.",
        _if_archive(_if_readable(lambda one: one.unchecked_generations)),
    ),
    "held_generations": (
        "Generations in force that have a hold.",
        _if_archive(_if_readable(lambda one: one.held_generations)),
    ),
    "unfinished_runs": (
        "Generations whose export has begun and is not finished.",
        _if_archive(_if_readable(lambda one: int(one.unfinished_generation > 0))),
    ),
    "unfinished_spans": (
        "Spans of the unfinished generation.",
        _if_archive(_if_readable(lambda one: one.spans_planned)),
    ),
    "unfinished_spans_done": (
        "Spans of the unfinished generation that are archived.",
        _if_archive(_if_readable(lambda one: one.spans_done)),
    ),
}
"""The gauges of an archive: name, without ``streamvault_archive_``, → what it says, and its value; None for none."""

STREAMS: Mapping[str, Gauge[StreamStatus]] = {
    "archived": (
        "Whether the stream has an archive with a generation (1) or not (0).",
        lambda one: None if one.is_archived is None else int(one.is_archived),
    ),
    "unarchived_bytes": ("Bytes of the stream that are not archived yet.", lambda one: one.unarchived),
    "readable": (
        "Whether it is known what is not archived yet (1) or not (0).",
        lambda one: int(not one.problem and (not one.archive or one.unarchived is not None)),
    ),
}
"""The gauges of a stream, as above."""

LEASES: Mapping[str, Gauge[LeaseStatus]] = {
    "alive": ("Whether the holder of a lease is alive (1) or dead (0).", lambda one: int(one.alive)),
}

QUEUES: Mapping[str, Gauge[QueueStatus]] = {
    "readable": (
        "Whether the queue can be read (1), or something stops its worker (0).",
        lambda one: int(not one.problem),
    ),
    "waiting": (
        "Waiting requests, including the one that is being processed.",
        lambda one: one.waiting if one.is_readable else None,
    ),
    "failed": ("Failed requests.", lambda one: one.failed if one.is_readable else None),
    "oldest_seconds": (
        "How long the first request has been waiting; 0 if none is.",
        lambda one: one.oldest_age or 0 if one.is_readable else None,
    ),
    "workers": (
        "Processes that are working on the queue.",
        lambda one: int(bool(one.worker)) if one.is_readable else None,
    ),
}

REPLICAS: Mapping[str, Gauge[ReplicaStatus]] = {
    "readable": ("Whether it is known how far the replica is (1) or not (0).", lambda one: int(not one.problem)),
    "promoted": (
        "Whether the replica was promoted (1) or not (0).",
        lambda one: None if one.state == "unknown" else int(one.state == "promoted"),
    ),
    "lag_bytes": ("Bytes of the source that the replica does not have yet.", lambda one: one.lag_bytes),
    "reached_timestamp_seconds": (
        "When the tail of the source that the replica has reached was taken, in seconds since 1970.",
        lambda one: datetime.fromisoformat(one.reached).timestamp() if one.reached else None,
    ),
}


PLACES: Mapping[str, Gauge[PlaceStatus]] = {
    "readable": ("Whether the scope or the root can be read (1) or not (0).", lambda one: int(not one.problem)),
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: its name.
        text: what it says.
        samples: labels and value of each sample.
        kind: ``gauge`` or ``counter``.
    """

    name: str
    text: str
    samples: Iterable[tuple[Mapping[str, str], float]]
    kind: str = "gauge"


def text_of(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format of Prometheus, version 0.0.4."""
    lines = list[str]()
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.samples:
            written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{metric.name}{{{written}}} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def metrics_text(report: StatusReport) -> str:
    """Return a status in the text format of Prometheus."""
    place = {"root": report.root} if not report.scope else {"root": report.root, "scope": report.scope}
    seen = [(place, datetime.fromisoformat(report.seen).timestamp())]
    return text_of(
        [
            Metric(
                "streamvault_status_timestamp_seconds", "When these metrics were read, in seconds since 1970.", seen
            ),
            *_gauges("place", PLACES, report.watched_places),
            *_gauges("archive", METRICS, report.statuses, unless_empty="table"),
            *_gauges("stream", STREAMS, report.live_streams, unless_empty="archive"),
            *_gauges("lease", LEASES, report.leases, "stream", "purpose", "host"),
            *_gauges("queue", QUEUES, report.queues),
            *_gauges("replica", REPLICAS, report.replicas, "source"),
        ]
    )


def _gauges(
    kind: str, gauges: Mapping[str, Gauge[R]], rows: Sequence[R], *more: str, unless_empty: str = ""
) -> Iterator[Metric]:
    """Yield the gauges of rows, whose labels are attributes.

    Args:
        kind: what the rows are; the first label.
        gauges: name → what it says, and its value.
        rows: the rows; one without a value has no sample.
        more: the other labels.
        unless_empty: a label of those rows that have a text for it.
    """
    optional = [unless_empty] if unless_empty else []
    labels = [
        {name: getattr(row, name) for name in (kind, *more, *optional) if name not in optional or getattr(row, name)}
        for row in rows
    ]
    for name, (text, value_of) in gauges.items():
        values = zip(labels, map(value_of, rows), strict=True)
        yield Metric(f"streamvault_{kind}_{name}", text, [(each, value) for each, value in values if value is not None])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
