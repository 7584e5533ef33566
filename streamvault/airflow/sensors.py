"""Sensors: they wait for a generation of an archive, or for bytes in a stream; in the triggerer if deferrable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from datetime import timedelta
from inspect import Signature, signature
from typing import Any, ClassVar

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.configuration import conf

from streamvault.airflow.options import forwarding_init
from streamvault.airflow.outcome import found_in, raising_for_airflow
from streamvault.airflow.triggers import GenerationTrigger, LookingTrigger, StreamBytesTrigger
from streamvault.common.errors import Problem

DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)


class LookingSensor(BaseSensorOperator):
    """A sensor that waits until a look finds something new, and returns what it found.

    A subclass has the arguments of its trigger, which are templated, but waits for `poke_interval`.

    Args:
        deferrable: whether to wait in the triggerer, without a worker.
        others: `poke_interval`, `timeout`, `mode` and the other arguments of `BaseSensorOperator`.
    """

    ui_color = "#dcebf7"

    trigger_class: ClassVar[type[LookingTrigger]]
    """What waits in the triggerer."""

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.template_fields = tuple(one.name for one in _asked(cls.trigger_class))
        cls.__init__ = forwarding_init(cls)  # type: ignore[method-assign]
        known = {**signature(cls.trigger_class).parameters, **signature(LookingSensor.__init__).parameters}
        own = [known["self"], *(known[name] for name in (*cls.template_fields, "deferrable", "others"))]
        vars(vars(cls)["__init__"])["__signature__"] = Signature(own, return_annotation=None)

    def __init__(self, *, deferrable: bool = DEFERRABLE, **others: Any) -> None:
        asked = {one.name: others.pop(one.name, one.default) for one in _asked(self.trigger_class)}
        super().__init__(**others)
        self.deferrable = deferrable
        for name, value in asked.items():
            setattr(self, name, value)

    def trigger(self) -> LookingTrigger:
        """Return what waits in the triggerer."""
        asked = {name: getattr(self, name) for name in self.template_fields}
        return self.trigger_class(**asked, poll_seconds=self.poke_interval)

    def poke(self, context: Any) -> PokeReturnValue:  # noqa: ARG002
        """Look once. A server that does not answer is asked again after the interval."""
        with raising_for_airflow():
            try:
                found = self.trigger().connect()()
            except Problem as problem:
                if not problem.transient:
                    raise
                self.log.warning("%s", problem)
                found = None
        return PokeReturnValue(found is not None, found)

    def execute(self, context: Any) -> Any:
        """Wait, and return what was found."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if found:
            return found.xcom_value
        self.defer(trigger=self.trigger(), method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        return None

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """Return what the trigger found."""
        return found_in(event)


def _asked(kind: type[LookingTrigger]) -> list[Field[Any]]:
    return [one for one in fields(kind) if one.name != "poll_seconds"]


class GenerationSensor(LookingSensor):
    """Waits for a generation of an archive, also one that is written outside Airflow.

    Returns ``archive``, ``generation``, ``created``, ``events`` and ``bytes`` of the newest generation. What it waits
    for does not depend on when it starts, so a retry waits for the same.

    Args:
        archive: ``ROOT/SCOPE/STREAM``, which need not exist yet. Templated, as are the following.
        after: wait for a generation after this one; 0: for any.
        since: wait for one that was created at or after this time, RFC 3339, such as ``{{ data_interval_end }}``.
        aws_conn_id: id of the connection of type ``aws`` for an archive on S3; None: the worker's own credentials.
        others: see `LookingSensor`.
    """

    trigger_class = GenerationTrigger


class StreamBytesSensor(LookingSensor):
    """Waits until a stream has bytes that are not archived yet, or that come after a stream cut.

    Returns ``stream`` and ``bytes``, those of its segments with the headers of events.

    Args:
        stream: ``SCOPE/STREAM`` or ``STREAM`` of the connection, or a URI. Templated, as are the following.
        archive: the stream's archive, ``ROOT/SCOPE/STREAM``: bytes after its newest generation count. If there is no
            archive yet, all do.
        cut: bytes after this stream cut count, which is JSON or the Java client's text; without `archive` and `cut`,
            all that can be read.
        min_bytes: how many there must be: a number, or a size such as ``64MiB``.
        pravega_conn_id: id of the connection of type ``pravega``.
        aws_conn_id: as for `GenerationSensor`.
        others: see `LookingSensor`.
    """

    trigger_class = StreamBytesTrigger
