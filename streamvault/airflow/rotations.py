"""The list of streams to rotate, and the operator's arguments that follow from it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from streamvault.airflow.lists import ListStreams, SparkOptions, StreamList
from streamvault.common.errors import Problem
from streamvault.objectstore.uri import RootAddress
from streamvault.rotation.options import RotateOptions
from streamvault.scopes.entries import with_options

KEEPING = ("keep", "keep_for", "until")


@with_options(RotateOptions, omitted=("hold", "queue", "restart"))
class RotationOptions(SparkOptions):
    """Options of a rotation, as for `RotateArchiveOperator`; a stream's own override those of the list.

    Attributes:
        root: ``s3://BUCKET/PREFIX`` or ``file:///FOLDER``.
    """

    root: str | None = None
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


class RotationEntry(RotationOptions):
    """One stream, or all streams of a scope.

    Attributes:
        stream: ``SCOPE/STREAM``, ``STREAM`` in the connection's scope, or a URI; with ``SCOPE/`` all streams of a
            scope, with a ``*`` those that match.
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


class Rotations(RotationOptions, StreamList):
    """The list: ``{"root": …, "keep": 7, "streams": ["shop/orders", {"scope": "billing", "keep_for": "90d"}]}``."""

    parameter: ClassVar = "rotation"
    what: ClassVar = "rotations"
    example: ClassVar = {
        "root": "s3://vault/backups",
        "keep": 7,
        "streams": ["shop/orders", {"scope": "billing", "keep_for": "90d"}],
    }

    streams: Annotated[tuple[Annotated[RotationEntry, BeforeValidator(_by_name)], ...], Field(min_length=1)]

    def arguments(self, list_streams: ListStreams) -> list[dict[str, Any]]:
        """Return the operator's arguments for each stream.

        Args:
            list_streams: (scope, connection) → names of the scope's streams.

        Raises:
            AirflowFailException: a stream has no root, is listed twice, or nothing matches a pattern.
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        lines = {entry.stream for entry in self.streams if entry.given(RotationOptions).get("line")}
        for number, entry in enumerate(self.streams):
            own = entry.given(RotationOptions)
            chosen = {**self.given(RotationOptions), **own}
            if any(name in own for name in KEEPING):
                chosen = {name: value for name, value in chosen.items() if name not in KEEPING} | {
                    name: value for name, value in own.items() if name in KEEPING
                }
            if "root" not in chosen:
                raise self.problem(number, f"rotation of {entry.stream or entry.scope}: root is missing")
            of = f"{entry.scope}/" if entry.stream is None else entry.stream
            for stream in self.members(number, of, chosen.get("pravega_conn_id"), list_streams):
                if stream != of and stream in lines:
                    continue  # its archive of the scope's entry belongs to the stream that it was restored from
                key = (stream, chosen["root"])
                if key in found:
                    raise self.problem(number, f"rotation of {stream}: it is listed twice")
                found[key] = {"stream": stream, **chosen}
        return list(found.values())
