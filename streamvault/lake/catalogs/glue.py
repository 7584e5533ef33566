"""Parquet tables in the Glue Data Catalog: one partition for each generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from streamvault.common.errors import Conflict, Damaged
from streamvault.lake.catalogs import CatalogFailed, check_known
from streamvault.lake.hive import PARQUET, TEXT, RawTable, StorageFormat, hive_columns, projected
from streamvault.lake.location import TablePlace
from streamvault.lake.options import GENERATION
from streamvault.manifests.archive.history import Generation
from streamvault.manifests.format.jsonfile import one_line

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

    def check_columns(self, place: TablePlace) -> None:
        """See `Catalog.check_columns`. Partitions have their own columns, so Glue accepts them."""

    def missing(self, place: TablePlace, generations: Sequence[int]) -> list[int]:
        """See `Catalog.missing`."""
        with _translated_errors(place.name):
            table = _find_table(self._glue, place.database, place.options.table)
            if table is None:
                return list(generations)
            _check_location(table, place.location, place.name)
            there = self._registered(table, place)
            check_known(generations, max(there, default=0), place)
        return [number for number in generations if number not in there]

    def publish(self, place: TablePlace, generation: Generation) -> bool:
        """See `Catalog.publish`."""
        number = generation.manifest.generation
        with _translated_errors(place.name):
            table = _find_table(self._glue, place.database, place.options.table)
            if table is None:
                place.files(generation)  # raises if one is missing
                _create(self._glue, place.database, self._table(place, number))
                if self._projection:
                    return True
                table = _find_table(self._glue, place.database, place.options.table) or {}
            _check_location(table, place.location, place.name)
            there = self._registered(table, place)
            if number in there or not (generation.rows or _is_projected(table)):
                return False  # a generation without events has no folder that a partition could name
            if not _has_files(generation, place, is_newest=number > max(there, default=0)):
                return False
            if _is_projected(table):
                changed = {name: table[name] for name in _KEPT if name in table}
                # all between the first and the last: a late run may have created the table with a later one
                both = {*there, number}
                changed["Parameters"] = {**table["Parameters"], **projected(min(both), max(both))}
                self._glue.update_table(DatabaseName=place.database, TableInput=changed, **_version(table))
                return True
            partition = _partition(table, str(number), place.partition(number))
            return _create_partitions(self._glue, place.database, place.options.table, [partition])

    def _registered(self, table: dict[str, Any], place: TablePlace) -> set[int]:
        if _is_projected(table):
            first, last = table["Parameters"][f"projection.{GENERATION}.range"].split(",")
            return set(range(int(first), int(last) + 1))
        return {int(value) for value in _partitions(self._glue, place.database, place.options.table)}

    def _table(self, place: TablePlace, number: int) -> dict[str, Any]:
        columns = [{"Name": name, "Type": kind} for name, kind in hive_columns(place.options)]
        return _table_input(
            place.options.table,
            columns,
            [{"Name": GENERATION, "Type": "int"}],
            place.location + "/",
            storage=PARQUET,
            parameters=projected(number, number) if self._projection else {},
        )


def publish_raw(raw: RawTable) -> int:
    """Register a table over raw events, or add missing segments to it; return how many were added.

    Raises:
        Conflict, CatalogFailed: as `Catalog.publish`.
    """
    glue = _client()
    with _translated_errors(f"{raw.database}.{raw.table}"):
        table = _find_table(glue, raw.database, raw.table)
        if table is None:
            columns = [{"Name": "payload", "Type": "string"}]
            keys = [{"Name": "segment", "Type": "string"}]
            _create(glue, raw.database, _table_input(raw.table, columns, keys, raw.location, storage=TEXT))
            table = _find_table(glue, raw.database, raw.table) or {}
        _check_location(table, raw.location, f"{raw.database}.{raw.table}")
        there = _partitions(glue, raw.database, raw.table)
        new = [_partition(table, one, f"{raw.location}{one}/") for one in raw.segments if one not in there]
        for begin in range(0, len(new), AT_ONCE):
            _create_partitions(glue, raw.database, raw.table, new[begin : begin + AT_ONCE])
    return len(new)


def _client() -> Any:
    return boto3.client("glue", region_name=boto3.Session().region_name or "us-east-1")


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    """Translate Glue's errors."""
    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        text = one_line(f"{details.get('Code', '')} {details.get('Message', '')}")
        raise CatalogFailed("Glue rejects the request", where=f"{name}: {text}") from None
    except BotoCoreError as error:
        raise CatalogFailed("Glue cannot be used", where=f"{name}: {one_line(error)}") from None


def _find_table(glue: Any, database: str, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = glue.get_table(DatabaseName=database, Name=name)["Table"]
    except glue.exceptions.EntityNotFoundException:
        return None
    return found


def _create(glue: Any, database: str, table: dict[str, Any]) -> None:
    """Create the table, and the database if it is missing."""
    try:
        glue.create_table(DatabaseName=database, TableInput=table)
    except glue.exceptions.AlreadyExistsException:
        return
    except glue.exceptions.EntityNotFoundException:
        with suppress(glue.exceptions.AlreadyExistsException):
            glue.create_database(DatabaseInput={"Name": database})
        _create(glue, database, table)


def _partitions(glue: Any, database: str, table: str) -> set[str]:
    """Return the values of the table's partitions."""
    pages = glue.get_paginator("get_partitions").paginate(
        DatabaseName=database, TableName=table, ExcludeColumnSchema=True
    )
    return {partition["Values"][0] for page in pages for partition in page["Partitions"]}


def _partition(table: dict[str, Any], value: str, location: str) -> dict[str, Any]:
    return {"Values": [value], "StorageDescriptor": {**table["StorageDescriptor"], "Location": location}}


def _create_partitions(glue: Any, database: str, table: str, partitions: list[dict[str, Any]]) -> bool:
    answer = glue.batch_create_partition(DatabaseName=database, TableName=table, PartitionInputList=partitions)
    errors = [one["ErrorDetail"] for one in answer.get("Errors", [])]
    wrong = [error for error in errors if error.get("ErrorCode") != "AlreadyExistsException"]
    if wrong:
        text = one_line(f"{wrong[0].get('ErrorCode')} {wrong[0].get('ErrorMessage')}")
        raise CatalogFailed("Glue rejects a partition", where=f"{database}.{table}: {text}")
    return not errors


def _has_files(generation: Generation, place: TablePlace, *, is_newest: bool) -> bool:
    """Return whether a generation has all its files. An earlier one's may have been removed, with its partition."""
    try:
        place.files(generation)
    except Damaged:
        if is_newest:
            raise
        return False
    return True


def _check_location(table: dict[str, Any], location: str, name: str) -> None:
    found = table.get("StorageDescriptor", {}).get("Location", "")
    if found.rstrip("/") != location.rstrip("/"):
        todo = "Give the table another name (--table DATABASE.NAME)."
        raise Conflict(f"{name} in Glue is a table at another location", where=found or "no location", todo=todo)


def _is_projected(table: dict[str, Any]) -> bool:
    return str(table.get("Parameters", {}).get("projection.enabled", "")).lower() == "true"


def _version(table: dict[str, Any]) -> dict[str, str]:
    """Return the condition under which Glue changes the table: that nobody has changed it since it was read."""
    return {"VersionId": str(table["VersionId"])} if "VersionId" in table else {}


def _table_input(
    name: str,
    columns: list[dict[str, str]],
    keys: list[dict[str, str]],
    location: str,
    *,
    storage: StorageFormat,
    parameters: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "PartitionKeys": keys,
        "Parameters": {"EXTERNAL": "TRUE", "classification": storage.classification, **(parameters or {})},
        "StorageDescriptor": {
            "Columns": columns,
            "Location": location,
            "InputFormat": storage.input_format,
            "OutputFormat": storage.output_format,
            "SerdeInfo": {"SerializationLibrary": storage.serde, "Parameters": {"serialization.format": "1"}},
        },
    }
