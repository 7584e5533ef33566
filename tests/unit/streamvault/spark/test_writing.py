"""Options of a write."""

from __future__ import annotations

import pytest

from streamvault.common.errors import Problem
from streamvault.spark.options import write_options
from tests.unit.spark_reads import schema_of


@pytest.mark.parametrize(
    ("options", "schema", "overwrite", "said"),
    [
        ({}, "event binary", True, "events cannot be overwritten"),
        ({}, "routing_key string", False, "the column payload is missing: routing_key"),
        ({}, "payload binary, event binary", False, "the payload is given twice: payload, event"),
        ({}, "event binary, key string", False, "unknown column: key"),
        ({}, "event int", False, "the column event is neither binary nor string: int"),
        ({}, "event binary, routing_key binary", False, "the column routing_key is not a string"),
        ({"txnAppId": "a"}, "event binary", False, "the option is missing: option txnVersion"),
        ({"txnVersion": "1"}, "event binary", False, "the option is missing: option txnAppId"),
        ({"lease": "5"}, "event binary", False, "an integer of at least 10"),
        ({"transaction_timeout_ms": "9999"}, "event binary", False, "an integer of at least 10000"),
        ({"lease": "20", "transaction_timeout_ms": "30000"}, "event binary", False, "another name of lease"),
        ({"exactly_once": "false"}, "event binary", False, "a write is always one transaction: option exactly_once"),
        ({"read_after_write_consistency": "false"}, "event binary", False, "a write ends when its events can be read"),
        ({"transaction_status_poll_interval_ms": "50"}, "event binary", False, "the interval is not configurable"),
        ({"allow_create_stream": "true"}, "event binary", False, "scopes and streams are not created"),
        ({"default_num_segments": "3"}, "event binary", False, "Create the stream with its policies first"),
    ],
)
def test_invalid_write_options_are_refused(options: dict[str, str], schema: str, overwrite: bool, said: str) -> None:
    with pytest.raises(Problem, match=said):
        write_options({"path": "pravega://h:1/s/t", **options}, schema_of(schema), overwrite=overwrite)


@pytest.mark.parametrize("column", ["payload", "event"])
def test_options_and_columns_of_pravegas_own_connector_mean_the_same(column: str) -> None:
    theirs = {
        "controller": "tcp://Localhost:9090",
        "scope": "s",
        "stream": "t",
        "exactly_once": "true",
        "read_after_write_consistency": "true",
        "allow_create_scope": "false",
        "transaction_timeout_ms": "30500",
    }
    schema = schema_of(f"routing_key string, {column} binary")
    writing = write_options(theirs, schema, overwrite=False)
    assert writing == write_options({"path": "pravega://localhost:9090/s/t", "lease": "31"}, schema, overwrite=False)
    assert (writing.payload, writing.routing_key) == (1, 0)
    tls = write_options({**theirs, "controller": "tls://localhost:9090/"}, schema, overwrite=False)
    assert tls.address.uri == "pravega+tls://localhost:9090"
