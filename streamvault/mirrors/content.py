"""What a mirror gets of its source: all of it, or what lies between two cuts."""

from __future__ import annotations

from streamvault.importer.plan import Content
from streamvault.reading.source import SourceState
from streamvault.streamstore.arithmetic.cuts import later_of
from streamvault.streamstore.model import StreamCut, StreamDescription


def mirrored_content(
    look: SourceState,
    *,
    import_id: str,
    first_head: StreamCut,
    from_cut: StreamCut | None = None,
    to_cut: StreamCut | None = None,
) -> Content:
    """Return what a mirror gets.

    Args:
        look: the source.
        import_id: see `importer.plan.RestorePlan`.
        first_head: where the mirror began, maybe in an earlier run; see `Content.bases`.
        from_cut: begin at this cut, or where the head has moved beyond it; None for the head.
        to_cut: end at this cut; None for the tail.

    Raises:
        InvalidCut, SourceTruncated, Overtaken: as `SourceState.parts` and `SourceState.reading`.
    """
    described = look.described
    head, tail = begin_of(described, from_cut), to_cut or described.tail
    with look.reading("replicated"):
        parts = look.parts(head, tail)
    return Content(
        described=described,
        generation=0,
        head=head,
        tail=tail,
        parts=parts,
        bases={segment: first_head.offsets.get(segment, 0) for segment in parts},
        sealed=described.sealed and to_cut is None,
        import_id=import_id,
        check_gap=look.check_gap,
        kind=look.content,
    )


def begin_of(described: StreamDescription, from_cut: StreamCut | None) -> StreamCut:
    """Return where a mirror begins: at a cut, but not before the head, for every key.

    Raises:
        InvalidCut: the cut is not of the stream.
    """
    return described.head if from_cut is None else later_of(described, from_cut, described.head)
