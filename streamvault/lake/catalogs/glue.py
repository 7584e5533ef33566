"""Parquet tables in the Glue Data Catalog: one partition for each generation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import boto3
import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError

from streamvault.common.errors import Conflict, Damaged, Usage
from streamvault.lake.catalogs import CatalogFailed, check_known, check_location, is_of_removed, while_busy
from streamvault.lake.catalogs.hive import HiveTable, hive_table, projected
from streamvault.lake.location import TablePlace
from streamvault.lake.table import GENERATION, arrow_type, hive_type, holds, wider_type
from streamvault.manifests.files import one_line
from streamvault.manifests.history import Generation

_KEPT = (
    "Name", "Description", "Owner", "Retention", "StorageDescriptor", "PartitionKeys", "ViewOriginalText",
    "ViewExpandedText", "TableType", "Parameters", "TargetTable",
)  # fmt: skip
"""Fields of the answer of `get_table` that `update_table` accepts."""

AT_ONCE = 100
"""Maximum partitions that Glue accepts in one request."""


class GlueTables:
    """A `lake.catalogs.Catalog` for Parquet tables in Glue.

    Args:
        projection: list the generations in a property of the table, not as partitions. The property contains the range
            of registered generations and is changed in one step.
    """

    def __init__(self, *, projection: bool = False) -> None:
        self._glue = _client()
        self._projection = projection

    def identity(self, place: TablePlace) -> str:  # noqa: ARG002  (the interface's)
        """See `Catalog.identity`."""
        return f"glue:{self._glue.meta.region_name}"

    def check_columns(self, place: TablePlace, ours: pa.Schema) -> None:
        """See `Catalog.check_columns`. Partitions have their own columns, so Glue accepts them."""

    def claim(self, place: TablePlace) -> None:
        """See `Catalog.claim`. A table has no identity, and nothing but its name: its rows are what its folder has."""

    def missing(self, place: TablePlace, generations: Sequence[int]) -> list[int]:
        """See `Catalog.missing`."""
        ours = hive_table(place, generations)
        with _translated_errors(ours):
            found = _find_table(self._glue, ours)
            if found is None:
                return list(generations)
            _check_location(found, ours)
            there = self._registered(found, ours)
            check_known(generations, max(there, default=0), place)
        return [number for number in generations if number not in there]

    def publish(self, place: TablePlace, generation: Generation) -> bool:
        """See `Catalog.publish`."""
        number = generation.manifest.generation
        ours = hive_table(place.as_of(number), [number])
        with _translated_errors(ours):
            for _ in while_busy(place):
                found = _find_table(self._glue, ours)
                if found is None:
                    place.files(generation)  # raises if one is missing
                    created = _create(self._glue, ours, projected(number, number) if self._projection else {})
                    if created and self._projection:
                        return True
                    continue
                _check_location(found, ours)
                there = self._registered(found, ours)
                if number in there or not (generation.rows or _is_projected(found)):
                    return False  # a generation without events has no folder that a partition could name
                if not _has_files(generation, place, is_newest=number > max(there, default=0)):
                    return False
                changed = {name: found[name] for name in _KEPT if name in found}
                columns = _grown(found["StorageDescriptor"]["Columns"], ours)
                if not _is_projected(found) and columns == found["StorageDescriptor"]["Columns"]:
                    return _add_partitions(self._glue, ours, found, list(ours.partitions))
                changed["StorageDescriptor"] = {**found["StorageDescriptor"], "Columns": columns}
                if _is_projected(found):
                    # all between the first and the last: a late run may have created the table with a later one
                    both = {*there, number}
                    changed["Parameters"] = {**found["Parameters"], **projected(min(both), max(both))}
                now = _find_table(self._glue, ours)
                if now is None:
                    continue
                _check_location(now, ours)  # a version does not tell a table from the next one of its name
                with suppress(self._glue.exceptions.ConcurrentModificationException):
                    self._glue.update_table(DatabaseName=ours.database, TableInput=changed, **_version(found))
                    if _is_projected(found):
                        return True  # if not, the partition is added to the table as it is now
        raise AssertionError  # it is tried until one of these ends it

    def _registered(self, found: dict[str, Any], ours: HiveTable) -> set[int]:
        if _is_projected(found):
            first, last = found["Parameters"][f"projection.{GENERATION}.range"].split(",")
            return set(range(int(first), int(last) + 1))
        there = _partitions(self._glue, ours)
        for value, location in there.items():
            if is_of_removed(ours.location, location):
                what = f"{ours.name} in Glue has a partition of a table that was removed here"
                todo = f"Drop it: ALTER TABLE {ours.name} DROP PARTITION ({GENERATION} = {value})."
                raise Conflict(what, where=location, todo=todo)
        return set(map(int, there))


def publish_raw(raw: HiveTable) -> int:
    """Register a table over raw events, or add missing segments to it; return how many were added.

    Raises:
        Conflict, CatalogFailed: as `Catalog.publish`.
    """
    glue = _client()
    with _translated_errors(raw):
        found = _find_table(glue, raw)
        if found is None:
            _create(glue, raw)
            found = _find_table(glue, raw) or {}
        _check_location(found, raw)
        there = _partitions(glue, raw)
        new = [segment for segment in raw.partitions if segment not in there]
        for begin in range(0, len(new), AT_ONCE):
            _add_partitions(glue, raw, found, new[begin : begin + AT_ONCE])
    return len(new)


def _client() -> Any:
    session = boto3.Session()  # that of boto3 itself keeps the credentials that it has found first
    return session.client("glue", region_name=session.region_name or "us-east-1")


@contextmanager
def _translated_errors(ours: HiveTable) -> Iterator[None]:
    """Translate Glue's errors."""
    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        text = one_line(f"{details.get('Code', '')} {details.get('Message', '')}")
        raise CatalogFailed("Glue rejects the request", where=f"{ours.name}: {text}") from None
    except BotoCoreError as error:
        raise CatalogFailed("Glue cannot be used", where=f"{ours.name}: {one_line(error)}") from None


def _find_table(glue: Any, ours: HiveTable) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = glue.get_table(DatabaseName=ours.database, Name=ours.table)["Table"]
    except glue.exceptions.EntityNotFoundException:
        return None
    return found


def _create(glue: Any, ours: HiveTable, parameters: Mapping[str, str] | None = None) -> bool:
    """Create the table, and the database if it is missing; return False if another run was first."""
    try:
        glue.create_table(DatabaseName=ours.database, TableInput=_table_input(ours, parameters or {}))
    except glue.exceptions.AlreadyExistsException:
        return False
    except glue.exceptions.EntityNotFoundException:
        with suppress(glue.exceptions.AlreadyExistsException):
            glue.create_database(DatabaseInput={"Name": ours.database})
        return _create(glue, ours, parameters)
    return True


def _partitions(glue: Any, ours: HiveTable) -> dict[str, str]:
    """Return the values of the registered partitions, and their locations."""
    pages = glue.get_paginator("get_partitions").paginate(
        DatabaseName=ours.database, TableName=ours.table, ExcludeColumnSchema=True
    )
    return {one["Values"][0]: _location(one) for page in pages for one in page["Partitions"]}


def _add_partitions(glue: Any, ours: HiveTable, found: dict[str, Any], values: Sequence[str]) -> bool:
    """Add some of the partitions to the registered table; return False if one of them was there already."""
    partitions = [
        {"Values": [value], "StorageDescriptor": {**found["StorageDescriptor"], "Location": ours.partitions[value]}}
        for value in values
    ]
    answer = glue.batch_create_partition(
        DatabaseName=ours.database, TableName=ours.table, PartitionInputList=partitions
    )
    errors = [one["ErrorDetail"] for one in answer.get("Errors", [])]
    wrong = [error for error in errors if error.get("ErrorCode") != "AlreadyExistsException"]
    if wrong:
        text = one_line(f"{wrong[0].get('ErrorCode')} {wrong[0].get('ErrorMessage')}")
        raise CatalogFailed("Glue rejects a partition", where=f"{ours.name}: {text}")
    now = _find_table(glue, ours)
    try:
        if now is not None:
            _check_location(now, ours)
    except Conflict:
        # Glue knows a table by its name alone: another one has got the partitions
        for value in values:
            name = {"DatabaseName": ours.database, "TableName": ours.table, "PartitionValues": [value]}
            with suppress(glue.exceptions.EntityNotFoundException):
                if _location(glue.get_partition(**name)["Partition"]) == ours.partitions[value]:
                    glue.delete_partition(**name)
        raise
    return not errors


def _location(found: dict[str, Any]) -> str:
    return str(found.get("StorageDescriptor", {}).get("Location", ""))


def _has_files(generation: Generation, place: TablePlace, *, is_newest: bool) -> bool:
    """Return whether a generation has all its files. An earlier one's may have been removed, with its partition."""
    try:
        place.files(generation)
    except Damaged:
        if is_newest:
            raise
        return False
    return True


def _check_location(found: dict[str, Any], ours: HiveTable) -> None:
    check_location(ours.name, ours.location, _location(found))


def _is_projected(found: dict[str, Any]) -> bool:
    return str(found.get("Parameters", {}).get("projection.enabled", "")).lower() == "true"


def _version(found: dict[str, Any]) -> dict[str, str]:
    """Return the condition under which Glue changes the table: that nobody has changed it since it was read."""
    return {"VersionId": str(found["VersionId"])} if "VersionId" in found else {}


def _table_input(ours: HiveTable, parameters: Mapping[str, str]) -> dict[str, Any]:
    return {
        "Name": ours.table,
        "TableType": "EXTERNAL_TABLE",
        "PartitionKeys": _columns([ours.key]),
        "Parameters": {"EXTERNAL": "TRUE", "classification": ours.storage.classification, **parameters},
        "StorageDescriptor": {
            "Columns": _columns(ours.columns),
            "Location": ours.location,
            "InputFormat": ours.storage.input_format,
            "OutputFormat": ours.storage.output_format,
            "SerdeInfo": {"SerializationLibrary": ours.storage.serde, "Parameters": {"serialization.format": "1"}},
        },
    }


def _grown(columns: list[dict[str, str]], ours: HiveTable) -> list[dict[str, str]]:
    """Return a table's columns, widened to hold those of the files, and after them those that it lacks."""
    missing = {field.name: field for field in ours.columns}
    found = []
    for column in columns:
        field = missing.pop(column["Name"], None)
        with suppress(Usage):  # a type that a user has given it, and no handoff has
            held = None if field is None else arrow_type(column["Type"])
            if held is not None and not holds(held, field.type):
                column = {**column, "Type": hive_type(wider_type(held, field.type))}  # noqa: PLW2901
        found.append(column)
    return [*found, *_columns(missing.values())]


def _columns(fields: Iterable[pa.Field]) -> list[dict[str, str]]:
    return [{"Name": field.name, "Type": hive_type(field.type)} for field in fields]
