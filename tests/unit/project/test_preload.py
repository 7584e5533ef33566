"""The modules that verbs and tasks import: imports cost time in every command, and memory in every task."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamvault.sparkrun.opening import TABLE_MODULES, TASK_MODULES

VERBS = (
    "streamvault.exporter.export",
    "streamvault.exporter.convert.convert",
    "streamvault.importer.import_",
    "streamvault.manifests.verbs.check",
    "streamvault.manifests.verbs.get",
    "streamvault.rotation.compact.compact",
    "streamvault.rotation.rotate",
)


def loaded(*modules: str) -> set[str]:
    """The packages that a process has loaded after importing these modules."""
    imports = ", ".join(modules)
    program = f"import sys, {imports}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    )


def test_tasks_load_neither_arrow_nor_botocore() -> None:
    assert not loaded(*TASK_MODULES) & {"pyarrow", "botocore", "boto3", "pyspark"}


def test_tasks_that_write_tables_load_arrow() -> None:
    assert "pyarrow" in loaded(*TABLE_MODULES)


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_load_botocore_only_for_s3(verb: str) -> None:
    assert not loaded(verb) & {"botocore", "boto3", "pyspark", "airflow", "pandas"}
