"""The manifest as a value: it survives a round trip, and an invalid one is rejected with one line.

Epochs as texts: what is written is read back, and epochs made one after the other agree with their changes.

The schemas that a generation notes: which manifests have them, and what a merge makes of them.

JSON files that somebody else has written, with a digest that fits.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.epochs import scaled
from bin.pages.manifest import SCHEMA_FILE
from streamvault.common.errors import Damaged, Failed
from streamvault.manifests.epochs import epoch_texts, parse_epochs
from streamvault.manifests.files import File, decode, seal
from streamvault.manifests.history import Generation, by_segment
from streamvault.manifests.manifest import (
    MAX_GROUP_BYTES,
    MAX_SCHEMA_BYTES,
    Configuration,
    Manifest,
    SchemaEntry,
    SchemaGroup,
)
from streamvault.manifests.merging import Merger, can_merge
from streamvault.requests.queue import NotARequest, decode_request
from streamvault.streamstore.model import (
    Epoch,
    EpochChange,
    Epochs,
    KeyRange,
    Retention,
    RetentionKind,
    ScaleKind,
    Scaling,
    SegmentId,
    StreamConfiguration,
    StreamCut,
)
from testkit.prove.hostile_files import VALUES, resealed
from tests.archives import EPOCHS, LEFT, NAME, RIGHT, Hole, Made, generation, two_generations
from tests.told import damage

WHERE = "s3://bucket/scope/stream/_manifest/0000000001.json"


def read(data: bytes) -> Manifest:
    return decode(Manifest, data, WHERE)


def test_manifest_round_trips() -> None:
    for made in two_generations():
        data = made.manifest.encode()
        assert read(data) == made.manifest
        assert read(data).encode() == data


def test_oversized_manifest_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = two_generations()[0].manifest
    monkeypatch.setattr("streamvault.manifests.files.SMALL", len(manifest.encode()))
    manifest.encode()
    monkeypatch.setattr("streamvault.manifests.files.SMALL", len(manifest.encode()) - 1)
    with pytest.raises(Failed, match="too many segments and epochs: its manifest would have"):
        manifest.encode()


def test_fields_are_those_of_the_format_in_order() -> None:
    document = json.loads(two_generations()[0].manifest.encode())
    assert list(document) == [
        *("format", "generation", "created", "scope", "stream", "layout", "compression", "configuration"),
        *("epochs", "from", "to", "source", "witness"),
        *("segments", "gaps", "events", "bytes", "range_size", "sealed", "tool", "sha256"),
    ]
    assert document["format"] == 2
    assert document["created"] == "2026-01-02T03:04:05.006000Z"
    assert document["from"] == {"scope/stream/0.#epoch.0": 0, "scope/stream/1.#epoch.0": 0}
    assert document["epochs"] == [">0:0.5,1"]
    assert document["gaps"] == [
        {"segment": "scope/stream/1.#epoch.0", "start": 0, "end": 100, "reason": "truncated"}
    ]  # fmt: skip
    assert list(document["segments"][0]) == ["name", "start", "end", "sealed", "events", "bytes", "digest"]
    assert document["configuration"]["tags"] == ["a", "ünï"]


def test_fields_of_later_versions_are_ignored_and_not_written_again() -> None:
    manifest = two_generations()[0].manifest
    document = json.loads(manifest.encode())
    document["later"] = document["segments"][0]["later"] = {"x": 1}
    assert read(seal(document)) == manifest
    assert read(seal(document)).encode() == manifest.encode()


@given(st.data())
def test_any_changed_bit_is_found(data: st.DataObject) -> None:
    whole = bytearray(two_generations()[0].manifest.encode())
    at = data.draw(st.integers(0, len(whole) - 2))  # a file may end in any white space
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    refusal(bytes(whole))


def test_manifest_is_valid_by_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    for made in two_generations():
        document = json.loads(made.manifest.encode())
        validator.validate(document)
        del document["epochs"]
        assert not validator.is_valid(document)


boundaries = st.lists(st.floats(0, 1, exclude_min=True, exclude_max=True), unique=True, max_size=8).map(sorted)


@given(boundaries, st.integers(0, 2**31 - 1))
def test_key_ranges_round_trip_exactly(inner: list[float], number: int) -> None:
    edges = [0.0, *inner, 1.0]
    numbers = range(number, number + len(edges) - 1) if number + len(edges) < 2**31 else range(len(edges) - 1)
    segments = {SegmentId(0, n): KeyRange(edges[i], edges[i + 1]) for i, n in enumerate(numbers)}
    epochs = Epochs([Epoch(0, segments)])
    assert parse_epochs(epoch_texts(epochs)) == epochs


@pytest.mark.parametrize("count", [1, 3, 7, 49, 98, 103, 1000])
def test_key_ranges_that_end_an_ulp_below_one_are_accepted(count: int) -> None:
    width = 1.0 / count
    ranges = {SegmentId(0, i): KeyRange(i * width, min((i + 1) * width, 1.0)) for i in range(count)}
    epochs = Epochs([Epoch(0, ranges)])
    assert parse_epochs(epoch_texts(epochs)) == epochs


@given(
    st.builds(
        StreamConfiguration,
        scaling=st.builds(
            Scaling, st.sampled_from(ScaleKind), st.integers(0, 2**31), st.integers(0, 99), st.integers(1, 9)
        ),
        retention=st.builds(
            Retention, st.sampled_from(RetentionKind), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)
        ),
        tags=st.lists(st.text(max_size=20).filter(lambda text: text.isprintable()), max_size=5).map(tuple),
        rollover_bytes=st.integers(0, 2**63 - 1),
        timestamp_aggregation_timeout=st.integers(0, 2**63 - 1),
    )
)
def test_configurations_round_trip(value: StreamConfiguration) -> None:
    entry = Configuration.of(value)
    assert Configuration.model_validate_json(entry.encode()).value() == value


def test_created_is_written_in_utc() -> None:
    manifest = two_generations()[0].manifest
    there = manifest.created.astimezone(timezone(timedelta(hours=5, minutes=30)))
    same = Manifest.model_validate(manifest.model_dump(by_alias=True) | {"created": there})
    assert same.encode() == manifest.encode()
    naive = Manifest.model_validate(manifest.model_dump(by_alias=True) | {"created": datetime(2026, 1, 2)})  # noqa: DTZ001
    assert '"created": "2026-01-02T00:00:00Z"' in naive.encode().decode()


Change = Callable[[dict[str, Any]], object]
SEGMENT = "scope/stream/0.#epoch.0"


def put(*path: str | int, value: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


def rename(path: str, old: str, new: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        document[path] = {new if key == old else key: value for key, value in document[path].items()}

    return change


HOSTILE_NAMES = [
    "../../etc/passwd",
    "/scope/stream/0.#epoch.0",
    "scope/stream/../0.#epoch.0",
    "scope/../stream/0.#epoch.0",
    "scope/stream/0.#epoch.0/",
    "scope/stream/0.#epoch.0\n",
    "scope/str\x00eam/0.#epoch.0",
    "scope/stream/\x1b[31m0.#epoch.0",
    "scope/stream/00.#epoch.0",
    "scope/stream/-1.#epoch.0",
    "scope/stream/2147483648.#epoch.0",
    "scope/stream/٣.#epoch.0",
    "other/stream/0.#epoch.0",
    "scope/other/0.#epoch.0",
    "scope/stream/7.#epoch.0",
    "",
    "x" * 100_000,
]

IMPOSSIBLE: dict[str, tuple[Change, str]] = {
    "another format": (put("format", value=3), "unsupported format version"),
    "format as text": (put("format", value="1"), "format: Value error, not an integer"),
    "format as another number with a fraction": (put("format", value=2.5), "unsupported format version"),
    "format with a fraction": (put("format", value=2.0), "format: Value error, not an integer"),
    "format as boolean": (put("format", value=True), "format: Value error, not an integer"),
    "compression left out": (lambda d: d.pop("compression"), "compression: Field required"),
    "no source": (lambda d: d.pop("source"), "source: Field required"),
    "no tool": (lambda d: d.pop("tool"), "tool: Field required"),
    "no line, said by null": (put("line", value=None), "line: Value error, null"),
    "no schemas, said by null": (put("schemas", value=None), "schemas: Value error, null"),
    "no reader groups, said by null": (put("reader_groups", value=None), "reader_groups: Value error, null"),
    "no totals before, said by null": (put("before", value=None), "before: Value error, null"),
    "a cut as text": (lambda d: d.update({"from": json.dumps(d["from"])}), "from: Value error, a cut is an object"),
    "the name of a field here": (lambda d: d.update(from_=d.pop("from")), "from: Field required"),
    "a range size beyond 63 bits": (put("range_size", value=2**63), "range_size: Input should be less than"),
    "not a number, in an unknown member": (put("unknown", value=float("nan")), "NaN is not JSON"),
    **{
        f"a time {which}": (put("created", value=text), "created: Value error")
        for which, text in {
            "without an offset": "2026-01-02T03:04:05",
            "as seconds": "1795895653",
            "with white space": "2026-01-02 03:04:05Z",
            "in lower case": "2026-01-02t03:04:05z",
            "without seconds": "2026-01-02T03:04Z",
            "with an offset without a colon": "2026-01-02T03:04:05+0100",
            "with an offset of a day": "2026-01-02T03:04:05+24:00",
            "with an offset of 60 minutes": "2026-01-02T03:04:05+01:60",
            "with a comma": "2026-01-02T03:04:05,6Z",
            "that is none": "2026-02-30T03:04:05Z",
            "of a leap second": "2016-12-31T23:59:60Z",
            "that is not in range with another offset": "0001-01-01T00:00:00+01:00",
        }.items()
    },
    "no format": (lambda d: d.pop("format"), "format: Field required"),
    "no epochs field": (lambda d: d.pop("epochs"), "epochs: Field required"),
    "no epoch": (put("epochs", value=[]), "epochs"),
    "number as text": (put("events", value="5"), "events: Input should be a valid integer"),
    "number as fraction": (put("events", value=5.5), "events"),
    "a negative number": (put("events", value=-1), "events"),
    "a huge number": (put("bytes", value=10**40), "bytes"),
    "yes for true": (put("sealed", value="yes"), "sealed"),
    "a wrong total of events": (put("events", value=17), "the totals are not the sums"),
    "a wrong total of bytes": (put("bytes", value=17), "the totals are not the sums"),
    "generation 0": (put("generation", value=0), "generation"),
    "no moment": (put("created", value="yesterday"), "created"),
    "an unknown layout": (put("layout", value="tar"), "layout: "),
    "an unknown compression": (put("compression", value="rar"), "compression: "),
    "no compression": (put("compression", value=None), "compression: "),
    "compression as a list": (put("compression", value=["zstd"]), "compression: "),
    "compressed events": (put("compression", value="zstd"), "layout events cannot be compressed"),
    "an unknown policy": (put("configuration", "scaling", "kind", value="often"), "configuration.scaling.kind"),
    "a scope that leads out": (put("scope", value=".."), "invalid scope name"),
    "a stream that leads out": (put("stream", value="../x"), "invalid stream name"),
    "start after end": (put("segments", 0, "start", value=10**6), "ends at"),
    "a start that is not the cut's": (put("segments", 0, "start", value=3), "does not start and end at the cuts"),
    "an end that is not the cut's": (put("segments", 0, "end", value=500), "does not start and end at the cuts"),
    "an offset beyond an int64": (put("segments", 0, "end", value=2**63), "segments.0.end"),
    "segments out of order": (lambda d: d["segments"].reverse(), "segments are not those between the cuts"),
    "a segment twice": (lambda d: d["segments"].append(d["segments"][1]), "segments are not those between the cuts"),
    "a segment left out": (lambda d: d["segments"].pop(), "segments are not those between the cuts"),
    "a digest in capitals": (put("segments", 0, "digest", value="A" * 64), "segments.0.digest"),
    "a digest too long": (put("segments", 0, "digest", value="a" * 64 + "\n"), "segments.0.digest"),
    "a gap outside": (put("gaps", 0, "end", value=10**6), "a gap is outside"),
    "a gap backwards": (put("gaps", 0, "start", value=101), "a gap is outside"),
    "an empty cut": (put("from", value={}), "from"),
    "a cut that leaves keys out": (lambda d: d["to"].pop(SEGMENT), "names no segment for the keys"),
    "a cut with a fraction": (put("from", SEGMENT, value=0.5), "from"),
    "a cut that is a list": (put("from", value=[1]), "from"),
    "from after to": (put("from", SEGMENT, value=10**6), "lies after the second"),
    **{
        f"segment {name[:30]!r}": (put("segments", 0, "name", value=name), "segment")
        for name in HOSTILE_NAMES
    },
    **{f"gap {name[:30]!r}": (put("gaps", 0, "segment", value=name), "gap") for name in HOSTILE_NAMES},
    **{f"cut {name[:30]!r}": (rename("to", SEGMENT, name), "cut") for name in HOSTILE_NAMES},
}  # fmt: skip


IMPOSSIBLE_IN_FORMAT_1: dict[str, tuple[Change, str]] = {
    "a hole at the end of the key space": (put("epochs", 0, "segments", 1, "high", value=0.999999), "does not cover"),
    "a hole in the key space": (put("epochs", 0, "segments", 0, "high", value=0.4), "does not cover the key space"),
    "an overlap in the key space": (put("epochs", 0, "segments", 1, "low", value=0.4), "does not cover the key space"),
    "keys beyond the space": (put("epochs", 0, "segments", 1, "high", value=1.5), "not a range of the key space"),
    "keys that are no number": (put("epochs", 0, "segments", 1, "high", value=float("nan")), "NaN is not JSON"),
    "keys without end": (put("epochs", 0, "segments", 1, "high", value=float("inf")), "Infinity is not JSON"),
    "an epoch without segments": (put("epochs", 0, "segments", value=[]), "does not cover the key space"),
    "a segment twice in an epoch": (put("epochs", 0, "segments", 1, "id", value=0), "has a segment twice"),
    "a segment of a later epoch": (put("epochs", 0, "segments", 1, "id", value=1 << 32 | 1), "of a later epoch"),
    "a segment's id too large": (put("epochs", 0, "segments", 1, "id", value=2**63 - 1), "from 0 to 2^31 - 1"),
    "epochs not from 0": (put("epochs", 0, "epoch", value=1), "epochs are not numbered consecutively from 0"),
    "a number as text": (put("epochs", 0, "segments", 1, "low", value="0.5"), "an epoch is not a number and its"),
    "a number as yes": (put("epochs", 0, "epoch", value=False), "an epoch is not a number and its"),
    "an id with a fraction": (put("epochs", 0, "segments", 1, "id", value=1.0), "an epoch is not a number and its"),
    "segments that are none": (put("epochs", 0, "segments", value=[1]), "an epoch is not a number and its"),
    "no segments": (put("epochs", value=[{"epoch": 0}]), "an epoch is not a number and its"),
    "epochs as a text": (put("epochs", value=">0:0.5,1"), "not a text for each epoch"),
    "epochs as texts": (put("epochs", value=[">0:0.5,1"]), "not a text for each epoch"),
}  # fmt: skip


NO_EPOCHS: dict[str, tuple[object, str]] = {
    "no list": (">0:0.5,1", "not a text for each epoch"),
    "a number": ([1], "not a text for each epoch"),
    "those of format 1": ([{"epoch": 0, "segments": [{"id": 0, "low": 0, "high": 1}]}], "not a text for each epoch"),
    "none": ([], "there is no epoch"),
    "no arrow": ([">0:0.5,1", "0.0"], "not what epoch 1 seals and opens: '0.0'"),
    "two arrows": ([">0:0.5,1", "0.0>>2"], "not what epoch 1 seals and opens"),
    "an empty name": ([">0:0.5,1,"], "not what epoch 0 seals and opens"),
    "a sealed one without its epoch": ([">0:0.5,1", "0>2"], "not what epoch 1 seals and opens"),
    "one that is sealed twice": ([">0:0.5,1", "0.0,0.0>2"], "not what epoch 1 seals and opens"),
    "one that is opened twice": ([">0:0.5,0"], "not what epoch 0 seals and opens"),
    "one that is unknown": ([">0:0.5,1", "0.7>2"], "not what epoch 1 seals and opens"),
    "one that was sealed": ([">0:0.5,1", "0.0>2", "0.0>3"], "epoch 2 seals segment 0.#epoch.0, which is not open"),
    "one that was open before": ([">0:0.5,1", "0.0>0.0"], "epoch 1 opens segment 0.#epoch.0, which was open before"),
    "zeros before": ([">00:0.5,1"], "not what epoch 0 seals and opens"),
    "a sign": ([">0:+0.5,1"], "not what epoch 0 seals and opens"),
    "a space": ([">0:0.5, 1"], "not what epoch 0 seals and opens"),
    "digits of another script": ([">٣:0.5,1"], "not what epoch 0 seals and opens"),
    "a key that is none": ([">0:nan,1"], "not what epoch 0 seals and opens"),
    "a key beyond the space": ([">0:1.5"], "not what epoch 0 seals and opens"),
    "a key below the segment": ([">0:0.5,1:0.4,2"], "not what epoch 0 seals and opens"),
    "a number too large": ([">0:0.5,2147483648"], "not what epoch 0 seals and opens"),
    "a hole at the end": ([">0:0.5,1:0.999999"], "epoch 0 does not cover the key space exactly once"),
    "a hole after a scale": ([">0:0.5,1", "0.0>2:0.4"], "epoch 1 does not cover the key space exactly once"),
    "keys of a neighbour": ([">0:0.5,1", "0.0>2:0.6"], "epoch 1 does not cover the key space exactly once"),
    "keys between two": ([">0:0.25,1:0.5,2", "0.0,0.2>3:0.6,4"], "epoch 1 does not cover the key space exactly once"),
    "sealed and nothing opened": ([">0:0.5,1", "0.0>"], "epoch 1 does not cover the key space exactly once"),
    "one of a later epoch": ([">0:0.5,3.1"], "epoch 0 has segment 1.#epoch.3, which is of a later epoch"),
}


@pytest.mark.parametrize("name", NO_EPOCHS)
def test_epochs_that_no_stream_can_have_are_damage(name: str) -> None:
    epochs, expected = NO_EPOCHS[name]
    document = json.loads(two_generations()[0].manifest.encode())
    assert expected in refusal(json.dumps(document | {"epochs": epochs}).encode())


@pytest.mark.parametrize(
    "texts",
    [
        (">0",),
        (">5:0.5,6:0.9999999999999999",),
        (">0:0.5,1:0.9999999999999999", "0.1>2:0.75,3:1.0", "1.3>4:0.9999999999999998"),
        (">0:0.5,1", "0.0,0.1>2:1.0", "1.2>0:0.5,1", "2.0,2.1>2:1.0"),
        (">0:0.25,1:0.5,2:0.75,3", "0.0,0.2>4:0.125,5,6:0.625,7", ">", "1.4,1.5,0.1>1.8:0.5"),
    ],
)
def test_epochs_have_one_text(texts: tuple[str, ...]) -> None:
    epochs = parse_epochs(texts)
    assert tuple(epoch_texts(epochs)) == texts
    assert Epochs(epochs) == epochs


def refusal(data: bytes) -> str:
    return damage(lambda: read(data), WHERE)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_invalid_manifest_is_damage_in_one_line(name: str) -> None:
    change, expected = IMPOSSIBLE[name]
    document = json.loads(two_generations()[0].manifest.encode())
    change(document)
    assert expected in refusal(json.dumps(document).encode())


def listed(manifest: Manifest) -> dict[str, Any]:
    """A manifest as earlier releases wrote it: each epoch has all its segments."""
    epochs = [
        {
            "epoch": one.number,
            "segments": [{"id": s.value, "low": r.low, "high": r.high} for s, r in one.segments.items()],
        }
        for one in manifest.epochs
    ]
    document: dict[str, Any] = json.loads(manifest.encode())
    return document | {"format": 1, "epochs": epochs}


@pytest.mark.parametrize("name", IMPOSSIBLE_IN_FORMAT_1)
def test_invalid_manifest_of_format_1_is_damage_in_one_line(name: str) -> None:
    change, expected = IMPOSSIBLE_IN_FORMAT_1[name]
    document = listed(two_generations()[0].manifest)
    change(document)
    assert expected in refusal(json.dumps(document).encode())


def test_manifest_of_format_1_is_the_same_and_is_written_as_format_2() -> None:
    merged = EPOCHS.then(Epoch(1, {SegmentId(1, 2): KeyRange(0.0, 1.0)}))
    manifest = generation({SegmentId(1, 2): [[b"c"]]}, epochs=merged).manifest
    document = listed(manifest)
    del document["sha256"]
    found = read(seal(document))
    assert found.epochs == manifest.epochs
    assert found.is_same(manifest)
    assert found.encode() == manifest.encode()


def test_truncated_file_is_damage() -> None:
    data = two_generations()[0].manifest.encode()
    for size in range(len(data.rstrip())):
        refusal(data[:size])


@given(st.binary(max_size=200))
def test_file_of_any_bytes_is_damage(data: bytes) -> None:
    refusal(data)


@pytest.mark.parametrize("text", ["null", "[]", "17", '"x"', "{}", "[" * 5000, '{"format": 1' * 50])
def test_json_of_another_shape_is_damage(text: str) -> None:
    refusal(text.encode())


def test_segment_with_other_keys_in_a_later_epoch_is_refused() -> None:
    moved = Epoch(1, {LEFT: KeyRange(0.0, 0.25), SegmentId(1, 2): KeyRange(0.25, 1.0)})
    with pytest.raises(ValueError, match=r"segment 0\.#epoch\.0 has other keys than in the epoch before"):
        generation({}, epochs=EPOCHS.then(moved))


def test_generation_across_a_scale_names_every_segment_between_its_cuts() -> None:
    merged = Epoch(1, {SegmentId(1, 2): KeyRange(0.0, 1.0)})
    made = generation({LEFT: [[b"a"]], RIGHT: [[b"b"], Hole(9)], SegmentId(1, 2): [[b"c"]]}, epochs=EPOCHS.then(merged))
    assert [entry.name for entry in made.manifest.segments] == [
        segment.in_stream(NAME) for segment in (LEFT, RIGHT, SegmentId(1, 2))
    ]
    assert made.manifest.to == StreamCut(NAME, {SegmentId(1, 2): 9})
    assert read(made.manifest.encode()) == made.manifest


def test_compression_round_trips() -> None:
    document = json.loads(two_generations()[0].manifest.encode())
    found = read(seal(document | {"layout": "chunks", "compression": "zstd"}))
    assert (found.layout, found.compression) == ("chunks", "zstd")
    assert read(found.encode()) == found


def rolled(rng: random.Random) -> Epochs:
    """A history of scales and of transactions that are committed over a scale: two epochs with earlier numbers."""
    edges = [n / 4 for n in range(5)]
    epochs = Epochs([Epoch(0, {SegmentId(0, n): KeyRange(*pair) for n, pair in enumerate(pairwise(edges))})])
    for _ in range(rng.randrange(8)):
        epochs = scaled(epochs, 1)
        if rng.random() < 0.3:
            for like in (epochs[rng.randrange(len(epochs))], epochs[-1]):
                made = {SegmentId(len(epochs), s.number): held for s, held in like.segments.items()}
                epochs = epochs.then(Epoch(len(epochs), made))
    return epochs


@pytest.mark.parametrize("seed", range(40))
def test_what_is_written_is_read_back(seed: int) -> None:
    epochs = rolled(random.Random(seed))
    texts = epoch_texts(epochs)
    assert parse_epochs(texts) == epochs
    assert epoch_texts(parse_epochs(texts)) == texts
    for count in range(1, len(epochs) + 1):
        assert parse_epochs(texts[:count]) == epochs.upto(count)
        assert epochs.starts_with(epochs.upto(count))
    for other in (texts[:-1], [*texts[:-1], ">"], texts) if len(texts) > 1 else ():  # whatever was read before
        assert epoch_texts(parse_epochs(other)) == other


@pytest.mark.parametrize("seed", range(20))
def test_epochs_are_the_same_from_all_sides(seed: int) -> None:
    epochs = rolled(random.Random(seed))
    every = list(epochs)
    assert [one.number for one in every] == list(range(len(epochs)))
    assert [epochs[number] for number in range(len(epochs))] == every
    assert [epochs[number - len(epochs)] for number in range(len(epochs))] == every
    assert list(reversed(epochs)) == every[::-1]
    assert epochs[1:3] == tuple(every[1:3])
    assert Epochs(every) == epochs == Epochs.of(epochs.changes)
    assert hash(Epochs(every)) == hash(epochs)
    for segment, keys, first, last in epochs.lives:
        assert [one.number for one in every if segment in one.segments] == list(range(first, last + 1))
        assert epochs.ranges[segment] == keys
        assert epochs.life(segment) == (segment, keys, first, last)


def test_history_that_no_stream_has_is_refused() -> None:
    whole, first = KeyRange(0.0, 1.0), SegmentId(0, 0)
    begin = EpochChange({}, {first: whole})
    with pytest.raises(ValueError, match="there is no epoch"):
        Epochs.of([])
    with pytest.raises(ValueError, match="which is not open"):
        Epochs.of([begin, EpochChange({SegmentId(0, 1): whole}, {})])
    with pytest.raises(ValueError, match="which was open before"):
        Epochs.of([begin, EpochChange({first: whole}, {first: whole})])
    with pytest.raises(ValueError, match="not numbered consecutively from 0"):
        Epochs([Epoch(1, {first: whole})])
    with pytest.raises(ValueError, match="not numbered consecutively from 0"):
        Epochs.of([begin]).then(Epoch(2, {first: whole}))
    with pytest.raises(IndexError):
        Epochs.of([begin])[1]


def entry(encoding: int, schema: bytes = b'{"type": "string"}', **fields: Any) -> SchemaEntry:
    data = base64.b64encode(schema).decode()
    fields = {"version": encoding, "codec": "", **fields}
    return SchemaEntry(encoding=encoding, type="Order", format="Avro", data=data, **fields)


def group(*entries: SchemaEntry, name: str = "orders") -> SchemaGroup:
    return SchemaGroup(group=name, entries=entries)


def noting(made: Made, schemas: SchemaGroup | None) -> Made:
    return replace(made, manifest=made.manifest.model_copy(update={"schemas": schemas}))


def merged(*held: Made) -> Manifest:
    rows = sorted((row for made in held for row in made.rows), key=lambda row: (row.segment, row.start))
    generations = [Generation(made.manifest, by_segment(made.rows)) for made in held]
    return Merger(generations, "here").manifest(by_segment(rows), tool="streamvault test")


@pytest.mark.parametrize("schemas", [None, group(), group(entry(0), entry(3, codec="application/x-gzip"))])
def test_manifest_is_read_as_it_was_written(schemas: SchemaGroup | None) -> None:
    made = noting(two_generations()[0], schemas).manifest
    data = made.encode()
    assert decode(Manifest, data, "here").schemas == schemas
    assert (b'"schemas"' in data) == (schemas is not None)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ((entry(1), entry(0)), "encodings are not sorted"),
        ((entry(1), entry(1)), "encodings are not sorted"),
        (tuple(entry(n, b"x" * (MAX_SCHEMA_BYTES // 2)) for n in range(13)), f"have more than {MAX_GROUP_BYTES} bytes"),
    ],
)
def test_impossible_groups_are_refused(entries: tuple[SchemaEntry, ...], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        group(*entries)


def test_merge_has_the_encodings_of_all() -> None:
    first, second = two_generations()
    held = [noting(first, group(entry(0), entry(1))), noting(second, group(entry(1), entry(2)))]
    assert can_merge(made.manifest for made in held)
    assert merged(*held).schemas == group(entry(0), entry(1), entry(2))
    assert merged(held[0], noting(second, None)).schemas == group(entry(0), entry(1))
    assert merged(first, second).schemas is None


def test_what_is_noted_last_holds_beside_what_was_noted_before() -> None:
    first = SchemaGroup(group="orders", entries=(), unused=(entry(0), entry(1)), settings="{}")
    second = SchemaGroup(group="orders", entries=(entry(0),), unused=(entry(2),), settings="[]")
    both = SchemaGroup(group="orders", entries=(entry(0),), unused=(entry(1), entry(2)), settings="[]")
    assert SchemaGroup.union([first, None, second, group(entry(0))]) == both


def test_a_version_has_one_schema() -> None:
    with pytest.raises(ValueError, match="version 0 of Order in orders has two schemas"):
        SchemaGroup.union([group(entry(0)), group(entry(1, b"{}", version=0))])


@pytest.mark.parametrize("other", [group(entry(0, b'"int"')), group(entry(0), name="other")])
def test_generations_whose_encodings_differ_are_not_merged(other: SchemaGroup) -> None:
    first, second = two_generations()
    assert not can_merge(made.manifest for made in (noting(first, group(entry(0))), noting(second, other)))


class Noted(File):
    """A file of one field."""

    names: tuple[str, ...] = ("a",)


_HEAVY = {"long text", "many values", "many members"}
GOOD = Noted().encode()


@pytest.mark.parametrize("place", ['"names": [\n  "a"\n ]', '"more": 1'])
@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind not in _HEAVY | {"zero", "NaN"}])
def test_hostile_value_is_refused_wherever_it_is(kind: str, place: str) -> None:
    data = GOOD if place.encode() in GOOD else GOOD.replace(b"{", b'{\n "more": 1,', 1)
    changed = resealed(data.replace(place.encode(), b'"%s": %s' % (place.split('"')[1].encode(), VALUES[kind])))
    if kind in {"1e400", "-1e99999"} and "more" in place:
        decode(Noted, changed, "here")  # what nobody reads, and is no harm
        return
    with pytest.raises(Damaged, match="here") as refused:
        decode(Noted, changed, "here")
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("inner", [b'"names": ["b"],', b'"more": {"a": 1, "a": 2},', b'"more": [{"": 1, "": 1}],'])
def test_name_that_is_there_twice_is_refused(inner: bytes) -> None:
    with pytest.raises(Damaged, match="twice in one object"):
        decode(Noted, resealed(GOOD.replace(b"{", b"{\n " + inner, 1)), "here")


def test_file_with_too_many_values_is_neither_written_nor_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Noted(names=("a",) * 100)
    data = made.encode()
    assert decode(Noted, data, "here") == made
    monkeypatch.setattr("streamvault.manifests.files.MOST_VALUES", 100)
    with pytest.raises(Failed, match="readers accept"):
        made.encode()
    with pytest.raises(Damaged, match="values"):
        decode(Noted, data, "here")


def test_request_with_a_name_twice_is_refused() -> None:
    with pytest.raises(NotARequest):
        decode_request(b'{"kind":"delete","kind":"delete","version":1,"root":"/x","archive":"a/b","generation":1}')
