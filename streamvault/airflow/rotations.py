"""Reads and validates the list of streams to rotate, and converts it to operator arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from common.errors import Problem
from common.times import parse_duration, parse_moment
from objectstore.uri import RootAddress

__all__ = ["Rotations", "in_batches", "read_rotations"]

KEEPING = ("keep", "keep_for", "until")


def _is_duration(text: str) -> str:
    parse_duration(text)
    return text


def _is_moment(text: str) -> str:
    try:
        parse_moment(text, "it")
    except Problem as problem:
        raise ValueError(str(problem)) from None
    return text


class Options(BaseModel):
    """Options of a rotation; a stream's own options override those of the list.

    Attributes:
        root: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
        keep, keep_for, until: which generations to keep; at most one may be set; without any, nothing expires.
        others: as for `RotateArchiveOperator`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    root: str | None = None
    keep: Annotated[int, Field(ge=1)] | None = None
    keep_for: Annotated[str, AfterValidator(_is_duration)] | None = None
    until: Annotated[str, AfterValidator(_is_moment)] | None = None
    truncate_source: bool | None = None
    storage_class: str | None = None
    content: Literal["events", "bytes"] | None = None
    layout: Literal["events", "chunks"] | None = None
    compress: Literal["zstd", "none"] | None = None
    range_size: str | None = None
    largest_event: str | None = None
    window: str | None = None
    pravega_conn_id: str | None = None
    aws_conn_id: str | None = None

    @model_validator(mode="after")
    def _one_way_of_keeping(self) -> Self:
        given = [name for name in KEEPING if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are mutually exclusive")
        if self.root is not None:
            try:
                RootAddress.parse(self.root)
            except Problem as problem:
                raise ValueError(str(problem)) from None
        return self

    def given(self) -> dict[str, Any]:
        """Return the options that are set."""
        return {name: getattr(self, name) for name in Options.model_fields if getattr(self, name) is not None}


class Entry(Options):
    """A stream, or all streams of a scope.

    Attributes:
        stream: ``SCOPE/STREAM``, ``STREAM`` in the connection's scope, or a URI.
        scope: a scope of the connection's cluster.
    """

    stream: str | None = None
    scope: str | None = None

    @model_validator(mode="after")
    def _stream_or_scope(self) -> Self:
        if (self.stream is None) == (self.scope is None):
            raise ValueError("give either stream or scope")
        return self


def _by_name(value: Any) -> Any:
    return {"stream": value} if isinstance(value, str) else value


class Rotations(Options):
    """The list: ``{"root": …, "keep": 7, "streams": ["shop/orders", {"scope": "billing", "keep_for": "90d"}]}``."""

    streams: Annotated[tuple[Annotated[Entry, BeforeValidator(_by_name)], ...], Field(min_length=1)]

    def arguments(self, list_streams: Callable[[str, str | None], list[str]]) -> list[dict[str, Any]]:
        """Return the operator's arguments for each stream.

        Args:
            list_streams: (scope, connection) → names of the scope's streams.

        Raises:
            AirflowFailException: a stream has no root, or is listed twice.
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for entry in self.streams:
            chosen = {**self.given(), **entry.given()}
            if any(name in entry.given() for name in KEEPING):
                chosen = {name: value for name, value in chosen.items() if name not in KEEPING} | {
                    name: value for name, value in entry.given().items() if name in KEEPING
                }
            if "root" not in chosen:
                raise AirflowFailException(f"rotation of {entry.stream or entry.scope}: root is missing")
            for stream in self._streams(entry, chosen, list_streams):
                key = (stream, chosen["root"])
                if key in found:
                    raise AirflowFailException(f"rotation of {stream}: it is listed twice")
                found[key] = {"stream": stream, **chosen}
        return list(found.values())

    @staticmethod
    def _streams(
        entry: Entry, chosen: Mapping[str, Any], list_streams: Callable[[str, str | None], list[str]]
    ) -> list[str]:
        if entry.stream is not None:
            return [entry.stream]
        scope = str(entry.scope)
        return [f"{scope}/{name}" for name in list_streams(scope, chosen.get("pravega_conn_id"))]


def read_rotations(declared: Any, file: str | None = None) -> Rotations:
    """Read the list from a value, or from a JSON file on the worker.

    Raises:
        AirflowFailException: there is no list, or it is not valid; the message says where.
    """
    where = "the list of rotations"
    if declared is None and file:
        where = file
        try:
            declared = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise AirflowFailException(f"the list of rotations cannot be read: {file}: {error}") from None
    if declared is None:
        raise AirflowFailException(
            "no list of rotations. Set the variable streamvault_rotation, the parameter rotation, or "
            "STREAMVAULT_ROTATION_FILE."
        )
    try:
        return Rotations.model_validate({"streams": declared} if isinstance(declared, list) else declared)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(str(part) for part in found['loc']) or 'it'}: {found['msg'].removeprefix('Value error, ')}"
            for found in error.errors(include_url=False)
        ]
        raise AirflowFailException(f"{where} is not valid: {'; '.join(dict.fromkeys(wrong))}") from None


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
