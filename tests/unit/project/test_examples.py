"""The files of examples/ fit their schemas, and their commands are ones of this command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from testkit.servers.examples import COMPOSE, KUBERNETES, SYSTEMD, compose_commands, pod_commands, unit_commands
from tests.pages import DOCS, ROOT, command_lines, is_parsed

UNITS = sorted(each for each in SYSTEMD.iterdir() if each.suffix in {".service", ".timer"})
GUIDE = (DOCS / "guide" / "deploying.md").read_text()


def documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def test_compose_file_fits_the_specification() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="compose-spec has wheels for Python 3.11 only")
    (document,) = documents(COMPOSE)
    assert compose_spec.PyCompose.from_json(json.dumps(document)).service_names()
    with pytest.raises(ValueError, match="depend_on"):
        compose_spec.PyCompose.from_json('{"services": {"one": {"image": "x", "depend_on": ["two"]}}}')
    services = document["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        for build in [service["build"]] if "build" in service else []:
            assert (COMPOSE.parent / build["context"] / build.get("dockerfile", "Dockerfile")).is_file()
    assert json.loads(services["airflow"]["environment"]["AIRFLOW_VAR_STREAMVAULT_ROTATION"])["streams"]
    for name, text in services["airflow"]["environment"].items():
        if name.startswith("AIRFLOW_CONN_"):
            assert json.loads(text)["conn_type"] == name.split("_")[2].lower()


def test_airflow_of_the_image_is_the_locked_one() -> None:
    image = re.search(
        r"^FROM apache/airflow:([\d.]+)-", (COMPOSE.parent / "airflow.Dockerfile").read_text(), re.MULTILINE
    )
    assert image is not None
    assert f'name = "apache-airflow"\nversion = "{image[1]}"' in (ROOT / "uv.lock").read_text()


@pytest.mark.parametrize("file", sorted(KUBERNETES.glob("*.yaml")), ids=lambda file: file.name)
def test_kubernetes_objects_fit_their_schemas(file: Path) -> None:
    for document in documents(file):
        if document["kind"] == "Kustomization":
            named = [
                *document["resources"],
                *(name for each in document["configMapGenerator"] for name in each.get("files", each.get("envs"))),
            ]
            assert all((KUBERNETES / name).is_file() for name in named)
            continue
        kubernetes_validate.validate(document, "1.33", strict=True)
        document["specs"] = {}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(document, "1.33", strict=True)


def test_kustomization_is_built() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl")
    built = subprocess.run(["kubectl", "kustomize", KUBERNETES], check=True, capture_output=True, text=True, timeout=60)
    objects = {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(built.stdout)}
    assert {("CronJob", "streamvault-rotate"), ("Deployment", "streamvault-follow")} < objects
    assert {("Deployment", "streamvault-serve"), ("Service", "streamvault-serve")} < objects


def test_the_served_archives_are_reached_through_the_service() -> None:
    deployment, service, budget = documents(KUBERNETES / "serve.yaml")
    secrets = {each["metadata"]["name"]: each["stringData"] for each in documents(KUBERNETES / "secret.yaml")}
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    options = dict(word.removeprefix("--").split("=", 1) for word in container["args"] if word.startswith("--"))
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    first = int(options["listen"].rpartition(":")[2])
    assert (ports["controller"], ports["segments"]) == (first, first + 1)
    assert {each["port"]: ports[each["targetPort"]] for each in service["spec"]["ports"]} == {
        first: first,
        first + 1: first + 1,
    }
    assert options["advertise"] == f"{service['metadata']['name']}.streamvault.svc"
    assert options["metrics-port"] == f"0.0.0.0:{ports['metrics']}"
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "metrics"}
    assert service["spec"]["selector"] == pod["metadata"]["labels"] == budget["spec"]["selector"]["matchLabels"]
    (access,) = [each["secret"]["secretName"] for each in pod["spec"]["volumes"] if each["name"] == "access"]
    files = {Path(options[name]).name for name in ("tls-cert", "tls-key", "login")}
    assert files == set(secrets[access])
    assert options["state"].startswith("s3://")
    assert deployment["spec"]["replicas"] == 2


def test_units_are_verified_by_systemd(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    program = Path(sys.executable).with_name("streamvault")
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/streamvault/bin/streamvault", str(program)))
    words = [
        "systemd-analyze",
        "verify",
        "--man=no",
        "--recursive-errors=no",
        *(str(tmp_path / unit.name) for unit in UNITS),
    ]
    shown = subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    told = [line for line in shown.stderr.splitlines() if "streamvault" in line]
    assert (shown.returncode, told) == (0, []), shown.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_each_timer_has_its_service(unit: Path) -> None:
    if unit.suffix == ".timer":
        assert unit.with_suffix(".service") in UNITS
        assert f"{unit.name}" in GUIDE


def test_commands_are_parsed() -> None:
    commands = [*unit_commands(), *pod_commands(), *compose_commands()]
    assert len(commands) == 11
    for command in commands:
        is_parsed(command)
    of_the_guide = [
        words[words.index("streamvault") + 1 :] for words in command_lines(GUIDE, "docker") if "run" in words
    ]
    assert [words[0] for words in of_the_guide] == ["demo", "copy", "export", "import"]
    for command in of_the_guide:
        is_parsed(command)
