"""Requests in a queue, and the options and reports of the queue's commands.

A queue consists of two streams. Requests are JSON, distinguished by `kind`, each kind with its own version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

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
from streamvault.common.options import DURATION, CommandLine, Options, Rehearsed, in_keywords
from streamvault.common.plain_json import check_names
from streamvault.common.report import Report, TimedReport
from streamvault.common.units import LONGEST_SECONDS
from streamvault.importer.reports import Numbers, RestoreOptions
from streamvault.manifests.archive import Archive
from streamvault.manifests.deleting import ExpiryRule, delete_expired
from streamvault.objectstore.uri import RootAddress
from streamvault.runner.opening import Distributed
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.own import FAILED_SUFFIX
from streamvault.streamstore.queue import Producer, QueueSegment, outstanding_entries
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import StoreAddress, parse_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReport(Report):
    """A request that was put into a queue.

    Attributes:
        queue: URI of the queue.
        text: the request, as text for users.
        request: the request as stored in the queue, without unset fields.
        id: the request's id; empty after a dry run.
        outstanding_bytes: bytes of the queue's unprocessed entries, this one included.
        dry_run: True if nothing was put in.
    """

    queue: str
    text: str
    request: Mapping[str, Any]
    id: str = ""
    outstanding_bytes: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRequest(Report):
    """A request that was done or has failed.

    Attributes:
        id: as in `RequestReport`.
        kind: ``restore`` or ``delete``; empty if the entry is not a request.
        text: as in `RequestReport`.
        ok: whether it was done; if not, it was moved to the queue of failed requests.
        tries: number of attempts.
        seconds: duration of the last attempt.
        latency_seconds: time from the put to the end.
        report: the report of the restore or deletion.
        error: why it failed: ``what``, ``where``, ``todo``, ``exit_code``.
    """

    id: str
    kind: str
    text: str
    ok: bool
    tries: int
    seconds: float
    latency_seconds: float
    report: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport(TimedReport):
    """Result of `work`.

    Attributes:
        queue: URI of the queue.
        done: number of requests done.
        failed: number of failed requests.
        failed_exit_codes: exit codes of the failed requests, sorted, without duplicates.
        unfinished: the request that was not done in time and stays in the queue, and why; empty if there is none.
        retries: number of retries.
        outstanding_bytes: bytes of the queue's unprocessed entries.
        failed_bytes: bytes of the queue of failed requests, earlier ones included.
        latency_seconds: average time from a request's put to its end.
    """

    queue: str
    done: int
    failed: int
    failed_exit_codes: tuple[int, ...] = ()
    unfinished: str = ""
    retries: int = 0
    outstanding_bytes: int = 0
    failed_bytes: int = 0
    latency_seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code that all failed requests share, else 1; also 1 if time ran out before a request was done."""
        codes = set(self.failed_exit_codes) | ({1} if self.unfinished else set())
        return codes.pop() if len(codes) == 1 else 1 if codes else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequest(Report):
    """A waiting or failed request.

    Attributes:
        id: as in `RequestReport`.
        text: as in `RequestReport`.
        put: when it was put in (RFC 3339).
        age_seconds: time since then; for a failed request, since it failed.
        bytes: its size.
        reason: why it failed, in one line; empty if it waits.
    """

    id: str
    text: str
    put: str
    age_seconds: float
    bytes: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignBytes(Report):
    """Bytes that something else wrote to a queue. They stop its worker.

    Attributes:
        offset: where they begin in the queue's segment (bytes).
        bytes: how many.
        in_failed_queue: whether they are in the queue of failed requests.
        reason: why they are not a request.
    """

    offset: int
    bytes: int
    in_failed_queue: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport(Report):
    """Content of a queue.

    Attributes:
        queue: URI of the queue.
        waiting: number of waiting requests.
        failed: number of failed requests.
        outstanding_bytes: size of the waiting requests.
        failed_bytes: size of the failed requests.
        first_waiting: the first 100 waiting requests.
        first_failed: the first 100 failed requests.
        foreign: the first 100 runs of foreign bytes.
        moved: number of failed requests put back.
        dropped: number of failed requests dropped.
        skipped_bytes: foreign bytes removed.
    """

    queue: str
    waiting: int
    failed: int
    outstanding_bytes: int
    failed_bytes: int
    first_waiting: tuple[WaitingRequest, ...] = ()
    first_failed: tuple[WaitingRequest, ...] = ()
    foreign: tuple[ForeignBytes, ...] = ()
    moved: int = 0
    dropped: int = 0
    skipped_bytes: int = 0


class RequestOptions(RestoreOptions, Rehearsed):
    """Options of *request-restore*."""

    queue: Annotated[
        str,
        Field(description="The queue, as a stream's URI; created if it does not exist."),
        CommandLine(metavar="QUEUE"),
    ]
    dry_run: Annotated[bool, Field(description="Only check the arguments; queue nothing.")] = False


class SkipOptions(Options):
    """Options of *queue skip*."""

    failed: Annotated[
        bool, Field(description="The bytes are among the failed requests."), CommandLine(environment=False)
    ] = False


class WorkOptions(Distributed):
    """Options of *work*."""

    measured: ClassVar = True

    idle: Annotated[
        float | None,
        Field(ge=0, description="Stop after this long without new requests, e.g. 60s."),
        DURATION.named("--idle"),
    ] = None
    lasting: Annotated[
        float | None, Field(ge=0, description="Start no request after this long, e.g. 1h."), DURATION.named("--for")
    ] = None
    wait: Annotated[
        float,
        Field(ge=0, description="How long to wait for another worker of the queue to end."),
        CommandLine(name="--wait", metavar="TIME", parse=DURATION.parse, text=DURATION.text, environment=False),
    ] = 0.0
    tries: Annotated[
        int | None,
        Field(ge=1, description="Stop after N attempts if a store does not answer."),
        CommandLine(metavar="N"),
    ] = None


class WorkArguments(WorkOptions):
    """Keyword arguments of `work_queue`, some of which no command line can give."""

    finished: Annotated[Callable[[FinishedRequest], None], Field(description="Receives each finished request.")] = (
        lambda _: None
    )


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
        request = decode_request(content)
    except NotARequest:
        return None
    return request if isinstance(request, DeleteRequest) else None
