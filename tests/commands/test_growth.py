"""How the number of requests grows with the generations of an archive, by counting them: never faster than these do.

A page of a listing has a few keys here, so that one sees a command that lists all manifests for each generation.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from streamvault import (
    compact_archive,
    export_stream,
    get_event,
    list_archives,
    read_archive,
    rotate_stream,
    show_status,
    write_table,
)
from streamvault.manifests.manifest import SchemaEntry, SchemaGroup
from streamvault.manifests.verbs.costs import Requests
from streamvault.sources.schemas import RegistryGroup
from testkit.small_archives import RANGE_SIZE, Vault, a_root, contents, objects_of
from tests import metered
from tests.counting import counted

FEW, MANY = 3, 12
RECORDS = 4
"""Objects in `_manifest/` for a generation, at most: its manifest, index, mark and checksums of blocks."""
PAGE = 8
"""Keys of a page of a listing, instead of a thousand."""


@dataclass(frozen=True)
class Archives:
    """A stream of some generations, and the objects of its archive, from which each test makes one of its own."""

    vault: Vault
    objects: Mapping[str, bytes]

    def copy(self) -> Vault:
        root = a_root()
        for key, data in self.objects.items():
            objects_of(root).put(key, data)
        return Vault(self.vault.folder, root)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Archives]:
    found = {}
    for generations in (FEW, MANY):
        vault = Vault(tmp_path_factory.mktemp("streams"))
        vault.create()
        for number in range(generations):
            vault.add(b"%03d" % number * 100)
            vault.export("chunks")
        found[generations] = Archives(vault, contents(vault.root))
    return found


Run = Callable[[Vault], object]


def rotate(vault: Vault, **options: Any) -> None:
    rotate_stream(vault.uri(), vault.root, layout="chunks", range_size=RANGE_SIZE, master="inline", **options)


def compact(vault: Vault) -> None:
    assert compact_archive(vault.archive, master="inline").runs


def hand_off(vault: Vault, **options: Any) -> None:
    write_table(vault.archive, format="parquet", master="inline", **options)


def get(vault: Vault, *, of: int) -> None:
    pointer, payload = vault.events()[of]
    assert get_event(vault.archive, str(pointer)) == payload


def cat_first(vault: Vault) -> None:
    assert read_archive(vault.archive, limit=2).read_all().num_rows == 2


def ls(vault: Vault) -> None:
    (found,) = list_archives(vault.root)
    assert found.events == len(vault.events())


def status(vault: Vault) -> None:
    (found,) = show_status(vault.root).statuses
    assert found.events == len(vault.events())


def hand_off_noted(vault: Vault) -> None:
    """A table of the schemas that the newest generation has noted."""
    data = base64.b64encode(b'{"properties": {"id": {"type": "integer"}}}').decode()
    entry = SchemaEntry(encoding=0, type="x", format="Json", version=0, data=data, codec="")
    with patch.object(RegistryGroup, "find", return_value=SchemaGroup(group="g", entries=(entry,))):
        export_stream(
            vault.uri(), vault.root, layout="chunks", range_size=RANGE_SIZE, schemas="http://g", master="inline"
        )
    with patch("streamvault.lake.resolve.check_sample"):  # the events have other encodings
        hand_off(vault, decode="registry")


hand_off_each = partial(hand_off, target_size=1)
"""Each generation in a file of its own."""


@dataclass(frozen=True)
class Case:
    """A command, and what it needs at most for each generation more.

    Attributes:
        run: the command.
        each: GET and HEAD requests, LIST requests but for `listings`, and PUT requests for each generation.
        listings: how often it lists all manifests.
        before: what is run before it.
        page: keys of a page of a listing.
        steps: GET requests for four times as many generations.
    """

    run: Run
    each: Requests
    listings: int
    before: Run | None = None
    page: int = PAGE
    steps: int = 0


CASES = {
    "ls": Case(ls, Requests(), listings=1),
    "status": Case(status, Requests(), listings=1),
    "get of the first event": Case(partial(get, of=0), Requests(), listings=3, steps=2),
    "get of the last event": Case(partial(get, of=-1), Requests(), listings=3, steps=2),
    "cat of the first events": Case(cat_first, Requests(), listings=3),
    "first rotate": Case(rotate, Requests(puts=1, lists=1, gets=3), listings=8),
    "rotate again": Case(rotate, Requests(), listings=8, before=rotate),
    "compact": Case(compact, Requests(gets=4), listings=8),
    "first handoff": Case(hand_off, Requests(gets=3), listings=3),
    # each publication lists what the table has
    "first handoff of large generations": Case(
        hand_off_each, Requests(puts=5, gets=10, lists=2), listings=0, page=1000
    ),
    "handoff again": Case(hand_off, Requests(), listings=3, before=hand_off),
    "handoff by noted schemas again": Case(hand_off, Requests(), listings=5, before=hand_off_noted),
    "handoff of large generations again": Case(hand_off_each, Requests(), listings=5, before=hand_off_each),
}


def measured(monkeypatch: pytest.MonkeyPatch, archives: Archives, case: Case) -> Requests:
    vault = archives.copy()
    if case.before is not None:
        case.before(vault)
    monkeypatch.setattr(metered, "PAGE", case.page)
    with counted(monkeypatch) as requests:
        case.run(vault)
    return requests[0]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_requests_for_each_generation(made: dict[int, Archives], monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    few, many = (measured(monkeypatch, made[number], case) for number in (FEW, MANY))
    more = MANY - FEW
    pages = case.listings * math.ceil(more * RECORDS / PAGE)
    assert many.puts - few.puts <= case.each.puts * more
    assert many.gets - few.gets <= case.each.gets * more + case.steps
    assert many.lists - few.lists <= case.each.lists * more + pages
