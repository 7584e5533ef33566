"""Operators for the commands that only look: their report is the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from streamvault.airflow.operators.archives import STREAM_AND_ROOT
from streamvault.airflow.operators.command import CommandOperator
from streamvault.airflow.operators.mirrors import MirrorOperator
from streamvault.airflow.operators.queues import QUEUE, QueueOperator
from streamvault.airflow.operators.upkeep import ScopeOperator
from streamvault.common.options import Options
from streamvault.lake.options import DdlOptions
from streamvault.manifests.options import ShowOptions

_ARCHIVE = {"archive": "``ROOT/SCOPE/STREAM``."}


class NoOptions(Options):
    """Those of a command that has none."""


class ListArchivesOperator(CommandOperator):
    """``streamvault ls``: lists the archives and tables below a root."""

    verb = "ls"
    arguments: ClassVar = {"root": STREAM_AND_ROOT["root"]}
    options_class = NoOptions


class ShowTimelineOperator(CommandOperator):
    """``streamvault timeline``: lists an archive's generations, holds and checks."""

    verb = "timeline"
    arguments = _ARCHIVE
    options_class = NoOptions


class ShowManifestOperator(CommandOperator):
    """``streamvault show``: returns the manifest of an archive's newest generation, with its fingerprint."""

    verb = "show"
    arguments = _ARCHIVE
    options_class = ShowOptions


class ListStreamsOperator(ScopeOperator):
    """``streamvault streams``: lists the streams of a scope."""

    verb = "streams"
    options_class = NoOptions


class ShowQueueOperator(QueueOperator):
    """``streamvault queue show``: shows the waiting and the failed requests of a queue."""

    verb = "queue show"
    arguments: ClassVar = {"requests": QUEUE}
    options_class = NoOptions


class TranslatePositionsOperator(MirrorOperator):
    """``streamvault translate``: translates stream cuts and event pointers into those of a restored stream."""

    verb = "translate"
    arguments: ClassVar = {
        "source": "what the positions belong to: ``SCOPE/STREAM`` of `pravega_conn_id`, a URI, or an archive.",
        "stream": "the restored stream: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI.",
        "positions": "cuts, each as JSON or as Pravega's clients write it, and event pointers.",
    }
    options_class = NoOptions
    read = ("source", "stream")
    written = ""
    positions: Sequence[str]

    def words(self, argument: str) -> list[str]:
        """See the base class."""
        return [str(each) for each in self.positions] if argument == "positions" else super().words(argument)


class ShowDdlOperator(CommandOperator):
    """``streamvault ddl``: returns the statements that register a table with a query engine."""

    verb = "ddl"
    arguments: ClassVar = {
        "source": "as for `HandoffTableOperator`.",
        "engine": "``athena``, ``trino`` (also for Presto) or ``hive`` (also for Spark).",
    }
    options_class = DdlOptions
    source: str

    def connected_stream(self) -> str:
        """See the base class."""
        return self.source
