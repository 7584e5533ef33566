"""Operators for the commands that keep archives and scopes in order, and that say how they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from streamvault.airflow.operators.archives import STREAM_AND_ROOT
from streamvault.airflow.operators.command import CommandOperator
from streamvault.exporter.forecast.options import PlanOptions
from streamvault.exporter.options import ConvertOptions
from streamvault.manager.options import SweepOptions
from streamvault.manifests.options import DeleteOptions, HoldOptions, ReleaseOptions
from streamvault.report.options import DoctorOptions, ReportOptions, StatusOptions
from streamvault.rotation.options import CompactOptions, FollowOptions

_ARCHIVE = "``ROOT/SCOPE/STREAM``."
_HOLD = "the hold's name: letters, digits and hyphens."


class FollowStreamOperator(CommandOperator):
    """``streamvault follow``: archives a stream as it grows. It requires `lasting`, as a task must end."""

    verb = "follow"
    arguments = STREAM_AND_ROOT
    options_class = FollowOptions
    written = "archive"
    lasting: str | None

    def command(self) -> list[str]:
        """See the base class."""
        self.require_end("follow", "lasting")
        return super().command()

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """See the base class."""
        return bool(report["made"] or report["expired_count"])


class ConvertArchiveOperator(CommandOperator):
    """``streamvault convert``: copies an archive to another root in another layout."""

    verb = "convert"
    arguments: ClassVar = {"archive": _ARCHIVE, "root": "where the copy is: another root."}
    options_class = ConvertOptions
    written = "archive"


class CompactArchiveOperator(CommandOperator):
    """``streamvault compact``: merges small neighbouring generations."""

    verb = "compact"
    arguments: ClassVar = {"archive": _ARCHIVE}
    options_class = CompactOptions


class HoldArchiveOperator(CommandOperator):
    """``streamvault hold``: keeps a generation and those after it from expiring."""

    verb = "hold"
    arguments: ClassVar = {"archive": _ARCHIVE, "hold": _HOLD}
    options_class = HoldOptions


class ReleaseArchiveOperator(CommandOperator):
    """``streamvault release``: releases a hold, so that the generations it kept may expire."""

    verb = "release"
    arguments: ClassVar = {"archive": _ARCHIVE, "hold": _HOLD}
    options_class = ReleaseOptions


class DeleteArchiveOperator(CommandOperator):
    """``streamvault delete``: deletes an archive with `yes`; else it only reports what would be deleted."""

    verb = "delete"
    arguments: ClassVar = {"archive": _ARCHIVE}
    options_class = DeleteOptions


class ScopeOperator(CommandOperator):
    """Works on a scope; see `CommandOperator`."""

    arguments: ClassVar = {"scope": "a scope of the connection, or its URI with ``/`` at the end."}
    scope: str

    def resolve(self, argument: str) -> Any:
        """See the base class."""
        value = super().resolve(argument)
        return self.stream_uri(f"{value.rstrip('/')}/") if argument == "scope" else value

    def connected_stream(self) -> str:
        """See the base class."""
        return self.scope


class SweepScopeOperator(ScopeOperator):
    """``streamvault sweep``: deletes what killed runs have left in a scope."""

    verb = "sweep"
    options_class = SweepOptions


class CheckSetupOperator(CommandOperator):
    """``streamvault doctor``: checks whether a stream can be archived from the worker; fails and says what to do."""

    verb = "doctor"
    arguments = STREAM_AND_ROOT
    options_class = DoctorOptions


class PlanArchiveOperator(CommandOperator):
    """``streamvault plan``: computes what an archive of a stream would cost, take and need."""

    verb = "plan"
    arguments: ClassVar = {"stream": STREAM_AND_ROOT["stream"]}
    options_class = PlanOptions
    omitted = ("segments", "bytes", "events")  # of a stream that need not exist


class ShowStatusOperator(CommandOperator):
    """``streamvault status``: reports how old and how complete archives are, and of streams, what is not archived yet.

    Give `root` alone, `stream` with or without `root`, or `config_file` alone, whose logins are those of the worker.

    Args:
        stream: ``SCOPE/``, ``SCOPE/ord*``, ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI. Templated.
    """

    template_fields: Sequence[str] = ("stream", *CommandOperator.template_fields)
    verb = "status"
    options_class = StatusOptions
    root: str | None
    config_file: str | None

    def __init__(self, *, stream: str | None = None, **others: Any) -> None:
        super().__init__(**others)
        self.stream = stream

    def resolve(self, argument: str) -> Any:
        """See the base class."""
        return None if argument == "root" and self._is_of_root() else super().resolve(argument)

    def command(self) -> list[str]:
        """See the base class."""
        verb, *options = super().command()
        place = self.root if self._is_of_root() else self.resolve("stream")
        return [verb, *([str(place)] if place else []), *options]

    def _is_of_root(self) -> bool:
        return not self.stream and not self.config_file


class WriteReportOperator(CommandOperator):
    """``streamvault report``: draws an archive or those below a root as a web page, on the worker."""

    verb = "report"
    arguments: ClassVar = {"archive": "``ROOT/SCOPE/STREAM``, or a root."}
    options_class = ReportOptions
    renamed: ClassVar = {"output": "file"}  # `output` is the task's result
