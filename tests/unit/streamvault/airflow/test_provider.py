"""What Airflow's own provider manager finds of the package: it is complete, valid, and can be imported.

The page of reference has every key, parameter, variable and operator.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager
from airflow.sdk import Asset, BaseHook, BaseOperator, BaseSensorOperator
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
from airflow.triggers.base import BaseTrigger

import streamvault.airflow
import streamvault.dags
from streamvault.airflow import operators
from streamvault.airflow.lists import ReplicationEntry, Replications, RotationEntry, Rotations
from streamvault.airflow.outcome import convert_asset_to_openlineage, create_asset, dataset_name
from streamvault.airflow.provider import get_provider_info
from streamvault.airflow.sensors import LookingSensor
from streamvault.dags import copy_via_file, restore_on_demand
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
