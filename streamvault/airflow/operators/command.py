"""Base class of the operators: runs a streamvault command through ``spark-submit``."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef

from streamvault.airflow.aws import aws_environment
from streamvault.airflow.outcome import report_of
from streamvault.airflow.pravega import PravegaHook
from streamvault.airflow.submit import Outcome, StreamvaultSubmitHook


class CommandOperator(SparkSubmitOperator):
    """Runs one command and returns its report, as ``--json`` prints it.

    A retry runs the same command, which resumes the interrupted one. If a retry would fail in the same way
    (`common.errors.Problem.retriable`), the task fails at once. For each outlet that is an `AssetAlias`, the command
    emits an event of the asset with the URI of what it wrote. If it wrote nothing, it emits no event, not of an `Asset`
    among the outlets either.

    Args:
        conn_id: id of the connection of type ``spark``; the driver runs on the worker. Host ``inline``: no Spark.
        pravega_conn_id: id of the connection of type ``pravega`` for streams given as ``SCOPE/STREAM`` or ``STREAM``.
            For a stream given by its URI, the worker's own environment applies.
        aws_conn_id: id of the connection of type ``aws`` for roots on S3; None: the worker's own environment applies.
        env_vars: additional environment variables for the driver; an empty value unsets one.
        spark: `conf`, `driver_memory`, `num_executors` and the other arguments of `SparkSubmitOperator`.
    """

    template_fields: Sequence[str] = ("conf", "name", "pravega_conn_id", "aws_conn_id", "env_vars")
    template_ext: Sequence[str] = ()
    ui_color = "#dcebf7"

    written: ClassVar[str] = ""
    """Report field with the URI of what the command writes; empty if it writes nothing."""

    told: ClassVar[tuple[str, ...]] = ("generation", "events", "bytes")
    """Report fields that an asset event has, as far as the report has them."""

    def __init__(
        self,
        *,
        conn_id: str = "spark_default",
        pravega_conn_id: str = PravegaHook.default_conn_name,
        aws_conn_id: str | None = "aws_default",
        name: str = "streamvault",
        **spark: Any,
    ) -> None:
        super().__init__(conn_id=conn_id, name=name, **spark)
        self.pravega_conn_id = pravega_conn_id
        self.aws_conn_id = aws_conn_id

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command and its arguments."""

    @abstractmethod
    def places(self) -> tuple[str, str | None]:
        """Return the root or archive, and the stream as given; None if the command has no stream."""

    def execute(self, context: Any) -> dict[str, Any]:  # type: ignore[override]  # the provider's returns nothing
        """Run the command and return its report."""
        hook = self._hook = self._get_hook()
        outcome = hook.run([str(argument) for argument in self.command()])
        self._log_document(outcome, context)
        report = report_of(outcome)
        self._emit_events(report, context)
        return report

    def has_written(self, report: Mapping[str, Any]) -> bool:
        """Return whether the command changed what it writes to."""
        return not report.get("unchanged")

    def on_kill(self) -> None:
        """Stop the command and its child processes."""
        if self._hook is not None:
            self._hook.on_kill()

    def stream_uri(self, stream: str) -> str:
        """Return a stream's URI; resolve a name with the connection."""
        return stream if "://" in stream else PravegaHook(self.pravega_conn_id).stream_uri(stream)

    def variables(self) -> dict[str, str | None]:
        """Return the environment variables for the driver; None unsets one."""
        root, stream = self.places()
        variables: dict[str, str | None] = {name: str(value) or None for name, value in (self.env_vars or {}).items()}
        if root.startswith("s3://") and self.aws_conn_id:
            variables |= aws_environment(self.aws_conn_id)
        if stream is not None and "://" not in stream:
            variables |= PravegaHook(self.pravega_conn_id).environment()
        return variables

    def _get_hook(self) -> StreamvaultSubmitHook:
        return StreamvaultSubmitHook(
            variables=self.variables(),
            conf=self.conf,
            conn_id=self._conn_id,
            files=self.files,
            py_files=self.py_files,
            archives=self._archives,
            driver_class_path=self.driver_class_path,
            jars=self.jars,
            packages=self.packages,
            exclude_packages=self.exclude_packages,
            repositories=self._repositories,
            total_executor_cores=self._total_executor_cores,
            executor_cores=self._executor_cores,
            executor_memory=self._executor_memory,
            driver_memory=self._driver_memory,
            keytab=self.keytab,
            principal=self.principal,
            proxy_user=self.proxy_user,
            name=self.name,
            num_executors=self._num_executors,
            verbose=self._verbose,
            spark_binary=self._spark_binary,
            properties_file=self.properties_file,
            yarn_queue=self._yarn_queue,
            use_krb5ccache=self._use_krb5ccache,
        )

    def _log_document(self, outcome: Outcome, context: Any) -> None:
        """Log the document; if the command failed, also push it as the XCom ``report``."""
        if outcome.document is None:
            return
        self.log.info("%s", json.dumps(outcome.document))
        if outcome.code:
            for finding in outcome.document.get("findings", ()):
                self.log.error("damaged: %s", finding)
            context["ti"].xcom_push(key="report", value=outcome.document)

    def _emit_events(self, report: Mapping[str, Any], context: Any) -> None:
        if not self.written:
            return
        # an earlier attempt may have written and been killed before it could announce that
        if not (self.has_written(report) or context["ti"].try_number > 1):
            # Airflow emits an event of each asset that a task has as an outlet when it succeeds
            self.outlets = [outlet for outlet in self.outlets if not isinstance(outlet, Asset | AssetRef)]
            return
        uri = report[self.written]
        for outlet in self.outlets:
            if isinstance(outlet, AssetAlias):
                context["outlet_events"][outlet].add(Asset(uri=uri), extra=self._short(report))
            elif isinstance(outlet, Asset) and outlet.uri == uri:
                context["outlet_events"][outlet].extra.update(self._short(report))

    def _short(self, report: Mapping[str, Any]) -> dict[str, Any]:
        moved = {**report, **(report.get("export") or {})}
        return {name: moved[name] for name in self.told if name in moved}


def options(values: Mapping[str, Any]) -> list[str]:
    """Return command-line options.

    Args:
        values: option → value. Options with None, False or an empty string are left out; True adds the option without a
            value; a mapping is written as JSON.
    """
    words: list[str] = []
    for option, value in values.items():
        if value is None or value is False or value == "":
            continue
        words.append(option)
        if value is not True:
            words.append(json.dumps(value) if isinstance(value, Mapping) else str(value))
    return words


def fingerprints(given: str | Sequence[str] | None) -> list[str]:
    """Return the options for one fingerprint, several, or none."""
    several = [given] if isinstance(given, str) else given or ()
    return [word for one in several for word in options({"--fingerprint": one})]
