"""What an import reads back: the data that an earlier run appended; with --read-back, all data."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamvault import import_stream
from streamvault.common.errors import Conflict, Damaged, Failed
from streamvault.importer import fill, run
from streamvault.importer import run as jobs
from streamvault.importer.fill import Filled, FillTask, VerifyTask
from streamvault.importer.reports import ImportReport
from streamvault.importer.run import ImportRun
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.streamstore.model import StreamName
from testkit.small_archives import KINDS, NAME, Vault, a_vault, archive_of, contents, data_keys, replace_object

RESTORED = StreamName("scope", "restored")


vault = a_vault(events=600, largest=5000, exports=[("chunks", "zstd")])


class Seen:
    """The data that was verified by reading it back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[VerifyTask] = []
        real = run.verify_range

        def looking(task: VerifyTask) -> object:
            self.tasks.append(task)
            return real(task)

        monkeypatch.setattr(run, "verify_range", looking)

    @property
    def ranges(self) -> list[tuple[object, int, int]]:
        return sorted((task.target.segment, task.part.start, task.part.end) for task in self.tasks)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


def restore(vault: Vault, *, read_back: bool = False, to_cut: dict[str, int] | None = None) -> ImportReport:
    return import_stream(vault.archive, vault.uri(RESTORED), read_back=read_back, to_cut=to_cut, master="inline")


def all_ranges(vault: Vault) -> list[tuple[object, int, int]]:
    history = archive_of(vault.root).history()
    return sorted((row.segment, row.start, row.end) for s in history.segments() for _, row in history.ranges(s))


def is_restored(vault: Vault, report: ImportReport) -> None:
    assert vault.digest(RESTORED) == vault.digest()
    assert vault.shape(RESTORED) == vault.shape()
    assert report.events == vault.digest()[0]
    assert report.bytes == archive_of(vault.root).history().bytes


@pytest.mark.parametrize("read_back", [False, True])
def test_uninterrupted_import_reads_back_only_on_request(vault: Vault, seen: Seen, *, read_back: bool) -> None:
    is_restored(vault, restore(vault, read_back=read_back))
    assert seen.ranges == (all_ranges(vault) if read_back else [])


def test_parts_of_ranges_are_always_read_back(vault: Vault, seen: Seen) -> None:
    """A part of a range has no known digest."""
    middle = vault.events()[-3][0]
    tail = dict(vault.tail()) | {middle.segment: middle.offset}
    restore(vault, to_cut={segment.in_stream(NAME): offset for segment, offset in tail.items()})
    whole = all_ranges(vault)
    assert len(seen.ranges) == 1
    segment, start, end = seen.ranges[0]
    assert (segment, end) == (middle.segment, middle.offset)
    assert any((segment, start) == (s, low) and end < high for s, low, high in whole)


class Stopped:
    """Fills some segments, then half of another one; then the run fails.

    Its last byte may be wrong, as if a store had lost it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int, *, wrong: bool = False) -> None:
        self.offsets: dict[object, int] = {}
        self._wrong = wrong
        self._left = after
        self._real = jobs.fill_segment
        monkeypatch.setattr(jobs, "fill_segment", self._fill)

    def _fill(self, task: FillTask) -> Filled:
        if self._left == 0:
            half, target = task.spans[: len(task.spans) // 2 + 1], task.target
            with target.address.lend() as store, store.appender(target.stream, target.segment) as appender:
                for span in half:
                    block = bytearray(b"".join(fill._blocks(task, span, span.start)))
                    block[-1] ^= self._wrong
                    appender.append(bytes(block))
                self.offsets[task.target.segment] = appender.flush()
            raise Failed("stopped for a test")
        self._left -= 1
        done = self._real(task)
        self.offsets[task.target.segment] = task.end
        return done


@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_resumed_import_reads_back_what_the_earlier_run_appended_and_no_more(
    vault: Vault, seen: Seen, after: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stopped = Stopped(patch, after)
        with pytest.raises(Failed, match="stopped for a test"):
            restore(vault)
    assert seen.ranges == []
    report = restore(vault)
    assert report.resumed
    is_restored(vault, report)
    before = [found for found in all_ranges(vault) if found[1] < stopped.offsets.get(found[0], 0)]
    assert seen.ranges == before
    assert 0 < len(before) < len(all_ranges(vault))


def test_wrong_bytes_of_an_earlier_run_are_found(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed import compares the last bytes, and reads back every byte that it has not appended itself."""
    with pytest.MonkeyPatch.context() as patch:
        stopped = Stopped(patch, 0, wrong=True)
        with pytest.raises(Failed, match="stopped for a test"):
            restore(vault)
    assert any(stopped.offsets.values())
    with pytest.raises(Conflict, match="the target differs from the source"):
        restore(vault)
    monkeypatch.setattr(ImportRun, "check_unfinished", lambda *_: None)
    with pytest.raises(Failed, match="the restored bytes differ from the source's"):
        restore(vault)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_damaged_objects_are_found_without_reading_back(
    tmp_path: Path, kind: tuple[LayoutName, Compression], seen: Seen
) -> None:
    vault = Vault(tmp_path)
    vault.make(events=60)
    vault.export(*kind)
    key = next(key for key in reversed(data_keys(vault.root)) if len(contents(vault.root)[key]) > 30)
    whole = contents(vault.root)[key]
    replace_object(vault.root, key, whole[:20] + bytes([whole[20] ^ 0xFF]) + whole[21:])
    with pytest.raises(Damaged) as caught:
        restore(vault)
    assert caught.value.exit_code == 3
    assert str(caught.value).isprintable()
    assert seen.ranges == []
