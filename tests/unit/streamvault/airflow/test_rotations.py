"""The declared list of what is rotated, and what a restore or a copy is asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from streamvault import import_stream, rotate_stream
from streamvault.airflow.copying import copy_root, remove_copy
from streamvault.airflow.parameters import checked_params
from streamvault.airflow.restoring import check_restore, describe_restore
from streamvault.airflow.rotations import in_batches, read_rotations
from tests.unit.small_archives import NAME, Vault


def streams(scope: str, connection: str | None) -> list[str]:
    return [f"{scope}-{connection}-{number}" for number in (1, 2)]


def test_what_a_stream_says_goes_before_what_the_list_says() -> None:
    declared = {
        "root": "s3://vault/backups",
        "keep": 7,
        "layout": "chunks",
        "streams": ["shop/orders", {"stream": "shop/clicks", "keep_for": "90d", "root": "file:///vault"}],
    }
    assert read_rotations(declared).arguments(streams) == [
        {"stream": "shop/orders", "root": "s3://vault/backups", "keep": 7, "layout": "chunks"},
        {"stream": "shop/clicks", "root": "file:///vault", "keep_for": "90d", "layout": "chunks"},
    ]


def test_a_scope_stands_for_its_streams() -> None:
    declared = {"root": "s3://vault", "pravega_conn_id": "p", "streams": [{"scope": "billing"}]}
    found = read_rotations(declared).arguments(streams)
    assert [each["stream"] for each in found] == ["billing/billing-p-1", "billing/billing-p-2"]


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rotation.json"
    file.write_text(json.dumps([{"stream": "a/b", "root": "s3://vault"}]))
    assert read_rotations(None, str(file)).arguments(streams) == [{"stream": "a/b", "root": "s3://vault"}]
    file.write_text("[")
    with pytest.raises(AirflowFailException, match=r"rotation\.json"):
        read_rotations(None, str(file))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (None, "nothing says what to rotate"),
        ([], "streams: .* at least 1"),
        ([{"stream": "a/b", "scope": "a"}], r"streams\.0: give either stream or scope"),
        ([{"stream": "a/b", "keeep": 1}], r"streams\.0\.keeep: Extra inputs"),
        ({"keep": 0, "streams": ["a/b"]}, "keep: .* greater than or equal to 1"),
        ({"keep": 1, "until": "2026-01-01T00:00:00Z", "streams": ["a/b"]}, "keep and until do not go together"),
        ({"keep_for": "long", "streams": ["a/b"]}, "keep_for: 'long' is not a duration"),
        ({"until": "2026-01-01", "streams": ["a/b"]}, "until: it names no time zone"),
        ({"root": "ftp://h", "streams": ["a/b"]}, "not a root's URI"),
    ],
)
def test_a_list_that_is_not_valid(declared: Any, said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        read_rotations(declared)


@pytest.mark.parametrize(
    ("declared", "said"),
    [(["a/b"], "it has no root"), ({"root": "s3://vault", "streams": ["a/b", "a/b"]}, "there twice")],
)
def test_a_list_that_cannot_be_followed(declared: Any, said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        read_rotations(declared).arguments(streams)


ASKED = {"archive": "file:///vault/a/b", "target": "local:///data/a/b", "at": None, "generation": None}


def test_a_restore() -> None:
    assert check_restore(ASKED) == {"archive": "file:///vault/a/b", "target": "local:///data/a/b"}
    report = {"stream": "S", "archive": "A", "events": 1000, "bytes": 7, "segments": 2, "generation": 3, "warnings": []}
    assert describe_restore(report, read_back=True) == (
        "S: 1,000 events (7 bytes) in 2 segments from A, up to generation 3; "
        "all that was restored was read back from the stream and has the archive's digests"
    )
    assert "as it was appended" in describe_restore(report, read_back=False)


def test_a_restore_says_that_the_archives_beginning_has_expired(tmp_path: Path) -> None:
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
        "Note: the beginning is missing: generations 1 to 2 have expired, and the archive begins with generation 3"
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"at": "2026-01-01T00:00:00Z", "generation": 1}, "at and generation do not go together"),
        ({"at": "2026-01-01T00:00:00"}, "names no time zone"),
        ({"archive": "file:///vault"}, "not an archive's URI"),
        ({"target": "local://a/b"}, "not a stream's URI"),
    ],
)
def test_a_restore_that_cannot_be(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        check_restore({**ASKED, **wrong})


def test_a_copy_has_a_place_of_its_own(tmp_path: Path) -> None:
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
    with pytest.raises(AirflowFailException, match="not a copy's root"):
        remove_copy(f"file://{tmp_path}", None)


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
def test_no_two_runs_copy_through_one_place(one: str, other: str) -> None:
    assert copy_root("s3://vault/between", "copy", one) != copy_root("s3://vault/between", "copy", other)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8])
def test_more_streams_than_one_list_may_have(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    arguments = [{"stream": f"a/{number}"} for number in range(count)]
    batches = in_batches(arguments, 4)
    assert len(batches) == 4
    assert [one for batch in batches for one in batch] == arguments
    assert max(map(len, batches)) <= 2


def test_more_streams_than_all_lists_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    with pytest.raises(AirflowFailException, match=r"9 streams .* takes 8: .* Raise AIRFLOW__CORE__MAX_MAP_LENGTH"):
        in_batches([{}] * 9, 4)


def context(conf: dict[str, Any] | None) -> dict[str, Any]:
    declared = {"archive": "A", "generation": None}
    dag = SimpleNamespace(dag_id="restore_on_demand", params=declared)
    return {"dag": dag, "dag_run": SimpleNamespace(conf=conf), "params": {**declared, **(conf or {})}}


@pytest.mark.parametrize("conf", [None, {}, {"generation": 3}])
def test_parameters_that_there_are(conf: dict[str, Any] | None) -> None:
    assert checked_params(context(conf)) == {"archive": "A", "generation": None, **(conf or {})}


def test_a_parameter_that_there_is_not_is_refused() -> None:
    """Airflow passes over it, so that the newest state would be restored instead of the one that was meant."""
    with pytest.raises(AirflowFailException, match=r"no parameter generatoin.* are archive, generation"):
        checked_params(context({"generatoin": 3}))
