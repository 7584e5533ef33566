"""Calls of a controller that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from streamvault.streamstore.errors import NoSuchScope, RequestFailed, StreamStoreUnavailable, WireError
from streamvault.streamstore.model import StreamConfiguration, StreamName
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega.calls import ControllerCalls
from streamvault.streamstore.pravega.connection import PravegaSettings
from streamvault.streamstore.pravega.controller import Controller
from streamvault.streamstore.pravega.controller_pb2_grpc import (
    ControllerServiceServicer,
    add_ControllerServiceServicer_to_server,
)
from streamvault.streamstore.pravega.store import PravegaStore

SCOPE = pb.ScopeInfo(scope="plant")


class Failing(ControllerServiceServicer):
    """A controller whose first calls fail."""

    def __init__(self, failures: int, code: grpc.StatusCode, details: str = "/hostTaskIndex/localhost/plant") -> None:
        self.failures, self.code, self.details, self.asked = failures, code, details, 0

    def createScope(self, _request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.asked += 1
        if self.asked <= self.failures:
            context.abort(self.code, self.details)
        return pb.CreateScopeStatus(status=pb.CreateScopeStatus.SUCCESS)


@contextmanager
def served(controller: ControllerServiceServicer, timeout: float) -> Iterator[ControllerCalls]:
    server = grpc.server(ThreadPoolExecutor(2))
    add_ControllerServiceServicer_to_server(controller, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    calls = ControllerCalls(PravegaSettings("127.0.0.1", port, timeout=timeout))
    try:
        yield calls
    finally:
        calls.close()
        server.stop(None)


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE])
def test_failure_that_passes_is_retried(code: grpc.StatusCode) -> None:
    controller = Failing(2, code)
    with served(controller, timeout=30) as calls:
        assert calls.call("createScope", SCOPE).status == pb.CreateScopeStatus.SUCCESS
    assert controller.asked == 3


def test_several_calls_are_retried() -> None:
    controller = Failing(2, grpc.StatusCode.INTERNAL)
    with served(controller, timeout=30) as calls:
        answers = calls.call_all([("createScope", SCOPE)] * 2)
    assert [answer.status for answer in answers] == [pb.CreateScopeStatus.SUCCESS] * 2


def test_failure_that_stays_is_reported() -> None:
    controller = Failing(1000, grpc.StatusCode.INTERNAL)
    with (
        served(controller, timeout=1.5) as calls,
        pytest.raises(RequestFailed, match=r"failed at createScope \(INTERNAL: /hostTaskIndex/localhost/plant\)"),
    ):
        calls.call("createScope", SCOPE)


class Spoiling(ControllerServiceServicer):
    """A controller whose listings are long, and whose other answers are a test's."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.pages = answers, 0

    def listScopes(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        self.pages += 1
        return pb.ScopesResponse(scopes=["a"] * 100 if self.pages < 100 else [])

    def checkStreamExists(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return pb.ExistsResponse(exists=True)

    def getStreamConfiguration(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return self.answers.get("configuration", pb.StreamConfig())

    def getCurrentSegments(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return pb.SegmentRanges(segmentRanges=[self.answers["range"]])

    def getReaderGroupConfig(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return pb.ReaderGroupConfigResponse(config=self.answers["group"])


def controller_of(calls: ControllerCalls) -> Controller:
    return Controller(calls._settings)


def test_listing_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamvault.streamstore.pravega.controller.MOST_NAMES", 1000)
    with served(Spoiling(), timeout=5) as calls, pytest.raises(WireError, match="more than 1000 names"):
        list(controller_of(calls).scopes())


MAKES_NO_SENSE = [
    ("configuration", pb.StreamConfig(scalingPolicy=pb.ScalingPolicy(scaleType=99))),  # type: ignore[arg-type]
    ("configuration", pb.StreamConfig(retentionPolicy=pb.RetentionPolicy(retentionType=-1))),  # type: ignore[arg-type]
    ("range", pb.SegmentRange(segmentId=pb.SegmentId(segmentId=-1), minKey=0, maxKey=1)),
    ("range", pb.SegmentRange(segmentId=pb.SegmentId(segmentId=1), minKey=float("nan"), maxKey=1)),
    ("range", pb.SegmentRange(segmentId=pb.SegmentId(segmentId=1), minKey=0.7, maxKey=0.2)),
    ("group", pb.ReaderGroupConfiguration(readerGroupId="none")),
    ("group", pb.ReaderGroupConfiguration(startingStreamCuts=[pb.StreamCut()])),
]


@pytest.mark.parametrize(("about", "answer"), MAKES_NO_SENSE)
def test_answer_that_makes_no_sense_is_the_controllers_error(about: str, answer: Any) -> None:
    name = StreamName("plant", "machine")
    with served(Spoiling(**{about: answer}), timeout=5) as calls, PravegaStore(calls._settings) as store:
        ask: dict[str, Callable[[], object]] = {
            "configuration": lambda: store._controller.configuration(name),
            "range": lambda: store._controller.current_segments(name),
            "group": lambda: store.reader_groups().find("plant", "group"),
        }
        with pytest.raises(WireError, match="an answer that makes no sense"):
            ask[about]()


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNKNOWN])
def test_other_failure_is_reported_at_once(code: grpc.StatusCode) -> None:
    controller = Failing(1, code)
    with served(controller, timeout=30) as calls, pytest.raises(RequestFailed):
        calls.call("createScope", SCOPE)
    assert controller.asked == 1


def test_wrong_host_name_is_reported_at_once_unless_it_was_right_before() -> None:
    lost = "errors resolving nowhere:9090: [address lookup failed for nowhere:9090: Domain name not found]"
    controller = Failing(2, grpc.StatusCode.UNAVAILABLE, lost)
    with served(controller, timeout=30) as calls:
        with pytest.raises(StreamStoreUnavailable, match=r"no host with this name: 127.0.0.1:[0-9]+\. Check the name"):
            calls.call("createScope", SCOPE)
        assert controller.asked == 1
        controller.failures = 0
        calls.call("createScope", SCOPE)
        controller.failures = controller.asked + 2
        calls.call("createScope", SCOPE)
    assert controller.asked == 5


class Deleting(Failing):
    """A controller that is deleting a stream of the name, and takes its scope for missing meanwhile."""

    def createStream(self, _request: Any, _context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.asked += 1
        status = "SCOPE_NOT_FOUND" if self.asked <= self.failures else "SUCCESS"
        return pb.CreateStreamStatus(status=pb.CreateStreamStatus.Status.Value(status))

    def checkScopeExists(self, request: Any, _context: grpc.ServicerContext) -> Any:  # noqa: N802
        return pb.ExistsResponse(exists=request.scope == SCOPE.scope)


def test_scope_is_not_missing_while_a_stream_is_deleted() -> None:
    controller = Deleting(2, grpc.StatusCode.OK)
    with served(controller, timeout=30) as calls, PravegaStore(calls._settings) as store:
        store.create_stream(StreamName("plant", "sensors"), StreamConfiguration())
        assert controller.asked == 3
        controller.failures = 1000
        with pytest.raises(NoSuchScope, match=r"no such scope: .*/elsewhere"):
            store.create_stream(StreamName("elsewhere", "sensors"), StreamConfiguration())
