"""An event's columns as Spark's, and which of them are wanted."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from common.errors import Usage
from lake.read import schema_of

__all__ = ["arrow_schema", "spark_schema"]


def spark_schema(columns: list[str] | None) -> StructType:
    """The schema of these columns, all if None.

    Raises:
        Usage: there is no such column.
    """
    return from_arrow_schema(schema_of(columns))


def arrow_schema(wanted: StructType) -> pa.Schema:
    """The Arrow schema of what Spark wants to read: what `spark_schema` made, or the user's ``.schema(…)``.

    Raises:
        Usage: it has a column that there is not, or of another type.
    """
    names = wanted.fieldNames()
    found = to_arrow_schema(wanted, timezone="UTC")
    for field, known in zip(found, schema_of(names), strict=True):
        if field.type != known.type:
            raise Usage(f"the column {field.name} is of type {known.type}", where=f"{field.type} in the schema")
    return found
