"""What Airflow's own provider manager finds of the package: it is complete, valid, and can be imported.

The page of reference has every key, parameter, variable and operator.

Pravega connections: URIs, and the environment of the command line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import Asset, BaseHook, BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
from airflow.triggers.base import BaseTrigger

import streamvault.airflow
import streamvault.dags
from streamvault.airflow import operators
from streamvault.airflow.aws import aws_environment, root_address, s3_client
from streamvault.airflow.lists import ReplicationEntry, Replications, RotationEntry, Rotations
from streamvault.airflow.outcome import convert_asset_to_openlineage, create_asset, dataset_name
from streamvault.airflow.pravega import PravegaHook
from streamvault.airflow.provider import get_provider_info
from streamvault.airflow.sensors import LookingSensor
from streamvault.common.processes import environment
from streamvault.dags import copy_via_file, restore_on_demand
from streamvault.objectstore.s3.access import access_from_environment
from streamvault.objectstore.s3.aws import resolve_access, uses_virtual_host
from streamvault.streamstore.pravega.connection import PravegaSettings
from streamvault.streamstore.uri import is_stream
from tests.pages import DOCS, sections

KINDS: dict[str, Any] = {
    "sensors": BaseSensorOperator,
    "operators": BaseOperator,
    "hooks": BaseHook,
    "triggers": BaseTrigger,
}
INFO = get_provider_info()


def test_metadata_is_valid_and_names_what_exists() -> None:
    """Airflow leaves out a provider whose metadata is not valid, and logs that only."""
    schema = json.loads((Path(airflow.__path__[0]) / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)
    assert set(INFO) <= set(schema["properties"])
    named = {each["integration-name"] for kind in KINDS for each in INFO.get(kind, ())}
    assert named <= {each["integration-name"] for each in INFO["integrations"]}
    found = ProvidersManager().providers["streamvault"].data
    assert {name: found[name] for name in INFO} == INFO


def test_metadata_names_each_module_with_operators_hooks_or_triggers() -> None:
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for file in Path(streamvault.airflow.__path__[0]).glob("*.py"):
        module = import_module(f"streamvault.airflow.{file.stem}") if file.stem != "__init__" else streamvault.airflow
        for kind, base in KINDS.items():
            own = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, base)]
            if any(each.__module__ == module.__name__ for each in own):
                found[kind].add(module.__name__)
    found["operators"] = {"streamvault.airflow.operators"}
    found["hooks"].discard("streamvault.airflow.submit")  # of Spark's connection, for the operators alone
    named = {kind: {name for each in INFO.get(kind, ()) for name in each["python-modules"]} for kind in KINDS}
    assert named == found


@pytest.mark.parametrize(
    ("given", "uri", "dataset"),
    [
        (
            "pravega://Host:09090/shop/orders/",
            "pravega://host:9090/shop/orders",
            ("pravega://host:9090", "shop/orders"),
        ),
        ("pravega+tls://h:1/shop/orders", "pravega+tls://h:1/shop/orders", ("pravega://h:1", "shop/orders")),
        ("local:///data/shop/orders", "local:///data/shop/orders", ("local", "/data/shop/orders")),
    ],
)
def test_stream_is_an_asset(given: str, uri: str, dataset: tuple[str, str]) -> None:
    """With the URI that reports have: so the events of its operators reach it."""
    asset = Asset(given)
    assert asset.uri == uri
    assert is_stream(asset.uri)
    assert dataset_name(asset.uri) == dataset
    manager = ProvidersManagerTaskRuntime()
    scheme = uri.partition(":")[0]
    assert manager.asset_to_openlineage_converters[scheme] is convert_asset_to_openlineage
    store, scope, stream = given.strip("/").rsplit("/", 2)
    assert manager.asset_factories[scheme] is create_asset
    assert create_asset(store=store, scope=scope, stream=stream).uri == uri


@pytest.mark.parametrize("wrong", ["pravega://h/shop/orders", "pravega://h:9090/orders", "local:///orders"])
def test_asset_that_is_no_stream_is_refused_where_the_dag_is_parsed(wrong: str) -> None:
    with pytest.raises(ValueError, match="not a stream's URI"):
        Asset(wrong)


def test_archive_has_the_dataset_name_of_airflows_own_providers() -> None:
    converters = ProvidersManagerTaskRuntime().asset_to_openlineage_converters
    for uri in ("s3://vault/backups/shop/orders", "file:///vault/shop/orders"):
        assert uri.partition(":")[0] in converters
    assert dataset_name("s3://vault/backups/shop/orders") == ("s3://vault", "backups/shop/orders")
    assert dataset_name("file:///vault/shop/orders") == ("file", "/vault/shop/orders")


@pytest.mark.parametrize("name", ["archive_rotation", "copy_via_file", "restore_on_demand", "standby"])
def test_dag_without_the_extra_names_it(name: str) -> None:
    """Airflow is there, but not the provider for Spark."""
    script = """
import runpy, sys
class Missing:
    def find_spec(self, name, *_):
        if name.startswith("airflow.providers.apache.spark.operators"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
try:
    runpy.run_path(sys.argv[1])
except ImportError as error:
    sys.exit(f"{type(error).__name__}: {error}; {error.__context__ is None or error.__suppress_context__}")
"""
    file = Path(streamvault.dags.__path__[0], f"{name}.py")
    ran = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=False)
    said = ran.stderr.splitlines()[-1]
    assert said.startswith("ImportError: Streamvault's operators require its extra airflow: pip install 'streamvault")
    assert said.endswith("True")


PAGE = sections((DOCS / "reference/airflow.md").read_text())
NAMES: Mapping[str, set[str]] = {
    "The list of archive_rotation": RotationEntry.model_fields.keys() | Rotations.model_fields.keys(),
    "The list of standby": ReplicationEntry.model_fields.keys() | Replications.model_fields.keys() - {"streams"},
    "Parameters of restore_on_demand": set(restore_on_demand.PARAMS),
    "Parameters of copy_via_file": set(copy_via_file.PARAMS),
    "Operators and sensors": {*operators.__all__, *(kind.__name__ for kind in LookingSensor.__subclasses__())},
}


@pytest.mark.parametrize("section", NAMES)
def test_page_has_each_name(section: str) -> None:
    cells = re.findall(r"^\| (`[^|]*) \|", PAGE[section], re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == NAMES[section]


def connect(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


def test_uri_and_environment_have_every_field_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"scope": "shop", "tls": True, "ca_file": "/etc/ca.pem", "verify_hostname": "false"}
    connect(monkeypatch, "p", conn_type="pravega", host="h", port=1, login="ann", password="hush", extra=extra)
    hook = PravegaHook("p")
    assert hook.uri == "pravega+tls://h:1"
    assert hook.stream_uri("orders") == "pravega+tls://h:1/shop/orders"
    assert hook.stream_uri("other/orders") == "pravega+tls://h:1/other/orders"
    assert PravegaSettings.from_environment(hook.uri, hook.environment()) == PravegaSettings(
        "h", 1, tls=True, username="ann", password="hush", ca_file="/etc/ca.pem", verify_hostname=False
    )


def test_connection_with_a_host_alone_has_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "p", conn_type="pravega", host="h")
    hook = PravegaHook("p")
    assert PravegaSettings.from_environment(hook.uri, hook.environment()) == PravegaSettings("h")
    assert not any(hook.environment().values()), "what the worker has set is replaced: it belongs to another cluster"


@pytest.mark.parametrize("stream", ["", "orders", "/orders", "a/b/c", "a/b/"])
def test_uri_refuses_what_is_no_streams_name(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    connect(monkeypatch, "p", conn_type="pravega", host="h")
    with pytest.raises(AirflowFailException, match="not a stream"):
        PravegaHook("p").stream_uri(stream)


@pytest.mark.parametrize("fields", [{}, {"host": "h", "extra": {"token": "t"}}])
def test_hook_refuses_another_kind_of_connection(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    connect(monkeypatch, "p", conn_type="pravega", **fields)
    with pytest.raises(AirflowFailException, match="is not a valid Pravega connection"):
        _ = PravegaHook("p").uri


def test_connection_test_names_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "p", conn_type="pravega", host="h", extra={"tls": True, "ca_file": "/nowhere"})
    worked, said = PravegaHook("p").test_connection()
    assert (worked, "/nowhere" in said) == (False, True)


def test_connection_form_has_the_fields_that_are_read() -> None:
    form = get_provider_info()["connection-types"][0]
    assert form["connection-type"] == PravegaHook.conn_type
    assert form["hook-class-name"] == f"{PravegaHook.__module__}.{PravegaHook.__name__}"
    assert sorted(form["conn-fields"]) == ["ca_file", "scope", "tls", "verify_hostname"]


def test_flag_of_a_connection_that_is_no_boolean_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt one was true for TLS, and for verifying the host's name."""
    connect(monkeypatch, "p", conn_type="pravega", host="h", extra={"tls": "flase"})
    with pytest.raises(AirflowFailException, match="tls of connection 'p': 'flase' is not true"):
        _ = PravegaHook("p").uri


def test_aws_connections_keys_replace_those_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-somebody-else")
    monkeypatch.setenv("AWS_PROFILE", "of-somebody-else")
    extra = {"endpoint_url": "http://127.0.0.1:9", "region_name": "eu-north-1"}
    connect(monkeypatch, "a", conn_type="aws", login="key", password="secret", extra=extra)
    with environment(aws_environment("a")):
        access = resolve_access("vault")
    assert (access.endpoint, access.region) == ("http://127.0.0.1:9", "eu-north-1")
    assert access.keys is not None
    assert (access.keys.access_key, access.keys.secret_key, access.keys.token) == ("key", "secret", None)
    assert os.environ["AWS_PROFILE"] == "of-somebody-else"


def test_aws_connections_profile_replaces_the_workers_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-somebody-else")
    connect(monkeypatch, "a", conn_type="aws", extra={"profile_name": "archive"})
    variables = aws_environment("a")
    assert (variables["AWS_PROFILE"], variables["AWS_ACCESS_KEY_ID"]) == ("archive", None)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"endpoint_url": "https://s3.example.com"}, {"virtual_host": False}),
        ({"config_kwargs": {"s3": {"addressing_style": "path"}}}, {"virtual_host": False}),
        (
            {"endpoint_url": "https://s3.example.com", "config_kwargs": {"s3": {"addressing_style": "virtual"}}},
            {"virtual_host": True},
        ),
        ({"verify": "BUNDLE"}, {"authorities": "-----BEGIN CERTIFICATE-----"}),
        (
            {"endpoint_url": "https://a.example", "service_config": {"s3": {"endpoint_url": "https://b.example"}}},
            {"endpoint": "https://b.example"},
        ),
        ({"config_kwargs": {"use_fips_endpoint": True}}, {"endpoint": "https://s3-fips.eu-north-1.amazonaws.com"}),
        ({"endpoint_url": "http://s3.example.com", "verify": False}, {"authorities": ""}),
    ],
)
def test_every_part_reads_an_aws_connection_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Operators by their environment, sensors and triggers by an address, and warming by a client."""
    bundle = tmp_path / "ca.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----")
    extra = {"region_name": "eu-north-1", **extra}
    extra |= {"verify": str(bundle)} if extra.get("verify") == "BUNDLE" else {}
    connect(monkeypatch, "a", conn_type="aws", login="key", password="secret", extra=extra)
    with environment(aws_environment("a")):
        operators = resolve_access("vault")
        assert access_from_environment() in {operators, None}
    assert {name: getattr(operators, name) for name in expected} == expected
    sensors = root_address("s3://vault/backups", "a").access
    assert replace(operators, profile=None) == sensors
    if expected.get("authorities") is None:
        client = s3_client("a")
        assert client.meta.endpoint_url == operators.endpoint
        style = (client.meta.config.s3 or {}).get("addressing_style", "auto")
        assert uses_virtual_host(style, operators.endpoint, "vault") == operators.virtual_host


@pytest.mark.parametrize("read", [aws_environment, s3_client, lambda name: root_address("s3://vault/backups", name)])
def test_aws_connection_that_does_not_verify_is_refused(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[str], object]
) -> None:
    extra = {"endpoint_url": "https://s3.example.com", "verify": False}
    connect(monkeypatch, "a", conn_type="aws", login="key", password="secret", extra=extra)
    with pytest.raises(AirflowFailException, match="connection 'a': the server's certificate is always verified"):
        read("a")


def test_without_an_aws_connection_the_worker_environment_stays() -> None:
    assert aws_environment("nowhere") == {}
