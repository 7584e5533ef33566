"""Promise 4: merging keeps the originals until the merged generation has been read back.

Whatever a run deletes below the folders of data, at that moment every generation in force is whole: a merged one with
its mark by itself, one without a mark by the generations that it was merged from, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from streamvault.layouts.keys import chunk_key
from streamvault.manifests.index import decode_ranges
from testkit.explorer.scenes import NAME

Span = tuple[int, int]
FOLDER = f"{NAME}/"
_DECISION = re.compile(r"_manifest/decisions/([0-9]{10})\.json")
_PLAIN = re.compile(r"_manifest/([0-9]{10})\.json")
_DATA = re.compile(r"(?:chunks|events)/.*")


@lru_cache(maxsize=4096)
def _chunks_of(index: bytes) -> frozenset[str]:
    rows = decode_ranges(NAME, index, "index")
    return frozenset(chunk_key(row.segment, row.start, row.end - row.start) for row in rows)


class Proof:
    """What must be kept as generations are merged.

    Args:
        objects: of the archive's bucket, by key.
        who: the command that runs now.
    """

    def __init__(self, objects: Mapping[str, bytes], who: Callable[[], str]) -> None:
        self._objects = objects
        self._who = who
        self._parts: dict[Span, tuple[Span, ...]] = {}
        self._number = self._dropped = 0
        self._merged: frozenset[Span] = frozenset()
        self._deleted = False
        for key in sorted(objects):
            self._note(key.removeprefix(FOLDER), objects[key])

    def changed(self, key: str, data: bytes | None) -> Iterator[str]:
        """Judge a change of the bucket that was just made; yields what is wrong."""
        name = key.removeprefix(FOLDER)
        if data is not None:
            self._note(name, data)
        elif _DATA.fullmatch(name):
            for span in self._in_force():
                for needed in self._needed(span):
                    if name in self._keys(needed):
                        yield f"UNPROVED {self._who()} deletes {name} of {needed}, and {span} was not read back"
                        return

    def _note(self, name: str, data: bytes) -> None:
        match = _DECISION.fullmatch(name)
        if not match or int(match[1]) <= self._number:
            return
        value = json.loads(data)
        merged = frozenset((one["first"], one["generation"]) for one in value["merged"])
        for first, last in merged - self._merged:
            inside = {one for one in self._merged if first <= one[0] and one[1] <= last}
            covered = {number for one in inside for number in range(one[0], one[1] + 1)}
            inside |= {(number, number) for number in range(first, last + 1) if number not in covered}
            self._parts[first, last] = tuple(sorted(inside))
        self._number, self._merged, self._dropped = int(match[1]), merged, value["dropped"]
        self._deleted = value.get("deletion", "") in {"decided", "done"}

    def _in_force(self) -> Iterator[Span]:
        if self._deleted:
            return
        yield from self._merged
        covered = {number for first, last in self._merged for number in range(first, last + 1)}
        for key in self._objects:
            match = _PLAIN.fullmatch(key.removeprefix(FOLDER))
            if match and (number := int(match[1])) > self._dropped and number not in covered:
                yield number, number

    def _needed(self, span: Span) -> Iterator[Span]:
        yield span
        if f"{self._stem(span)}.checked.json" not in self._objects:
            for part in self._parts.get(span, ()):
                yield from self._needed(part)

    def _keys(self, span: Span) -> frozenset[str]:
        manifest = self._objects.get(f"{self._stem(span)}.json")
        index = self._objects.get(f"{self._stem(span)}.ranges.parquet")
        if manifest is None or index is None or json.loads(manifest)["layout"] != "chunks":
            return frozenset()  # merging rewrites chunks only
        return _chunks_of(index)

    @staticmethod
    def _stem(span: Span) -> str:
        first, last = span
        return f"{FOLDER}_manifest/{last:010d}" + (f"-{first:010d}" if first != last else "")
