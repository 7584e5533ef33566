"""Tasks say how far they are while they run: at their end, as much as is then reported of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamvault import check_archive, convert_archive, import_stream
from streamvault.common.progress import Progress, RunningTasks
from streamvault.layouts.layout import Compression, LayoutName
from testkit.small_archives import KINDS, Vault, a_root


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
