"""The columns of a read."""

from __future__ import annotations

import pytest

from streamvault.common.errors import Problem
from streamvault.spark.columns import arrow_schema
from tests.unit.spark_reads import schema_of


def test_users_schema_chooses_columns() -> None:
    assert arrow_schema(schema_of("length int, pointer string")).names == ["length", "pointer"]
    with pytest.raises(Problem, match="the column length is of type int32"):
        arrow_schema(schema_of("length string"))
    with pytest.raises(Problem, match="unknown column: size"):
        arrow_schema(schema_of("size int"))
