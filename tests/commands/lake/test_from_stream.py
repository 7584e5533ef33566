"""Tables directly from a stream: each run adds the new events, each event once, whatever happens in between."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from streamvault import import_stream, table_ddl, write_table
from streamvault.cli import main
from streamvault.common.errors import Conflict, Failed, Problem, Usage
from streamvault.exporter.plan import TRUNCATED_BEFORE
from streamvault.lake.reports import HandoffReport
from streamvault.lake.task import LiveEvents, write_file
from streamvault.manifests.spans import SegmentSpan, Span
from streamvault.objectstore.store import ObjectStore
from streamvault.sources.reader import TRUNCATED
from streamvault.streamstore.model import KeyRange, SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.lakes import RESTORED, files_folder, is_whole, meanwhile, rows_in, rows_of, table_keys, table_of, writing
from testkit.scenes import lure
from testkit.small_archives import NAME, Vault, a_vault, contents, objects_of
from testkit.streams import append_events, frame
from tests.told import Ran

TARGET = 4 * 1024


vault = a_vault(events=300)


def hand_off(vault: Vault, **options: Any) -> HandoffReport:
    return write_table(vault.uri(), **{"root": vault.root, "target_size": TARGET, "master": "inline[1]", **options})


def scale(vault: Vault) -> None:
    with vault.store as store:
        last = store.describe(NAME).epochs[-1]
        segment, keys = next(iter(last.segments.items()))
        middle = (keys.low + keys.high) / 2
        store.scale(NAME, [segment], [KeyRange(keys.low, middle), KeyRange(middle, keys.high)])


def truncate(vault: Vault, keep: int) -> StreamCut:
    """Truncate each open segment to its last events; returns the new head."""
    events = vault.events()
    offsets = {}
    for segment, end in vault.tail().items():
        own = [pointer.offset for pointer, _ in events if pointer.segment == segment]
        offsets[segment] = own[-keep] if len(own) >= keep else end
    vault.truncate(StreamCut(NAME, offsets))
    return vault.described.head


def restored(vault: Vault, **options: Any) -> tuple[object, object]:
    import_stream(vault.archive, vault.uri(RESTORED), layout="table", master="inline", read_back=True, **options)
    return vault.digest(RESTORED), vault.shape(RESTORED)["epochs"]


def test_every_event_is_a_row(vault: Vault) -> None:
    report = hand_off(vault)
    assert is_whole(vault)
    assert (report.archive, report.stream, report.added) == ("", vault.uri(), (1,))
    assert (report.events, report.files) == (len(vault.events()), len(table_keys(vault.root)))
    assert report.moved_bytes == report.bytes
    segments = {key.rsplit("/", 1)[1][:21] for key in table_keys(vault.root)}
    assert len(segments) < report.files, "a long segment makes several files"
    assert restored(vault) == (vault.digest(), vault.shape()["epochs"])


def test_tasks_can_be_pickled() -> None:
    address, name = parse_stream("local:///folder/scope/stream")
    for task in (LiveEvents(address, name), SegmentSpan(address, name, SegmentId(0, 1), 9, Span(0, 9, known=True))):
        assert pickle.loads(pickle.dumps(task)) == task


def test_payloads_that_look_like_events_make_no_false_rows(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    # a guess that starts in one of these ends at a true boundary, having skipped events
    vault.add(*[lure(40) + b"\0" * 900, b"a" * 32, b"b" * 300] * 40)
    hand_off(vault, target_size=1024)
    assert is_whole(vault)
    assert len(table_keys(vault.root)) > 20


def test_each_run_adds_what_is_new(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_off(vault)
    # if a segment's part is no larger than a file, it is not read to find boundaries
    monkeypatch.setattr("streamvault.lake.origins.find_range", None)
    before = contents(vault.root)
    vault.add(b"before the scale")
    scale(vault)
    vault.add(b"behind it", b"and more")
    report = hand_off(vault)
    assert (report.added, report.generations) == ((2,), (1, 2))
    after = contents(vault.root)
    assert before.items() <= after.items()
    assert is_whole(vault)
    again = hand_off(vault)
    assert (again.unchanged, again.moved_bytes) == (True, 0)
    scale(vault)
    vault.seal()
    assert hand_off(vault).unchanged, "no event is new"
    assert contents(vault.root) == after
    assert restored(vault)[0] == vault.digest()


class Died(Failed):
    """As if the process was killed."""


def dying(monkeypatch: pytest.MonkeyPatch, root: str, after: int) -> Callable[[], None]:
    """A number of puts succeed, then all fail; returns the exception that ends the run."""
    kind = type(objects_of(root))
    left, put = after, kind.put

    def counted(store: ObjectStore, *arguments: Any, **options: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died("killed")
        put(store, *arguments, **options)

    monkeypatch.setattr(kind, "put", counted)
    return lambda: monkeypatch.setattr(kind, "put", put)


def test_run_killed_before_any_write_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    died = 0
    for writes in range(40):
        vault = Vault(tmp_path / str(writes))
        vault.make(events=40, largest=200)
        revive = dying(monkeypatch, vault.root, writes)
        try:
            hand_off(vault, target_size=1024)
        except Died:
            died += 1
        revive()
        is_published = bool(table_of(vault).generations())
        is_fixed = any("/plan/" in key for key in contents(vault.root))
        assert is_published == (writes >= died), "a generation is there when all is"
        vault.add(b"since")
        report = hand_off(vault, target_size=1024)
        # the planned generation is finished unchanged, and newer events become another generation
        assert report.generations == ((1, 2) if is_fixed else (1,))
        assert is_whole(vault)
        if is_published:
            break
    assert died > 5


def test_events_appended_during_a_handoff_come_with_the_next(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        meanwhile(patch, lambda: vault.add(b"meanwhile"))
        assert hand_off(vault).added == (1,), "head and tail are fixed when it starts"
    assert hand_off(vault).added == (2,)
    assert is_whole(vault)


def test_truncation_between_runs_is_a_gap(vault: Vault) -> None:
    hand_off(vault)
    known = {row["pointer"] for row in rows_of(vault.root)}
    vault.add(*(b"lost %d" % number for number in range(9)), b"kept")
    truncate(vault, keep=1)
    report = hand_off(vault)
    assert report.added == (2,)
    assert report.gaps
    assert {gap.reason for gap in report.gaps} == {TRUNCATED_BEFORE}
    assert len(report.warnings) == len(report.gaps)
    new = [row for row in rows_of(vault.root) if row["pointer"] not in known]
    assert {row["payload"] for row in new} == {b"kept"}
    assert hand_off(vault).unchanged, "a gap is said once"
    head = vault.described.head.to_json()
    assert restored(vault, from_cut=head, offsets="keep")[0] == vault.digest()


@pytest.mark.parametrize("keep", [3, 0], ids=["a part", "all"])
def test_truncation_during_a_run_is_a_gap(vault: Vault, monkeypatch: pytest.MonkeyPatch, keep: int) -> None:
    hand_off(vault)
    vault.add(*(b"%d" % number * 150 for number in range(10, 20)))
    known = {row["pointer"] for row in rows_of(vault.root)}
    with monkeypatch.context() as patch:
        meanwhile(patch, lambda: truncate(vault, keep or 10**6))
        report = hand_off(vault)
    assert {gap.reason for gap in report.gaps} == {TRUNCATED}
    new = sorted((row["pointer"], row["payload"]) for row in rows_of(vault.root) if row["pointer"] not in known)
    left_over = [(str(pointer), payload) for pointer, payload in vault.events() if str(pointer) not in known]
    assert new == sorted(left_over)
    assert report.events == len(new)
    assert bool(new) == bool(keep)
    assert hand_off(vault).unchanged
    vault.add(b"later")
    assert hand_off(vault).added == (3,)


@pytest.mark.parametrize("begun", [False, True], ids=["published", "planned"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["made again", "another store"])
def test_another_stream_of_the_same_name_and_shape_is_refused(tmp_path: Path, begun: bool, elsewhere: bool) -> None:
    def filled(vault: Vault, letter: bytes) -> Vault:
        if letter == b"b" and not elsewhere:
            vault.seal()
            vault.delete()
            vault.create_stream(NAME, StreamConfiguration())
        else:
            vault.create()
        vault.add(letter * 50, letter * 70)
        return vault

    vault = filled(Vault(tmp_path), b"a")
    with writing(Mock(side_effect=Died("killed")) if begun else write_file), suppress(Died):
        hand_off(vault)
    other = filled(Vault(tmp_path / "elsewhere", vault.root) if elsewhere else vault, b"b")
    other.add(b"more")
    before = contents(vault.root)
    with pytest.raises(Conflict) as error:
        hand_off(other)
    assert all(str(place) in str(error.value) for place in (vault.folder, other.folder)), "names both"
    assert contents(vault.root) == before


@pytest.mark.parametrize("size", [100, 9000], ids=["one range", "several"])
def test_plan_whose_tail_lies_inside_an_event_is_given_up(tmp_path: Path, size: int) -> None:
    vault = Vault(tmp_path)
    vault.create(segments=2)
    whole = frame(b"x" * size) * 3
    with vault.store as store:
        other, segment = store.describe(NAME).tail.offsets
        append_events(store, NAME, other, [b"good"])
        with store.appender(NAME, segment) as appender:
            appender.append(whole[:-20])
    with pytest.raises(Problem, match="inside an event"):
        hand_off(vault)
    with vault.store as store, store.appender(NAME, segment) as appender:
        appender.append(whole[-20:])
    report = hand_off(vault)
    if size > TARGET:  # found before anything was planned
        assert report.generations == (1,)
    else:
        assert (report.added, report.generations) == ((2,), (1, 2)), "the plan that could not be is an empty generation"
        assert all(not rows_in(objects_of(vault.root), key) for key in table_keys(vault.root) if "=1/" in key)
    assert is_whole(vault)
    assert restored(vault)[0] == vault.digest()


def test_json_fields_become_columns(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    options = {"decode": "json", "event_time": "at", "format": "parquet"}
    empty = hand_off(vault, **options)
    assert (empty.unchanged, contents(vault.root)) == (True, {}), "nothing to look at, nothing to write"
    vault.add(*(json.dumps({"id": number, "at": 1000 * number}).encode() for number in range(50)), b"no JSON")
    report = hand_off(vault, **options)
    assert report.columns[-3:] == ("id", "at", "_error")
    assert report.undecoded == 1
    rows = rows_of(vault.root)
    assert [row["id"] for row in rows] == [*range(50), None]
    assert rows[7]["event_time"].isoformat() == "1970-01-01T00:00:07"
    vault.add(b'{"id": 50}')
    assert hand_off(vault, target_size=None).added == (2,)
    assert rows_of(vault.root)[-1]["id"] == 50
    statements = table_ddl(vault.uri(), "hive", root=vault.root)
    assert "generation=2/" in statements


def test_iceberg_has_a_snapshot_for_each_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "objects").mkdir()
    vault = Vault(tmp_path, f"file://{tmp_path}/objects")
    vault.make(events=40, largest=500)
    catalog = f"sql:sqlite:///{tmp_path}/catalog.db"
    assert hand_off(vault, catalog=catalog, target_size=2048).registered == (1,)
    vault.add(b"new")
    assert hand_off(vault, catalog=catalog, target_size=None).registered == (2,)
    assert hand_off(vault, catalog=catalog, target_size=None).unchanged
    table = SqlCatalog("streamvault", uri=catalog.removeprefix("sql:")).load_table(("scope", "stream"))
    found = table.scan().to_arrow()
    assert sorted(found["pointer"].to_pylist()) == sorted(str(pointer) for pointer, _ in vault.events())
    assert sorted(set(found["generation"].to_pylist())) == [1, 2]
    # a generation that was completely truncated before it was read
    vault.add(b"lost")
    meanwhile(monkeypatch, lambda: truncate(vault, 10**6))
    report = hand_off(vault, catalog=catalog, target_size=None)
    assert (report.registered, report.events) == ((3,), 0)
    assert report.gaps
    assert len(table.refresh().scan().to_arrow()) == len(found)


def test_table_of_an_archive_is_none_of_a_stream(vault: Vault) -> None:
    vault.export()
    hand_off(vault)
    with pytest.raises(Conflict, match="made from the stream itself"):
        write_table(vault.archive, master="inline")
    write_table(vault.archive, master="inline", table="archived")
    with pytest.raises(Conflict, match="made from an archive"):
        hand_off(vault, table="archived")
    with pytest.raises(Usage, match="layout events"):
        hand_off(vault, table="other", raw=True, catalog="glue")


def test_command_prints_what_it_did(vault: Vault, ran: Ran) -> None:
    line = ["handoff", vault.uri(), "--master", "inline"]
    assert "requires --root" in ran(*line, code=2).err
    line += ["--root", vault.root]
    assert "about" in ran(*line, "--dry-run").out
    assert "wrote generation 1 of scope.stream" in ran(*line).out
    assert "nothing new in the stream: scope.stream at" in ran(*line).out
    vault.add(b"lost", b"kept")
    truncate(vault, keep=1)
    assert "gap: scope/stream/" in ran(*line).err
    assert any(key.startswith(f"{files_folder(vault.root)}generation=2/") for key in table_keys(vault.root))
    assert main(["handoff", "local:///no/stream", "--root", vault.root]) == 2
    assert main(["handoff", vault.uri(StreamName("scope", "none")), "--root", vault.root]) == 5


def test_folder_of_a_table_is_said_once_it_is_begun(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.create()
    above = f"{vault.archive}/table/stream"
    assert hand_off(vault).location == above, "there is nothing yet"
    vault.add(b"first")
    assert hand_off(vault, dry_run=True).location == above
    assert hand_off(vault).location == hand_off(vault).location == f"{above}/{table_of(vault).folder}"
