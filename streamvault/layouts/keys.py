"""Keys of an archive's objects: building and parsing; and where an archive is in an open store.

The format is fixed, see `docs/reference/format.md`. All keys are relative to the archive (``ROOT/SCOPE/STREAM``) and
consist of plain numbers: the epoch and number of a segment's id, the ``offset`` of an event's header in the segment,
the ``length`` in bytes *including* the 8-byte header, the ``generation`` of an export. Every field has a fixed width,
so the byte order of the keys below ``events/`` is the order of (epoch, number, offset), which is the stream's order.

Parsers accept any key of a listing. They return None for anything that is not exactly a key of their kind: a bucket may
hold foreign objects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

from streamvault.objectstore.store import InvalidKey, ObjectStore
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import HEADER_BYTES, SegmentId

MANIFESTS = "_manifest/"
WORK = "_work/"
TABLES = "_table/"
"""The records of tables. Their files are in a separate folder, see `table_data`."""

TABLE_REGISTRATION = "registered.json"
"""The key, in the folder of a table's records, of the only place where the table is registered."""

TABLE_IDENTITY = "created.json"
"""The key, in the folder of a table's records, of the UUID that the table has in its catalog."""

MAX_ATTEMPTS = 9999
MAX_INT31 = 0x7FFFFFFF
MAX_INT63 = 0x7FFFFFFFFFFFFFFF

_SEGMENT = r"([0-9]{10}\.[0-9]{10})"
_SEGMENT_NAME = re.compile(r"([0-9]{10})\.([0-9]{10})")
_RANGE = re.compile(rf"{_SEGMENT}/([0-9]{{19}})-([0-9]{{10}}|[0-9]{{19}})")
_DECISION = re.compile(r"_manifest/decisions/([0-9]{10})\.json")
_TRUNCATION = re.compile(r"_manifest/truncations/([0-9]{10})\.json")
_RECORD = re.compile(r"_manifest/([0-9]{10})(?:-([0-9]{10}))?\.(json|ranges\.parquet|checked\.json|blocks\.json)")
_WORK = re.compile(r"([0-9]{10})(?:-([0-9]{10}))?")
_TABLE = re.compile(r"[a-z0-9_]{1,128}")
FOLDER_DIGITS = 12
"""Hexadecimal digits in the name of a table's own folder."""
_TABLE_FOLDER = re.compile(rf"[0-9a-f]{{{FOLDER_DIGITS}}}|generation=[1-9][0-9]{{0,9}}")
_LINE_FOLDER = "_line-"
_LINE = re.compile(r"[A-Za-z0-9-]{1,64}")
_TABLE_FILE = re.compile(rf"generation=([1-9][0-9]{{0,9}})/{_SEGMENT}-([0-9]{{19}})(?:-([0-9a-f]{{32}}))?\.parquet")
_PLAN = re.compile(r"_work/([0-9]{10})(?:-([0-9]{10}))?/(?:[0-9]{4}/)?(?:plan|ended)\.json")
_PROBE = re.compile(r"_work/probe-[0-9a-f]{16}/[^/]+")
_ROW = re.compile(rf"_work/([0-9]{{10}})(?:-([0-9]{{10}}))?/(?:([0-9]{{4}})/)?{_SEGMENT}/([0-9]{{19}})\.json")


class GenerationSpan(NamedTuple):
    """The original generations ``first`` to ``last``, merged into one; most generations are their only original."""

    first: int
    last: int

    @classmethod
    def of(cls, generation: int) -> Self:
        """Return the span of a generation that was never merged."""
        return cls(generation, generation)

    @property
    def is_merged(self) -> bool:
        """Whether it consists of several original generations."""
        return self.first != self.last

    @property
    def generations(self) -> range:
        """The numbers of the original generations."""
        return range(self.first, self.last + 1)

    def overlaps(self, other: GenerationSpan) -> bool:
        """Return whether the two have an original generation in common."""
        return self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return f"generations {self.first} to {self.last}" if self.is_merged else f"generation {self.last}"


class RangeKey(NamedTuple):
    """The parsed key of an event or a chunk: ``length`` bytes at ``offset`` of a segment."""

    segment: SegmentId
    offset: int
    length: int

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class RangeKeys:
    """The keys of a layout's objects, ``ROOT/EEEEEEEEEE.NNNNNNNNNN/OFFSET-LENGTH``; they sort as the stream does.

    Attributes:
        root: the layout's folder below the archive, with a trailing slash.
        digits: of the length.
        shortest: minimum length (bytes).
        longest: maximum length (bytes).
    """

    root: str
    digits: int
    shortest: int
    longest: int

    def folder(self, segment: SegmentId) -> str:
        """Return the folder of a segment's objects, with a trailing slash."""
        return f"{self.root}{segment_name(segment)}/"

    def key(self, segment: SegmentId, offset: int, length: int) -> str:
        """Return the key of the object that holds ``length`` bytes of the segment from ``offset`` on.

        Raises:
            InvalidKey: the numbers are not valid for an object of this layout.
        """
        if not (0 <= offset <= MAX_INT63 - length and self.shortest <= length <= self.longest):
            raise InvalidKey("offset and length are not valid in a segment", where=f"{offset}-{length}")
        return f"{self.folder(segment)}{offset:019d}-{length:0{self.digits}d}"

    def after(self, segment: SegmentId, offset: int) -> str:
        """Return the key after which a listing begins with the segment's object at ``offset``, or the next one.

        It sorts after every key of a lower offset and before each key of this one.
        """
        return self.folder(segment) + _bound(offset)

    def parse(self, key: str) -> RangeKey | None:
        """Parse a key relative to the archive; return None for any other key."""
        if not key.startswith(self.root):
            return None
        match = _RANGE.fullmatch(key, len(self.root))
        if match is None or len(match[3]) != self.digits:
            return None
        segment = parse_segment(match[1])
        if segment is None:
            return None
        found = RangeKey(segment, int(match[2]), int(match[3]))
        return found if self.shortest <= found.length <= self.longest and found.end <= MAX_INT63 else None


class RowKey(NamedTuple):
    """The parsed key of a finished range's row: the range of the generation that starts at ``offset``.

    ``attempt`` is the number of the plan, see `work_folder`.
    """

    span: GenerationSpan
    segment: SegmentId
    offset: int
    attempt: int = 1


class RecordKey(NamedTuple):
    """The parsed key of a manifest, an index, a mark or noted checksums.

    ``kind`` is ``manifest``, ``ranges``, ``checked`` or ``blocks``.
    """

    span: GenerationSpan
    kind: str


class TableFileKey(NamedTuple):
    """The parsed name of a table's file: its generation, the segment and offset of its first range, its plan's id."""

    generation: int
    segment: SegmentId
    offset: int
    file_id: str = ""


def line_folder(name: str) -> str:
    """Return the folder, below a root, that is the root of the archives of a line of generations.

    No scope has a name that begins with an underscore, so no archive of another line is in it.

    Raises:
        InvalidKey: the name is not valid.
    """
    if not _LINE.fullmatch(name):
        raise InvalidKey("a line's name must be 1 to 64 letters, digits and hyphens", where=repr(name))
    return f"{_LINE_FOLDER}{name}"


def line_of(folder: str) -> str:
    """Return the name of the line whose root a folder is; empty if it is that of no line."""
    name = folder.removeprefix(_LINE_FOLDER)
    return name if folder != name and _LINE.fullmatch(name) else ""


def segment_name(segment: SegmentId) -> str:
    """Return the name of a segment's folder, ``EEEEEEEEEE.NNNNNNNNNN``."""
    return f"{segment.epoch:010d}.{segment.number:010d}"


def work_folder(span: GenerationSpan, attempt: int = 1) -> str:
    """Return the folder of a generation's unfinished work, with a trailing slash.

    A plan that can never be finished is ended, and the next plan has the next ``attempt``, from 2 on. Its folder is
    inside that of the first.

    Raises:
        InvalidKey: as for `manifest_key`; or the attempt is not from 1 to 9999.
    """
    if not 1 <= attempt <= MAX_ATTEMPTS:
        raise InvalidKey(f"an attempt must be from 1 to {MAX_ATTEMPTS}", where=str(attempt))
    folder = f"{WORK}{_stem(span)}/"
    return folder if attempt == 1 else f"{folder}{attempt:04d}/"


def table_folder(name: str, folder: str = "") -> str:
    """Return the folder, below an archive, of a table's records (plans and manifests), with a trailing slash.

    It is separate from the folder of the table's files, which query engines may clean up.

    Args:
        name: the table's name.
        folder: the table's own folder below that name, which no other table of the name has: 12 hexadecimal digits;
            empty in tables of earlier releases.

    Raises:
        InvalidKey: the name is not valid in every catalog.
    """
    if not _TABLE.fullmatch(name):
        raise InvalidKey("a table's name must be 1 to 128 characters of a-z, 0-9 and _", where=repr(name))
    return f"{TABLES}{name}/{folder and f'{folder}/'}"


def table_data(records: str) -> str:
    """Return the folder of a table's files, given that of its records below a root.

    That is ``SCOPE/STREAM/_table/NAME/…`` → ``SCOPE/STREAM/table/NAME/…``.
    """
    scope, stream, _, below = records.split("/", 3)
    return f"{scope}/{stream}/table/{below}"


def table_options_key(name: str) -> str:
    """Return the key, below an archive, of the options that a table was created with; raises as `table_folder`."""
    return f"{table_folder(name)}table.json"


def table_plan_key(after: int) -> str:
    """Return the key, in the folder of a table's records, of the plan after a generation; 0: of the first plan."""
    return f"plan/{_generation(after)}.json"


def table_end_key(after: int) -> str:
    """Return the key, in the folder of a table's records, of the file that records how that plan ended."""
    return f"plan/{_generation(after)}.end.json"


def table_files(generation: int) -> str:
    """Return the folder, in a table's folder, of a generation's files, with a trailing slash: a Hive partition."""
    _generation(generation)
    return f"generation={generation}/"


def table_file_key(generation: int, segment: SegmentId, offset: int, file_id: str = "") -> str:
    """Return the key, in a table's folder, of the file whose first range begins at ``offset`` of a segment.

    Args:
        generation: the file's generation.
        segment: the segment of the first range.
        offset: where that range begins.
        file_id: 32 hexadecimal digits with which the names of a plan's files end; empty for none.
    """
    ending = f"-{file_id}" if file_id else ""
    return f"{table_files(generation)}{segment_name(segment)}-{_bound(offset)}{ending}.parquet"


def manifest_key(span: GenerationSpan) -> str:
    """Return the key of a generation's manifest.

    Raises:
        InvalidKey: the numbers are not valid for a generation.
    """
    return f"{MANIFESTS}{_stem(span)}.json"


def ranges_key(span: GenerationSpan) -> str:
    """Return the key of a generation's index of ranges; raises as `manifest_key`."""
    return f"{MANIFESTS}{_stem(span)}.ranges.parquet"


def checked_key(span: GenerationSpan) -> str:
    """Return the key of a generation's mark: all of its data were read back and verified. Raises as `manifest_key`."""
    return f"{MANIFESTS}{_stem(span)}.checked.json"


def blocks_key(span: GenerationSpan) -> str:
    """Return the key of the checksums of blocks that a check has noted of a generation; raises as `manifest_key`."""
    return f"{MANIFESTS}{_stem(span)}.blocks.json"


def decision_key(number: int) -> str:
    """Return the key of a decision, which says what has expired, is merged and is held."""
    return f"{MANIFESTS}decisions/{_generation(number)}.json"


def truncation_key(generation: int) -> str:
    """Return the key of the note that the source is about to be truncated to a generation's end."""
    return f"{MANIFESTS}truncations/{_generation(generation)}.json"


def plan_key(span: GenerationSpan, attempt: int = 1) -> str:
    """Return the key of the plan that all runs of a generation share; arguments as for `work_folder`."""
    return f"{work_folder(span, attempt)}plan.json"


def ended_key(span: GenerationSpan, attempt: int) -> str:
    """Return the key of the file that records how the plan of an attempt ended."""
    return f"{work_folder(span, attempt)}ended.json"


def row_key(span: GenerationSpan, segment: SegmentId, offset: int, attempt: int = 1) -> str:
    """Return the key of a finished range's row; ``offset`` is where the range starts."""
    return f"{work_folder(span, attempt)}{segment_name(segment)}/{_bound(offset)}.json"


@lru_cache(maxsize=1024)
def parse_segment(name: str) -> SegmentId | None:
    """Parse the name of a segment's folder; return None for any other name."""
    match = _SEGMENT_NAME.fullmatch(name)
    if match is None:
        return None
    epoch, number = int(match[1]), int(match[2])
    return SegmentId(epoch, number) if epoch <= MAX_INT31 and number <= MAX_INT31 else None


def parse_record(key: str) -> RecordKey | None:
    """Parse the key of a manifest, an index, a mark or noted checksums; return None for any other key."""
    match = _RECORD.fullmatch(key)
    span = _parse_span(match)
    if match is None or span is None:
        return None
    return RecordKey(span, "manifest" if match[3] == "json" else match[3].partition(".")[0])


def parse_decision(key: str) -> int | None:
    """Parse a decision's key; return its number, or None for any other key."""
    return _parse_generation(_DECISION.fullmatch(key))


def parse_truncation(key: str) -> int | None:
    """Parse the key of a note of a truncation; return its generation, or None for any other key."""
    return _parse_generation(_TRUNCATION.fullmatch(key))


def parse_work(folder: str) -> GenerationSpan | None:
    """Parse the name of a folder below ``_work/``; return its generation, or None for any other name."""
    return _parse_span(_WORK.fullmatch(folder))


def parse_row(key: str) -> RowKey | None:
    """Parse the key of a finished range's row; return None for any other key."""
    match = _ROW.fullmatch(key)
    if match is None:
        return None
    span = _parse_span(match)
    attempt = 1 if match[3] is None else int(match[3])
    segment, offset = parse_segment(match[4]), int(match[5])
    if span is None or segment is None or offset > MAX_INT63 or (match[3] is not None and attempt < 2):
        return None
    return RowKey(span, segment, offset, attempt)


def is_record(key: str) -> bool:
    """Check whether a key is that of a manifest, an index, a mark, a note, or unfinished work: what is no data.

    A decision is not one: the newest always stays.
    """
    plan = _parse_span(_PLAN.fullmatch(key)) is not None or _PROBE.fullmatch(key) is not None
    note = parse_truncation(key) is not None
    return plan or note or parse_record(key) is not None or parse_row(key) is not None


def table_of(key: str) -> str:
    """Return the name of the table that a key belongs to, its files or its records; empty if it is of none."""
    root, _, rest = key.partition("/")
    name, slash, _ = rest.partition("/")
    return name if slash and root in {"table", "_table"} and _TABLE.fullmatch(name) else ""


def is_table_folder(name: str) -> bool:
    """Check whether a folder's name, below ``table/NAME/``, is that of a table's own folder or of a generation."""
    return _TABLE_FOLDER.fullmatch(name) is not None


def parse_table_file(key: str) -> TableFileKey | None:
    """Parse the name of a table's file; return None for any other name."""
    match = _TABLE_FILE.fullmatch(key)
    if match is None:
        return None
    generation, segment, offset = int(match[1]), parse_segment(match[2]), int(match[3])
    if segment is None or generation > MAX_INT31 or offset > MAX_INT63:
        return None
    return TableFileKey(generation, segment, offset, match[4] or "")


def _parse_generation(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    generation = int(match[1])
    return generation if generation <= MAX_INT31 else None


def _parse_span(match: re.Match[str] | None) -> GenerationSpan | None:
    generation = _parse_generation(match)
    if match is None or generation is None:
        return None
    if match[2] is None:
        return GenerationSpan.of(generation)
    return GenerationSpan(int(match[2]), generation) if 1 <= int(match[2]) < generation else None


def _bound(offset: int) -> str:
    if not 0 <= offset <= MAX_INT63:
        raise InvalidKey("an offset must be from 0 to 2^63 - 1", where=str(offset))
    return f"{offset:019d}"


def _generation(generation: int) -> str:
    if not 0 <= generation <= MAX_INT31:
        raise InvalidKey("a generation must be from 0 to 2^31 - 1", where=str(generation))
    return f"{generation:010d}"


def _stem(span: GenerationSpan) -> str:
    """Return the file name of a generation, merged or not, without its suffix."""
    if not span.is_merged:
        return _generation(span.last)
    if not 1 <= span.first < span.last:
        raise InvalidKey("a merged generation must begin with an earlier one", where=str(span))
    return f"{_generation(span.last)}-{_generation(span.first)}"


EVENT_KEYS = RangeKeys("events/", digits=10, shortest=HEADER_BYTES, longest=MAX_INT31)
"""Lengths include the 8-byte header."""

CHUNK_KEYS = RangeKeys("chunks/", digits=19, shortest=1, longest=MAX_INT63)
"""Lengths are of the segment's raw bytes, also if the object is compressed."""

event_key = EVENT_KEYS.key
chunk_key = CHUNK_KEYS.key


class Place(NamedTuple):
    """An archive's folder in a store.

    Attributes:
        store: the store of the archive's root.
        prefix: ``SCOPE/STREAM/``; empty if the store's root is the archive.
    """

    store: ObjectStore
    prefix: str

    @property
    def uri(self) -> str:
        """The archive's URI for messages, without a trailing slash."""
        return f"{self.store.uri}/{self.prefix}".rstrip("/")

    def at(self, key: str) -> str:
        """Return the URI of a full key of the store, for messages."""
        return f"{self.store.uri}/{key}"


class PlaceAddress(NamedTuple):
    """The address of an archive's folder, for tasks that open it themselves: the root, and the folder below it."""

    root: RootAddress
    prefix: str

    def probe(self, size: int) -> PlaceAddress:
        """Return the address for tasks that put so many bytes, see `RootAddress.probe`."""
        return self._replace(root=self.root.probe(f"{self.prefix}_work/", size))

    def open(self) -> Place:
        """Open the archive's folder."""
        return Place(self.root.open(), self.prefix)

    def open_data(self) -> Place:
        """Open the archive's folder for putting data objects, see `RootAddress.open_data`."""
        return Place(self.root.open_data(), self.prefix)
