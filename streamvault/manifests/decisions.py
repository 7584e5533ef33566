"""Small create-only files beside the manifests: decisions, marks of generations read back, notes of truncations."""

from __future__ import annotations

import getpass
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from streamvault.common.errors import Damaged
from streamvault.common.units import moment_text, now_utc
from streamvault.common.version import TOOL
from streamvault.layouts.keys import GenerationSpan, checked_key, manifest_key
from streamvault.manifests.files import NUMBER, Count, Cut, Digest, File, Model, Moment, find_file
from streamvault.objectstore.store import AlreadyExists, ObjectStore
from streamvault.streamstore.model import StreamCut, StreamName

if TYPE_CHECKING:
    from datetime import datetime

    from streamvault.manifests.history import Generation
    from streamvault.manifests.manifest import Manifest


Number = Annotated[int, Field(ge=1, le=0x7FFFFFFF)]
Expired = Annotated[int, Field(ge=0, le=0x7FFFFFFE)]
"""A generation up to which others have expired: there can be a next one."""

MAX_TEXT_CHARS = 1000
Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]

MAX_GRACE = 1e9
"""Seconds; 32 years."""

Deletion = Literal["", "begun", "decided", "done"]
"""How far the deletion of an archive is, see `Decision`."""

_DELETION_STEPS = frozenset({("", ""), ("", "begun"), ("begun", ""), ("begun", "decided"), ("decided", "done")})


class Note(File):
    """What is recorded of a generation beside its manifest."""

    format: Annotated[Literal[1], NUMBER]
    scope: str
    stream: str
    generation: Number
    created: Moment
    tool: Text

    @classmethod
    def of(cls, name: StreamName, generation: int, **fields: Any) -> Self:
        """Make one now."""
        now, scope, stream = now_utc(), name.scope, name.stream
        return cls(format=1, scope=scope, stream=stream, generation=generation, created=now, tool=TOOL, **fields)


class Checked(Note):
    """The mark that all of a generation's data were read back and matched their digests.

    `ranges` is the number of ranges read, `digest` the SHA-256 of the manifest's file.
    """

    ranges: Count
    digest: Digest


class Truncation(Note):
    """The note that the source is about to be truncated to a generation's end, which keeps the archive."""


class Hold(Model):
    """A hold: the generation, an original one, and all later ones must not expire."""

    generation: Number
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    who: Text
    why: Text
    created: Moment


class Merged(Model):
    """A merge: since `at`, the generations from `first` to `generation` are one.

    The replaced ones are kept for `grace` seconds, for processes that are reading them.
    """

    generation: Number
    first: Number
    at: Moment
    grace: Annotated[float, Field(ge=0, le=MAX_GRACE)]

    @property
    def span(self) -> GenerationSpan:
        """The original generations it contains."""
        return GenerationSpan(self.first, self.generation)


class Decision(File):
    """The complete state of an archive: what has expired, is merged and is held. `number` counts the decisions.

    A decision is derived from the previous one and has the next number. Its key consists only of the number and is
    create-only. So of several decisions derived from the same one, only the first succeeds, and a late one finds its
    number taken. Only the newest counts.

    Generations only ever expire from the oldest on, and only ever merge with neighbours. So what a decision has put out
    of force never comes back, and its objects may be deleted at any later time.

    It has no key that only Streamvault knows: whoever may create objects in the archive can write the next one. So it
    is not believed alone: it has to follow from the ones before it (`follows`).

    Attributes:
        format: 2 if there is a deletion: a release that knows nothing of it must not read or write the archive.
        dropped: generations up to this one have expired; 0 for none.
        swept: nothing is left of generations up to this one.
        merged: the merged generations, in order.
        holds: the holds.
        begin: the cut at which the first generation began that has expired; None if none has, or if the release that
            decided it did not record it.
        dropped_created: when the generation `dropped` was taken, its manifest's `created`, by which whoever has a copy
            of it recognizes the archive; None if none has expired or it was not recorded.
        empty: whether nothing had been published when it was decided: an archive that is converted from one whose first
            generations have expired begins so.
        deletion: whether the archive is being deleted. "begun": all of it is in force, but nothing is published any
            more; only this state may be taken back. "decided": nothing is in force, now or later. "done": and all of
            it was deleted.
        who: the user of the machine on which it was decided; empty if unknown. Earlier releases left it out.
        released: the holds of the previous decision that this one released.
    """

    format: Annotated[Literal[1, 2], NUMBER]
    scope: str
    stream: str
    number: Count
    created: Moment
    who: Text = ""
    dropped: Expired
    swept: Expired
    merged: tuple[Merged, ...]
    holds: tuple[Hold, ...]
    begin: Cut | None = None
    dropped_created: Moment | None = None
    empty: bool = False
    deletion: Deletion = ""
    released: tuple[Hold, ...] = ()

    @property
    def is_deleted(self) -> bool:
        """Whether all of the archive is out of force for good."""
        return self.deletion in {"decided", "done"}

    @property
    def title(self) -> str:
        """Its number, and what it says of when and by whom it was made, for messages."""
        return f"decision {self.number} of {moment_text(self.created)}{self.who and f' by {self.who!r}'}"

    def numbered(self, number: int) -> Self:
        """Return the decision with a number, the current time and user."""
        return self.model_copy(update={"number": number, "created": now_utc(), "who": user_name()})

    def follows(self, before: Decision) -> str:
        """Return why the decision cannot have been made from another one, for a message; empty if it can.

        A new archive has the decision with the number 0.
        """
        return next(self._contradictions(before), "")

    def _contradictions(self, before: Decision) -> Iterator[str]:
        if self.number != before.number + 1:
            yield f"does not follow decision {before.number}"
        begins_again = before.empty and self.empty and self.dropped > before.dropped  # `begin_after`
        begins_elsewhere = before.dropped and (self.empty > before.empty or self.begin != before.begin)
        begins_elsewhere = begins_elsewhere and not begins_again
        if self.dropped < before.dropped or self.swept < before.swept or begins_elsewhere:
            yield "takes back what has expired"
        for hold in before.holds:
            if hold not in self.holds and (hold not in self.released or hold.generation <= self.dropped):
                yield f"leaves out the hold {hold.name} of generation {hold.generation}, which nobody has released"
        if (before.deletion, self.deletion) not in _DELETION_STEPS:
            now, then = (one or "not begun" for one in (self.deletion, before.deletion))
            yield f"says that the archive's deletion is {now}, although it was {then}"
        elif self.deletion != before.deletion and (self.dropped, self.holds) != (before.dropped, before.holds):
            yield "changes more than how far the archive's deletion is"
        if self.is_deleted and self.holds:
            yield "deletes generations that have a hold"
        for one in () if self.is_deleted else before.merged:
            inside = any(now.first <= one.first and one.generation <= now.generation for now in self.merged)
            if not inside and one.generation > self.dropped:
                yield f"leaves out the merged generation {one.generation}"

    def begin_after(self, before: int, head: StreamCut | None = None, created: datetime | None = None) -> Self:
        """Return the next decision of an archive without generations: it begins after ``before``, as `expire` says."""
        return self._next(dropped=before, swept=before, begin=head, dropped_created=created, empty=True)

    def expire(self, upto: int, head: StreamCut | None = None, created: datetime | None = None) -> Self:
        """Return the next decision, in which generations up to one, taken at ``created``, have expired.

        The archive began at ``head``.
        """
        left = tuple(one for one in self.merged if one.generation > upto)
        begin = self.begin if self.dropped else head
        return self._next(dropped=upto, merged=left, begin=begin, dropped_created=created)

    def sweep(self, upto: int) -> Self:
        """Return the next decision, in which nothing is left of generations up to one."""
        return self._next(swept=upto)

    def merge(self, span: GenerationSpan, grace: float) -> Self:
        """Return the next decision, in which some generations are merged; ``grace`` as in `Merged`.

        Each merge has its own grace: what an earlier one replaced is kept for as long as that one promised.
        """
        inside = [one for one in self.merged if span.first <= one.first < one.generation <= span.last]
        others = [one for one in self.merged if one not in inside]
        at = now_utc()
        promised = [(one.at - at).total_seconds() + one.grace for one in inside]
        mine = Merged(generation=span.last, first=span.first, at=at, grace=min(max([grace, *promised]), MAX_GRACE))
        return self._next(merged=tuple(sorted([*others, mine], key=lambda one: one.generation)))

    def hold(self, hold: Hold) -> Self:
        """Return the next decision with an additional hold."""
        return self._next(holds=(*self.holds, hold))

    def release(self, name: str, generations: Collection[int]) -> Self:
        """Return the next decision without the holds of a name on some generations."""
        gone = tuple(one for one in self.holds if one.name == name and one.generation in generations)
        return self._next(holds=tuple(one for one in self.holds if one not in gone), released=gone)

    def delete(self, deletion: Deletion) -> Self:
        """Return the next decision, with another state of the archive's deletion; empty takes it back.

        Raises:
            ValueError: what is decided cannot be taken back.
        """
        if self.is_deleted and deletion != "done":
            raise ValueError("the deletion is decided")
        merged = () if deletion in {"decided", "done"} else self.merged
        return self._next(deletion=deletion, format=2 if deletion else 1, merged=merged)

    def is_over(self, span: GenerationSpan) -> bool:
        """Check whether a generation's manifest is out of force for good.

        That is so because the head only rises, and merged generations only merge with more.
        """
        if self.is_deleted or span.first <= self.dropped:
            return True
        meets = [one.span for one in self.merged if one.span.overlaps(span)]
        return meets != [span] and any(one.first < span.first or span.last < one.last for one in meets)

    def _next(self, **change: object) -> Self:
        fields: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(fields | {"empty": False, "released": ()} | change))

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if (self.format == 2) != bool(self.deletion):
            raise ValueError("the format does not match the deletion")
        if self.swept > self.dropped:
            raise ValueError("generations were swept before they expired")
        spans = [one.span for one in self.merged]
        if any(first >= last for first, last in spans):
            raise ValueError("a merged generation contains at least two originals")
        if any(first <= last for (_, last), (first, _) in pairwise([(0, self.dropped), *spans])):
            raise ValueError("merged generations overlap or have partly expired")
        if any(hold.generation <= self.dropped for hold in self.holds):
            raise ValueError("a held generation has expired")
        return self


def user_name() -> str:
    """Return the name of the user; empty if it has none, as in a container."""
    try:
        return getpass.getuser()[:MAX_TEXT_CHARS]
    except (KeyError, OSError):
        return ""


def mark_checked(store: ObjectStore, generation: Generation) -> None:
    """Mark a generation, all of whose data were read and matched, as read back; does nothing if it is marked already.

    Args:
        store: the archive's root.
        generation: what the data were compared with.

    Raises:
        ObjectStoreError: the mark could not be written.
    """
    manifest = generation.manifest
    mark = Checked.of(manifest.name, manifest.generation, ranges=generation.row_count, digest=generation.fingerprint)
    with suppress(AlreadyExists):  # another process has also read it back
        store.put(f"{manifest.name}/{checked_key(manifest.span)}", mark.encode())


def check_mark(store: ObjectStore, manifest: Manifest, fingerprint: str) -> Checked:
    """Return the mark of a generation, which is of the manifest that is there; ``fingerprint`` is that one's.

    Raises:
        Damaged: it is of a different manifest, or not valid.
    """
    mark = find_checked(store, manifest.name, manifest.span)
    if mark is None or mark.digest != fingerprint:
        raise Damaged(
            "the mark belongs to a different manifest",
            where=f"{store.uri}/{manifest.name}, generation {manifest.generation}",
            todo=f"Restore {manifest_key(manifest.span)} from a version or a copy of the bucket, and delete nothing.",
        )
    return mark


def valid_mark(store: ObjectStore, manifest: Manifest, fingerprint: str) -> Checked | None:
    """Return the mark of a generation; None if it does not count, as `check_mark` says."""
    try:
        return check_mark(store, manifest, fingerprint)
    except Damaged:
        return None


def find_checked(store: ObjectStore, stream: StreamName, span: GenerationSpan) -> Checked | None:
    """Return a generation's mark; None if it has none.

    Raises:
        Damaged: the mark is not valid.
    """
    key = f"{stream}/{checked_key(span)}"
    mark = find_file(Checked, store, key)
    if mark and (mark.scope, mark.stream, mark.generation) != (stream.scope, stream.stream, span.last):
        raise Damaged(f"the mark belongs to another archive ({mark.scope}/{mark.stream})", where=f"{store.uri}/{key}")
    return mark
