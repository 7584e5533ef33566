"""Predicts the iteration order of a ``java.util.HashMap`` with Double keys.

The order depends on the keys and their insertion order; this replays the map's growth. A bucket is iterated in
insertion order until it becomes a tree; a tree puts its root first and a new key right after its parent. (Since Java 8;
initial capacity 16, keys never removed.)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_FIRST_CAPACITY = 16
_TREE_FROM = 9
_TREE_CAPACITY = 64
_LIST_UP_TO = 6


def spread_hash(key: float) -> int:
    """Return the hash that selects the bucket: ``Double.hashCode`` with its high bits folded into the low, as int32."""
    bits: int = struct.unpack(">Q", struct.pack(">d", key))[0]
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
