"""Two clusters and a root for archives, with what the pages of the documentation expect to find there."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from uuid import uuid4

import pytest

from streamvault import export_stream
from streamvault.streamstore.model import KeyRange, Scaling, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.store import ReaderGroup, StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.streams import append_events, events_of, frame, make_byte_stream
from tests.pages import DOCS, Block, Page, blocks


@dataclass
class Site:
    """Where a section of a page is followed; everything is made for it.

    Attributes:
        here, there: the clusters' URIs.
        vault: a folder or a bucket, as a URI; archives are in ``backups`` below it.
        folder: the current folder.
        scope: what the pages call ``shop``.
    """

    here: str
    there: str
    vault: str
    folder: Path
    capfd: pytest.CaptureFixture[str]
    scope: str = "shop"
    places: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        archive = f"{self.vault}/backups/{self.scope}/orders"
        self.places = {
            **dict.fromkeys(("pravega+tls://THERE:9090", "pravega://THERE:9090"), self.there),
            **{f"pravega://{each}:9090": self.here for each in ("HERE", "HOST", "127.0.0.1", "localhost")},
            "local:///tmp/trial/streams": self.here,
            "file:///data/vault": f"{self.vault}/backups",
            "file:///data": self.vault,
            "s3://vault": self.vault,
            "/var/lib/node_exporter": str(self.folder),
            "ARCHIVE": archive,
            "STREAM": f"{self.here}/{self.scope}/new",
            "2026-01-31T18:00:00Z": f"{datetime.now(UTC) + timedelta(minutes=1):%FT%TZ}",
            **dict.fromkeys(("/shop/", "/demo/"), f"/{self.scope}/"),
        }
        for name in ("backups", "other", "prod"):
            if self.vault.startswith("file:"):
                Path(self.vault.removeprefix("file://"), name).mkdir(parents=True)
        with self.store() as store:
            make_orders(store, self.name("orders"))
            pointer = next(events_of(store, self.name("orders")))[0]
        fingerprint = export_stream(self.uri("orders"), f"{self.vault}/backups").fingerprint
        self.places |= {"5f0c…e1": fingerprint, "HEX": fingerprint, "shop/orders/3.#epoch.1:8-89": str(pointer)}

    def store(self) -> StreamStore:
        return parse_stream(self.uri("orders"))[0].open()

    def name(self, stream: str) -> StreamName:
        return StreamName(self.scope, stream)

    def uri(self, stream: str) -> str:
        return f"{self.here}/{self.name(stream)}"

    def page(self, file: str) -> Page:
        return Page(file, self.places, self.capfd)

    def run(self, *lines: str) -> None:
        """Run commands with the pages' places."""
        for line in lines:
            self.page("index.md").line(f"streamvault {line}")

    def write_cuts(self, **files: str) -> None:
        """Write stream cuts of `shop/orders` into files: its head, its tail, or the end of the archive."""
        with self.store() as store:
            described = store.describe(self.name("orders"))
        shown = self.page("index.md").command(["show", "ARCHIVE"])
        for name, which in files.items():
            cut = shown["to"] if which == "archived" else getattr(described, which).to_json()
            (self.folder / f"{name}.json").write_text(cut if isinstance(cut, str) else json.dumps(cut))

    def add(self, *payloads: bytes) -> None:
        with self.store() as store:
            for segment in store.describe(self.name("orders")).tail.offsets:
                append_events(store, self.name("orders"), segment, payloads)


def make_orders(store: StreamStore, name: StreamName) -> None:
    """A stream of JSON: two segments, one of which is split."""
    store.create_scope(name.scope)
    store.create_stream(name, StreamConfiguration(scaling=Scaling(min_segments=2)))
    split = min(store.describe(name).tail.offsets)
    append_events(store, name, split, map(order, range(10)))
    keys = store.describe(name).epochs[-1].segments[split]
    middle = (keys.low + keys.high) / 2
    store.scale(name, [split], [KeyRange(keys.low, middle), KeyRange(middle, keys.high)])
    for number, segment in enumerate(store.describe(name).tail.offsets, start=1):
        append_events(store, name, segment, map(order, range(10 * number, 10 * number + 10)))


def order(number: int) -> bytes:
    placed = f"2026-01-{number % 28 + 1:02d}T18:00:00Z"
    return json.dumps({"order": number, "customer": {"id": f"customer-{number}"}, "placed": placed}).encode()


def _byte_stream(site: Site) -> None:
    with site.store() as store:
        make_byte_stream(store, StreamName("media", "recording"))


def _deleted(site: Site) -> None:
    with site.store() as store:
        store.delete(site.name("orders"))


def _foreign_bytes(site: Site) -> None:
    queue = "pravega://HERE:9090/ops/restores"
    site.run(f"request-restore ARCHIVE pravega://HERE:9090/shop/again --queue {queue}", f"work {queue} --once")
    name = StreamName("ops", "restores")
    with site.store() as store:
        (segment,) = store.describe(name).tail.offsets
        with closing(store.appender(name, segment, in_flight=1)) as appender:
            site.places["3589"] = str(appender.offset)
            appender.append(frame(b"not a request"))
            appender.flush()


def _gifts(site: Site) -> None:
    """Events get a new field after the first handoff."""
    site.run("handoff ARCHIVE --decode json")
    site.add(b'{"order": 41, "gift": true}')
    site.run("export pravega://HERE:9090/shop/orders s3://vault/backups")
    (site.folder / "orders.json").write_text('{"gift": "boolean"}')


def _group(site: Site) -> None:
    orders = site.name("orders")
    with site.store() as store:
        group = ReaderGroup(scope=orders.scope, name="billing", starts={orders: None}, ends={orders: None}, id=uuid4())
        store.reader_groups().create(group, StreamCut(orders, store.describe(orders).head.offsets))


def _parts(site: Site) -> None:
    site.add(b"{}")
    site.write_cuts(a="head", b="archived", c="archived", d="tail")


def _declared(site: Site) -> None:
    text = f'root = "{site.vault}/backups"\n\n[[streams]]\nstream = "{site.uri("orders")}"\n'
    (site.folder / "streams.toml").write_text(text)


Step = Callable[[Site], None]


def _run(*lines: str) -> Step:
    return lambda site: site.run(*lines)


REPLICA = "replicate pravega://HERE:9090/shop/orders pravega+tls://THERE:9090/shop/orders"
BEFORE: Mapping[tuple[str, str], Sequence[Step]] = {
    ("guide/copy.md", "Parts of a stream"): [_parts],
    ("guide/export.md", "What an export contains"): [lambda site: site.write_cuts(end="archived")],
    ("guide/export.md", "Byte streams"): [_byte_stream],
    ("guide/import.md", "Under its own name"): [lambda site: site.write_cuts(cut="archived"), _deleted],
    ("guide/lake.md", "Queries"): [_run("handoff ARCHIVE --format parquet --decode json")],
    ("guide/lake.md", "Back to a stream"): [_run("handoff ARCHIVE --format parquet --decode json")],
    ("guide/lake.md", "New fields"): [_gifts],
    ("guide/layouts.md", "One event"): [
        _run("convert file:///data/vault/shop/orders file:///data/compact --layout chunks")
    ],
    ("guide/queue.md", "When something else has written to the queue"): [_foreign_bytes],
    ("guide/read.md", "On the command line"): [lambda site: site.write_cuts(**{"last-seen": "head"})],
    ("guide/reader-groups.md", "In an archive"): [_group, lambda site: site.add(b"{}")],
    ("guide/reader-groups.md", "Migrating groups"): [_group],
    ("guide/reader-groups.md", "Its position in another stream"): [
        _group,
        _run("copy pravega://HERE:9090/shop/orders pravega://HERE:9090/shop/orders-copy"),
    ],
    ("guide/standby.md", "Replicating"): [_run("export pravega://HERE:9090/shop/orders s3://vault/prod")],
    ("guide/status.md", "Streams of a scope"): [_declared],
    ("guide/standby.md", "When the source is lost"): [_run(REPLICA)],
    ("guide/standby.md", "When writers move"): [_run(REPLICA)],
}
"""(page, section) → what happens before."""


ALTERNATIVES = {("guide/reader-groups.md", "Migrating groups"), ("guide/standby.md", "Replicating")}
"""Sections with a site for each block."""


@dataclass(frozen=True)
class Walk:
    """Blocks of a section of a page that are run one after the other."""

    file: str
    section: str
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.section}"

    def follow(self, site: Site) -> None:
        """Run the commands as they are written, but for their places."""
        for step in BEFORE.get((self.file, self.section), ()):
            step(site)
        page = site.page(self.file)
        for block in self.blocks:
            for line in block.lines:
                page.line(line)


def walks(files: Iterable[str], needs: Container[str] = ("",)) -> list[Walk]:
    """The walks through pages, of blocks that need nothing else."""
    found = list[Walk]()
    for file in files:
        shown = [block for block in blocks((DOCS / file).read_text()) if block.needs in needs]
        for section, group in groupby(shown, lambda block: block.section):
            below = list(group)
            parts = [[each] for each in below] if (file, section) in ALTERNATIVES else [below]
            found += [Walk(file, section, tuple(part)) for part in parts]
    return found
