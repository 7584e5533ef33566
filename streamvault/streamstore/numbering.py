"""Checks the key ranges of a scale; predicts and controls the numbers of the segments that it opens.

Pravega's controller collects a scale's ranges in a ``java.util.HashMap`` keyed by their starts and numbers them in
iteration order; the embedded store does the same. The order is that of the map's buckets, and within a bucket that of
the request. Moving a boundary by a few ulps (to a neighbouring double) changes its bucket, but not the keys on either
side: the hash of a routing key has 52 bits.

The iteration order depends on the keys and their insertion order; this replays the map's growth. A bucket is iterated
in insertion order until it becomes a tree; a tree puts its root first and a new key right after its parent. (Since Java
8; initial capacity 16, keys never removed.)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from streamvault.common.neighbours import joined
from streamvault.streamstore.errors import InvalidName, ScaleRefused
from streamvault.streamstore.model import KeyRange, SegmentId

_FIRST_CAPACITY = 16
_TREE_FROM = 9
_TREE_CAPACITY = 64
_LIST_UP_TO = 6


def spread_hash(key: float) -> int:
    """Return the hash that selects the bucket: ``Double.hashCode`` with its high bits folded into the low, as int32."""
    bits = _bits(key)
    code = (bits ^ bits >> 32) & 0xFFFFFFFF
    spread = code ^ code >> 16
    return spread - (1 << 32) if spread >> 31 else spread


def first_capacity(count: int) -> int:
    """Return the capacity of a map with ``count`` keys, unless a crowded bucket makes it grow earlier."""
    capacity = _FIRST_CAPACITY
    while count > capacity * 3 // 4:
        capacity *= 2
    return capacity


def iteration_order(keys: Sequence[float]) -> list[int]:
    """Return the iteration order of a map as indices into ``keys``, which are distinct and inserted in order."""
    grown = _Map()
    for index, key in enumerate(keys):
        grown.put(_Node(index, key))
    return [node.index for bucket in grown.buckets for node in bucket.nodes]


class _Node:
    """A key, with the links of a red-black tree, used while its bucket is one."""

    __slots__ = ("hash", "index", "key", "left", "parent", "red", "right")

    def __init__(self, index: int, key: float) -> None:
        self.index = index
        self.key = key
        self.hash = spread_hash(key)
        self.unlink()

    def unlink(self) -> None:
        self.parent: _Node | None = None
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.red = False

    def before(self, other: _Node) -> bool:
        return (self.hash, self.key) < (other.hash, other.key)


class _Bucket:
    """Keys in iteration order, with a tree over them once there are many."""

    __slots__ = ("nodes", "root")

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.root: _Node | None = None

    def put(self, node: _Node) -> None:
        if self.root is None:
            self.nodes.append(node)
        else:
            parent = self._insert(node)
            self.nodes.insert(self.nodes.index(parent) + 1, node)
            self._root_first()

    def make_tree(self) -> None:
        self.root = None
        for node in self.nodes:
            node.unlink()
            if self.root is None:
                self.root = node
            else:
                self._insert(node)
        self._root_first()

    def split(self, bit: int) -> tuple[_Bucket, _Bucket]:
        """Split into two buckets, when the map doubles."""
        low, high = _Bucket(), _Bucket()
        for node in self.nodes:
            (high if node.hash & bit else low).nodes.append(node)
        for part, other in ((low, high), (high, low)):
            if self.root is not None and len(part.nodes) > _LIST_UP_TO:
                if other.nodes:
                    part.make_tree()
                else:
                    part.root = self.root
        return low, high

    def _root_first(self) -> None:
        if self.root is not None and self.nodes[0] is not self.root:
            self.nodes.remove(self.root)
            self.nodes.insert(0, self.root)

    def _insert(self, node: _Node) -> _Node:
        """Insert a node into the tree, rebalance, and return the parent it was inserted under."""
        assert self.root is not None  # noqa: S101  (there is a tree)
        parent = self.root
        while (below := parent.left if node.before(parent) else parent.right) is not None:
            parent = below
        node.parent = parent
        if node.before(parent):
            parent.left = node
        else:
            parent.right = node
        self._balance(node)
        return parent

    def _balance(self, node: _Node) -> None:
        node.red = True
        while (parent := node.parent) is not None and parent.red and (above := parent.parent) is not None:
            uncle = above.right if parent is above.left else above.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red = True
                node = above
                continue
            if (node is parent.left) != (parent is above.left):
                self._rotate_up(node)
                node, parent = parent, node
            parent.red = False
            above.red = True
            self._rotate_up(parent)
        assert self.root is not None  # noqa: S101  (there is a tree)
        self.root.red = False

    def _rotate_up(self, node: _Node) -> None:
        """Rotate a node into its parent's place."""
        parent = node.parent
        assert parent is not None  # noqa: S101  (only called below the root)
        above = parent.parent
        if node is parent.left:
            parent.left, node.right, moved = node.right, parent, node.right
        else:
            parent.right, node.left, moved = node.left, parent, node.left
        if moved is not None:
            moved.parent = parent
        parent.parent, node.parent = node, above
        if above is None:
            self.root = node
        elif above.left is parent:
            above.left = node
        else:
            above.right = node


class _Map:
    """The buckets and their growth."""

    def __init__(self) -> None:
        self.buckets = [_Bucket() for _ in range(_FIRST_CAPACITY)]
        self.size = 0

    def put(self, node: _Node) -> None:
        bucket = self.buckets[node.hash & len(self.buckets) - 1]
        bucket.put(node)
        if bucket.root is None and len(bucket.nodes) >= _TREE_FROM:
            if len(self.buckets) < _TREE_CAPACITY:
                self._double()
            else:
                bucket.make_tree()
        self.size += 1
        if self.size > len(self.buckets) * 3 // 4:
            self._double()

    def _double(self) -> None:
        parts = [bucket.split(len(self.buckets)) for bucket in self.buckets]
        self.buckets = [low for low, _ in parts] + [high for _, high in parts]


_CROWDED = (8, 4)
"""Maximum starts per bucket to try: with more than 8 the map grows or reorders, sometimes with more than 4 (when it was
smaller)."""

_NEVER = np.int64(1) << 40

_Costs = npt.NDArray[np.int64]


def check_replaces(
    seal: Sequence[SegmentId], ranges: Sequence[KeyRange], current: Mapping[SegmentId, KeyRange]
) -> None:
    """Check that a scale's new ranges cover exactly what its sealed segments cover, once.

    Raises:
        ScaleRefused: the ranges differ, or a segment is not open.
    """
    if not seal or len(set(seal)) != len(seal):
        raise ScaleRefused("a scale must seal at least one segment, each once")
    for segment in seal:
        if segment not in current:
            raise ScaleRefused("a scale seals a segment that is not open in the current epoch", where=str(segment))
    replaced = (current[segment] for segment in seal)
    if list(joined(sorted(ranges), _join)) != list(joined(sorted(replaced), _join)):
        raise ScaleRefused(
            "a scale's new ranges do not cover what its sealed segments cover",
            where=", ".join(f"[{one.low!r}, {one.high!r})" for one in sorted(ranges)),
        )


def _join(one: KeyRange, after: KeyRange) -> KeyRange | None:
    return KeyRange(one.low, after.high) if one.high == after.low else None  # overlapping ranges are not joined


def predict_order(ranges: Sequence[KeyRange]) -> list[int]:
    """Return the indices of a scale's ranges (with distinct starts) in the order in which they will be numbered."""
    return iteration_order([held.low for held in ranges])


def nudge(ranges: Sequence[KeyRange], fixed: Mapping[float, float] | None = None) -> list[KeyRange] | None:
    """Adjust ranges minimally so that they are numbered in the given order.

    Moves inner boundaries (where one range ends and another starts) by the fewest ulps in total.

    Args:
        ranges: the ranges in the wanted order of their numbers, which is also the order of the request.
        fixed: boundary that must not move → its position; all others may move. None fixes the ends that no two ranges
            share.

    Returns:
        The ranges in the same order; None if no small moves produce this order.
    """
    if fixed is None:
        shared = {held.low for held in ranges} & {held.high for held in ranges}
        fixed = {end: end for held in ranges for end in (held.low, held.high) if end not in shared}
    starts = [fixed.get(held.low, held.low) for held in ranges]
    if _in_order(starts):
        return _rebuild(ranges, starts, fixed)
    movable = [held.low not in fixed for held in ranges]
    for crowd in _CROWDED:
        moved = _move(starts, movable, first_capacity(len(ranges)), crowd)
        if moved is not None and _in_order(moved):
            return _rebuild(ranges, moved, fixed)
    return None


def _in_order(starts: Sequence[float]) -> bool:
    return iteration_order(starts) == list(range(len(starts)))


def _rebuild(
    ranges: Sequence[KeyRange], starts: Sequence[float], fixed: Mapping[float, float]
) -> list[KeyRange] | None:
    """End each range where its neighbour now starts; None if one would be empty."""
    lies = dict(zip((held.low for held in ranges), starts, strict=True)) | dict(fixed)
    try:
        return [KeyRange(lies[held.low], lies.get(held.high, held.high)) for held in ranges]
    except InvalidName:
        return None


def _move(starts: Sequence[float], movable: Sequence[bool], capacity: int, crowd: int) -> list[float] | None:
    """Move starts so that their buckets never decrease, with at most ``crowd`` per bucket, at the lowest total cost.

    Dynamic programming: the cheapest placement of the first i starts, with the last as the c-th in bucket b, follows
    from that for i - 1, whose last is either the (c - 1)-th in the same bucket, or in any lower one if c is 1.
    """
    costs, moves = zip(*(_reach(start, may, capacity) for start, may in zip(starts, movable, strict=True)), strict=True)
    best = np.full((capacity, crowd), _NEVER)
    best[:, 0] = costs[0]
    came_from: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]] = []
    for cost in costs[1:]:
        cheapest, count = best.min(axis=1), best.argmin(axis=1)
        lower = np.concatenate(([_NEVER], np.minimum.accumulate(cheapest)[:-1]))
        falls = np.concatenate(([True], cheapest[1:] < np.minimum.accumulate(cheapest)[:-1]))
        where = np.maximum.accumulate(np.where(falls, np.arange(capacity), 0))
        where = np.concatenate(([0], where[:-1]))
        came_from.append((where, count[where]))
        best = np.concatenate((lower[:, None], best[:, :-1]), axis=1) + cost[:, None]
        np.minimum(best, _NEVER, out=best)
    if best.min() >= _NEVER:
        return None
    bucket, place = (int(i) for i in np.unravel_index(best.argmin(), best.shape))
    chosen = [bucket]
    for where, count in reversed(came_from):
        bucket, place = (bucket, place - 1) if place else (int(where[bucket]), int(count[bucket]))
        chosen.append(bucket)
    return [_ulps_from(start, int(move[b])) for start, move, b in zip(starts, moves, reversed(chosen), strict=True)]


def _reach(start: float, movable: bool, capacity: int) -> tuple[_Costs, _Costs]:
    """Return for each bucket the fewest ulps that move a start there, and the same with its sign.

    The lowest bits of a double select the bucket, so ``capacity`` neighbours in either direction reach all buckets.
    """
    reach = capacity if movable else 0
    steps = np.array(sorted(range(-reach, reach + 1), key=abs, reverse=True), dtype=np.int64)
    bits = _bits(start) + steps
    possible = (bits > 0) & (bits < _bits(1.0)) | (steps == 0)
    steps, bits = steps[possible], bits[possible]
    code = (bits ^ bits >> 32) & 0xFFFFFFFF
    buckets = (code ^ code >> 16) & capacity - 1
    cost, move = np.full(capacity, _NEVER), np.zeros(capacity, dtype=np.int64)
    cost[buckets] = np.abs(steps)  # the last write wins, which is the nearest
    move[buckets] = steps
    return cost, move


def _bits(value: float) -> int:
    bits: int = struct.unpack(">q", struct.pack(">d", value))[0]
    return bits


def _ulps_from(value: float, ulps: int) -> float:
    moved: float = struct.unpack(">d", struct.pack(">q", _bits(value) + ulps))[0]
    return moved
