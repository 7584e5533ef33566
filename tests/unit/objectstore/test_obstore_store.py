"""A server's answers, over a real connection: each is one error with a one-line message."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import ClassVar

import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from streamvault.common.errors import Damaged, Problem
from streamvault.objectstore.bulk import list_records
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.s3.store import BucketStore
from streamvault.objectstore.store import (
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
