"""The page of reference has every key, parameter, variable and operator."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from streamvault.airflow import operators
from streamvault.airflow.lists import ReplicationEntry, Replications, RotationEntry, Rotations
from streamvault.airflow.sensors import LookingSensor
from streamvault.dags import copy_via_file, restore_on_demand
from tests.pages import DOCS, sections

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
