"""The generations of one archive: reading them with every cross-check, and committing the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from manifests.agreement import by_segment, check_follows, cross_check
from manifests.history import Generation, History
from manifests.jsonfile import decode
from manifests.model import Manifest
from manifests.range_row import RangeRow
from manifests.ranges import decode_ranges, encode_ranges
from objectstore.errors import AlreadyExists, NoSuchObject
from objectstore.keys import MANIFESTS, archive_prefix, manifest_key, parse_manifest, ranges_key, table_folder
from objectstore.layouts import table_layout
from objectstore.store import ObjectStore
from problems import Conflict, Damaged, Failed
from streamstore.model import StreamName

__all__ = ["Archive", "Generation", "History", "NoSuchArchive"]


class NoSuchArchive(Failed):
    """There is no generation at this place."""


class Archive:
    """One stream's archive at one root.

    Args:
        store: the root.
        stream: the archived stream; its folder is ``SCOPE/STREAM``.
        table: the copy of the archive that a table is: its folder has the manifests of the generations whose data are
            in the table's files.
    """

    def __init__(self, store: ObjectStore, stream: StreamName, table: str = "") -> None:
        self.store = store
        self.stream = stream
        self.table = table
        self.prefix = archive_prefix(stream.scope, stream.stream) + (table_folder(table) if table else "")

    @property
    def uri(self) -> str:
        """``ROOT/SCOPE/STREAM``, of a table ``ROOT/SCOPE/STREAM/table/NAME``."""
        return f"{self.store.uri}/{self.prefix}".rstrip("/")

    def generations(self) -> list[int]:
        """The numbers of the published generations, ascending; empty if there is no archive."""
        keys = (found.key.removeprefix(self.prefix) for found in self.store.list(self.prefix + MANIFESTS))
        return sorted(number for number in map(parse_manifest, keys) if number is not None)

    def manifest(self, generation: int | None = None) -> Manifest:
        """One generation's manifest, the newest by default.

        Raises:
            NoSuchArchive: it is not there.
            Damaged: it cannot be what an export wrote.
        """
        if generation is None:
            generation = next(reversed(self.generations()), None)
            if generation is None:
                raise NoSuchArchive("no archive", where=self.uri, todo="`streamvault ls ROOT` lists what is there.")
        key = self.prefix + manifest_key(generation)
        where = f"{self.store.uri}/{key}"
        try:
            manifest = decode(Manifest, self.store.get(key), where)
        except NoSuchObject:
            raise NoSuchArchive(f"no generation {generation}", where=self.uri) from None
        if (manifest.name, manifest.generation) != (self.stream, generation):
            what = f"the manifest is of another archive ({manifest.name}, generation {manifest.generation})"
            raise Damaged(what, where=where)
        return manifest

    def load(self, generation: int) -> Generation:
        """A generation with its ranges, cross-checked.

        Raises:
            NoSuchArchive, Damaged: as for `manifest`; also if ranges and manifest do not agree.
        """
        manifest = self.manifest(generation)
        key = self.prefix + ranges_key(generation)
        where = f"{self.store.uri}/{key}"
        try:
            data = self.store.get(key)
        except NoSuchObject:
            raise Damaged("the index of ranges is missing", where=where) from None
        rows = by_segment(decode_ranges(self.stream, data, where))
        cross_check(manifest, rows, where)
        return Generation(manifest, rows, table_layout(generation) if self.table else manifest.layout)

    def history(self, generation: int | None = None) -> History:
        """All generations up to one (the newest by default), as one stream.

        Raises:
            NoSuchArchive: there is none, or not that one.
            Damaged: one is not valid, or they do not follow each other.
        """
        numbers = self.generations()
        if not numbers:
            raise NoSuchArchive("no archive", where=self.uri, todo="`streamvault ls ROOT` lists what is there.")
        if generation is not None and generation not in numbers:
            raise NoSuchArchive(
                f"no generation {generation}", where=self.uri, todo=f"It has {numbers[0]} to {numbers[-1]}."
            )
        wanted = [number for number in numbers if generation is None or number <= generation]
        missing = set(range(1, wanted[-1] + 1)).difference(wanted)
        if missing:
            raise Damaged(f"the manifest of generation {min(missing)} is missing", where=self.uri)
        loaded = [self.load(number) for number in wanted]
        for before, after in pairwise(loaded):
            check_follows(before.manifest, after.manifest, self.uri)
        return History(loaded)

    def commit(self, manifest: Manifest, rows: Sequence[RangeRow]) -> bool:
        """Publish a generation: ranges first, then the manifest, create-only.

        Args:
            manifest: of the generation after the newest, or of one that another run may have published meanwhile.
            rows: its ranges, in order of (segment, start).

        Returns:
            False if an equal one was published already.

        Raises:
            Conflict: another generation of this number, with other content, was published.
            Damaged: it does not follow the generation before, or manifest and ranges do not agree. Nothing was written.
        """
        where = f"{self.store.uri}/{self.prefix}{manifest_key(manifest.generation)}"
        cross_check(manifest, by_segment(rows), where)
        if manifest.generation > 1:
            check_follows(self.manifest(manifest.generation - 1), manifest, where)

        def is_same_index(data: bytes, found_where: str) -> bool:
            return list(decode_ranges(self.stream, data, found_where)) == list(rows)

        def is_same_manifest(data: bytes, found_where: str) -> bool:
            return _content(decode(Manifest, data, found_where)) == _content(manifest)

        index = encode_ranges(self.stream, rows)
        self._create_or_compare(ranges_key(manifest.generation), index, is_same_index)
        return self._create_or_compare(manifest_key(manifest.generation), manifest.encode(), is_same_manifest)

    def _create_or_compare(self, key: str, data: bytes, is_same: Callable[[bytes, str], bool]) -> bool:
        """Whether the object was created now; False if one with the same content was there."""
        where = f"{self.store.uri}/{self.prefix}{key}"
        try:
            self.store.put(self.prefix + key, data)
        except AlreadyExists:
            found = self.store.get(self.prefix + key)
            if found != data and not is_same(found, where):
                raise Conflict(
                    "another run has written this generation with other content",
                    where=where,
                    todo="Run the same command again. If this stays, and no export is running, delete the object.",
                ) from None
            return False
        return True


def _content(manifest: Manifest) -> dict[str, object]:
    """What two runs of one plan agree on: everything but which version wrote it."""
    return {**manifest.document(), "tool": ""}
