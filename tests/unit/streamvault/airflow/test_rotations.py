"""The declared list of rotations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from streamvault.airflow.declared import in_batches
from streamvault.airflow.rotations import read_rotations


def streams(scope: str, connection: str | None) -> list[str]:
    return [f"{scope}-{connection}-{number}" for number in (1, 2)]


def test_stream_settings_override_those_of_the_list() -> None:
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


def test_scope_stands_for_its_streams() -> None:
    declared = {"root": "s3://vault", "pravega_conn_id": "p", "streams": [{"scope": "billing"}]}
    found = read_rotations(declared).arguments(streams)
    assert [each["stream"] for each in found] == ["billing/billing-p-1", "billing/billing-p-2"]


def test_list_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rotation.json"
    file.write_text(json.dumps([{"stream": "a/b", "root": "s3://vault"}]))
    assert read_rotations(None, str(file)).arguments(streams) == [{"stream": "a/b", "root": "s3://vault"}]
    file.write_text("[")
    with pytest.raises(AirflowFailException, match=r"rotation\.json"):
        read_rotations(None, str(file))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (None, "no list of rotations"),
        ([], "streams: .* at least 1"),
        ([{"stream": "a/b", "scope": "a"}], r"streams\.0: give either stream or scope"),
        ([{"stream": "a/b", "keeep": 1}], r"streams\.0\.keeep: Extra inputs"),
        ({"keep": 0, "streams": ["a/b"]}, "keep: .* greater than or equal to 1"),
        ({"keep": 1, "until": "2026-01-01T00:00:00Z", "streams": ["a/b"]}, "keep and until are mutually exclusive"),
        ({"keep_for": "long", "streams": ["a/b"]}, "keep_for: 'long' is not a duration"),
        ({"until": "2026-01-01", "streams": ["a/b"]}, "until: it has no time zone"),
        ({"root": "ftp://h", "streams": ["a/b"]}, "not a root URI"),
    ],
)
def test_invalid_list_is_refused(declared: Any, said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        read_rotations(declared)


@pytest.mark.parametrize(
    ("declared", "said"),
    [(["a/b"], "root is missing"), ({"root": "s3://vault", "streams": ["a/b", "a/b"]}, "listed twice")],
)
def test_list_without_a_root_or_with_duplicates_is_refused(declared: Any, said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        read_rotations(declared).arguments(streams)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 8])
def test_streams_are_shared_out_over_batches(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    arguments = [{"stream": f"a/{number}"} for number in range(count)]
    batches = in_batches(arguments, 4)
    assert len(batches) == 4
    assert [one for batch in batches for one in batch] == arguments
    assert max(map(len, batches)) <= 2


def test_more_streams_than_fit_all_batches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    with pytest.raises(
        AirflowFailException, match=r"9 streams .* at most 8: .* Increase AIRFLOW__CORE__MAX_MAP_LENGTH"
    ):
        in_batches([{}] * 9, 4)
