"""Finding archives and tables at any depth, and reading one event by its pointer.

The totals of an archive, which `ls` takes from its newest manifest and its oldest one.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    check_archive,
    convert_archive,
    export_stream,
    get_event,
    import_stream,
    list_archives,
    rotate_stream,
    write_table,
)
from streamvault.cli import main
from streamvault.common.errors import Damaged, Problem
from streamvault.common.progress import Progress
from streamvault.layouts.keys import MANIFESTS, GenerationSpan, manifest_key
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests.archive import Archive
from streamvault.manifests.damage import ArchivedPart
from streamvault.manifests.manifest import GapEntry, Manifest, Totals
from streamvault.manifests.verbs import show
from streamvault.manifests.verbs.costs import Requests
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.objectstore.store import ObjectInfo
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import EventPointer, SegmentId, StreamConfiguration, StreamCut, StreamName
from testkit.killed import before_call, stopped_at
from testkit.small_archives import (
    KINDS,
    NAME,
    RANGE_SIZE,
    Vault,
    a_root,
    a_vault,
    archive_of,
    contents,
    data_keys,
    merge,
    objects_of,
    replace_object,
)
from testkit.streams import append_events
from tests.counting import counted
from tests.told import Ran

EVENTS = 3


vault = a_vault(b"one", b"", b"three")


def export(vault: Vault, root: str) -> None:
    export_stream(vault.uri(), root, master="inline")


def put(root: str, *keys: str) -> None:
    for key in keys:
        objects_of(root).put(key, b"")


@pytest.fixture(params=["memory", "file"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return a_root() if request.param == "memory" else (tmp_path / "a bucket").as_uri()


FOLDERS = ("", "/backups", "/backups/eu/2026", "/a/b/c/d/e/f")


def test_archives_are_found_at_any_depth(vault: Vault, bucket: str) -> None:
    for folder in FOLDERS:
        if (path := RootAddress.parse(bucket + folder).folder) is not None:
            path.mkdir(parents=True, exist_ok=True)
        export(vault, bucket + folder)
    put(bucket, "foreign", "backups/foreign/deep/er", "no name/of a/stream/_manifest/0000000001.json", "_manifest/x/y")
    for folder in FOLDERS:
        expected = sorted(f"{bucket}{each}/{NAME}" for each in FOLDERS if f"{each}/".startswith(f"{folder}/"))
        assert sorted(found.archive for found in list_archives(bucket + folder)) == expected
        (archive,) = list_archives(f"{bucket}{folder}/{NAME}")
        assert (archive.archive, archive.events, archive.problem) == (f"{bucket}{folder}/{NAME}", EVENTS, "")
    assert list_archives(f"{bucket}/{NAME}/events") == []
    assert list_archives(f"{bucket}/backups/foreign") == []


def test_archives_are_found_in_folders_of_any_name_and_through_links(vault: Vault, tmp_path: Path) -> None:
    for name in ("ein Ordner", "Übersicht 100%", "a#b", "..."):
        (tmp_path / "vault" / name).mkdir(parents=True)
        export(vault, (tmp_path / "vault" / name).as_uri())
        (tmp_path / "vault" / name / "up").symlink_to(tmp_path / "vault")
        (tmp_path / "vault" / name / "here").symlink_to(".")
        (tmp_path / "vault" / name / "itself").symlink_to("itself")
    (tmp_path / "elsewhere").symlink_to("vault/a#b")
    found = [archive.archive for archive in list_archives((tmp_path / "vault").as_uri())]
    assert len(found) == 4
    for archive in found:
        assert [each.archive for each in list_archives(archive)] == [archive]
    assert len(list_archives((tmp_path / "elsewhere").as_uri())) == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [(None, "a table's options are missing"), (b"{}", "was changed after it was written"), (b"", "not complete JSON")],
    ids=["lost", "damaged", "empty"],
)
def test_table_without_its_options_is_named(vault: Vault, options: bytes | None, problem: str, ran: Ran) -> None:
    vault.export()
    write_table(vault.archive, table="orders", master="inline")
    replace_object(vault.root, f"{NAME}/_table/orders/table.json", options)
    archive, table = list_archives(vault.root)
    assert (archive.table, archive.problem) == ("", "")
    assert (table.archive, table.table) == (vault.archive, "orders")
    assert problem in table.problem
    assert "table orders" in ran("ls", vault.root).out
    with pytest.raises(Damaged, match=problem):
        import_stream(vault.archive, vault.uri(StreamName("scope", "back")), layout="table", master="inline")


def test_table_that_is_begun_between_two_looks_has_not_lost_its_options(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(vault.uri(), root=vault.root, table="orders", master="inline")
    key = f"{NAME}/_table/orders/table.json"
    options = contents(vault.root)[key]
    replace_object(vault.root, key, None)
    archive = Archive(RootAddress.parse(vault.root).resolve(), NAME)
    store = type(archive.store)
    before_call(monkeypatch, store, "folders", lambda: replace_object(vault.root, key, options))
    assert archive.table_archive("orders").generations() == [1]


def test_tables_are_listed_without_an_archive(vault: Vault) -> None:
    write_table(vault.uri(), root=vault.root, table="orders", master="inline")
    (table,) = list_archives(vault.root)
    assert (table.archive, table.table, table.layout, table.events) == (vault.archive, "orders", "table", EVENTS)
    vault.export()
    write_table(vault.archive, table="others", master="inline")
    assert [(found.archive, found.table) for found in list_archives(vault.root)] == [
        (vault.archive, ""),
        (vault.archive, "orders"),
        (vault.archive, "others"),
    ]


def test_foreign_keys_with_empty_parts_are_ignored(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys such as ``/x``, ``x//y`` or ``x/../y``, which S3 allows, and which no other store of the tests can store."""
    vault.export()
    real = ObstoreStore.folders

    def folders(store: ObstoreStore, prefix: str) -> list[str]:
        beside = [] if prefix else ["", ".", "..", "ü"]
        return [*beside, *real(store, prefix), *(["ü", "\u202ex"] if prefix == f"{NAME.scope}/" else [])]

    monkeypatch.setattr(ObstoreStore, "folders", folders)
    assert [found.archive for found in list_archives(vault.root)] == [vault.archive]


def test_folder_without_manifest_and_plan_is_not_listed(vault: Vault) -> None:
    put(vault.root, f"{NAME}/_work/0000000001/x", f"{NAME}/events/0000000000.0000000000/x")
    assert list_archives(vault.root) == []


def test_list_archives_lists_no_data_objects(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    export(vault, f"{vault.root}/backups")
    listed: list[str] = []

    def noted(name: str) -> Callable[..., object]:
        real = getattr(ObstoreStore, name)

        def call(store: ObstoreStore, prefix: str, *more: str) -> Iterator[ObjectInfo] | Sequence[str]:
            listed.append(f"{name} {prefix}")
            return real(store, prefix, *more)  # type: ignore[no-any-return]

        return call

    for name in ("list", "folders"):
        monkeypatch.setattr(ObstoreStore, name, noted(name))
    assert len(list_archives(vault.root)) == 1
    assert not [each for each in listed if "events" in each]
    assert [each for each in listed if each.startswith("list ")] == [f"list {NAME}/{MANIFESTS}"]
    listed.clear()
    assert list_archives(f"{vault.root}/backups/{NAME}/events") == []
    assert listed == ["folders ", "list "]


@pytest.mark.parametrize("generations", [1, 2])
def test_listing_an_archive_takes_two_requests(vault: Vault, generations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A LIST, and a GET for the newest generation, however many there are; for a folder's first archive, one LIST more.

    If they were read back, the newest one's mark takes another GET.
    """
    names = [StreamName("scope", f"stream{number}") for number in range(5)]
    for generation in range(generations):
        for name in names:
            with vault.store as store:
                if not generation:
                    store.create_stream_and_scope(name, StreamConfiguration())
                append_events(store, name, SegmentId(0, 0), [b"one"])
            export_stream(vault.uri(name), vault.root, master="inline")
    with counted(monkeypatch) as requests:
        assert [found.stream_name for found in list_archives(vault.root)] == list(map(str, names))
    of_the_folders = 1 + 1 + 1  # the place, the scope, the first archive
    assert requests == [Requests(0, of_the_folders + 5, 5)]
    for name in names:
        check_archive(f"{vault.root}/{name}", read_data=True, master="inline")
    with counted(monkeypatch) as requests:
        list_archives(vault.root)
    assert requests == [Requests(0, of_the_folders + 5, 5 + 5)]


def test_archives_are_read_several_at_once(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may take 50 ms for each request, and an archive may have 30 generations."""
    for number in range(5):
        name = StreamName("scope", f"stream{number}")
        with vault.store as store:
            store.create_stream_and_scope(name, StreamConfiguration())
            append_events(store, name, SegmentId(0, 0), [b"one"])
        export_stream(vault.uri(name), vault.root, master="inline")
    two, really, begun = threading.Barrier(2), show.overview_of, []

    def summary(*given: Any, **also: Any) -> Any:
        begun.append(given)
        if len(begun) > 1:  # the first one is read alone
            two.wait(timeout=60)
        return really(*given, **also)

    monkeypatch.setattr(show, "overview_of", summary)
    assert [one.stream_name for one in list_archives(vault.root)] == [f"scope/stream{number}" for number in range(5)]


@pytest.mark.parametrize("place", ["memory", "file"])
def test_neighbours_of_an_archive_are_listed_with_all_they_have(vault: Vault, tmp_path: Path, place: str) -> None:
    """What is told from one listing: tables, unfinished generations, and folders that only look like an archive."""
    root = a_root() if place == "memory" else (tmp_path / "vault").as_uri()
    (tmp_path / "vault").mkdir()
    for name in ("a", "b", "c"):
        stream = StreamName("scope", name)
        with vault.store as store:
            store.create_stream_and_scope(stream, StreamConfiguration())
            append_events(store, stream, SegmentId(0, 0), [b"one"])
        if name != "c":
            export_stream(vault.uri(stream), root, master="inline")
        write_table(vault.uri(stream), root=root, table="orders", master="inline")
    objects_of(root).put("scope/b/_work/0000000001/x", b"")
    objects_of(root).put("scope/bb/_other/_manifest/x", b"")
    objects_of(root).put("scope/bc/inner/_manifest/x", b"")
    found = [(one.stream_name, one.table) for one in list_archives(root)]
    assert found == [
        ("scope/a", ""),
        ("scope/a", "orders"),
        ("scope/b", ""),
        ("scope/b", "orders"),
        ("scope/c", "orders"),
    ]
    assert main(["ls", root, "--json"]) == 0


def test_json_has_an_archive_once(vault: Vault, ran: Ran) -> None:
    vault.export()
    for name in ("one", "two"):
        write_table(vault.archive, table=name, master="inline")
    document = json.loads(ran("ls", vault.root, "--json").out)
    assert [one["archive"] for one in document["archives"]] == [vault.archive]
    assert [one["table"] for one in document["archive_tables"]] == ["one", "two"]


def test_ls_says_how_far_it_is(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Said(Progress):
        def say(self, text: str) -> None:
            said.append(text)

    monkeypatch.setattr("streamvault.manifests.verbs.show.SAID_AFTER", 2)
    for number in range(5):
        export(vault, f"{vault.root}/{number}")
    list_archives(vault.root, progress=Said())
    assert said == ["2 archives read", "4 archives read"]


def test_unreadable_folder_is_reported(vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    (tmp_path / "vault" / "lost-found").mkdir(parents=True)
    export(vault, (tmp_path / "vault").as_uri())
    real = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder.name == denied:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return real(folder)

    denied = "lost-found"
    monkeypatch.setattr(Path, "iterdir", iterdir)
    out, err = ran("ls", (tmp_path / "vault").as_uri())
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["lost-found", str(NAME)]
    assert err.startswith("warning: file://")
    denied = "vault"
    assert main(["ls", (tmp_path / "vault").as_uri()]) == 1


def test_missing_place_is_one_line(tmp_path: Path, ran: Ran) -> None:
    (tmp_path / "file").write_text("x")
    for place in (
        "memory://nowhere/backups",
        "memory://nowhere/a/b/c",
        f"file://{tmp_path}/typo",
        f"file://{tmp_path}/file",
    ):
        for arguments in (["ls"], ["status"], ["report", "-o", str(tmp_path / "page.html")]):
            out, err = ran(*arguments, place, code=5)
            what = "it is a file, not a folder" if place.endswith("/file") else "no such folder"
            assert (out, err) == ("", f"streamvault: {what}: {place}. Check the address.\n")


def test_empty_place_has_no_archives(tmp_path: Path, ran: Ran) -> None:
    for place in (a_root(), tmp_path.as_uri()):
        assert ran("ls", place).out == f"no archives below {place}\n"


def test_ls_prints_archives_relative_to_the_place(vault: Vault, tmp_path: Path, ran: Ran) -> None:
    folder = tmp_path / "my vault"
    (folder / "eu").mkdir(parents=True)
    for root in (folder, folder / "eu"):
        export(vault, root.as_uri())
    for written in (folder.as_uri(), f"file://{folder}", f"file://{folder}/"):
        lines = ran("ls", written).out.splitlines()
        assert [line.split()[0] for line in (lines[0], *lines[2:])] == ["ARCHIVE", f"eu/{NAME}", str(NAME)]
    (archive,) = json.loads(ran("ls", f"{folder.as_uri()}/{NAME}", "--json").out)["archives"]
    assert (archive["archive"], archive["table"]) == (f"{folder.as_uri()}/{NAME}", "")
    assert ran("ls", f"{folder.as_uri()}/{NAME}").out.splitlines()[2].split()[0] == str(NAME)


def test_unfinished_generation_is_shown(vault: Vault, ran: Ran) -> None:
    begin(vault)
    first = list_archives(vault.root)
    (one,) = first
    assert (one.generations_in_force, one.unfinished_generation, one.stream_name) == (0, 1, str(NAME))
    assert "0 (1 is unfinished)" in ran("ls", vault.root).out
    assert (
        "generation 1 is unfinished" in json.loads(ran("check", vault.archive, "--json", code=5).out)["error"]["what"]
    )
    vault.export()
    assert [one.unfinished_generation for one in list_archives(vault.root)] == [0]
    assert check_archive(vault.archive).unfinished_generation == 0

    vault.add(b"four")
    begin(vault)
    (summary,) = list_archives(vault.root)
    assert (summary.generations_in_force, summary.unfinished_generation, summary.problem) == (1, 2, "")
    assert "1 (2 is unfinished)" in ran("ls", vault.root).out
    assert [one["unfinished_generation"] for one in json.loads(ran("ls", vault.root, "--json").out)["archives"]] == [2]
    assert json.loads(ran("check", vault.archive, "--json").out)["unfinished_generation"] == 2
    assert "note: generation 2 is unfinished" in ran("check", vault.archive).out


def begin(vault: Vault) -> None:
    """An export that stops after it has written its plan."""
    with stopped_at(Archive, "commit"):
        vault.export()


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def several(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Vault:
    """Three generations: the second has another layout, and events were truncated before the third."""
    several = Vault(tmp_path_factory.mktemp("vault"))
    several.make()
    several.export(*request.param)
    several.add(b"of the second generation", b"")
    several.export(*KINDS[(KINDS.index(request.param) + 1) % len(KINDS)])
    several.add(b"gone before it is archived" * 10)
    several.truncate(StreamCut(NAME, several.tail()))
    several.add(b"of the third generation")
    several.export(*request.param, same_stream=True)
    return several


def refusal(several: Vault, pointer: object, code: int) -> str:
    with pytest.raises(Problem) as caught:
        get_event(several.archive, str(pointer))
    assert caught.value.exit_code == code, str(caught.value)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_get_returns_every_event(kind: tuple[LayoutName, Compression], tmp_path: Path) -> None:
    several = Vault(tmp_path)
    several.make(events=150)
    several.export(*kind)
    events = several.events()
    assert len(events) > 80
    for pointer, payload in events:
        assert get_event(several.archive, str(pointer)) == payload


def test_get_returns_events_of_every_generation(several: Vault) -> None:
    live = several.events()
    assert {payload for _, payload in live} == {b"of the third generation"}
    for pointer, payload in live:
        assert get_event(several.archive, str(pointer)) == payload
        gone = 8 + 260
        second = EventPointer(NAME, pointer.segment, pointer.offset - gone - 8 - 32, 32)
        assert get_event(several.archive, str(second)) == b"of the second generation"
        assert get_event(several.archive, str(EventPointer(NAME, pointer.segment, pointer.offset - gone - 8, 8))) == b""


def test_event_in_a_gap_is_refused_with_the_reason(several: Vault) -> None:
    for pointer, _ in several.events():
        gone = EventPointer(NAME, pointer.segment, pointer.offset - 268, 268)
        said = refusal(several, gone, 1)
        assert "no archived range holds this event" in said
        assert "truncated at the source before this generation began" in said


def test_pointer_to_no_event_is_refused(several: Vault) -> None:
    pointer, _ = several.events()[0]
    for offset, length in ((pointer.offset + 1, 20), (pointer.offset, 30), (pointer.offset, 32)):
        event = EventPointer(NAME, pointer.segment, offset, length)
        assert str(event) in refusal(several, event, 1)


def test_pointer_beyond_the_archive_is_refused(several: Vault) -> None:
    pointer, payload = several.events()[-1]
    after = EventPointer(NAME, pointer.segment, pointer.offset + 8 + len(payload), 9)
    assert "the event is outside the archive" in refusal(several, after, 1)
    assert "the event is outside the archive" in refusal(several, f"{NAME}/9.#epoch.9:0-8", 1)
    # it begins in the archive and would end beyond it
    assert refusal(several, EventPointer(NAME, pointer.segment, pointer.offset, 5000), 1)


@pytest.mark.parametrize(
    ("pointer", "said"),
    [
        *((text, "") for text in ("", "scope/stream", f"{NAME}/0.#epoch.0:0-7", f"{NAME}/0.#epoch.0:-1-9", "x:0-9")),
        (f"{NAME}/0:0-9", ""),
        ("scope/other/0.#epoch.0:0-9", "the pointer belongs to another stream"),
    ],
)
def test_invalid_pointer_is_wrong_usage(several: Vault, pointer: str, said: str) -> None:
    assert said in refusal(several, pointer, 2)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_damaged_event_is_refused(kind: tuple[LayoutName, Compression], tmp_path: Path) -> None:
    several = Vault(tmp_path)
    several.make(events=100)
    several.export(*kind)
    pointer, payload = next(found for found in several.events() if len(found[1]) > 100)
    width = 10 if kind[0] == "events" else 19
    low = f"{pointer.segment.epoch:010d}.{pointer.segment.number:010d}/{pointer.offset:019d}-{'9' * width}"
    key = max(key for key in data_keys(several.root) if key.partition(f"/{kind[0]}/")[2] <= low)
    whole = contents(several.root)[key]
    replace_object(several.root, key, whole[: len(whole) // 2] if kind[0] == "events" else whole[:5])
    refusal(several, pointer, 3)
    replace_object(several.root, key, None)
    refusal(several, pointer, 3)
    if kind[1]:
        replace_object(several.root, key, whole[:-1] + bytes([whole[-1] ^ 1]))  # a checksum
        refusal(several, pointer, 3)
    replace_object(several.root, key, whole)
    assert get_event(several.archive, str(pointer)) == payload


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(filter(None, kind)))
def test_event_is_taken_from_the_bytes_that_were_compared(
    kind: tuple[LayoutName, Compression], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = Vault(tmp_path)
    several.make(events=30)
    several.export(*kind)
    read_verified = show.read_verified

    def then_lost(part: ArchivedPart) -> Iterator[bytes | memoryview]:
        yield from read_verified(part)
        for key in data_keys(several.root):
            replace_object(several.root, key, None)

    monkeypatch.setattr(show, "read_verified", then_lost)
    pointer, payload = several.events()[-1]
    assert get_event(several.archive, str(pointer)) == payload


def test_command_writes_the_payload_and_nothing_else(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    several = Vault(tmp_path, root=f"file://{tmp_path}/vault")
    several.make(events=30)
    several.export("chunks", "zstd")
    pointer, payload = max(several.events(), key=lambda found: len(found[1]))
    capfdbinary.readouterr()
    assert main(["get", several.archive, str(pointer)]) == 0
    assert capfdbinary.readouterr() == (payload, b"")
    assert main(["get", several.archive, str(pointer), "--json"]) == 0
    out, err = capfdbinary.readouterr()
    assert err == b""
    assert json.loads(out) == {"pointer": str(pointer), "payload": base64.b64encode(payload).decode()}
    assert main(["get", several.archive, f"{NAME}/0.#epoch.0:1-8"]) == 1
    out, err = capfdbinary.readouterr()
    assert (out, err.count(b"\n")) == (b"", 1)


@pytest.fixture
def totalled(tmp_path: Path) -> Vault:
    """A stream of six generations, of which the third and the fifth have gaps."""
    made = Vault(tmp_path)
    made.create()
    for number in range(1, 7):
        made.add(*(b"%d" % number * (10 * number) for _ in range(number)))
        if number in {3, 5}:
            made.truncate(made.tail().popitem()[1])
            made.add(b"after the gap")
        made.export("chunks", same_stream=number in {3, 5})
    return made


def rotate(totalled: Vault, keep: int) -> None:
    rotate_stream(totalled.uri(), totalled.root, layout="chunks", range_size=RANGE_SIZE, keep=keep, master="inline")


def add_one(totalled: Vault) -> None:
    totalled.add(b"one more")
    totalled.export("chunks")


def convert(totalled: Vault) -> None:
    root = a_root()
    convert_archive(totalled.archive, root, layout="events", master="inline")
    for key, data in contents(root).items():
        objects_of(totalled.root).put(f"converted/{key}", data)


def hand_off(totalled: Vault) -> None:
    write_table(totalled.archive, format="parquet", master="inline")


def forget_totals(totalled: Vault) -> None:
    """Leave the manifests as an earlier release has written them."""
    for number in range(1, 7):
        forge(totalled, number, None)


Step = Callable[[Vault], object]
CASES: dict[str, Sequence[Step]] = {
    "as exported": [],
    "merged": [lambda totalled: merge(totalled, 2, 4)],
    "merged from the first": [lambda totalled: merge(totalled, 1, 3)],
    "merged twice": [lambda totalled: merge(totalled, 2, 3), lambda totalled: merge(totalled, 2, 5), add_one],
    "expired": [lambda totalled: rotate(totalled, 3)],
    "expired, then merged": [lambda totalled: rotate(totalled, 4), lambda totalled: merge(totalled, 3, 5), add_one],
    "merged, then expired": [lambda totalled: merge(totalled, 2, 3), lambda totalled: rotate(totalled, 4), add_one],
    "converted": [lambda totalled: rotate(totalled, 4), convert],
    "a table": [
        lambda totalled: rotate(totalled, 4),
        hand_off,
        add_one,
        hand_off,
        lambda totalled: merge(totalled, 4, 6),
        hand_off,
    ],
    "a table of merged generations": [lambda totalled: merge(totalled, 2, 3), hand_off, add_one, hand_off],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_totals_are_those_of_the_generations_in_force(
    totalled: Vault, monkeypatch: pytest.MonkeyPatch, steps: Sequence[Step]
) -> None:
    for step in steps:
        step(totalled)
    with counted(monkeypatch) as requests:
        found = list_archives(totalled.root)
    # a decision, the newest manifest with its mark, and the oldest of each
    assert requests[0].gets <= 4 * len(found)
    assert len(found) == 1 + bool({convert, hand_off} & set(steps))
    for one in found:
        archive = Archive.open(one.archive)
        there = archive.table_archive(one.table) if one.table else archive
        expected = summed(there)
        assert (one.events, one.bytes, one.gap_bytes) == tuple(expected[name] for name in Totals.model_fields)
    assert found[0].gap_bytes
    assert not any("totals" in note for note in check_archive(totalled.archive, master="inline").notes)


def summed(archive: Archive) -> Counter[str]:
    found = Counter[str]()
    for span in archive.listing().spans:
        manifest = archive.read_manifest(span)
        found.update(events=manifest.events, bytes=manifest.bytes)
        found.update(gap_bytes=sum(gap.end - gap.start for gap in manifest.gaps))
    return found


def forge(totalled: Vault, generation: int, before: Totals | None) -> Manifest:
    """Sign a manifest again with other totals."""
    forged = archive_of(totalled.root).manifest(generation).model_copy(update={"before": before})
    replace_object(totalled.root, f"{NAME}/{manifest_key(GenerationSpan.of(generation))}", forged.encode())
    return forged


def test_totals_of_an_earlier_release_are_added_up(totalled: Vault) -> None:
    expected = list_archives(totalled.root)
    forget_totals(totalled)
    assert list_archives(totalled.root) == expected
    add_one(totalled)
    assert archive_of(totalled.root).manifest().before is None
    (found,) = list_archives(totalled.root)
    assert (found.events, found.problem) == (expected[0].events + 1, "")


def test_wrong_totals_are_noted(totalled: Vault) -> None:
    forge(totalled, 6, Totals(events=1))
    report = check_archive(totalled.archive, master="inline")
    assert (report.ok, report.notes) == (
        True,
        ("generation 6 has wrong totals of the generations before it, which 'ls' and 'status' show",),
    )


def test_totals_that_are_impossible_are_a_problem(totalled: Vault) -> None:
    rotate(totalled, 2)
    forge(totalled, 6, Totals())
    (found,) = list_archives(totalled.root)
    assert "generation 6 has lower totals than there were before generation 5" in found.problem


def test_gaps_beyond_all_limits_end_no_listing(totalled: Vault) -> None:
    newest = archive_of(totalled.root).manifest()
    end = 2**63 - 1
    (entry,) = newest.segments
    entry = entry.model_copy(update={"end": end})
    gaps = 2 * (GapEntry(segment=entry.name, start=entry.start, end=end, reason="forged"),)
    to = StreamCut(NAME, dict.fromkeys(newest.to.offsets, end))
    members = {"segments": (entry,), "gaps": gaps, "to": to, "witness": ()}
    replace_object(
        totalled.root,
        f"{NAME}/{manifest_key(GenerationSpan.of(6))}",
        newest.model_copy(update=members).encode(),
    )
    (found,) = list_archives(totalled.root)
    assert found.gap_bytes > end
    with pytest.raises(Damaged, match="are not contiguous"):
        check_archive(totalled.archive, master="inline")


def test_totals_before_the_first_generation_are_noted(totalled: Vault) -> None:
    forge(totalled, 1, Totals(events=1))
    assert "generation 1 has wrong totals" in " ".join(check_archive(totalled.archive, master="inline").notes)


def test_totals_beyond_all_limits_are_not_carried_on(totalled: Vault) -> None:
    forge(totalled, 6, Totals(bytes=2**63 - 1))
    add_one(totalled)
    assert archive_of(totalled.root).manifest().before is None
