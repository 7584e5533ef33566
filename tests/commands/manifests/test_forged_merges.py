"""Generations that somebody else has merged or added: nothing that was published is deleted on their word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamvault import check_archive, compact_archive, export_stream, rotate_stream
from streamvault.common.errors import Damaged
from streamvault.common.units import now_utc
from streamvault.exporter import rotate
from streamvault.layouts.archived_range import ArchivedRange, digest_of
from streamvault.layouts.keys import GenerationSpan, chunk_key, decision_key, manifest_key, ranges_key
from streamvault.layouts.layout import LayoutName
from streamvault.manifests import merging
from streamvault.manifests.decisions import Merged, mark_checked
from streamvault.manifests.history import Generation, by_segment, with_rows
from streamvault.manifests.index import encode_ranges
from streamvault.manifests.manifest import GapEntry, IndexEntry, Manifest
from streamvault.manifests.merging import Merger, compare_joined, delete_replaced
from streamvault.manifests.plan import Plan, create_plan
from streamvault.runner.inline import InlineRunner
from testkit.killed import before_call
from testkit.small_archives import NAME, RANGE_SIZE, Vault, a_vault, archive_of, contents, merge, segments_of

OLD = datetime(2020, 1, 1, tzinfo=UTC)
OPTIONS: dict[str, Any] = {"layout": "chunks", "range_size": RANGE_SIZE, "master": "inline"}


vault = a_vault(b"0" * 100, exports=[("chunks", "")] * 4, between=[b"%d" % number * 100 for number in (1, 2, 3)])
"""Four generations."""


def merger(vault: Vault) -> Merger:
    archive = archive_of(vault.root)
    return Merger([archive.load(number) for number in archive.generations()], "")


def rows_of(merger: Merger) -> list[ArchivedRange]:
    return [row for join in merger.spans() for row in join]


def publish(vault: Vault, manifest: Manifest, rows: Sequence[ArchivedRange], *, marked: bool = False) -> None:
    """Put a generation, and if it is merged, its decision, as whoever may create objects can.

    One that has a mark is so old that what it has replaced is deleted.
    """
    archive, index = archive_of(vault.root), encode_ranges(NAME, rows)
    manifest = with_rows(manifest, rows, None, "").model_copy(update={"index": IndexEntry.of(index)})
    archive.store.put(archive.prefix + ranges_key(manifest.span), index)
    archive.store.put(archive.prefix + manifest_key(manifest.span), manifest.encode())
    if marked:
        published, fingerprint = archive.read_fingerprinted(manifest.span)
        mark_checked(archive.store, Generation(published, by_segment(rows), "", fingerprint))
    if manifest.replaces:
        first, last = manifest.span
        decision = archive.listing().decision.merge(manifest.span, 0)
        merged = (Merged(generation=last, first=first, at=OLD if marked else now_utc(), grace=0.0),)
        decision = decision.model_copy(update={"merged": merged}).numbered(decision.number + 1)
        archive.store.put(archive.prefix + decision_key(decision.number), decision.encode())


def with_gaps(manifest: Manifest, rows: Sequence[ArchivedRange]) -> Manifest:
    """Return a manifest that has only the ranges that end where it ends, and calls the rest a gap."""
    starts = {row.segment: row.start for row in rows}
    gaps = (
        GapEntry(segment=one.name, start=one.start, end=starts[one.id], reason="truncated") for one in manifest.segments
    )
    return manifest.model_copy(update={"gaps": tuple(gaps)})


def is_kept(vault: Vault, match: str, action: Callable[[], object]) -> None:
    before = contents(vault.root)
    for _ in range(2):
        with pytest.raises(Damaged, match=match) as caught:
            action()
        assert caught.value.exit_code == 3
    assert before.keys() <= contents(vault.root).keys()


def late_begin(whole: Manifest, last: Generation) -> tuple[Manifest, list[ArchivedRange]]:
    manifest = last.manifest.model_copy(update={"replaces": whole.replaces})
    return manifest, [row for rows in last.rows.values() for row in rows]


def gaps(whole: Manifest, last: Generation) -> tuple[Manifest, list[ArchivedRange]]:
    rows = [row for some in last.rows.values() for row in some]
    return with_gaps(whole, rows), rows


@pytest.mark.parametrize("forge", [late_begin, gaps])
@pytest.mark.parametrize("options", [{}, {"keep": 1}], ids=str)
def test_merged_generation_that_lacks_something_deletes_nothing(
    vault: Vault, forge: Callable[..., tuple[Manifest, list[ArchivedRange]]], options: dict[str, Any]
) -> None:
    """Without the check, all before the first generation in force was deleted, without any rule."""
    whole = merger(vault).manifest(by_segment(rows_of(merger(vault))), tool="")
    publish(vault, *forge(whole, archive_of(vault.root).load(4)))
    match = "the merged generation 4 does not contain all of generation 1"
    is_kept(vault, match, lambda: rotate_stream(vault.uri(), vault.root, **OPTIONS, **options))


def test_merged_generation_that_lacks_something_replaces_nothing(vault: Vault) -> None:
    whole = merger(vault).manifest(by_segment(rows_of(merger(vault))), tool="")
    publish(vault, *gaps(whole, archive_of(vault.root).load(4)), marked=True)
    is_kept(
        vault,
        "the merged generation 4 does not contain all of generation 1",
        lambda: delete_replaced(archive_of(vault.root)),
    )


def test_merged_generation_that_lacks_something_makes_no_strays(tmp_path: Path) -> None:
    """Of events, which a merge does not rewrite."""
    vault = Vault(tmp_path)
    vault.create()
    for payload in (b"one", b"two"):
        vault.add(payload)
        vault.export("events")
    last = archive_of(vault.root).load(2)
    whole = merger(vault).manifest(by_segment(rows_of(merger(vault))), tool="")
    publish(vault, *gaps(whole, last))
    match = "the merged generation 2 does not contain all of generation 1"
    is_kept(vault, match, lambda: check_archive(vault.archive, repair=True, master="inline"))


def test_merged_generation_that_says_it_is_older_does_not_expire(vault: Vault) -> None:
    rows = rows_of(merger(vault))
    whole = merger(vault).manifest(by_segment(rows), tool="").model_copy(update={"created": OLD})
    publish(vault, whole, rows)
    vault.add(b"new")
    match = "the merged generation 4 does not contain all of generation 1"
    is_kept(vault, match, lambda: rotate_stream(vault.uri(), vault.root, keep_for=86400.0, **OPTIONS))


@pytest.mark.parametrize("verb", ["rotate", "compact", "delete_replaced"])
def test_merged_generation_with_other_bytes_and_a_mark_replaces_nothing(
    vault: Vault, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are read by tasks: a merged generation may be large."""
    (segment,) = {row.segment for row in rows_of(merger(vault))}
    rows = rows_of(merger(vault))
    data = bytes(rows[-1].end - rows[0].start)
    joined = replace(
        rows[0], end=rows[-1].end, events=len(rows), digest=digest_of([data]), crc64nvme="", block_checksums=""
    )
    archive = archive_of(vault.root)
    archive.store.put(archive.prefix + chunk_key(segment, joined.start, len(data)), data)
    publish(vault, merger(vault).manifest(by_segment([joined]), tool=""), [joined], marked=True)
    real, ran = InlineRunner.run, list[tuple[object, int]]()

    def run(self: InlineRunner, function: Any, specs: Sequence[Any], *others: Any, **options: Any) -> Any:
        ran.append((function, sum(spec.size for spec in specs) if function is compare_joined else 0))
        return real(self, function, specs, *others, **options)

    monkeypatch.setattr(InlineRunner, "run", run)
    verbs: dict[str, Callable[[], object]] = {
        "rotate": lambda: rotate_stream(vault.uri(), vault.root, **OPTIONS),
        "compact": lambda: compact_archive(vault.archive, master="inline"),
        "delete_replaced": lambda: delete_replaced(archive),
    }
    is_kept(vault, "differs in bytes from a generation that it replaced", verbs[verb])
    assert (compare_joined, len(data)) in ran


@pytest.mark.parametrize(
    ("layout", "joins", "wrong", "match"),
    [
        ("chunks", True, {"digest": "0" * 64}, "do not match the manifest"),
        ("chunks", True, {"events": 2}, "differs in events from a generation that it replaced"),
        ("chunks", False, {"digest": "0" * 64}, "do not match the manifest"),
        ("chunks", False, {"events": 2}, "differs in events from a generation that it replaced"),
        ("chunks", False, {"frames": (1,)}, "the object cannot be decompressed"),
        ("events", False, {"digest": "0" * 64}, "do not match the manifest"),
        ("events", True, {"digest": "0" * 64}, "do not match the manifest"),
    ],
)
def test_merged_index_that_says_something_else_of_the_right_bytes_replaces_nothing(
    tmp_path: Path, layout: LayoutName, joins: bool, wrong: dict[str, Any], match: str
) -> None:
    vault = Vault(tmp_path)
    vault.create()
    for number in range(3):
        vault.add(b"%d" % number * 100)
        vault.export(layout)
    archive, rows = archive_of(vault.root), rows_of(merger(vault))
    if joins:
        data = b"".join(segments_of(vault.root).values())
        rows = [
            replace(rows[0], end=rows[-1].end, events=3, digest=digest_of([data]), crc64nvme="", block_checksums="")
        ]
        archive.store.put(archive.prefix + chunk_key(rows[0].segment, 0, len(data)), data)
    rows[0] = replace(rows[0], **wrong, crc64nvme="", block_checksums="")
    publish(vault, merger(vault).manifest(by_segment(rows), tool=""), rows, marked=True)
    is_kept(vault, match, lambda: delete_replaced(archive))


def test_joined_range_is_read_once_whatever_it_has_replaced(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merges of merges, none of which is deleted yet."""
    for last in (2, 3, 4):
        merge(vault, 1, last, grace=0.0)
    assert check_archive(vault.archive, read_data=True, master="inline").marked
    read = list[int]()
    monkeypatch.setattr(merging, "compare_joined", lambda task: read.append(compare_joined(task)) or read[-1])
    deleted, waiting = delete_replaced(archive_of(vault.root), now=now_utc() + timedelta(hours=2))
    assert (deleted.objects, waiting, read) == (6, (), [4 * 108])
    assert check_archive(vault.archive, read_data=True, master="inline").ok


def test_merge_in_another_layout_that_has_no_objects_deletes_nothing(vault: Vault) -> None:
    """A conversion with other options may be late with a generation, deleted once all its bytes are there."""
    archive, rows = archive_of(vault.root), rows_of(merger(vault))
    whole = merger(vault).manifest(by_segment(rows), tool="").model_copy(update={"layout": "events"})
    publish(vault, whole, rows, marked=True)
    is_kept(vault, "no object holds the bytes", lambda: delete_replaced(archive))


def test_index_that_names_what_is_in_force_deletes_none_of_it(vault: Vault) -> None:
    """It is of a merge that never was, within one that was made."""
    archive = archive_of(vault.root)
    merge(vault, 1, 3)
    assert check_archive(vault.archive, read_data=True, master="inline").marked == (3, 4)
    rows = [row for some in archive.load(4).rows.values() for row in some]
    archive.store.put(archive.prefix + ranges_key(GenerationSpan(2, 3)), encode_ranges(NAME, rows))
    deleted, waiting = delete_replaced(archive, now=now_utc() + timedelta(hours=2))
    assert (deleted.objects, waiting) == (3, ())
    assert check_archive(vault.archive, read_data=True, master="inline").ok


@pytest.mark.parametrize("keep", [None, 3])
def test_generation_that_begins_before_the_end_of_another_deletes_nothing(vault: Vault, keep: int | None) -> None:
    """Its strays would be the others' objects; and it counts as one that has data."""
    archive = archive_of(vault.root)
    rows = [row for some in archive.load(4).rows.values() for row in some]
    whole = merger(vault).manifest(by_segment(rows), tool="")
    manifest = with_gaps(whole, rows).model_copy(update={"generation": 5, "replaces": ()})
    publish(vault, manifest, rows)
    match = "generation 5 does not start where generation 4 ended"
    if keep is None:
        create_plan(archive.place, Plan.of(manifest))
        is_kept(vault, match, lambda: export_stream(vault.uri(), vault.root, **OPTIONS))
    else:
        is_kept(vault, match, lambda: rotate_stream(vault.uri(), vault.root, keep=keep, **OPTIONS))
    assert archive.listing().dropped == 0


def test_range_that_another_layout_names_was_not_read_back(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody merges, in a layout that has no objects, what this run has just archived and read back."""
    rotate_stream(vault.uri(), vault.root, truncate_source=True, **OPTIONS)
    vault.add(b"live")
    before = vault.events()

    def forge() -> None:
        rows = rows_of(merger(vault))
        whole = merger(vault).manifest(by_segment(rows), tool="").model_copy(update={"layout": "events"})
        publish(vault, whole, rows, marked=True)

    before_call(monkeypatch, rotate, "last_checked", forge)
    with pytest.raises(Damaged, match="no object holds the bytes"):
        rotate_stream(vault.uri(), vault.root, truncate_source=True, **OPTIONS)
    assert vault.events() == before


def test_expiry_that_counts_what_began_before_the_end_of_another_deletes_nothing(vault: Vault) -> None:
    """Copies of the last generations follow one that goes back, which has expired, says a decision."""
    archive = archive_of(vault.root)
    held = [archive.load(number) for number in archive.generations()]
    rows = [[row for some in one.rows.values() for row in some] for one in held]
    first = held[0].manifest
    segments = (first.segments[0].model_copy(update={"start": first.segments[0].end}),)
    publish(vault, first.model_copy(update={"generation": 5, "from_": first.to, "segments": segments}), [])
    for number in (1, 2, 3):
        publish(vault, held[number].manifest.model_copy(update={"generation": number + 5}), rows[number])
    decision = archive.listing().decision.expire(5, first.from_).numbered(1)
    archive.store.put(archive.prefix + decision_key(1), decision.encode())
    match = "generation 5 does not start where generation 4 ended"
    is_kept(vault, match, lambda: rotate_stream(vault.uri(), vault.root, keep=3, **OPTIONS))
