"""The commands of the files in examples/."""

from __future__ import annotations

from pathlib import Path

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"
COMPOSE = EXAMPLES / "compose" / "compose.yaml"
KUBERNETES = EXAMPLES / "kubernetes"
SYSTEMD = EXAMPLES / "systemd"
PROGRAM = "/opt/streamvault/bin/streamvault"


def unit_commands() -> list[list[str]]:
    """What the services of systemd run."""
    lines = [line for unit in sorted(SYSTEMD.glob("*.service")) for line in unit.read_text().splitlines()]
    return [line.split()[1:] for line in lines if line.startswith(f"ExecStart={PROGRAM} ")]


def pod_commands() -> list[list[str]]:
    """What the containers run."""
    found = []
    for file in (KUBERNETES / f"{name}.yaml" for name in ("rotate", "follow", "serve")):
        spec = next(iter(yaml.safe_load_all(file.read_text())))["spec"]
        template = spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec["template"]
        found += [list(container["args"]) for container in template["spec"]["containers"]]
    return found


def compose_commands() -> list[list[str]]:
    """What the services of compose run that are commands of ours."""
    services = yaml.safe_load(COMPOSE.read_text())["services"].values()
    return [
        list(each["command"])
        for each in services
        if each.get("image") == "streamvault" and each.get("command") and "entrypoint" not in each
    ]
