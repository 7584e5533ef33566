"""The actors of schedules: the product's verbs as a user calls them, and changes to a stream meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from streamvault import (
    check_archive,
    compact_archive,
    convert_archive,
    copy_stream,
    delete_archive,
    export_stream,
    follow_stream,
    hold_archive,
    import_stream,
    move_stream,
    promote_replica,
    release_archive,
    replicate_stream,
    rotate_stream,
    sweep_scope,
    work_queue,
    write_table,
)
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream
from streamvault.streamstore.framing import frame
from streamvault.streamstore.model import Scaling, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.own import is_own
from streamvault.streamstore.store import StreamStore
from testkit.explorer.command import Command
from testkit.explorer.scenes import CLUSTER, NAME, ROOT, Scene, add, inner_boundary, open_source, scale
from testkit.explorer.variants import MIRROR_VARIANTS, VARIANTS
from testkit.explorer.world import World

OTHER = "/other"
CONVERTED = "memory://converted"
TARGET_NAME = StreamName("scope", "target")
TARGET = f"local://{CLUSTER}/{TARGET_NAME}"
QUEUE = f"local://{CLUSTER}/ops/queue"
USERS = "users"
"""How the events begin that a user writes to the target."""

HOUR = 7200.0
REPLICATED_SECONDS = 3.0
"""How long a replica is followed."""


def _rotate(scene: Scene, **options: object) -> object:
    return rotate_stream(scene.stream, ROOT, same_stream=True, **scene.options, **options)  # type: ignore[arg-type]


def _export(range_size: int) -> Callable[[Scene, World], object]:
    return lambda scene, _: export_stream(
        scene.stream, ROOT, same_stream=True, **{**scene.options, "range_size": range_size}
    )


def _compact(target: int) -> Callable[[Scene, World], object]:
    return lambda scene, _: compact_archive(scene.archive, target=target, master="inline")


def _retain(part: int) -> Callable[[Scene, World], None]:
    def retain(_: Scene, __: World) -> None:
        with open_source() as store:
            tail = store.describe(NAME).tail
            offsets = {}
            for info in store.segment_info(NAME, list(tail.offsets)):
                at = info.write_offset
                if part:
                    blocks = b"".join(map(bytes, store.read(NAME, info.segment, info.start_offset, at)))
                    at = inner_boundary(blocks, info.start_offset)
                offsets[info.segment] = at
            store.truncate(StreamCut(NAME, offsets))

    return retain


def _write(_: Scene, world: World) -> None:
    world.names += 1
    with open_source() as store:
        add(store, f"w{world.names}", 2)


def _scale(_: Scene, __: World) -> None:
    with open_source() as store:
        scale(store)
        add(store, "s", 1)


def _remake(_: Scene, __: World) -> None:
    with open_source() as store:
        store.delete(NAME)
        store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
        add(store, "again", 6)


def _other(scene: Scene, _: World) -> object:
    return export_stream(f"local://{OTHER}/{NAME}", ROOT, **scene.options)


def _hour(_: Scene, world: World) -> None:
    world.sleep(HOUR)


def _import(scene: Scene, _: World, *, again: bool = False) -> object:
    return import_stream(scene.archive, TARGET, master="inline", again=again)


def _convert(scene: Scene, _: World) -> object:
    layout = "chunks" if scene.layout == "events" else "events"
    return convert_archive(scene.archive, CONVERTED, layout=layout, master="inline")  # type: ignore[arg-type]


def _convert_restart(scene: Scene, _: World) -> object:
    """Into the layout that `_convert` does not write."""
    layout = "events" if scene.layout == "events" else "chunks"
    return convert_archive(scene.archive, CONVERTED, layout=layout, restart=True, master="inline")  # type: ignore[arg-type]


def _hold(first: bool) -> Callable[[Scene, World], object]:
    def hold(scene: Scene, _: World) -> object:
        from streamvault.manifests.archive import Archive  # noqa: PLC0415

        generations = Archive(scene.root, NAME).generations() if first else []
        return hold_archive(scene.archive, "kept", generation=generations[0] if generations else None)

    return hold


def _follow(scene: Scene, _: World) -> object:
    return follow_stream(scene.stream, ROOT, lasting=0.001, retry_for=0, same_stream=True, **scene.options)


def _follow_rotating(scene: Scene, _: World) -> object:
    return follow_stream(
        scene.stream,
        ROOT,
        lasting=0.001,
        retry_for=0,
        rotate=True,
        keep=2,
        truncate_source=True,
        same_stream=True,
        **scene.options,
    )


def _mirror(verb: Callable[..., object], **options: object) -> Callable[[Scene, World], object]:
    return lambda scene, _: verb(scene.stream, TARGET, master="inline", **options)


def _promote(**options: bool) -> Callable[[Scene, World], object]:
    return lambda _, __: promote_replica(TARGET, master="inline", **options)


def _seal(_: Scene, __: World) -> None:
    with open_source() as store:
        store.seal(NAME)


def _drop(_: Scene, __: World) -> None:
    with open_source() as store:
        store.delete(NAME)


def _on_target(change: Callable[[StreamStore], None]) -> Callable[[Scene, World], None]:
    """What a user does to the target, once it is the user's."""

    def do(_: Scene, __: World) -> None:
        with open_source() as store:
            if store.exists(TARGET_NAME) and not is_own(store.describe(TARGET_NAME).configuration):
                change(store)

    return do


def _target_drop(_: Scene, __: World) -> None:
    """Delete the target, even if it is not finished."""
    with open_source() as store:
        store.delete(TARGET_NAME)


def _target_make(_: Scene, __: World) -> None:
    with open_source() as store:
        store.create_scope(TARGET_NAME.scope)
        store.create_stream(TARGET_NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
        add(store, USERS, 2, TARGET_NAME)


def _follow_replica(scene: Scene, _: World) -> object:
    return replicate_stream(
        scene.stream, TARGET, master="inline", follow=True, every=1.0, lasting=REPLICATED_SECONDS, retry_for=0
    )


def _rebuild(events: str, *, all_segments: bool = True, scaled: bool = False) -> Callable[[Scene, World], None]:
    """The source's cluster is lost and built anew, so numbering begins again; writers make the stream again."""

    def fill(store: StreamStore, segments: Sequence[SegmentId]) -> None:
        for segment in segments:
            with store.appender(NAME, segment) as appender:
                appender.append(b"".join(frame(f"{events}-{segment.number}-{i}".encode()) for i in range(20)))

    def rebuild(_: Scene, world: World) -> None:
        with open_source() as store:
            store.delete(NAME)
            world.cluster(CLUSTER).numbers.pop(NAME)
            store.create_stream(NAME, StreamConfiguration(scaling=Scaling(min_segments=2)))
            made = store.describe(NAME).epochs[0].segments
            fill(store, sorted(made)[0 if all_segments else 1 :])
            if scaled:
                fill(store, sorted(store.scale(NAME, list(made), list(made.values())).segments))

    return rebuild


def _target_configure(store: StreamStore) -> None:
    configuration = store.describe(TARGET_NAME).configuration
    store.update_stream(TARGET_NAME, replace(configuration, tags=(*configuration.tags, "mine")))


def _target_flip(_: Scene, world: World) -> None:
    """Something else changes a byte of an unfinished target."""
    with suppress(NoSuchStream, NoSuchScope):
        cluster = world.cluster(CLUSTER)
        state = cluster.find(TARGET_NAME)
        for segment, data in sorted(state.data.items(), reverse=True):
            if is_own(state.record.configuration) and len(data) > state.readable().get(segment, len(data)) + 8:
                changed = data[:-1] + bytes([data[-1] ^ 1])
                cluster.keep(TARGET_NAME, replace(state, data={**state.data, segment: changed}))
                return


COMMANDS: dict[str, Command] = {
    "export": Command(lambda scene, _: export_stream(scene.stream, ROOT, same_stream=True, **scene.options)),
    **{f"export-{size}": Command(_export(size)) for size in (40, 48, 56, 70, 72)},
    "follow": Command(_follow),
    "follow-rotating": Command(_follow_rotating, keep=2),
    "rotate": Command(lambda scene, _: _rotate(scene, truncate_source=True)),
    "expire": Command(lambda scene, _: _rotate(scene, keep=2), keep=2),
    "expire-all": Command(lambda scene, _: _rotate(scene, keep=1, truncate_source=True), keep=1),
    "queue": Command(lambda scene, _: _rotate(scene, keep=1, queue=QUEUE), keep=1),
    "work": Command(lambda _, __: work_queue(QUEUE, idle=0, tries=1, master="inline")),
    "compact": Command(lambda scene, _: compact_archive(scene.archive, master="inline")),
    "compact-small": Command(_compact(target=250)),
    "clear": Command(_compact(target=1)),
    "hold": Command(_hold(first=False)),
    "hold-first": Command(_hold(first=True)),
    "delete": Command(lambda scene, _: delete_archive(scene.archive, yes=True)),
    "delete-unfinished": Command(lambda scene, _: delete_archive(scene.archive, yes=True, unfinished=True)),
    "release": Command(lambda scene, _: release_archive(scene.archive, "kept")),
    "import": Command(_import, again=lambda scene, world: _import(scene, world, again=True)),
    "convert": Command(_convert),
    "convert-restart": Command(_convert_restart),
    "handoff": Command(lambda scene, _: write_table(scene.archive, table="orders", format="parquet", master="inline")),
    "handoff-stream": Command(
        lambda scene, _: write_table(
            scene.stream, table="events", format="parquet", root="memory://tables", master="inline"
        )
    ),
    "check": Command(lambda scene, _: check_archive(scene.archive, read_data=True, master="inline")),
    "repair": Command(lambda scene, _: check_archive(scene.archive, read_data=True, repair=True, master="inline")),
    "other": Command(_other, outside=True),
    "write": Command(_write, outside=True),
    "scale": Command(_scale, outside=True),
    "retain": Command(_retain(0), outside=True),
    "retain-half": Command(_retain(1), outside=True),
    "remake": Command(_remake, outside=True),
    "hour": Command(_hour, outside=True),
    "seal": Command(_seal, outside=True),
    "drop": Command(_drop, outside=True),
    **VARIANTS,
}

MIRRORS: dict[str, Command] = {
    "copy": Command(_mirror(copy_stream)),
    "copy-shift": Command(_mirror(copy_stream, offsets="shift")),
    "replicate": Command(_mirror(replicate_stream)),
    "replicate-shift": Command(_mirror(replicate_stream, offsets="shift")),
    "promote": Command(_promote()),
    "promote-seal": Command(_promote(seal_source=True)),
    "move": Command(_mirror(move_stream, numbers="map")),
    "move-bare": Command(_mirror(move_stream, numbers="map", no_tombstone=True)),
    "move-shift": Command(_mirror(move_stream, numbers="map", offsets="shift")),
    "replicate-follow": Command(_follow_replica),
    "sweep": Command(lambda _scene, _world: sweep_scope(f"local://{CLUSTER}/{NAME.scope}/", older_than=0.0)),
    "rebuild": Command(_rebuild("new"), outside=True),
    "rebuild-scaled": Command(_rebuild("new", scaled=True), outside=True),
    "rebuild-scaled-old": Command(_rebuild("old", scaled=True), outside=True),
    "rebuild-half": Command(_rebuild("old", all_segments=False), outside=True),
    "target-write": Command(_on_target(lambda store: add(store, USERS, 2, TARGET_NAME)), outside=True),
    "target-configure": Command(_on_target(_target_configure), outside=True),
    "target-retain": Command(_on_target(lambda store: store.truncate(store.describe(TARGET_NAME).tail)), outside=True),
    "target-delete": Command(_on_target(lambda store: store.delete(TARGET_NAME)), outside=True),
    "target-drop": Command(_target_drop, outside=True),
    "target-make": Command(_target_make, outside=True),
    "target-flip": Command(_target_flip, outside=True),
    **MIRROR_VARIANTS,
}
"""Verbs with a stream as their target, and what happens to that stream meanwhile; see `replication`."""
