"""Parameters of a DAG run.

The intermediate archive of a copy.

The parameters of a restore are checked, and its result is described.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from streamvault import import_stream, rotate_stream
from streamvault.airflow.helpers import (
    check_restore,
    checked_params,
    copy_root,
    describe_restore,
    option_param,
    remove_copy,
)
from streamvault.common.errors import Failed
from streamvault.dags import archive_rotation, copy_via_file, restore_on_demand, standby
from streamvault.importer.reports import ImportOptions
from streamvault.manifests.options import WarmOptions
from streamvault.objectstore.uri import RootAddress
from testkit.small_archives import NAME, Vault


def context(conf: dict[str, Any] | None) -> dict[str, Any]:
    declared = {"archive": "A", "generation": None}
    dag = SimpleNamespace(dag_id="restore_on_demand", params=declared)
    return {"dag": dag, "dag_run": SimpleNamespace(conf=conf), "params": {**declared, **(conf or {})}}


@pytest.mark.parametrize("conf", [None, {}, {"generation": 3}])
def test_declared_parameters_are_returned(conf: dict[str, Any] | None) -> None:
    assert checked_params(context(conf)) == {"archive": "A", "generation": None, **(conf or {})}


def test_undeclared_parameter_is_refused() -> None:
    """Airflow ignores it, so the newest generation would be restored instead of the requested one."""
    with pytest.raises(AirflowFailException, match=r"unknown parameter generatoin.* are archive, generation"):
        checked_params(context({"generatoin": 3}))


@pytest.mark.parametrize(
    ("param", "default", "wrong"),
    [
        (option_param(ImportOptions, "offsets", "T", default="keep"), "keep", "move"),
        (option_param(ImportOptions, "read_back", "T", default=True), True, "yes"),
        (option_param(WarmOptions, "tier", "T", default="Bulk", section="S"), "Bulk", "bulk"),
        (option_param(WarmOptions, "days", "T", default=7), 7, 0),
    ],
)
def test_form_takes_what_the_option_takes(param: Any, default: object, wrong: object) -> None:
    assert param.resolve() == default
    assert param.description
    with pytest.raises(ParamValidationError):
        param.resolve(wrong)


@pytest.mark.parametrize(
    "dag",
    [archive_rotation.DAG, copy_via_file.copy_via_file(), restore_on_demand.restore_on_demand(), standby.DAG],
    ids=lambda dag: dag.dag_id,
)
def test_dag_says_what_it_is(dag: DAG) -> None:
    assert dag.description
    assert dag.doc_md
    assert "streamvault" in dag.tags
    assert len(dag.tags) == 2
    params = {name: dag.params.get_param(name) for name in dag.params}
    assert [name for name, param in params.items() if not (param.description and param.schema.get("title"))] == []
    sections = {name: param.schema.get("section") for name, param in params.items()}
    assert all(sections[name] == "Connections" for name in sections if name.endswith("conn_id"))


def test_restore_warms_as_its_form_says() -> None:
    warm_up = restore_on_demand.restore_on_demand().get_task("warm_up")
    assert (warm_up.tier, warm_up.days) == ("{{ params.tier }}", "{{ params.days }}")  # type: ignore[attr-defined]


def test_copy_has_a_root_of_its_own_and_only_that_is_removed(tmp_path: Path) -> None:
    via = f"file://{tmp_path}"
    root = copy_root(via, "copy", "nightly-1")
    assert root.startswith(f"{via}/copy-")
    assert root == copy_root(via, "copy", "nightly-1")
    assert root != copy_root(via, "copy again", "nightly-1")
    folder = Path(root.removeprefix("file://"))
    for name in ("a/b/_manifest/0000000001.json", "a/b/chunks/x"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    assert remove_copy(root, None) == 2
    assert remove_copy(root, None) == 0
    with pytest.raises(AirflowFailException, match="not the root of a copy"):
        remove_copy(f"file://{tmp_path}", None)


def test_folder_of_intermediate_archives_is_made(tmp_path: Path) -> None:
    via = tmp_path / "not" / "there yet"
    root = copy_root(via.as_uri(), "copy", "nightly-1")
    assert via.is_dir()
    store = RootAddress.parse(root).open()
    store.put("scope/stream/_manifest/x", b"")
    assert remove_copy(root, None) == 1
    assert copy_root(via.as_uri(), "copy", "nightly-1") == root
    (tmp_path / "file").touch()
    with pytest.raises(Failed, match="the folder cannot be made"):
        copy_root((tmp_path / "file" / "below").as_uri(), "copy", "nightly-1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nightly_1", "nightly-1"),
        ("scheduled__2026-11-21T19:00:00+01:00", "scheduled__2026-11-21T19:00:00-01:00"),
        ("ночная", "nächtlich"),
        ("夜間", "毎夜"),
        ("a", "A"),
    ],
)
def test_different_runs_have_different_copy_roots(one: str, other: str) -> None:
    assert copy_root("s3://vault/between", "copy", one) != copy_root("s3://vault/between", "copy", other)


ASKED = {"archive": "file:///vault/a/b", "target": "local:///data/a/b", "at": None, "generation": None}


def test_restore_is_described_in_one_line() -> None:
    assert check_restore(ASKED) == {"archive": "file:///vault/a/b", "target": "local:///data/a/b"}
    report = {"stream": "S", "archive": "A", "events": 1000, "bytes": 7, "segments": 2, "generation": 3, "warnings": []}
    assert describe_restore(report, read_back=True) == (
        "S: 1,000 events (7 bytes) in 2 segments from A, up to generation 3; "
        "all restored data was read back from the stream and matches the archive's digests"
    )
    assert "appended by an earlier attempt" in describe_restore(report, read_back=False)


def test_description_says_that_the_beginning_has_expired(tmp_path: Path) -> None:
    vault = Vault(tmp_path)
    vault.make(events=20)
    vault.export()
    for number in range(2):
        vault.add(b"more %d" % number)
        rotate_stream(vault.uri(), vault.root, keep=1, master="inline")
    back = import_stream(vault.archive, vault.uri(replace(NAME, stream="back")), master="inline")
    assert back.events < len(vault.events())
    said = describe_restore(back.to_json(), read_back=True).splitlines()[1:]
    assert said[0] == (
        "Note: the beginning is missing: generations 1 to 2 have expired, so the archive begins with generation 3"
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"at": "2026-01-01T00:00:00Z", "generation": 1}, "at and generation are mutually exclusive"),
        ({"at": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"archive": "file:///vault"}, "not an archive URI"),
        ({"target": "local://a/b"}, "not a stream's URI"),
    ],
)
def test_invalid_restore_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        check_restore({**ASKED, **wrong})
