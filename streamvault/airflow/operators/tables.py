"""Operator for the command that makes tables."""

from __future__ import annotations

from typing import ClassVar

from streamvault.airflow.operators.command import CommandOperator
from streamvault.lake.options import HandoffOptions


class HandoffTableOperator(CommandOperator):
    """``streamvault handoff``: writes an archive or a stream as a table for SQL engines.

    The asset is the table's folder, the field `location` of the report.
    """

    verb = "handoff"
    arguments: ClassVar = {
        "source": "``ROOT/SCOPE/STREAM``; or with `root` a stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, "
        "or a URI.",
    }
    options_class = HandoffOptions
    written = "location"
    asset_event_fields = ("table", "format", "added", "events", "bytes")
    source: str

    def connected_stream(self) -> str:
        """See the base class."""
        return self.source
