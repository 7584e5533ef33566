"""What a command read and wrote, for OpenLineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streamvault.airflow.assets import dataset_name

PLACES = ("source", "stream", "archive")
"""Report fields with the URI of a stream or an archive."""


def lineage_of(reports: Iterable[Mapping[str, Any]], written: str, given: Iterable[str] = ()) -> Any:
    """Return an `OperatorLineage`; None if Airflow's provider for OpenLineage is not installed.

    An output has the numbers of events and bytes that the report has.

    Args:
        reports: what a command reports for each stream.
        written: the report field with what it wrote; empty if it wrote nothing.
        given: the streams and archives of its command line; not every report names what was read.
    """
    try:
        from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415  (it may be missing)
        from openlineage.client.event_v2 import InputDataset, OutputDataset  # noqa: PLC0415
        from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics  # noqa: PLC0415
    except ImportError:
        return None
    # a scope, or a pattern, is none itself
    read = {dataset_name(uri) for uri in given if "://" in uri and not uri.endswith("/") and "*" not in uri}
    outputs: dict[tuple[str, str], Any] = {}
    for report in reports:
        figures = {**report, **(report.get("export") or {})}
        for place in PLACES:
            if "://" not in str(report.get(place)):
                continue
            name = dataset_name(report[place])
            if place == written:
                facet = statistics.OutputStatisticsOutputDatasetFacet(
                    rowCount=figures.get("events"), size=figures.get("bytes", figures.get("moved_bytes"))
                )
                outputs[name] = OutputDataset(*name, outputFacets={"outputStatistics": facet})
            else:
                read.add(name)
    inputs = [InputDataset(*name) for name in sorted(read - outputs.keys())]
    return OperatorLineage(inputs=inputs, outputs=list(outputs.values()))
