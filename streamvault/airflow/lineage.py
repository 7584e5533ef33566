"""What a command read and wrote, for OpenLineage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from streamvault.airflow.assets import dataset_name


def lineage_of(
    reports: Collection[Mapping[str, Any]], read: Collection[str], written: str, given: Iterable[str] = ()
) -> Any:
    """Return an `OperatorLineage`; None if Airflow's provider for OpenLineage is not installed.

    An output has the numbers of events and bytes that the report has.

    Args:
        reports: what a command reports for each stream.
        read: the report fields with what it read; one that is `written` as well is what it wrote.
        written: the report field with what it wrote; empty if it wrote nothing.
        given: what its command line says that it reads; not every report names that.
    """
    try:
        from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415  (it may be missing)
        from openlineage.client.event_v2 import InputDataset, OutputDataset  # noqa: PLC0415
        from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics  # noqa: PLC0415
    except ImportError:
        return None
    named = {str(report[place]) for report in reports for place in read if place != written and place in report}
    # a scope, or a pattern, is none itself
    sources = {
        dataset_name(uri) for uri in {*given, *named} if "://" in uri and not uri.endswith("/") and "*" not in uri
    }
    outputs: dict[tuple[str, str], Any] = {}
    for report in reports:
        figures = {**report, **(report.get("export") or {})}
        if report.get(written):
            name = dataset_name(report[written])
            facet = statistics.OutputStatisticsOutputDatasetFacet(
                rowCount=figures.get("events"), size=figures.get("bytes", figures.get("moved_bytes"))
            )
            outputs[name] = OutputDataset(*name, outputFacets={"outputStatistics": facet})
    inputs = [InputDataset(*name) for name in sorted(sources - outputs.keys())]
    return OperatorLineage(inputs=inputs, outputs=list(outputs.values()))
