"""A conversion that finds an unfinished one in another layout: it says so, or gives that one up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamvault import compact_archive, convert_archive
from streamvault.common.errors import Conflict, Usage
from streamvault.exporter import convert as converting
from streamvault.layouts.keys import GenerationSpan
from streamvault.manifests import archive as publishing
from streamvault.manifests.archive import Archive
from streamvault.manifests.plan import Plan, create_plan, current_plan
from testkit.killed import Killed, killed
from testkit.small_archives import Vault, a_root, archive_of, contents, data_keys, is_sound, segments_of


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    vault = Vault(tmp_path)
    vault.make(events=60)
    vault.export("chunks")
    return vault


@pytest.fixture
def root() -> str:
    return a_root()


@pytest.fixture
def begin(vault: Vault, root: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Begin a conversion that is killed once everything is written, or before the manifest."""

    def begin(*, ended: bool = False, **options: Any) -> None:
        with monkeypatch.context() as patch:
            if ended:
                patch.setattr(Archive, "commit", killed)
            else:
                patch.setattr(converting, "record_end", killed)
            with pytest.raises(Killed):
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
        with pytest.raises(Usage, match="compress none, and no others can take their names"):
            convert(vault, root, layout="chunks", compress="zstd", restart=True)
    assert attempts(root) == 1
    begin(layout="events", restart=True)
    with pytest.raises(Usage, match="compress none, and no others can take their names"):
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
