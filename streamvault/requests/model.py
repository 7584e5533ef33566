"""Requests in a queue: JSON, distinguished by `kind`, each kind with its own version. See docs/reference/format.md."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from streamvault.common.errors import Usage
from streamvault.common.plain_json import check_names
from streamvault.common.times import LONGEST_SECONDS
from streamvault.importer.options import FILLER_LIMIT, KeptRetention, Numbers, Offsets
from streamvault.layouts.windows import WINDOW

T = TypeVar("T")


class NotARequest(Usage):
    """An entry is not a request that this release supports."""


def _is_none(value: object) -> bool:
    return value is None


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
    # left out unless needed, as workers of earlier releases reject what they do not know
    numbers: Annotated[Numbers, Field(exclude_if=lambda numbers: numbers == "keep")] = "keep"
    retention: KeptRetention = "keep"
    window: Annotated[int, Field(gt=0)] = WINDOW
    read_back: bool = False

    def __str__(self) -> str:
        return f"restore {self.archive} into {self.stream}"


class DeleteRequest(_Model):
    """Delete the data of an expired generation, and of all before it.

    Attributes:
        root: URI.
        archive: ``SCOPE/STREAM`` below the root.
        generation: the expired generation.
        keep: the rule of the rotation that requests it, see `ExpiryRule`; likewise the others. Without any, only what
            a deletion was killed over is deleted.
        keep_for: seconds.
        until: a time.
    """

    kind: Literal["delete"] = "delete"
    version: Literal[1] = 1
    root: str
    archive: str
    generation: Annotated[int, Field(ge=1)]
    keep: Annotated[int | None, Field(ge=1, exclude_if=_is_none)] = None
    keep_for: Annotated[float | None, Field(ge=0, le=LONGEST_SECONDS, exclude_if=_is_none)] = None
    until: Annotated[AwareDatetime | None, Field(exclude_if=_is_none)] = None

    def __str__(self) -> str:
        return f"delete generation {self.generation} of {self.root}/{self.archive}"


Request = RestoreRequest | DeleteRequest


class FailedRequest(_Model):
    """An entry of the queue of failed requests: a request that failed for good.

    Attributes:
        content: the original entry, byte for byte.
        offset: the original entry's offset in the queue's segment (bytes).
        time: when it failed.
        what: see `common.errors.Problem`.
        where: likewise.
        todo: likewise.
        exit_code: likewise.
        tries: number of attempts.
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
            return "an invalid request"


_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_FAILED: TypeAdapter[FailedRequest] = TypeAdapter(FailedRequest)


def encode(request: Request | FailedRequest) -> bytes:
    """Encode a request as an entry."""
    encoded = request.model_dump_json().encode()
    return encoded + b"\n" + request.content if isinstance(request, FailedRequest) else encoded


def decode_request(content: bytes) -> Request:
    """Decode the request of an entry.

    Raises:
        NotARequest: the entry is not a request, or its kind or version is not supported by this release.
    """
    return _decoded(_REQUEST, content)


def decode_failed(content: bytes) -> FailedRequest:
    """Decode an entry of a queue of failed requests; raises as `decode_request`."""
    encoded, newline, request = content.partition(b"\n")
    failed = _decoded(_FAILED, encoded)
    if not newline:
        raise NotARequest("the failed request lacks the original request")
    return failed.model_copy(update={"content": request})


def _decoded(adapter: TypeAdapter[T], content: bytes) -> T:
    try:
        made = adapter.validate_json(content)
        check_names(content)
    except ValueError as error:
        why = str(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            why = f"{place}: {first['msg']}" if place else first["msg"]
        todo = "A newer release may support it."
        raise NotARequest("the entry is not a request that this release supports", where=why, todo=todo) from None
    return made
