"""Conversion of an archive to another layout: equal digests, resuming, giving up, incremental runs, wrong targets."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from streamvault import compact_archive, convert_archive
from streamvault.cli import main
from streamvault.common.errors import Conflict, Damaged, Problem, Usage
from streamvault.exporter import convert as converting
from streamvault.exporter.reports import ConvertReport
from streamvault.layouts.keys import GenerationSpan
from streamvault.layouts.layout import Compression, LayoutName
from streamvault.manifests import archive as publishing
from streamvault.manifests.archive import Archive
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.plan import Plan, create_plan, current_plan
from testkit.killed import Killed, stopped_at
from testkit.small_archives import (
    KINDS,
    NAME,
    Vault,
    a_root,
    a_vault,
    archive_of,
    contents,
    data_keys,
    is_sound,
    objects_of,
    replace_object,
    segments_of,
)
from tests.told import Ran

Kind = tuple[LayoutName, Compression]


def kinds(kind: Kind) -> str:
    return "-".join(filter(None, kind))


@pytest.fixture(scope="module")
def vaults(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Vault]:
    """The same stream, archived in each layout; tests do not change it."""
    made = {}
    folder = tmp_path_factory.mktemp("vaults")
    Vault(folder).make()
    for kind in KINDS:
        made[kind] = Vault(folder)
        made[kind].export(*kind)
    return made


def converted(source: str, root: str, kind: Kind, *, dry_run: bool = False) -> ConvertReport:
    return convert_archive(source, root, layout=kind[0], compress=kind[1], master="inline[2]", dry_run=dry_run)


def manifests(root: str) -> list[Manifest]:
    """The properties that two archives of one stream share."""
    history = archive_of(root).history()
    plain = {"layout": "events", "compression": "", "tool": "", "index": None}
    return [generation.manifest.model_copy(update=plain) for generation in history.generations]


@pytest.mark.parametrize(("old", "new"), list(product(KINDS, KINDS)), ids=kinds)
def test_every_layout_converts_to_every_other(vaults: dict[Kind, Vault], old: Kind, new: Kind) -> None:
    source, root = vaults[old], a_root()
    before = contents(source.root)
    report = converted(source.archive, root, new)
    assert (report.generations, report.converted, report.unchanged) == ((1,), (1,), False)
    assert report.archive == f"{root}/{NAME}"
    assert report.moved_bytes == report.bytes == manifests(root)[0].bytes
    # the data equals what an export in that layout writes, byte for byte
    assert {key: contents(root)[key] for key in data_keys(root)} == {
        key: contents(vaults[new].root)[key] for key in data_keys(vaults[new].root)
    }
    made = archive_of(root).manifest()
    assert (made.layout, made.compression) == new
    assert manifests(root) == manifests(source.root)
    assert segments_of(root) == segments_of(source.root)
    assert not [key for key in contents(root) if "/_work/" in key]
    assert is_sound(root)
    assert contents(source.root) == before


def test_second_run_is_unchanged(vaults: dict[Kind, Vault]) -> None:
    root = a_root()
    converted(vaults["events", ""].archive, root, ("chunks", "zstd"))
    before = contents(root)
    again = converted(vaults["events", ""].archive, root, ("chunks", "zstd"))
    assert (again.unchanged, again.converted, again.generations) == (True, (), (1,))
    assert (again.moved_bytes, again.ranges) == (0, 0)
    assert contents(root) == before


def test_generations_of_several_layouts_are_converted_and_later_ones_added(tmp_path: Path) -> None:
    vault, root = Vault(tmp_path), a_root()
    vault.make()
    for kind in KINDS:
        vault.export(*kind)
        vault.add(kinds(kind).encode() * 50, b"")
    vault.export()
    assert [(g.manifest.layout, g.manifest.compression) for g in archive_of(vault.root).history().generations] == [
        *KINDS,
        KINDS[0],
    ]
    report = converted(vault.archive, root, ("chunks", "zstd"))
    assert report.converted == report.generations == (1, 2, 3, 4)
    assert manifests(root) == manifests(vault.root)
    assert segments_of(root) == segments_of(vault.root)
    assert is_sound(root)

    before = contents(root)
    vault.add(b"later")
    vault.export("chunks")
    later = converted(vault.archive, root, ("chunks", "zstd"))
    assert (later.converted, later.generations, later.unchanged) == ((5,), (1, 2, 3, 4, 5), False)
    assert later.moved_bytes == 13 * len(archive_of(root).manifest().to.offsets)
    assert before.items() <= contents(root).items()
    assert is_sound(root)

    # another layout from here on; the existing generations stay unchanged
    vault.add(b"latest")
    vault.export()
    mixed = converted(vault.archive, root, ("events", ""))
    assert mixed.converted == (6,)
    assert [g.manifest.layout for g in archive_of(root).history().generations] == [*["chunks"] * 5, "events"]
    assert segments_of(root) == segments_of(vault.root)
    assert is_sound(root)


@pytest.mark.parametrize("old", KINDS, ids=kinds)
@pytest.mark.parametrize("damage", ["missing", "short", "content"])
def test_damaged_archive_is_refused(tmp_path: Path, old: Kind, damage: str) -> None:
    vault, root = Vault(tmp_path), a_root()
    vault.make(events=60)
    vault.export(*old)
    key = next(key for key in reversed(data_keys(vault.root)) if len(contents(vault.root)[key]) > 30)
    whole = contents(vault.root)[key]
    other = {"missing": None, "short": whole[:-1], "content": whole[:20] + bytes([whole[20] ^ 0xFF]) + whole[21:]}
    replace_object(vault.root, key, other[damage])
    new: Kind = ("chunks", "") if old[0] == "events" else ("events", "")
    with pytest.raises(Damaged) as caught:
        converted(vault.archive, root, new)
    assert caught.value.exit_code == 3
    assert str(caught.value).isprintable()
    assert archive_of(root).generations() == [], "nothing is published"

    replace_object(vault.root, key, whole)
    converted(vault.archive, root, new)
    assert segments_of(root) == segments_of(vault.root)
    assert is_sound(root)


def refusal(source: str, root: str, kind: Kind, code: int) -> str:
    before = contents(root)
    with pytest.raises(Problem) as caught:
        converted(source, root, kind)
    assert caught.value.exit_code == code, str(caught.value)
    assert contents(root) == before
    return str(caught.value)


def test_another_archive_at_the_target_is_a_conflict(vaults: dict[Kind, Vault], tmp_path: Path) -> None:
    other = Vault(tmp_path)
    other.make(events=40)
    other.export()
    said = refusal(vaults["events", ""].archive, other.root, ("chunks", ""), 4)
    assert said.startswith("the target has generation 1 of another archive: memory://")


def test_foreign_object_in_the_way_is_a_conflict(vaults: dict[Kind, Vault]) -> None:
    source, root = vaults["events", ""], a_root()
    key = data_keys(vaults["chunks", ""].root)[-1]
    objects_of(root).put(key, b"not ours")
    with pytest.raises(Problem, match="a different object already exists") as caught:
        converted(source.archive, root, ("chunks", ""))
    assert caught.value.exit_code == 4
    assert contents(root)[key] == b"not ours"
    assert archive_of(root).generations() == []


def test_conversion_onto_itself_is_wrong_usage(vaults: dict[Kind, Vault]) -> None:
    vault = vaults["events", ""]
    assert "cannot be converted in place" in refusal(vault.archive, vault.root, ("chunks", ""), 2)
    assert "cannot be converted in place" in refusal(vault.archive, f"{vault.root}/", ("chunks", ""), 2)


def test_invalid_layout_is_wrong_usage(vaults: dict[Kind, Vault]) -> None:
    archive = vaults["events", ""].archive
    wrong: list[tuple[Any, Any]] = [("pages", ""), ("events", "zstd"), ("chunks", "gzip")]
    for kind in wrong:
        refusal(archive, a_root(), kind, 2)


def test_missing_archive_is_one_line() -> None:
    assert "no archive" in refusal(f"{a_root()}/{NAME}", a_root(), ("chunks", ""), 5)


@pytest.mark.parametrize(("old", "new"), list(product(KINDS, KINDS[:2])), ids=kinds)
def test_dry_run_writes_nothing_and_estimates_requests(vaults: dict[Kind, Vault], old: Kind, new: Kind) -> None:
    source, root = vaults[old], a_root()
    report = converted(source.archive, root, new, dry_run=True)
    assert contents(root) == {}
    assert (report.dry_run, report.converted, report.moved_bytes) == (True, (1,), 0)
    assert report.cost is not None
    assert report.cost.objects == len(data_keys(vaults[new].root))
    assert report.cost.puts > report.cost.objects + report.ranges
    assert report.cost.gets >= len(data_keys(source.root))


def test_window_smaller_than_a_range_is_wrong_usage(vaults: dict[Kind, Vault], tmp_path: Path, ran: Ran) -> None:
    archive = vaults["events", ""].archive
    assert ran(
        "convert", archive, f"file://{tmp_path}/new", "--layout", "chunks", "--window", "1MiB", code=2
    ).err.startswith("streamvault: --window must be at least 16MiB: 1MiB")


def test_command_prints_what_it_did(tmp_path: Path, ran: Ran) -> None:
    vault = Vault(tmp_path, root=f"file://{tmp_path}/old")
    vault.make(events=30)
    vault.export()
    new = f"file://{tmp_path}/new"
    line = ["convert", vault.archive, new, "--layout", "chunks", "--compress", "zstd", "--master", "inline"]
    assert "would write generation 1 of" in ran(*line, "--dry-run").out
    assert not (tmp_path / "new").exists()
    assert f"wrote generation 1 of {new}/{NAME}" in ran(*line).out
    told = json.loads(ran(*line, "--json").out)
    assert (told["unchanged"], told["converted"], told["generations"]) == (True, [], [1])
    assert main([*line[:2], f"file://{tmp_path}/old", *line[3:]]) == 2


vault = a_vault(events=60, exports=[("chunks", "")])


@pytest.fixture
def root() -> str:
    return a_root()


@pytest.fixture
def begin(vault: Vault, root: str) -> Callable[..., None]:
    """Begin a conversion that is killed once everything is written, or before the manifest."""

    def begin(*, ended: bool = False, **options: Any) -> None:
        with stopped_at(Archive, "commit") if ended else stopped_at(converting, "record_end"):
            convert(vault, root, **options)

    return begin


def convert(vault: Vault, root: str, **options: Any) -> Any:
    return convert_archive(vault.archive, root, **{"layout": "events", **options}, master="inline")


def is_converted(vault: Vault, root: str, *layouts: str) -> None:
    """Check that the copy is whole, in these layouts alone, and nothing of its runs is left."""
    assert segments_of(root) == segments_of(vault.root)
    assert is_sound(root)
    assert {key.split("/")[2] for key in data_keys(root)} == {*layouts}
    assert not [key for key in contents(root) if "/_work/" in key]


def attempts(root: str) -> int:
    archive = archive_of(root)
    return current_plan(archive.place, GenerationSpan.of(1))[1]


def test_other_layout_than_the_unfinished_conversion_is_wrong_usage(
    vault: Vault, root: str, begin: Callable[..., None]
) -> None:
    begin()
    before = contents(root)
    for more in ({}, {"dry_run": True}):
        with pytest.raises(Usage, match="an unfinished run has other options: layout='events'") as caught:
            convert(vault, root, layout="chunks", **more)
        assert "restart=True" in str(caught.value)
    assert contents(root) == before
    assert convert(vault, root).resumes["layout"] == "events"
    is_converted(vault, root, "events")


@pytest.mark.parametrize("compress", ["", "zstd"])
def test_restart_gives_the_unfinished_conversion_up(
    vault: Vault, root: str, begin: Callable[..., None], compress: str
) -> None:
    begin()
    assert any("/events/" in key for key in data_keys(root))
    options = {"layout": "chunks", "compress": compress, "restart": True}
    rehearsed = convert(vault, root, **options, dry_run=True)
    report = convert(vault, root, **options)
    assert (report.resumes, report.gave_up["layout"]) == (None, "events")
    assert rehearsed.gave_up == report.gave_up
    assert archive_of(root).manifest().compression == compress
    is_converted(vault, root, "chunks")


def test_restart_resumes_what_has_the_same_options(vault: Vault, root: str, begin: Callable[..., None]) -> None:
    begin(restart=True)
    report = convert(vault, root, restart=True)
    assert (report.gave_up, report.resumes["layout"], report.moved_bytes) == (None, "events", 0)
    is_converted(vault, root, "events")


def test_restart_keeps_the_former_generations(vault: Vault, root: str, begin: Callable[..., None]) -> None:
    """They may have the layout that the plan which is given up had."""
    convert(vault, root)
    vault.add(b"more")
    vault.export("chunks")
    begin()
    convert(vault, root, layout="chunks", restart=True)
    is_converted(vault, root, "chunks", "events")


def test_layout_may_be_changed_there_and_back(vault: Vault, root: str, begin: Callable[..., None]) -> None:
    begin()
    begin(layout="chunks", restart=True)
    assert convert(vault, root, restart=True).gave_up["layout"] == "chunks"
    is_converted(vault, root, "events")


def test_merged_generation_is_given_up_like_any_other(vault: Vault, root: str, begin: Callable[..., None]) -> None:
    vault.add(b"more")
    vault.export("chunks")
    compact_archive(vault.archive, master="inline")
    begin()
    assert convert(vault, root, layout="chunks", restart=True).gave_up is not None
    is_converted(vault, root, "chunks")


def test_conversion_that_has_written_everything_is_not_given_up(
    vault: Vault, root: str, begin: Callable[..., None]
) -> None:
    begin(ended=True)
    with pytest.raises(Conflict, match="it has archived everything"):
        convert(vault, root, layout="chunks", restart=True)
    convert(vault, root)
    is_converted(vault, root, "events")


def test_index_without_a_record_of_the_end_is_not_given_up(
    vault: Vault, root: str, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a conversion of an earlier state leaves it: the index would have the name of the next one's."""
    create = publishing.create_or_compare

    def killed(archive: Archive, key: str, *arguments: Any) -> Any:
        if key.endswith(".json"):
            raise Killed
        return create(archive, key, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(converting, "record_end", lambda *_: None)
        patch.setattr(publishing, "create_or_compare", killed)
        with pytest.raises(Killed):
            convert(vault, root)
    with pytest.raises(Conflict, match="it has archived everything"):
        convert(vault, root, layout="chunks", restart=True)
    convert(vault, root)
    is_converted(vault, root, "events")


def test_other_compression_is_refused_before_the_plan_is_given_up(
    vault: Vault, root: str, begin: Callable[..., None]
) -> None:
    begin(layout="chunks")
    for _ in range(2):
        with pytest.raises(Usage, match="compress none, and other chunks cannot take their names"):
            convert(vault, root, layout="chunks", compress="zstd", restart=True)
    assert attempts(root) == 1
    begin(layout="events", restart=True)
    with pytest.raises(Usage, match="compress none, and other chunks cannot take their names"):
        convert(vault, root, layout="chunks", compress="zstd", restart=True)
    assert attempts(root) == 2
    convert(vault, root)
    is_converted(vault, root, "events")


def test_export_that_is_not_finished_is_not_given_up(vault: Vault, root: str) -> None:
    plan = Plan.of(archive_of(vault.root).manifest())
    archive = archive_of(root)
    create_plan(archive.place, plan.model_copy(update={"range_size": 1}))
    with pytest.raises(Conflict, match="an export or another conversion has begun"):
        convert(vault, root, restart=True)
    assert attempts(root) == 1


def test_nothing_is_swept_beside_a_conversion_of_the_merged_generation(
    vault: Vault, root: str, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversion of the compacted archive may replace what another has published, in the layout that is swept."""
    vault.add(b"more")
    vault.export("chunks")
    begin()
    commit, record_end = Archive.commit, converting.record_end
    asked: list[Any] = []

    def paused(*arguments: Any) -> None:
        asked[:] = arguments
        raise Killed

    def beside(*arguments: Any) -> None:
        compact_archive(vault.archive, master="inline")
        with monkeypatch.context() as patch:
            patch.setattr(converting, "record_end", record_end)
            patch.setattr(Archive, "commit", paused)
            with pytest.raises(Killed):
                convert(vault, root)
        monkeypatch.setattr(converting, "record_end", record_end)
        record_end(*arguments)

    monkeypatch.setattr(converting, "record_end", beside)
    assert convert(vault, root, layout="chunks", restart=True).converted == (1, 2)
    commit(*asked)
    assert archive_of(root).generations() == [2]
    assert archive_of(root).manifest().layout == "events"
    assert segments_of(root) == segments_of(vault.root)
    assert is_sound(root)
