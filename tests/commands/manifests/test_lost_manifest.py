"""The newest manifest is lost: its mark, its index or a decision show it, nothing goes on, and there is a way back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamvault import (
    append_streams,
    check_archive,
    compact_archive,
    convert_archive,
    export_stream,
    follow_stream,
    get_event,
    hold_archive,
    import_stream,
    list_archives,
    read_archive,
    rotate_stream,
    show_archive,
    show_status,
    show_timeline,
    write_table,
)
from streamvault.common.errors import Damaged, Failed
from streamvault.common.progress import Progress
from streamvault.exporter import plan as planning
from streamvault.exporter.compact import Compaction, choose_runs
from streamvault.exporter.reports import CompactOptions, RotateOptions
from streamvault.exporter.rotate import expire
from streamvault.inspect.history import read_history
from streamvault.layouts.keys import (
    GenerationSpan,
    checked_key,
    manifest_key,
    plan_key,
    ranges_key,
    truncation_key,
)
from streamvault.manifests.archive import Archive
from streamvault.manifests.files import decode
from streamvault.manifests.manifest import Manifest
from streamvault.manifests.merging import delete_replaced
from streamvault.manifests.plan import Plan, create_plan, find_plan
from streamvault.objectstore.obstore_store import ObstoreStore
from streamvault.runner.opening import Tasks
from streamvault.streamstore.model import StreamName
from streamvault.streamstore.uri import parse_stream
from testkit.killed import before_call
from testkit.small_archives import NAME, Vault, a_root, archive_of, contents, merge, replace_object

NEWEST = GenerationSpan.of(3)
MERGED = GenerationSpan(2, 3)
LOST = "the manifest of generation 3 is missing"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    """Three generations, all read back, of which the source has nothing any more, and an event of the next one."""
    vault = Vault(tmp_path)
    vault.make(events=20, largest=500)
    for number in range(3):
        vault.add(b"%d" % number)
        rotates(vault, truncate_source=True)
    vault.add(b"next")
    return vault


def rotates(vault: Vault, **options: Any) -> Any:
    return rotate_stream(vault.uri(), vault.root, layout="chunks", master="inline[1]", **options)


def loses(vault: Vault, *lost: Callable[[GenerationSpan], str], span: GenerationSpan = NEWEST) -> dict[str, bytes]:
    """Lose objects of the newest generation; return them."""
    held = {f"{NAME}/{key(span)}": contents(vault.root)[f"{NAME}/{key(span)}"] for key in lost}
    for key in held:
        replace_object(vault.root, key, None)
    return held


def compaction(vault: Vault) -> Compaction:
    return Compaction(archive_of(vault.root), CompactOptions(), Tasks("inline[1]", ExitStack(), []), Progress())


VERBS: dict[str, Callable[[Vault], object]] = {
    "check": lambda vault: check_archive(vault.archive, read_data=True, master="inline[1]"),
    "check-repair": lambda vault: check_archive(vault.archive, repair=True, master="inline[1]"),
    "check-lost": lambda vault: check_archive(vault.archive, generation=3, master="inline[1]"),
    "rotate": partial(rotates, keep=1, truncate_source=True),
    "export": lambda vault: export_stream(vault.uri(), vault.root, master="inline[1]"),
    "follow": lambda vault: follow_stream(vault.uri(), vault.root, lasting=0.001, retry_for=0, master="inline[1]"),
    "compact": lambda vault: compact_archive(vault.archive, master="inline[1]"),
    "compact-run": lambda vault: compaction(vault).run(partial(choose_runs, target=1 << 30, at_least=2)),
    "clear": lambda vault: delete_replaced(archive_of(vault.root)),
    "expire": lambda vault: expire(archive_of(vault.root), RotateOptions(keep=1), parse_stream(vault.uri())[0]),
    "import": lambda vault: import_stream(vault.archive, vault.uri(StreamName("scope", "b")), master="inline[1]"),
    "convert": lambda vault: convert_archive(vault.archive, a_root(), layout="chunks", master="inline[1]"),
    "timeline": lambda vault: show_timeline(vault.archive),
    "show": lambda vault: show_archive(vault.archive),
    "report": lambda vault: read_history(archive_of(vault.root)),
    "cat": lambda vault: read_archive(vault.archive).read_all(),
    "handoff": lambda vault: write_table(vault.archive, master="inline[1]"),
    "append": lambda vault: append_streams([vault.archive], vault.uri(), master="inline[1]"),
    "get": lambda vault: get_event(vault.archive, str(vault.events()[0][0])),
}


def loses_merged(vault: Vault, *, grace: int) -> None:
    """Merge the newest two generations, and lose all that is kept of the merged one but the decision."""
    merge(vault, 2, 3, grace=grace)
    loses(vault, manifest_key, ranges_key, span=MERGED)
    held = f"{NAME}/{checked_key(MERGED)}"
    replace_object(vault.root, held, None)


def loses_all(vault: Vault) -> None:
    """Lose all that is kept of the newest generation."""
    loses(vault, manifest_key, ranges_key, checked_key)


def loses_held(vault: Vault) -> None:
    hold_archive(vault.archive, name="audit", generation=3)
    loses_all(vault)


def loses_noted(vault: Vault) -> None:
    archive = archive_of(vault.root)
    archive.store.put(archive.prefix + truncation_key(3), b"")
    loses_all(vault)


LOSSES: dict[str, tuple[Callable[[Vault], object], GenerationSpan]] = {
    "mark-left": (lambda vault: loses(vault, manifest_key, ranges_key), NEWEST),
    "index-left": (lambda vault: loses(vault, manifest_key, checked_key), NEWEST),
    "both-left": (lambda vault: loses(vault, manifest_key), NEWEST),
    "held": (loses_held, NEWEST),
    "truncation-noted": (loses_noted, NEWEST),
    "merged": (partial(loses_merged, grace=0), MERGED),
    "merged-replaced-left": (partial(loses_merged, grace=1000), MERGED),
}


@pytest.mark.parametrize(
    ("loss", "verb"),
    [*((loss, verb) for loss in ("both-left", "merged") for verb in VERBS), *((loss, "export") for loss in LOSSES)],
)
def test_nothing_goes_on_without_the_newest_manifest(vault: Vault, loss: str, verb: str) -> None:
    lose, lost = LOSSES[loss]
    lose(vault)
    before = contents(vault.root)
    with pytest.raises(Damaged, match=f"the manifest of generation {lost.first} is missing") as caught:
        VERBS[verb](vault)
    assert contents(vault.root) == before
    advice = caught.value.todo
    assert f"Restore {manifest_key(lost)}" in advice
    assert "delete nothing" in advice
    assert f"import --generation {lost.first - 1}" in advice


def test_advice_loses_nothing(vault: Vault) -> None:
    source, held = vault.events(), loses(vault, manifest_key)
    assert check_archive(vault.archive, generation=2, master="inline[1]").ok
    assert import_stream(vault.archive, vault.uri(StreamName("scope", "b")), generation=2, master="inline[1]").events
    (summary,) = list_archives(vault.root)
    assert LOST in summary.problem
    for key, data in held.items():
        replace_object(vault.root, key, data)
    assert check_archive(vault.archive, read_data=True, master="inline[1]").ok
    assert rotates(vault).generation == 4
    assert vault.events() == source


def test_archive_that_lost_its_only_manifest_is_not_begun_anew(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=5, largest=50)
    vault.export()
    loses(vault, manifest_key, span=GenerationSpan.of(1))
    before = contents(vault.root)
    with pytest.raises(Damaged, match="the manifest of generation 1 is missing") as caught:
        vault.export()
    assert "import" not in caught.value.todo
    assert contents(vault.root) == before
    (summary,) = list_archives(vault.root)
    assert "is missing" in summary.problem


@pytest.mark.parametrize("loss", LOSSES)
def test_list_of_archives_names_what_is_lost(vault: Vault, loss: str) -> None:
    LOSSES[loss][0](vault)
    (summary,) = list_archives(vault.root)
    (status,) = show_status(vault.archive).statuses
    assert "is missing" in summary.problem
    assert "is missing" in status.problem


def test_conversion_into_an_archive_that_lost_its_newest_manifest_is_refused(vault: Vault) -> None:
    target = Vault(vault.folder, a_root())
    convert_archive(vault.archive, target.root, layout="chunks", master="inline[1]")
    loses(target, manifest_key)
    before = contents(target.root)
    with pytest.raises(Damaged, match=LOST):
        convert_archive(vault.archive, target.root, layout="chunks", master="inline[1]")
    assert contents(target.root) == before


def test_publication_under_way_is_no_damage(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is written, and the run pauses or is killed before the manifest: its plan is there."""
    seen: list[bool] = []
    put = ObstoreStore.put

    def paused(self: ObstoreStore, key: str, data: bytes | memoryview) -> None:
        if key.endswith(manifest_key(GenerationSpan.of(4))) and not seen:
            seen.append(archive_of(vault.root).listing().begun == ((4, 4),))
            seen.append(check_archive(vault.archive, read_data=True, master="inline[1]").ok)
            raise Failed("killed for a test")
        put(self, key, data)

    monkeypatch.setattr(ObstoreStore, "put", paused)
    with pytest.raises(Failed, match="killed"):
        rotates(vault)
    assert seen == [True, True]
    assert rotates(vault).generation == 4


def test_publication_between_a_listing_and_the_look_for_its_plan_is_no_damage(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_of(vault.root)
    held = loses(vault, manifest_key, checked_key)
    create_plan(archive.place, _plan_of(vault, held))
    assert archive.listing().missing is None

    def publish() -> None:
        for name, data in held.items():
            replace_object(vault.root, name, data)
        archive.store.delete([archive.prefix + plan_key(NEWEST)])

    before_call(monkeypatch, ObstoreStore, "size", publish)
    listing = archive.listing()
    assert (listing.newest, listing.missing, listing.orphans) == (3, None, ())


def _plan_of(vault: Vault, held: dict[str, bytes]) -> Any:
    return Plan.of(decode(Manifest, held[f"{NAME}/{manifest_key(NEWEST)}"], vault.archive))


def test_late_plan_of_a_generation_whose_manifest_was_lost_is_removed(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is created when the generation was published, its plan was removed, and its manifest was lost."""
    archive = archive_of(vault.root)

    def others() -> None:
        vault.export("chunks")
        loses(vault, manifest_key, span=GenerationSpan.of(4))

    before_call(monkeypatch, planning, "create_plan", others)
    with pytest.raises(Damaged, match="the manifest of generation 4 is missing"):
        vault.export("chunks")
    assert find_plan(archive.place, GenerationSpan.of(4)) is None


def test_late_run_of_a_generation_whose_manifest_was_lost_publishes_nothing(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: dict[str, bytes] = {}

    def others() -> None:
        rotates(vault)
        loses(vault, manifest_key, span=GenerationSpan.of(4))
        before.update(contents(vault.root))

    before_call(monkeypatch, Archive, "commit", others)
    with pytest.raises(Damaged, match="the manifest of generation 4 is missing"):
        vault.export("chunks")
    assert contents(vault.root) == before
