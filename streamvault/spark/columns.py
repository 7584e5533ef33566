"""An event's columns as Spark's, and which of them are requested."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from streamvault.common.errors import Usage
from streamvault.lake.read import schema_of


def spark_schema(columns: list[str] | None) -> StructType:
    """Return the schema of some of an event's columns; of all if None.

    Raises:
        Usage: a column is unknown.
    """
    return from_arrow_schema(schema_of(columns))


def arrow_schema(requested: StructType) -> pa.Schema:
    """Return the Arrow schema for a requested schema: one from `spark_schema`, or the user's ``.schema(…)``.

    Raises:
        Usage: a column is unknown or has another type.
    """
    names = requested.fieldNames()
    found = to_arrow_schema(requested, timezone="UTC")
    for field, known in zip(found, schema_of(names), strict=True):
        if field.type != known.type:
            raise Usage(f"the column {field.name} is of type {known.type}", where=f"{field.type} in the schema")
    return found
