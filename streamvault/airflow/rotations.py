"""The list of streams to rotate, and the operator's arguments that follow from it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from streamvault.airflow.lists import ListEntry, StreamList, TaskOptions
from streamvault.common.errors import Problem
from streamvault.objectstore.uri import RootAddress
from streamvault.rotation.options import RotateOptions
from streamvault.scopes.entries import with_options

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


class RotationEntry(ListEntry, RotationOptions):
    """One stream, or all streams of a scope.

    Attributes:
        stream: ``SCOPE/STREAM``, ``STREAM`` in the connection's scope, or a URI; with ``SCOPE/`` all streams of a
            scope, with a ``*`` those that match.
    """

    named: ClassVar = "stream"
    stream: str | None = None


class Rotations(RotationOptions, StreamList):
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
