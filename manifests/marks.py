"""Small files beside the manifests, created and never replaced: marks of a check, and decisions about an archive."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from common.errors import Damaged
from layouts.keys import GenerationSpan, checked_key
from manifests.entries import Count, Digest, File, Model, Moment, now_utc
from manifests.jsonfile import decode
from objectstore.errors import NoSuchObject
from objectstore.store import ObjectStore
from streamstore.model import StreamName

__all__ = ["Checked", "Decision", "Hold", "Merged", "find_checked"]

Number = Annotated[int, Field(ge=1, le=0x7FFFFFFF)]
Text = Annotated[str, Field(max_length=1000)]


class Checked(File):
    """All of the generation's data were read back and had their digests.

    `ranges` is how many were read, `digest` the SHA-256 of the manifest's bytes.
    """

    format: Literal[1] = 1
    scope: str
    stream: str
    generation: Number
    created: Moment = Field(default_factory=now_utc)
    tool: Text = ""
    ranges: Count
    digest: Digest


class Hold(Model):
    """The generation, an original one, is not to expire, nor is any after it."""

    generation: Number
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    who: Text = ""
    why: Text = ""
    created: Moment = Field(default_factory=now_utc)


class Merged(Model):
    """The generations from `first` to `generation` are one, since `at`.

    What they replaced stays for `grace` seconds, for those who are reading it.
    """

    generation: Number
    first: Number
    at: Moment = Field(default_factory=now_utc)
    grace: Annotated[float, Field(ge=0, le=1e9)] = 0.0

    @property
    def span(self) -> GenerationSpan:
        """The originals that it stands for."""
        return GenerationSpan(self.first, self.generation)


class Decision(File):
    """All that holds about an archive once a decision was taken; `number` counts them.

    A decision is made from the one before it and has the next number. Its key is the number alone and is created, never
    replaced. So of several that are made from the same one only the first exists, and one that comes late finds its
    number taken. Only the newest counts: each says everything.

    Generations only ever expire from the oldest on, and only ever merge with neighbours. So what a decision has put out
    of force never comes back, and what was written for it may be deleted at any later time.

    Attributes:
        dropped: the generations up to this one have expired; 0 for none.
        swept: up to this one nothing is left of them.
        merged: the generations that stand for several, in order. holds: what must not expire.
    """

    format: Literal[1] = 1
    scope: str
    stream: str
    number: Count
    created: Moment = Field(default_factory=now_utc)
    dropped: Count = 0
    swept: Count = 0
    merged: tuple[Merged, ...] = ()
    holds: tuple[Hold, ...] = ()

    def numbered(self, number: int) -> Self:
        """With this number, taken now."""
        return self._next(number=number, created=now_utc())

    def expire(self, upto: int) -> Self:
        """With the generations up to this one expired."""
        left = tuple(one for one in self.merged if one.generation > upto)
        return self._next(dropped=upto, merged=left)

    def sweep(self, upto: int) -> Self:
        """With nothing left of the generations up to this one."""
        return self._next(swept=upto)

    def merge(self, span: GenerationSpan, grace: float) -> Self:
        """With some generations as one."""
        others = [one for one in self.merged if not span.first <= one.first < one.generation <= span.last]
        mine = Merged(generation=span.last, first=span.first, grace=grace)
        return self._next(merged=tuple(sorted([*others, mine], key=lambda one: one.generation)))

    def hold(self, hold: Hold) -> Self:
        """With a hold more."""
        return self._next(holds=(*self.holds, hold))

    def release(self, name: str, generations: range) -> Self:
        """Without the holds of a name on some generations."""
        kept = tuple(one for one in self.holds if one.name != name or one.generation not in generations)
        return self._next(holds=kept)

    def _next(self, **change: object) -> Self:
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, **change})

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.swept > self.dropped:
            raise ValueError("what has not expired cannot be gone")
        spans = [one.span for one in self.merged]
        if any(first >= last for first, last in spans):
            raise ValueError("a merged generation stands for one at least before it")
        if any(first <= last for (_, last), (first, _) in pairwise([(0, self.dropped), *spans])):
            raise ValueError("merged generations overlap, or have expired in part")
        if any(hold.generation <= self.dropped for hold in self.holds):
            raise ValueError("a generation has expired though it is held")
        return self


def find_checked(store: ObjectStore, stream: StreamName, span: GenerationSpan) -> Checked | None:
    """The mark of a successful check of a generation, or None.

    Raises:
        Damaged: it is not such a mark.
    """
    full = f"{stream}/{checked_key(span)}"
    try:
        data = store.get(full)
    except NoSuchObject:
        return None
    where = f"{store.uri}/{full}"
    mark = decode(Checked, data, where)
    if (f"{mark.scope}/{mark.stream}", mark.generation) != (str(stream), span.last):
        raise Damaged(f"the mark is of another archive ({mark.scope}/{mark.stream})", where=where)
    return mark
