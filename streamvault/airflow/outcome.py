"""Maps a command's outcome to Airflow: which failures are retried, and what was read and written, for OpenLineage.

Streams are assets with URIs of their own. Archives have URIs of the schemes ``s3`` and ``file``, which Airflow's own
providers know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit, urlunsplit, uses_netloc

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from streamvault.common.errors import Damaged, Failed, Problem
from streamvault.streamstore.uri import plain_stream_uri

if TYPE_CHECKING:
    from streamvault.airflow.submit import Outcome


if "local" not in uses_netloc:
    uses_netloc.append("local")  # otherwise urllib writes the URI with one slash: local:/FOLDER


def sanitize_uri(parts: SplitResult) -> SplitResult:
    """Return a stream's URI as reports have it.

    Raises:
        ValueError: it is not a stream's URI.
    """
    try:
        return urlsplit(plain_stream_uri(urlunsplit(parts)))
    except Problem as problem:
        raise ValueError(str(problem)) from None


def create_asset(*, store: str, scope: str, stream: str, extra: dict[str, Any] | None = None) -> Asset:
    """Return a stream's asset.

    Args:
        store: ``pravega://HOST:PORT``, ``pravega+tls://HOST:PORT`` or ``local:///FOLDER``.
        scope: the stream's scope.
        stream: its name.
        extra: the asset's ``extra``.
    """
    return Asset(uri=f"{store}/{scope}/{stream}", extra=extra)


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Any:  # noqa: ARG001  (Airflow passes both)
    """Return the dataset of a stream's asset; None if OpenLineage is not installed."""
    from airflow.providers.common.compat.openlineage.facet import Dataset  # noqa: PLC0415  (not where DAGs are parsed)

    namespace, name = dataset_name(asset.uri)
    return Dataset(namespace=namespace, name=name)


def dataset_name(uri: str) -> tuple[str, str]:
    """Return namespace and name, in OpenLineage, of a stream or an archive.

    They follow OpenLineage's conventions for Kafka, S3 and files. A cluster has the same name with and without TLS.
    """
    parts = urlsplit(uri)
    scheme = parts.scheme.removesuffix("+tls")
    if not parts.netloc:
        return scheme, parts.path.rstrip("/")
    return f"{scheme}://{parts.netloc}", parts.path.strip("/")


MAX_FINDINGS = 20
"""Maximum findings in the message of a failed task; the log has all of them."""

INTERRUPTED = 130


def report_of(outcome: Outcome) -> dict[str, Any]:
    """Return the report of a finished command.

    Raises:
        AirflowException: the command failed or was interrupted; a retry resumes it.
        AirflowFailException: a retry would fail in the same way: damage, a conflict, wrong usage, or something that
            does not exist.
    """
    document = outcome.document or {}
    if outcome.code == 0:
        if not document:
            raise AirflowException("the command succeeded but wrote no report")
        return document
    # a killed driver leaves only its exit code
    retriable = outcome.code in {Failed.exit_code, INTERRUPTED} or outcome.code < 0 or outcome.code > 128
    message = ""
    error = document.get("error")
    if isinstance(error, dict):
        message = _text(error)
        retriable = error.get("retriable", retriable)
    elif failed := [each for each in document.get("outcomes", ()) if each["exit_code"]]:
        message = "\n".join(f"{each['stream']}: {_failure(each)}" for each in failed[:MAX_FINDINGS])
        message += f"\nand {len(failed) - MAX_FINDINGS} more" if len(failed) > MAX_FINDINGS else ""
        retriable = any((each["failure"] or {}).get("retriable") for each in failed)
    elif outcome.code == Damaged.exit_code:
        message = _damage(document)
    raise exception_for_airflow(
        message or outcome.log_tail or f"the command exited with code {outcome.code}", retriable=retriable
    )


def reports_in(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a command reports for each stream: of a scope's report, those of the streams that are still there."""
    return [each["result"] for each in report["outcomes"] if each["result"]] if "outcomes" in report else [report]


def figures_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a report says of what was written: of a rotation, its export does."""
    return {**report, **(report.get("export") or {})}


@contextmanager
def raising_for_airflow() -> Iterator[None]:
    """Convert a `Problem` to the exception that makes Airflow retry the task, or fail it at once.

    Raises:
        AirflowException, AirflowFailException: as for `report_of`.
    """
    try:
        yield
    except Problem as problem:
        raise exception_for_airflow(str(problem), retriable=problem.retriable) from None


def found_in(event: Mapping[str, Any]) -> Any:
    """Return what a `streamvault.airflow.triggers.LookingTrigger` found.

    Raises:
        AirflowException, AirflowFailException: it could not look.
    """
    if event["error"]:
        raise exception_for_airflow(event["error"], retriable=event["retriable"])
    return event["found"]


def exception_for_airflow(message: str, *, retriable: bool) -> Exception:
    """Return the exception that makes Airflow retry the task, or fail it at once."""
    return AirflowException(message) if retriable else AirflowFailException(message)


def _text(error: Mapping[str, Any]) -> str:
    return str(Problem(error["what"], where=error["where"], todo=error["todo"]))


def _failure(outcome: Mapping[str, Any]) -> str:
    """Return why a command for a scope failed for a stream."""
    return _text(outcome["failure"]) if outcome["failure"] else _damage(outcome["result"])


def _damage(document: dict[str, Any]) -> str:
    findings = document.get("findings", [])
    more = len(findings) + document.get("more_findings", 0) - MAX_FINDINGS
    what = f"{document.get('archive')} is damaged:"
    if "stream" in document:
        what = f"{document['stream']} was restored without the damaged parts of {document.get('archive')}:"
    lines = [what, *findings[:MAX_FINDINGS]]
    if more > 0:
        lines.append(f"and {more} more")
    return "\n".join(lines)


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
        figures = figures_of(report)
        if report.get(written):
            name = dataset_name(report[written])
            facet = statistics.OutputStatisticsOutputDatasetFacet(
                rowCount=figures.get("events"), size=figures.get("bytes", figures.get("moved_bytes"))
            )
            outputs[name] = OutputDataset(*name, outputFacets={"outputStatistics": facet})
    inputs = [InputDataset(*name) for name in sorted(sources - outputs.keys())]
    return OperatorLineage(inputs=inputs, outputs=list(outputs.values()))
