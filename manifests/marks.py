"""The marks beside the manifests: checked, held, dropped, deleted. Small files, created and never replaced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from manifests.entries import Count, Digest, File, Layout, Model, Moment, Offset, SegmentName, now_utc, segment_key
from manifests.jsonfile import decode
from manifests.model import Manifest
from objectstore.errors import NoSuchObject
from objectstore.keys import checked_key, dropped_key, hold_key
from objectstore.store import ObjectStore
from problems import Damaged
from streamstore.model import StreamName

__all__ = ["Checked", "Deleted", "Dropped", "DroppedStretch", "Hold", "find_checked", "find_dropped", "find_hold"]

Number = Annotated[int, Field(ge=1, le=0x7FFFFFFF)]
Text = Annotated[str, Field(max_length=1000)]


class Mark(File):
    """What all marks say: which archive and generation, and when the mark was made."""

    format: Literal[1] = 1
    scope: str
    stream: str
    generation: Number
    created: Moment = Field(default_factory=now_utc)
    tool: Text = ""


class Checked(Mark):
    """All of the generation's data were read back and had their digests.

    `ranges` is how many were read, `digest` the SHA-256 of the manifest's bytes.
    """

    ranges: Count
    digest: Digest


class Hold(Mark):
    """The generation is not to expire, nor is any after it."""

    name: str
    who: Text = ""
    why: Text = ""


class DroppedStretch(Model):
    """Segment bytes whose objects go: each that begins in ``[start, end)``."""

    layout: Layout
    segment: SegmentName
    start: Offset
    end: Offset


class Dropped(Mark):
    """The generations from `first` to `generation` are no part of the archive any more; what to delete for that."""

    first: Number
    stretches: tuple[DroppedStretch, ...]

    @classmethod
    def of(cls, manifests: Iterable[Manifest], *, tool: str) -> Self:
        """The mark that drops these generations, which follow each other.

        Its size is bounded by the number of segments and of changes of the layout.
        """
        held = list(manifests)
        stretches: list[tuple[Layout, str, int, int]] = []
        newest: dict[str, int] = {}  # segment → its last stretch
        for manifest in held:
            for entry in manifest.segments:
                if entry.start == entry.end:
                    continue
                at = newest.setdefault(entry.name, len(stretches))
                if at < len(stretches):
                    layout, name, start, end = stretches[at]
                    if (layout, end) == (manifest.layout, entry.start):
                        stretches[at] = (layout, name, start, entry.end)
                        continue
                newest[entry.name] = len(stretches)
                stretches.append((manifest.layout, entry.name, entry.start, entry.end))
        stretches.sort(key=lambda stretch: (stretch[0], segment_key(stretch[1]), stretch[2]))
        last = held[-1]
        return cls(
            scope=last.scope,
            stream=last.stream,
            generation=last.generation,
            first=held[0].first,
            stretches=tuple(
                DroppedStretch(layout=layout, segment=name, start=start, end=end)
                for layout, name, start, end in stretches
            ),
            tool=tool,
        )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.first > self.generation:
            raise ValueError("the first generation comes after the last")
        owner = f"{self.scope}/{self.stream}/"
        for stretch in self.stretches:
            if not stretch.segment.startswith(owner) or stretch.start >= stretch.end:
                raise ValueError(f"no stretch of this archive: {stretch.segment}")
        return self


class Deleted(Mark):
    """Nothing is left of what the dropped mark of this number speaks of. `objects` is how many the last run removed."""

    objects: Count


M = TypeVar("M", bound=Mark)


def find_checked(store: ObjectStore, stream: StreamName, generation: int, first: int | None = None) -> Checked | None:
    """The mark of a successful check of a generation, or None; `first` as for `objectstore.keys.manifest_key`.

    Raises:
        Damaged: it is not such a mark.
    """
    return _find(Checked, store, stream, generation, checked_key(generation, first))


def find_hold(store: ObjectStore, stream: StreamName, generation: int, name: str) -> Hold | None:
    """A hold, or None; else as `find_checked`."""
    return _find(Hold, store, stream, generation, hold_key(generation, name))


def find_dropped(store: ObjectStore, stream: StreamName, generation: int) -> Dropped | None:
    """The dropped mark of this number, or None; else as `find_checked`."""
    return _find(Dropped, store, stream, generation, dropped_key(generation))


def _find(model: type[M], store: ObjectStore, stream: StreamName, generation: int, key: str) -> M | None:
    full = f"{stream}/{key}"
    try:
        data = store.get(full)
    except NoSuchObject:
        return None
    where = f"{store.uri}/{full}"
    mark = decode(model, data, where)
    if (f"{mark.scope}/{mark.stream}", mark.generation) != (str(stream), generation):
        raise Damaged(f"the mark is of another archive ({mark.scope}/{mark.stream})", where=where)
    return mark
