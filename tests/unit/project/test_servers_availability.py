"""Where a missing server fails the tests, and where it only skips them."""

from __future__ import annotations

import pytest

from testkit.servers.availability import is_required


@pytest.mark.parametrize(
    ("environment", "required"),
    [
        ({}, False),
        ({"STREAMVAULT_REQUIRE": ""}, False),
        ({"STREAMVAULT_REQUIRE": "minio"}, False),
        ({"STREAMVAULT_REQUIRE": "pravega"}, True),
        ({"STREAMVAULT_REQUIRE": "minio, Pravega"}, True),
        ({"STREAMVAULT_REQUIRE": "pravega-secure"}, False),
        ({"STREAMVAULT_REQUIRE": "all"}, True),
        ({"CI": "true"}, True),
        ({"CI": "1", "STREAMVAULT_REQUIRE": "minio"}, True),
        ({"CI": "false"}, False),
        ({"CI": ""}, False),
        ({"CI": "0", "STREAMVAULT_REQUIRE": "pravega"}, True),
    ],
)
def test_servers_are_required_only_where_named(environment: dict[str, str], required: bool) -> None:
    assert is_required("pravega", environment) is required
