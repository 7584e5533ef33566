"""Appending streams and archives of the embedded store."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from streamvault import copy_stream, export_stream
from streamvault.common.errors import Damaged
from streamvault.concat.reports import StitchReport
from streamvault.sources import sources
from streamvault.streamstore.errors import InvalidCut
from streamvault.streamstore.model import SegmentId, StreamConfiguration, StreamCut, StreamName
from streamvault.streamstore.own import OWN
from testkit.scenes import Keyed
from testkit.streams import append_events
from tests.told import Ran
from tests.unit.lake.test_registry import Group

SHAPES = [
    (1, []),
    (3, []),
    (2, [[0.25, 0.5, 0.75]]),
    (3, [[0.5], [], [0.1, 0.2, 0.3], [0.7]]),
]


def make(keyed: Keyed, name: str, shape: tuple[int, list[list[float]]], events: int = 60) -> range:
    """Make a stream with events in each epoch; return their numbers."""
    keyed.make(name, shape[0], events=events)
    for bounds in shape[1]:
        keyed.scale(name, bounds)
        keyed.write(name, events)
    return range(keyed.written[name])


@pytest.mark.parametrize("target", SHAPES)
@pytest.mark.parametrize("source", SHAPES)
def test_each_key_keeps_its_order(
    keyed: Keyed, source: tuple[int, list[list[float]]], target: tuple[int, list[list[float]]]
) -> None:
    there = make(keyed, "target", target)
    one, two = make(keyed, "one", source), make(keyed, "two", SHAPES[2])
    report = keyed.append("one", "two")
    keyed.write("target", 40)
    later = range(there.stop, there.stop + 40)
    expected = keyed.expected(("target", there), ("one", one), ("two", two), ("target", later))
    assert keyed.by_key("target") == expected
    assert report.bytes == report.moved_bytes == sum(place.end - place.start for place in report.places)
    assert all(place.exact and len(place.digest) == 64 for place in report.places)


def check_places(keyed: Keyed, report: StitchReport) -> None:
    """Check that the bytes are where the report says."""
    with keyed.store as store:
        for place in report.places:
            assert place.exact
            source, _, segment = place.segment.rpartition("/")
            data = store.read_bytes(StreamName.parse(source), SegmentId.parse(segment), place.start, place.end)
            stream, _, landed = place.target_segment.rpartition("/")
            end = place.offset + len(data)
            assert store.read_bytes(StreamName.parse(stream), SegmentId.parse(landed), place.offset, end) == data
            assert place.digest in {"", hashlib.sha256(data).hexdigest()}


@pytest.mark.parametrize("own_segments", [False, True])
def test_report_says_where_the_bytes_are(keyed: Keyed, *, own_segments: bool) -> None:
    make(keyed, "target", SHAPES[2])
    make(keyed, "one", SHAPES[3])
    before = keyed.tail("target")
    report = keyed.append("one", own_segments=own_segments)
    check_places(keyed, report)
    landed = {place.target_segment.rpartition("/")[2] for place in report.places}
    offsets = {place.target_segment: place.offset for place in reversed(report.places)}
    if own_segments:
        assert set(offsets.values()) == {0}
        with keyed.store as store:
            infos = store.segment_info(StreamName("scope", "target"), [SegmentId.parse(one) for one in landed])
            assert all(info.sealed for info in infos)
            epochs = store.describe(StreamName("scope", "target")).epochs
            assert not landed & {str(segment) for segment in epochs[-1].segments}
    elif report.merged_segments:
        assert not landed & {str(segment) for segment in before}
    assert keyed.own() == [next(name for name in keyed.own() if name.startswith("streamvault-append-"))]


def test_segments_of_their_own_again(keyed: Keyed) -> None:
    """After a commit that rolled, transactions are named after an earlier epoch than the segments they go into."""
    keyed.make("target", 2, events=20)
    keyed.make("one", 2)
    begins = []
    for own_segments in (True, True, False, True):
        keyed.write("one", 50)
        report = keyed.append("one", own_segments=own_segments)
        check_places(keyed, report)
        begins.append({place.offset for place in report.places} == {0})
        keyed.write("target", 20)
    assert begins == [True, True, False, True]


def test_repeated_command_appends_what_is_new(keyed: Keyed) -> None:
    keyed.make("target", events=10)
    keyed.make("one", 2, events=30)
    keyed.make("two", events=10)
    assert keyed.append("one", "two").moved_bytes
    again = keyed.append("two", "one")
    assert (again.unchanged, again.bytes, again.places) == (True, 0, ())
    keyed.scale("one", [0.3])
    keyed.write("one", 20)
    keyed.write("target", 5)
    keyed.append("one", "two")
    parts = (("target", range(10)), ("one", range(30)), ("two", range(10)))
    rest = (("target", range(10, 15)), ("one", range(30, 50)))
    assert keyed.by_key("target") == keyed.expected(*parts, *rest)


def test_archives_and_streams_are_appended(keyed: Keyed, tmp_path: Path) -> None:
    keyed.make("target")
    numbers = make(keyed, "one", SHAPES[3])
    export_stream(keyed.uri("one"), f"file://{tmp_path}/vault", master="inline[2]")
    keyed.make("two", events=10)
    report = keyed.append(f"file://{tmp_path}/vault/scope/one", "two")
    assert keyed.by_key("target") == keyed.expected(("one", numbers), ("two", range(10)))
    check_places(keyed, report)
    keyed.write("one", 10)
    export_stream(keyed.uri("one"), f"file://{tmp_path}/vault", master="inline[2]")
    keyed.append(f"file://{tmp_path}/vault/scope/one", "two")
    more = range(numbers.stop, numbers.stop + 10)
    assert keyed.by_key("target") == keyed.expected(("one", numbers), ("two", range(10)), ("one", more))


def test_archives_with_other_schemas_are_a_warning(keyed: Keyed, tmp_path: Path) -> None:
    keyed.make("target")
    archives = [f"file://{tmp_path}/vault/scope/{name}" for name in ("one", "two")]
    for name in ("one", "two"):
        keyed.make(name, events=5)
        with Group(1) as server:
            vault = f"file://{tmp_path}/vault"
            export_stream(keyed.uri(name), vault, schemas=server.url, schema_group=name, master="inline")
    assert not keyed.append(archives[0]).warnings
    assert keyed.append(*archives).warnings == (
        "the ids in the events' headers mean other schemas in each archive: the schema groups one and two differ",
    )


def flip_byte(vault: Path) -> None:
    """Change a byte of the first event in an archive's only chunk, or change it back."""
    (path,) = (path for path in vault.rglob("chunks/**/*") if path.is_file())
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("part", [False, True])
def test_damaged_bytes_are_not_appended(
    keyed: Keyed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, part: bool
) -> None:
    """Not even if the archive is repaired before the command is repeated, which finds the transaction."""
    monkeypatch.setattr("streamvault.streamstore.framing.MAX_BLOCK_BYTES", 16)  # some arrive before it is compared
    keyed.make("target", events=5)
    keyed.make("one", events=30)
    cut = {segment.in_stream(StreamName("scope", "one")): end for segment, end in keyed.tail("one").items()}
    keyed.write("one", 20 if part else 0)
    vault = tmp_path / "vault"
    export_stream(keyed.uri("one"), f"file://{vault}", layout="chunks", master="inline[2]")
    flip_byte(vault)
    options = {"to_cut": cut} if part else {}
    with pytest.raises(Damaged, match="do not match the manifest"):
        keyed.append(f"file://{vault}/scope/one", **options)
    assert len(keyed.payloads("target")) == 5
    flip_byte(vault)
    assert keyed.append(f"file://{vault}/scope/one", **options).moved_bytes
    assert keyed.by_key("target") == keyed.expected(("target", range(5)), ("one", range(30)))


def test_range_that_an_archive_neither_has_nor_declares_missing_is_damage(
    keyed: Keyed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed.make("target", events=5)
    keyed.make("one", events=30)
    vault = f"file://{tmp_path}/vault"
    export_stream(keyed.uri("one"), vault, layout="chunks", range_size="64KiB", master="inline")
    for _ in range(2):
        keyed.write("one", 30)
        export_stream(keyed.uri("one"), vault, layout="chunks", range_size="64KiB", master="inline")
    real = sources.select_parts
    monkeypatch.setattr(sources, "select_parts", lambda *given: [one for at, one in enumerate(real(*given)) if at != 1])
    with pytest.raises(Damaged, match="the manifests have an undeclared gap"):
        keyed.append(f"{vault}/scope/one")
    assert len(keyed.payloads("target")) == 5


def test_target_is_scaled_only_where_it_must_be(keyed: Keyed) -> None:
    keyed.make("target", 8, events=100)
    keyed.make("one", 2)
    keyed.scale("one", [0.25, 0.5, 0.75])
    keyed.write("one", 50)
    keyed.scale("one", [0.25, 0.5])
    keyed.write("one", 50)
    dry = keyed.append("one", dry_run=True)
    assert (dry.dry_run, len(dry.merged_segments), dry.bytes > 0) == (True, 8, True)
    assert len(keyed.tail("target")) == 8
    report = keyed.append("one")
    assert report.merged_segments == dry.merged_segments
    assert [(place.segment, place.start, place.end) for place in report.places] == [
        (place.segment, place.start, place.end) for place in dry.places
    ]
    with keyed.store as store:
        _, merged, split = store.describe(StreamName("scope", "target")).epochs
    assert [held.low for held in merged.segments.values()] == [0.0, 0.25, 0.5]
    assert [held.low for held in split.segments.values()] == [number / 8 for number in range(8)]
    assert keyed.by_key("target") == keyed.expected(("target", range(100)), ("one", range(100)))


def test_equal_segments_are_left_out(keyed: Keyed) -> None:
    keyed.make("target")
    keyed.make("one", 2, events=60)
    copy_stream(keyed.uri("one"), keyed.uri("clone"), master="inline[2]")
    keyed.make("other", 2, events=60)
    report = keyed.append("one", "clone", "other", distinct=True)
    assert sorted(report.left_out) == sorted(f"{keyed.uri('clone')}/{segment}" for segment in keyed.tail("clone"))
    assert keyed.by_key("target") == keyed.expected(("one", range(60)), ("other", range(60)))


def test_equal_segments_of_one_source_are_kept(keyed: Keyed) -> None:
    """They are no copies of each other: somebody has written the same twice."""
    keyed.make("target")
    keyed.make("one", 2)
    keyed.make("two")
    with keyed.store as store:
        for stream, payload in (("one", b"same"), ("two", b"else")):  # as long, so that all of them are compared
            name = StreamName("scope", stream)
            for segment in store.describe(name).tail.offsets:
                append_events(store, name, segment, [payload])
    assert keyed.append("one", "two", distinct=True).left_out == ()
    assert keyed.payloads("target").count("same") == 2


def test_source_is_appended_by_cuts(keyed: Keyed) -> None:
    keyed.make("target")
    keyed.make("one", events=30)
    ((segment, end),) = keyed.tail("one").items()
    keyed.write("one", 20)
    cut = {segment.in_stream(StreamName("scope", "one")): end}
    keyed.append("one", to_cut=cut)
    assert keyed.by_key("target") == keyed.expected(("one", range(30)))
    with pytest.raises(InvalidCut, match="inside an event"):
        keyed.append("one", to_cut={name: offset + 3 for name, offset in cut.items()})
    assert keyed.append("one", to_cut=cut).unchanged
    keyed.append("one")
    assert keyed.by_key("target") == keyed.expected(("one", range(50)))


def test_source_that_was_truncated_is_appended_from_its_head(keyed: Keyed) -> None:
    keyed.make("target")
    keyed.make("one", events=30)
    keyed.append("one")
    keyed.write("one", 20)
    with keyed.store as store:
        store.truncate(StreamCut(StreamName("scope", "one"), keyed.tail("one")))
    keyed.write("one", 10)
    report = keyed.append("one")
    assert "truncated beyond" in report.warnings[0]
    assert keyed.by_key("target") == keyed.expected(("one", range(30)), ("one", range(50, 60)))


@pytest.mark.parametrize(
    ("sources", "target", "code", "message"),
    [
        (["one", "one"], "target", 2, "the sources overlap: one is given twice"),
        (["target"], "target", 2, "source and target are the same stream"),
        (["nobody"], "target", 5, "no such stream"),
        (["one"], "nobody", 5, "no such stream"),
        (["one"], "sealed", 4, "the stream is sealed, so nothing can be appended"),
        (["one"], "lease", 4, "this is an internal stream of Streamvault"),
        (["lease"], "target", 4, "this is an internal stream of Streamvault"),
        (
            ["one", "two", "--to", '{"scope/one/0.#epoch.0": 0}'],
            "target",
            2,
            "--to is a stream cut of one source, but several are given",
        ),
        (
            ["one", "--to", '{"scope/two/0.#epoch.0": 0}'],
            "target",
            2,
            "a stream cut of scope/one names a segment of another stream",
        ),
        (["bytes"], "target", 2, "an archive of a byte stream has no events to append"),
    ],
)
def test_what_cannot_be_appended(
    keyed: Keyed,
    tmp_path: Path,
    ran: Ran,
    sources: list[str],
    target: str,
    code: int,
    message: str,
) -> None:
    for name in ("target", "one", "two", "sealed"):
        keyed.make(name, events=5)
    with keyed.store as store:
        store.seal(StreamName("scope", "sealed"))
        store.create_stream(StreamName("scope", "lease"), StreamConfiguration(tags=(OWN,)))
    if sources == ["bytes"]:
        export_stream(keyed.uri("one"), f"file://{tmp_path}/vault", content="bytes", master="inline[2]")
    before = keyed.payloads(target) if target != "nobody" else []
    archive = f"file://{tmp_path}/vault/scope/one"
    given = [one if one.startswith(("-", "{")) else archive if one == "bytes" else keyed.uri(one) for one in sources]
    assert message in ran("append", *given, "--into", keyed.uri(target), "--master", "inline[2]", code=code).err
    assert target == "nobody" or keyed.payloads(target) == before


def test_command_prints_the_places(keyed: Keyed, ran: Ran) -> None:
    keyed.make("target", 2, events=3)
    keyed.make("one", events=30)
    command = ["append", keyed.uri("one"), "--into", keyed.uri("target"), "--master", "inline[2]"]
    shown = ran(*command, "--dry-run").out
    assert f"would append {keyed.uri('one')} to {keyed.uri('target')}" in shown
    assert "merged" in shown
    assert "scope/one/0.#epoch.0 0 to" in ran(*command).out
    assert "nothing new to append" in ran(*command).out
