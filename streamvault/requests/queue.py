"""A queue of requests for restores and deletions: opened by its URI; its requests, encoded, decoded and put in.

A queue consists of two streams, one for waiting and one for failed requests. Requests are JSON, distinguished by
`kind`, each kind with its own version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
)

from streamvault.common.errors import Conflict, Usage
from streamvault.common.options import in_keywords
from streamvault.common.units import LONGEST_SECONDS
from streamvault.importer.reports import Numbers, RestoreOptions
from streamvault.manifests.archive import Archive
from streamvault.manifests.deleting import delete_expired
from streamvault.manifests.expiry import ExpiryRule
from streamvault.manifests.files import check_names
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import FAILED_SUFFIX
from streamvault.streamstore.queue import Producer, QueueSegment, outstanding_entries
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress, parse_stream


class RequestQueue:
    """A queue of requests in an open store. Open it with `open_queue`."""

    def __init__(self, store: StreamStore, name: StreamName) -> None:
        self._store = store
        self._name = name
        self._failed = StreamName(name.scope, name.stream + FAILED_SUFFIX)

    def waiting(self, *, create: bool) -> QueueSegment:
        """Return the queue of waiting requests.

        Args:
            create: create it if missing.

        Raises:
            NoSuchScope, NoSuchStream: it does not exist.
            NotAQueue: another stream has the name.
        """
        return QueueSegment.create(self._store, self._name) if create else QueueSegment.open(self._store, self._name)

    def failed(self) -> QueueSegment | None:
        """Return the queue of failed requests; None if no request has ever failed."""
        try:
            return QueueSegment.open(self._store, self._failed)
        except (NoSuchScope, NoSuchStream):
            return None

    def create_failed(self) -> QueueSegment:
        """Return the queue of failed requests; create it if missing."""
        return QueueSegment.create(self._store, self._failed)


def check_queue(queue: str, *, create: bool) -> None:
    """Check that a URI names a queue, or nothing yet.

    Args:
        queue: the URI.
        create: create the queue if missing; without it, only the URI is checked.

    Raises:
        InvalidName: the URI is invalid.
        NotAQueue: another stream has the name.
        Usage: as `open_queue`.
    """
    _parsed(queue)
    if create:
        with open_queue(queue) as place:
            place.waiting(create=True)


@contextmanager
def open_queue(queue: str) -> Iterator[RequestQueue]:
    """Open the queue at a stream's URI.

    Raises:
        InvalidName: the URI is invalid.
        Usage: it names a queue of failed requests.
    """
    address, name = _parsed(queue)
    with address.open() as store:
        yield RequestQueue(store, name)


def _parsed(queue: str) -> tuple[StoreAddress, StreamName]:
    address, name = parse_stream(queue)
    if name.stream.endswith(FAILED_SUFFIX):
        raise Usage(
            "this is the queue of failed requests",
            where=f"{address}/{name}",
            todo=f"Name the queue itself, without {FAILED_SUFFIX}.",
        )
    return address, name


T = TypeVar("T")

REASON_CHARACTERS = 500
"""Maximum length of the reason why an entry is not a request: it quotes the entry, which may be large."""


class NotARequest(Usage):
    """An entry is not a request that this release supports."""


def _is_none(value: object) -> bool:
    return value is None


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


WRITTEN = (
    *("kind", "version", "archive", "stream", "from_cut", "to_cut", "generation", "at"),
    *("offsets", "filler_limit", "numbers", "retention", "window", "read_back"),
)
"""The fields of a restore in the order in which they are written; others would follow."""


class RestoreRequest(RestoreOptions):
    """Restore an archive into a stream: the arguments of `streamvault.import_stream`; its options are those fields."""

    kind: Literal["restore"] = "restore"
    version: Literal[1] = 1
    archive: str
    stream: str
    from_cut: dict[str, int] | None = None
    to_cut: dict[str, int] | None = None
    # left out unless needed, as workers of earlier releases reject what they do not know
    numbers: Annotated[Numbers, Field(exclude_if=lambda numbers: numbers == "keep")] = "keep"

    @classmethod
    def _plain(cls, keyword: str, value: Any) -> Any:  # noqa: ARG003
        return value  # JSON has the value of an option, not a text that stands for it

    @model_serializer(mode="wrap")
    def _in_order(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = written(self)
        return {name: fields[name] for name in (*WRITTEN, *fields) if name in fields}

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
        return text_of(self.content)


_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def encode(request: Request | FailedRequest) -> bytes:
    """Encode a request as an entry."""
    encoded = request.model_dump_json().encode()
    return encoded + b"\n" + request.content if isinstance(request, FailedRequest) else encoded


def decode_request(content: bytes) -> Request:
    """Decode the request of an entry.

    Raises:
        NotARequest: the entry is not a request, or its kind or version is not supported by this release.
    """
    return _decoded(_REQUEST.validate_json, content)


def text_of(content: bytes) -> str:
    """Return the request of an entry as text for users."""
    try:
        return str(decode_request(content))
    except NotARequest:
        return "an invalid request"


def decode_failed(content: bytes) -> FailedRequest:
    """Decode an entry of a queue of failed requests; raises as `decode_request`."""
    encoded, newline, request = content.partition(b"\n")
    failed = _decoded(FailedRequest.model_validate_json, encoded)
    if not newline:
        raise NotARequest("the failed request lacks the original request")
    return failed.model_copy(update={"content": request})


def _decoded(validate: Callable[[bytes], T], content: bytes) -> T:
    try:
        with in_keywords(RestoreRequest):
            made = validate(content)
        check_names(content)
    except (ValueError, Usage) as error:
        why = str(error)
        if isinstance(error, Usage):
            why = ": ".join(text for text in (error.what, error.where) if text)
        elif isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            why = f"{place}: {first['msg']}" if place else first["msg"]
        todo = "A newer release may support it."
        what = "the entry is not a request that this release supports"
        raise NotARequest(what, where=why[:REASON_CHARACTERS], todo=todo) from None
    return made


def request_deletions(
    queue: str, root: str, stream: StreamName, generations: Iterable[int], rule: ExpiryRule
) -> tuple[int, ...]:
    """Request the deletion of expired generations' data, except for requests that wait already.

    Args:
        queue: the queue's URI; created if missing.
        root: the archive's root.
        stream: the archived stream.
        generations: numbers; each of them and all before have expired.
        rule: which of them the worker may delete.

    Returns:
        The newly requested ones.
    """
    requests = [
        DeleteRequest(root=root, archive=str(stream), generation=number, **asdict(rule)) for number in generations
    ]
    if not requests:
        return ()
    with open_queue(queue) as place:
        waiting = place.waiting(create=True)
        found = (_request(entry.content) for entry in outstanding_entries(waiting))
        there = {request for request in found if request in requests}
        producer = Producer(waiting)
        new = [request for request in requests if request not in there]
        for request in new:
            producer.put(encode(request))
    return tuple(request.generation for request in new)


def delete(request: DeleteRequest) -> dict[str, Any]:
    """Delete the data of expired generations up to the requested one; data already deleted is no error.

    Raises:
        Usage: the generation has not expired.
        Conflict: the request's rule would not have let it expire.
    """
    root, stream = RootAddress.parse(request.root).resolve(), StreamName.parse(request.archive)
    archive = Archive(root, stream)
    listing = archive.listing()
    if listing.dropped < request.generation:
        raise Usage("this generation has not expired", where=f"{archive.uri}, {request.generation}")
    if listing.decision.swept >= request.generation:
        return {"unchanged": True, "objects_deleted": 0, "requests": 0}
    done = delete_expired(root, stream, ExpiryRule(request.keep, request.keep_for, request.until))
    if done.kept:
        raise Conflict(done.kept, where=archive.uri)
    report: dict[str, Any] = {"unchanged": False, "objects_deleted": done.objects, "requests": done.requests}
    if done.lock is not None:
        # a later rotation requests it again
        report["stopped"] = f"{done.lock.reason} of {done.lock.key}"
    return report


def _request(content: bytes) -> Request | None:
    try:
        return decode_request(content)
    except NotARequest:
        return None
