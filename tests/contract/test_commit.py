"""Publishing and reading generations, on memory, a folder and an S3 server."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from streamvault.common.errors import Conflict, Usage
from streamvault.layouts.archived_range import ArchivedRange
from streamvault.layouts.keys import GenerationSpan, manifest_key, plan_key, ranges_key
from streamvault.manifests.archive import Archive, NoSuchArchive
from streamvault.manifests.files import seal
from streamvault.manifests.index import encode_ranges
from streamvault.manifests.manifest import IndexEntry, Manifest
from streamvault.objectstore.uri import RootAddress
from streamvault.streamstore.model import StreamConfiguration, StreamName
from testkit.servers.s3 import S3Server
from tests.archives import LEFT, NAME, RIGHT, Hole, Made, generation, publish, two_generations
from tests.told import damage

UseS3 = Callable[[S3Server], None]


@pytest.fixture(params=["memory", "file", "s3"])
def archive(request: pytest.FixtureRequest, tmp_path: Path, bucket_name: str, use_s3: UseS3) -> Archive:
    uri = {"memory": f"memory://{bucket_name}", "file": f"file://{tmp_path}", "s3": f"s3://{bucket_name}/prefix"}
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("moto_s3")
        use_s3(server)
        server.make_bucket(bucket_name)
    return Archive(RootAddress.parse(uri[request.param]), NAME)


def remade(manifest: Manifest, **changes: object) -> Manifest:
    """A manifest with other content, as valid as the first."""
    return Manifest.model_validate_json(json.dumps({**manifest.document(), **changes}))


def bare(manifest: Manifest) -> Manifest:
    """The state before it was published."""
    return manifest.model_copy(update={"index": None, "before": None})


def key_of(archive: Archive, make: Callable[[GenerationSpan], str], number: int) -> str:
    return archive.prefix + make(GenerationSpan.of(number))


def replace(archive: Archive, make: Callable[[GenerationSpan], str], number: int, data: bytes) -> None:
    key = key_of(archive, make, number)
    archive.store.delete([key])
    archive.store.put(key, data)


def rewrite(archive: Archive, number: int, manifest: Manifest, rows: list[ArchivedRange]) -> None:
    """Replace a generation by another, as whoever may write can: manifest and index agree with each other."""
    index = encode_ranges(NAME, rows)
    entry = IndexEntry(bytes=len(index), digest=hashlib.sha256(index).hexdigest())
    replace(archive, ranges_key, number, index)
    replace(archive, manifest_key, number, manifest.model_copy(update={"index": entry}).encode())


def test_committed_generation_is_read(archive: Archive) -> None:
    first, second = two_generations()
    assert archive.generations() == []
    assert archive.commit(first.manifest, first.rows)
    assert archive.commit(second.manifest, second.rows)
    assert archive.generations() == [1, 2]
    assert bare(archive.manifest()) == second.manifest
    assert bare(archive.manifest(1)) == first.manifest
    loaded = archive.load(1)
    assert bare(loaded.manifest) == first.manifest
    assert [row for rows in loaded.rows.values() for row in rows] == first.rows
    expected = [key_of(archive, make, number) for number in (1, 2) for make in (manifest_key, ranges_key)]
    assert [found.key for found in archive.store.list("")] == expected


def test_several_generations_are_one_stream(archive: Archive) -> None:
    first, second = two_generations()
    later = generation({LEFT: [[b"six"]]}, before=second.manifest, configuration=StreamConfiguration(tags=("new",)))
    publish(archive, first, second, later)
    history = archive.history()
    assert (history.generation, history.stream) == (3, NAME)
    assert history.head == first.manifest.from_
    assert history.tail == later.manifest.to
    assert history.segments() == [LEFT, RIGHT]
    assert [row for _, row in history.ranges(LEFT)] == [*first.rows[:2], *later.rows]
    assert list(history.gaps(RIGHT)) == [(0, 100)]
    assert list(history.gaps(LEFT)) == []
    assert history.end(RIGHT) == second.manifest.to.offsets[RIGHT]
    assert history.events == 9
    assert history.bytes == sum(row.end - row.start for made in (first, second, later) for row in made.rows)
    assert history.description.configuration.tags == ("new",)
    assert history.description.head == history.head
    older = archive.history(2)
    assert older.tail == second.manifest.to
    assert older.content_digest != history.content_digest == archive.history().content_digest


def test_equal_commit_of_another_run_succeeds(archive: Archive) -> None:
    first, _ = two_generations()
    assert archive.commit(first.manifest, first.rows)
    assert not archive.commit(first.manifest, first.rows)
    assert not archive.commit(remade(first.manifest, tool="streamvault of another version"), first.rows)
    assert archive.manifest().tool == first.manifest.tool


def test_index_with_other_encoding_is_equal(archive: Archive) -> None:
    """Another release of the Parquet library, or a run that was killed between the two files."""
    first, _ = two_generations()
    data = encode_ranges(NAME, first.rows)
    other = data.replace(b"parquet-cpp-arrow", b"parquet-cpp-other")
    assert other != data
    archive.store.put(key_of(archive, plan_key, 1), b"")
    archive.store.put(key_of(archive, ranges_key, 1), other)
    assert archive.commit(first.manifest, first.rows)
    assert bare(archive.load(1).manifest) == first.manifest


def test_commit_of_other_content_is_a_conflict(archive: Archive) -> None:
    first, _ = two_generations()
    archive.commit(first.manifest, first.rows)
    other = generation({LEFT: [[b"other"]]})
    with pytest.raises(Conflict, match="another run has published this generation with different content"):
        archive.commit(remade(other.manifest, created="2026-03-04T05:06:07Z"), other.rows)
    with pytest.raises(Conflict, match=r"_manifest/0000000001\.json"):
        archive.commit(remade(first.manifest, created="2026-03-04T05:06:07Z"), first.rows)
    assert bare(archive.manifest()) == first.manifest


def test_concurrent_equal_commits_all_succeed(archive: Archive) -> None:
    first, _ = two_generations()
    start = Barrier(8)
    archive.store.put(key_of(archive, plan_key, 1), b"")  # before it there is no index

    def commit(_: int) -> bool:
        start.wait(30)
        return archive.commit(first.manifest, first.rows) is not None

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(commit, range(8))) == [False] * 7 + [True]
    assert bare(archive.load(1).manifest) == first.manifest


def test_commit_refuses_a_generation_that_does_not_follow(archive: Archive) -> None:
    first, second = two_generations()
    with pytest.raises(NoSuchArchive, match="no generation 1"):
        archive.commit(second.manifest, second.rows)
    archive.commit(first.manifest, first.rows)
    elsewhere = generation({LEFT: [[b"x"]]}, before=generation({}).manifest)
    assert "does not start where generation 1 ended" in damage(
        lambda: archive.commit(elsewhere.manifest, elsewhere.rows)
    )
    assert archive.generations() == [1]


def test_commit_refuses_ranges_that_disagree_with_the_manifest(archive: Archive) -> None:
    first, _ = two_generations()
    for rows in (first.rows[1:], [], [*first.rows[:1], *first.rows]):
        assert "segment 0.#epoch.0" in damage(partial(archive.commit, first.manifest, rows))
    assert list(archive.store.list("")) == []


def test_empty_store_has_no_archive(archive: Archive) -> None:
    for attempt in (archive.manifest, archive.history, lambda: archive.manifest(1)):
        with pytest.raises(NoSuchArchive) as caught:
            attempt()
        assert archive.uri in str(caught.value)
        assert caught.value.exit_code == 5
    publish(archive, two_generations()[0])
    with pytest.raises(NoSuchArchive, match="no generation 2"):
        archive.history(2)
    other = Archive(archive.root, StreamName("scope", "other"))
    with pytest.raises(NoSuchArchive):
        other.manifest()


def test_only_exact_manifest_names_are_generations(archive: Archive) -> None:
    publish(archive, two_generations()[0])
    for name in ("1.json", "0000000002.json.tmp", "00000000003.json", "0000000004.ranges.parquet", "x/0000000005.json"):
        archive.store.put(f"{archive.prefix}_manifest/{name}", b"{}")
    assert archive.generations() == [1]


def test_missing_generation_is_damage(archive: Archive) -> None:
    first, second = two_generations()
    publish(archive, first, second)
    archive.store.delete([key_of(archive, manifest_key, 1)])
    assert "the manifest of generation 1 is missing" in damage(archive.history)


def test_generations_that_do_not_follow_each_other_are_damage(archive: Archive) -> None:
    first, second = two_generations()
    publish(archive, first, second)
    other = generation({RIGHT: [[b"five"] * 3]}, before=generation({LEFT: [[b"x"]]}).manifest)
    rewrite(archive, 2, other.manifest, other.rows)
    assert "generation 2 does not start where generation 1 ended" in damage(archive.history)


def changed_row(rows: list[ArchivedRange], **changes: Any) -> list[ArchivedRange]:
    first = {name: getattr(rows[0], name) for name in ("segment", "start", "end", "events", "digest")}
    return [ArchivedRange(**{**first, **changes}), *rows[1:]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: rows[1:], "are not contiguous at 0"),
        (lambda rows: rows[:-1], "do not agree on segment 1.#epoch.0"),
        (lambda rows: changed_row(rows, events=1), "do not agree on segment 0.#epoch.0"),
        (lambda rows: changed_row(rows, events=0), "a range of segment 0.#epoch.0 does not hold events"),
        (lambda rows: changed_row(rows, digest="0" * 64), "do not agree on segment 0.#epoch.0"),
        (lambda rows: changed_row(rows, end=rows[0].end - 1), "are not contiguous at 18"),
        (lambda rows: [*rows, ArchivedRange(RIGHT, 10**6, 10**6 + 64, 2, "0" * 64)], "are not contiguous at"),
        (lambda rows: [*rows, ArchivedRange(type(LEFT)(0, 2), 0, 64, 2, "0" * 64)], "ranges of segment 2.#epoch.0"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], "not in order"),
    ],
)  # fmt: skip
def test_ranges_that_disagree_with_the_manifest_are_damage(
    archive: Archive, change: Callable[[list[ArchivedRange]], list[ArchivedRange]], expected: str
) -> None:
    first, _ = two_generations()
    publish(archive, first)
    rewrite(archive, 1, first.manifest, change(first.rows))
    text = damage(archive.history)
    assert expected in text
    assert f"{archive.store.uri}/scope/stream/_manifest/0000000001.ranges.parquet" in text


def test_index_without_checksums_by_an_earlier_release_is_the_same(archive: Archive) -> None:
    first, _ = two_generations()
    archive.store.put(key_of(archive, plan_key, 1), b"")  # before it there is no index
    archive.store.put(key_of(archive, ranges_key, 1), encode_ranges(NAME, first.rows))
    rows = [dataclasses.replace(row, crc64nvme="rosUhgp5mIg=") for row in first.rows]
    assert encode_ranges(NAME, rows) != encode_ranges(NAME, first.rows)
    assert archive.commit(bare(first.manifest), rows) is not None
    [held] = archive.history().generations
    assert {row.crc64nvme for some in held.rows.values() for row in some} == {""}


def test_missing_or_foreign_files_are_damage(archive: Archive) -> None:
    first, second = two_generations()
    publish(archive, first, second)
    where = f"{archive.store.uri}/scope/stream/_manifest/"
    archive.store.delete([key_of(archive, ranges_key, 2)])
    assert f"the index of ranges is missing: {where}" in damage(archive.history)
    data = first.manifest.encode()
    for wrong, expected in [
        (data[:300], "not complete JSON"),
        (b"", "not complete JSON"),
        (first.manifest.encode(), "the manifest belongs to another archive (scope/stream, generation 1)"),
        (seal({**second.manifest.document(), "format": 3}), "unsupported format version"),
        (seal({**second.manifest.document(), "scope": "../.."}), "invalid scope name"),
        (second.manifest.encode().replace(b"streamvault test", b"streamvault tess"), "changed after it was written"),
    ]:
        replace(archive, manifest_key, 2, wrong)
        text = damage(archive.history)
        assert expected in text
        assert f"{where}0000000002.json" in text


def test_index_of_another_manifest_is_damage(archive: Archive) -> None:
    first, _ = two_generations()
    publish(archive, first)
    data = archive.store.get(key_of(archive, ranges_key, 1))
    for wrong in (data.replace(b"parquet-cpp-arrow", b"parquet-cpp-other"), data[:-1]):
        replace(archive, ranges_key, 1, wrong)
        assert "the index of ranges is not that of the manifest" in damage(archive.history)
    replace(archive, ranges_key, 1, data + b"\0")
    assert f"the object has {len(data) + 1} bytes instead of at most {len(data)}" in damage(archive.history)


def test_late_run_finds_the_published_generation(archive: Archive) -> None:
    """Another run of the same plan has published; the source was truncated before this run resumed."""
    first, _ = two_generations()
    publish(archive, first)
    before = list(archive.store.list(""))
    late = generation({LEFT: [Hole(first.manifest.to.offsets[LEFT])]})
    late = late.manifest.model_copy(update={"to": first.manifest.to})
    rows = [row for row in first.rows if row.segment == RIGHT]
    entries = (late.segments[0], first.manifest.segments[1])
    gaps = (*late.gaps, *first.manifest.gaps)
    seen = first.manifest.model_copy(
        update={
            "segments": entries,
            "gaps": gaps,
            "events": sum(one.events for one in entries),
            "bytes": sum(one.bytes for one in entries),
        }
    )
    assert archive.commit(seen, rows) is None
    assert list(archive.store.list("")) == before


def test_fingerprint_is_the_digest_of_the_manifest(archive: Archive) -> None:
    first, second = two_generations()
    publish(archive, first, second)
    data = archive.store.get(key_of(archive, manifest_key, 2))
    assert archive.fingerprint() == archive.fingerprint(2) == hashlib.sha256(data).hexdigest()
    assert archive.load(2).fingerprint == archive.fingerprint()
    history = archive.history()
    history.check_fingerprints([], archive.uri)
    history.check_fingerprints([archive.fingerprint().upper()], archive.uri)
    history.check_fingerprints([archive.fingerprint(1), archive.fingerprint(2)], archive.uri)
    for asked in ([archive.fingerprint(1)], ["0" * 64], [archive.fingerprint(2), "0" * 64]):
        assert "fingerprint" in damage(partial(history.check_fingerprints, asked, archive.uri))
    with pytest.raises(Usage, match="64 hexadecimal digits"):
        history.check_fingerprints(["00ff"], archive.uri)


def test_undeclared_hole_is_damage(archive: Archive) -> None:
    made = generation({LEFT: [[b"a"], Hole(50), [b"b"]]})
    publish(archive, made)
    assert list(archive.history().gaps(LEFT)) == [(9, 59)]
    rewrite(archive, 1, remade(made.manifest, gaps=()), made.rows)
    assert "are not contiguous at 9" in damage(archive.history)


def test_generation_without_ranges_is_valid(archive: Archive) -> None:
    first: Made = generation({})
    second = generation({}, before=first.manifest, configuration=StreamConfiguration(tags=("later",)))
    publish(archive, first, second)
    history = archive.history()
    assert (history.events, history.bytes, history.segments()) == (0, 0, [])
    assert history.description.configuration.tags == ("later",)
