"""Checks the parameters of the DAG ``restore_on_demand``, and describes what it restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.pravega import PravegaHook
from streamvault.common.errors import Problem
from streamvault.common.options import in_keywords
from streamvault.importer.options import RestoreOptions
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.uri import parse_stream


def check_restore(params: Mapping[str, Any]) -> dict[str, str]:
    """Check what the form's schema cannot express.

    Args:
        params: parameters of the DAG ``restore_on_demand``.

    Returns:
        The archive and the target's URI.

    Raises:
        AirflowFailException: a parameter is not valid; the message says which and why.
    """
    try:
        with in_keywords(RestoreOptions):
            RestoreOptions(at=params["at"] or None, generation=params["generation"] or None)
        root, scope, stream = RootAddress.parse(params["archive"]).split()
        target = params["target"]
        if "://" not in target:
            target = PravegaHook(params["pravega_conn_id"]).stream_uri(target)
        parse_stream(target)
    except Problem as error:
        raise AirflowFailException(str(error)) from None
    return {"archive": f"{root.uri}/{scope}/{stream}", "target": target}


def describe_restore(report: Mapping[str, Any], *, read_back: bool) -> str:
    """Describe what was restored and verified, then, one a line, what is missing or differs."""
    proof = (
        "all restored data was read back from the stream and matches the archive's digests"
        if read_back
        else "every range matches the archive's digest (ranges appended by an earlier attempt were read back)"
    )
    restored = (
        f"{report['stream']}: {report['events']:,} events ({report['bytes']:,} bytes) "
        f"in {report['segments']:,} segments from {report['archive']}, up to generation {report['generation']}; {proof}"
    )
    return "\n".join([restored, *(f"Note: {warning}" for warning in report["warnings"])])
