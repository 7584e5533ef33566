"""The operators: arguments, command lines, logins and asset events, and that no secret is visible."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.supervisor import WatchedSubprocess
from airflow.sdk.execution_time.task_runner import _build_asset_profiles, _serialize_outlet_events

from streamvault.airflow import operators
from streamvault.airflow.operators import (
    AppendStreamsOperator,
    CheckArchiveOperator,
    CopyStreamOperator,
    DeleteArchiveOperator,
    ExportStreamOperator,
    FollowStreamOperator,
    HandoffTableOperator,
    HoldArchiveOperator,
    ImportStreamOperator,
    JoinStreamsOperator,
    PromoteReplicaOperator,
    ReplicateStreamOperator,
    RotateArchiveOperator,
    ShowQueueOperator,
    WarmArchiveOperator,
    WorkQueueOperator,
)
from streamvault.airflow.operators import command as commands
from streamvault.airflow.operators.command import REFUSED, CommandOperator
from streamvault.airflow.options import OptionArgument
from streamvault.airflow.submit import STOP_SECONDS, Outcome, StreamvaultSubmitHook
from streamvault.cli.app import COMMANDS as COMMANDS_OF_THE_PROGRAM
from streamvault.cli.app import load_command
from streamvault.common.options import AGE, DURATION, PERCENT, SIZE, TIME, command_line, load_file
from streamvault.streamstore.cuts import load_cut
from streamvault.streamstore.pravega.connection import PravegaSettings
from testkit.airflow_attempt import Attempt

STREAM, ROOT, ARCHIVE = "local:///data/shop/orders", "file:///vault", "file:///vault/shop/orders"


CONNECTIONS: dict[str, dict[str, Any]] = {
    "pravega_default": {"conn_type": "pravega", "host": "h", "login": "ann", "password": "pravega-secret"},
    "standby": {"conn_type": "pravega", "host": "s", "login": "bob", "password": "standby-secret"},
    "open": {"conn_type": "pravega", "host": "o"},
    "aws_default": {"conn_type": "aws", "login": "key", "password": "aws-secret"},
    "spark_default": {"conn_type": "spark", "host": "local[2]"},
    "in_the_cluster": {"conn_type": "spark", "host": "spark://h", "port": 7077, "extra": {"deploy-mode": "cluster"}},
    "nonsense": {"conn_type": "spark", "host": "mesos://h"},
}


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fields in CONNECTIONS.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


OF_AN_ARCHIVE: dict[str, Any] = {"archive": ARCHIVE}
OF_A_STREAM: dict[str, Any] = {"stream": STREAM, "root": ROOT}
OF_TWO: dict[str, Any] = {"source": "shop/a", "stream": "shop/b"}
OF_SEVERAL: dict[str, Any] = {"sources": ["shop/a", ARCHIVE], "stream": "shop/b"}
REQUIRED: dict[str, Any] = {"hold": "audit", "scope": "shop", "requests": "shop/queue", "engine": "trino",
                            "positions": ["shop/a/0.#epoch.0:0-8"], "layout": "chunks",
                            **OF_AN_ARCHIVE, **OF_SEVERAL, **OF_TWO, **OF_A_STREAM}  # fmt: skip
"""A value of every argument that an operator requires."""
MORE = {"follow": {"lasting": "1h"}, "work": {"idle": "0s"}, "status": {"root": ROOT}, "report": {"stream": STREAM},
        "convert": {"root": "file:///other"}}  # fmt: skip
KINDS: dict[str, type[CommandOperator]] = {
    kind.verb: kind for kind in map(operators.__dict__.get, operators.__all__) if issubclass(kind, CommandOperator)
}


def required(kind: type[CommandOperator]) -> dict[str, Any]:
    """The arguments with which an operator can be made."""
    parameters = inspect.signature(kind).parameters.values()
    missing = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty}
    return {name: REQUIRED[name] for name in missing} | MORE.get(kind.verb, {})


A, B = "pravega://h:9090/shop/a", "pravega://h:9090/shop/b"
STANDBY = "pravega://s:9090/shop/a"
CUT = {"a/b/0.#epoch.0": 7}


def context(attempt: Attempt | None = None, *, run_type: str = "scheduled", **more: Any) -> dict[str, Any]:
    return {"ti": attempt or Attempt(), "dag_run": SimpleNamespace(run_type=run_type), **more}


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, dict[str, Any]], None]:
    """A function that sets how a command ends."""

    def end(code: int, report: dict[str, Any]) -> None:
        monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: Outcome(code, report))

    return end


@pytest.fixture
def _no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: pytest.fail("it has begun"))


COMMANDS: list[tuple[str, dict[str, Any]]] = [
    (
        f"export {STREAM} {ROOT} --compress zstd --layout chunks",
        {**OF_A_STREAM, "layout": "chunks", "range_size": "", "window": None, "compress": "zstd"},
    ),
    (f"export {A} {ROOT}", {"stream": "shop/a", "root": ROOT}),
    (
        f"export {STREAM} {ROOT} --schemas http://registry:9092 --schema-group shop/orders",
        {**OF_A_STREAM, "schemas": "http://registry:9092", "schema_group": "shop/orders"},
    ),
    (
        f"rotate {STREAM} {ROOT} --hold audit --keep 7 --queue {B} --truncate-source",
        {**OF_A_STREAM, "keep": 7, "truncate_source": True, "deletions": "shop/b", "hold": "audit"},
    ),
    (
        f"import {ARCHIVE} {STREAM} --again --fingerprint ab --generation 3 --read-back",
        {"archive": ARCHIVE, "stream": STREAM, "at": "", "generation": "3", "read_back": "True", "fingerprint": "ab"},
    ),
    (
        f"check {ARCHIVE} --fingerprint a --fingerprint b --read-data-subset 10% --seed 0",
        {"archive": ARCHIVE, "read_data": "False", "subset": "10%", "seed": 0, "fingerprint": ["a", "", "b"]},
    ),
    (f'copy {A} {B} --to {{"a/b/0.#epoch.0":7}}', {**OF_TWO, "to_cut": CUT}),
    (
        f"replicate {A} {STANDBY} --follow --for 1h",
        {"source": "shop/a", "stream": "shop/a", "target_conn_id": "standby", "follow": "True", "lasting": "1h"},
    ),
    (
        f'copy {A} {B} --range {{"a/b/0.#epoch.0":7}} f --range g {{"a/b/0.#epoch.0":7}}',
        {**OF_TWO, "ranges": [(CUT, "f"), ["g", CUT]]},
    ),
    (f"replicate {ARCHIVE} {STREAM}", {"source": ARCHIVE, "stream": STREAM}),
    (f"promote {STANDBY} --seal-source", {"stream": "shop/a", "target_conn_id": "standby", "seal_source": True}),
    (f"move {STREAM} {B}", {"source": STREAM, "stream": "shop/b"}),
    (f"append {A} {ARCHIVE} --into {B} --distinct", {**OF_SEVERAL, "distinct": True}),
    (f"join {STREAM} --into {B}", {"sources": STREAM, "stream": "shop/b"}),
    (f"handoff {A} --raw --root {ROOT}", {"source": "shop/a", "root": ROOT, "raw": 1}),
    (
        f"handoff {ARCHIVE} --decode registry --registry http://registry:9092 --group shop/orders",
        {"source": ARCHIVE, "decode": "registry", "registry": "http://registry:9092", "group": "shop/orders"},
    ),
    ("sweep pravega://h:9090/shop/", {"scope": "shop"}),
    ("sweep local:///f/shop/", {"scope": "local:///f/shop/"}),
    (f"status {ROOT} --metrics /m.prom", {"root": ROOT, "metrics": "/m.prom"}),
    (f"status pravega://h:9090/shop/ --root {ROOT}", {"stream": "shop/", "root": ROOT}),
    ("status pravega://h:9090/shop/ord*", {"stream": "shop/ord*"}),
    (f"status {STREAM} --root {ROOT}", {"stream": STREAM, "root": ROOT}),
    ("status --config /etc/streams.toml", {"config_file": "/etc/streams.toml"}),
    (f"report {ARCHIVE} --output /p.html --stream {A}", {"archive": ARCHIVE, "file": "/p.html", "stream": "shop/a"}),
    (f"request-restore {ARCHIVE} {A} --queue {B}", {"archive": ARCHIVE, "stream": "shop/a", "requests": "shop/b"}),
    (f"work {B} --idle 0", {"requests": "shop/b", "idle": 0}),
    (f"delete {ARCHIVE}", OF_AN_ARCHIVE),
    ("streams pravega://h:9090/shop/", {"scope": "shop"}),
    (f"queue show {B}", {"requests": "shop/b"}),
    (
        f"translate {ARCHIVE} {STANDBY} cut pointer",
        {"source": ARCHIVE, "stream": "shop/a", "target_conn_id": "standby", "positions": ["cut", "pointer"]},
    ),
    (f"ddl {A} trino --root {ROOT}", {"source": "shop/a", "engine": "trino", "root": ROOT}),
]


@pytest.mark.parametrize(("command", "given"), COMMANDS)
def test_operator_makes_the_command_line(command: str, given: dict[str, Any]) -> None:
    kind = next(kind for verb, kind in KINDS.items() if command.startswith(f"{verb} "))
    words = [word.replace(" ", "") for word in kind(task_id="t", **given).command()]
    first = 1 + len(kind.arguments)
    assert [*words[:first], *sorted(words[first:])] == [*command.split()[:first], *sorted(command.split()[first:])]


def test_a_url_with_a_login_is_refused() -> None:
    kind, registry = KINDS["handoff"], "http://user:word@registry:9092"
    with pytest.raises(AirflowFailException, match="Set STREAMVAULT_REGISTRY for the worker instead") as refused:
        kind(task_id="t", source=ARCHIVE, decode="registry", registry=registry).command()
    assert "word" not in str(refused.value)
    with pytest.raises(AirflowFailException, match="give a URL without a login"):  # no variable sets it
        KINDS["import"](task_id="t", archive=ARCHIVE, stream="shop/new", schemas=registry).command()


def sample(option: OptionArgument) -> Any:
    """A value of an option, as a template gives it."""
    form, annotation = command_line(option.declared), option.declared.annotation
    if form.pair:
        return [[json.dumps(CUT)] * 2]
    if option.is_flag:
        return "yes"
    if form.choices:
        return next(iter(form.choices))
    literal = next((kind for kind in (annotation, *get_args(annotation)) if get_origin(kind) is Literal), None)
    if literal is not None:
        return str(get_args(literal)[0])
    texts: dict[Any, str] = {SIZE.parse: "64MiB", DURATION.parse: "5m", AGE.parse: "5d", PERCENT.parse: "10%"}
    texts |= {load_file: __file__, load_cut: json.dumps(CUT), TIME.load: "2026-01-31T18:00:00Z"}
    return texts.get(form.parse or form.load, "3")


@pytest.mark.parametrize("kind", KINDS.values())
def test_command_understands_every_option_of_its_operator(kind: type[CommandOperator]) -> None:
    """Each is given as a text; only those named here are not offered."""
    given = {option.name: sample(option) for option in kind.options} | required(kind)
    operator = kind(task_id="t", **given)
    if isinstance(operator, RotateArchiveOperator):
        operator.deletions = STREAM
    assert set(given) <= set(operator.template_fields)
    if isinstance(operator, ShowQueueOperator):
        return  # a subcommand, which has none
    read = load_command(kind.verb).make_context(kind.verb, operator.command()[1:])
    found = {name for name in read.params if getattr(read.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    omitted = {*kind.omitted} - {"again"}
    assert set(kind.options_class.keyword_fields()) - found - omitted <= {"same_stream", "master"}


def test_every_command_has_an_operator_or_needs_none() -> None:
    """Those without print events, or write events to look at."""
    verbs = {verb.partition(" ")[0] for verb in KINDS} | {"warm"}
    assert verbs == set(COMMANDS_OF_THE_PROGRAM) - {"get", "cat", "serve", "demo"}


def test_arguments_of_an_operator_are_in_its_signature() -> None:
    """So Airflow applies a DAG's defaults, and says which arguments are missing or unknown; help() shows them."""
    with DAG("d", default_args={"layout": "chunks", "keep_head": True, "most_lag": "5m", "target_conn_id": "standby"}):
        assert ExportStreamOperator(task_id="e", **OF_A_STREAM).resolve("layout") == "chunks"
        replicate = ReplicateStreamOperator(task_id="r", **OF_TWO)
    assert (replicate.resolve("keep_head"), replicate.most_lag, replicate.target_conn_id) == (True, "5m", "standby")
    with pytest.raises(TypeError, match="missing keyword argument 'root'"):
        ExportStreamOperator(task_id="t", stream=STREAM)
    for make in (ExportStreamOperator, ExportStreamOperator.partial):
        with pytest.raises(TypeError, match="layot"):
            make(task_id="t", **OF_A_STREAM, layot="chunks")
    parameters = inspect.signature(RotateArchiveOperator).parameters
    assert {"stream", "keep", "truncate_source", "deletions", "conn_id", "aws_conn_id"} <= set(parameters)
    assert (parameters["truncate_source"].default, parameters["keep"].default) == (False, None)
    described = inspect.getdoc(RotateArchiveOperator) or ""
    assert "\n    deletions: ``--queue``. Queue deletions for a worker" in described
    assert "\n    window: Maximum data that a task buffers in memory: 16MiB or more. Default: 64MiB.\n" in described


@pytest.mark.parametrize("kind", KINDS.values())
def test_no_option_has_the_name_of_an_argument_of_airflow(kind: type[CommandOperator]) -> None:
    bases = SparkSubmitOperator.__mro__
    others = {name for base in bases for name in inspect.signature(base.__init__).parameters}  # type: ignore[misc]
    assert not {*kind.arguments, *(option.name for option in kind.options)} & others


@pytest.mark.parametrize(
    "operator",
    [
        ExportStreamOperator(task_id="t", stream="shop/orders", root="s3://vault/backups"),
        CopyStreamOperator(task_id="t", source="shop/a", stream="shop/a", target_conn_id="standby"),
    ],
)
def test_secrets_go_through_the_environment_alone(operator: CommandOperator) -> None:
    hook = operator._get_hook()
    secrets = {"PRAVEGA_PASSWORD": "pravega-secret", "AWS_SECRET_ACCESS_KEY": "aws-secret"}
    if isinstance(operator, CopyStreamOperator):
        secrets = {"PRAVEGA_PASSWORD": "pravega-secret", "PRAVEGA_TARGET_PASSWORD": "standby-secret"}
    assert secrets.items() <= hook._environment().items()
    hook._application_args = operator.command()
    command = " ".join(hook._build_spark_submit_command("application.py"))
    rendered = " ".join(str(getattr(operator, name)) for name in operator.template_fields)
    for secret in ("-secret", "ann", "bob"):
        assert secret not in command + rendered
    assert command.startswith("spark-submit --master local[2] ")


def test_operator_without_connections_passes_no_secrets() -> None:
    variables = ExportStreamOperator(task_id="t", stream=STREAM, root=ROOT).variables()
    assert variables == {}


def logins(monkeypatch: pytest.MonkeyPatch, operator: CommandOperator) -> tuple[str, str]:
    """The passwords with which the driver opens the source's cluster and the target's."""
    monkeypatch.setenv("PRAVEGA_USERNAME", "worker")
    monkeypatch.setenv("PRAVEGA_PASSWORD", "worker-secret")
    environment = operator._get_hook()._environment()
    settings = [PravegaSettings.from_environment("pravega://h", environment, target=which) for which in (False, True)]
    return settings[0].password, settings[1].password


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        *(
            (ReplicateStreamOperator, {"source": source, "stream": stream, "target_conn_id": target}, expected)
            for source, stream, target, expected in (
                ("shop/a", "shop/a", "standby", ("pravega-secret", "standby-secret")),
                ("shop/a", "shop/b", None, ("pravega-secret", "pravega-secret")),
                ("shop/a", "shop/b", "", ("pravega-secret", "pravega-secret")),
                ("shop/a", "shop/a", "open", ("pravega-secret", "")),
                ("shop/a", STREAM, None, ("pravega-secret", "worker-secret")),
                (STREAM, "shop/a", "standby", ("worker-secret", "standby-secret")),
                (STREAM, "shop/a", None, ("worker-secret", "pravega-secret")),
                (STREAM, STREAM, "standby", ("worker-secret", "worker-secret")),
            )
        ),
        # the source's only to seal it
        *(
            (PromoteReplicaOperator, {"stream": "shop/a", "target_conn_id": "standby", "seal_source": seal}, expected)
            for seal, expected in (
                (True, ("pravega-secret", "standby-secret")),
                ("False", ("worker-secret", "standby-secret")),
            )
        ),
    ],
)
def test_each_cluster_gets_its_own_login(
    monkeypatch: pytest.MonkeyPatch, kind: type[CommandOperator], given: dict[str, Any], expected: tuple[str, str]
) -> None:
    """A cluster whose connection has no login is not sent the other's."""
    assert logins(monkeypatch, kind(task_id="t", **given)) == expected


def test_target_login_in_the_workers_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_TARGET_USERNAME", "")
    monkeypatch.setenv("PRAVEGA_TARGET_PASSWORD", "")
    operator = CopyStreamOperator(task_id="t", source=STREAM, stream=STREAM)
    assert logins(monkeypatch, operator) == ("worker-secret", "")
    operator = CopyStreamOperator(
        task_id="t", source="shop/a", stream=STREAM, env_vars={"PRAVEGA_TARGET_PASSWORD": "given-secret"}
    )
    assert logins(monkeypatch, operator) == ("pravega-secret", "given-secret")


def test_replication_of_an_archive_has_the_login_of_s3() -> None:
    variables = ReplicateStreamOperator(task_id="t", source="s3://vault/a/b", stream="shop/b").variables()
    secrets = {"AWS_SECRET_ACCESS_KEY": "aws-secret", "PRAVEGA_TARGET_PASSWORD": "pravega-secret"}
    assert secrets.items() <= variables.items()
    assert "PRAVEGA_PASSWORD" not in variables


LAG = {"moved_bytes": 7, "behind_bytes": 7, "lag_seconds": 61.5}


def lagging(**changes: Any) -> dict[str, Any]:
    """A report of `replicate`."""
    return {"source": ARCHIVE, "stream": B, "rounds": 1, **LAG, "tail_time": "2026-01-31T18:00:00+00:00", **changes}


def test_too_great_a_lag_fails_the_task_without_a_retry(end: Callable[[int, dict[str, Any]], None]) -> None:
    """A retry would find the replica up to date, and nobody would be told."""
    attempt = Attempt()
    end(0, lagging())
    with pytest.raises(AirflowFailException) as raised:
        ReplicateStreamOperator(task_id="t", **OF_TWO, most_lag="1m").execute(context(attempt))
    assert str(raised.value) == (
        f"the lag of {B} is 1 min 02 s, above most_lag (1m). The replica has what {ARCHIVE} had at "
        "2026-01-31T18:00:00+00:00."
    )
    assert attempt.pushed == {"report": lagging()}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (ExportStreamOperator, {"stream": STREAM, "root": "S3://vault"}),
        (HandoffTableOperator, {"source": STREAM, "root": "s3://tables"}),
        (JoinStreamsOperator, {"sources": [STREAM, "s3://vault/a/b"], "stream": STREAM}),
        (WorkQueueOperator, {"requests": STREAM, "idle": "0s"}),
    ],
)
def test_command_has_the_login_of_s3_wherever_it_is_named(kind: type[CommandOperator], given: dict[str, Any]) -> None:
    assert kind(task_id="t", **given).variables()["AWS_SECRET_ACCESS_KEY"] == "aws-secret"


def test_spark_gets_the_arguments_of_its_operator() -> None:
    given = {"jars": "a.jar", "packages": "g:a:1", "files": "f", "properties_file": "p", "driver_memory": "2g"}
    operator = ExportStreamOperator(
        task_id="t", **OF_A_STREAM, **given, deploy_mode="client", post_submit_commands=["true"], conf={"spark.x": "y"}
    )
    hook = operator._get_hook()
    command = " ".join(hook._build_spark_submit_command("application.py"))
    for name, value in given.items():
        assert f"--{name.replace('_', '-')} {value} " in command
    assert "--conf spark.x=y " in command
    assert hook._post_submit_commands == ["true"]
    assert set(SparkSubmitOperator.template_fields) - set(operator.template_fields) == {
        "application",
        "application_args",
    }


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_argument_without_an_effect_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"ExportStreamOperator does not take {name}: "):
        ExportStreamOperator(task_id="t", **OF_A_STREAM, **{name: "cluster"})
    assert name in inspect.signature(SparkSubmitOperator.__init__).parameters


def test_every_argument_of_the_spark_operator_is_passed_on_or_refused() -> None:
    own = {
        name
        for name, each in inspect.signature(SparkSubmitOperator.__init__).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }
    passed = set(inspect.signature(SparkSubmitHook.__init__).parameters) - set(REFUSED)
    assert own == passed - {"self"} | set(REFUSED)


def test_command_without_tasks_needs_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    hook = HoldArchiveOperator(task_id="t", archive=ARCHIVE, hold="audit", conn_id="nonsense")._get_hook()
    ran: list[str] = []
    monkeypatch.setattr(hook, "submit", lambda *_, **__: ran.extend(hook._build_spark_submit_command("application.py")))
    hook.run(["hold"])
    assert ran == [sys.executable, "-P", "application.py", "hold", "--json"]


@pytest.mark.parametrize("conn_id", ["in_the_cluster", "nonsense"])
def test_hook_refuses_a_spark_connection_it_cannot_use(conn_id: str) -> None:
    with pytest.raises(AirflowFailException, match=f"connection '{conn_id}'"):
        StreamvaultSubmitHook(variables={}, conn_id=conn_id)


NUMBERS = {"generation": 2, "events": 7, "bytes": 70}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """Events that assets have already."""
    events: list[SimpleNamespace] = []

    class Events(list[SimpleNamespace]):
        def ascending(self, _: bool) -> Events:
            return self

        def limit(self, _: int) -> Events:
            return self

    def events_of(name: str, uri: str) -> Events:
        assert name == uri
        return Events(one for one in events if one.uri == uri)

    monkeypatch.setattr(commands, "InletEventsAccessor", events_of)
    return events


def event(uri: str, extra: dict[str, Any], run: str = "r") -> SimpleNamespace:
    source = {"source_dag_id": "d", "source_run_id": run, "source_task_id": "t", "source_map_index": -1}
    return SimpleNamespace(uri=uri, extra=extra, **source)


@pytest.mark.parametrize(
    ("operator", "report", "former", "announced"),
    [
        (ExportStreamOperator, {"unchanged": True, "generation": 2, "created": "x"}, {}, True),
        (ExportStreamOperator, {"unchanged": True, "generation": 2, "created": "x"}, {"generation": 1}, True),
        (
            ExportStreamOperator,
            {"unchanged": True, "generation": 2, "created": "x"},
            {"generation": 2, "created": "x"},
            False,
        ),
        (
            ExportStreamOperator,
            {"unchanged": True, "generation": 2, "created": "x"},
            {"generation": 2, "created": "of an archive that was deleted"},
            True,
        ),
        (HandoffTableOperator, {"unchanged": True, "generations": [1, 3], "added": []}, {"added": [1, 3]}, False),
        (HandoffTableOperator, {"unchanged": True, "generations": [1, 3], "added": []}, {"added": [1]}, True),
        (CopyStreamOperator, {"unchanged": True}, {"events": 7}, False),
        (CopyStreamOperator, {"unchanged": True}, {}, True),
    ],
)
def test_task_that_is_cleared_announces_what_nobody_has_announced(
    end: Callable[[int, dict[str, Any]], None],
    told: list[SimpleNamespace],
    *,
    operator: type[CommandOperator],
    report: dict[str, Any],
    former: dict[str, Any],
    announced: bool,
) -> None:
    """Whether it was killed before it could, or has succeeded, its next attempt finds nothing to write."""
    uri = "file:///v/s/s"
    end(0, {operator.written: uri, **report})
    told += [event(uri, former)] if former else []
    told += [event("file:///other", {"generation": 2, "created": "x"}), event(uri, {"events": 1}, run="another")]
    arguments = dict.fromkeys(operator.arguments, "file:///v/s/s")
    alias, events = AssetAlias("archives"), OutletEventAccessors()
    operator(task_id="t", **arguments, outlets=[alias]).execute(context(Attempt(2), outlet_events=events))
    assert [one.dest_asset_key.uri for one in events[alias].asset_alias_events] == ([uri] if announced else [])


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("unchanged", "attempt", "announced"),
    [(False, 1, True), (True, 1, False), (True, 2, True)],
    ids=["new", "same", "retry"],
)
@pytest.mark.parametrize(
    ("operator", "make_report", "written", "extra"),
    [
        (
            FollowStreamOperator(task_id="t", **OF_A_STREAM, lasting="1h"),
            lambda same: {"made": int(not same), "expired_count": 0, **NUMBERS},
            ARCHIVE,
            NUMBERS,
        ),
        (
            ExportStreamOperator(task_id="t", **OF_A_STREAM),
            lambda same: {"unchanged": same, **NUMBERS},
            ARCHIVE,
            NUMBERS,
        ),
        (
            RotateArchiveOperator(task_id="t", **OF_A_STREAM),
            lambda same: {"expired": (), "export": {"unchanged": same, **NUMBERS}},
            ARCHIVE,
            NUMBERS,
        ),
        (
            ReplicateStreamOperator(task_id="t", **OF_TWO, most_lag="62s"),
            lambda same: lagging(rounds=int(not same)),
            B,
            LAG,
        ),
    ],
    ids=["follow", "export", "rotate", "replicate"],
)
def test_assets_have_an_event_only_if_something_was_written(
    end: Callable[[int, dict[str, Any]], None],
    *,
    operator: CommandOperator,
    make_report: Callable[[bool], dict[str, Any]],
    written: str,
    extra: dict[str, Any],
    unchanged: bool,
    attempt: int,
    announced: bool,
) -> None:
    """Airflow itself emits one for each asset of `outlets` when the task succeeds: as in the guide's example.

    Also if an earlier attempt wrote it and was killed before it could emit the event.
    """
    report = {operator.written: written, **make_report(unchanged)}
    end(0, report)
    asset, other, alias, events = Asset(written), Asset("file:///x"), AssetAlias("archives"), OutletEventAccessors()
    operator.outlets = [asset, other, alias]
    assert operator.execute(context(Attempt(attempt), outlet_events=events)) == report
    profiles = [profile.uri or profile.name for profile in _build_asset_profiles(operator.outlets)]
    assert profiles == ([asset.uri, other.uri, "archives"] if announced else ["archives"])
    emitted = [(event.dest_asset_key.uri, event.extra) for event in events[alias].asset_alias_events]
    assert emitted == ([(written, extra)] if announced else [])
    assert events[asset].extra == (extra if announced else {})


def test_dry_run_emits_no_event(end: Callable[[int, dict[str, Any]], None]) -> None:
    """Nor does a retry, before which nothing can have been written."""
    report = {"archive": ARCHIVE, "unchanged": False, "dry_run": True, **NUMBERS}
    end(0, report)
    alias, events = AssetAlias("archives"), OutletEventAccessors()
    operator = ExportStreamOperator(task_id="t", **OF_A_STREAM, dry_run="yes", outlets=[Asset(ARCHIVE), alias])
    assert "--dry-run" in operator.command()
    assert operator.execute(context(Attempt(2), outlet_events=events)) == report
    assert (operator.outlets, events[alias].asset_alias_events) == ([alias], [])


@pytest.mark.parametrize("level", ["info", "warning"])
def test_command_gets_the_log_level(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda _, words: ran.append(words) or Outcome(0, {"ok": True}))
    given = {} if level == "info" else {"log_level": level}
    CheckArchiveOperator(task_id="t", archive=ARCHIVE, **given).execute(context())
    assert ran == [["check", ARCHIVE, "--log-level", level]]


def test_command_says_how_far_it_is_every_minute() -> None:
    (option,) = [each for each in load_command("export").params if each.name == "progress_every"]
    name = str(option.envvar)
    assert ExportStreamOperator(task_id="t", **OF_A_STREAM)._get_hook()._environment()[name] == "1m"
    slower = ExportStreamOperator(task_id="t", **OF_A_STREAM, env_vars={name: "10m"})
    assert slower._get_hook()._environment()[name] == "10m"


def test_each_archive_of_a_scope_has_an_event_of_its_own(end: Callable[[int, dict[str, Any]], None]) -> None:
    """Of a stream that is unchanged or gone, there is none."""
    results = [{"archive": f"file:///v/s/{name}", "unchanged": name == "b", **NUMBERS} for name in "abc"]
    report = {"scope": "s/", "outcomes": [*({"result": each} for each in results), {"result": None}]}
    end(0, report)
    assets, alias, events = [Asset(each["archive"]) for each in results], AssetAlias("archives"), OutletEventAccessors()
    operator = ExportStreamOperator(task_id="t", stream="local:///s/s/", root="file:///v", outlets=[*assets, alias])
    assert operator.execute(context(Attempt(1), outlet_events=events)) == report
    assert operator.outlets == [assets[0], assets[2], alias]
    emitted = [(event.dest_asset_key.uri, event.extra) for event in events[alias].asset_alias_events]
    assert emitted == [(assets[0].uri, NUMBERS), (assets[2].uri, NUMBERS)]
    assert [events[each].extra for each in assets] == [NUMBERS, {}, NUMBERS]


@pytest.mark.parametrize("partitioned", [False, True])
def test_event_of_an_archive_has_its_generations_time_as_partition(
    end: Callable[[int, dict[str, Any]], None], *, partitioned: bool
) -> None:
    created = "2026-01-31T18:00:00.123456Z"
    end(0, {"archive": ARCHIVE, "created": created, **NUMBERS})
    asset, other, alias, events = Asset(ARCHIVE), Asset("file:///x"), AssetAlias("archives"), OutletEventAccessors()
    arguments = {**OF_A_STREAM, "outlets": [asset, other, alias], "partitioned": partitioned}
    ExportStreamOperator(task_id="t", **arguments).execute(context(Attempt(1), outlet_events=events))
    keys = {one.get("partition_key") for one in _serialize_outlet_events(events) if one["extra"]}
    assert keys == ({"2026-01-31T18:00:00", None} if partitioned else {None})
    assert events[other].partition_keys == events[alias].partition_keys == set()


def test_rotation_that_only_lets_expire_has_no_partition(end: Callable[[int, dict[str, Any]], None]) -> None:
    """The consumer has had that generation."""
    export = {"unchanged": True, "created": "2026-01-31T18:00:00Z", **NUMBERS}
    end(0, {"archive": ARCHIVE, "expired": [1], "export": export})
    asset, events = Asset(ARCHIVE), OutletEventAccessors()
    operator = RotateArchiveOperator(task_id="t", **OF_A_STREAM, outlets=[asset], partitioned=True)
    operator.execute(context(Attempt(1), outlet_events=events))
    assert events[asset].partition_keys == set()


def test_operator_without_a_generations_time_takes_no_partitioned() -> None:
    with pytest.raises(TypeError, match="ReplicateStreamOperator does not take partitioned"):
        ReplicateStreamOperator(task_id="t", **OF_TWO, partitioned=True)


def test_too_great_a_lag_of_a_scopes_stream_fails_the_task(end: Callable[[int, dict[str, Any]], None]) -> None:
    end(0, {"outcomes": [{"result": lagging(lag_seconds=1.0)}, {"result": lagging()}]})
    with pytest.raises(AirflowFailException) as raised:
        ReplicateStreamOperator(task_id="t", **OF_TWO, most_lag="1m").execute(context(Attempt()))
    assert str(raised.value).startswith(f"the lag of {B} is 1 min 02 s, above most_lag (1m).")


@pytest.mark.parametrize(
    ("values", "given"),
    [((True, 1, "1", "true", "TRUE", " Yes ", "on"), True), ((False, 0, "0", "false", "No", "OFF"), False)],
)
def test_flag_may_be_written_in_several_ways(values: tuple[Any, ...], given: bool) -> None:
    for value in values:
        operator = PromoteReplicaOperator(task_id="t", stream=STREAM, seal_source=value)
        assert ("--seal-source" in operator.command()) is given, value


OF_FLAGS: list[Any] = [ExportStreamOperator, ReplicateStreamOperator, DeleteArchiveOperator]
FLAGS: list[tuple[Any, dict[str, Any], str]] = [
    *((kind, required(kind), each.name) for kind in OF_FLAGS for each in kind.options if each.is_flag),
    (WarmArchiveOperator, OF_AN_ARCHIVE, "wait"),
    (ImportStreamOperator, required(ImportStreamOperator), "wait_for_warm"),
]


@pytest.mark.usefixtures("_no_command")
@pytest.mark.parametrize("value", ["flase", "t", "None", None, "", 2, 1.0, "y"])
@pytest.mark.parametrize(("kind", "given", "name"), FLAGS)
def test_flag_that_is_no_boolean_fails_the_task(kind: Any, given: dict[str, Any], name: str, value: Any) -> None:
    """A misspelt one was silently false."""
    with pytest.raises(AirflowFailException, match=f"{name}: .* is not true, false, yes, no, on, off, 1 or 0"):
        kind(task_id="t", **given, **{name: value}).execute(context())


@pytest.mark.usefixtures("_no_command")
@pytest.mark.parametrize(
    ("kind", "given", "run_type", "said"),
    [
        # it would run one rotation for each past interval, and could expire generations to be kept
        (RotateArchiveOperator, {**OF_A_STREAM, "keep": 2}, "backfill", "a backfill would run one rotation now for"),
        (ReplicateStreamOperator, {**OF_TWO, "follow": True, "idle": "1m"}, "manual", "follow requires lasting: a tas"),
        (CopyStreamOperator, {**OF_TWO, "ranges": "a"}, "manual", "ranges: 'a' is not a pair"),
        (FollowStreamOperator, OF_A_STREAM, "manual", "follow requires lasting: a task must end"),
        (WorkQueueOperator, {"requests": "shop/q"}, "manual", "work requires idle or lasting: a task must end"),
        (AppendStreamsOperator, {"sources": ["a/b", STREAM], "stream": "a/c"}, "manual", "sources: a/b is a stream of"),
        (ReplicateStreamOperator, {**OF_TWO, "most_lag": "300"}, "manual", "most_lag: '300' is not a duration"),
    ],
)
def test_task_that_must_not_run_fails_before_its_command(
    kind: Any, given: dict[str, Any], run_type: str, said: str
) -> None:
    with pytest.raises(AirflowFailException, match=said):
        kind(task_id="t", **given).execute(context(run_type=run_type))


def test_findings_of_a_failed_check_are_pushed_as_its_report(end: Callable[[int, dict[str, Any]], None]) -> None:
    report = {"archive": ARCHIVE, "ok": False, "findings": ["gone"]}
    end(3, report)
    attempt = Attempt()
    with pytest.raises(AirflowFailException, match="gone"):
        CheckArchiveOperator(task_id="t", archive=ARCHIVE).execute(context(attempt))
    assert attempt.pushed == {"report": report}


def test_command_is_killed_before_airflow_kills_its_task() -> None:
    """Otherwise nobody would be left to kill a command that does not hear SIGTERM."""
    assert inspect.signature(WatchedSubprocess.kill).parameters["escalation_delay"].default > STOP_SECONDS


def test_subclass_may_have_arguments_of_its_own() -> None:
    """Airflow takes their names from the signature, for ``default_args``."""

    class NamedReplica(ReplicateStreamOperator):
        options_class = ReplicateStreamOperator.options_class

        def __init__(self, *, team: str = "", **others: Any) -> None:
            super().__init__(**others)
            self.team = team

    with DAG("d", default_args={"team": "orders", "target_conn_id": "standby"}):
        operator = NamedReplica(task_id="t", source="shop/a", stream="shop/b", most_lag="5m")
    assert (operator.team, operator.target_conn_id, operator.most_lag) == ("orders", "standby", "5m")
    assert {"target_conn_id", "most_lag"} <= set(operator.template_fields)
