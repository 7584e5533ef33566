"""The controller: describes the streams that are served, and keeps the configurations of reader groups."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import grpc

from streamvault.common.errors import Problem
from streamvault.objectstore.store import OutOfSpace
from streamvault.serving.access import Access
from streamvault.serving.served import Served
from streamvault.serving.state import Group, Groups
from streamvault.streamstore.cuts import segments_between, successions, validate_cut, with_ends
from streamvault.streamstore.errors import InvalidCut, InvalidName, WireError
from streamvault.streamstore.model import KeyRange, SegmentId, StreamDescription, StreamName
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega import controller_pb2_grpc as pbg
from streamvault.streamstore.pravega.controller import (
    configuration_message,
    cut_from_map,
    ranges_message,
    segment_message,
)
from streamvault.streamstore.pravega.reader_groups import PREFIX

_log = logging.getLogger(__name__)

MARKS = "_MARK"
"""What the name of a stream's watermarks begins with; an archive has none, so they are empty."""

READ_ONLY = "this is an archive, which is read-only"

_WHOLE = KeyRange(0.0, 1.0)


class ServedController(pbg.ControllerServiceServicer):  # type: ignore[misc]
    """Answers the controller's calls. Streams are read only; reader groups can be made, changed and deleted.

    Calls that are not here are answered UNIMPLEMENTED by gRPC.

    Args:
        streams: what is served.
        groups: the reader groups.
        node: host and port of the segment store, as clients are told.
        access: who may read.
    """

    def __init__(
        self, streams: Mapping[StreamName, Served], groups: Groups, node: tuple[str, int], access: Access
    ) -> None:
        self._streams, self._groups, self._node, self._access = streams, groups, node, access

    # streams

    def getCurrentSegments(self, request: Any, context: Any) -> Any:
        """Return the open segments; none of a sealed stream."""
        ranges: Mapping[SegmentId, KeyRange]
        if request.stream.startswith(PREFIX):
            group = self._group(request.scope, request.stream.removeprefix(PREFIX), context)
            if group is None:
                _not_found(context, request)
            ranges = {group.state.id: _WHOLE}
        elif request.stream.startswith(MARKS) and self._find(request.scope, request.stream.removeprefix(MARKS)):
            ranges = {SegmentId(0, 0): _WHOLE}
        else:
            described = self._described(request, context)
            ranges = {} if described.sealed else described.epochs[-1].segments
        return ranges_message(request, ranges, self._access.token())

    def getEpochSegments(self, request: Any, context: Any) -> Any:
        """Return an epoch's segments."""
        described = self._described(request.streamInfo, context)
        if not 0 <= request.epoch < len(described.epochs):
            context.abort(grpc.StatusCode.NOT_FOUND, f"no epoch {request.epoch}")
        return ranges_message(request.streamInfo, described.epochs[request.epoch].segments)

    def getSegments(self, request: Any, context: Any) -> Any:
        """Return the head. An archive does not know where a time was: later ones get the head, too."""
        described = self._described(request.streamInfo, context)
        found = [
            pb.SegmentsAtTime.SegmentLocation(segmentId=segment_message(request.streamInfo, segment), offset=offset)
            for segment, offset in described.head.offsets.items()
        ]
        return pb.SegmentsAtTime(segments=found, delegationToken=self._access.token())

    def getSegmentsImmediatelyFollowing(self, request: Any, context: Any) -> Any:
        """Return a segment's successors, each with all of its predecessors."""
        described = self._described(request.streamInfo, context)
        ranges, pairs = described.ranges(), list(successions(described))
        segment = _segment(request.segmentId, context)
        if segment in described.tail.offsets and not described.sealed:  # only a writer asks, see `connection`
            self._refuse(request, context)
        entries = [
            pb.SuccessorResponse.SegmentEntry(segment=one, value=[old.value for old, new in pairs if new == after])
            for after in sorted({new for old, new in pairs if old == segment})
            for one in ranges_message(request.streamInfo, {after: ranges[after]}).segmentRanges
        ]
        return pb.SuccessorResponse(segments=entries, delegationToken=self._access.token())

    getSegmentsImmediatlyFollowing = getSegmentsImmediatelyFollowing

    def getSegmentsBetween(self, request: Any, context: Any) -> Any:
        """Return the segments between two cuts; an empty one is the head, or the tail."""
        info = request.streamInfo
        served = self._served(info, context)
        now = served.now
        described = now.described
        try:
            start, end = (
                with_ends(cut_from_map(described.name, given), lambda segment: now.info(segment).write_offset)
                if given
                else default
                for given, default in ((getattr(request, "from"), described.head), (request.to, described.tail))
            )
            between = segments_between(described, start, end)
        except Problem as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        segments = [segment_message(info, segment) for segment in between]
        return pb.StreamCutRangeResponse(segments=segments, delegationToken=self._access.token())

    def getURI(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        """Return where the segment store is."""
        return pb.NodeUri(endpoint=self._node[0], port=self._node[1])

    def isSegmentValid(self, request: Any, context: Any) -> Any:
        """Return whether a segment is open."""
        described = self._described(request.streamInfo, context)
        is_open = _segment(request.segmentId, context) in described.epochs[-1].segments
        return pb.SegmentValidityResponse(response=is_open and not described.sealed)

    def isStreamCutValid(self, request: Any, context: Any) -> Any:
        """Return whether a cut is one of the stream."""
        described = self._described(request.streamInfo, context)
        try:
            validate_cut(described, cut_from_map(described.name, request.cut))
        except (InvalidCut, WireError):
            return pb.StreamCutValidityResponse(response=False)
        return pb.StreamCutValidityResponse(response=True)

    def getStreamConfiguration(self, request: Any, context: Any) -> Any:
        """Return policies and tags."""
        described = self._described(request, context)
        return configuration_message(described.name, described.configuration)

    def getDelegationToken(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        """Return a token for the segment store."""
        return pb.DelegationToken(delegationToken=self._access.token())

    def listScopes(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        """Return the scopes, on one page."""
        scopes = [] if request.continuationToken.token else sorted({name.scope for name in self._streams})
        return pb.ScopesResponse(scopes=scopes, continuationToken=_LAST_PAGE)

    def listStreamsInScope(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        """Return the streams of a scope, on one page."""
        found = sorted(name.stream for name in self._streams if name.scope == request.scope.scope)
        if not found:
            return pb.StreamsInScopeResponse(status=pb.StreamsInScopeResponse.SCOPE_NOT_FOUND)
        infos = [pb.StreamInfo(scope=request.scope.scope, stream=stream) for stream in found]
        page = [] if request.continuationToken.token else infos
        return pb.StreamsInScopeResponse(streams=page, continuationToken=_LAST_PAGE)

    def checkScopeExists(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        """Return whether a scope exists."""
        return pb.ExistsResponse(exists=self._has_scope(request.scope))

    def checkStreamExists(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        """Return whether a stream exists."""
        return pb.ExistsResponse(exists=self._find(request.scope, request.stream) is not None)

    def createScope(self, request: Any, context: Any) -> Any:
        """Say that a scope exists: programs create theirs when they start."""
        if not self._has_scope(request.scope):
            self._refuse(request, context)
        return pb.CreateScopeStatus(status=pb.CreateScopeStatus.SCOPE_EXISTS)

    def createStream(self, request: Any, context: Any) -> Any:
        """Say that a stream exists, likewise."""
        if self._find(request.streamInfo.scope, request.streamInfo.stream) is None:
            self._refuse(request, context)
        return pb.CreateStreamStatus(status=pb.CreateStreamStatus.STREAM_EXISTS)

    def _refuse(self, request: Any, context: Any) -> NoReturn:  # noqa: ARG002
        context.abort(grpc.StatusCode.PERMISSION_DENIED, READ_ONLY)
        raise AssertionError

    updateStream = truncateStream = sealStream = deleteStream = deleteScope = scale = createTransaction = _refuse

    # reader groups

    def createReaderGroup(self, request: Any, context: Any) -> Any:
        """Create a group; if there is one of its name, it is that one."""
        answers = pb.CreateReaderGroupResponse
        if not self._has_scope(request.scope):
            return answers(status=answers.SCOPE_NOT_FOUND)
        try:
            name = StreamName(request.scope, request.readerGroupName)
        except InvalidName:
            return answers(status=answers.INVALID_RG_NAME)
        with _stored(context):
            found = self._groups.create(name, request.SerializeToString())
        return answers(status=answers.SUCCESS, config=pb.ReaderGroupConfiguration.FromString(found.configuration))

    def getReaderGroupConfig(self, request: Any, context: Any) -> Any:
        """Return a group's configuration."""
        answers = pb.ReaderGroupConfigResponse
        found = self._group(request.scope, request.readerGroup, context)
        if found is None:
            return answers(status=answers.RG_NOT_FOUND)
        return answers(status=answers.SUCCESS, config=pb.ReaderGroupConfiguration.FromString(found.configuration))

    def updateReaderGroup(self, request: Any, context: Any) -> Any:
        """Replace the configuration that the client has seen."""
        answers = pb.UpdateReaderGroupResponse
        found = self._group(request.scope, request.readerGroupName, context)
        if found is None:
            return answers(status=answers.RG_NOT_FOUND)
        before = pb.ReaderGroupConfiguration.FromString(found.configuration)
        if (before.readerGroupId, before.generation) != (request.readerGroupId, request.generation):
            return answers(status=answers.INVALID_CONFIG)
        request.generation += 1
        name = StreamName(request.scope, request.readerGroupName)
        with _stored(context):
            if not self._groups.update(name, request.SerializeToString(), found):
                return answers(status=answers.INVALID_CONFIG)
        return answers(status=answers.SUCCESS, generation=request.generation)

    def deleteReaderGroup(self, request: Any, context: Any) -> Any:
        """Delete a group."""
        answers = pb.DeleteReaderGroupStatus
        found = self._group(request.scope, request.readerGroup, context)
        with _stored(context):
            done = found is not None and self._groups.delete(found.state.name, found)
        return answers(status=answers.SUCCESS if done else answers.RG_NOT_FOUND)

    def listSubscribers(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        """Return no group: an archive's retention does not depend on its readers."""
        return pb.SubscribersResponse(status=pb.SubscribersResponse.SUCCESS)

    def updateSubscriberStreamCut(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        """Take note of nothing, for the same reason."""
        return pb.UpdateSubscriberStatus(status=pb.UpdateSubscriberStatus.SUCCESS)

    def _find(self, scope: str, stream: str) -> Served | None:
        try:
            return self._streams.get(StreamName(scope, stream))
        except InvalidName:
            return None

    def _group(self, scope: str, name: str, context: Any) -> Group | None:
        try:
            stream = StreamName(scope, name)
        except InvalidName:
            return None
        with _stored(context):
            return self._groups.find(stream)
        raise AssertionError

    def _has_scope(self, scope: str) -> bool:
        return any(name.scope == scope for name in self._streams)

    def _served(self, info: Any, context: Any) -> Served:
        served = self._find(info.scope, info.stream)
        if served is None:
            _not_found(context, info)
        return served

    def _described(self, info: Any, context: Any) -> StreamDescription:
        return self._served(info, context).now.described


_LAST_PAGE = pb.ContinuationToken(token="end")  # noqa: S106  (of a listing)


def _segment(value: int, context: Any) -> SegmentId:
    try:
        return SegmentId.of(value)
    except InvalidName as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise AssertionError from None


@contextmanager
def _stored(context: Any) -> Iterator[None]:
    """Refuse a call if the store of reader groups fails; clients call again, and another server."""
    try:
        yield
    except Problem as error:
        _log.warning("%s", error)
        full = isinstance(error, OutOfSpace)
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED if full else grpc.StatusCode.UNAVAILABLE, error.what)


def _not_found(context: Any, info: Any) -> NoReturn:
    context.abort(grpc.StatusCode.NOT_FOUND, f"Stream not found {info.scope}/{info.stream}")
    raise AssertionError


_CALLS = frozenset(pb.DESCRIPTOR.services_by_name["ControllerService"].methods_by_name)


class Gate(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Lets only those in who have the login, and counts the calls.

    Args:
        access: who may read.
        count: is told of each call, and what is wrong with it.
    """

    def __init__(self, access: Access, count: Callable[[str, str], None]) -> None:
        self._access, self._count = access, count
        self._no = grpc.unary_unary_rpc_method_handler(
            lambda _, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong login")
        )

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        """See the base class."""
        if not self._access.is_known(dict(details.invocation_metadata)):
            self._count("wrong login", "")
            return self._no
        found = continuation(details)
        name = details.method.rpartition("/")[2]
        self._count(name if name in _CALLS else "unknown call", name[:100])
        return found
