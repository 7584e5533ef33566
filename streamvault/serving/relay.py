"""The controller of an archive and its live stream: the live cluster's, but for where the stream begins and is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from streamvault.common.errors import Problem
from streamvault.serving.live import LiveStream
from streamvault.streamstore.errors import NoSuchSegment
from streamvault.streamstore.model import SegmentId
from streamvault.streamstore.pravega import controller_pb2 as pb
from streamvault.streamstore.pravega.controller import cut_from, segment_message

LONGEST_CALL = 300.0
"""Seconds that a call may take whose caller does not say."""

_Change = Callable[[bytes, bytes], bytes]


class _Refused(Exception):
    """Only a writer makes this call."""


class RelayedController(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Forwards each call to the live cluster, with the caller's login; what that refuses is refused.

    Of the stream that is served, it answers itself where its segments are and where it begins, and refuses what only a
    writer asks.

    Args:
        live: the stream.
        channel: to the live cluster's controller.
        node: host and port of the segment store, as clients are told.
    """

    def __init__(self, live: LiveStream, channel: grpc.Channel, node: tuple[str, int]) -> None:
        self._live, self._channel, self._node = live, channel, node
        self._changes: Mapping[str, _Change] = {
            "getURI": self._get_uri,
            "getSegments": self._get_segments,
            "getSegmentsImmediatelyFollowing": self._get_following,
            "getSegmentsImmediatlyFollowing": self._get_following,
        }

    def service(self, details: Any) -> grpc.RpcMethodHandler[bytes, bytes]:
        """See the base class."""

        def answer(request: bytes, context: Any) -> bytes:
            try:
                return self._answer(details.method, request, context)
            except DecodeError:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a request of this method")
            except _Refused:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, self._live.address.read_only)
            except Problem as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise AssertionError

        return grpc.unary_unary_rpc_method_handler(answer)

    def _answer(self, method: str, request: bytes, context: Any) -> bytes:
        name = method.rpartition("/")[2]
        if name == "createTransaction" and self._is_ours(pb.CreateTxnRequest.FromString(request).streamInfo):
            raise _Refused
        found, change = self._forward(method, request, context), self._changes.get(name)
        return found if change is None else change(request, found)

    def _forward(self, method: str, request: bytes, context: Any) -> bytes:
        login = tuple(pair for pair in context.invocation_metadata() if pair[0] == "authorization")
        seconds = min(context.time_remaining() or LONGEST_CALL, LONGEST_CALL)
        try:
            found: bytes = self._channel.unary_unary(method, None, None)(request, timeout=seconds, metadata=login)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
            raise AssertionError from None
        return found

    def _get_uri(self, request: bytes, answer: bytes) -> bytes:
        """Return our segment store for the stream's segments; of others, such as reader groups', the cluster's."""
        if not self._is_ours(pb.SegmentId.FromString(request).streamInfo):
            return answer
        return bytes(pb.NodeUri(endpoint=self._node[0], port=self._node[1]).SerializeToString())

    def _get_segments(self, request: bytes, answer: bytes) -> bytes:
        """Return the archive's head for a time that is not later than the live stream's."""
        info, found = pb.GetSegmentsRequest.FromString(request).streamInfo, pb.SegmentsAtTime.FromString(answer)
        if not (self._is_ours(info) and self._live.is_head(cut_from(self._live.name, found))):
            return answer
        del found.segments[:]
        for segment, offset in self._live.head().offsets.items():
            found.segments.add(segmentId=segment_message(info, segment), offset=offset)
        return bytes(found.SerializeToString())

    def _get_following(self, request: bytes, answer: bytes) -> bytes:
        """Return the successors; of an open segment, only a writer asks for them, see `connection`."""
        asked = pb.SegmentId.FromString(request)
        if self._is_ours(asked.streamInfo):
            # of a segment that both have given up, readers go on with the successors
            with suppress(NoSuchSegment):
                if not self._live.info(SegmentId.of(asked.segmentId)).sealed:
                    raise _Refused
        return answer

    def _is_ours(self, info: Any) -> bool:
        return (info.scope, info.stream) == (self._live.name.scope, self._live.name.stream)
