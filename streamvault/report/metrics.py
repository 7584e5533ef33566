"""Metrics of archives in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from streamvault.report.reports import ArchiveStatus, StatusReport

Value = Callable[[ArchiveStatus], float | None]


def _if_published(value: Value) -> Value:
    """Return a figure of generations: an archive that has none, or cannot be read, has no such figure."""
    return lambda one: value(one) if one.created and not one.problem else None


def _if_archive(value: Value) -> Value:
    """Return a figure that tables have not."""
    return lambda one: None if one.table else value(one)


def _if_readable(value: Value) -> Value:
    return lambda one: None if one.problem else value(one)


METRICS: Mapping[str, tuple[str, Value]] = {
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
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def metrics_text(report: StatusReport) -> str:
    """Return a status in the text format of Prometheus."""
    seen = datetime.fromisoformat(report.seen).timestamp()
    head = "When these metrics were read, in seconds since 1970."
    return text_of(
        [
            Metric("streamvault_status_timestamp_seconds", head, [({"root": report.root}, seen)]),
            *(
                Metric(f"streamvault_archive_{name}", text, list(_samples(report, value)))
                for name, (text, value) in METRICS.items()
            ),
        ]
    )


def _samples(report: StatusReport, value: Value) -> Iterator[tuple[Mapping[str, str], float]]:
    for one in report.statuses:
        if (found := value(one)) is not None:
            yield {"archive": one.archive, **({"table": one.table} if one.table else {})}, found


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.text}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in metric.samples:
        yield _sample(metric.name, labels, value)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{written}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
