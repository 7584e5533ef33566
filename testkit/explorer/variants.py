"""More actors: the same verbs with other range sizes, layouts and cuts, clocks that jump, requests that arrive late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamvault import compact_archive, export_stream, replicate_stream, rotate_stream
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import StreamCut
from testkit.explorer.command import Command
from testkit.explorer.scenes import CLUSTER, NAME, ROOT, Scene, inner_boundary, open_source
from testkit.explorer.world import World

TARGET = f"local://{CLUSTER}/{NAME.scope}/target"
SMALL, LARGE = 70, 130
"""Range sizes that do not divide each other, nor that of the scenes."""

ELEVEN_HOURS = 11 * 3600.0
YEAR = 365 * 24 * 3600.0
DAY = 24 * 3600.0


def _export(**change: Any) -> Callable[[Scene, World], object]:
    return lambda scene, _: export_stream(scene.stream, ROOT, same_stream=True, **{**scene.options, **change})


def _rotate(**change: Any) -> Callable[[Scene, World], object]:
    return lambda scene, _: rotate_stream(scene.stream, ROOT, same_stream=True, **{**scene.options, **change})


def _compact(**change: Any) -> Callable[[Scene, World], object]:
    return lambda scene, _: compact_archive(scene.archive, master="inline", **change)


def _other_layout(scene: Scene, _: World) -> object:
    layout = "chunks" if scene.layout == "events" else "events"
    return export_stream(scene.stream, ROOT, same_stream=True, **{**scene.options, "layout": layout, "compress": ""})


def _middle() -> dict[str, int]:
    """A cut through the middle of each open segment."""
    with open_source() as store:
        offsets = {}
        for info in store.segment_info(NAME, list(store.describe(NAME).tail.offsets)):
            data = b"".join(map(bytes, store.read(NAME, info.segment, info.start_offset, info.write_offset)))
            offsets[info.segment] = inner_boundary(data, info.start_offset)
        return StreamCut(NAME, offsets).to_json()


def _export_to(scene: Scene, _: World) -> object:
    return export_stream(scene.stream, ROOT, same_stream=True, to_cut=_middle(), **scene.options)


def _export_from(scene: Scene, _: World) -> object:
    return export_stream(scene.stream, ROOT, same_stream=True, from_cut=_middle(), **scene.options)


def _write_large(_: Scene, world: World) -> None:
    """Events that are longer than a range; what is before and behind them is short."""
    world.names += 1
    with open_source() as store:
        for segment in sorted(store.describe(NAME).tail.offsets):
            with store.appender(NAME, segment) as appender:
                word = f"l{world.names}-{segment.number}-".encode()
                appender.append(frame(word) + frame(word * (1 + 3 * LARGE // len(word))) + frame(word + b"end"))


def _jump(seconds: float) -> Callable[[Scene, World], None]:
    def jump(_: Scene, world: World) -> None:
        world.skew += seconds

    return jump


def _of_archive(scene: Scene, _: World) -> object:
    return replicate_stream(scene.archive, TARGET, master="inline")


VARIANTS: dict[str, Command] = {
    **{f"export-{size}": Command(_export(range_size=size)) for size in (48, SMALL, 72, LARGE)},
    "export-other-layout": Command(_other_layout),
    "export-to": Command(_export_to, again=_export()),
    "export-from": Command(_export_from, again=_export()),
    "rotate-70": Command(_rotate(range_size=SMALL, truncate_source=True)),
    "rotate-2": Command(_rotate(keep=2, truncate_source=True), keep=2),
    "expire-old": Command(_rotate(keep_for=DAY), keep=1, keep_for=DAY),
    "compact-1": Command(_compact(target=1)),
    "compact-250": Command(_compact(target=250)),
    "compact-3": Command(_compact(at_least=3)),
    "compact-soon": Command(_compact(grace=600.0)),
    "write-large": Command(_write_large, outside=True),
    "clock-ahead": Command(_jump(YEAR), outside=True),
    "clock-back": Command(_jump(-ELEVEN_HOURS), outside=True),
    "day": Command(lambda _, world: world.sleep(DAY), outside=True),
    "arrive": Command(lambda _, world: world.arrive(), outside=True),
}

MIRROR_VARIANTS: dict[str, Command] = {
    "replicate-archive": Command(_of_archive),
}
