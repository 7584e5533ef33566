"""The requests that verbs send to S3, and their price by a list in a file.

The dry runs and `plan` share this model. It is exact for a run that nothing disturbs if the events of a segment are of
one size; what makes it differ is listed here, and each is a few requests:

- Events of several sizes: how many begin in a range is then an estimate, and so is whether the last range of a segment
  has any.
- An export whose task guesses a range's start wrongly moves that range again. One that finds strays or an unfinished
  run sends some requests more, one that resumes a run sends less.
- A range that is restored in part, as layout ``events``, is listed twice.
- Retries, and the parts of an object that exceeds a task's window.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streamvault.common.errors import Usage
from streamvault.common.options import load_file
from streamvault.common.report import Cost
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.chunks import requests_to_read
from streamvault.layouts.layout import Layout, LayoutName, open_layout
from streamvault.manifests.deleting import ranges_a_task
from streamvault.manifests.spans import count_spans
from streamvault.manifests.verbs.warm import SAMPLE_SIZE
from streamvault.objectstore.bulk import PART_BYTES
from streamvault.objectstore.store import PAGE
from streamvault.streamstore.model import HEADER_BYTES, MAX_EVENT_BYTES

GB = 2**30
LIST_PRICES = Path(__file__).with_name("prices.toml")

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StorageStep(_Table):
    """The price of a GB and month, for so many GB; None for the rest."""

    gb: Annotated[float | None, Field(gt=0)] = None
    usd: Price


class ClassPrices(_Table):
    """The prices of a storage class; ``prices.toml`` says what each is."""

    put: Price
    get: Price
    storage: Annotated[tuple[StorageStep, ...], Field(min_length=1)]
    retrieve: Price = 0.0
    retrieve_request: Price = 0.0
    least_bytes: Bytes = 0
    more_bytes: Bytes = 0
    standard_bytes: Bytes = 0
    least_days: Bytes = 0

    def usd_a_month(self, objects: int, size: int, standard: ClassPrices) -> float:
        """Return the price of storing so many objects of `size` bytes in total, alike in size."""
        billed = max(size, objects * self.least_bytes) + objects * self.more_bytes
        extra = objects * self.standard_bytes
        return self._stored(billed) + (standard._stored(extra) if extra else 0.0)

    def _stored(self, size: int) -> float:
        left, usd = size / GB, 0.0
        for step in self.storage:
            part = left if step.gb is None else min(left, step.gb)
            usd, left = usd + part * step.usd, left - part
        return usd + left * self.storage[-1].usd

    def usd_to_retrieve(self, objects: int, size: int) -> float:
        """Return the price of retrieving so many objects of `size` bytes in total, besides their GET requests."""
        return size / GB * self.retrieve + objects * self.retrieve_request


class Prices(_Table):
    """The prices of a file: by storage class, with their source and date."""

    source: str
    date: str
    classes: dict[str, ClassPrices]

    @property
    def standard(self) -> ClassPrices:
        """The prices of the class in which plans, rows, indexes and manifests are stored."""
        return self.classes["STANDARD"]


@cache
def list_prices() -> Prices:
    """Return the list prices."""
    return load_prices(str(LIST_PRICES))


def load_prices(name: str) -> Prices:
    """Read a file of prices.

    Raises:
        Usage: it cannot be read, or is not valid; the message says where.
    """
    todo = "A file of prices is TOML: copy streamvault/manifests/verbs/prices.toml, and change it."
    try:
        prices = Prices.model_validate(tomllib.loads(load_file(name, "--prices", todo)))
    except tomllib.TOMLDecodeError as error:
        raise Usage("--prices is not TOML", where=f"{name}: {error}", todo=todo) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Usage(
            "--prices has a value that is not valid", where=f"{name}: {where}: {first['msg']}", todo=todo
        ) from None
    if "STANDARD" not in prices.classes:
        raise Usage("--prices has no prices for STANDARD", where=name, todo=todo)
    return prices


@dataclass(frozen=True, slots=True)
class Requests:
    """Numbers of requests, by price. Deletions are free.

    Attributes:
        puts: PUT requests.
        lists: LIST requests.
        gets: GET and HEAD requests.
    """

    puts: int = 0
    lists: int = 0
    gets: int = 0

    def __add__(self, other: Self) -> Requests:
        return Requests(self.puts + other.puts, self.lists + other.lists, self.gets + other.gets)

    def __mul__(self, times: int) -> Requests:
        return Requests(self.puts * times, self.lists * times, self.gets * times)

    @property
    def total(self) -> int:
        """Their number."""
        return sum(astuple(self))

    def usd(self, prices: ClassPrices) -> float:
        """Return their price in US dollars."""
        return (self.puts + self.lists) * prices.put + self.gets * prices.get

    def cost(self, objects: int, *, estimated: bool = False) -> Cost:
        """Return them as reports have them.

        Args:
            objects: number of data objects.
            estimated: whether that is an estimate.
        """
        usd = round(self.usd(list_prices().standard), 4)
        return Cost(
            objects=objects, objects_estimated=estimated, puts=self.puts, lists=self.lists, gets=self.gets, usd=usd
        )


@dataclass(frozen=True, slots=True)
class Part:
    """What a generation has of a segment. Its events are taken to be of one size.

    Attributes:
        start: offset at which it begins.
        end: offset at which it ends; not that of `start`.
        events: number of its events; 0 for bytes.
        range_size: size of the ranges (bytes).
        alike: how many parts are like this one: of as many segments, or of their later generations, too.
    """

    start: int
    end: int
    events: int
    range_size: int
    alike: int = 1

    @property
    def bytes(self) -> int:
        """Bytes of a segment."""
        return self.end - self.start

    @property
    def units(self) -> int:
        """What is not divided between ranges: its events, or its bytes."""
        return self.events or self.bytes

    @property
    def is_large(self) -> bool:
        """Whether each event is a range of its own, see `ArchivedRange.is_large`."""
        return self.bytes > self.events * (HEADER_BYTES + MAX_EVENT_BYTES) > 0

    @property
    def rows(self) -> int:
        """How many spans of a segment have a range, each of which leaves a row."""
        if self.bytes > self.range_size * self.units:  # then no two events begin in the same span
            return self.units
        last = self.start + self.bytes * (self.units - 1) // self.units
        return count_spans(self.start, last + 1, self.range_size)

    @property
    def ranges(self) -> int:
        """How many ranges a segment has."""
        return self.events if self.is_large else self.rows

    def pieces(self, ranges: int = 1) -> list[tuple[int, int]]:
        """Return what is in so many neighbouring ranges at a time: units, and how often. The segment's end is last."""
        count = ceil(self.ranges / ranges)
        if self.ranges == self.units:
            return [(ranges, count - 1), (self.units - ranges * (count - 1), 1)]
        if count == 1:
            return [(self.units, 1)]
        low = self.start // self.range_size + ranges
        first = self._before(low * self.range_size)
        before = self._before((low + ranges * (count - 2)) * self.range_size)
        least = self.range_size * ranges * self.units // self.bytes
        more = before - first - least * (count - 2)
        return [(first, 1), (least, count - 2 - more), (least + 1, more), (self.units - before, 1)]

    def _before(self, offset: int) -> int:
        """Return how many units begin before an offset."""
        return ceil((offset - self.start) * self.units / self.bytes)


def objects_of(layout: Layout, parts: Iterable[Part]) -> int:
    """Return the number of data objects."""
    return sum(layout.object_count(part.ranges, part.events) * part.alike for part in parts)


def ranges_of(parts: Iterable[Part]) -> int:
    """Return the number of ranges."""
    return sum(part.ranges * part.alike for part in parts)


def to_export(layout: Layout, parts: Sequence[Part], *, generation: int) -> Requests:
    """Return the requests of an export: objects, a row for each range, the listing that proves them, the metadata.

    Args:
        layout: the layout.
        parts: what the generation has of each segment.
        generation: its number; the first one of an archive tests the server.
    """
    rows = sum(part.rows * part.alike for part in parts)
    proof = sum(_to_prove(layout, part) * part.alike for part in parts)
    fixed = Requests(
        puts=4,  # plan, record of its end, index, manifest
        # generations in force, before and after; rows, at both ends
        lists=3 * _manifest_pages(generation - 1) + _manifest_pages(generation) + 1 + _pages(rows + 2),
        gets=1 if generation == 1 else 3,  # the plan of an unfinished run; the manifest before
    )
    probe = Requests(puts=8, lists=1) if generation == 1 else Requests()
    return fixed + probe + Requests(puts=objects_of(layout, parts) + rows, lists=proof)


def least_to_export(layout: Layout, parts: Sequence[Part]) -> int:
    """Return the least number of requests by which an export could leave a proved archive and survive a kill.

    That is a PUT for each object and for the row of each range, one listing of all objects, and a PUT for each of plan,
    index and manifest.
    """
    objects, rows = objects_of(layout, parts), sum(part.rows * part.alike for part in parts)
    return objects + rows + ceil(objects / PAGE) + 3


def to_read_history(generations: int) -> Requests:
    """Return the requests that find and read manifests and indexes."""
    return Requests(lists=_manifest_pages(generations), gets=2 * generations)


def to_import(ranges: Sequence[tuple[str, ArchivedRange, int]], generations: int, *, may_be_cold: bool) -> Requests:
    """Return the requests of an import: the manifests, each object once, and the listing of events' keys.

    Args:
        ranges: layout, range, and the bytes of it that are restored.
        generations: number of manifests read.
        may_be_cold: whether the store has classes that cannot be read at once; then a sample is tested.
    """
    return to_read_history(generations) + to_touch(len(ranges) if may_be_cold else 0) + to_read_all(ranges)


def to_touch(ranges: int) -> Requests:
    """Return the requests that test whether ranges can be read at once, by a sample."""
    sample = ceil(ranges / ceil(ranges / SAMPLE_SIZE)) if ranges else 0
    return Requests(lists=sample, gets=sample)


def to_read_all(ranges: Iterable[tuple[str, ArchivedRange, int]]) -> Requests:
    """Return the requests that read ranges, given as for `to_import`."""
    found = Requests()
    for layout, row, size in ranges:
        found += to_read(open_layout(layout), row.events, size, frames=bool(row.frames), is_large=row.is_large)
    return found


def to_read(layout: Layout, events: int, size: int, *, frames: bool = False, is_large: bool = False) -> Requests:
    """Return the requests that read a range, or a part of one.

    Args:
        layout: its layout.
        events: its events.
        size: bytes of the segment.
        frames: whether it is compressed.
        is_large: whether it is one event of more than 8 MiB.
    """
    if not layout.one_object_per_event:
        return Requests(gets=requests_to_read(size, frames=frames))
    if is_large:
        return Requests(lists=1, gets=ceil((size - HEADER_BYTES) / PART_BYTES))
    return Requests(lists=_pages(events + 1), gets=events)


def to_read_part(layout: Layout, part: Part, *, frames: bool = False, is_last: bool = True) -> Requests:
    """Return the requests that read the ranges of a part.

    Args:
        layout: its layout.
        part: the part.
        frames: whether it is compressed.
        is_last: whether the archive has nothing of the segments behind it.
    """
    found = Requests()
    *pieces, end = [(units, times) for units, times in part.pieces() if times]
    for units, times in [*pieces, end]:
        size = part.bytes * units // part.units
        found += to_read(layout, units, size, frames=frames, is_large=part.is_large) * times
    if is_last and layout.one_object_per_event and not part.is_large:  # there is no key behind
        found += Requests(lists=_pages(end[0]) - _pages(end[0] + 1))
    return found * part.alike


def to_check(
    layout: Layout,
    held: Iterable[Sequence[Part]],
    generations: int,
    *,
    empty: int = 0,
    reads: bool = False,
    checksums: bool = False,
) -> Requests:
    """Return the requests of a check of an archive that was not read back yet, but for those that read data.

    Args:
        layout: the archive's layout.
        held: of each segment that has ranges, or of several that are alike, the generations' parts, in order.
        generations: number of generations.
        empty: number of segments' folders without ranges where strays are looked for: in a layout, below the head.
        reads: whether data are read, too.
        checksums: whether the checksums that the store keeps are compared.
    """
    found = Requests(lists=6 * _manifest_pages(generations) + 11, gets=2 * generations + 2)
    if reads:  # and what was read back is recorded
        found += Requests(puts=generations, lists=2 * _manifest_pages(generations))
    for parts in held:
        segments = parts[-1].alike
        if layout.one_object_per_event:
            lists = sum(_to_list(part, 1, is_last=part is parts[-1]) * part.alike for part in parts)
            found += Requests(lists=lists)
        else:
            lists = ceil(ranges_of(parts) // segments / ranges_a_task(layout.name, reads=reads)) * segments
            found += Requests(lists=lists, gets=ranges_of(parts) * checksums)
        found += _STRAYS * segments
    return found + _STRAYS * empty


def cost_of_export(layout: Layout, parts: Sequence[Part], *, generation: int, exact: bool) -> Cost:
    """Return the cost of an export; arguments as for `to_export`, and whether the numbers of events are exact."""
    estimated = layout.one_object_per_event and not exact
    return to_export(layout, parts, generation=generation).cost(objects_of(layout, parts), estimated=estimated)


def cost_of_import(ranges: Sequence[tuple[str, ArchivedRange, int]], generations: int, *, may_be_cold: bool) -> Cost:
    """Return the cost of an import; arguments as for `to_import`."""
    objects = sum(open_layout(layout).object_count(1, row.events) for layout, row, _ in ranges)
    return to_import(ranges, generations, may_be_cold=may_be_cold).cost(objects)


def cost_of_conversion(generations: Sequence[Sequence[tuple[str, ArchivedRange]]], name: LayoutName) -> Cost:
    """Return the cost of a conversion; it reads twice what it writes as an object for each event.

    Args:
        generations: of each generation to convert, the stored layouts and ranges.
        name: the layout to write.
    """
    layout = open_layout(name)
    found, objects = to_read_history(len(generations)), 0
    for rows in generations:
        made = sum(layout.object_count(1, row.events) for _, row in rows)
        read = to_read_all((stored, row, row.end - row.start) for stored, row in rows)
        found += read * (2 if layout.one_object_per_event else 1)
        found += Requests(puts=made + len(rows) + 4, lists=8 + _pages(len(rows) + 2), gets=4)
        objects += made
    return found.cost(objects)


def cost_of_handoff(files: Iterable[Iterable[tuple[str, ArchivedRange]]]) -> Cost:
    """Return the cost of a handoff: reading as for an import, and the table's files, each looked up before its PUT.

    Args:
        files: of each file, the layout and the row of each range that it is made of.
    """
    found, count = Requests(puts=3), 0
    for rows in files:
        count += 1
        found += to_read_all((stored, row, row.end - row.start) for stored, row in rows) + Requests(puts=1, gets=1)
    return found.cost(count)


_STRAYS = Requests(lists=3)
"""What looks for strays of a segment in a layout: before and after the ranges in its folder, and behind the folder."""


def _to_prove(layout: Layout, part: Part) -> int:
    """Return how many pages of listings prove that a segment's objects are there."""
    size = ranges_a_task(layout.name, reads=False)
    return _to_list(part, size, is_last=True) if layout.one_object_per_event else ceil(part.ranges / size)


def _to_list(part: Part, ranges: int, *, is_last: bool) -> int:
    """Return the pages of the listings of a segment's events, each of so many ranges and the key behind them."""
    *pieces, (end, _) = part.pieces(ranges)
    return sum(_pages(events + 1) * times for events, times in pieces) + _pages(end + (not is_last))


def _manifest_pages(generations: int) -> int:
    """Return the pages of the listing of manifests and indexes."""
    return _pages(2 * generations)


def _pages(keys: int) -> int:
    """Return how many requests list so many keys."""
    return max(ceil(keys / PAGE), 1)
