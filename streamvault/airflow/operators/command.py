"""Base class of the operators: runs a streamvault command through ``spark-submit``."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from inspect import Parameter, Signature
from typing import Any, ClassVar

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError
from airflow.sdk.execution_time.context import InletEventsAccessor

from streamvault.airflow.aws import aws_environment, is_on_s3
from streamvault.airflow.links import ArchivePageLink, SparkLink
from streamvault.airflow.options import OptionArgument, described, flag, forwarding_init, option_arguments
from streamvault.airflow.outcome import figures_of, lineage_of, report_of, reports_in
from streamvault.airflow.pravega import PravegaHook
from streamvault.airflow.submit import StreamvaultSubmitHook
from streamvault.common.options import Options
from streamvault.common.units import parse_duration
from streamvault.runner.opening import Distributed

_CLUSTER_MODE = "the driver runs on the worker (deploy mode client): only it gets the logins, in its environment"
_OWN_APPLICATION = "the operator submits the command of Streamvault"
_RESUMES = "a retry runs the same command, which resumes the interrupted one"
REFUSED = {
    "application": _OWN_APPLICATION,
    "application_args": _OWN_APPLICATION,
    "java_class": _OWN_APPLICATION,
    "deploy_mode": _CLUSTER_MODE,
    "status_poll_interval": _CLUSTER_MODE,
    "track_driver_via_k8s_api": _CLUSTER_MODE,
    "yarn_track_via_rm_api": _CLUSTER_MODE,
    "yarn_rm_auth": _CLUSTER_MODE,
    "durable": _RESUMES,
    "reconnect_on_retry": _RESUMES,
    "openlineage_inject_parent_job_info": _OWN_APPLICATION,
    "openlineage_inject_transport_info": _OWN_APPLICATION,
}
"""Arguments of `SparkSubmitOperator` that would have no effect, and why."""

SUBMITTED = tuple(
    name
    for name in inspect.signature(SparkSubmitHook).parameters
    if name in inspect.signature(SparkSubmitOperator.__init__).parameters and name not in {*REFUSED, "env_vars"}
)
"""Arguments of `SparkSubmitOperator` that its hook takes; it keeps some in attributes with an underscore."""

STREAMS = ("stream", "source", "requests", "deletions")
"""Arguments that name a stream, of the connection or by its URI."""

MAX_EVENTS = 100
"""How many of an asset's newest events are compared with what a retry would announce."""


class CommandOperator(SparkSubmitOperator):
    """Runs one command and returns its report, as ``--json`` prints it.

    For a scope or a pattern (``SCOPE/``, ``SCOPE/ord*``), it runs for each stream, and the report is a scope's. A retry
    runs the same command, which resumes the interrupted one. If a retry would fail in the same way
    (`common.errors.Problem.retriable`), the task fails at once. For each outlet that is an `AssetAlias`, the command
    emits an event of the asset with the URI of what it wrote. If it wrote nothing, it emits no event, not of an `Asset`
    among the outlets either.

    A subclass with an `options_class` gets the arguments of its command as keyword arguments, template fields and a
    section of its docstring.

    Args:
        conn_id: id of the connection of type ``spark``; the driver runs on the worker. Host ``inline``: no Spark.
        pravega_conn_id: id of the connection of type ``pravega`` for streams given as ``SCOPE/STREAM`` or ``STREAM``.
            For a stream given by its URI, the worker's own environment applies.
        aws_conn_id: id of the connection of type ``aws`` for roots on S3; None: the worker's own environment applies.
        env_vars: additional environment variables for the driver; an empty value unsets one.
        stop_after: a duration such as ``6h``: a command that takes longer is stopped, and the retry resumes it. It sets
            Airflow's `execution_timeout`, which mapped tasks cannot have each for itself.
        log_level: the lowest level of the command's log lines in the task's log: ``debug``, ``info`` (with the result
            as text), ``warning`` or ``error``. A line a minute says how far it is; ``STREAMVAULT_PROGRESS_EVERY`` in
            `env_vars` sets another interval.
        report_file: file on the worker, or ``s3://BUCKET/KEY``, in which `streamvault report` draws the archive after
            the command has succeeded. If it cannot be drawn, the task's log says so, and the task still succeeds.
        report_url: where browsers find that page, for the task's link *Archive report*.
        partitioned: whether the event of an `Asset` among the outlets has the time of the new generation as partition
            key, such as ``2026-01-31T18:00:00`` (UTC). Such an event triggers DAGs with Airflow's
            `PartitionedAssetTimetable` and no others.
        spark: `conf`, `driver_memory`, `num_executors`, `jars`, `packages`, `files` and the other arguments of
            `SparkSubmitOperator`, for Spark; those in `REFUSED` are an error.
    """

    template_fields: Sequence[str] = (
        *(name for name in SparkSubmitOperator.template_fields if name not in REFUSED),
        *("conn_id", "pravega_conn_id", "aws_conn_id", "log_level", "report_file", "report_url"),
    )
    template_ext: Sequence[str] = ()
    operator_extra_links = (ArchivePageLink(), SparkLink())
    ui_color = "#dcebf7"

    verb: ClassVar[str]
    """Name of the command."""

    arguments: ClassVar[Mapping[str, str]] = {}
    """Arguments that the command requires, in its order → description."""

    options_class: ClassVar[type[Options]]

    omitted: ClassVar[Collection[str]] = ()
    """Options that the operator does not have, besides those of `streamvault.airflow.options.OMITTED`."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Options whose name Airflow uses for something else → the argument's name."""

    options: ClassVar[tuple[OptionArgument, ...]] = ()

    own: ClassVar[Collection[str]] = ()
    """Arguments besides those of the command, which the class has as attributes with their types and defaults."""

    read: ClassVar[Collection[str]] = ("source", "stream", "archive")
    """Arguments and report fields with URIs of what the command reads, as far as there are such."""

    written: ClassVar[str] = ""
    """Report field with the URI of what the command writes; empty if it writes nothing."""

    login_of: ClassVar[str] = "stream"
    """Argument with the stream, as given, for which the command needs the login of `pravega_conn_id`."""

    ends: ClassVar[Collection[str]] = ()
    """Options of a command that may run for ever, one of which gives it an end."""

    asset_event_fields: ClassVar[tuple[str, ...]] = ("generation", "created", "events", "bytes")
    """Report fields that an asset event has, as far as the report has them."""

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.template_fields = (*vars(cls).get("own", ()), *cls.template_fields)
        if "options_class" not in vars(cls):
            return
        cls.options = option_arguments(cls.options_class, cls.omitted, cls.renamed)
        cls.template_fields = (*cls.arguments, *(option.name for option in cls.options), *cls.template_fields)
        cls.__doc__ = _with_arguments(cls)
        if "__init__" not in vars(cls):
            # Airflow applies default_args in each class's own method, and takes the arguments' names from its signature
            cls.__init__ = forwarding_init(cls)  # type: ignore[method-assign]
        vars(vars(cls)["__init__"])["__signature__"] = _signature(cls)

    def __init__(
        self,
        *,
        conn_id: str = "spark_default",
        pravega_conn_id: str = PravegaHook.default_conn_name,
        aws_conn_id: str | None = "aws_default",
        name: str = "streamvault",
        stop_after: str | None = None,
        log_level: str = "info",
        report_file: str | None = None,
        report_url: str | None = None,
        partitioned: bool = False,
        **spark: Any,
    ) -> None:
        for argument, why in REFUSED.items():
            if spark.get(argument) is not None and (argument, spark[argument]) != ("deploy_mode", "client"):
                raise TypeError(f"{type(self).__name__} does not take {argument}: {why}")
        given = {argument: spark.pop(argument) for argument in self.arguments}
        defaults = {option.name: option.parameter().default for option in self.options}
        defaults |= {argument: each.default for argument, each in _own(type(self)).items()}
        given |= {argument: spark.pop(argument, default) for argument, default in defaults.items()}
        if partitioned and "created" not in self.asset_event_fields:
            raise TypeError(f"{type(self).__name__} does not take partitioned: its events have no generation's time")
        super().__init__(conn_id=conn_id, name=name, **spark)
        if stop_after:
            self.execution_timeout = timedelta(seconds=parse_duration(stop_after))
        self.stop_after = stop_after
        self.conn_id = conn_id
        self.pravega_conn_id = pravega_conn_id
        self.aws_conn_id = aws_conn_id
        self.log_level = log_level
        self.report_file = report_file
        self.report_url = report_url
        self.partitioned = partitioned
        self.spark_url = ""
        self.report: Mapping[str, Any] = {}
        for argument, value in given.items():
            setattr(self, argument, value)

    def command(self) -> list[str]:
        """Return the command and its arguments."""
        if self.ends:
            self.require_end(self.verb, *self.ends)
        words = self.verb.split()
        for argument in self.arguments:
            words += self.words(argument)
        for option in self.options:
            words += option.words(self.resolve(option.name))
        return words

    def words(self, argument: str) -> list[str]:
        """Return the words of the command line for an argument."""
        return [str(self.resolve(argument))]

    def resolve(self, argument: str) -> Any:
        """Return an argument's value for the command: a stream's URI instead of its name."""
        value = getattr(self, argument)
        return self.stream_uri(value) if value and argument in STREAMS else value

    def require_end(self, what: str, *names: str) -> None:
        """Check that the command ends by itself.

        Args:
            what: what has no end.
            names: arguments, one of which gives it an end.

        Raises:
            AirflowFailException: none of them is given.
        """
        if all(getattr(self, name) in {None, ""} for name in names):
            raise AirflowFailException(
                f"{what} requires {' or '.join(names)}: a task must end. Give the time after which the next run "
                "continues, e.g. 1h."
            )

    def connected_stream(self) -> str | None:
        """Return the stream of `login_of`; None if there is none."""
        stream: str | None = getattr(self, self.login_of, None)
        return stream

    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        """Run the command and return its report."""
        hook = self._hook = self._get_hook()
        hook.on_spark = lambda url: context["ti"].xcom_push(key=SparkLink().xcom_key, value=url)
        outcome = hook.run([*self.command(), "--log-level", str(self.log_level)])
        self.spark_url = hook.history_url
        if outcome.code and outcome.document is not None:
            context["ti"].xcom_push(key="report", value=outcome.document)
        report = report_of(outcome)
        self._emit_events(report, context)
        if self._acts():
            self.report = report
            self._draw(report)
        return report

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """Return whether the command changed what it writes to."""
        return not report.get("unchanged")

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002  (OpenLineage's provider calls it)
        """Return what the command read and wrote; None if OpenLineage is not installed."""
        given = [uri for name in self.read if name in self.arguments for uri in self.words(name)]
        given += [each["stream"] for each in self.report.get("outcomes", ())]
        return lineage_of(reports_in(self.report), self.read, self.written, given)

    def on_kill(self) -> None:
        """Stop the command and its child processes."""
        if self._hook is not None:
            self._hook.on_kill()

    def stream_uri(self, stream: str) -> str:
        """Return a stream's URI; resolve a name with the connection."""
        return stream if "://" in stream else PravegaHook(self.pravega_conn_id).stream_uri(stream)

    def variables(self) -> dict[str, str | None]:
        """Return the environment variables for the driver; None unsets one."""
        variables: dict[str, str | None] = {name: str(value) or None for name, value in (self.env_vars or {}).items()}
        if self.aws_conn_id and self.uses_s3():
            variables |= aws_environment(self.aws_conn_id)
        stream = self.connected_stream()
        if stream and "://" not in stream:
            variables |= PravegaHook(self.pravega_conn_id).environment()
        return variables

    def uses_s3(self) -> bool:
        """Return whether the command needs the login of `aws_conn_id`."""
        return any(is_on_s3(getattr(self, name)) for name in (*self.arguments, *(each.name for each in self.options)))

    def _get_hook(self) -> StreamvaultSubmitHook:
        given = {name: getattr(self, name if hasattr(self, name) else f"_{name}") for name in SUBMITTED}
        distributed = issubclass(self.options_class, Distributed)
        return StreamvaultSubmitHook(variables=self.variables(), distributed=distributed, **given)

    def _emit_events(self, report: Mapping[str, Any], context: Any) -> None:
        if not self.written:
            return
        reports = reports_in(report)
        # an earlier attempt may have written and been killed before it could announce that
        is_retry = context["ti"].try_number > 1
        written = [
            each
            for each in reports
            if self._acts() and (self.has_written(each) or (is_retry and not self._is_announced(each, context["ti"])))
        ]
        others = {each[self.written] for each in reports if each not in written}
        # Airflow emits an event of each asset that a task has as an outlet when it succeeds
        self.outlets = [
            outlet
            for outlet in self.outlets
            if not isinstance(outlet, Asset | AssetRef) or (written and getattr(outlet, "uri", None) not in others)
        ]
        for each in written:
            for outlet in self.outlets:
                if isinstance(outlet, AssetAlias):
                    context["outlet_events"][outlet].add(Asset(uri=each[self.written]), extra=self._event_extra(each))
                elif isinstance(outlet, Asset) and outlet.uri == each[self.written]:
                    context["outlet_events"][outlet].extra.update(extra := self._event_extra(each))
                    # a rotation that has only let others expire says when the one before it was made
                    is_new = is_retry or not figures_of(each).get("unchanged")
                    if self.partitioned and is_new and extra.get("created"):
                        # without fractions, as Airflow's mappers of partitions read it
                        context["outlet_events"][outlet].add_partitions(extra["created"][:19])

    def _is_announced(self, report: Mapping[str, Any], task: Any) -> bool:
        """Return whether there is an event of what a report says: a task may have been cleared after it succeeded.

        If the report has no generation, an event of an earlier attempt counts.
        """
        asset, newest = Asset(uri=report[self.written]), _newest({**report, **self._event_extra(report)})
        names = {each.name for each in self.outlets if isinstance(each, Asset) and each.uri == asset.uri}
        attempts = (task.dag_id, task.run_id, task.task_id, task.map_index)
        for name in {asset.name, *names}:
            try:
                events = list(InletEventsAccessor(name, asset.uri).ascending(False).limit(MAX_EVENTS))
            except AirflowRuntimeError:  # it has never had one
                continue
            for event in events:
                source = (event.source_dag_id, event.source_run_id, event.source_task_id, event.source_map_index)
                if _newest(event.extra or {}) == newest if newest else source == attempts:
                    return True
        return False

    def _acts(self) -> bool:
        """Return whether the command does what it says: it is no dry run."""
        # Airflow's operators have a method of that name, which nothing calls
        return not any(each.name == "dry_run" and flag(each.name, self.dry_run) for each in self.options)

    def _draw(self, report: Mapping[str, Any]) -> None:
        """Draw the archive, or those below the root. What was written is written, so no failure counts."""
        place = report.get("archive") or getattr(self, "root", None)
        if not self.report_file or not place:
            return
        from streamvault.airflow.links import write_page  # noqa: PLC0415  (not where DAGs are parsed)

        try:
            write_page(place, self.report_file, self.variables(), self.aws_conn_id)
        except Exception as error:  # noqa: BLE001
            self.log.warning("the page of %s was not written to %s: %s", place, self.report_file, error)

    def _event_extra(self, report: Mapping[str, Any]) -> dict[str, Any]:
        moved = figures_of(report)
        return {name: moved[name] for name in self.asset_event_fields if name in moved}


def _newest(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return which generation a report or an event is about; empty if it names none."""
    if fields.get("generation"):
        return fields["generation"], fields.get("created")
    numbers = fields.get("added") or fields.get("generations")
    return (max(numbers),) if numbers else ()


def _own(kind: type[CommandOperator]) -> dict[str, Parameter]:
    """Return the arguments that an operator and its base classes name in `CommandOperator.own`."""
    return {
        name: Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(kind, name), annotation=types[name])
        for base in kind.__mro__
        if vars(base).get("own") and (types := inspect.get_annotations(base, eval_str=True))
        for name in vars(base)["own"]
    }


def _signature(kind: type[CommandOperator]) -> Signature:
    """Return the signature of an operator's ``__init__``: the command's arguments, and those of the base classes."""
    found = {name: Parameter(name, Parameter.KEYWORD_ONLY, annotation=str) for name in kind.arguments}
    found |= {option.name: option.parameter() for option in kind.options}
    found |= _own(kind)
    bases = kind.__mro__[: kind.__mro__.index(CommandOperator) + 1]
    for init in (vars(base)["__init__"] for base in bases if "__init__" in vars(base)):
        its = inspect.signature(init, eval_str=True).parameters
        found |= {name: each for name, each in its.items() if each.kind is Parameter.KEYWORD_ONLY}
    self, others = (
        Parameter("self", Parameter.POSITIONAL_OR_KEYWORD),
        Parameter("spark", Parameter.VAR_KEYWORD, annotation=Any),
    )
    return Signature([self, *found.values(), others], return_annotation=None)


def _with_arguments(kind: type[CommandOperator]) -> str:
    """Return an operator's docstring with the command's arguments."""
    text = inspect.cleandoc(kind.__doc__ or "")
    section = [] if "\nArgs:\n" in text else ["", "Args:"]
    entries = [described(name, description) for name, description in kind.arguments.items()]
    entries += [option.description() for option in kind.options]
    entries.append(described("others", f"see `{kind.__mro__[1].__name__}`. All of the above are templated."))
    return "\n".join([text, *section, *entries])
