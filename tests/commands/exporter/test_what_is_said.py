"""What an export says that writes nothing, windows that are too small, and how far tasks say they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamvault import check_archive, convert_archive, import_stream
from streamvault.cli import main
from streamvault.common.errors import Usage
from streamvault.common.progress import Progress, RunningTasks
from streamvault.layouts.layout import MIN_WINDOW, WINDOW, Compression, LayoutName, check_window
from testkit.small_archives import KINDS, NAME, Vault, a_root, a_vault, archive_of
from testkit.streams import make_byte_stream
from tests.told import Ran

INLINE = ("--master", "inline")


vault = a_vault(b"one", b"two")


def test_unchanged_export_repeats_the_fingerprint(vault: Vault, ran: Ran) -> None:
    first = vault.export()
    assert first.fingerprint == archive_of(vault.root).fingerprint()
    for more in ((), ("--dry-run",)):
        report = json.loads(ran("export", vault.uri(), vault.root, *INLINE, *more, "--json").out)
        assert (report["unchanged"], report["fingerprint"]) == (True, first.fingerprint)
        assert first.fingerprint in ran("export", vault.uri(), vault.root, *INLINE, *more).out
    vault.add(b"three")
    assert json.loads(ran("export", vault.uri(), vault.root, *INLINE, "--dry-run", "--json").out)["fingerprint"] == ""


@pytest.mark.parametrize("verb", ["export", "rotate"])
def test_dry_run_says_what_it_guesses(vault: Vault, verb: str, ran: Ran) -> None:
    line = [verb, vault.uri(), vault.root, "--layout", "chunks", *INLINE, "--dry-run"]
    assert "about" not in ran(*line).out, "the sample has all events"
    vault.add(*[b"x" * 100_000] * 20)  # more than the sample
    assert "about 2" in ran(*line).out
    report = json.loads(ran(*line, "--json").out)
    assert report.get("export", report)["events_estimated"]


def test_range_that_was_moved_twice_counts_once(tmp_path: Path, ran: Ran) -> None:
    vault = Vault(tmp_path)
    vault.make(60, largest=200)
    line = ["export", vault.uri(), vault.root, *INLINE, "--range-size", "40"]  # most ranges begin inside an event
    report = json.loads(ran(*line, "--json").out)
    assert report["moved_bytes"] == report["bytes"] > 0


def test_time_that_timeline_prints_chooses_its_generation(vault: Vault, ran: Ran) -> None:
    for number in (1, 2):
        vault.add(b"more")
        assert vault.export().generation == number
    rows = [line.split() for line in ran("timeline", f"{vault.root}/{NAME}").out.splitlines()[3:]]
    assert [row[0] for row in rows] == ["1", "2"]
    for number, day, hour, *_ in rows:
        line = ["import", f"{vault.root}/{NAME}", f"{vault.uri()}-restored", "--at", f"{day} {hour}", *INLINE]
        assert json.loads(ran(*line, "--dry-run", "--json").out)["generation"] == int(number)


def test_limit_below_zero_is_refused_like_any_number(vault: Vault, ran: Ran) -> None:
    assert (
        ran("cat", f"{vault.root}/{NAME}", "--limit", "-1", code=2).err
        == "streamvault: --limit must be at least 0: -1\n"
    )


MIB = 1024 * 1024


def test_window_below_the_minimum_is_rejected() -> None:
    check_window(MIN_WINDOW)
    check_window(WINDOW, WINDOW)
    with pytest.raises(Usage, match=r"the window must be at least 16\.0 MiB"):
        check_window(MIN_WINDOW - 1)


def test_window_smaller_than_a_whole_range_is_rejected() -> None:
    with pytest.raises(Usage, match="because a chunk is written whole") as caught:
        check_window(32 * MIB, 32 * MIB + 1)
    assert caught.value.exit_code == 2
    assert "--range-size" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--window", "1MiB"], 2),
        (["--window", "16MiB"], 0),  # events need not fit a whole range
        (["--window", "16MiB", "--layout", "chunks"], 2),  # the default range is larger
        (["--window", "16MiB", "--layout", "chunks", "--range-size", "16MiB"], 0),
        (["--window", "1x"], 2),
        (["--compress", "zstd"], 2),
        (["--compress", "zstd", "--layout", "chunks"], 0),
    ],
)
def test_export_rejects_a_window_that_is_too_small(
    tmp_path: Path, options: list[str], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = Vault(tmp_path, root=f"file://{tmp_path}/vault")
    vault.make(events=20)
    assert main(["export", vault.uri(), vault.root, "--master", "inline", *options]) == code
    assert len(archive_of(vault.root).generations()) == (not code)
    assert capfd.readouterr().err.count("\n") == bool(code)


def test_import_rejects_a_window_below_the_minimum(tmp_path: Path, ran: Ran) -> None:
    vault = Vault(tmp_path, root=f"file://{tmp_path}/vault")
    vault.make(events=20)
    vault.export("chunks", "zstd")
    line = ["import", vault.archive, f"local://{tmp_path}/streams/scope/restored", "--master", "inline"]
    assert "--window must be at least 16MiB: 8MiB" in ran(*line, "--window", "8MiB", code=2).err
    assert [found.stream for found in vault.listed(own=True)] == [NAME.stream]
    assert main([*line, "--window", "16MiB"]) == 0


def test_window_must_fit_the_ranges_of_an_existing_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing plan is resumed, so the window must fit its ranges."""
    vault = Vault(tmp_path, root=f"file://{tmp_path}/vault")
    vault.make(events=20)
    with monkeypatch.context() as patch:
        patch.setattr("streamvault.exporter.run.ExportRun._prove", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        chunks = ["--layout", "chunks", "--range-size", "64MiB", "--window", "64MiB"]
        assert main(["export", vault.uri(), vault.root, "--master", "inline", *chunks]) == 130
    line = ["export", vault.uri(), vault.root, "--master", "inline"]
    assert main([*line, "--window", "16MiB"]) == 2
    assert archive_of(vault.root).generations() == []
    assert main([*line, "--window", "64MiB"]) == 0
    assert archive_of(vault.root).manifest().layout == "chunks"


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_window_of_an_export_with_nothing_new_is_checked_too(tmp_path: Path, ran: Ran, more: tuple[str, ...]) -> None:
    """The archive's content decides the layout."""
    vault = Vault(tmp_path)
    with vault.store as store:
        make_byte_stream(store, NAME)
    line = ["export", vault.uri(), vault.root, "--master", "inline"]
    assert main([*line, "--content", "bytes"]) == 0
    assert "the window must be at least the range size" in ran(*line, *more, "--range-size", "128MiB", code=2).err


class Heard(Progress):
    """Records, for each phase, what is reported of tasks, and what they have said themselves by then."""

    def __init__(self) -> None:
        self.reported: dict[str, int] = {}
        self.said: dict[str, int] = {}
        self._phase = ""

    def begin(self, what: str, total_bytes: int, done_bytes: int = 0) -> None:  # noqa: ARG002
        self._phase = what
        self.reported[what] = self.said[what] = 0

    def advance(self, events: int, size: int) -> None:  # noqa: ARG002
        self.reported[self._phase] += size

    @contextmanager
    def watch(self, tasks: RunningTasks) -> Iterator[None]:
        phase, taken = self._phase, tasks.taken

        def take(index: int) -> None:
            before = tasks.acknowledged
            taken(index)
            self.said[phase] += before - tasks.acknowledged

        tasks.taken = take  # type: ignore[method-assign]
        yield
        assert (tasks.acknowledged, tasks.read) == (0, 0)


@pytest.mark.parametrize(("layout", "compress"), KINDS)
def test_tasks_say_as_much_as_is_reported_of_them(tmp_path: Path, layout: LayoutName, compress: Compression) -> None:
    vault = Vault(tmp_path)
    vault.make(events=60, largest=9_000)
    heard = Heard()
    size = vault.export(layout, compress, progress=heard).bytes
    assert heard.said["exporting"] == heard.reported["exporting"] == size > 0

    check_archive(vault.archive, master="inline[2]", progress=heard)
    assert heard.said["checking"] == heard.reported["checking"] == size
    check_archive(vault.archive, read_data=True, master="inline[2]", progress=heard)
    assert heard.said["reading"] == heard.reported["reading"] == size

    other: LayoutName = "chunks" if layout == "events" else "events"
    convert_archive(vault.archive, a_root(), layout=other, master="inline[2]", progress=heard)
    assert heard.said["converting generation 1"] == heard.reported["converting generation 1"] == size

    target = f"local://{tmp_path}/streams/scope/restored"
    import_stream(vault.archive, target, read_back=True, master="inline[2]", progress=heard)
    assert 0 < heard.said["importing"] <= heard.reported["importing"], "the last blocks are acknowledged by the flush"
    assert heard.said["verifying"] == heard.reported["verifying"] == size
