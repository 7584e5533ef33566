"""An export that finds an unfinished one with other options: it says so, or gives that one up."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamvault import export_stream, rotate_stream
from streamvault.cli import main
from streamvault.common.errors import Conflict, Overtaken, Usage
from streamvault.exporter import plan as planning
from streamvault.exporter.run import ExportRun
from streamvault.layouts.keys import GenerationSpan
from streamvault.manifests.archive import Archive
from streamvault.manifests.plan import current_plan
from streamvault.streamstore.model import StreamCut
from testkit.killed import before_call, stopped_at
from testkit.small_archives import NAME, RANGE_SIZE, Vault, a_vault, archive_of, contents, data_keys, is_sound
from tests.told import Ran

CUT = {f"{NAME}/0.#epoch.0": 50 * 12, f"{NAME}/1.#epoch.0": 50 * 12}
KINDS: dict[str, dict[str, Any]] = {
    "layout": {"layout": "chunks"},
    "range size": {"range_size": 512},
    "compression": {"layout": "chunks", "compress": "zstd"},
    "content": {"content": "bytes", "layout": "chunks"},
    "from": {"from_cut": CUT},
    "to": {"to_cut": CUT},
}
NAMED = {
    "layout": "layout='events'",
    "range size": "range_size 4KiB",
    "compression": "layout='events'",
    "content": "content='events'",
    "from": f"from_cut {StreamCut.from_json(dict.fromkeys(CUT, 0)).to_json()}",
    "to": f"to_cut {StreamCut.from_json(dict.fromkeys(CUT, 1200)).to_json()}",
}


vault = a_vault(*(b"%04d" % number for number in range(100)), segments=2)


@pytest.fixture
def begin(vault: Vault) -> Callable[..., None]:
    """Begin an export that is killed once everything is moved."""

    def begin(method: str = "_prove", **options: Any) -> None:
        with stopped_at(Archive if method == "commit" else ExportRun, method):
            export(vault, **options)

    return begin


def export(vault: Vault, **options: Any) -> Any:
    return export_stream(vault.uri(), vault.root, **{"range_size": RANGE_SIZE, **options}, master="inline[2]")


@pytest.mark.parametrize("kind", KINDS)
def test_option_that_differs_from_the_unfinished_run_is_wrong_usage(
    vault: Vault, begin: Callable[..., None], kind: str
) -> None:
    begin()
    before = contents(vault.root)
    for more in ({}, {"dry_run": True}):
        with pytest.raises(Usage, match="an unfinished run has other options") as caught:
            export(vault, **KINDS[kind], **more)
        assert NAMED[kind] in str(caught.value)
        assert "restart=True" in str(caught.value)
    assert contents(vault.root) == before
    assert export(vault).resumed


@pytest.mark.parametrize("kind", KINDS)
def test_restart_gives_the_unfinished_run_up(vault: Vault, begin: Callable[..., None], kind: str) -> None:
    begin()
    rehearsed = export(vault, **KINDS[kind], restart=True, dry_run=True)
    report = export(vault, **KINDS[kind], restart=True)
    assert (report.resumed, report.gave_up["layout"]) == (False, "events")
    assert rehearsed.gave_up == report.gave_up
    assert rehearsed.bytes == report.bytes
    given = {"range_size": RANGE_SIZE, "compress": "", "layout": "events", "content": "events", **KINDS[kind]}
    made = archive_of(vault.root).manifest()
    assert (
        given
        | {
            "range_size": made.range_size,
            "compress": made.compression,
            "layout": made.layout,
            "content": made.content,
        }
        == given
    )
    assert is_sound(vault.root)
    assert {key.split("/")[2] for key in data_keys(vault.root)} == {made.layout}, "none of the other layout is left"
    assert not [key for key in contents(vault.root) if "/_work/" in key]


def test_restart_keeps_the_former_generations(vault: Vault, begin: Callable[..., None]) -> None:
    """They may have the layout that the plan which is given up had."""
    export(vault, layout="events")
    vault.add(b"more")
    begin(layout="events")
    export(vault, layout="chunks", restart=True)
    assert is_sound(vault.root)
    assert {key.split("/")[2] for key in data_keys(vault.root)} == {"chunks", "events"}


def test_restart_resumes_what_has_the_same_options(vault: Vault, begin: Callable[..., None]) -> None:
    """So a run that is repeated with --restart does not begin anew each time."""
    begin(layout="chunks", restart=True)
    assert export(vault, layout="chunks", restart=True).resumed
    assert archive_of(vault.root).manifest().generation == 1


@pytest.mark.parametrize("options", [{"layout": "chunks"}, {"from_cut": CUT}])
def test_restart_compares_with_the_defaults(vault: Vault, begin: Callable[..., None], options: dict[str, Any]) -> None:
    begin(**options)
    assert not export(vault, restart=True).resumed
    manifest = archive_of(vault.root).manifest()
    assert (manifest.layout, manifest.events) == ("events", 200)


def test_restart_resumes_what_begins_at_an_earlier_head(vault: Vault, begin: Callable[..., None]) -> None:
    """The store may have truncated the stream since, as a retention policy says."""
    begin()
    vault.truncate(StreamCut.from_json(CUT))
    assert export(vault, restart=True).resumed


@pytest.mark.parametrize("is_killed", [False, True])
def test_run_whose_plan_was_given_up_publishes_nothing(
    vault: Vault, begin: Callable[..., None], is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be paused for as long as it likes, and the one that gave it up may have been killed."""
    others = partial(begin if is_killed else partial(export, vault), layout="chunks", restart=True)
    before_call(monkeypatch, ExportRun, "_prove", others)
    with pytest.raises(Overtaken):
        export(vault)
    assert bool(archive_of(vault.root).generations()) == (not is_killed)
    export(vault, layout="chunks")
    assert archive_of(vault.root).manifest().layout == "chunks"
    assert is_sound(vault.root)


def test_run_that_has_archived_everything_is_not_given_up(vault: Vault, begin: Callable[..., None]) -> None:
    """Its index may be there already, and would take the name of the next one's."""
    begin("commit")
    with pytest.raises(Conflict, match="it has archived everything"):
        export(vault, layout="chunks", restart=True)
    assert export(vault).resumed
    assert archive_of(vault.root).manifest().layout == "events"


def test_other_compression_is_refused_before_the_plan_is_given_up(vault: Vault, begin: Callable[..., None]) -> None:
    begin(layout="chunks")
    with pytest.raises(Usage, match="compress none, and other chunks cannot take their names"):
        export(vault, layout="chunks", compress="zstd", restart=True)
    archive = archive_of(vault.root)
    assert current_plan(archive.place, GenerationSpan.of(1))[1] == 1
    assert export(vault).resumed


def test_invalid_cut_is_refused_before_the_plan_is_given_up(vault: Vault, begin: Callable[..., None]) -> None:
    begin()
    with pytest.raises(Usage):
        export(vault, to_cut=dict.fromkeys(CUT, 10**6), restart=True)
    archive = archive_of(vault.root)
    assert current_plan(archive.place, GenerationSpan.of(1))[1] == 1


def test_late_restart_changes_nothing_of_a_published_generation(
    vault: Vault, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unfinished run is resumed and published between the look at its plan and the record that it is given up."""
    begin()
    before_call(monkeypatch, planning, "end_plan", lambda: export(vault))
    report = export(vault, layout="chunks", restart=True)
    assert (report.unchanged, report.gave_up) == (True, None)
    assert not [key for key in contents(vault.root) if "/_work/" in key]
    assert is_sound(vault.root)


def test_rotation_has_the_option(vault: Vault, begin: Callable[..., None]) -> None:
    begin()
    with pytest.raises(Usage, match="layout='events'"):
        rotate_stream(vault.uri(), vault.root, layout="chunks", master="inline")
    report = rotate_stream(vault.uri(), vault.root, layout="chunks", restart=True, master="inline")
    assert report.export.gave_up is not None


def test_command_says_what_it_would_resume_or_give_up(
    vault: Vault, begin: Callable[..., None], ran: Ran, tmp_path: Path
) -> None:
    root = f"file://{tmp_path}/vault"
    object.__setattr__(vault, "root", root)
    begin()
    command = ["export", vault.uri(), root, "--master", "inline", "--dry-run"]
    assert f"would resume the unfinished generation 1 of {root}/{NAME}" in (out := ran(*command).out)
    assert "an unfinished run with content events, layout events, compress none, range size 4KiB" in out
    assert main([*command, "--layout", "chunks"]) == 2
    assert "gives up" in ran(*command, "--layout", "chunks", "--restart").out
    assert (
        json.loads(ran(*command, "--layout", "chunks", "--restart", "--json").out)["gave_up"]["range_size"]
        == RANGE_SIZE
    )
