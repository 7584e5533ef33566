"""Reads and validates the list of streams to rotate, and converts it to operator arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from airflow.sdk.exceptions import AirflowFailException
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streamvault.airflow.declared import Declared, is_duration, read_declared
from streamvault.airflow.flags import Flag
from streamvault.common.errors import Problem
from streamvault.common.times import parse_moment
from streamvault.layouts.keys import line_folder
from streamvault.objectstore.uri import RootAddress

KEEPING = ("keep", "keep_for", "until")


def _is_moment(text: str) -> str:
    try:
        parse_moment(text, "it")
    except Problem as problem:
        raise ValueError(str(problem)) from None
    return text


def _is_line(name: str) -> str:
    try:
        line_folder(name)
    except Problem as problem:
        raise ValueError(str(problem)) from None
    return name


class Options(Declared):
    """Options of a rotation; a stream's own options override those of the list.

    Attributes:
        root: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
        keep, keep_for, until: which generations to keep; at most one may be set; without any, nothing expires.
        line: a line of generations, beside the stream's first archive.
        others: as for `RotateArchiveOperator`.
    """

    root: str | None = None
    keep: Annotated[int, Field(ge=1)] | None = None
    keep_for: Annotated[str, AfterValidator(is_duration)] | None = None
    until: Annotated[str, AfterValidator(_is_moment)] | None = None
    truncate_source: Flag | None = None
    storage_class: str | None = None
    content: Literal["events", "bytes"] | None = None
    layout: Literal["events", "chunks"] | None = None
    compress: Literal["zstd", "none"] | None = None
    range_size: str | None = None
    largest_event: str | None = None
    window: str | None = None
    line: Annotated[str, AfterValidator(_is_line)] | None = None
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
        lines = {entry.stream for entry in self.streams if entry.line}
        for entry in self.streams:
            own = entry.given(Options)
            chosen = {**self.given(Options), **own}
            if any(name in own for name in KEEPING):
                chosen = {name: value for name, value in chosen.items() if name not in KEEPING} | {
                    name: value for name, value in own.items() if name in KEEPING
                }
            if "root" not in chosen:
                raise AirflowFailException(f"rotation of {entry.stream or entry.scope}: root is missing")
            for stream in self._streams(entry, chosen, list_streams):
                if entry.scope is not None and stream in lines:
                    continue  # its archive of the scope's entry belongs to the stream that it was restored from
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
    todo = "Set the variable streamvault_rotation, the parameter rotation, or STREAMVAULT_ROTATION_FILE."
    return read_declared(Rotations, "rotations", declared, file, todo=todo)
