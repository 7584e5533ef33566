"""The schemas that a generation notes: which manifests have them, and what a merge makes of them."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from streamvault.manifests.files import decode
from streamvault.manifests.history import Generation, by_segment
from streamvault.manifests.manifest import MAX_GROUP_BYTES, MAX_SCHEMA_BYTES, Manifest, SchemaEntry, SchemaGroup
from streamvault.manifests.merging import Merger, can_merge
from tests.archives import Made, two_generations


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
