"""Streams as assets: their URIs, and the names of streams and archives in OpenLineage.

Archives have URIs of the schemes ``s3`` and ``file``, which Airflow's own providers know.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit, uses_netloc

from airflow.sdk import Asset

from streamvault.common.errors import Problem
from streamvault.streamstore.uri import plain_stream_uri

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
