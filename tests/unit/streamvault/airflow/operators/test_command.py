"""The operators: command lines, the meaning of exit codes, and that no secret is visible."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.task_runner import _build_asset_profiles

from streamvault.airflow.operators import (
    CheckArchiveOperator,
    CopyStreamOperator,
    ExportStreamOperator,
    ImportStreamOperator,
    MoveStreamOperator,
    PromoteReplicaOperator,
    ReplicateStreamOperator,
    RotateArchiveOperator,
    WarmArchiveOperator,
)
from streamvault.airflow.operators.command import CommandOperator
from streamvault.airflow.options import OptionArgument
from streamvault.airflow.outcome import raising_for_airflow, report_of
from streamvault.airflow.submit import Outcome, StreamvaultSubmitHook
from streamvault.cli.app import load_command
from streamvault.cli.errors import command_error
from streamvault.common.errors import Conflict, Overtaken, Problem
from streamvault.common.options import DURATION, PERCENT, SIZE, TIME, command_line
from streamvault.manifests.archive.archive import NoSuchArchive
from streamvault.objectstore.errors import AccessDenied, NoSuchBucket
from streamvault.sparkrun.errors import NoJava
from streamvault.streamstore.arithmetic.cut_option import load_cut
from streamvault.streamstore.errors import NoSuchScope, NoSuchStream, StoreBusy, StreamStoreUnavailable
from streamvault.streamstore.pravega.settings import PravegaSettings
from streamvault.streamstore.services.lease import LeaseHeld

STREAM, ROOT, ARCHIVE = "local:///data/shop/orders", "file:///vault", "file:///vault/shop/orders"


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fields in {
        "pravega_default": {"conn_type": "pravega", "host": "h", "login": "ann", "password": "pravega-secret"},
        "standby": {"conn_type": "pravega", "host": "s", "login": "bob", "password": "standby-secret"},
        "open": {"conn_type": "pravega", "host": "o"},
        "aws_default": {"conn_type": "aws", "login": "key", "password": "aws-secret"},
        "spark_default": {"conn_type": "spark", "host": "local[2]"},
        "inline": {"conn_type": "spark", "host": "inline"},
        "in_the_cluster": {
            "conn_type": "spark",
            "host": "spark://h",
            "port": 7077,
            "extra": {"deploy-mode": "cluster"},
        },
        "nonsense": {"conn_type": "spark", "host": "mesos://h"},
    }.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


OF_AN_ARCHIVE: dict[str, Any] = {"archive": ARCHIVE}
OF_A_STREAM: dict[str, Any] = {"stream": STREAM, "root": ROOT}
OF_TWO: dict[str, Any] = {"source": "shop/a", "stream": "shop/b"}
OPERATORS: dict[type[CommandOperator], dict[str, Any]] = {
    ExportStreamOperator: OF_A_STREAM,
    RotateArchiveOperator: OF_A_STREAM,
    ImportStreamOperator: {"archive": ARCHIVE, "stream": STREAM},
    CheckArchiveOperator: OF_AN_ARCHIVE,
    CopyStreamOperator: OF_TWO,
    ReplicateStreamOperator: OF_TWO,
    PromoteReplicaOperator: {"stream": STREAM},
    MoveStreamOperator: OF_TWO,
}
A, B = "pravega://h:9090/shop/a", "pravega://h:9090/shop/b"
STANDBY = "pravega://s:9090/shop/a"
CUT = {"a/b/0.#epoch.0": 7}

COMMANDS: list[tuple[type[CommandOperator], dict[str, Any], str]] = [
    (
        ExportStreamOperator,
        {**OF_A_STREAM, "layout": "chunks", "range_size": "", "window": None, "compress": "zstd"},
        f"export {STREAM} {ROOT} --compress zstd --layout chunks",
    ),
    (ExportStreamOperator, {"stream": "shop/a", "root": ROOT}, f"export {A} {ROOT}"),
    (
        RotateArchiveOperator,
        {**OF_A_STREAM, "keep": 7, "truncate_source": True, "deletions": "shop/b", "hold": "audit"},
        f"rotate {STREAM} {ROOT} --hold audit --keep 7 --queue {B} --truncate-source",
    ),
    (
        ImportStreamOperator,
        {"archive": ARCHIVE, "stream": STREAM, "at": "", "generation": "3", "read_back": "True", "fingerprint": "ab"},
        f"import {ARCHIVE} {STREAM} --again --fingerprint ab --generation 3 --read-back",
    ),
    (
        CheckArchiveOperator,
        {"archive": ARCHIVE, "read_data": "False", "subset": "10%", "seed": 0, "fingerprint": ["a", "", "b"]},
        f"check {ARCHIVE} --fingerprint a --fingerprint b --read-data-subset 10% --seed 0",
    ),
    (CopyStreamOperator, {**OF_TWO, "to_cut": CUT}, f'copy {A} {B} --to {{"a/b/0.#epoch.0":7}}'),
    (
        ReplicateStreamOperator,
        {"source": "shop/a", "stream": "shop/a", "target_conn_id": "standby", "follow": "True", "lasting": "1h"},
        f"replicate {A} {STANDBY} --follow --for 1h",
    ),
    (ReplicateStreamOperator, {"source": ARCHIVE, "stream": STREAM}, f"replicate {ARCHIVE} {STREAM}"),
    (
        PromoteReplicaOperator,
        {"stream": "shop/a", "target_conn_id": "standby", "seal_source": True},
        f"promote {STANDBY} --seal-source",
    ),
    (MoveStreamOperator, {"source": STREAM, "stream": "shop/b"}, f"move {STREAM} {B}"),
]


@pytest.mark.parametrize(("kind", "given", "command"), COMMANDS)
def test_operator_makes_the_command_line(kind: type[CommandOperator], given: dict[str, Any], command: str) -> None:
    words = [word.replace(" ", "") for word in kind(task_id="t", **given).command()]
    first = 1 + len(kind.arguments)
    pairs = re.findall(r" (--[^ ]+(?: (?!--)[^ ]+)?)", " " + " ".join(words[first:]))
    assert " ".join([*words[:first], *sorted(pairs)]) == command


def sample(option: OptionArgument) -> str:
    """A value of an option, as a template gives it."""
    form, annotation = command_line(option.declared), option.declared.annotation
    if option.is_flag:
        return "yes"
    if form.choices:
        return next(iter(form.choices))
    literal = next((kind for kind in (annotation, *get_args(annotation)) if get_origin(kind) is Literal), None)
    if literal is not None:
        return str(get_args(literal)[0])
    texts: dict[Any, str] = {SIZE.parse: "64MiB", DURATION.parse: "5m", PERCENT.parse: "10%"}
    texts |= {load_cut: json.dumps(CUT), TIME.load: "2026-01-31T18:00:00Z"}
    return texts.get(form.parse or form.load, "3")


@pytest.mark.parametrize("kind", OPERATORS)
def test_command_understands_every_option_of_its_operator(kind: type[CommandOperator]) -> None:
    """Each is given as a text; only those named here are not offered."""
    given = {option.name: sample(option) for option in kind.options}
    operator = kind(task_id="t", **OPERATORS[kind], **given)
    if isinstance(operator, RotateArchiveOperator):
        operator.deletions = STREAM
    assert {*OPERATORS[kind], *given} <= set(operator.template_fields)
    read = load_command(kind.verb).make_context(kind.verb, operator.command()[1:])
    found = {name for name in read.params if getattr(read.get_parameter_source(name), "name", "") == "COMMANDLINE"}
    assert set(kind.options_class.keyword_fields()) - found <= {"same_stream", "master", "dry_run"}


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


@pytest.mark.parametrize("kind", OPERATORS)
def test_no_option_has_the_name_of_an_argument_of_airflow(kind: type[CommandOperator]) -> None:
    bases = SparkSubmitOperator.__mro__
    others = {name for base in bases for name in inspect.signature(base.__init__).parameters}  # type: ignore[misc]
    assert not {*kind.arguments, *(option.name for option in kind.options)} & others


def ended(code: int, **document: Any) -> Outcome:
    return Outcome(code, document or None, "the last lines")


ERROR = {"what": "it is not there", "where": "s3://v", "todo": "Look.", "exit_code": 0}


def test_report_of_a_successful_command_is_returned() -> None:
    assert report_of(ended(0, events=1)) == {"events": 1}


@pytest.mark.parametrize("code", [1, 130, -9, 137, 143])
def test_exit_codes_worth_a_retry_fail_the_attempt_only(code: int) -> None:
    with pytest.raises(AirflowException, match=r"it is not there: s3://v. Look.") as raised:
        report_of(ended(code, error=ERROR))
    assert not isinstance(raised.value, AirflowFailException)


@pytest.mark.parametrize("code", [2, 3, 4])
def test_exit_codes_not_worth_a_retry_fail_the_task(code: int) -> None:
    with pytest.raises(AirflowFailException, match=r"it is not there: s3://v. Look."):
        report_of(ended(code, error=ERROR))


@pytest.mark.parametrize(
    ("problem", "again"),
    [
        (NoSuchArchive("no archive"), False),
        (NoSuchStream("no such stream"), False),
        (NoSuchScope("no such scope"), False),
        (NoSuchBucket("no such bucket"), False),
        (NoJava("no Java runtime"), False),
        (StreamStoreUnavailable("Pravega does not answer"), True),
        (AccessDenied("the credentials have expired"), True),
        (Conflict("another archive"), False),
        (Overtaken("generations were merged"), True),
        (LeaseHeld("another import is alive"), True),
        (StoreBusy("another process writes"), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Problem) else "",
)
def test_kind_of_problem_decides_whether_airflow_retries(problem: Problem, again: bool) -> None:
    document = command_error(problem, resumable=True).to_json()
    with pytest.raises(AirflowException, match=problem.what) as said_by_a_command:
        report_of(Outcome(problem.exit_code, document))
    with pytest.raises(AirflowException, match=problem.what) as said_in_a_task, raising_for_airflow():
        raise problem
    for raised in (said_by_a_command, said_in_a_task):
        assert isinstance(raised.value, AirflowFailException) is not again


def test_overtaken_run_is_told_to_run_the_command_again() -> None:
    assert Overtaken("x").todo == "Run the same command again."
    assert pickle.loads(pickle.dumps(Overtaken("x", todo="Wait."))).todo == "Wait."


def test_backfill_rotates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would run one rotation for each past interval, and could expire generations to be kept."""
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: pytest.fail("it has rotated"))
    operator = RotateArchiveOperator(task_id="t", stream=STREAM, root=ROOT, keep=2)
    with pytest.raises(AirflowFailException, match="a backfill would run one rotation now for each past interval"):
        operator.execute({"dag_run": SimpleNamespace(run_type="backfill")})


def test_driver_without_a_report_fails_the_attempt() -> None:
    with pytest.raises(AirflowException, match="the last lines"):
        report_of(ended(1))
    with pytest.raises(AirflowException, match="no report"):
        report_of(ended(0))


def test_damage_is_listed_up_to_a_limit() -> None:
    findings = [f"range {number} is gone" for number in range(30)]
    with pytest.raises(AirflowFailException) as raised:
        report_of(ended(3, archive=ARCHIVE, ok=False, findings=findings, more_findings=5))
    lines = str(raised.value).splitlines()
    assert lines[:2] == [f"{ARCHIVE} is damaged:", "range 0 is gone"]
    assert lines[-2:] == ["range 19 is gone", "and 15 more"]


def test_import_that_left_damage_out_fails_and_says_that_the_stream_is_there() -> None:
    with pytest.raises(AirflowFailException) as raised:
        report_of(ended(3, archive=ARCHIVE, stream=STREAM, findings=["range 1 is gone"]))
    lines = [f"{STREAM} was restored without the damaged parts of {ARCHIVE}:", "range 1 is gone"]
    assert str(raised.value).splitlines() == lines


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
    ("source", "stream", "target", "expected"),
    [
        ("shop/a", "shop/a", "standby", ("pravega-secret", "standby-secret")),
        ("shop/a", "shop/b", None, ("pravega-secret", "pravega-secret")),
        ("shop/a", "shop/b", "", ("pravega-secret", "pravega-secret")),
        ("shop/a", "shop/a", "open", ("pravega-secret", "")),
        ("shop/a", STREAM, None, ("pravega-secret", "worker-secret")),
        (STREAM, "shop/a", "standby", ("worker-secret", "standby-secret")),
        (STREAM, "shop/a", None, ("worker-secret", "pravega-secret")),
        (STREAM, STREAM, "standby", ("worker-secret", "worker-secret")),
    ],
)
def test_each_cluster_gets_its_own_login(
    monkeypatch: pytest.MonkeyPatch, source: str, stream: str, target: str | None, expected: tuple[str, str]
) -> None:
    """A cluster whose connection has no login is not sent the other's."""
    operator = ReplicateStreamOperator(task_id="t", source=source, stream=stream, target_conn_id=target)
    assert logins(monkeypatch, operator) == expected


@pytest.mark.parametrize(("seal", "source"), [(True, "pravega-secret"), ("False", "worker-secret")])
def test_promotion_logs_in_to_the_source_only_to_seal_it(
    monkeypatch: pytest.MonkeyPatch, seal: bool | str, source: str
) -> None:
    operator = PromoteReplicaOperator(task_id="t", stream="shop/a", target_conn_id="standby", seal_source=seal)
    assert logins(monkeypatch, operator) == (source, "standby-secret")


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
    operator = ReplicateStreamOperator(task_id="t", source="s3://vault/shop/orders", stream="shop/orders")
    variables = operator.variables()
    assert (variables["AWS_SECRET_ACCESS_KEY"], variables["PRAVEGA_TARGET_PASSWORD"]) == (
        "aws-secret",
        "pravega-secret",
    )
    assert "PRAVEGA_PASSWORD" not in variables


def test_replication_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: pytest.fail("it has begun"))
    operator = ReplicateStreamOperator(task_id="t", source="shop/a", stream="shop/b", follow=True, idle="1m")
    with pytest.raises(AirflowFailException, match="follow requires lasting: a task must end"):
        operator.execute({"ti": Attempt(1)})


def lagging(**changes: Any) -> dict[str, Any]:
    """A report of `replicate`."""
    report = {
        "source": ARCHIVE,
        "stream": "pravega://h:9090/shop/b",
        "rounds": 1,
        "moved_bytes": 7,
        "behind_bytes": 7,
        "lag_seconds": 61.5,
    }
    return {**report, "tail_time": "2026-01-31T18:00:00+00:00", **changes}


@pytest.mark.parametrize("rounds", [0, 1])
def test_lag_is_in_the_report_and_in_the_asset_event(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    report = lagging(rounds=rounds)
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: Outcome(0, report))
    alias, outlets = AssetAlias("replicas"), Outlets()
    operator = ReplicateStreamOperator(task_id="t", source="shop/a", stream="shop/b", most_lag="62s", outlets=[alias])
    assert operator.execute({"ti": Attempt(1), "outlet_events": outlets}) == report
    extra = {"moved_bytes": 7, "behind_bytes": 7, "lag_seconds": 61.5}
    assert outlets == ({alias: {report["stream"]: extra}} if rounds else {}), "a run that finds nothing new emits none"


def test_too_great_a_lag_fails_the_task_without_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry would find the replica up to date, and nobody would be told."""
    report, attempt = lagging(), Attempt(1)
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: Outcome(0, report))
    operator = ReplicateStreamOperator(task_id="t", source="shop/a", stream="shop/b", most_lag="1m")
    with pytest.raises(AirflowFailException) as raised:
        operator.execute({"ti": attempt})
    assert str(raised.value) == (
        f"the lag of pravega://h:9090/shop/b is 1 min 02 s, above most_lag (1m). It has what {ARCHIVE} had at "
        "2026-01-31T18:00:00+00:00."
    )
    assert attempt.pushed == {"report": report}


def test_invalid_limit_of_the_lag_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: pytest.fail("it has begun"))
    operator = ReplicateStreamOperator(task_id="t", source="shop/a", stream="shop/b", most_lag="300")
    with pytest.raises(AirflowFailException, match="most_lag: '300' is not a duration"):
        operator.execute({"ti": Attempt(1)})


@pytest.mark.parametrize("conn_id", ["in_the_cluster", "nonsense"])
def test_hook_refuses_a_spark_connection_it_cannot_use(conn_id: str) -> None:
    with pytest.raises(AirflowFailException, match=f"connection '{conn_id}'"):
        StreamvaultSubmitHook(variables={}, conn_id=conn_id)


class Outlets(dict[Any, Any]):
    """Replaces the object in which Airflow collects asset events."""

    def __missing__(self, key: Any) -> Outlets:
        self[key] = Outlets()
        return self[key]  # type: ignore[no-any-return]

    def add(self, asset: Asset, extra: dict[str, Any]) -> None:
        self[asset.uri] = extra


class Attempt:
    def __init__(self, number: int) -> None:
        self.try_number = number
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


@pytest.mark.parametrize(
    ("unchanged", "attempt", "told"),
    [(False, 1, True), (True, 1, False), (True, 2, True)],
    ids=["new", "same", "retry"],
)
@pytest.mark.parametrize("verb", ["export", "rotate", "replicate"])
def test_assets_have_an_event_only_if_something_was_written(
    monkeypatch: pytest.MonkeyPatch, verb: str, unchanged: bool, attempt: int, told: bool
) -> None:
    """Airflow itself emits one for each asset of `outlets` when the task succeeds: as in the guide's example.

    Also if an earlier attempt wrote it and was killed before it could emit the event.
    """
    numbers = {"generation": 2, "events": 7, "bytes": 70}
    written, operator, report = {
        "export": (
            ARCHIVE,
            ExportStreamOperator(task_id="t", stream=STREAM, root=ROOT),
            {"archive": ARCHIVE, "unchanged": unchanged, **numbers},
        ),
        "rotate": (
            ARCHIVE,
            RotateArchiveOperator(task_id="t", stream=STREAM, root=ROOT),
            {"archive": ARCHIVE, "expired": (), "export": {"unchanged": unchanged, **numbers}},
        ),
        "replicate": (
            "pravega://h:9090/shop/b",
            ReplicateStreamOperator(task_id="t", source="shop/a", stream="shop/b"),
            lagging(rounds=int(not unchanged)),
        ),
    }[verb]
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: Outcome(0, report))
    asset, other, alias, events = Asset(written), Asset("file:///x"), AssetAlias("archives"), OutletEventAccessors()
    operator.outlets = [asset, other, alias]
    run = SimpleNamespace(run_type="scheduled")
    operator.execute({"ti": Attempt(attempt), "outlet_events": events, "dag_run": run})
    announced = [profile.uri or profile.name for profile in _build_asset_profiles(operator.outlets)]
    assert announced == ([asset.uri, other.uri, "archives"] if told else ["archives"])
    emitted = [event.dest_asset_key.uri for event in events[alias].asset_alias_events]
    assert emitted == ([written] if told else [])
    assert bool(events[asset].extra) == told


@pytest.mark.parametrize("value", [True, 1, "1", "true", "TRUE", " Yes ", "on", False, 0, "0", "false", "No", "OFF"])
def test_flag_may_be_written_in_several_ways(value: Any) -> None:
    operator = PromoteReplicaOperator(task_id="t", stream=STREAM, seal_source=value)
    wanted = str(value).strip().lower() in {"true", "1", "yes", "on"}
    assert ("--seal-source" in operator.command()) == wanted


FLAGS: list[tuple[Any, dict[str, Any], str]] = [
    *((kind, given, each.name) for kind, given in OPERATORS.items() for each in kind.options if each.is_flag),
    (WarmArchiveOperator, OF_AN_ARCHIVE, "wait"),
]


@pytest.mark.parametrize("value", ["flase", "t", "None", None, "", 2, 1.0, "y"])
@pytest.mark.parametrize(("kind", "arguments", "name"), FLAGS)
def test_flag_that_is_no_boolean_fails_the_task(
    monkeypatch: pytest.MonkeyPatch, kind: Any, arguments: dict[str, Any], name: str, value: Any
) -> None:
    """A misspelt one was silently false."""
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: pytest.fail("it has begun"))
    operator = kind(task_id="t", **arguments, **{name: value})
    with pytest.raises(AirflowFailException, match=f"{name}: .* is not true, false, yes, no, on, off, 1 or 0"):
        operator.execute({"ti": Attempt(1), "dag_run": SimpleNamespace(run_type="scheduled")})


def test_findings_of_a_failed_check_are_pushed_as_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    report = {"archive": ARCHIVE, "ok": False, "findings": ["gone"]}
    monkeypatch.setattr(StreamvaultSubmitHook, "run", lambda *_: Outcome(3, report))
    attempt = Attempt(1)
    with pytest.raises(AirflowFailException, match="gone"):
        CheckArchiveOperator(task_id="t", archive=ARCHIVE).execute({"ti": attempt})
    assert attempt.pushed == {"report": report}
