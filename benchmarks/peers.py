"""The naive pipelines as arms of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.measuring import Arm, Measured
from benchmarks.naive import NaiveJob, export_naively, restore_naively
from benchmarks.setting import Setting
from benchmarks.workload import Workload
from streamstore.model import StreamName

__all__ = ["drop", "naive_arms"]

NAIVE = {1: "one by one", 32: "32 threads"}


def naive_arms(setting: Setting, workload: Workload, source: StreamName, events: int) -> dict[str, list[Arm]]:
    """Return the naive pipelines for ``export`` and ``import``: first one by one, then with 32 threads.

    Args:
        setting: the servers.
        workload: contents of the source.
        source: the stream.
        events: number of events to move; the client's reader does not report the end of a stream.
    """
    found: dict[str, list[Arm]] = {}
    for verb in ("export", "import"):
        for threads, how in NAIVE.items():
            peer = _Peer(setting, workload, source, events, threads)
            found.setdefault(verb, []).append(
                Arm(f"{verb} naive, {how}", peer.export if verb == "export" else peer.restore)
            )
    return found


def drop(setting: Setting, stream: StreamName, expected: int) -> None:
    """Check a restored stream's size (bytes), and delete the stream."""
    held = sum(setting.store.describe(stream).tail.offsets.values())
    if held != expected:
        raise RuntimeError(f"{stream} holds {held} bytes instead of {expected}")
    setting.store.delete(stream)


@dataclass(frozen=True, slots=True)
class _Peer:
    """Naive export and import with a number of threads."""

    setting: Setting
    workload: Workload
    source: StreamName
    events: int
    threads: int

    def export(self, repeat: int) -> Measured:
        return self._measured(*export_naively(self._job(self.source, repeat)))

    def restore(self, repeat: int) -> Measured:
        target = self.setting.stream(f"naive-{self.threads}-{repeat}")
        measured = self._measured(*restore_naively(self._job(target, repeat)))
        drop(self.setting, target, measured.bytes)
        return measured

    def _job(self, stream: StreamName, repeat: int) -> NaiveJob:
        return NaiveJob(
            controller=self.setting.controller,
            stream=stream,
            server=self.setting.s3,
            bucket=self.setting.bucket,
            prefix=f"{repeat}/naive-{self.threads}",
            events=self.events,
            segments=self.workload.segments,
            threads=self.threads,
        )

    def _measured(self, moved: int, seconds: float) -> Measured:
        if moved != self.events:
            raise RuntimeError(f"{moved} events were moved instead of {self.events}")
        return Measured(moved, moved * self.workload.length, seconds)
