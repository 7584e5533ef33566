"""Watches that merges delete only what was proved elsewhere: a copy of the data that was read back stays at any time.

A generation in force with a mark needs its own objects alone. One without a mark also needs those of the generations
that it was merged from, and so on down to those with a mark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from streamvault.layouts.keys import GenerationSpan, checked_key, chunk_key, manifest_key, parse_record, ranges_key
from streamvault.manifests.ranges import decode_ranges
from tests.faults.explorer.scenes import NAME

__all__ = ["Proofs"]

FOLDER = f"{NAME}/"
_DECISION = re.compile(r"_manifest/decisions/([0-9]{10})\.json")


@lru_cache(maxsize=4096)
def _chunks(manifest: bytes, index: bytes) -> frozenset[str]:
    if json.loads(manifest)["layout"] != "chunks":
        return frozenset()  # events have the same objects, merged or not
    rows = decode_ranges(NAME, index, "the index")
    return frozenset(FOLDER + chunk_key(row.segment, row.start, row.end - row.start) for row in rows)


class Proofs:
    """What each generation in force was merged from, as decisions are taken.

    Args:
        objects: the vault's objects by key, as they change.
    """

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self._objects = objects
        self._number = self._dropped = 0
        self._merged: set[GenerationSpan] = set()
        self._parts: dict[GenerationSpan, tuple[GenerationSpan, ...]] = {}
        for key in sorted(objects):
            self._note(key, objects[key])

    def changed(self, key: str, data: bytes | None) -> Iterator[str]:
        """Note a change of the vault; yield what was wrong with it."""
        if data is not None:
            self._note(key, data)
        elif "/chunks/" in key:
            for span in self._in_force():
                for one in self._needed(span):
                    if key in self._keys(one):
                        yield f"UNPROVED {key} of {one} is deleted, and {span} was not read back"
                        return

    def _note(self, key: str, data: bytes) -> None:
        found = _DECISION.fullmatch(key.removeprefix(FOLDER))
        if not found or int(found[1]) <= self._number:
            return
        decision = json.loads(data)
        self._number, self._dropped = int(found[1]), decision["dropped"]
        now = {GenerationSpan(one["first"], one["generation"]) for one in decision["merged"]}
        for span in now - self._merged:
            inside = {one for one in self._merged if span.first <= one.first and one.last <= span.last}
            plain = {*span.generations}.difference(*(one.generations for one in inside))
            self._parts[span] = (*inside, *map(GenerationSpan.of, plain))
        self._merged = now

    def _in_force(self) -> Iterable[GenerationSpan]:
        inside = {number for span in self._merged for number in span.generations}
        records = (parse_record(key.removeprefix(FOLDER)) for key in self._objects)
        plain = {one.span for one in records if one and one.kind == "manifest" and not one.span.is_merged}
        return self._merged | {one for one in plain if one.last > self._dropped and one.last not in inside}

    def _needed(self, span: GenerationSpan) -> Iterator[GenerationSpan]:
        """The generations below one that must stay; whether its own objects do is judged at the end."""
        if FOLDER + checked_key(span) not in self._objects:
            for part in self._parts.get(span, ()):
                yield part
                yield from self._needed(part)

    def _keys(self, span: GenerationSpan) -> frozenset[str]:
        manifest, index = (self._objects.get(FOLDER + key(span)) for key in (manifest_key, ranges_key))
        return frozenset() if manifest is None or index is None else _chunks(manifest, index)
