"""Requests as they lie in a queue: JSON, told apart by `kind`, each with a version of its own. See docs/format.md."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from common.errors import Usage
from importer.options import FILLER_LIMIT, KeptRetention, Offsets
from layouts.windows import WINDOW

__all__ = [
    "DeleteRequest",
    "FailedRequest",
    "NotARequest",
    "Request",
    "RestoreRequest",
    "decode_failed",
    "decode_request",
    "encode",
]


T = TypeVar("T")


class NotARequest(Usage):
    """An entry's content is no request that this release knows."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RestoreRequest(_Model):
    """Restore an archive into a stream: the arguments of `streamvault.import_stream`."""

    kind: Literal["restore"] = "restore"
    version: Literal[1] = 1
    archive: str
    stream: str
    from_cut: dict[str, int] | None = None
    to_cut: dict[str, int] | None = None
    generation: Annotated[int, Field(ge=1)] | None = None
    at: AwareDatetime | None = None
    offsets: Offsets = "keep"
    filler_limit: Annotated[int, Field(ge=0)] = FILLER_LIMIT
    retention: KeptRetention = "keep"
    window: Annotated[int, Field(gt=0)] = WINDOW
    read_back: bool = False

    def __str__(self) -> str:
        return f"restore {self.archive} into {self.stream}"


class DeleteRequest(_Model):
    """Delete the data of a generation that was dropped from an archive.

    Attributes:
        root: URI. archive: ``SCOPE/STREAM`` below it. generation: the one that was dropped.
    """

    kind: Literal["delete"] = "delete"
    version: Literal[1] = 1
    root: str
    archive: str
    generation: Annotated[int, Field(ge=1)]

    def __str__(self) -> str:
        return f"delete generation {self.generation} of {self.root}/{self.archive}"


Request = RestoreRequest | DeleteRequest


class FailedRequest(_Model):
    """A request that trying again does not mend, as it lies in the queue of failed ones.

    Attributes:
        content: the request as it lay in its queue, byte for byte. offset: where it lay (bytes in the segment).
        time: when it failed.
        what, where, todo, exit_code: why, as a command says it. tries: how often it was tried.
    """

    kind: Literal["failed"] = "failed"
    version: Literal[1] = 1
    content: Annotated[bytes, Field(exclude=True)] = b""
    offset: Annotated[int, Field(ge=0)]
    time: AwareDatetime
    what: str
    where: str
    todo: str
    exit_code: int
    tries: int

    def __str__(self) -> str:
        try:
            return str(decode_request(self.content))
        except NotARequest:
            return "an entry that is no request"


_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_FAILED: TypeAdapter[FailedRequest] = TypeAdapter(FailedRequest)


def encode(request: Request | FailedRequest) -> bytes:
    """A request as an entry's content."""
    told = request.model_dump_json().encode()
    return told + b"\n" + request.content if isinstance(request, FailedRequest) else told


def decode_request(content: bytes) -> Request:
    """The request of an entry.

    Raises:
        NotARequest: it is none, or of a kind or version that this release does not know.
    """
    return _decoded(_REQUEST, content)


def decode_failed(content: bytes) -> FailedRequest:
    """What lies in a queue of failed requests; raises as `decode_request`."""
    told, newline, request = content.partition(b"\n")
    failed = _decoded(_FAILED, told)
    if not newline:
        raise NotARequest("the entry is a failed request without the request itself")
    return failed.model_copy(update={"content": request})


def _decoded(adapter: TypeAdapter[T], content: bytes) -> T:
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise NotARequest(
            "the entry is no request that this release knows",
            where=f"{place}: {first['msg']}" if place else first["msg"],
            todo="A newer release may know it.",
        ) from None
