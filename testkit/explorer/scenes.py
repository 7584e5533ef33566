"""Initial states of schedules: a stream and its archive. Each is created once; a schedule runs on a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from streamvault.layouts.layout import Compression, LayoutName
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.errors import NoSuchStream
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import ContentKind, KeyRange, Scaling, StreamConfiguration, StreamName
from streamvault.streamstore.own import is_own
from streamvault.streamstore.store import StreamStore
from streamvault.streamstore.uri import parse_stream
from testkit.explorer.world import World, in_memory

CLUSTER = "/cluster"
NAME = StreamName("scope", "stream")
ROOT = "memory://vault"
RANGE_SIZE = 96
HARSH = "harsh"
LAYOUTS: dict[str, tuple[LayoutName, Compression]] = {
    "events": ("events", ""),
    "chunks": ("chunks", ""),
    "zstd": ("chunks", "zstd"),
}


@dataclass(frozen=True)
class Scene:
    """An initial state: the layout in which commands archive, and the stores."""

    name: str
    layout: LayoutName
    compress: Compression
    world: World
    content: ContentKind = "events"

    @property
    def options(self) -> dict[str, Any]:
        """The options of exports and rotations."""
        options = {"layout": self.layout, "compress": self.compress, "range_size": RANGE_SIZE, "master": "inline"}
        return options if self.content == "events" else {**options, "content": self.content}

    @property
    def stream(self) -> str:
        return f"local://{CLUSTER}/{NAME}"

    @property
    def archive(self) -> str:
        return f"{ROOT}/{NAME}"

    @property
    def root(self) -> RootAddress:
        return RootAddress.parse(ROOT)


def open_source(cluster: str = CLUSTER) -> StreamStore:
    return parse_stream(f"local://{cluster}/{NAME}")[0].open()


def add(store: StreamStore, word: str, count: int, name: StreamName = NAME) -> None:
    """Append events of several sizes to every open segment; their contents identify them."""
    for segment in sorted(store.describe(name).tail.offsets):
        with store.appender(name, segment) as appender:
            appender.append(
                b"".join(frame(_payload(f"{word}-{segment.number}-{index}", index)) for index in range(count))
            )


def inner_boundary(data: bytes, start: int) -> int:
    """The offset of a boundary of events in the middle of a segment's bytes, which begin at an offset."""
    at, ends = 0, [start]
    while at + 8 <= len(data):
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        ends.append(start + at)
    return ends[len(ends) // 2]


def _payload(text: str, index: int) -> bytes:
    return b"" if index % 5 == 4 else text.encode() * (1 + index % 3)


def make(cluster: str = CLUSTER, word: str = "a", count: int = 5) -> None:
    """A stream of two segments."""
    with open_source(cluster) as store:
        store.create_scope(NAME.scope)
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
        add(store, word, count)


def scale(store: StreamStore) -> None:
    """Split the first open segment, or the next time merge the other one with its neighbour.

    One description decides: between two, a move may put a tombstone of one segment in the stream's place.
    """
    described = store.describe(NAME)
    if is_own(described.configuration):
        raise NoSuchStream("only a tombstone is left of the stream", where=str(NAME))
    current = described.epochs[-1].segments
    (first, held), *rest = current.items()
    if len(current) == 2:
        middle = (held.low + held.high) / 2
        store.scale(NAME, [first], [KeyRange(held.low, middle), KeyRange(middle, held.high)])
    else:
        second, other = rest[0]
        store.scale(NAME, [first, second], [KeyRange(held.low, other.high)])


def _new(_: Scene) -> None:
    make()


def _scaled(_: Scene) -> None:
    make(count=3)
    with open_source() as store:
        scale(store)
        add(store, "b", 3)


def _grown(scene: Scene) -> None:
    """Three generations, and events that are in no generation."""
    make(count=3)
    _export(scene)
    for word in ("b", "c"):
        with open_source() as store:
            add(store, word, 2)
        _export(scene)
    with open_source() as store:
        add(store, "d", 3)


def _grown_scaled(scene: Scene) -> None:
    """As grown, with a scale within the second generation and one after the last."""
    make(count=3)
    _export(scene)
    with open_source() as store:
        add(store, "b", 2)
        scale(store)
        add(store, "c", 2)
    _export(scene)
    with open_source() as store:
        add(store, "d", 2)
        scale(store)
        add(store, "e", 2)


def _freed(scene: Scene) -> None:
    """As grown, but the archive has the only copy of its data."""
    _grown(scene)
    _free(scene)


def _free(scene: Scene) -> None:
    from streamvault.manifests.archive import Archive  # noqa: PLC0415

    to = Archive(scene.root, NAME).manifest().to
    with open_source() as store:
        store.truncate(to)


def _merged(scene: Scene) -> None:
    """Four generations, the first two merged, without clean-up; the archive has the only copy."""
    from streamvault import compact_archive  # noqa: PLC0415

    make(count=3)
    _export(scene)
    with open_source() as store:
        add(store, "b", 2)
    _export(scene)
    compact_archive(scene.archive, master="inline")
    for word in ("c", "d"):
        with open_source() as store:
            add(store, word, 2)
        _export(scene)
    _free(scene)
    with open_source() as store:
        add(store, "e", 2)


def _strayed(scene: Scene) -> None:
    """As grown, with strays inside events: in each generation, and after the last one."""
    from streamvault.layouts.keys import chunk_key, event_key  # noqa: PLC0415

    _grown(scene)
    key_of = event_key if scene.layout == "events" else chunk_key
    root = scene.root.open()
    with open_source() as store:
        for segment in store.describe(NAME).tail.offsets:
            data = b"".join(map(bytes, store.read(NAME, segment, 0, store.describe(NAME).tail.offsets[segment])))
            at = 0
            while at < len(data):
                length = 8 + int.from_bytes(data[at + 4 : at + 8], "big")
                root.put(f"{NAME}/{key_of(segment, at + 1, 9)}", b"?")
                at += length


def _joined(scene: Scene) -> None:
    """Two generations that were merged and read back, and one that continues their last range; the grace is over."""
    from streamvault import compact_archive, rotate_stream  # noqa: PLC0415

    make()
    _export(scene, range_size=70)
    _grow_by(scene, "w1", 70)
    compact_archive(scene.archive, master="inline")
    rotate_stream(scene.stream, ROOT, truncate_source=True, **scene.options)
    _grow_by(scene, "w2", 70)
    scene.world.sleep(7200)
    with open_source() as store:
        add(store, "e", 2)


def _sizes(scene: Scene) -> None:
    """Generations of two range sizes, neither of which is a multiple of the other."""
    make()
    _export(scene, range_size=48)
    for word, size in (("w1", 48), ("w2", 48), ("w3", 72)):
        _grow_by(scene, word, size)
    with open_source() as store:
        add(store, "e", 2)


def _grow_by(scene: Scene, word: str, range_size: int) -> None:
    with open_source() as store:
        add(store, word, 2)
    _export(scene, range_size=range_size)


def _replica(scene: Scene) -> None:
    """A replica, and events and a scale that it does not have yet."""
    _replicated(scene)
    with open_source() as store:
        add(store, "b", 2)
        scale(store)
        add(store, "c", 2)


def _replica_behind(scene: Scene) -> None:
    """As replica, but the source has truncated some of what the replica does not have."""
    _replica(scene)
    with open_source() as store:
        store.truncate(store.describe(NAME).tail)
        add(store, "d", 2)


def _replica_even(scene: Scene) -> None:
    """A replica that has everything."""
    _replicated(scene)


def _replica_sealed(scene: Scene) -> None:
    """A replica that has everything, as the source was sealed by its user."""
    from streamvault import replicate_stream  # noqa: PLC0415

    _replicated(scene)
    with open_source() as store:
        store.seal(NAME)
    replicate_stream(scene.stream, f"local://{CLUSTER}/scope/target", master="inline")


def _replicated(scene: Scene) -> None:
    from streamvault import replicate_stream  # noqa: PLC0415

    make(count=3)
    replicate_stream(scene.stream, f"local://{CLUSTER}/scope/target", master="inline")


def _export(scene: Scene, **options: Any) -> None:
    from streamvault import export_stream  # noqa: PLC0415

    export_stream(scene.stream, ROOT, **{**scene.options, **options})


SCENES: dict[str, Callable[[Scene], None]] = {
    "new": _new,
    "scaled": _scaled,
    "grown": _grown,
    "grown-scaled": _grown_scaled,
    "freed": _freed,
    "merged": _merged,
    "strayed": _strayed,
    "joined": _joined,
    "sizes": _sizes,
    "bytes": _new,
    "bytes-grown": _grown_scaled,
    "replica": _replica,
    "replica-behind": _replica_behind,
    "replica-even": _replica_even,
    "replica-sealed": _replica_sealed,
}


@cache
def scene_of(name: str) -> Scene:
    """The scene of a name such as ``chunks/grown``, or ``chunks/grown/harsh`` with retries and listings in pages."""
    layout, _, base = name.partition("/")
    base, _, harsh = base.partition("/")
    content: ContentKind = "bytes" if base.startswith("bytes") else "events"
    scene = Scene(name, *LAYOUTS[layout], World(), content)
    if harsh not in {"", HARSH}:
        raise KeyError(name)
    with in_memory(scene.world):
        SCENES[base](scene)
        make("/other", "o", 7)
    scene.world.harsh = bool(harsh)
    return scene
