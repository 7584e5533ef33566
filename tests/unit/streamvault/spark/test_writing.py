"""Options of a write."""

from __future__ import annotations

import pytest

from streamvault.common.errors import Problem
from streamvault.spark.writing import write_options
from tests.unit.spark_reads import schema_of


@pytest.mark.parametrize(
    ("options", "schema", "overwrite", "said"),
    [
        ({}, "event binary", True, "events cannot be overwritten"),
        ({}, "payload binary", False, "the column event is missing: payload"),
        ({}, "event binary, key string", False, "unknown column: key"),
        ({}, "event int", False, "the column event is neither binary nor string: int"),
        ({}, "event binary, routing_key binary", False, "the column routing_key is not a string"),
        ({"txnAppId": "a"}, "event binary", False, "the option is missing: option txnVersion"),
        ({"txnVersion": "1"}, "event binary", False, "the option is missing: option txnAppId"),
        ({"lease": "5"}, "event binary", False, "an integer of at least 10"),
    ],
)
def test_invalid_write_options_are_refused(options: dict[str, str], schema: str, overwrite: bool, said: str) -> None:
    with pytest.raises(Problem, match=said):
        write_options({"path": "pravega://h:1/s/t", **options}, schema_of(schema), overwrite=overwrite)
