"""Tables in SQL: Spark passes a table's options and location when it is created, but not when it is read or written.

So they are kept in the metadata of the table's first column, which catalogs store with the columns. They are used to
read only: what a query writes may have columns, and so the metadata, of the table that it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pyspark.sql.types import StructField, StructType

from streamvault.spark.columns import spark_schema

_KEPT = "streamvault.options"
_OPTION = "option."
_CREATION = frozenset({"owner", "provider"})
"""Properties of a table that is being created, which come with its options."""
_PLACE = frozenset({"path", "controller", "scope", "stream"})


def schema_for(given: Mapping[str, str], columns: Callable[[Mapping[str, str]], list[str] | None]) -> StructType:
    """Return the columns of a read, or of a table that is being created.

    Args:
        given: the options from Spark.
        columns: returns the names of the requested columns, None for all, given the options of the read.
    """
    if not given.keys() >= _CREATION:
        return spark_schema(columns(given))
    # beside the options, there are the table's properties, by their own names
    options = {name.removeprefix(_OPTION): text for name, text in given.items() if name.startswith(_OPTION)}
    options |= {name: text for name, text in given.items() if name == "path"}
    first, *others = spark_schema(columns(options)).fields
    kept = StructField(first.name, first.dataType, first.nullable, {_KEPT: json.dumps(options)})
    return StructType([kept, *others])


def options_for(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read: of a table, its own and the query's, which must not name another place."""
    if not given.keys().isdisjoint(_PLACE):
        return dict(given)
    kept = (field.metadata[_KEPT] for field in schema.fields if _KEPT in (field.metadata or {}))
    return {**json.loads(next(kept, "{}")), **given}
