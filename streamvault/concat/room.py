"""Makes room for an append, in a stream with finer key ranges, and gives the key ranges and the policy back afterwards.

Every step may come late. A scale names the segments that it replaces, so it makes no difference once another process
has continued; a policy names the configuration that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from streamvault.common.errors import Conflict
from streamvault.concat.planning import StitchLog, TargetScale
from streamvault.importer.target import first_segment_id
from streamvault.streamstore.errors import NoSuchStream, ScaleRefused, StreamChanged, StreamSealed
from streamvault.streamstore.lease import Lease, LeaseHeld
from streamvault.streamstore.model import Epoch, ScaleKind, StreamConfiguration, StreamDescription, StreamName
from streamvault.streamstore.own import MEANWHILE, MOST_TAGS, ScaleNote, noted, ranges_digest, users_configuration
from streamvault.streamstore.uri import OpenStream

_CHANGED = (ScaleRefused, StreamChanged, StreamSealed, NoSuchStream)
"""Errors of a stream that is scaled, configured, sealed or deleted meanwhile."""

ATTEMPTS = 5
"""How often a stream is looked at again that is scaled or configured meanwhile."""


def make_room(
    stream: OpenStream, described: StreamDescription, scale: TargetScale, lease: Lease, ledger: StitchLog
) -> bool:
    """Scale a stream for an append, unless somebody scales or configures it meanwhile.

    Args:
        stream: the stream.
        described: the stream as it is, with its note if it has one.
        scale: the scale.
        lease: the append's lease.
        ledger: gets the note that says what the stream gets back, before the stream is scaled.

    Returns:
        Whether it was scaled; not if somebody was faster.

    Raises:
        Conflict: the stream has as many tags as a stream can have.
        LedgerConflict: another process has continued with this append.
    """
    current = described.epochs[-1].number
    known = _note_of(described)
    if known is None and former_ranges(described, ledger.note) is not None:
        known = ledger.note  # the stream's user has replaced its tags
    if known is not None and current > _made_until(described, known):
        # somebody has scaled the stream since; what is left of an earlier append's scale is undone first
        give_back(stream, lease, known, may_go_on=True)
        return False
    former = current if known is None else known.former
    note = ScaleNote(
        first=first_segment_id(described),
        former=former,
        made=current + 1,
        ranges=ranges_digest(scale.ranges),
        lease=lease.name.stream,
        scaling=users_configuration(described.configuration).scaling,
    )
    try:
        ledger.note_scale(note)
        _set_note(stream, described, note)
        made = stream.store.scale(stream.name, scale.seal, scale.ranges).number
    except (ScaleRefused, StreamChanged):
        return False
    now = stream.describe()
    if first_segment_id(now) == note.first and (_note_of(now) is None or made != note.made):
        # this process was paused before the scale, and everything was given back; or there was another scale
        note = replace(note, made=made, scaling=users_configuration(now.configuration).scaling)
        with suppress(StreamChanged):
            _set_note(stream, now, note)
        ledger.note_scale(note)
    return True


def give_back(
    stream: OpenStream, lease: Lease | None = None, known: ScaleNote | None = None, *, may_go_on: bool = False
) -> str:
    """Give a stream back what it had before it was scaled for an append, if it was, and has not got it back yet.

    A segment that was merged is split into the former key ranges, unless somebody has scaled it since. The policy is
    set again, unless its user has set another one.

    Args:
        stream: the stream, which may be gone or sealed by now.
        lease: the lease of the caller, if it is an append.
        known: the note in the caller's ledger. The key ranges are given back even if the stream's user has replaced the
            whole configuration, and the note with it.
        may_go_on: also if the append for which it was scaled goes on. Its commit makes segments of its own then.

    Returns:
        A warning if the policy could not be given back exactly, else an empty text.

    Raises:
        LeaseHeld: the append for which it was scaled goes on, in another process.
        StreamStoreError: the stream cannot be changed.
    """
    for _ in range(ATTEMPTS):
        described = stream.find()
        if described is None or described.sealed:
            return ""
        note = ScaleNote.of(described.configuration) or known
        if note is None:
            return ""
        with _looking_after(stream, note, lease, may_go_on=may_go_on), suppress(*_CHANGED):
            current = described.epochs[-1]
            if (scale := former_ranges(described, note)) is not None:
                current = stream.store.scale(stream.name, scale.seal, scale.ranges)
            before = described.configuration
            after = _fitting(before, current)
            if after == before:
                return ""
            stream.store.update_stream(stream.name, after, was=before)
            if after == users_configuration(before):
                return ""
            least, count = users_configuration(before).scaling.min_segments, after.scaling.min_segments
            return (
                f"the stream's policy asked for {least} segments, but {count} are open; it now asks for "
                f"{count}, so that the store does not scale the stream"
            )
    raise Conflict(
        "the stream keeps being scaled or configured, so its key ranges and its policy were not restored",
        where=stream.uri,
        todo="Run the same command again.",
    )


def former_ranges(described: StreamDescription, known: ScaleNote | None = None) -> TargetScale | None:
    """Return the scale that splits what was merged for an append into the former key ranges; None if there is nothing.

    Args:
        described: the stream.
        known: what it gets back if it has no note.
    """
    note = ScaleNote.of(described.configuration) or known
    current = described.epochs[-1]
    if note is None or note.first != first_segment_id(described) or current.number <= note.former:
        return None
    former = described.epochs[note.former]
    # a commit that rolls opens other segments of the same numbers
    merged = _numbers(described.epochs[_made_until(described, note)]) - _numbers(former)
    parts = {
        segment: [one for one in former.segments.values() if held.low <= one.low and one.high <= held.high]
        for segment, held in current.segments.items()
        if segment.number in merged
    }
    split = {
        segment: ranges
        for segment, ranges in parts.items()
        if len(ranges) > 1
        and (ranges[0].low, ranges[-1].high) == (current.segments[segment].low, current.segments[segment].high)
    }
    if not split:
        return None
    return TargetScale(tuple(split), tuple(held for ranges in split.values() for held in ranges))


def _made_until(described: StreamDescription, note: ScaleNote) -> int:
    """Return the last epoch that was made for an append.

    Somebody else's scale may have come before the one that the note announces.
    """
    current = described.epochs[-1].number
    if current < note.made:
        return current
    before, made = described.epochs[note.made - 1 : note.made + 1]
    new = [held for segment, held in made.segments.items() if segment not in before.segments]
    return note.made if ranges_digest(new) == note.ranges else note.made - 1


def _note_of(described: StreamDescription) -> ScaleNote | None:
    """Return the note that a stream has about itself; None if it has none, or one that was set for another stream."""
    note = ScaleNote.of(described.configuration)
    return note if note is not None and note.first == first_segment_id(described) else None


def _set_note(stream: OpenStream, described: StreamDescription, note: ScaleNote) -> None:
    changed = noted(described.configuration, note)
    if len(changed.tags) > MOST_TAGS:
        raise Conflict(
            "the stream must be scaled for this, but has no room for the tag that records "
            f"it: it has {len(changed.tags) - 1} tags",
            where=stream.uri,
            todo="Remove one of its tags, or join the sources into a new stream (streamvault join).",
        )
    stream.store.update_stream(stream.name, changed, was=described.configuration)


def _fitting(configuration: StreamConfiguration, current: Epoch) -> StreamConfiguration:
    """Return the user's configuration; a fixed number of segments that is given back is not below the open ones.

    Pravega would merge them.
    """
    users, count = users_configuration(configuration), len(current.segments)
    fixed = users.scaling
    if configuration.scaling != MEANWHILE or fixed.kind is not ScaleKind.FIXED or fixed.min_segments >= count:
        return users
    return replace(users, scaling=replace(fixed, min_segments=count))


@contextmanager
def _looking_after(stream: OpenStream, note: ScaleNote, lease: Lease | None, *, may_go_on: bool) -> Iterator[None]:
    """Hold the lease of the append for which a stream was scaled.

    Raises:
        LeaseHeld: another process holds it.
    """
    if lease is not None and (may_go_on or note.lease == lease.name.stream):
        lease.confirm()
        yield
        return
    held = LeaseHeld("the stream is scaled for an append that is still running", where=stream.uri, todo="Wait for it.")
    others = Lease.take(stream.store, StreamName(stream.name.scope, note.lease), None, held=held)
    try:
        yield
    finally:
        others.release(remove=True)


def _numbers(epoch: Epoch) -> set[int]:
    return {segment.number for segment in epoch.segments}
