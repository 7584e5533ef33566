"""What the demo returns."""

from __future__ import annotations

from dataclasses import dataclass

from common.report import Report

__all__ = ["DemoReport", "Proof"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One thing that the demo showed.

    Attributes:
        step: what was done. shown: what came out, with its figures. seconds: how long it took.
    """

    step: str
    shown: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport(Report):
    """What the demo showed; it returns only if all of it held.

    Attributes:
        events, bytes: of the stream (bytes with event headers).
        segments, epochs: how many the stream has.
        archive: URI of the archive on the demo's S3 server, which is gone by now.
        first_keys: the first object names below the archive, as S3 lists them.
        proofs: one for each step, in order.
        kept: the folder with the streams and a copy of the archive; empty if nothing was kept.
        total_seconds: the whole call (the command line puts in the whole command).
    """

    events: int
    bytes: int
    segments: int
    epochs: int
    archive: str
    first_keys: tuple[str, ...]
    proofs: tuple[Proof, ...]
    kept: str = ""
    total_seconds: float = 0.0
