"""Reader groups are noted in an archive and created again with a restored stream; the groups are kept in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    convert_archive,
    export_stream,
    follow_stream,
    import_stream,
    rotate_stream,
    show_archive,
    show_timeline,
    translate,
    write_table,
)
from streamvault.common.errors import Damaged, Usage
from streamvault.common.report import CarriedGroup
from streamvault.exporter import plan as planning
from streamvault.exporter.reports import ExportReport
from streamvault.exporter.run import ExportRun
from streamvault.importer.reader_groups import BEFORE, BEYOND, MISSING
from streamvault.importer.reports import ImportReport
from streamvault.importer.target import TargetTaken
from streamvault.manifests.files import decode, seal
from streamvault.manifests.manifest import Manifest
from streamvault.streamstore import lease
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import SegmentId, StreamCut, StreamName
from testkit.killed import stopped_at
from testkit.scenes import killed_at_its_end
from testkit.small_archives import NAME, RANGE_SIZE, Vault, a_root, a_vault, contents, merge, replace_object
from testkit.streams import make_byte_stream
from tests.memory_groups import THERE, MemoryGroups
from tests.told import Ran

EVENT = 12
"""Bytes of each event, with its header."""


vault = a_vault(*(b"%04d" % number for number in range(10)), segments=2)
"""A stream of two segments with ten events each."""


def add(vault: Vault, events: int) -> None:
    vault.add(*(b"%04d" % number for number in range(events)))


def cut(*events: int, stream: StreamName = NAME) -> StreamCut:
    """The cut after so many events of each segment."""
    return StreamCut(stream, {SegmentId(0, number): held * EVENT for number, held in enumerate(events)})


def export(vault: Vault, **options: Any) -> ExportReport:
    given = {"reader_groups": True, "range_size": RANGE_SIZE, **options}
    return export_stream(vault.uri(), vault.root, **given, master="inline")


def restore(vault: Vault, to: StreamName = THERE, **options: Any) -> ImportReport:
    given = {"reader_groups": True, **options}
    return import_stream(vault.archive, vault.uri(to), **given, master="inline")


def test_a_group_goes_on_where_it_was(vault: Vault, groups: MemoryGroups) -> None:
    source = groups.add(cut(3, 10))
    exported = export(vault)
    assert exported.reader_groups == (CarriedGroup(name="app", outcome="noted", position=cut(3, 10).to_json()),)
    groups.add(cut(9, 10))
    expected = CarriedGroup(name="app", outcome="created", position=cut(3, 10, stream=THERE).to_json())
    assert restore(vault).reader_groups == (expected,)
    made, reached = groups.made[THERE.scope, "app"]
    assert reached == cut(3, 10, stream=THERE)
    assert made == replace(source, scope=THERE.scope, starts={THERE: None}, ends={THERE: None}, id=made.id)
    again = restore(vault)
    assert again.unchanged
    assert again.reader_groups == (replace(expected, outcome="present"),)


def test_each_generation_has_its_own_positions(vault: Vault, groups: MemoryGroups) -> None:
    """Also after they were merged, in a conversion, and in a table."""
    converted = a_root()
    for read in (1, 4, 12):
        groups.add(cut(read, read))
        export(vault)
        add(vault, 5)
    export(vault, reader_groups=False)

    def check(archive: str, name: str, generations: Sequence[int] = (1, 2, 3), **options: Any) -> None:
        for generation, read in zip(generations, (1, 4, 12), strict=False):
            target = StreamName(f"{name}{generation}", "target")
            given = {"generation": generation, "reader_groups": True, **options}
            import_stream(archive, vault.uri(target), **given, master="inline")
            assert groups.reached(target.scope) == cut(read, read, stream=target)

    check(vault.archive, "plain")
    convert_archive(vault.archive, converted, layout="chunks", master="inline")
    check(f"{converted}/{NAME}", "converted")
    merge(vault, 1, 2)
    merge(vault, 1, 3)
    merge(vault, 1, 4)
    assert show_archive(vault.archive).reader_groups is None
    check(vault.archive, "merged")
    write_table(vault.archive, format="parquet", master="inline")
    check(vault.archive, "table", [1], layout="table")


def test_positions_are_read_before_the_tail(
    vault: Vault, groups: MemoryGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a group reads after the tail was taken is not in the generation."""

    def describe(store: LocalStore, name: StreamName) -> Any:
        found = real(store, name)
        add(vault, 5)
        groups.add(store.describe(NAME).tail)
        return found

    groups.add(cut(10, 10))
    real = planning.describe_source
    monkeypatch.setattr(planning, "describe_source", describe)
    export(vault)
    assert [one.reason for one in restore(vault).reader_groups] == [""]


def test_a_group_reads_what_only_the_archive_still_has(vault: Vault, groups: MemoryGroups) -> None:
    """The source was truncated beyond its position."""
    export(vault)
    groups.add(cut(2, 9))
    vault.truncate(cut(6, 6))
    add(vault, 1)
    assert export(vault).reader_groups[0].position == cut(2, 9).to_json()
    restore(vault)
    assert groups.reached() == cut(2, 9, stream=THERE)


def test_positions_are_those_of_the_plan(vault: Vault, groups: MemoryGroups) -> None:
    """A run that resumes another one archives up to its tail."""
    groups.add(cut(2, 2))
    with stopped_at(ExportRun, "_prove"):
        export(vault)
    add(vault, 5)
    groups.add(cut(12, 12))
    resumed = export(vault, reader_groups=False)
    assert resumed.resumes is not None
    assert resumed.resumes["reader_groups"]
    assert [one.position for one in resumed.reader_groups] == [cut(2, 2).to_json()]
    assert [one.position for one in export(vault).reader_groups] == [cut(12, 12).to_json()]


def test_an_unfinished_run_without_groups_gets_none(vault: Vault, groups: MemoryGroups) -> None:
    groups.add(cut(2, 2))
    with stopped_at(ExportRun, "_prove"):
        export(vault, reader_groups=False)
    with pytest.raises(Usage, match="an unfinished run has other options: no reader_groups=True"):
        export(vault)
    report = export(vault, restart=True)
    assert report.gave_up is not None
    assert [one.position for one in report.reader_groups] == [cut(2, 2).to_json()]


def test_a_group_that_has_moved_on_makes_a_generation(vault: Vault, groups: MemoryGroups) -> None:
    export(vault, reader_groups=False)
    assert export(vault).generation == 2, "that there are no groups is noted, too"
    assert export(vault).unchanged
    groups.add(cut(3, 3))
    assert export(vault, dry_run=True).reader_groups[0].position == cut(3, 3).to_json()
    assert (export(vault).generation, export(vault).unchanged) == (3, True)
    group = groups.add(cut(4, 3))
    moved = export(vault)
    assert (moved.generation, moved.bytes, moved.unchanged) == (4, 0, False)
    assert export(vault, reader_groups=False).unchanged
    groups.made[NAME.scope, "app"] = (replace(group, refresh_millis=7), cut(4, 3))
    assert export(vault).generation == 5
    restore(vault)
    assert groups.reached() == cut(4, 3, stream=THERE)


@pytest.mark.parametrize("verb", ["export", "import"])
def test_a_group_that_has_read_more_goes_on_at_the_end(vault: Vault, groups: MemoryGroups, verb: str) -> None:
    groups.add(cut(7, 2))
    upto = {"to_cut": cut(5, 4).to_json()}
    noted = export(vault, **(upto if verb == "export" else {}))
    assert noted.reader_groups[0].position == cut(7, 2).to_json()
    (carried,) = restore(vault, **(upto if verb == "import" else {})).reader_groups
    assert (carried.outcome, carried.reason) == ("created", BEYOND)
    assert groups.reached() == cut(5, 2, stream=THERE)


@pytest.mark.parametrize("verb", ["export", "import"])
def test_a_group_that_has_read_less_goes_on_at_the_beginning(vault: Vault, groups: MemoryGroups, verb: str) -> None:
    groups.add(cut(1, 8))
    begun = {"from_cut": cut(3, 3).to_json()}
    export(vault, **(begun if verb == "export" else {}))
    report = restore(vault, **(begun if verb == "import" else {}))
    (carried,) = report.reader_groups
    assert (carried.outcome, carried.reason) == ("created", BEFORE)
    assert f"the reader group app: {BEFORE}" in report.warnings
    assert groups.reached() == cut(3, 8, stream=THERE)


@pytest.mark.parametrize(("read", "goes_on"), [(3, 3), (4, 5), (5, 5)])
def test_a_group_does_not_go_on_in_filler(vault: Vault, groups: MemoryGroups, read: int, goes_on: int) -> None:
    """Of a damaged archive, whose fifth event is left out."""
    groups.add(cut(read, read))
    export(vault, range_size=5 * EVENT)
    (damaged,) = (key for key in contents(vault.root) if "0000000000.0000000000/" in key and f"{4 * EVENT:019}" in key)
    replace_object(vault.root, damaged, None)
    (carried,) = restore(vault, skip_damaged=True).reader_groups
    assert carried.reason == (MISSING if read != goes_on else "")
    assert groups.reached() == cut(goes_on, read, stream=THERE)


def test_a_position_that_cannot_be_read_is_named(vault: Vault, groups: MemoryGroups) -> None:
    groups.add(cut(3, 3))
    groups.unreadable = "written in another way"
    report = export(vault)
    left = CarriedGroup(name="app", outcome="left out", reason=groups.unreadable)
    assert report.reader_groups == (left,)
    assert report.warnings == (f"the position of the reader group app is not recorded: {groups.unreadable}",)
    restored = restore(vault)
    assert restored.reader_groups == (left,)
    assert "the reader group app was not created: written in another way" in restored.warnings
    assert list(groups.names(THERE.scope)) == []


def test_a_group_that_reads_other_streams_is_left_out_with_its_position(vault: Vault, groups: MemoryGroups) -> None:
    groups.add(cut(3, 3), StreamName(NAME.scope, "other"))
    assert export(vault).warnings == ()
    (carried,) = restore(vault).reader_groups
    assert (carried.outcome, carried.position) == ("left out", cut(3, 3, stream=THERE).to_json())
    assert carried.reason == "the group reads other streams, too: scope/other"


def test_a_group_of_a_stream_that_was_made_anew_meanwhile(
    vault: Vault, groups: MemoryGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its position is not one of the stream that is archived."""

    def describe(store: LocalStore, name: StreamName) -> Any:
        store.delete(name)
        vault.create(2)
        return real(store, name)

    groups.add(cut(3, 3))
    real = planning.describe_source
    monkeypatch.setattr(planning, "describe_source", describe)
    (noted,) = export(vault).reader_groups
    assert noted.position is None
    assert "names a segment that the stream never had" in noted.reason


@pytest.mark.parametrize("text", ["scope/stream/7.#epoch.0", "scope/other/0.#epoch.0"])
def test_a_position_of_another_stream_is_damage(vault: Vault, groups: MemoryGroups, text: str) -> None:
    groups.add(cut(3, 3))
    export(vault)
    document = dict(show_archive(vault.archive).document())
    document["reader_groups"][0]["position"] = {text: 0}
    with pytest.raises(Damaged):
        decode(Manifest, seal(document), "here")


def test_nothing_is_restored_if_no_groups_were_noted(vault: Vault, groups: MemoryGroups) -> None:
    groups.add(cut(3, 3))
    export(vault)
    add(vault, 1)
    export(vault, reader_groups=False)
    assert "reader_groups" not in show_archive(vault.archive).document()
    with pytest.raises(Usage, match="generation 2 was archived without reader_groups=True"):
        restore(vault)
    with pytest.raises(Usage, match="requires offsets='keep'"):
        restore(vault, offsets="shift", generation=1)
    assert not vault.exists(THERE)
    restore(vault, generation=1)
    assert groups.reached() == cut(3, 3, stream=THERE)


def test_a_store_without_groups_is_named(vault: Vault, groups: MemoryGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    export(vault)
    monkeypatch.undo()
    for call in (export, restore):
        with pytest.raises(Usage, match="does not support reader groups"):
            call(vault)


def test_a_group_of_the_name_stays_as_it_is(vault: Vault, groups: MemoryGroups) -> None:
    groups.add(cut(3, 3))
    export(vault)
    theirs = groups.add(StreamCut(THERE, {}))
    (planned,) = restore(vault, dry_run=True).reader_groups
    (carried,) = restore(vault).reader_groups
    assert planned.outcome == carried.outcome == "left out"
    assert planned.reason == carried.reason
    assert carried.position == cut(3, 3, stream=THERE).to_json()
    assert groups.made[THERE.scope, "app"] == (theirs, StreamCut(THERE, {}))


def test_a_rehearsal_creates_nothing(vault: Vault, groups: MemoryGroups) -> None:
    groups.add(cut(3, 3))
    export(vault)
    assert [one.outcome for one in restore(vault, dry_run=True).reader_groups] == ["noted"]
    assert list(groups.names(THERE.scope)) == []


@pytest.mark.parametrize("begun", [False, True])
def test_a_killed_import_that_is_repeated_creates_the_groups(
    vault: Vault, groups: MemoryGroups, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Even if the stream, which has everything, has been written to since; also a group whose state was not begun."""
    groups.add(cut(3, 3))
    export(vault)
    groups.killed = begun
    if begun:
        monkeypatch.setattr(lease, "PATIENCE_SECONDS", 0.05)
        with pytest.raises(KeyboardInterrupt):
            restore(vault)
        assert groups.reached() is None
    else:
        with killed_at_its_end(monkeypatch):
            restore(vault)
        assert list(groups.names(THERE.scope)) == []
    groups.killed = False
    vault.write(THERE, SegmentId(0, 0), [b"new"])
    report = restore(vault)
    assert report.resumed
    assert [one.outcome for one in report.reader_groups] == ["created"]
    assert groups.reached() == cut(3, 3, stream=THERE)
    with pytest.raises(TargetTaken, match="has been written to since"):
        restore(vault)


def test_segments_with_other_numbers_are_found(vault: Vault, groups: MemoryGroups) -> None:
    """The stream is restored under its own name after it was deleted, and its group too."""
    groups.add(cut(3, 3))
    export(vault)
    groups.made.clear()
    vault.delete()
    report = restore(vault, NAME, numbers="map")
    (carried,) = report.reader_groups
    assert carried.outcome == "created"
    reached = groups.reached(NAME.scope)
    assert reached is not None
    assert {str(segment): at for segment, at in reached.offsets.items()} == dict.fromkeys(
        report.renumbered.values(), 3 * EVENT
    )


def test_rotate_and_follow_note_groups_too(vault: Vault, groups: MemoryGroups) -> None:
    groups.add(cut(3, 3))
    rotated = rotate_stream(vault.uri(), vault.root, reader_groups=True, master="inline")
    assert [one.position for one in rotated.export.reader_groups] == [cut(3, 3).to_json()]
    groups.add(cut(4, 4))
    followed = follow_stream(vault.uri(), vault.root, reader_groups=True, idle=0.05, every=0.01, master="inline")
    assert (followed.made, followed.bytes) == (1, 0)
    assert [one.position for one in followed.reader_groups] == [cut(4, 4).to_json()]


def test_what_is_noted_is_shown(vault: Vault, groups: MemoryGroups, ran: Ran) -> None:
    export(vault, reader_groups=False)
    groups.add(cut(3, 3))
    groups.add(cut(5, 5), StreamName(NAME.scope, "other"), name="two")
    command = ["export", vault.uri(), vault.root, "--reader-groups", "--master", "inline"]
    assert "reader group app: noted" in ran(*command).out
    assert [entry.group_names for entry in show_timeline(vault.archive).entries] == [None, ("app", "two")]
    assert "app, two" in ran("timeline", vault.archive).out
    shown = ran("show", vault.archive).out
    assert "reader group app: 0.#epoch.0:36 1.#epoch.0:36\n" in shown
    assert "reader group two: 0.#epoch.0:60 1.#epoch.0:60 (the group reads other streams, too: scope/other)" in shown
    command = ["import", vault.archive, vault.uri(THERE), "--reader-groups", "--master", "inline"]
    printed = ran(*command).out
    assert "reader group app: created\n" in printed
    assert f"  continues at {json.dumps(cut(5, 5, stream=THERE).to_json())}" in printed


def test_a_noted_position_is_translated(vault: Vault, groups: MemoryGroups) -> None:
    groups.add(cut(3, 3))
    export(vault)
    restore(vault, reader_groups=False)
    (found,) = translate(vault.archive, vault.uri(THERE), reader_groups=["app"]).positions
    assert (found.new, found.reader_group) == (cut(3, 3, stream=THERE).to_json(), "app")
    with pytest.raises(Usage, match="generation 1 has recorded no position of a reader group other"):
        translate(vault.archive, vault.uri(THERE), reader_groups=["other"])


def test_groups_of_a_byte_stream_go_on_at_their_offsets(tmp_path: Path, groups: MemoryGroups) -> None:
    """Nothing keeps an application from reading one with a group."""
    vault = Vault(tmp_path)
    with vault.store as store:
        make_byte_stream(store, NAME, size=1001, truncate=False)
        tail = store.describe(NAME).tail
    at = StreamCut(NAME, {segment: end - 1 for segment, end in tail.offsets.items()})
    groups.add(at)
    export(vault, content="bytes")
    restore(vault)
    assert groups.reached() == StreamCut(THERE, at.offsets)
