"""The requests that verbs send to S3, and their price by a list in a file.

The dry runs and `plan` share this model. It is exact for a run that nothing disturbs, as far as the numbers of events
are; what makes it differ is listed here, and each is a few requests:

- An export whose task guesses a range's start wrongly moves that range again. One that follows a scale, finds strays
  or an unfinished run sends some requests more, one that resumes a run sends less.
- A range that is restored in part, as layout ``events``, is listed twice.
- A generation of thousands of ranges of layout ``events`` whose events are not counted: a page of a listing for each
  range, at most.
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
from streamvault.manifests.verbs.warm import SAMPLE_SIZE
from streamvault.objectstore.bulk import PART_BYTES
from streamvault.objectstore.store import PAGE
from streamvault.streamstore.model import HEADER_BYTES

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
        raise Usage("--prices has no prices of STANDARD", where=name, todo=todo)
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
    """What a generation has of a segment, or of several that are alike.

    Attributes:
        ranges: number of the segment's ranges.
        events: number of their events.
        bytes: their bytes.
        segments: how many segments are alike.
    """

    ranges: int
    events: int
    bytes: int = 0
    segments: int = 1


def objects_of(layout: Layout, parts: Iterable[Part]) -> int:
    """Return the number of data objects."""
    return sum(layout.object_count(part.ranges, part.events) * part.segments for part in parts)


def to_export(layout: Layout, parts: Sequence[Part], *, generation: int) -> Requests:
    """Return the requests of an export: objects, a row for each range, the listing that proves them, the metadata.

    Args:
        layout: the layout.
        parts: what the generation has of each segment.
        generation: its number; the first one of an archive tests the server.
    """
    rows = sum(part.ranges * part.segments for part in parts)
    proof = sum(_to_prove(layout, part) * part.segments for part in parts)
    fixed = Requests(
        puts=4,  # plan, record of its end, index, manifest
        lists=4 * _manifest_pages(generation - 1) + 1 + _pages(rows + 2),  # generations in force; rows, at both ends
        gets=1 if generation == 1 else 3,  # the plan of an unfinished run; the manifest before
    )
    probe = Requests(puts=8, lists=1) if generation == 1 else Requests()
    return fixed + probe + Requests(puts=objects_of(layout, parts) + rows, lists=proof)


def least_to_export(layout: Layout, parts: Sequence[Part]) -> int:
    """Return the least number of requests by which an export could leave a proved archive and survive a kill.

    That is a PUT for each object and for the row of each range, one listing of all objects, and a PUT for each of plan,
    index and manifest.
    """
    objects, rows = objects_of(layout, parts), sum(part.ranges * part.segments for part in parts)
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


def to_read_alike(layout: Layout, part: Part, *, frames: bool = False) -> Requests:
    """Return the requests that read the ranges of a part, if all are of a size."""
    if not part.ranges:
        return Requests()
    events, more = divmod(part.events, part.ranges)
    each = to_read(layout, events, ceil(part.bytes / part.ranges), frames=frames) * part.ranges
    return (each + Requests(gets=more if layout.one_object_per_event else 0)) * part.segments


def to_check(
    layouts: Iterable[tuple[Layout, Sequence[Part]]], generations: int, *, reads: bool = False, checksums: bool = False
) -> Requests:
    """Return the requests of a check of an archive that was not read back yet, but for those that read data.

    Args:
        layouts: each layout that the archive has, with what it has of each segment in it: ranges without holes.
        generations: number of generations.
        reads: whether data are read, too.
        checksums: whether the checksums that the store keeps are compared.
    """
    found = Requests(lists=6 * _manifest_pages(generations) + 10, gets=2 * generations + 2)
    if reads:  # and what was read back is recorded
        found += Requests(puts=generations, lists=2 * _manifest_pages(generations))
    for layout, parts in layouts:
        for part in parts:
            # the ranges; for strays: before and after them in the segment's folder, and behind it
            found += Requests(lists=_to_list(layout, part, reads=reads) + 3) * part.segments
            if checksums and not layout.one_object_per_event:
                found += Requests(gets=part.ranges) * part.segments
        found += Requests(lists=1)
    return found


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


def cost_of_handoff(rows: Iterable[tuple[str, ArchivedRange]], files: int) -> Cost:
    """Return the cost of a handoff: reading as for an import, and the table's files, each looked up before its PUT."""
    read = to_read_all((stored, row, row.end - row.start) for stored, row in rows)
    return (read + Requests(puts=files + 3, gets=files)).cost(files)


def _to_prove(layout: Layout, part: Part) -> int:
    """Return how many pages of listings prove that a segment's objects are there."""
    return _to_list(layout, part, reads=False, joined=True)


def _to_list(layout: Layout, part: Part, *, reads: bool, joined: bool = False) -> int:
    """Return how many pages of listings the tasks of a segment's ranges read; with `joined`, each task lists once."""
    if not part.ranges:
        return 0
    size = ranges_a_task(layout.name, reads=reads)
    if not layout.one_object_per_event:
        return ceil(part.ranges / size)
    # each listing ends with the key after its ranges, if there is one
    ranges = size if joined else 1
    before, events = (part.ranges - 1) // ranges, ranges * part.events / part.ranges
    return before * _pages(ceil(events) + 1) + _pages(ceil(part.events - before * events))


def _manifest_pages(generations: int) -> int:
    """Return the pages of the listing of manifests and indexes."""
    return _pages(2 * generations)


def _pages(keys: int) -> int:
    """Return how many requests list so many keys."""
    return max(ceil(keys / PAGE), 1)
