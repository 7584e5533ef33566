"""Lists of streams that users give to a DAG: reads and validates them, and splits them for mapped tasks."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args, get_type_hints

from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from pydantic import BaseModel, Field, PrivateAttr, ValidationError, model_validator

from streamvault.airflow.pravega import PravegaHook
from streamvault.common.errors import Problem
from streamvault.exporter.reports import RotateOptions
from streamvault.objectstore.uri import RootAddress
from streamvault.replication.reports import ReplicateOptions
from streamvault.scopes.entries import (
    DeclaredList,
    ListEntry,
    ReplicaTaskOptions,
    TaskOptions,
    line_of,
    load_declared,
    with_options,
)
from streamvault.scopes.uri import ScopePattern

ListStreams = Callable[[str, str | None], list[str]]
"""(scope, connection) → names of the scope's streams."""


class TaskEntry(ListEntry):
    """A stream, all streams of a scope, or those that match a pattern; a text stands for the field `named`.

    Attributes:
        scope: a scope of the connection's cluster, instead of the field `named`, which may name one as ``SCOPE/``.
    """

    scope: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (getattr(self, self.named) is None) == (self.scope is None):
            raise ValueError(f"give either {self.named} or scope")
        return self

    @property
    def what(self) -> str:
        """The stream, ``SCOPE/`` or the pattern."""
        return str(getattr(self, self.named) or f"{self.scope}/")


class StreamList(DeclaredList):
    """A list of streams; a JSON array stands for ``{"streams": […]}``."""

    parameter: ClassVar[str]
    """Name of the DAG's parameter, and part of the names of the variables that give the list."""

    what: ClassVar[str]
    """What it lists, for messages."""

    product: ClassVar[str]
    """What a task writes, for messages."""

    example: ClassVar[Mapping[str, Any]]
    """A list, for the form."""

    _where: str = PrivateAttr("")
    _text: str = PrivateAttr("")

    @classmethod
    def schema_of_form(cls) -> dict[str, Any]:
        """Return the JSON schema of the list in a form: its keys. `read` also checks their values."""
        known = get_type_hints(cls, include_extras=False)["streams"]
        entry = {"type": ["string", "object"], **_keys(get_args(known)[0])}
        streams = {"type": "array", "minItems": 1, "items": entry}
        # the keys are of an object, the items of a plain list of streams
        return {"type": ["null", "object", "array"], **_keys(cls), "properties": {"streams": streams}, "items": entry}

    def arguments(self, list_streams: ListStreams) -> list[dict[str, Any]]:
        """Return the operator's arguments for each stream.

        Args:
            list_streams: (scope, connection) → names of the scope's streams.

        Raises:
            AirflowFailException: entries contradict each other, or nothing matches a pattern.
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for number, entry, options in self.entries():
            for stream in self._members(number, entry.what, options.get("pravega_conn_id"), list_streams):
                try:
                    made = self.task(entry, stream, options)
                except ValueError as error:
                    raise self.problem(number, f"{stream}: {error}") from None
                if made is not None and found.setdefault(made[0], made[1]) is not made[1]:
                    raise self.problem(number, f"{stream}: its {self.product} {made[0][1]} is listed twice")
        return list(found.values())

    @abstractmethod
    def task(self, entry: Any, stream: str, options: dict[str, Any]) -> tuple[tuple[str, str], dict[str, Any]] | None:
        """Return the operator's arguments for a stream, after the place and the name of its product.

        None if another entry has the stream's task.

        Args:
            entry: an entry of the list.
            stream: the stream that it names, or one of those.
            options: the entry's options, and those of the list.

        Raises:
            ValueError: they do not fit.
        """

    @classmethod
    def variable(cls) -> str:
        """Return the name of the Airflow variable with the list."""
        return f"streamvault_{cls.parameter}"

    @classmethod
    def environment_variable(cls, suffix: str) -> str:
        """Return the name of an environment variable: ``FILE`` for the file with the list, ``SCHEDULE`` and so on."""
        return f"STREAMVAULT_{cls.parameter.upper()}_{suffix}"

    @classmethod
    def read(cls, given: Any, file: str | None = None, *, where: str = "") -> Self:
        """Read the list from a value, or from a JSON or TOML file on the worker.

        Args:
            given: the value; None: the file.
            file: name of the file; None or empty if there is none.
            where: where the value is from.

        Raises:
            AirflowFailException: there is no list, or it is not valid; the message says where.
        """
        where, text = f"the list of {cls.what}" + (f" in {where}" if where else ""), ""
        if given is None and file:
            where = file
            try:
                if file.endswith(".toml"):
                    given, text = load_declared(file)
                else:
                    given = json.loads(Path(file).read_text(encoding="utf-8"))
            except (OSError, ValueError, Problem) as error:
                raise AirflowFailException(f"the list of {cls.what} cannot be read: {file}: {error}") from None
        if given is None:
            raise AirflowFailException(
                f"no list of {cls.what}. Set the variable {cls.variable()}, the parameter {cls.parameter}, or "
                f"{cls.environment_variable('FILE')}."
            )
        try:
            found = cls.model_validate({"streams": given} if isinstance(given, list) else given)
        except ValidationError as error:
            wrong = [_wrong(each, text) for each in error.errors(include_url=False)]
            raise AirflowFailException(f"{where} is not valid: {'; '.join(dict.fromkeys(wrong))}") from None
        found._where, found._text = where, text  # noqa: SLF001  (this class's own)
        return found

    def problem(self, number: int, what: str) -> AirflowFailException:
        """Return the error that an entry is not valid or does not fit the others; ``number`` counts from 0."""
        line = f" (line {line_of(self._text, ('streams', number))})" if self._text else ""
        return AirflowFailException(f"{self._where} is not valid: streams.{number}: {what}{line}")

    def _members(self, number: int, stream: str, conn_id: str | None, list_streams: ListStreams) -> list[str]:
        """Return the streams that an entry names: one, all of a scope (``SCOPE/``), or those that match a pattern.

        Raises:
            AirflowFailException: it is not a pattern, or no stream of the scope matches it.
        """
        if not stands_for_streams(stream):
            return [stream]
        try:
            pattern = ScopePattern.parse(stream)
        except Problem as problem:
            raise self.problem(number, str(problem)) from None
        names = list_streams(pattern.scope, conn_id)
        found = [pattern.member(name).removeprefix("/") for name in names if pattern.matches(name)]
        if names and not found:
            raise self.problem(number, f"nothing matches {stream}")
        return found


def stands_for_streams(stream: str) -> bool:
    """Return whether an entry's stream is a scope or a pattern."""
    return stream.endswith("/") or "*" in stream


def _keys(kind: type[BaseModel]) -> dict[str, Any]:
    # not additionalProperties, whose error has the whole schema and not the names that are known
    return {"propertyNames": {"enum": sorted(kind.model_fields)}}


def _wrong(found: Any, text: str) -> str:
    """Return what is wrong with a value of a list, with its place."""
    where = ".".join(str(part) for part in found["loc"]) or "it"
    what = "unknown key" if found["type"] == "extra_forbidden" else found["msg"].removeprefix("Value error, ")
    return f"{where}: {what}" + (f" (line {line_of(text, found['loc'])})" if text else "")


@dataclass(frozen=True)
class ScopeStreams:
    """Lists the streams of scopes. One that cannot be listed fails its own entry, not the whole list.

    Attributes:
        failed: why scopes could not be listed.
    """

    failed: list[str] = field(default_factory=list)

    def __call__(self, scope: str, conn_id: str | None) -> list[str]:
        """Return the names of a scope's streams; of a scope that cannot be listed, none."""
        conn_id = conn_id or PravegaHook.default_conn_name
        where = scope if "://" in scope else f"{scope or 'its scope'} of connection {conn_id}"
        try:
            if "://" in scope:  # as a task that is given a URI, with the worker's own environment
                from streamvault.scopes.calls import members_of  # noqa: PLC0415  (not where DAGs are parsed)

                return members_of(ScopePattern(scope), "stream or archive").look().names
            return PravegaHook(conn_id).list_streams(scope)
        except (Problem, AirflowException) as error:
            self.failed.append(f"scope {where}: {error}")
            return []


def in_batches(arguments: list[dict[str, Any]], count: int) -> list[list[dict[str, Any]]]:
    """Split the arguments into lists that Airflow can map a task over; the last lists may be empty.

    Args:
        arguments: the operator's arguments for each stream.
        count: number of lists to return.

    Raises:
        AirflowFailException: there are too many streams for this number of lists.
    """
    longest = conf.getint("core", "max_map_length", fallback=1024)
    if len(arguments) > count * longest:
        raise AirflowFailException(
            f"{len(arguments):,} streams are declared, but Airflow maps at most {count * longest:,}: {count} lists of "
            f"{longest:,}. Increase AIRFLOW__CORE__MAX_MAP_LENGTH."
        )
    return [arguments[number * longest :][:longest] for number in range(count)]


@with_options(ReplicateOptions, omitted=("follow", "every", "idle", "lasting"))
class ReplicationOptions(ReplicaTaskOptions):
    """Options of a replication, as for `ReplicateStreamOperator`; an entry's own override those of the list."""


class ReplicationEntry(TaskEntry, ReplicationOptions):
    """A pair of streams, or all streams of a scope.

    Attributes:
        source: the stream to replicate: ``SCOPE/STREAM``, ``STREAM`` in the connection's scope, a URI, or an archive;
            with ``SCOPE/`` all streams of a scope, with a ``*`` those that match.
        stream: the replica: ``SCOPE/STREAM``, ``STREAM`` or a URI; of several, ``SCOPE/``; None: the source's name.
        target_scope: scope of the replicas, which have the names of their sources; None: `scope`.
    """

    named: ClassVar = "source"
    source: str | None = None
    stream: str | None = None
    target_scope: str | None = None

    @model_validator(mode="after")
    def _replica_of_a_stream_or_scope(self) -> Self:
        if self.source is None and self.stream is not None:
            raise ValueError("stream requires source; for a scope, give target_scope")
        if self.scope is None and self.target_scope is not None:
            raise ValueError("target_scope requires scope; for a source, give stream")
        if self.source is not None and "://" in self.source and self.stream is None:
            raise ValueError("stream is missing: the source is a URI")
        if self.source is not None and self.stream is not None:
            several = stands_for_streams(self.source)
            if several != stands_for_streams(self.stream) or "*" in self.stream:
                raise ValueError(
                    f"stream must be {'a scope, with / at its end' if several else 'a stream'}, as the source"
                )
        return self


class Replications(StreamList, ReplicationOptions):
    """The list: ``{"target_conn_id": "standby", "streams": ["shop/orders", {"scope": "billing"}]}``."""

    parameter: ClassVar = "standby"
    what: ClassVar = "replications"
    product: ClassVar = "replica"
    example: ClassVar = {"target_conn_id": "pravega_standby", "streams": ["shop/orders", {"scope": "billing"}]}

    streams: Annotated[tuple[ReplicationEntry, ...], Field(min_length=1)]

    def task(
        self, entry: ReplicationEntry, stream: str, options: dict[str, Any]
    ) -> tuple[tuple[str, str], dict[str, Any]]:
        """See the base class."""
        connection = options.get("pravega_conn_id") or PravegaHook.default_conn_name
        target = options.get("target_conn_id") or connection
        replica = entry.stream or (f"{entry.target_scope}/" if entry.target_scope else stream)
        if replica.endswith("/"):
            replica += stream.rpartition("/")[2]
        if stream == replica and (connection == target or "://" in stream):
            raise ValueError("source and replica are the same stream. Give target_conn_id, or another name.")
        return ("" if "://" in replica else target, replica), {"source": stream, "stream": replica, **options}


KEEPING = ("keep", "keep_for", "until")


@with_options(RotateOptions, omitted=("hold", "queue", "restart"))
class RotationOptions(TaskOptions):
    """Options of a rotation, as for `RotateArchiveOperator`; a stream's own override those of the list.

    Attributes:
        root: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
    """

    root: str | None = None

    @model_validator(mode="after")
    def _one_way_of_keeping(self) -> Self:
        given = self.given(KEEPING)
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are mutually exclusive")
        if self.root is not None:
            try:
                RootAddress.parse(self.root)
            except Problem as problem:
                raise ValueError(str(problem)) from None
        return self


class RotationEntry(TaskEntry, RotationOptions):
    """One stream, or all streams of a scope.

    Attributes:
        stream: ``SCOPE/STREAM``, ``STREAM`` in the connection's scope, or a URI; with ``SCOPE/`` all streams of a
            scope, with a ``*`` those that match.
    """

    named: ClassVar = "stream"
    stream: str | None = None


class Rotations(StreamList, RotationOptions):
    """The list: ``{"root": …, "keep": 7, "streams": ["shop/orders", {"scope": "billing", "keep_for": "90d"}]}``."""

    parameter: ClassVar = "rotation"
    what: ClassVar = "rotations"
    product: ClassVar = "archive"
    example: ClassVar = {
        "root": "s3://vault/backups",
        "keep": 7,
        "streams": ["shop/orders", {"scope": "billing", "keep_for": "90d"}],
    }

    streams: Annotated[tuple[RotationEntry, ...], Field(min_length=1)]

    def task(
        self, entry: RotationEntry, stream: str, options: dict[str, Any]
    ) -> tuple[tuple[str, str], dict[str, Any]] | None:
        """See the base class."""
        if "root" not in options:
            raise ValueError("root is missing")
        if stream != entry.stream and any(stream == each.stream and each.given(["line"]) for each in self.streams):
            return None  # its archive of the scope's entry belongs to the stream that it was restored from
        return (options["root"], stream), {"stream": stream, **options}
