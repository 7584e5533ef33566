"""Whatever happens to an archive, its table has every event since the table's beginning, once and in order."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamvault import compact_archive, export_stream, import_stream, rotate_stream, write_table
from streamvault.common.errors import Conflict, Failed
from streamvault.manifests.archive import TableArchive
from streamvault.streamstore.cuts import segments_between
from streamvault.streamstore.model import StreamCut, StreamName
from testkit.lakes import meanwhile, rows_of, table_of
from testkit.small_archives import Vault, a_root, archive_of, clear
from testkit.streams import events_of

Step = tuple[str, int]
Row = tuple[int, int, int, bytes]
"""Epoch, number and offset of an event, and its payload."""

RANGE_SIZES = (2048, 700)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("export"), st.integers(1, 40)),
        st.tuples(st.just("expire"), st.integers(1, 5)),
        st.tuples(st.just("compact"), st.sampled_from([2000, 1_000_000])),
        st.tuples(st.just("clear"), st.just(0)),
        st.tuples(st.just("hand off"), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 4)),
    ),
    min_size=5,
    max_size=12,
)


@dataclass
class Lake:
    """A stream, its archive, and a table of it.

    Attributes:
        layout: of the archive. tables: how many were begun. begins: where the newest one does; None if it has nothing.
    """

    vault: Vault
    layout: str
    tables: int = 1
    begins: StreamCut | None = None

    @property
    def name(self) -> str:
        return f"table_{self.tables}"

    @property
    def table(self) -> TableArchive:
        return table_of(self.vault, self.name)

    def take(self, step: Step) -> None:
        what, size = step
        options = {"layout": self.layout, "range_size": RANGE_SIZES[size % 2], "master": "inline"}
        if what == "export":
            self.vault.add(*(b"%d" % index * (index % 7) for index in range(size)))
            export_stream(self.vault.uri(), self.vault.root, **options)  # type: ignore[arg-type]
        elif what == "expire":
            rotate_stream(self.vault.uri(), self.vault.root, keep=size, **options)  # type: ignore[arg-type]
        elif what == "compact":
            compact_archive(self.vault.archive, target=size, master="inline")
        elif what == "clear":
            clear(self.vault)
        elif what == "kill":
            with pytest.MonkeyPatch.context() as patch:
                meanwhile(patch, Mock(side_effect=Stopped("for a test")), size)
                self.hand_off()
        else:
            self.hand_off()
            self.is_whole()

    def hand_off(self) -> None:
        """Hand off; if an expiry has overtaken the table, the run is rejected and another table is created."""
        history = archive_of(self.vault.root).history()
        try:
            write_table(self.vault.archive, table=self.name, target_size=1500, master="inline")
        except Stopped:
            pass
        except Conflict:
            newest = self.table.newest()
            assert history.first > (1 if newest is None else newest.generation + 1), "refused without need"
            self.tables += 1
            self.begins = None
            return self.hand_off()
        if self.begins is None and self.table.generations():
            self.begins = self.table.history().head
            assert self.begins == history.head
        return None

    def is_whole(self) -> None:
        history = archive_of(self.vault.root).history()
        assert self.table.history().tail == history.tail
        assert self.rows() == self.expected()

    def rows(self) -> list[Row]:
        """The table's rows by segment, in the table's order."""
        rows = rows_of(self.vault.root, self.name)
        found = [(row["epoch"], row["segment"], row["offset"], row["payload"]) for row in rows]
        return sorted(found, key=lambda row: row[:2])

    def expected(self) -> list[Row]:
        history = archive_of(self.vault.root).history()
        assert self.begins is not None
        stretches = segments_between(history.description, self.begins, history.tail)
        found = []
        for pointer, payload in self.vault.events():
            start, end = stretches.get(pointer.segment, (0, 0))
            if start <= pointer.offset and (end is None or pointer.offset < end):
                found.append((pointer.segment.epoch, pointer.segment.number, pointer.offset, payload))
        return found

    def restores(self) -> None:
        target = StreamName("scope", "restored")
        import_stream(self.vault.archive, self.vault.uri(target), layout="table", table=self.name, master="inline")
        with self.vault.store as store:
            restored = [(p.segment.epoch, p.segment.number, p.offset, data) for p, data in events_of(store, target)]
        assert restored == self.expected()


class Stopped(Failed):
    """Ends a run after some files."""


@settings(max_examples=2, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from(["chunks", "events"]))
@example([("hand off", 0), ("export", 9), ("expire", 1)], "chunks")
@example([("kill", 2), ("export", 9), ("compact", 1_000_000), ("clear", 0)], "chunks")
@example([("hand off", 0), ("export", 30), ("kill", 1), ("export", 8), ("compact", 1_000_000), ("clear", 0)], "chunks")
@example([("kill", 2), ("export", 9), ("expire", 1), ("hand off", 0), ("export", 3), ("expire", 1)], "events")
def test_table_has_every_event_that_the_archive_ever_had(steps: list[Step], layout: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        vault = Vault(Path(folder), a_root())
        vault.make(events=30, largest=400)
        ground = Lake(vault, layout)
        for step in [("export", 5), ("export", 12), *steps, ("hand off", 0)]:
            ground.take(step)
        ground.restores()
