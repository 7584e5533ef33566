"""The lists of streams that users give to the DAGs: what they mean, and what is said of those that are not valid.

A scope in a declared list stands for its users' streams: internal ones are neither archived nor replicated.
"""

from __future__ import annotations

import inspect
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from streamvault import export_stream, move_stream, promote_replica, replicate_stream, request_restore
from streamvault.airflow.lists import (
    ReplicationOptions,
    Replications,
    RotationOptions,
    Rotations,
    StreamList,
    in_batches,
)
from streamvault.airflow.operators import ReplicateStreamOperator, RotateArchiveOperator
from streamvault.airflow.operators.command import CommandOperator
from streamvault.airflow.pravega import PravegaHook
from streamvault.importer.target import take_lease
from streamvault.scopes.entries import TaskOptions
from streamvault.streamstore.ledger import Ledger
from streamvault.streamstore.local import LocalStore
from streamvault.streamstore.model import StreamConfiguration, StreamName
from streamvault.streamstore.own import MOVED_TO, TARGET_LEDGER, is_own, stream_beside, tag_of
from testkit.streams import append_events, opened

KINDS = pytest.mark.parametrize("kind", [Rotations, Replications])


def listed(kind: type[StreamList], **options: Any) -> dict[str, Any]:
    """The arguments of the only stream of a list with some options."""
    place = {"root": "s3://vault"} if kind is Rotations else {"target_conn_id": "standby"}
    (arguments,) = kind.read({**place, **options, "streams": ["a/b"]}).arguments(streams)
    return arguments


def streams(scope: str, connection: str | None) -> list[str]:
    return [f"{scope}-{connection}-{number}" for number in (1, 2)]


def test_options_of_a_stream_override_those_of_the_rotations() -> None:
    declared = {
        "root": "s3://vault/backups",
        "keep": 7,
        "layout": "chunks",
        "streams": ["shop/orders", {"stream": "shop/clicks", "keep_for": "90d", "root": "file:///vault"}],
    }
    assert Rotations.read(declared).arguments(streams) == [
        {"stream": "shop/orders", "root": "s3://vault/backups", "keep": 7, "layout": "chunks"},
        {"stream": "shop/clicks", "root": "file:///vault", "keep_for": "90d", "layout": "chunks"},
    ]


def test_options_of_a_pair_override_those_of_the_replications() -> None:
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
    assert Replications.read(declared).arguments(streams) == [
        {"source": "shop/orders", "stream": "shop/orders", **everywhere},
        {"source": "shop/clicks", "stream": "dr/clicks", **everywhere, "most_lag": "1h", "keep_head": False},
        {"source": "s3://vault/shop/old", "stream": "pravega://h:9090/shop/old", **everywhere, "aws_conn_id": "vault"},
    ]


def test_scope_stands_for_its_streams() -> None:
    rotations = Rotations.read({"root": "s3://vault", "pravega_conn_id": "p", "streams": [{"scope": "billing"}]})
    assert [each["stream"] for each in rotations.arguments(streams)] == ["billing/billing-p-1", "billing/billing-p-2"]
    pairs = [{"scope": "billing", "target_scope": "dr"}, {"scope": "shop", "target_conn_id": "standby"}]
    assert [(each["source"], each["stream"]) for each in Replications.read(pairs).arguments(streams)] == [
        *((f"billing/billing-None-{number}", f"dr/billing-None-{number}") for number in (1, 2)),
        *((f"shop/shop-None-{number}",) * 2 for number in (1, 2)),
    ]


def test_uri_of_a_scope_and_pattern_stand_for_streams() -> None:
    rotations = Rotations.read({"root": "s3://vault", "streams": ["billing/", "*-2", "pravega://h:9090/shop/*1"]})
    assert [each["stream"] for each in rotations.arguments(streams)] == [
        "billing/billing-None-1",
        "billing/billing-None-2",
        "-None-2",
        "pravega://h:9090/shop/pravega://h:9090/shop-None-1",
    ]
    pairs = [
        {"source": "a/*1", "stream": "dr/"},
        {"source": "local:///f/a/", "stream": "local:///g/b/"},
        {"source": "c/*2", "target_conn_id": "standby"},
    ]
    found = [(each["source"], each["stream"]) for each in Replications.read(pairs).arguments(lambda *_: ["1", "2"])]
    assert found == [
        ("a/1", "dr/1"),
        ("local:///f/a/1", "local:///g/b/1"),
        ("local:///f/a/2", "local:///g/b/2"),
        ("c/2", "c/2"),
    ]


def test_stream_in_a_line_is_left_out_of_its_scope() -> None:
    declared = {"root": "s3://vault", "streams": [{"scope": "b"}, {"stream": "b/two", "line": "2"}]}
    assert Rotations.read(declared).arguments(lambda *_: ["two", "three"]) == [
        {"stream": "b/three", "root": "s3://vault"},
        {"stream": "b/two", "root": "s3://vault", "line": "2"},
    ]


@pytest.mark.parametrize(
    ("options", "operator", "not_listed"),
    [
        (RotationOptions, RotateArchiveOperator, {"hold", "deletions", "restart", "dry_run"}),
        (ReplicationOptions, ReplicateStreamOperator, {"follow", "every", "idle", "lasting", "dry_run"}),
    ],
)
def test_list_has_the_options_of_its_operator(
    options: type[RotationOptions | ReplicationOptions], operator: type[CommandOperator], not_listed: set[str]
) -> None:
    own = {"root", "most_lag", "target_conn_id", *TaskOptions.model_fields}
    assert set(options.model_fields) - own == {option.name for option in operator.options} - not_listed
    known = {*inspect.signature(operator).parameters, *inspect.signature(SparkSubmitOperator).parameters}
    assert set(options.model_fields) <= known - set(inspect.signature(BaseOperator).parameters), (
        "Airflow maps no others"
    )


@KINDS
def test_spark_is_chosen_for_each_stream(kind: type[StreamList]) -> None:
    name, place = ("stream", {"root": "s3://vault"}) if kind is Rotations else ("source", {"target_conn_id": "standby"})
    large = {"conn_id": "cluster", "executor_memory": "8g", "num_executors": 4, "conf": {"spark.task.maxFailures": 8}}
    given = {**place, "conn_id": "inline", "streams": ["a/b", {name: "a/large", **large}]}
    found = kind.read(given).arguments(streams)
    assert [each["conn_id"] for each in found] == ["inline", "cluster"]
    assert large.items() <= found[1].items()
    operator = (RotateArchiveOperator if kind is Rotations else ReplicateStreamOperator)(task_id="t", **found[1])
    assert (operator.conn_id, operator.conf) == ("cluster", large["conf"])
    assert "conn_id" in operator.template_fields
    with pytest.raises(AirflowFailException, match="num_executors: Input should be a valid integer"):
        listed(kind, num_executors="many")


@KINDS
def test_stream_has_a_stop_after_of_its_own(kind: type[StreamList]) -> None:
    operator = (RotateArchiveOperator if kind is Rotations else ReplicateStreamOperator)(
        task_id="t", **listed(kind, stop_after="90m")
    )
    assert operator.execution_timeout == timedelta(minutes=90)
    with pytest.raises(AirflowFailException, match="stop_after: 'soon' is not a duration"):
        listed(kind, stop_after="soon")


def test_schemas_of_a_list_are_noted_by_its_rotations() -> None:
    own = {"stream": "local:///data/shop/b", "schemas": "http://other:9092", "schema_group": "shop/b"}
    declared = {"root": "file:///vault", "schemas": "http://registry:9092", "streams": ["local:///data/shop/a", own]}
    found = Rotations.read(declared).arguments(streams)
    commands = [RotateArchiveOperator(task_id="t", **each).command()[3:] for each in found]
    assert commands == [
        ["--schemas", "http://registry:9092"],
        ["--schemas", "http://other:9092", "--schema-group", "shop/b"],
    ]


@KINDS
def test_list_is_read_from_a_file(kind: type[StreamList], tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    entry = {"stream": "a/b", "root": "s3://vault"} if kind is Rotations else {"source": "a/b", "stream": "c/d"}
    file.write_text(json.dumps([entry]))
    assert kind.read(None, str(file)).arguments(streams) == [entry]
    file.write_text("[")
    with pytest.raises(AirflowFailException, match=r"list\.json"):
        kind.read(None, str(file))


def test_list_in_toml_is_that_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "streams.toml"
    file.write_text('root = "s3://vault"\nkeep = 7\n\n[[streams]]\nstream = "shop/a"\nkeep_for = "90d"\n')
    assert Rotations.read(None, str(file)).arguments(streams) == [
        {"stream": "shop/a", "root": "s3://vault", "keep_for": "90d"}
    ]
    file.write_text(file.read_text() + "kep = 3\n")
    with pytest.raises(AirflowFailException, match=r"streams.toml is not valid: streams.0.kep: .* \(line 7\)"):
        Rotations.read(None, str(file))
    file.write_text('root = "s3://vault"\nstreams = ["a/b"]\nkeep = 0\n')
    with pytest.raises(AirflowFailException, match=r"streams.toml is not valid: keep: .* \(line 3\)"):
        Rotations.read(None, str(file))
    file.write_text('[[streams]]\nroot = "s3://vault"\nstream = "a/b"\n\n[[streams]]\nstream = "a/c"\n')
    with pytest.raises(
        AirflowFailException, match=r"streams.toml is not valid: streams.1: .*root is missing \(line 5\)"
    ):
        Rotations.read(None, str(file)).arguments(streams)
    file.write_text("root = ")
    with pytest.raises(AirflowFailException, match="the file is not TOML"):
        Rotations.read(None, str(file))


@KINDS
@pytest.mark.parametrize("value", ["true", 1, True, "yes", "ON", "1"])
def test_flag_of_a_list_is_that_of_an_operator(kind: type[StreamList], value: Any) -> None:
    name = "truncate_source" if kind is Rotations else "keep_head"
    assert listed(kind, **{name: value})[name] is True


@KINDS
@pytest.mark.parametrize("value", ["t", "flase", "y", 2, 1.0, ""])
def test_flag_of_a_list_that_is_no_boolean_is_refused(kind: type[StreamList], value: Any) -> None:
    name = "truncate_source" if kind is Rotations else "keep_head"
    with pytest.raises(AirflowFailException, match=rf"{name}: .* is not true, false, yes, no"):
        listed(kind, **{name: value})


@KINDS
@pytest.mark.parametrize("name", ["master", "dry_run", "same_stream", "queue", "hold", "restart", "follow", "lasting"])
def test_option_that_a_schedule_must_not_have_is_refused(kind: type[StreamList], name: str) -> None:
    with pytest.raises(AirflowFailException, match=f"{name}: unknown key"):
        listed(kind, **{name: "true"})


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Rotations, {"range_size": "16KiB", "largest_event": 16777216, "compress": "none", "storage_class": "GLACIER"}),
        (Rotations, {"until": "2026-01-31T19:00:00+01:00", "content": "bytes", "window": "1 GiB", "line": "second"}),
        (Rotations, {"keep_for": "0s 0s", "layout": "events", "aws_conn_id": "vault"}),
        (Replications, {"retry_for": "0s", "numbers": "keep", "offsets": "shift", "filler_limit": "0"}),
    ],
)
def test_option_is_written_as_on_a_command_line(kind: type[StreamList], options: dict[str, Any]) -> None:
    assert options.items() <= listed(kind, **options).items()


@pytest.mark.parametrize(
    ("kind", "declared", "said"),
    [
        (Rotations, None, "no list of rotations. Set the variable streamvault_rotation, the parameter rotation, or S"),
        (Replications, None, "no list of replications. Set the variable streamvault_standby, the parameter standby"),
        (Rotations, [], "the list of rotations is not valid: streams: .* at least 1"),
        (Rotations, [{"stream": "a/b", "scope": "a"}], r"streams\.0: give either stream or scope"),
        (Rotations, [{"stream": "a/b", "keeep": 1}], r"streams\.0\.keeep: unknown key"),
        (Replications, [{"source": "a/b", "scope": "a"}], r"streams\.0: give either source or scope"),
        (Replications, [{"stream": "a/b"}], "give either source or scope"),
        (Replications, [{"scope": "a", "stream": "b/c"}], "stream requires source; for a scope, give target_scope"),
        (Replications, [{"source": "a/b", "target_scope": "c"}], "target_scope requires scope; for a source, give str"),
        (Replications, ["local:///streams/a/b"], "stream is missing: the source is a URI"),
        (Replications, [{"source": "a/", "stream": "c/d"}], "stream must be a scope, with / at its end"),
        (Replications, [{"source": "a/*", "stream": "c/*"}], "stream must be a scope, with / at its end"),
        (Replications, [{"source": "a/b", "stream": "c/"}], "stream must be a stream"),
    ],
)
def test_invalid_list_is_refused(kind: type[StreamList], declared: Any, said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        kind.read(declared)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (Rotations, {"keep": 0}, "keep: .* greater than or equal to 1"),
        (Rotations, {"keep": 1, "until": "2026-01-01T00:00:00Z"}, "keep and until are mutually exclusive"),
        (Rotations, {"keep_for": "long"}, "keep_for: 'long' is not a duration"),
        (Rotations, {"keep_for": 90}, "keep_for: '90' is not a duration"),
        (Rotations, {"until": "2026-01-01"}, "until: it has no time zone: 2026-01-01"),
        (Rotations, {"until": 7}, "until: --until is not a time"),
        (Rotations, {"root": "ftp://h"}, "not a root URI"),
        (Rotations, {"range_size": "big"}, "range_size: 'big' is not a size"),
        (Rotations, {"window": "1MiB"}, "window: .* greater than or equal to 16777216"),
        (Rotations, {"compress": "gzip"}, "compress: 'gzip' is not one of none, zstd"),
        (Rotations, {"layout": "table"}, "layout: Input should be 'events' or 'chunks'"),
        (Rotations, {"line": "a/b"}, "line: .*1 to 64 letters"),
        (Replications, {"most_lag": "long"}, "most_lag: 'long' is not a duration"),
        (Replications, {"retry_for": "long"}, "retry_for: 'long' is not a duration"),
        (Replications, {"numbers": "drop"}, "numbers: Input should be 'keep' or 'map'"),
    ],
)
def test_invalid_option_is_refused(kind: type[StreamList], options: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        listed(kind, **options)


@pytest.mark.parametrize(
    ("kind", "declared", "said"),
    [
        (Rotations, ["a/b"], "root is missing"),
        (Rotations, {"root": "s3://vault", "streams": ["a/b", "a/b"]}, "listed twice"),
        (
            Rotations,
            {"root": "s3://vault", "streams": ["a/", "a/a-None-1"]},
            "a/a-None-1: its archive a/a-None-1 is listed twice",
        ),
        (Rotations, {"root": "s3://vault", "streams": ["a/b", "a/b*"]}, r"streams\.1: nothing matches a/b\*"),
        (Rotations, {"root": "s3://vault", "streams": ["a*/b"]}, r"only the stream's name may contain a '\*'"),
        (Replications, ["a/b"], "a/b: source and replica are the same stream. Give target_conn_id, or another name"),
        (Replications, [{"scope": "a", "target_conn_id": PravegaHook.default_conn_name}], "are the same stream"),
        (Replications, [{"source": "local:///f/a/b", "stream": "local:///f/a/b"}], "are the same stream"),
        (Replications, [{"source": f"a/{x}", "stream": "c/d"} for x in "be"], "its replica c/d is listed twice"),
    ],
)
def test_entries_that_contradict_each_other_are_refused(kind: type[StreamList], declared: Any, said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        kind.read(declared).arguments(streams)


def test_same_name_in_two_clusters_is_two_replicas() -> None:
    declared = [{"source": "a/b", "target_conn_id": name} for name in ("north", "south")]
    assert len(Replications.read(declared).arguments(streams)) == 2


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8])
def test_streams_are_shared_out_over_batches(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    arguments = [{"stream": f"a/{number}"} for number in range(count)]
    batches = in_batches(arguments, 4)
    assert len(batches) == 4
    assert [one for batch in batches for one in batch] == arguments
    assert max(map(len, batches)) <= 2


def test_more_streams_than_fit_all_batches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    with pytest.raises(AirflowFailException, match=r"9 streams .* at most 8: .* Increase AIRFLOW__CORE__MAX_MAP_LENG"):
        in_batches([{}] * 9, 4)


SCOPE = "shop"
USERS = ["clicks", "moved", "orders", "promoted"]


@pytest.fixture
def scope_of_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """A store whose scope has users' streams, and every kind of internal stream."""
    folder = tmp_path / "streams"
    uri = f"local://{folder}/{SCOPE}"
    with LocalStore(folder) as store:
        store.create_scope(SCOPE)
        for name in (StreamName(SCOPE, each) for each in ("orders", "clicks", "old")):
            store.create_stream(name, StreamConfiguration())
            append_events(store, name, next(iter(store.describe(name).tail.offsets)), [b"event"] * 3)
        # what a killed run leaves beside its target
        killed = StreamName(SCOPE, "killed")
        take_lease(opened(store, killed), "work").release(remove=False)
        Ledger(store, stream_beside(killed, TARGET_LEDGER), killed).newest()
    export_stream(f"{uri}/orders", f"file://{tmp_path}/vault", master="inline")
    request_restore(f"file://{tmp_path}/vault/shop/orders", f"{uri}/restored", queue=f"{uri}/queue")
    move_stream(f"{uri}/old", f"{uri}/moved", master="inline")
    replicate_stream(f"{uri}/orders", f"{uri}/replica", master="inline")
    replicate_stream(f"{uri}/clicks", f"{uri}/promoted", master="inline")
    promote_replica(f"{uri}/promoted", master="inline")
    monkeypatch.setattr(PravegaHook, "get_conn", lambda _: LocalStore(folder))
    return LocalStore(folder)


def test_scope_stands_for_its_users_streams(scope_of_streams: LocalStore) -> None:
    with scope_of_streams as store:
        there = {name.stream: store.describe(name).configuration for name in store.list_streams(SCOPE, own=True)}
    assert tag_of(there["old"], MOVED_TO).endswith("/shop/moved"), "the empty stream that the move left"
    internal = sorted(name for name, configuration in there.items() if is_own(configuration))
    assert [name for name in internal if not name.startswith("streamvault-")] == ["old", "queue", "replica"]
    assert len(internal) == 6, "and a lease and two ledgers"
    rotations = Rotations.read({"root": "s3://vault", "streams": [{"scope": SCOPE}]})
    rotated = rotations.arguments(lambda scope, _: PravegaHook().list_streams(scope))
    assert [each["stream"] for each in rotated] == [f"{SCOPE}/{name}" for name in USERS]
    replications = Replications.read([{"scope": SCOPE, "target_scope": "dr"}])
    replicated = replications.arguments(lambda scope, _: PravegaHook().list_streams(scope))
    assert [(each["source"], each["stream"]) for each in replicated] == [(f"shop/{n}", f"dr/{n}") for n in USERS]
