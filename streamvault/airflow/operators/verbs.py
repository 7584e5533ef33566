"""Operators for the commands, one for each."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.operators.command import CommandOperator
from streamvault.airflow.operators.warm import WarmArchiveOperator, until_readable
from streamvault.airflow.options import flag
from streamvault.airflow.outcome import found_in, reports_in
from streamvault.airflow.pravega import PravegaHook, own_target_login
from streamvault.common.options import Options
from streamvault.common.units import parse_duration, seconds_text
from streamvault.concat.reports import AppendOptions, JoinOptions
from streamvault.exporter.reports import (
    CompactOptions,
    ConvertOptions,
    ExportOptions,
    FollowOptions,
    PlanOptions,
    RotateOptions,
)
from streamvault.importer.reports import ImportOptions
from streamvault.inspect.reports import DoctorOptions, ReportOptions, StatusOptions
from streamvault.lake.reports import DdlOptions, HandoffOptions
from streamvault.manager.reports import SweepOptions
from streamvault.manifests.options import CheckOptions, DeleteOptions, HoldOptions, ReleaseOptions, ShowOptions
from streamvault.replication.reports import CopyOptions, MoveOptions, PromoteOptions, ReplicateOptions
from streamvault.requests.reports import RequestOptions, WorkOptions
from streamvault.streamstore.uri import is_stream

__all__ = [
    "AppendStreamsOperator",
    "CheckArchiveOperator",
    "CheckSetupOperator",
    "CompactArchiveOperator",
    "ConvertArchiveOperator",
    "CopyStreamOperator",
    "DeleteArchiveOperator",
    "ExportStreamOperator",
    "FollowStreamOperator",
    "HandoffTableOperator",
    "HoldArchiveOperator",
    "ImportStreamOperator",
    "JoinStreamsOperator",
    "ListArchivesOperator",
    "ListStreamsOperator",
    "MoveStreamOperator",
    "PlanArchiveOperator",
    "PromoteReplicaOperator",
    "ReleaseArchiveOperator",
    "ReplicateStreamOperator",
    "RequestRestoreOperator",
    "RotateArchiveOperator",
    "ShowDdlOperator",
    "ShowManifestOperator",
    "ShowQueueOperator",
    "ShowStatusOperator",
    "ShowTimelineOperator",
    "SweepScopeOperator",
    "TranslatePositionsOperator",
    "WarmArchiveOperator",
    "WorkQueueOperator",
    "WriteReportOperator",
]

STREAM_AND_ROOT = {
    "stream": "``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI.",
    "root": "``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.",
}
_ARCHIVE = {"archive": "``ROOT/SCOPE/STREAM``."}
_RESTORED = {**_ARCHIVE, "stream": "the new stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI."}


class ExportStreamOperator(CommandOperator):
    """``streamvault export``: archives the whole stream, or the events since the newest generation."""

    verb = "export"
    arguments = STREAM_AND_ROOT
    options_class = ExportOptions
    written = "archive"


class RotateArchiveOperator(CommandOperator):
    """``streamvault rotate``: exports, reads back, and lets old generations expire.

    At most one of `keep`, `keep_for` and `until` may be given; without any, nothing expires. A rotation applies to the
    time at which it runs and not to its data interval. In a backfill, which would rotate once for each past interval,
    the task fails.
    """

    verb = "rotate"
    arguments = STREAM_AND_ROOT
    options_class = RotateOptions
    written = "archive"

    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        """See the base class."""
        if context["dag_run"].run_type == "backfill":
            raise AirflowFailException(
                "a backfill would run one rotation now for each past interval, and could expire too much. "
                "Trigger the DAG instead."
            )
        return super().execute(context)

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """See the base class."""
        return bool(report["expired"]) or super().has_written(report["export"])


class ImportStreamOperator(CommandOperator):
    """``streamvault import``: restores an archive into a new stream and verifies every range.

    If `skip_damaged` left something out, the task fails after the stream was restored; its XCom ``report`` names the
    damaged ranges.

    Args:
        wait_for_warm: if objects that the restore reads are in cold storage, ask S3 to restore them, and wait in the
            triggerer until they can be read; as `WarmArchiveOperator`, within the one task. Templated, as are:
        warm_days: how long the restored copies stay readable.
        warm_tier: ``Bulk`` (the cheapest), ``Standard`` or ``Expedited``.
    """

    verb = "import"
    arguments = _RESTORED
    options_class = ImportOptions
    omitted = ("again",)
    read = ("archive",)
    written = "stream"
    archive: str
    generation: int | str | None
    at: str | None
    own = ("wait_for_warm", "warm_days", "warm_tier")
    wait_for_warm: bool | str = False
    warm_days: int | str = 7
    warm_tier: str = "Bulk"

    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        """See the base class."""
        if flag("wait_for_warm", self.wait_for_warm):
            until_readable(self, days=self.warm_days, tier=self.warm_tier)
        return super().execute(context)

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on after the wait: other objects may still be cold."""
        found_in(event)
        return self.execute(context)

    def command(self) -> list[str]:
        """See the base class."""
        # a task may be killed after the import but before it returns the report
        return [*super().command(), "--again"]


class CheckArchiveOperator(CommandOperator):
    """``streamvault check``: fails and lists the damaged ranges if the archive is not complete and intact."""

    verb = "check"
    arguments = _ARCHIVE
    options_class = CheckOptions


_HOLD = {**_ARCHIVE, "hold": "the hold's name: letters, digits and hyphens."}


class FollowStreamOperator(CommandOperator):
    """``streamvault follow``: archives a stream as it grows. It requires `lasting`, as a task must end."""

    verb = "follow"
    arguments = STREAM_AND_ROOT
    options_class = FollowOptions
    written = "archive"
    ends = ("lasting",)

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """See the base class."""
        return bool(report["made"] or report["expired_count"])


class ConvertArchiveOperator(CommandOperator):
    """``streamvault convert``: copies an archive to another root in another layout."""

    verb = "convert"
    arguments: ClassVar = {**_ARCHIVE, "root": "where the copy is: another root."}
    options_class = ConvertOptions
    written = "archive"


class CompactArchiveOperator(CommandOperator):
    """``streamvault compact``: merges small neighbouring generations."""

    verb = "compact"
    arguments = _ARCHIVE
    options_class = CompactOptions


class HoldArchiveOperator(CommandOperator):
    """``streamvault hold``: keeps a generation and those after it from expiring."""

    verb = "hold"
    arguments = _HOLD
    options_class = HoldOptions


class ReleaseArchiveOperator(CommandOperator):
    """``streamvault release``: releases a hold, so that the generations it kept may expire."""

    verb = "release"
    arguments = _HOLD
    options_class = ReleaseOptions


class DeleteArchiveOperator(CommandOperator):
    """``streamvault delete``: deletes an archive with `yes`; else it only reports what would be deleted."""

    verb = "delete"
    arguments = _ARCHIVE
    options_class = DeleteOptions


class ScopeOperator(CommandOperator):
    """Works on a scope; see `CommandOperator`."""

    arguments: ClassVar = {"scope": "a scope of the connection, or its URI with ``/`` at the end."}
    login_of = "scope"

    def resolve(self, argument: str) -> Any:
        """See the base class."""
        value = super().resolve(argument)
        return self.stream_uri(f"{value.rstrip('/')}/") if argument == "scope" else value


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

    verb = "status"
    options_class = StatusOptions
    root: str | None
    config_file: str | None
    own = ("stream",)
    stream: str | None = None

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


class TargetOperator(CommandOperator):
    """Writes a stream whose cluster may have a connection of its own.

    Args:
        target_conn_id: id of the target's connection of type ``pravega``; None: `pravega_conn_id`, which is the
            source's. Templated.
        others: see `CommandOperator`.
    """

    read: ClassVar[Collection[str]] = ("source",)
    written = "stream"
    stream: str
    own: ClassVar[Collection[str]] = ("target_conn_id",)
    target_conn_id: str | None = None

    def resolve(self, argument: str) -> Any:
        """See the base class."""
        if argument == "stream" and "://" not in self.stream:
            return self._target().stream_uri(self.stream)
        return super().resolve(argument)

    def variables(self) -> dict[str, str | None]:
        """See the base class."""
        variables = super().variables()
        if "://" in self.stream:
            given = {name: str(value) for name, value in (self.env_vars or {}).items()}
            return variables | own_target_login({**os.environ, **given})
        return variables | self._target().environment(target=True)

    def _target(self) -> PravegaHook:
        return PravegaHook(self.target_conn_id or self.pravega_conn_id)


class MirrorOperator(TargetOperator):
    """Reads a stream, and writes another one."""

    arguments: ClassVar = {
        "source": "``SCOPE/STREAM`` or ``STREAM`` of `pravega_conn_id`, or a URI.",
        "stream": "the target: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI.",
    }
    login_of = "source"


class CopyStreamOperator(MirrorOperator):
    """``streamvault copy``: copies a stream, or a part of it, into a new stream."""

    verb = "copy"
    options_class = CopyOptions


class MoveStreamOperator(MirrorOperator):
    """``streamvault move``: gives a stream another name or cluster, and deletes the old one once all was compared."""

    verb = "move"
    options_class = MoveOptions


class ReplicateStreamOperator(MirrorOperator):
    """``streamvault replicate``: brings a replica up to date; by default once, with all that was written by then.

    `source` may also be an archive, ``ROOT/SCOPE/STREAM``. `follow` requires `lasting`, as a task must end. An asset
    event is emitted if there was something new; it has ``moved_bytes``, ``behind_bytes`` and ``lag_seconds`` of the
    report.

    Args:
        most_lag: fail if the last events took longer than this to arrive, a duration such as ``5m``: from taking the
            source's tail (or the archive's newest generation) to having it; 0 if there was nothing new. The replica is
            up to date by then, so the task is not retried.
    """

    verb = "replicate"
    options_class = ReplicateOptions
    asset_event_fields = ("moved_bytes", "behind_bytes", "lag_seconds")
    follow: bool | str
    own = ("most_lag",)
    most_lag: str | None = None

    def command(self) -> list[str]:
        """See the base class.

        Raises:
            AirflowFailException: `follow` is given without `lasting`.
        """
        if flag("follow", self.follow):
            self.require_end("follow", "lasting")
        return super().command()

    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        """See the base class.

        Raises:
            AirflowFailException: also if the lag is above `most_lag`.
        """
        try:
            most = parse_duration(str(self.most_lag)) if self.most_lag else None
        except ValueError as error:
            raise AirflowFailException(f"most_lag: {error}") from None
        report = super().execute(context)
        late = [each for each in reports_in(report) if most is not None and each["lag_seconds"] > most]
        if late:
            context["ti"].xcom_push(key="report", value=report)
            raise AirflowFailException(
                "\n".join(
                    f"the lag of {each['stream']} is {seconds_text(each['lag_seconds'])}, above most_lag "
                    f"({self.most_lag}). The replica has what {each['source']} had at {each['tail_time']}."
                    for each in late
                )
            )
        return report

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """See the base class."""
        return bool(report["rounds"])


class PromoteReplicaOperator(TargetOperator):
    """``streamvault promote``: makes a replica a stream like any other.

    The source's connection, `pravega_conn_id`, is used only with `seal_source`, for the source that the replica names.
    """

    verb = "promote"
    arguments: ClassVar = {"stream": "the replica: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI."}
    options_class = PromoteOptions
    seal_source: bool | str

    def connected_stream(self) -> str | None:
        """See the base class."""
        return self.stream if flag("seal_source", self.seal_source) else None


_QUEUE = {"requests": "the queue, a stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI."}


class QueueOperator(CommandOperator):
    """Writes or reads a queue of requests; see `CommandOperator`."""

    login_of = "requests"


class RequestRestoreOperator(QueueOperator):
    """``streamvault request-restore``: queues a restore for a worker.

    A retry after a task that was killed may queue it twice; the second one finds the stream restored.
    """

    verb = "request-restore"
    arguments = _RESTORED
    options_class = RequestOptions
    read = ("archive",)
    renamed: ClassVar = {"queue": "requests"}


class WorkQueueOperator(QueueOperator):
    """``streamvault work``: processes the requests of a queue.

    `idle` or `lasting` is required, as a task must end; with ``idle="0s"`` it processes those that wait. The archives
    are accessed with `aws_conn_id`, the queue's cluster with `pravega_conn_id`.
    """

    verb = "work"
    arguments = _QUEUE
    options_class = WorkOptions
    ends = ("idle", "lasting")

    def uses_s3(self) -> bool:
        """Return True: only the requests say which archives are read."""
        return True


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
    arguments = _QUEUE
    options_class = NoOptions


class TranslatePositionsOperator(MirrorOperator):
    """``streamvault translate``: translates stream cuts and event pointers into those of a restored stream."""

    verb = "translate"
    arguments: ClassVar = {
        "source": "the stream (``SCOPE/STREAM`` of `pravega_conn_id`, or a URI) or archive that the positions are of.",
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
        "engine": "``athena``, ``trino`` (also for Presto), ``hive``, ``spark`` or ``duckdb``.",
    }
    options_class = DdlOptions
    login_of = "source"


_SOURCES = (
    "streams and archives, in the order in which they are read: each ``SCOPE/STREAM`` or ``STREAM`` of "
    "`pravega_conn_id`, a URI, or ``ROOT/SCOPE/STREAM``; a text or a list of texts."
)


class StitchOperator(TargetOperator):
    """Reads streams and archives, and writes one stream; see `TargetOperator`."""

    read = ("sources",)
    sources: str | Sequence[str]

    def words(self, argument: str) -> list[str]:
        """See the base class."""
        if argument == "sources":
            return [self.stream_uri(each) for each in self._sources()]
        return ["--into", *super().words(argument)]

    def connected_stream(self) -> str | None:
        """See the base class.

        Raises:
            AirflowFailException: some sources have the connection's login, and others the worker's.
        """
        named = [each for each in self._sources() if "://" not in each]
        if named and (others := [each for each in self._sources() if is_stream(each)]):
            raise AirflowFailException(
                f"sources: {named[0]} is a stream of connection {self.pravega_conn_id!r} and {others[0]} is a URI, but "
                "one command has one login for its sources. Name all streams in the same way."
            )
        return named[0] if named else None

    def _sources(self) -> list[str]:
        return [self.sources] if isinstance(self.sources, str) else [str(each) for each in self.sources]


class AppendStreamsOperator(StitchOperator):
    """``streamvault append``: appends streams and archives to a stream, all at once."""

    verb = "append"
    arguments: ClassVar = {
        "sources": _SOURCES,
        "stream": "the stream to append to: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI.",
    }
    options_class = AppendOptions


class JoinStreamsOperator(StitchOperator):
    """``streamvault join``: puts streams and archives together in a new stream."""

    verb = "join"
    arguments: ClassVar = {
        "sources": _SOURCES,
        "stream": "the new stream: ``SCOPE/STREAM`` or ``STREAM`` of its connection, or a URI.",
    }
    options_class = JoinOptions


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
    login_of = "source"
