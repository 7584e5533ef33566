"""The declared list of replications."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.operators import ReplicateStreamOperator
from streamvault.airflow.replications import Options, read_replications
from streamvault.mirrors.options import ReplicateOptions


def streams(scope: str, connection: str) -> list[str]:
    return [f"{scope}-{connection}-{number}" for number in (1, 2)]


def test_options_of_an_entry_override_those_of_the_list() -> None:
    declared = {
        "target_conn_id": "standby",
        "most_lag": "5m",
        "streams": [
            "shop/orders",
            {"source": "shop/clicks", "stream": "dr/clicks", "most_lag": "1h", "keep_head": False},
            {"source": "s3://vault/shop/old", "stream": "pravega://h:9090/shop/old", "aws_conn_id": "vault"},
        ],
    }
    everywhere = {"target_conn_id": "standby", "most_lag": "5m"}
    assert read_replications(declared).arguments(streams) == [
        {"source": "shop/orders", "stream": "shop/orders", **everywhere},
        {"source": "shop/clicks", "stream": "dr/clicks", **everywhere, "most_lag": "1h", "keep_head": False},
        {"source": "s3://vault/shop/old", "stream": "pravega://h:9090/shop/old", **everywhere, "aws_conn_id": "vault"},
    ]


def test_scope_stands_for_its_streams() -> None:
    declared = {"streams": [{"scope": "billing", "target_scope": "dr"}, {"scope": "shop", "target_conn_id": "standby"}]}
    found = read_replications(declared).arguments(streams)
    assert [(each["source"], each["stream"]) for each in found] == [
        *((f"billing/billing-pravega_default-{number}", f"dr/billing-pravega_default-{number}") for number in (1, 2)),
        *((f"shop/shop-pravega_default-{number}",) * 2 for number in (1, 2)),
    ]


def test_options_are_those_of_the_operator_that_a_catch_up_has() -> None:
    unused = {"follow", "every", "idle", "lasting"}
    of_the_run = {"most_lag", "pravega_conn_id", "target_conn_id", "aws_conn_id"}
    assert set(Options.model_fields) == (set(ReplicateOptions.keyword_fields()) - unused) | of_the_run
    assert set(Options.model_fields) <= set(ReplicateStreamOperator.template_fields)


def test_list_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "standby.json"
    file.write_text(json.dumps([{"source": "a/b", "stream": "c/d"}]))
    assert read_replications(None, str(file)).arguments(streams) == [{"source": "a/b", "stream": "c/d"}]
    file.write_text("[")
    with pytest.raises(AirflowFailException, match=r"standby\.json"):
        read_replications(None, str(file))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (None, "no list of replications. Set the variable streamvault_standby"),
        ([], "streams: .* at least 1"),
        ([{"source": "a/b", "scope": "a"}], r"streams\.0: give either source or scope"),
        ([{"stream": "a/b"}], "give either source or scope"),
        ([{"scope": "a", "stream": "b/c"}], "stream requires source; for a scope, give target_scope"),
        ([{"source": "a/b", "target_scope": "c"}], "target_scope requires scope; for a source, give stream"),
        (["local:///streams/a/b"], "stream is missing: the source is a URI"),
        ([{"source": "a/b", "most_leg": "5m"}], r"streams\.0\.most_leg: Extra inputs"),
        ({"most_lag": "long", "streams": ["a/b"]}, "most_lag: 'long' is not a duration"),
        ({"numbers": "drop", "streams": ["a/b"]}, "numbers: "),
        ({"follow": True, "streams": ["a/b"]}, "follow: Extra inputs"),
    ],
)
def test_invalid_list_is_refused(declared: Any, said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        read_replications(declared)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (["a/b"], "a/b: source and replica are the same stream. Give target_conn_id, or another name"),
        ([{"scope": "a", "target_conn_id": "pravega_default"}], "are the same stream"),
        ([{"source": "local:///f/a/b", "stream": "local:///f/a/b"}], "are the same stream"),
        ([{"source": "a/b", "stream": "c/d"}, {"source": "a/e", "stream": "c/d"}], "its replica c/d is listed twice"),
    ],
)
def test_stream_that_would_be_its_own_replica_or_have_two_sources_is_refused(declared: Any, said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        read_replications(declared).arguments(streams)


def test_same_name_in_two_clusters_is_two_replicas() -> None:
    declared = [{"source": "a/b", "target_conn_id": name} for name in ("north", "south")]
    assert len(read_replications(declared).arguments(streams)) == 2
