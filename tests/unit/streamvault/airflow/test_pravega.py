"""Pravega connections: URIs, and the environment of the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.aws import aws_environment, root_address, s3_client
from streamvault.airflow.pravega import PravegaHook
from streamvault.airflow.provider import get_provider_info
from streamvault.common.processes import environment
from streamvault.objectstore.s3.access import access_from_environment
from streamvault.objectstore.s3.aws import resolve_access, uses_virtual_host
from streamvault.streamstore.pravega.connection import PravegaSettings


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
