"""Typed client of Pravega's controller: our values to its messages and back, and each answer's status to an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import takewhile
from typing import Any, ParamSpec, TypeVar

from streamvault.common.errors import Problem
from streamvault.streamstore.errors import (
    InvalidName,
    NoSuchScope,
    NoSuchStream,
    RequestFailed,
    ScaleRefused,
    ScopeNotEmpty,
    StreamExists,
    StreamNotSealed,
    StreamSealed,
    StreamStoreError,
    WireError,
)
from streamvault.streamstore.model import (
    Epoch,
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
    StreamName,
)
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega.calls import ControllerCalls, NotFound
from streamvault.streamstore.pravega.connection import Endpoint, PravegaSettings

WORKFLOW_SECONDS = 150.0
"""Seal, truncate and delete calls return when finished; the controller itself gives up after 120 s."""

MOST_NAMES = 500_000
"""Names that a listing may have; one that has more does not end."""

_MEANINGS: Mapping[str, tuple[type[Problem], str, str]] = {
    "FAILURE": (RequestFailed, "the controller failed without giving a reason", "Try again; its log has the reason."),
    "SCOPE_NOT_FOUND": (NoSuchScope, "no such scope", ""),
    "SCOPE_NOT_EMPTY": (ScopeNotEmpty, "the scope has streams", "Delete them first."),
    "INVALID_SCOPE_NAME": (InvalidName, "Pravega rejected the scope name", ""),
    "STREAM_NOT_FOUND": (NoSuchStream, "no such stream", ""),
    "STREAM_EXISTS": (StreamExists, "the stream exists", "Choose another name."),
    "STREAM_SEALED": (StreamSealed, "the stream is sealed", ""),
    "STREAM_NOT_SEALED": (StreamNotSealed, "the stream is not sealed", "Seal it first."),
    "INVALID_STREAM_NAME": (InvalidName, "Pravega rejected the stream name", ""),
    "INVALID_RG_NAME": (InvalidName, "Pravega rejected the reader group's name", ""),
    "PRECONDITION_FAILED": (
        ScaleRefused,
        "the controller refused to scale",
        "A segment to seal is not open, or fewer segments would be left than the stream's policy requires.",
    ),
    "INVALID_INPUT": (RequestFailed, "the controller does not know this epoch", ""),
    "INTERNAL_ERROR": (RequestFailed, "the controller could not report the scale's status", "Try again."),
}


P = ParamSpec("P")
T = TypeVar("T")

_SCALINGS: Mapping[ScaleKind, Any] = {
    ScaleKind.FIXED: pb.ScalingPolicy.FIXED_NUM_SEGMENTS,
    ScaleKind.BY_KBYTES: pb.ScalingPolicy.BY_RATE_IN_KBYTES_PER_SEC,
    ScaleKind.BY_EVENTS: pb.ScalingPolicy.BY_RATE_IN_EVENTS_PER_SEC,
}
_RETENTIONS: Mapping[RetentionKind, Any] = {
    RetentionKind.NONE: pb.RetentionPolicy.UNKNOWN,
    RetentionKind.TIME: pb.RetentionPolicy.TIME,
    RetentionKind.SIZE: pb.RetentionPolicy.SIZE,
}
_SCALINGS_BACK = {number: kind for kind, number in _SCALINGS.items()}
_RETENTIONS_BACK = {number: kind for kind, number in _RETENTIONS.items()}


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream's state as reported by the controller. A sealed stream has no ``current`` segments."""

    configuration: StreamConfiguration
    head: StreamCut
    current: Mapping[SegmentId, KeyRange]
    epochs: list[Epoch]


class Controller:
    """A typed view of the controller. Usable from all threads.

    Every method raises `StreamStoreUnavailable`, `AccessDenied` and `RequestFailed`; those that name a stream raise
    `NoSuchStream` or `NoSuchScope`.

    Attributes:
        uri: the cluster's URI.
    """

    def __init__(self, settings: PravegaSettings) -> None:
        self.uri = settings.uri
        self._calls = ControllerCalls(settings)

    def close(self) -> None:
        """Close the connection."""
        self._calls.close()

    # scopes

    def scopes(self) -> Iterator[str]:
        """Every scope, internal ones too, in the controller's order."""
        return self._pages(
            "listScopes", lambda token: pb.ScopesRequest(continuationToken=token), lambda page: page.scopes
        )

    def create_scope(self, scope: str) -> bool:
        """Make a scope; False if it was there."""
        answer = self._calls.call("createScope", pb.ScopeInfo(scope=scope))
        return self._status(pb.CreateScopeStatus.Status, answer.status, scope, "SUCCESS", "SCOPE_EXISTS") == "SUCCESS"

    def delete_scope(self, scope: str) -> None:
        """Delete an empty scope."""
        answer = self._calls.call("deleteScope", pb.ScopeInfo(scope=scope), seconds=WORKFLOW_SECONDS)
        self._status(pb.DeleteScopeStatus.Status, answer.status, scope)

    # streams

    def streams(self, scope: str) -> Iterator[str]:
        """Every stream of a scope, internal ones too, in the controller's order."""
        kinds = pb.StreamsInScopeRequest, pb.StreamsInScopeResponse.Status
        return self._listed(scope, "listStreamsInScope", *kinds, lambda page: [one.stream for one in page.streams])

    def key_value_tables(self, scope: str) -> Iterator[str]:
        """Every key-value table of a scope, internal ones too, in the controller's order."""
        kinds = pb.KVTablesInScopeRequest, pb.KVTablesInScopeResponse.Status
        return self._listed(
            scope, "listKeyValueTablesInScope", *kinds, lambda page: [one.kvtName for one in page.kvtables]
        )

    def stream_exists(self, stream: StreamName) -> bool:
        """Return whether the stream exists; False if its scope does not."""
        return bool(self._calls.call("checkStreamExists", stream_message(stream)).exists)

    def create_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Make a stream; of several callers one succeeds, the others get `StreamExists`."""
        answer = self._calls.call(
            "createStream", configuration_message(stream, configuration), seconds=WORKFLOW_SECONDS
        )
        self._status(pb.CreateStreamStatus.Status, answer.status, str(stream))

    def update_stream(self, stream: StreamName, configuration: StreamConfiguration) -> None:
        """Replace policies and tags."""
        self._update(stream, "updateStream", configuration_message(stream, configuration))

    def truncate_stream(self, cut: StreamCut) -> None:
        """Move the stream's head."""
        self._update(cut.stream, "truncateStream", cut_message(cut))

    def seal_stream(self, stream: StreamName) -> None:
        """Seal the stream permanently."""
        self._update(stream, "sealStream", stream_message(stream))

    def delete_stream(self, stream: StreamName, is_gone: Callable[[], bool]) -> None:
        """Delete a sealed stream; raises `StreamNotSealed` for another.

        Args:
            stream: the stream.
            is_gone: whether it is gone, even if another stream has its name. The controller waits two minutes until
                no stream has the name, and then fails.
        """
        answer = self._calls.call("deleteStream", stream_message(stream), seconds=WORKFLOW_SECONDS, done=is_gone)
        if answer is not None:
            self._status(pb.DeleteStreamStatus.Status, answer.status, stream)

    def configuration(self, stream: StreamName) -> StreamConfiguration:
        """Its policies and tags."""
        return configuration_from(self.ask(stream, "getStreamConfiguration", stream_message(stream)))

    def configurations(self, streams: Sequence[StreamName]) -> list[StreamConfiguration | None]:
        """The policies and tags of several; None for one that is gone."""
        answers = self._calls.call_all([("getStreamConfiguration", stream_message(stream)) for stream in streams])
        return [None if answer is None else configuration_from(answer) for answer in answers]

    # reader groups

    def reader_group(self, scope: str, name: str) -> Any:
        """A reader group's ``ReaderGroupConfiguration``; None if there is no group of this name."""
        request = pb.ReaderGroupInfo(scope=scope, readerGroup=name)
        try:
            answer = self._calls.call("getReaderGroupConfig", request)
        except NotFound:
            return None
        kinds = pb.ReaderGroupConfigResponse.Status
        found = self._status(kinds, answer.status, f"{scope}/{name}", "SUCCESS", "RG_NOT_FOUND")
        return answer.config if found == "SUCCESS" else None

    def create_reader_group(self, configuration: Any) -> Any:
        """Create a reader group; return the configuration of the one that has its name now."""
        about = f"{configuration.scope}/{configuration.readerGroupName}"
        answer = self._calls.call("createReaderGroup", configuration, seconds=WORKFLOW_SECONDS)
        self._status(pb.CreateReaderGroupResponse.Status, answer.status, about)
        return answer.config

    # segments

    def current_segments(self, stream: StreamName) -> dict[SegmentId, KeyRange]:
        """The open segments; none if the stream is sealed."""
        return ranges_from(self.ask(stream, "getCurrentSegments", stream_message(stream)).segmentRanges)

    def epochs(self, stream: StreamName, numbers: Sequence[int]) -> list[Epoch]:
        """The epochs of these numbers, in their order, up to the first that does not exist."""
        return _epochs(numbers, self._calls.call_all([_epoch_question(stream, number) for number in numbers]))

    def query_state(self, stream: StreamName, epochs: int) -> StreamState:
        """Query a stream's state and first epochs concurrently; the answers may be from different moments."""
        named = stream_message(stream)
        questions = [
            ("getStreamConfiguration", named),
            ("getSegments", pb.GetSegmentsRequest(streamInfo=named, timestamp=0)),
            ("getCurrentSegments", named),
            *(_epoch_question(stream, number) for number in range(epochs)),
        ]
        configuration, head, current, *first = self._calls.call_all(questions)
        if configuration is None or head is None or current is None:
            raise self.missing(stream)
        return StreamState(
            configuration_from(configuration),
            cut_from(stream, head),
            ranges_from(current.segmentRanges),
            _epochs(range(epochs), first),
        )

    def start_scale(self, stream: StreamName, seal: Sequence[SegmentId], ranges: Sequence[KeyRange]) -> int:
        """Begin to scale; returns the number of the epoch that is open till then.

        Raises:
            ScaleRefused: a segment to seal is not open, or too few would be left.
            RequestFailed: another scale is under way, the ranges do not fit, or the stream is sealed: the controller
                does not say which.
        """
        request = scale_message(stream, seal, ranges, int(time.time() * 1000))
        answer = self._calls.call("scale", request)
        self._status(pb.ScaleResponse.ScaleStreamStatus, answer.status, stream, "STARTED")
        return int(answer.epoch)

    def is_scaled(self, stream: StreamName, epoch: int) -> bool:
        """Return whether the scale that ends this epoch is finished."""
        request = pb.ScaleStatusRequest(streamInfo=stream_message(stream), epoch=epoch)
        answer = self._calls.call("checkScale", request)
        status = self._status(pb.ScaleStatusResponse.ScaleStatus, answer.status, stream, "SUCCESS", "IN_PROGRESS")
        return status == "SUCCESS"

    def endpoint(self, stream: StreamName, segment: SegmentId) -> Endpoint:
        """The segment store that holds the segment now; answered for segments that never were, too."""
        request = pb.SegmentId(streamInfo=stream_message(stream), segmentId=segment.value)
        answer = self._calls.call("getURI", request)
        return Endpoint(answer.endpoint, answer.port)

    def delegation_token(self, stream: StreamName, *, write: bool) -> str:
        """Return the token that segment stores require; empty if the cluster requires no login."""
        request = stream_message(stream, pb.StreamInfo.READ_WRITE if write else pb.StreamInfo.READ)
        return str(self.ask(stream, "getDelegationToken", request).delegationToken)

    def missing(self, stream: StreamName) -> StreamStoreError:
        """The error for a stream that is not there: the stream's or its scope's."""
        if self._calls.call("checkScopeExists", pb.ScopeInfo(scope=stream.scope)).exists:
            return NoSuchStream("no such stream", where=f"{self.uri}/{stream}")
        return NoSuchScope("no such scope", where=f"{self.uri}/{stream.scope}")

    def ask(self, stream: StreamName, method: str, request: Any) -> Any:
        """Make a call about a stream that is answered NOT_FOUND if it is not there."""
        try:
            return self._calls.call(method, request)
        except NotFound:
            raise self.missing(stream) from None

    def _update(self, stream: StreamName, method: str, request: Any) -> None:
        answer = self._calls.call(method, request, seconds=WORKFLOW_SECONDS)
        self._status(pb.UpdateStreamStatus.Status, answer.status, stream)

    def _listed(self, scope: str, method: str, request: Any, status: Any, names: Callable[[Any], Any]) -> Iterator[str]:
        def checked(page: Any) -> Any:
            self._status(status, page.status, scope)
            return names(page)

        info = pb.ScopeInfo(scope=scope)
        return self._pages(method, lambda token: request(scope=info, continuationToken=token), checked)

    def _pages(self, method: str, request: Callable[[Any], Any], names: Callable[[Any], Any]) -> Iterator[str]:
        token, left = pb.ContinuationToken(), MOST_NAMES
        while left > 0:
            page = self._calls.call(method, request(token))
            found = names(page)
            if not found:
                return
            yield from found
            left -= len(found)
            token = page.continuationToken
        raise WireError(f"the controller lists more than {MOST_NAMES} names", where=self.uri)

    def _status(self, kinds: Any, number: int, about: StreamName | str, *good: str) -> str:
        """The status's name if it is a good one (SUCCESS if none is given), or its error."""
        name = kinds.Name(number) if number in kinds.values() else str(number)
        if name in (good or ("SUCCESS",)):
            return name
        if name in {"STREAM_NOT_FOUND", "SCOPE_NOT_FOUND"} and isinstance(about, StreamName):
            raise self.missing(about)
        if name not in _MEANINGS:
            raise WireError(f"the controller returned an unknown status ({name})", where=self.uri)
        kind, what, todo = _MEANINGS[name]
        if kind is NoSuchScope:
            about = str(about).partition("/")[0]
        raise kind(what, where=f"{self.uri}/{about}", todo=todo)


def _epoch_question(stream: StreamName, number: int) -> tuple[str, Any]:
    return "getEpochSegments", pb.GetEpochSegmentsRequest(streamInfo=stream_message(stream), epoch=number)


def _epochs(numbers: Sequence[int], answers: Sequence[Any]) -> list[Epoch]:
    """The epochs that were asked for, up to the first that does not exist."""
    there = takewhile(lambda one: one[1] is not None, zip(numbers, answers, strict=True))
    return [Epoch(number, ranges_from(answer.segmentRanges)) for number, answer in there]


def stream_message(stream: StreamName, access: Any = pb.StreamInfo.NONE) -> Any:
    """``StreamInfo``; calls that give no token need the right to read only if it says so."""
    return pb.StreamInfo(scope=stream.scope, stream=stream.stream, accessOperation=access)


def configuration_message(stream: StreamName, configuration: StreamConfiguration) -> Any:
    """``StreamConfig``."""
    scaling, retention = configuration.scaling, configuration.retention
    return pb.StreamConfig(
        streamInfo=stream_message(stream),
        scalingPolicy=pb.ScalingPolicy(
            scaleType=_SCALINGS[scaling.kind],
            targetRate=scaling.target,
            scaleFactor=scaling.factor,
            minNumSegments=scaling.min_segments,
        ),
        retentionPolicy=pb.RetentionPolicy(
            retentionType=_RETENTIONS[retention.kind], retentionParam=retention.minimum, retentionMax=retention.maximum
        ),
        tags=pb.Tags(tag=configuration.tags),
        timestampAggregationTimeout=configuration.timestamp_aggregation_timeout,
        rolloverSizeBytes=configuration.rollover_bytes,
    )


def of_answer(make: Callable[P, T]) -> Callable[P, T]:
    """Make a function that reads an answer raise `WireError` if a value of it means nothing."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return make(*args, **kwargs)
        except (InvalidName, KeyError, ValueError) as error:
            raise WireError(f"the controller sent an answer that makes no sense ({str(error)[:200]})") from None

    return made


@of_answer
def configuration_from(message: Any) -> StreamConfiguration:
    """A ``StreamConfig``."""
    scaling, retention = message.scalingPolicy, message.retentionPolicy
    return StreamConfiguration(
        scaling=Scaling(
            kind=_SCALINGS_BACK[scaling.scaleType],
            target=scaling.targetRate,
            factor=scaling.scaleFactor,
            min_segments=scaling.minNumSegments,
        ),
        retention=Retention(
            kind=_RETENTIONS_BACK[retention.retentionType],
            minimum=retention.retentionParam,
            maximum=retention.retentionMax,
        ),
        tags=tuple(message.tags.tag),
        rollover_bytes=message.rolloverSizeBytes,
        timestamp_aggregation_timeout=message.timestampAggregationTimeout,
    )


@of_answer
def ranges_from(messages: Iterable[Any]) -> dict[SegmentId, KeyRange]:
    """Some ``SegmentRange``."""
    return {SegmentId.of(one.segmentId.segmentId): KeyRange(one.minKey, one.maxKey) for one in messages}


def cut_message(cut: StreamCut) -> Any:
    """``StreamCut``."""
    return pb.StreamCut(
        streamInfo=stream_message(cut.stream), cut={segment.value: offset for segment, offset in cut.offsets.items()}
    )


@of_answer
def cut_from(stream: StreamName, message: Any) -> StreamCut:
    """A ``SegmentsAtTime``."""
    return StreamCut(stream, {SegmentId.of(one.segmentId.segmentId): one.offset for one in message.segments})


def scale_message(stream: StreamName, seal: Iterable[SegmentId], ranges: Iterable[KeyRange], now: int) -> Any:
    """``ScaleRequest``; ``now`` in milliseconds since 1970."""
    return pb.ScaleRequest(
        streamInfo=stream_message(stream),
        sealedSegments=[segment.value for segment in seal],
        newKeyRanges=[pb.ScaleRequest.KeyRangeEntry(start=one.low, end=one.high) for one in ranges],
        scaleTimestamp=now,
    )


def segment_message(info: Any, segment: SegmentId) -> Any:
    """``SegmentId``; ``info`` is the stream's ``StreamInfo``."""
    return pb.SegmentId(streamInfo=pb.StreamInfo(scope=info.scope, stream=info.stream), segmentId=segment.value)


def ranges_message(info: Any, ranges: Mapping[SegmentId, KeyRange], token: str = "") -> Any:
    """``SegmentRanges``; ``info`` is the stream's ``StreamInfo``."""
    found = [
        pb.SegmentRange(segmentId=segment_message(info, segment), minKey=keys.low, maxKey=keys.high)
        for segment, keys in ranges.items()
    ]
    return pb.SegmentRanges(segmentRanges=found, delegationToken=token)


@of_answer
def cut_from_map(stream: StreamName, offsets: Mapping[int, int]) -> StreamCut:
    """A map of segment ids to offsets, as ``StreamCut`` and ``StreamCutRange`` have it."""
    return StreamCut(stream, {SegmentId.of(segment): offset for segment, offset in offsets.items()})
