"""Our values to the controller's messages and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from streamvault.streamstore.model import (
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
from streamvault.streamstore.transactions import Transaction

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


def ranges_from(message: Any) -> dict[SegmentId, KeyRange]:
    """A ``SegmentRanges``."""
    return {SegmentId.of(one.segmentId.segmentId): KeyRange(one.minKey, one.maxKey) for one in message.segmentRanges}


def cut_message(cut: StreamCut) -> Any:
    """``StreamCut``."""
    return pb.StreamCut(
        streamInfo=stream_message(cut.stream), cut={segment.value: offset for segment, offset in cut.offsets.items()}
    )


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


_INT64 = 1 << 64


def transaction_from(stream: StreamName, message: Any) -> Transaction:
    """A ``CreateTxnResponse``."""
    number = (message.txnId.highBits % _INT64) << 64 | message.txnId.lowBits % _INT64
    ranges = {SegmentId.of(one.segmentId.segmentId): KeyRange(one.minKey, one.maxKey) for one in message.activeSegments}
    return Transaction(stream, UUID(int=number), ranges)


def transaction_id_message(transaction: Transaction) -> Any:
    """``TxnId``."""
    high, low = divmod(transaction.id.int, _INT64)
    return pb.TxnId(highBits=_signed(high), lowBits=_signed(low))


def _signed(value: int) -> int:
    return value - _INT64 if value >= _INT64 >> 1 else value
