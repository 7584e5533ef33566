"""A server's answers, over a real connection: each is one error with a one-line message.

Streamed reads over a real connection: bodies that break off, hang, or are another object's.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import ClassVar

import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from streamvault.common.errors import Damaged, Problem
from streamvault.objectstore.bulk import list_records, read_ahead
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.retrying import RetryingStore
from streamvault.objectstore.s3.store import BucketStore
from streamvault.objectstore.store import (
    STREAM_BYTES,
    AccessDenied,
    AlreadyExists,
    InvalidRoot,
    NoSuchBucket,
    NoSuchObject,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreUnavailable,
    OutOfSpace,
    ServerBusy,
    UnorderedListing,
    WrongSize,
)
from testkit.servers.raw_http import RawHttpServer, bucket_at

Says = Callable[[bytes], ObjectStore]


class Saying(RawHttpServer):
    """Gives the same answer to every request, then closes the connection."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        super().__init__()

    def respond(self, connection: socket.socket, _request: bytearray) -> None:
        connection.sendall(self._answer)
        raise EOFError


@pytest.fixture
def says() -> Iterator[Says]:
    """A store whose server gives the same answer to every request."""
    with ExitStack() as servers:
        yield lambda answer: BucketStore(servers.enter_context(Saying(answer)).bucket, timeout=2)


def answer(status: str, body: str = "", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", body]
    return "\r\n".join(lines).encode()


def error(status: str, code: str, extra: str = "") -> bytes:
    return answer(
        status, f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>long text</Message>{extra}</Error>'
    )


PUTS = [
    (error("503 Slow Down", "SlowDown"), ServerBusy, "busy or failing (503 SlowDown)"),
    (answer("503 Service Unavailable"), ServerBusy, "(503)"),
    (answer("429 Too Many Requests"), ServerBusy, "(429)"),
    (error("500 Internal Server Error", "InternalError"), ServerBusy, "(500 InternalError)"),
    (answer("502 Bad Gateway", "<html>proxy</html>"), ServerBusy, "(502)"),
    (answer("504 Gateway Timeout"), ServerBusy, "(504)"),
    (error("400 Bad Request", "RequestTimeout"), ServerBusy, "(400 RequestTimeout)"),
    (error("409 Conflict", "ConditionalRequestConflict"), ServerBusy, "ConditionalRequestConflict"),
    (error("409 Conflict", "OperationAborted"), ServerBusy, "OperationAborted"),
    (error("400 Bad Request", "IncompleteBody"), ServerBusy, "(400 IncompleteBody)"),
    (answer("409 Conflict"), ServerBusy, "busy or failing (409)"),
    (error("409 Conflict", "InvalidBucketState"), ObjectStoreError, "rejected the request (409 InvalidBucketState: "),
    (error("400 Bad Request", "BadDigest"), ObjectStoreUnavailable, "damaged in transit (400 BadDigest)"),
    (answer("412 Precondition Failed"), AlreadyExists, "s3://bucket/a/b"),
    (error("412 Precondition Failed", "PreconditionFailed"), AlreadyExists, "s3://bucket/a/b"),
    (error("409 Conflict", "ObjectParentIsFile"), ObjectStoreError, "in the way (ObjectParentIsFile): s3://bucket/a/b"),
    (error("403 Forbidden", "AccessDenied"), AccessDenied, "no permission to write (403 AccessDenied)"),
    (answer("403 Forbidden"), AccessDenied, "no permission to write (403)"),
    (error("403 Forbidden", "InvalidAccessKeyId"), AccessDenied, "unknown access key"),
    (error("403 Forbidden", "SignatureDoesNotMatch"), AccessDenied, "the secret access key is wrong"),
    (error("400 Bad Request", "ExpiredToken"), AccessDenied, "the credentials have expired"),
    (error("403 Forbidden", "InvalidToken"), AccessDenied, "the session token is wrong"),
    (error("403 Forbidden", "InvalidTokenId"), AccessDenied, "the session token is wrong"),
    (error("403 Forbidden", "RequestTimeTooSkewed"), AccessDenied, "clock"),
    (error("404 Not Found", "XAdminUserNotFound"), AccessDenied, "unknown access key"),
    (error("404 Not Found", "NoSuchBucket"), NoSuchBucket, "s3://bucket at http://127.0.0.1"),
    (error("400 Bad Request", "InvalidBucketName"), InvalidRoot, "invalid bucket name"),
    (error("507 Insufficient Storage", "XMinioStorageFull"), OutOfSpace, "out of space"),
    (error("409 Conflict", "XMinioAdminBucketQuotaExceeded"), OutOfSpace, "out of space"),
    (error("301 Moved Permanently", "PermanentRedirect"), ObjectStoreError, "another region"),
    (
        error("400 Bad Request", "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"),
        ObjectStoreError,
        "Set AWS_REGION=eu-west-1.",
    ),
    (error("501 Not Implemented", "NotImplemented"), ObjectStoreError, "rejected the request (501 NotImplemented: "),
    (error("405 Method Not Allowed", "MethodNotAllowed"), ObjectStoreError, "(405 MethodNotAllowed: "),
    (answer("418 I'm a teapot"), ObjectStoreError, "(418)"),
    (b"", ObjectStoreUnavailable, "connection to the server was lost"),
    (b"SSH-2.0-server\r\n", ObjectStoreUnavailable, "connection to the server was lost"),
]


@pytest.mark.parametrize(("said", "kind", "text"), PUTS, ids=[f"{kind.__name__}-{text[:20]}" for _, kind, text in PUTS])
def test_error_answer_to_a_put_is_one_named_problem(says: Says, said: bytes, kind: type[Problem], text: str) -> None:
    with pytest.raises(Problem) as caught:
        says(said).put("a/b", b"x")
    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "<" not in str(caught.value)
    assert len(str(caught.value)) < 300


ETAG = ('ETag: "e"', "Last-Modified: Sat, 21 Nov 2026 08:16:42 GMT")


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (error("404 Not Found", "NoSuchKey"), NoSuchObject, "s3://bucket/a/b"),
        (error("403 Forbidden", "AccessDenied"), AccessDenied, "no permission to read (403 AccessDenied)"),
        (error("416 Range Not Satisfiable", "InvalidRange"), WrongSize, "for bytes 2 to 5"),
        (answer("200 OK", "0123456789", *ETAG), ObjectStoreError, "ignores the Range header"),
        (
            answer("206 Partial Content", "2", "Content-Range: bytes 2-2/3", *ETAG),
            WrongSize,
            "too short for bytes 2 to 5: s3://bucket/a/b",
        ),
        (
            b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nContent-Range: bytes 2-4/9\r\n"
            + "\r\n".join(ETAG).encode()
            + b"\r\n\r\n2",
            ObjectStoreUnavailable,
            "connection to the server was lost",
        ),
    ],
)
def test_error_answer_to_a_ranged_read_is_one_named_problem(
    says: Says, said: bytes, kind: type[Problem], text: str
) -> None:
    with pytest.raises(Problem) as caught:
        says(said).get_range("a/b", 2, 5)
    assert type(caught.value) is kind
    assert text in str(caught.value)


def listing(*entries: tuple[str, int]) -> bytes:
    objects = "".join(
        f"<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>2026-11-21T08:16:42.000Z</LastModified>"
        f"<ETag>&quot;e&quot;</ETag></Contents>"
        for key, size in entries
    )
    return answer("200 OK", f'<?xml version="1.0"?><ListBucketResult>{objects}</ListBucketResult>')


def test_listing_in_another_order_is_refused(says: Says) -> None:
    store = says(listing(("a/b", 1), ("a/B", 1), ("a/c", 1)))
    with pytest.raises(UnorderedListing, match="s3://bucket"):
        list(store.list("a/"))


def test_listing_that_repeats_a_key_is_refused(says: Says) -> None:
    with pytest.raises(UnorderedListing):
        list(says(listing(("a/b", 1), ("a/b", 1))).list("a/"))


def test_listing_skips_keys_if_the_server_ignores_where_to_start(says: Says) -> None:
    store = says(listing(("a/b", 1), ("a/c", 1), ("a/d", 1)))
    assert [entry.key for entry in store.list("a/", "a/b")] == ["a/c", "a/d"]


def test_listing_that_is_repeated_below_where_it_should_start_is_refused(says: Says) -> None:
    with pytest.raises(UnorderedListing):
        list(says(listing(("a/b", 1), ("a/c", 1), ("a/b", 1))).list("a/", "a/d"))


@pytest.mark.parametrize("key", ["b/c", "a", "ab/c", "a0"])
def test_listing_of_what_was_not_asked_for_is_refused(says: Says, key: str) -> None:
    with pytest.raises(ObjectStoreError, match="not below the folder that was asked for"):
        list(says(listing((key, 1))).list("a/"))


@pytest.mark.parametrize("said", [1000, 2**40])
def test_body_that_is_longer_than_the_range_is_refused_and_not_waited_for(says: Says, said: int) -> None:
    headers = "Last-Modified: Fri, 02 Jan 2026 03:04:05 GMT", "Content-Range: bytes 0-3/9", 'ETag: "x"'
    whole = answer("206 Partial Content", "x" * 1000, *headers)
    with pytest.raises(WrongSize):
        says(whole.replace(b"Content-Length: 1000", b"Content-Length: %d" % said)).get_range("a/b", 0, 4)


def test_folder_of_records_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObstoreStore(MemoryStore(), bucket="memory://b")
    for number in range(3):
        store.put(f"a/{number}", b"")
    assert len(list(list_records(store, "a/"))) == 3
    monkeypatch.setattr("streamvault.objectstore.bulk.MOST_RECORDS", 2)
    with pytest.raises(Damaged, match="more than 2 objects"):
        list(list_records(store, "a/"))


def test_listing_leaves_out_objects_that_stand_for_folders(says: Says) -> None:
    store = says(listing(("a/", 0), ("a/b", 1), ("a/b-c", 1), ("a/b/", 0), ("a/b/c", 1)))
    assert [entry.key for entry in store.list("a/")] == ["a/b", "a/b-c", "a/b/c"]


def test_invalid_list_response_is_refused(says: Says) -> None:
    with pytest.raises(ObjectStoreError, match="list response"):
        list(says(answer("200 OK", "")).list("a/"))


def test_partly_failed_bulk_deletion_raises_its_error(says: Says) -> None:
    failed = "<DeleteResult><Error><Key>a/b</Key><Code>{}</Code><Message>m</Message></Error></DeleteResult>"
    with pytest.raises(AccessDenied, match="no permission to delete"):
        says(answer("200 OK", failed.format("AccessDenied"))).delete(["a/b"])
    with pytest.raises(ServerBusy, match="InternalError"):
        says(answer("200 OK", failed.format("InternalError"))).delete(["a/b"])


def test_missing_key_does_not_hide_a_refused_one_in_a_deletion() -> None:
    class Bucket(MemoryStore):
        """Answers for each key, as S3 gives them; obstore reports only the first error."""

        asked: ClassVar[list[str]] = []

        def delete(self, paths: str | Sequence[str]) -> None:
            for path in paths:
                self.asked.append(path)
                code = {"a/gone": "NoSuchKey", "a/locked": "AccessDenied"}.get(path)
                if code is not None:
                    raise GenericError(f"Generic S3 error: DeleteObjects request failed for key {path}: (code: {code})")

    store = BucketStore(bucket_at("http://127.0.0.1:1"), timeout=2)
    store._backend = Bucket()
    store.delete(["a/gone"])
    with pytest.raises(AccessDenied, match="no permission to delete"):
        store.delete(["a/gone", "a/b", "a/locked"])
    Bucket.asked.clear()
    store.delete([*(f"a/{number}" for number in range(1500)), "a/gone", *(f"b/{number}" for number in range(1500))])
    assert Bucket.asked[-1] == "b/1499"


BODY = random.Random(5).randbytes(5 * STREAM_BYTES + 17)
END = len(BODY)
TIMEOUT = 0.5

Answer = Callable[[socket.socket, int, int], None]
"""Answers a request for the bytes ``[start, end)`` of the object."""


class Server(RawHttpServer):
    """Answers GET requests one after the other, each as the script says.

    Attributes:
        script: the answers to come.
        asked: the Range and If-Match headers of each request.
        left: set when the client has closed a connection in the middle of an answer.
    """

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.asked: list[tuple[str, str]] = []
        self.left = threading.Event()
        super().__init__()

    def respond(self, connection: socket.socket, request: bytearray) -> None:
        lines = dict(line.split(": ", 1) for line in request.decode().lower().split("\r\n")[1:] if line)
        self.asked.append((lines["range"], lines.get("if-match", "")))
        low, high = lines["range"].removeprefix("bytes=").split("-")
        try:
            self.script.pop(0)(connection, int(low), int(high) + 1)
        except OSError:
            self.left.set()
            raise


def respond(
    sent: Callable[[int, int], bytes] = lambda start, end: BODY[start:end],
    *,
    etag: str = '"e"',
    span: Callable[[int, int], tuple[int, int]] = lambda start, end: (start, end),
    size: int = END,
    then: Callable[[socket.socket], None] = lambda _: None,
) -> Answer:
    """Answer with the bytes ``sent`` of the ``span`` that the headers promise."""

    def answer(connection: socket.socket, start: int, end: int) -> None:
        low, high = span(start, end)
        headers = (
            "HTTP/1.1 206 Partial Content",
            f"Content-Length: {high - low}",
            f"Content-Range: bytes {low}-{high - 1}/{size}",
            f"ETag: {etag}",
            "Last-Modified: Sat, 21 Nov 2026 08:16:42 GMT",
        )
        connection.sendall("\r\n".join((*headers, "", "")).encode() + sent(low, high))
        then(connection)

    return answer


def status(text: str, code: str) -> Answer:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code></Error>'

    def answer(connection: socket.socket, _start: int, _end: int) -> None:
        connection.sendall(f"HTTP/1.1 {text}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    return answer


def leave(_: socket.socket) -> None:
    raise EOFError


def broken_after(count: int, **options: object) -> Answer:
    """Send so many bytes of the answer, then close the connection."""
    return respond(lambda low, _: BODY[low : low + count], then=leave, **options)  # type: ignore[arg-type]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("streamvault.objectstore.retrying.FIRST_WAIT", 0.01)
    with Server() as server:
        yield server


@pytest.fixture
def store(server: Server) -> ObjectStore:
    return RetryingStore(BucketStore(server.bucket, timeout=TIMEOUT), total_seconds=20)


def test_object_is_received_in_blocks_by_one_request(server: Server, store: ObjectStore) -> None:
    server.script = [respond(), respond()]
    blocks = list(store.stream("a", 0, END))
    assert b"".join(blocks) == BODY
    assert max(map(len, blocks)) < 2 * STREAM_BYTES
    assert b"".join(store.stream("a", 7, END - 3)) == BODY[7:-3]
    assert server.asked == [(f"bytes=0-{END - 1}", ""), (f"bytes=7-{END - 4}", "")]


def test_broken_stream_goes_on_at_the_byte_with_the_same_object(server: Server, store: ObjectStore) -> None:
    server.script = [broken_after(2 * STREAM_BYTES), broken_after(0), broken_after(3 * STREAM_BYTES), respond()]
    assert b"".join(store.stream("a", 5, END - 5)) == BODY[5:-5]
    assert server.script == []
    starts = [int(span.removeprefix("bytes=").partition("-")[0]) for span, _ in server.asked]
    assert starts == sorted(starts)
    assert starts[0] == 5
    assert starts[1] == starts[2] > 5 + STREAM_BYTES // 2
    assert starts[3] > starts[2]
    assert [match for _, match in server.asked] == ["", '"e"', '"e"', '"e"']


def test_bytes_of_two_objects_are_never_mixed(server: Server, store: ObjectStore) -> None:
    seconds = [status("412 Precondition Failed", "PreconditionFailed"), respond(etag='"other"')]
    for second in seconds:  # some servers ignore If-Match
        server.script = [broken_after(2 * STREAM_BYTES), second]
        received: list[memoryview] = []
        with pytest.raises(ObjectStoreError, match="the object was replaced while it was read: s3://bucket/a"):
            received.extend(store.stream("a", 0, END))
        assert len(b"".join(received)) >= STREAM_BYTES
        assert BODY.startswith(b"".join(received))
    server.script = [broken_after(2 * STREAM_BYTES), status("404 Not Found", "NoSuchKey")]
    with pytest.raises(NoSuchObject):
        list(store.stream("a", 0, END))


def test_hanging_server_is_left_and_asked_again(server: Server, store: ObjectStore) -> None:
    def hang(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass
        server.left.set()
        raise EOFError

    server.script = [respond(lambda low, _: BODY[low : low + 2 * STREAM_BYTES], then=hang), respond()]
    assert b"".join(read_ahead(store, "a", 0, END)) == BODY
    assert server.left.wait(20)
    assert server.asked[1][1] == '"e"'


def test_server_that_keeps_breaking_off_is_unavailable(server: Server) -> None:
    store = RetryingStore(BucketStore(server.bucket, timeout=TIMEOUT), total_seconds=0)
    server.script = [broken_after(2 * STREAM_BYTES), *(broken_after(0) for _ in range(100))]
    with pytest.raises(ObjectStoreUnavailable, match="the connection to the server was lost"):
        list(read_ahead(store, "a", 0, END))
    assert not readers()


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (respond(span=lambda low, _: (low, END - 1), size=END - 1), WrongSize, f"too short for bytes 0 to {END}"),
        (status("416 Range Not Satisfiable", "InvalidRange"), WrongSize, f"too short for bytes 0 to {END}"),
        (respond(span=lambda low, high: (low + 1, high)), ObjectStoreError, "other bytes than those requested"),
        (respond(span=lambda low, high: (low, high - 1)), ObjectStoreError, "other bytes than those requested"),
        (status("404 Not Found", "NoSuchKey"), NoSuchObject, "no such object"),
    ],
    ids=["short", "shorter", "later bytes", "fewer bytes", "missing"],
)
def test_wrong_answer_is_one_named_problem(
    server: Server, store: ObjectStore, answer: Answer, kind: type[Problem], text: str
) -> None:
    server.script = [answer]
    with pytest.raises(Problem, match=text) as caught:
        list(read_ahead(store, "a", 0, END))
    assert type(caught.value) is kind
    assert caught.value.where == "s3://bucket/a"
    assert not readers()
    server.script = [broken_after(STREAM_BYTES * 2), answer]  # or where it is resumed
    with pytest.raises(Problem) as caught:
        list(read_ahead(store, "a", 0, END))
    assert type(caught.value) is kind


def test_reader_that_stops_leaves_no_thread_and_no_connection(server: Server, store: ObjectStore) -> None:
    def endless(connection: socket.socket, _start: int, _end: int) -> None:
        respond(size=1 << 40, span=lambda _low, _high: (0, 1 << 40))(connection, 0, 1 << 40)
        while True:
            connection.sendall(BODY)

    server.script = [endless]
    blocks = read_ahead(store, "a", 0, 1 << 40)
    assert len(next(blocks)) >= STREAM_BYTES
    blocks.close()  # type: ignore[attr-defined]
    assert not readers()
    assert server.left.wait(20)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("objects-")]
